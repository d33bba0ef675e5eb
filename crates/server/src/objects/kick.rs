//! Ending sessions, Opens and tree connects because an administrator says so: MS-SMB2
//! 3.3.4.12, 3.3.4.17.

use std::fmt;
use std::sync::Arc;

use frevo_wire::fscc::fold_name;
use serde::Serialize;

use crate::audit::{Event, Kind};
use crate::base::panics;
use crate::objects::durable::record::{self, HeldRecord};
use crate::objects::open::Open;
use crate::objects::server::ServerState;
use crate::objects::session::{Session, State};

/// A number as the identity of a session or an Open: hexadecimal, with its prefix.
pub(crate) fn hex(id: u64) -> String {
    format!("{id:#x}")
}

/// The target of a kick.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kick {
    /// All sessions and RPC connections of an account, and its Opens that wait for their client.
    User(String),
    /// One session, by its SessionId.
    Session(u64),
    /// One Open, by the volatile half of its FileId.
    Open(u64),
    /// All uses of a share.
    Share(String),
    /// One connection of remote procedure calls over TCP, by its number in the log.
    Rpc(u64),
}

/// The number of objects that a kick ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Kicked {
    /// Sessions.
    pub sessions: usize,
    /// Tree connects that ended without their session.
    pub tree_connects: usize,
    /// Opens.
    pub opens: usize,
    /// Connections of remote procedure calls over TCP.
    pub rpc_connections: usize,
}

impl Kick {
    /// True if two spellings name one account or one share: letters have the case pairs of NTFS, and
    /// no others.
    pub fn names_one(one: &str, other: &str) -> bool {
        fold_name(one) == fold_name(other)
    }
}

impl Kicked {
    /// True when there was nothing to end.
    pub const fn is_nothing(&self) -> bool {
        self.sessions + self.tree_connects + self.opens + self.rpc_connections == 0
    }
}

impl fmt::Display for Kick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => write!(f, "user {name}"),
            Self::Session(id) => write!(f, "session {}", hex(*id)),
            Self::Open(id) => write!(f, "open {}", hex(*id)),
            Self::Share(name) => write!(f, "share {name}"),
            Self::Rpc(id) => write!(f, "RPC connection {}", hex(*id)),
        }
    }
}

/// The administrator who asks for a kick.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Administrator<'a> {
    /// The name for the log.
    pub(crate) name: &'a str,
    /// The group or the entry by which a user administers the server.
    pub(crate) ground: Option<&'a str>,
}

/// Ends the objects that `whom` names.
pub(crate) async fn kick(server: &Arc<ServerState>, whom: &Kick, by: Administrator<'_>) -> Kicked {
    let kicked = match whom {
        Kick::User(name) => kick_user(server, name).await,
        Kick::Session(id) => match server.session(*id) {
            Some(session) => end_session(server, &session).await,
            None => Kicked::default(),
        },
        Kick::Open(id) => kick_open(server, *id).await,
        Kick::Share(name) => kick_share(server, name).await,
        Kick::Rpc(id) => Kicked {
            rpc_connections: server.rpc_connections.end(|connection| connection.id == *id),
            ..Kicked::default()
        },
    };
    if !kicked.is_nothing() {
        let Kicked { sessions, tree_connects, opens, rpc_connections } = kicked;
        let Administrator { name, ground } = by;
        tracing::info!(target: "frevo::session", target = %whom, by = name, sessions, tree_connects, opens,
            rpc_connections, "an administrator ended sessions or closed files");
        server.audit.emit(|| {
            Event::new(Kind::Kick)
                .with("target", whom.to_string())
                .with("by", name)
                .with("sessions", sessions as u64)
                .with("connects", tree_connects as u64)
                .with("opens", opens as u64)
                .with("rpc", rpc_connections as u64)
                .administering(ground)
        });
    }
    kicked
}

async fn kick_user(server: &Arc<ServerState>, name: &str) -> Kicked {
    let mut kicked = Kicked::default();
    for session in server.sessions() {
        let is_of = |user: &str| Kick::names_one(user, name);
        if session.identity().is_some_and(|identity| is_of(&identity.user)) {
            let ended = end_session(server, &session).await;
            kicked.sessions += ended.sessions;
            kicked.opens += ended.opens;
        }
    }
    let is_own = |open: &Open| open.survival().is_some_and(|kept| kept.is_owned_by(name));
    kicked.opens += close_waiting(server, is_own).await;
    kicked.rpc_connections = server.rpc_connections.end(|connection| connection.is_of(name));
    kicked
}

/// MS-SMB2 3.3.4.12: its Opens close, also those that could have waited for the client.
async fn end_session(server: &Arc<ServerState>, session: &Arc<Session>) -> Kicked {
    if !matches!(session.state(), State::Valid | State::Expired) {
        return Kicked::default();
    }
    let mut opens = 0;
    for open in session.opens() {
        opens += usize::from(close(server, session, &open).await);
    }
    server.dismiss_session(session, "an administrator ended it");
    Kicked { sessions: 1, opens, ..Kicked::default() }
}

async fn kick_open(server: &Arc<ServerState>, id: u64) -> Kicked {
    for session in server.sessions() {
        let Some(open) = session.open_by_volatile(id) else { continue };
        let opens = usize::from(close(server, &session, &open).await);
        return Kicked { opens, ..Kicked::default() };
    }
    let opens = close_waiting(server, |open| open.file_id.volatile == id).await;
    Kicked { opens, ..Kicked::default() }
}

async fn kick_share(server: &Arc<ServerState>, name: &str) -> Kicked {
    let is_named = |share: &str| Kick::names_one(share, name);
    let mut kicked = Kicked::default();
    for session in server.sessions() {
        let trees = session.trees();
        for tree in trees.iter().filter(|tree| is_named(&tree.share.name)) {
            for open in session.opens().iter().filter(|open| open.tree().id == tree.id) {
                kicked.opens += usize::from(close(server, &session, open).await);
            }
            if session.remove_tree(tree, |open| server.close_open(open)).is_ok() {
                tree.under_way.end();
                tree.under_way.give_up();
                kicked.tree_connects += 1;
            }
        }
    }
    kicked.opens += close_waiting(server, |open| is_named(&open.tree().share.name)).await;
    kicked
}

/// MS-SMB2 3.3.4.17. False when somebody else closed it before.
async fn close(server: &Arc<ServerState>, session: &Session, open: &Arc<Open>) -> bool {
    if session.take_open(open).is_err() {
        return false;
    }
    end(server, open).await;
    true
}

async fn end(server: &Arc<ServerState>, open: &Arc<Open>) {
    let _record = HeldRecord::of(open);
    panics::contained(|| server.close_open(open));
    open.under_way.end();
    // The Open is closed, so requests that still wait for it are cancelled.
    open.under_way.give_up();
    // The record of an Open that a pause keeps from being closed stays until it is.
    if open.tree().share.life.is_paused() {
        return;
    }
    if record::gone(server, open).await.is_err() {
        server.start_scavenger();
    }
}

/// Closes Opens that wait for their client.
async fn close_waiting(server: &Arc<ServerState>, which: impl Fn(&Open) -> bool) -> usize {
    let opens = server.durables.give_up(which);
    for open in &opens {
        end(server, open).await;
    }
    opens.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests letters that Unicode takes for one and account names do not.
    #[test]
    fn names_have_the_case_of_accounts() {
        assert!(Kick::names_one("Ann", "aNN") && Kick::names_one("\u{c4}rzte", "\u{e4}RZTE"));
        // str::to_lowercase makes the two names of each pair equal, but they are different
        // accounts.
        for (one, other) in [("\u{212a}", "k"), ("\u{130}", "i\u{307}")] {
            assert_eq!(one.to_lowercase(), other.to_lowercase());
            assert!(!Kick::names_one(one, other), "{one} {other}");
        }
    }
}
