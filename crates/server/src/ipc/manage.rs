//! Users of the server as MS-SRVS shows them to administrators, and their end.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use frevo_net::watchdog::Moment;
use frevo_rpc::WinError;
use frevo_rpc::srvsvc::{ConnectionInfo, FileInfo, SessionInfo};
use frevo_rpc::wkssvc::WkstaUser;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::{eq_ignore_case, fold_name};

use super::services::Caller;
use crate::objects::activity::Entry;
use crate::objects::kick::{Administrator, Kick, kick};
use crate::objects::open::{Open, OpenTarget, path_of};
use crate::objects::server::ServerState;
use crate::objects::session::{Identity, Session};
use crate::shares::share::Target;

/// PERM_FILE_READ, PERM_FILE_WRITE and PERM_FILE_CREATE of MS-SRVS 2.2.4.7.
const READS: u32 = 1;
const WRITES: u32 = 2;
const CREATES: u32 = 4;

/// The group whose members make shadow copies, beside administrators: MS-FSRVP 3.1.4 note 4.
const BACKUP_OPERATORS: &str = "Backup Operators";

/// STYPE_IPC of MS-SRVS 2.2.2.4.
const STYPE_IPC: u32 = 3;

/// A session with the facts of its channels.
struct Shown {
    session: Arc<Session>,
    user: String,
    /// The client's address, behind `\\`.
    client: String,
    /// The name by which the client calls its machine, behind `\\`.
    workstation: String,
    seconds: u32,
    idle: Duration,
}

pub(super) fn number(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

/// The number by which MS-SRVS names an Open: Opens are numbered one after the other, so that
/// four thousand million others come between two of the same number. In a cluster the upper half of a FileId
/// is the number of the server's start, which moves the Opens of different starts apart.
#[expect(clippy::cast_possible_truncation, reason = "the halves become one")]
const fn file_number(open: &Open) -> u32 {
    let id = open.file_id.volatile;
    (id as u32) ^ ((id >> 32) as u32).wrapping_mul(0x9E37_79B1)
}

/// True for users who administer the server by the accounts and rules of now.
pub(super) fn is_administrator(server: &ServerState, identity: &Identity) -> bool {
    server.decide_again(identity).ground.is_some()
}

/// True for accounts that the account file has in the group Backup Operators. No domain makes its users members
/// of a group of this machine.
pub(super) fn is_backup_operator(server: &ServerState, identity: &Identity) -> bool {
    let membership = identity.is_local.then(|| server.accounts().membership(&identity.user));
    let groups = membership.flatten().map_or_else(Vec::new, |membership| membership.groups);
    groups.iter().any(|group| eq_ignore_case(group, BACKUP_OPERATORS))
}

impl Caller<'_> {
    fn shown(&self) -> Vec<Shown> {
        let now = Moment::now();
        let time = self.server.ambient.now().to_unix().0;
        let mut entries: Vec<Entry> = self.server.activity.channels();
        entries.sort_unstable_by_key(|entry| (entry.session, entry.connection.id));
        let mut shown = Vec::new();
        for channels in entries.chunk_by(|a, b| a.session == b.session) {
            let Some(first) = channels.first() else { continue };
            let Some(session) = self.server.session(first.session) else { continue };
            // A session whose logon is not complete has no user, so it is not listed.
            let Some(identity) = session.identity() else { continue };
            let since = channels.iter().map(|entry| entry.since.to_unix().0).min().unwrap_or(time);
            let idle = channels.iter().map(|entry| entry.activity.idle(now)).min();
            shown.push(Shown {
                session,
                user: identity.user.clone(),
                client: format!(r"\\{}", first.connection.peer.ip().to_canonical()),
                workstation: format!(r"\\{}", identity.workstation),
                seconds: u32::try_from(time.saturating_sub(since)).unwrap_or(0),
                idle: idle.unwrap_or_default(),
            });
        }
        shown
    }

    pub(super) fn session_list(&self) -> Vec<SessionInfo> {
        let info = |shown: Shown| SessionInfo {
            opens: number(shown.session.open_count()),
            client: shown.client,
            user: shown.user,
            seconds: shown.seconds,
            idle_seconds: u32::try_from(shown.idle.as_secs()).unwrap_or(u32::MAX),
        };
        self.shown().into_iter().map(info).collect()
    }

    /// The users of all sessions. The server has no other users.
    pub(super) fn user_list(&self) -> Vec<WkstaUser> {
        let machine = &self.server.settings().server_name;
        let user = |shown: Shown| match shown.user.split_once('\\') {
            // The controller that judged a user of a domain is not kept.
            Some((domain, name)) => {
                WkstaUser { name: name.into(), domain: domain.into(), logon_server: String::new() }
            }
            None => WkstaUser {
                name: shown.user,
                domain: machine.clone(),
                logon_server: machine.clone(),
            },
        };
        self.shown().into_iter().map(user).collect()
    }

    pub(super) fn file_list(&self) -> Vec<FileInfo> {
        let shown = self.shown();
        let of = |shown: &Shown| -> Vec<FileInfo> {
            let opens = shown.session.opens();
            opens.iter().map(|open| file_info(open, &shown.user)).collect()
        };
        shown.iter().flat_map(of).collect()
    }

    pub(super) fn connection_list(&self) -> Vec<ConnectionInfo> {
        let mut connections = Vec::new();
        for shown in self.shown() {
            let mut opens: HashMap<u32, u32> = HashMap::new();
            for open in shown.session.opens() {
                *opens.entry(open.tree().id).or_default() += 1;
            }
            for tree in shown.session.trees() {
                let is_pipes = matches!(tree.share.target, Target::Pipes);
                connections.push(ConnectionInfo {
                    id: tree.id,
                    kind: if is_pipes { STYPE_IPC } else { 0 },
                    opens: opens.get(&tree.id).copied().unwrap_or(0),
                    seconds: shown.seconds,
                    user: shown.user.clone(),
                    share: tree.share.name.clone(),
                    client: shown.client.clone(),
                });
            }
        }
        connections
    }

    pub(super) fn close_open_numbered(&self, id: u32) -> Result<(), WinError> {
        let is_it = |open: &Arc<Open>| file_number(open) == id;
        let sessions = self.server.sessions();
        let found = sessions.iter().find_map(|session| session.opens().into_iter().find(is_it));
        let open = found.ok_or(WinError::FILE_ID_NOT_FOUND)?;
        self.end(vec![Kick::Open(open.file_id.volatile)])
    }

    pub(super) fn end_sessions_of(
        &self,
        client: Option<&str>,
        user: Option<&str>,
    ) -> Result<(), WinError> {
        let bare = |name: &str| fold_name(name.trim_start_matches('\\'));
        let is_client = |shown: &Shown| {
            let is = |wanted: &str, name: &str| bare(wanted) == bare(name);
            client.is_none_or(|wanted| is(wanted, &shown.client) || is(wanted, &shown.workstation))
        };
        let is_user =
            |shown: &Shown| user.is_none_or(|wanted| fold_name(wanted) == fold_name(&shown.user));
        let shown = self.shown();
        let ended = shown.iter().filter(|shown| is_client(shown) && is_user(shown));
        let kicks: Vec<Kick> = ended.map(|shown| Kick::Session(shown.session.id)).collect();
        if kicks.is_empty() {
            return Err(WinError::CLIENT_NAME_NOT_FOUND);
        }
        self.end(kicks)
    }

    /// Begins to end objects. The caller's own session may be among them, and to close many files
    /// takes long: the answer does not wait.
    fn end(&self, kicks: Vec<Kick>) -> Result<(), WinError> {
        let runtime = self.manager.clone().ok_or(WinError::ACCESS_DENIED)?;
        let (server, name) = (Arc::clone(self.server), self.user.to_owned());
        let ground = self.identity.administers_by.clone();
        let end = async move {
            for one in &kicks {
                kick(&server, one, Administrator { name: &name, ground: ground.as_deref() }).await;
            }
        };
        if frevo_net::file_io::stays() {
            runtime.spawn(end);
            return Ok(());
        }
        self.server.blocking_pool.run(move || runtime.block_on(end)).map_err(|_| {
            tracing::warn!(target: "frevo::session", user = self.user,
                "too busy to end sessions or to close files for an administrator; try again");
            WinError::BUSY
        })
    }
}

fn file_info(open: &Open, user: &str) -> FileInfo {
    let access = open.granted_access;
    let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
    let permissions = [
        (access.contains(AccessMask::READ_DATA), READS),
        (access.intersects(writes), WRITES),
        (access.intersects(AccessMask::DELETE), CREATES),
    ];
    let permissions = permissions.iter().filter(|(has, _)| *has).fold(0, |all, (_, bit)| all | bit);
    let share = open.tree().share.name.clone();
    let (path, locks) = match &open.target {
        // The pipe's lock is free at this point, even that of the calling pipe, because requests of
        // management pipes are answered on another thread.
        OpenTarget::Pipe(pipe) => (format!(r"\PIPE\{}", pipe.lock().name()), 0),
        OpenTarget::File(file) => {
            let cell = file.cell.lock();
            let path = path_of(cell.name_of(file.id));
            (format!(r"{share}\{path}"), cell.ranges.held_by(file.id))
        }
    };
    FileInfo {
        id: file_number(open),
        permissions,
        locks: number(locks),
        path,
        user: user.to_owned(),
    }
}
