//! The server as the RPC services show it to one caller.

use std::cell::OnceCell;
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Instant;

use frevo_rpc::epm::{Address, Mapper, Registration};
use frevo_rpc::lsarpc::{Authority, Holder};
use frevo_rpc::samr::Sam;
use frevo_rpc::srvsvc::ServerService;
use frevo_rpc::srvsvc::{
    ConnectionInfo, FileInfo, ServerInfo, ServerLimits, ServerType, SessionInfo, ShareInfo,
    ShareSettings, ShareType,
};
use frevo_rpc::wkssvc::{WkstaUser, WorkstationService};
use frevo_rpc::{self as rpc, Account, Directory, Domain, PrimaryDomain, SidNameUse, WinError};
use frevo_store::security::Token;
use frevo_wire::dtyp::{FileTime, Sid};
use frevo_wire::fscc::eq_ignore_case;
use tokio::runtime::Handle;

use super::manage::{self, number};
use super::table;
use crate::access::access_rules;
use crate::access::domain_names::{DomainNames, JoinedDomain};
use crate::access::principals::{Listing, Principal, Principals, Use};
use crate::access::share_access::AccessList;
use crate::base::host::HostUser;
use crate::base::limits::{
    BREAK_TIMEOUT, DOMAIN_NAMES_TIMEOUT, IN_FLIGHT_PER_CONNECTION, OPENS_PER_SESSION,
    SESSIONS_PER_CONNECTION, TREES_PER_SESSION,
};
use crate::command::request::Request;
use crate::objects::server::ServerState;
use crate::objects::session::Identity;
use crate::objects::settings::AccountListing;
use crate::shares::share::{Compress, Share, Target};

/// The version that file servers give where nothing depends on it: Windows 7.
const VERSION: (u32, u32) = (6, 1);

/// Minutes after which an idle session ends, as told to people.
const IDLE_MINUTES: u32 = 15;

/// The LUIDs of the privileges of administrators, MS-LSAD 3.1.1.2.1: SeSecurityPrivilege,
/// SeTakeOwnershipPrivilege, SeRestorePrivilege and SeManageVolumePrivilege.
const ADMINISTRATORS_HOLD: [u32; 4] = [8, 9, 18, 28];

/// SeChangeNotifyPrivilege: access checks of a path look at its last part alone.
const EVERYONE_HOLDS: [u32; 1] = [23];

/// 100 ns in a millisecond.
const TICKS_PER_MS: u64 = 10_000;

/// The addresses of a client and of the server that it calls, and the carrier between them.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallEnds {
    pub(super) client: SocketAddr,
    pub(super) server: IpAddr,
    /// True if the carrier encrypts.
    pub(super) is_sealed: bool,
}

impl CallEnds {
    /// The ends of a pipe.
    pub(super) fn of(rq: &Request<'_>) -> Self {
        let (client, server) = (rq.connection.peer, rq.connection.local.ip());
        Self { client, server, is_sealed: rq.is_sealed() }
    }
}

/// The server, as told to the user of one session.
pub(super) struct Caller<'a> {
    pub(super) server: &'a Arc<ServerState>,
    pub(super) identity: &'a Arc<Identity>,
    pub(super) user: &'a str,
    /// The groups of the user, in lower case.
    pub(super) groups: &'a [String],
    /// True when these are all groups.
    pub(super) groups_are_known: bool,
    /// The token of access checks.
    pub(super) token: &'a Token,
    /// The user of the host.
    pub(super) host: Option<&'a HostUser>,
    /// Address and port of the caller.
    pub(super) peer: SocketAddr,
    /// The address of the caller.
    pub(super) address: IpAddr,
    /// The address of the server by which the caller reaches it.
    pub(super) local: IpAddr,
    /// True if the carrier encrypts.
    pub(super) is_sealed: bool,
    /// The accounts, listed once for one write to the pipe.
    pub(super) listing: Listing,
    /// The time until which this write may wait for names of domains, from its first question on.
    pub(super) names_until: OnceCell<Instant>,
    /// The runtime of its core, for a member of Administrators that is answered beside the core.
    /// None for a caller that may not manage the server.
    pub(super) manager: Option<Handle>,
}

impl<'a> Caller<'a> {
    /// A caller with this identity and these addresses, that may not manage the server.
    pub(super) fn new(
        server: &'a Arc<ServerState>,
        identity: &'a Arc<Identity>,
        ends: CallEnds,
    ) -> Self {
        Self {
            server,
            identity,
            user: &identity.user,
            groups: &identity.groups,
            groups_are_known: identity.host.is_known(),
            token: &identity.token,
            host: identity.host.user(),
            peer: ends.client,
            address: ends.client.ip(),
            local: ends.server,
            is_sealed: ends.is_sealed,
            listing: Listing::default(),
            names_until: OnceCell::new(),
            manager: None,
        }
    }

    /// Asks about users and groups of domains, for a caller who is logged on.
    fn of_domain(
        &self,
        ask: impl FnOnce(&DomainNames, Instant) -> Option<Principal>,
    ) -> Option<Principal> {
        if self.user.is_empty() {
            return None;
        }
        let deadline = *self.names_until.get_or_init(|| Instant::now() + DOMAIN_NAMES_TIMEOUT);
        ask(&self.server.domain_names, deadline)
    }

    /// The joined domain that `is_it` means, for a caller who is logged on.
    fn joined(&self, is_it: impl Fn(&JoinedDomain) -> bool) -> Option<Principal> {
        let sids = self.server.domain_names.sids();
        let domain = sids.joined().iter().find(|domain| is_it(domain))?;
        let (sid, domain, name) = (domain.sid, domain.name.clone(), String::new());
        (!self.user.is_empty()).then_some(Principal { sid, domain, name, kind: Use::Domain })
    }

    fn server_type(&self) -> ServerType {
        let all =
            [ServerType::WORKSTATION, ServerType::SERVER, ServerType::NT, ServerType::SERVER_NT];
        let dfs = match self.server.shares().namespaces.is_empty() {
            true => ServerType(0),
            false => ServerType::DFS,
        };
        all.into_iter().fold(dfs, |all, one| all | one)
    }

    /// IPC$ is told though it is hidden: clients expect to see it. A share that
    /// refuses the caller is as absent here as for TREE_CONNECT.
    pub(super) fn may_see(&self, share: &Share) -> bool {
        if matches!(share.target, Target::Pipes) {
            return true;
        }
        let domain_sids = self.server.domain_names.sids();
        let caller = access_rules::Caller {
            user: self.user,
            groups: self.groups,
            groups_are_known: self.groups_are_known,
            token: self.token,
            domain_sids: &domain_sids,
            address: self.address,
        };
        let is_refused = || {
            matches!(share.rules.judge(&caller, share.read_only), access_rules::Verdict::Refused(_))
        };
        if self.identity.is_guest {
            return !share.hidden && share.as_guests_have_it(self.address).is_some();
        }
        let is_nobody = self.user.is_empty();
        !share.hidden && !is_nobody && !is_refused() && share.has_actor(self.host)
    }
}

impl fmt::Debug for Caller<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Caller").field("user", &self.user).finish_non_exhaustive()
    }
}

/// SHI1005_FLAGS_DFS and SHI1005_FLAGS_DFS_ROOT, MS-SRVS 2.2.4.29.
const SHI1005_FLAGS_DFS_BOTH: u32 = 0x0000_0003;

/// SHI1005_FLAGS_COMPRESS_DATA, MS-SRVS 2.2.4.29.
const SHI1005_FLAGS_COMPRESS_DATA: u32 = 0x0010_0000;

/// Returns the facts of a share, without its name. Only a caller that manages the server gets
/// limits and access lists, which its tools send back with a change.
fn share_info(share: &Share, manages: bool) -> ShareInfo {
    let limit = share.max_connections.filter(|_| manages);
    let is_disk = matches!(share.target, Target::Disk(_));
    let descriptor = || AccessList::descriptor_of(share.rules.access_list.as_deref());
    ShareInfo {
        max_uses: limit.map_or(u32::MAX, |most| u32::try_from(most).unwrap_or(u32::MAX)),
        security_descriptor: (manages && is_disk).then(descriptor),
        // MS-SRVS 3.1.4.8: the bits STYPE_CLUSTER_FS and STYPE_CLUSTER_SOFS are zero here.
        kind: match share.target {
            Target::Disk(_) => ShareType::DISKTREE,
            Target::Pipes => ShareType::IPC | ShareType::SPECIAL,
        },
        remark: share.comment.clone(),
        // MS-SRVS 2.2.4.29 and MS-SMB2 3.3.4.16: both bits of DFS for Share.IsDfs.
        flags: flags_of(share),
        path: share.host_path.as_deref().filter(|_| manages).map(windows_path).unwrap_or_default(),
        ..ShareInfo::default()
    }
}

fn flags_of(share: &Share) -> u32 {
    let dfs = if share.namespace.is_some() { SHI1005_FLAGS_DFS_BOTH } else { 0 };
    // MS-SMB2 3.3.4.16: Share.CompressData
    let compresses = share.compress == Compress::All;
    dfs | if compresses { SHI1005_FLAGS_COMPRESS_DATA } else { 0 }
}

/// A path of the host as Windows' tools show and send it: `/srv/x` as `C:\srv\x`.
fn windows_path(path: &str) -> String {
    format!("C:{}", path.replace('/', "\\"))
}

fn account(of: Principal) -> Account {
    let kind = match of.kind {
        Use::User => SidNameUse::USER,
        Use::Group => SidNameUse::GROUP,
        Use::Domain => SidNameUse::DOMAIN,
        Use::Alias => SidNameUse::ALIAS,
        Use::WellKnownGroup => SidNameUse::WELL_KNOWN_GROUP,
    };
    Account { sid: of.sid, domain: of.domain, name: of.name, kind }
}

impl Directory for Caller<'_> {
    fn random(&self) -> [u8; 16] {
        let mut bytes = [0; 16];
        self.server.ambient.random(&mut bytes);
        bytes
    }

    fn machine(&self) -> Domain {
        let name = self.server.settings().server_name.clone();
        Domain { name, sid: Some(self.server.machine_sid()) }
    }

    /// The caller's account; one that no list has goes by the name of its logon.
    fn caller(&self) -> Option<Account> {
        let sid = *self.token.user();
        let unlisted = || {
            let (domain, name) = match self.user.split_once('\\') {
                Some((domain, name)) => (domain.to_owned(), name.to_owned()),
                None => (self.machine().name, self.user.to_owned()),
            };
            Account { sid, domain, name, kind: SidNameUse::USER }
        };
        Some(self.find_sid(&sid).unwrap_or_else(unlisted))
    }

    fn find_sid(&self, sid: &Sid) -> Option<Account> {
        let find = |known: &Principals<'_>| known.find_sid_in(&self.listing, sid);
        let found = self.server.with_principals(find).or_else(|| {
            let is_it = |domain: &JoinedDomain| domain.sid == *sid;
            self.joined(is_it)
        });
        found.or_else(|| self.of_domain(|names, until| names.find_sid(sid, until))).map(account)
    }

    fn find_name(&self, name: &str) -> Option<Account> {
        let find = |known: &Principals<'_>| known.find_name_in(&self.listing, name);
        let found = self.server.with_principals(find).or_else(|| {
            // The name of a domain, alone or as `DOMAIN\`.
            let name = name.strip_suffix('\\').unwrap_or(name);
            // The DNS name of a domain may be empty, which is no name.
            self.joined(|domain| {
                let is_it = |known: &str| !name.is_empty() && eq_ignore_case(known, name);
                is_it(&domain.name) || is_it(&domain.dns_name)
            })
        });
        found.or_else(|| self.of_domain(|names, until| names.find_name(name, until))).map(account)
    }
}

impl ServerService for Caller<'_> {
    fn shares(&self, server: &str) -> Vec<ShareInfo> {
        let all = self.server.shares().sorted();
        let scope = self.server.cluster.scope(server);
        all.iter()
            .filter(|share| scope.shows(share) && self.may_see(share))
            .map(|share| ShareInfo {
                name: share.name_for(self.user),
                ..share_info(share, self.may_manage())
            })
            .collect()
    }

    fn server(&self) -> ServerInfo {
        let settings = self.server.settings();
        ServerInfo {
            name: settings.server_name.clone(),
            domain: self.primary_domain().name,
            comment: settings.comment.clone(),
            version_major: VERSION.0,
            version_minor: VERSION.1,
            kind: self.server_type(),
            max_users: u32::MAX,
            idle_disconnect_minutes: IDLE_MINUTES,
            logged_on_users: 0,
            limits: ServerLimits {
                opens: number(OPENS_PER_SESSION),
                users: number(SESSIONS_PER_CONNECTION),
                tree_connects: number(TREES_PER_SESSION),
                requests: number(IN_FLIGHT_PER_CONNECTION),
                break_seconds: u32::try_from(BREAK_TIMEOUT.as_secs()).unwrap_or(u32::MAX),
            },
        }
    }

    /// Everybody may ask for the levels of administrators, because common tools ask for no other
    /// level. The fields that these levels add are empty for callers who do not manage the server
    /// (limits, descriptors, paths), or for everybody (counts).
    fn is_administrator(&self) -> bool {
        true
    }

    fn now(&self) -> FileTime {
        self.server.ambient.now()
    }

    fn uptime_ms(&self) -> u64 {
        self.now().0.saturating_sub(self.server.started.0) / TICKS_PER_MS
    }

    fn may_manage(&self) -> bool {
        self.manager.is_some()
    }

    fn refused(&self, attempt: rpc::srvsvc::Attempt<'_>) {
        self.tell_refused(attempt);
    }

    fn sessions(&self) -> Vec<SessionInfo> {
        self.session_list()
    }

    fn files(&self) -> Vec<FileInfo> {
        self.file_list()
    }

    fn connections(&self) -> Vec<ConnectionInfo> {
        self.connection_list()
    }

    fn close_file(&self, id: u32) -> Result<(), WinError> {
        self.close_open_numbered(id)
    }

    fn end_sessions(&self, client: Option<&str>, user: Option<&str>) -> Result<(), WinError> {
        self.end_sessions_of(client, user)
    }

    fn add_share(&self, share: &ShareInfo) -> Result<(), WinError> {
        self.add(share)
    }

    fn set_share(&self, name: &str, settings: &ShareSettings) -> Result<(), WinError> {
        self.set(name, settings)
    }

    fn remove_share(&self, name: &str) -> Result<(), WinError> {
        self.remove(name)
    }
}

impl WorkstationService for Caller<'_> {
    fn server(&self) -> ServerInfo {
        ServerService::server(self)
    }

    fn is_administrator(&self) -> bool {
        ServerService::is_administrator(self)
    }

    fn users(&self) -> Option<Vec<WkstaUser>> {
        ServerService::may_manage(self).then(|| self.user_list())
    }
}

impl Authority for Caller<'_> {
    fn primary_domain(&self) -> PrimaryDomain {
        let joined = self.server.domain_names.sids().joined().first().cloned();
        match joined {
            Some(JoinedDomain { name, dns_name, sid }) => {
                PrimaryDomain { name, dns_name, sid: Some(sid) }
            }
            None => {
                let name = self.server.settings().workgroup.clone();
                PrimaryDomain { name, dns_name: String::new(), sid: None }
            }
        }
    }

    fn find_in_primary_domain(&self, name: &str) -> Option<Account> {
        let domain = self.server.domain_names.sids().joined().first()?.name.clone();
        self.of_domain(|names, until| names.find_name(&format!("{domain}\\{name}"), until))
            .map(account)
    }

    fn holders(&self) -> Vec<Holder> {
        // MS-LSAD 3.1.4.5.2: an anonymous caller learns nothing.
        if self.user.is_empty() {
            return Vec::new();
        }
        vec![
            Holder { sid: Sid::ADMINISTRATORS, privileges: &ADMINISTRATORS_HOLD },
            Holder { sid: Sid::EVERYONE, privileges: &EVERYONE_HOLDS },
        ]
    }

    fn administers(&self) -> bool {
        manage::is_administrator(self.server, self.identity)
    }
}

impl Mapper for Caller<'_> {
    fn random(&self) -> [u8; 16] {
        Directory::random(self)
    }

    /// Pipes first, as they are always there.
    fn registrations(&self) -> Vec<Registration> {
        let host = format!(r"\\{}", self.server.settings().server_name);
        let on_pipes = table::interfaces().flat_map(|interface| {
            let of = |pipe: &&str| Registration {
                interface,
                address: Address::Pipe { path: format!(r"\PIPE\{pipe}"), host: host.clone() },
            };
            interface.pipes.iter().map(of).collect::<Vec<_>>()
        });
        // MS-RPCE 3.1.3.5.3: the field has no room for an IPv6 address, and clients ignore it, so
        // it is then zero.
        let local = match self.local.to_canonical() {
            IpAddr::V4(address) => address.octets(),
            IpAddr::V6(_) => [0; 4],
        };
        let is_node = self.server.cluster.seat().is_some();
        let port = self.server.rpc_port.get().copied();
        let on_tcp = port.into_iter().flat_map(|port| {
            let address = Address::Tcp { port, host: local };
            table::on_tcp(is_node)
                .map(move |interface| Registration { interface, address: address.clone() })
        });
        on_pipes.chain(on_tcp).collect()
    }
}

impl Sam for Caller<'_> {
    fn may_list_accounts(&self) -> bool {
        let is_somebody = !self.user.is_empty();
        let administers = || manage::is_administrator(self.server, self.identity);
        is_somebody && (self.users_list_accounts() || administers())
    }

    fn users_list_accounts(&self) -> bool {
        self.server.settings().account_listing == AccountListing::Users
    }

    fn accounts_in(&self, domain: &Sid) -> Vec<Account> {
        let found = self.server.with_principals(|known| known.in_domain(domain));
        found.into_iter().map(account).collect()
    }

    fn members(&self, group: &Sid) -> Vec<Sid> {
        self.server.with_members(|administrators, known| administrators.members(known, group))
    }

    fn memberships(&self, sids: &[Sid]) -> Vec<Sid> {
        self.server.with_members(|administrators, known| administrators.memberships(known, sids))
    }

    fn is_enabled(&self, user: &Sid) -> bool {
        self.server.with_principals(|known| known.is_enabled(user))
    }
}
