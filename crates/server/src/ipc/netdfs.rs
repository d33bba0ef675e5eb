//! The namespaces of the server as MS-DFSNM shows them to one caller, and their changes.

use std::sync::Arc;

use frevo_crypto::sha256;
use frevo_dfs::limits::LINK_TTL_S;
use frevo_dfs::{Link, Namespace, PriorityClass, Root, State, Target};
use frevo_rpc::WinError;
use frevo_rpc::netdfs::{
    Change, DfsInfo, EntryPath, NamespaceService, Priority, PriorityClass as WireClass, Properties,
    Storage, StorageState, VolumeState,
};
use frevo_wire::Status;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::{eq_ignore_case, fold_name};

use super::services::Caller;
use crate::audit::{Event, Kind};
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::{Quoted, cut};
use crate::shares::namespace_editor::NotChanged;

impl Caller<'_> {
    /// Returns the namespaces that the caller may know of: those whose roots the caller may connect to, and
    /// for members of Administrators all.
    fn known_namespaces(&self) -> Vec<Arc<Namespace>> {
        if self.user.is_empty() {
            return Vec::new();
        }
        let shares = self.server.shares();
        let is_known = |namespace: &&Arc<Namespace>| {
            self.manager.is_some()
                || shares.find(namespace.name()).is_some_and(|share| self.may_see(share))
        };
        shares.namespaces.iter().filter(is_known).map(Arc::clone).collect()
    }

    fn known_namespace(&self, name: &str) -> Option<Arc<Namespace>> {
        self.known_namespaces().into_iter().find(|known| eq_ignore_case(known.name(), name))
    }

    /// Returns the GUID of a root or a link. MS-DFSNM 3.1.4.1.6: it is always the same one.
    fn entry_guid(&self, namespace: &str, link: &str) -> Guid {
        let machine = self.server.machine_sid().to_string();
        let named = format!(r"frevo dfs {machine} {}\{}", fold_name(namespace), fold_name(link));
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&sha256(named.as_bytes())[..16]);
        // RFC 9562: version 8 in the upper half of Data3, and the variant.
        bytes[7] = (bytes[7] & 0x0F) | 0x80;
        bytes[8] = (bytes[8] & 0x3F) | 0x80;
        Guid(bytes)
    }

    fn root_info(&self, namespace: &Namespace) -> DfsInfo {
        let (host, name) = (self.host(), namespace.name());
        // A root that is a share has the share's comment.
        let shares = self.server.shares();
        let share = shares.find(name).filter(|_| namespace.root == Root::Share);
        let comment = share.map_or(&*namespace.comment, |share| &*share.comment);
        // MS-DFSNM 2.2.3.5 note 61: the names and the values of all that is stored.
        let metadata_size = namespace.links().map(link_size).sum::<usize>();
        DfsInfo {
            path: format!(r"\\{host}\{name}"),
            comment: Some(comment.to_owned()),
            state: VolumeState::OK.0 | VolumeState::FLAVOR_STANDALONE,
            timeout: namespace.root_ttl_s(),
            guid: self.entry_guid(name, ""),
            properties: failback(namespace.failback),
            metadata_size: u32::try_from(metadata_size).unwrap_or(u32::MAX),
            storage_count: 1,
            storages: vec![Storage {
                state: StorageState::ONLINE,
                server: host,
                share: name.to_owned(),
                priority: Priority::default(),
            }],
            ..DfsInfo::default()
        }
    }

    fn link_info(&self, namespace: &Namespace, link: &Link) -> DfsInfo {
        let storages: Vec<Storage> = link.targets().iter().map(storage).collect();
        let state = match link.state {
            State::Online => VolumeState::OK,
            State::Offline => VolumeState::OFFLINE,
        };
        DfsInfo {
            path: format!(r"\\{}\{}\{}", self.host(), namespace.name(), link.path()),
            comment: Some(link.comment.to_string()),
            state: state.0,
            timeout: link.ttl_s.unwrap_or(LINK_TTL_S),
            guid: self.entry_guid(namespace.name(), link.path()),
            properties: failback(link.failback || namespace.failback),
            storage_count: u32::try_from(storages.len()).unwrap_or(u32::MAX),
            storages,
            ..DfsInfo::default()
        }
    }

    /// Writes a change, or its refusal, into the log and the audit log.
    fn tell_change(&self, change: &Change, why: Option<&NotChanged>) {
        let (namespace, link) = (Quoted(change.namespace()), Quoted(change.link()));
        let (verb, user) = (verb(change), self.user);
        match why {
            None => tracing::info!(target: "frevo::tree", %namespace, %link, change = verb, user,
                "an administrator changed a namespace over the network"),
            Some(why) => {
                tracing::warn!(target: "frevo::tree", %namespace, %link, change = verb, user, %why,
                    "a namespace was not changed as an administrator asked over the network");
            }
        }
        self.server.audit.emit(|| {
            let event =
                self.change_event(change).administering(self.identity.administers_by.as_deref());
            match why {
                None => event,
                Some(why) => event.status(Status::ACCESS_DENIED).with("reason", why.to_string()),
            }
        });
    }

    fn change_event(&self, change: &Change) -> Event {
        Event::new(Kind::Share)
            .with("share", cut(change.namespace(), AUDIT_VALUE_BYTES))
            .with("by", cut(self.user, AUDIT_VALUE_BYTES))
            .with("peer", self.address.to_string())
            .with("change", verb(change))
            .with("path", cut(change.link(), AUDIT_VALUE_BYTES).replace('\\', "/"))
    }
}

/// The word for a change, for logs.
const fn verb(change: &Change) -> &'static str {
    match change {
        Change::AddLink { .. } => "add-link",
        Change::RemoveLink { .. } => "remove-link",
        Change::Set { .. } => "set-link",
        Change::Move { .. } => "move-link",
        Change::AddRoot { .. } => "add-namespace",
        Change::RemoveRoot { .. } => "remove-namespace",
    }
}

const fn failback(is_set: bool) -> Properties {
    if is_set { Properties::TARGET_FAILBACK } else { Properties::EMPTY }
}

/// Bytes of the texts of a link.
fn link_size(link: &Link) -> usize {
    let targets: usize = link.targets().iter().map(|target| target.path().len()).sum();
    link.path().len() + link.comment.len() + targets
}

/// A target as DFS_STORAGE_INFO_1: ShareName has the path in the share as well.
fn storage(target: &Target) -> Storage {
    let share = match target.folder() {
        "" => target.share().to_owned(),
        folder => format!(r"{}\{folder}", target.share()),
    };
    let class = match target.class {
        PriorityClass::GlobalHigh => WireClass::GLOBAL_HIGH,
        PriorityClass::SiteCostHigh => WireClass::SITE_COST_HIGH,
        PriorityClass::SiteCostNormal => WireClass::SITE_COST_NORMAL,
        PriorityClass::SiteCostLow => WireClass::SITE_COST_LOW,
        PriorityClass::GlobalLow => WireClass::GLOBAL_LOW,
    };
    Storage {
        state: match target.state {
            State::Online => StorageState::ONLINE,
            State::Offline => StorageState::OFFLINE,
        },
        server: target.server().to_owned(),
        share,
        priority: Priority { class, rank: u16::from(target.rank) },
    }
}

impl NamespaceService for Caller<'_> {
    fn host(&self) -> String {
        self.server.settings().server_name.clone()
    }

    fn is_domain(&self, name: &str) -> bool {
        let sids = self.server.domain_names.sids();
        let is = |known: &str| !known.is_empty() && eq_ignore_case(known, name);
        sids.joined().iter().any(|domain| is(&domain.name) || is(&domain.dns_name))
    }

    fn namespaces(&self) -> Vec<String> {
        self.known_namespaces().iter().map(|known| known.name().to_owned()).collect()
    }

    fn entry(&self, path: &EntryPath) -> Option<DfsInfo> {
        let namespace = self.known_namespace(&path.namespace)?;
        if path.is_root() {
            return Some(self.root_info(&namespace));
        }
        namespace.link(&path.link).map(|link| self.link_info(&namespace, link))
    }

    fn entries(&self, namespace: &str, from: usize, most: usize) -> Vec<DfsInfo> {
        let Some(namespace) = self.known_namespace(namespace) else { return Vec::new() };
        let root = (from == 0 && most > 0).then(|| self.root_info(&namespace));
        let rest = most - usize::from(root.is_some());
        let links = namespace.links().skip(from.saturating_sub(1)).take(rest);
        root.into_iter().chain(links.map(|link| self.link_info(&namespace, link))).collect()
    }

    fn may_manage(&self) -> bool {
        self.manager.is_some()
    }

    fn refused(&self, change: &Change) {
        self.server.audit.emit_limited(self.address, || {
            self.change_event(change)
                .status(Status::ACCESS_DENIED)
                .with("reason", "the caller is not a member of Administrators")
        });
    }

    fn change(&self, change: &Change) -> Result<(), WinError> {
        let done = match self.server.share_editor.get() {
            Some(editor) => editor.change_namespace(self.user, change.clone()),
            None => Err(NotChanged::forbidden()),
        };
        self.tell_change(change, done.as_ref().err());
        done.map_err(|why| match why {
            NotChanged::Forbidden(_) => WinError::ACCESS_DENIED,
            NotChanged::Absent(_) => WinError::NOT_FOUND,
            NotChanged::NoTarget(_) => WinError::FILE_NOT_FOUND,
            NotChanged::Exists(_) => WinError::FILE_EXISTS,
            NotChanged::NoShare(_) => WinError::NET_NAME_NOT_FOUND,
            NotChanged::Unsupported(_) => WinError::NOT_SUPPORTED,
            NotChanged::Bad(_) => WinError::INVALID_PARAMETER,
            NotChanged::Failed(_) => WinError::INTERNAL_ERROR,
            NotChanged::Retry(_) => WinError::RETRY,
        })
    }
}
