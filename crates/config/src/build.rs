//! From what is written to what the server works with.

use std::path::Path;
use std::sync::Arc;

use frevo_store::Vfs;
use frevo_wire::dtyp::Guid;

use super::idmap::IdmapSection;
use super::interface::InterfaceSection;
use super::names::Who;
use super::recycle::RecycleSection;
use super::schema::Config;
use super::share::ShareSection;
use super::values::{AccountListingChoice, AuditedOperation, EncryptionChoice, SigningChoice};
use crate::access::access_rules::{Names, Rules};
use crate::access::id_map::IdMap;
use crate::access::share_access::AccessList;
use crate::audit::Operations;
use crate::base::limits;
use crate::objects::settings::{AccountListing, Encryption, Settings, Signing};
use crate::shares::share::MAX_OFFSET;
use crate::shares::share::{RunAs, Share, Target};
use crate::shares::time_machine;

impl From<EncryptionChoice> for Encryption {
    fn from(choice: EncryptionChoice) -> Self {
        match choice {
            EncryptionChoice::Required => Self::Required,
            EncryptionChoice::Offered => Self::Offered,
            EncryptionChoice::Off => Self::Off,
        }
    }
}

impl From<AccountListingChoice> for AccountListing {
    fn from(choice: AccountListingChoice) -> Self {
        match choice {
            AccountListingChoice::Administrators => Self::Administrators,
            AccountListingChoice::Users => Self::Users,
        }
    }
}

impl From<SigningChoice> for Signing {
    fn from(choice: SigningChoice) -> Self {
        match choice {
            SigningChoice::Required => Self::Required,
            SigningChoice::Offered => Self::Offered,
        }
    }
}

impl Config {
    /// The settings of the protocol; `name` is the server's where the file has
    /// none.
    pub fn settings(&self, name: &str, guid: Guid) -> Settings {
        let section = &self.server;
        let mut settings = Settings {
            server_guid: guid,
            server_name: section.name.as_ref().map_or(name, |name| name.as_str()).to_owned(),
            ..Settings::default()
        };
        if let Some(comment) = &section.comment {
            settings.comment.clone_from(comment);
        }
        if let Some(workgroup) = &section.workgroup {
            settings.workgroup.clone_from(workgroup);
        }
        settings.machine_sid = section.sid.map(|sid| sid.0);
        settings.has_host_sids = section.sid.is_some();
        if let Some(dialect) = section.max_dialect {
            settings.max_dialect = dialect.into();
            settings.min_dialect = settings.min_dialect.min(settings.max_dialect);
        }
        if let Some(dialect) = section.min_dialect {
            settings.min_dialect = dialect.into();
        }
        if let Some(choice) = section.encryption {
            settings.encryption = choice.into();
        }
        if let Some(choice) = section.signing {
            settings.signing = choice.into();
        }
        if let Some(ciphers) = &section.ciphers {
            settings.ciphers = ciphers.iter().map(|&name| name.into()).collect();
        }
        if let Some(algorithms) = &section.signing_algorithms {
            settings.signing_algorithms = algorithms.iter().map(|&name| name.into()).collect();
        }
        let bytes = |size: &Option<toml::Spanned<super::Size>>, most: u32| {
            size.as_ref().map_or(most, |size| u32::try_from(size.get_ref().0).unwrap_or(most))
        };
        settings.max_io = bytes(&self.limits.max_io, limits::MAX_IO);
        settings.max_transact = bytes(&self.limits.max_transact, limits::MAX_TRANSACT);
        if let Some(model) = &section.model {
            settings.model.clone_from(model);
        }
        settings.posix = self.shares.is_empty() || self.shares.iter().any(|share| share.posix);
        settings.ntlm = section.ntlm.as_ref().is_none_or(|ntlm| *ntlm.get_ref());
        let passed_on = section.winbind_domains.as_ref();
        settings.passed_on = passed_on.map_or_else(Vec::new, |names| names.get_ref().clone());
        settings.realms = self.kerberos.account_realms();
        settings.require_mic = section.require_mic.unwrap_or(settings.require_mic);
        let minutes = self.limits.idle_session_minutes;
        settings.idle_session_minutes = minutes.unwrap_or(settings.idle_session_minutes);
        settings.anonymous = section.anonymous.unwrap_or(settings.anonymous);
        if let Some(choice) = section.account_listing {
            settings.account_listing = choice.into();
        }
        settings.id_map = Arc::new(self.id_map());
        settings.interfaces = self.interfaces.iter().map(InterfaceSection::setting).collect();
        if let Some(names) = &section.target_names {
            settings.target_names.clone_from(names);
        }
        settings
    }
}

impl Config {
    /// Returns the numbers of the host for users and groups of domains.
    pub fn id_map(&self) -> IdMap {
        IdMap::new(self.idmaps.iter().map(IdmapSection::setting).collect())
    }
}

impl ShareSection {
    /// Returns the access rules.
    fn rules(&self) -> Rules {
        let names = |listed: &[Who]| Names::of(listed.iter().map(Who::as_str));
        Rules {
            allow: names(&self.allow),
            deny: names(&self.deny),
            read_list: names(&self.read_list),
            write_list: names(&self.write_list),
            hosts_allow: self.hosts_allow.clone(),
            hosts_deny: self.hosts_deny.clone(),
            access_list: self.access_list.clone().map(AccessList::new).map(Arc::new),
        }
    }

    /// The folder that holds the share's snapshots, where it is not in the share.
    pub fn snapshot_folder(&self) -> Option<&Path> {
        let folder = self.snapshots.as_ref()?.0.folder();
        folder.is_absolute().then_some(folder)
    }
}

/// The user of the host as which the files of a share are used.
#[derive(Debug, Clone, Default)]
pub struct Identities {
    pub(crate) run_as: RunAs,
    pub(crate) force_group: Option<u32>,
}

impl Identities {
    /// Returns true for a user other than the one that the server runs as.
    pub const fn are_others(&self) -> bool {
        !matches!(self.run_as, RunAs::Server)
    }
}

/// A share made of its section and its opened folder.
pub fn open_share(section: &ShareSection, vfs: Arc<dyn Vfs>, identities: Identities) -> Share {
    Share {
        name: section.name.get_ref().as_str().to_owned(),
        comment: section.comment.clone(),
        target: Target::Disk(vfs),
        read_only: section.read_only,
        encrypt: section.encrypt,
        continuous: section.continuous,
        hidden: section.hidden,
        hide_unreadable: section.hide_unreadable,
        run_as: identities.run_as,
        force_group: identities.force_group,
        host_path: section.path.get_ref().to_str().map(str::to_owned),
        rules: section.rules(),
        posix: section.posix,
        is_case_sensitive: section.case_sensitive,
        time_machine: section.time_machine,
        time_machine_limit: section
            .time_machine_max_size
            .map(|size| Arc::new(time_machine::Limit::new(size.0))),
        change_notify: section.change_notify,
        max_file_size: section.max_file_size.map_or(MAX_OFFSET, |size| size.0.min(MAX_OFFSET)),
        late_write_times: section.late_write_times,
        cache_unbuffered: section.cache_unbuffered,
        inherited_as_set: section.inherited_as_set,
        forward_slashes: section.forward_slashes,
        blocking_pool: (section.off_core != Some(false)).then(Arc::default),
        asks_off_core: section.off_core.is_none(),
        level2_oplocks: section.level2_oplocks,
        audit: None,
        max_connections: section.max_connections,
        uses: Arc::default(),
        begins_elsewhere: false,
        life: Arc::default(),
        user_folders: section.user_folders(),
        recycle: section.recycle.as_ref().map(RecycleSection::bin),
        id_map: Arc::default(),
    }
}

impl ShareSection {
    /// The operations on files that the audit log records: changes of who may do what,
    /// unless the share says otherwise.
    pub fn audited(&self) -> Operations {
        let Some(listed) = &self.audit else { return Operations::ACL };
        listed.iter().fold(Operations::EMPTY, |all, one| {
            all | match one {
                AuditedOperation::Open => Operations::OPEN,
                AuditedOperation::Create => Operations::CREATE,
                AuditedOperation::Write => Operations::WRITE,
                AuditedOperation::Rename => Operations::RENAME,
                AuditedOperation::Delete => Operations::DELETE,
                AuditedOperation::Acl => Operations::ACL,
                AuditedOperation::Attributes => Operations::ATTRIBUTES,
            }
        })
    }
}
