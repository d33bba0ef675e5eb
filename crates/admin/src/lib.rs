//! The admin interface of a Frevo server: HTTP/1.1 on a Unix socket of its machine, and on TCP
//! if that is configured.
//!
//! It runs on a thread of its own, off the data path, and looks at the server through the public
//! API of `frevo-server`. Who may use the Unix socket is decided by its mode (0600) and by the
//! kernel's word about the peer: root and the user that the server runs as. On TCP every request
//! but those for health and for the files of the page needs a token, or the session of a browser
//! that a token has begun.
#![forbid(unsafe_code)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

mod access;
mod answers;
mod body;
mod capture;
mod changes;
pub mod client;
mod cluster;
mod configuration;
mod connection_slots;
mod connections;
mod doors;
mod find;
mod guesses;
mod health;
mod history;
mod kick;
pub mod limits;
mod manage;
mod metrics;
mod own_password;
mod page;
mod query;
mod quotas;
mod routes;
mod sessions;
mod snapshots;
mod sockets;
mod tls;

use std::io;
use std::net::IpAddr;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;

use frevo_server::{Reviewed, Server};

pub use access::{Token, Tokens};
pub use capture::CaptureBody;
pub use cluster::{
    Acting, ClusterAct, ClusterHappening, ClusterMember, ClusterNode, ClusterUnit, ClusterView,
};
pub use configuration::{ConfigurationState, RefusedReload, Reloaded, Reloading, UnservedShare};
pub use manage::{
    Changed, Kind, Listed, Managing, NotManaged, Reason, Secret, SectionChange, UserChange,
};
pub use quotas::{LimitedOwner, OwnerKind, QuotaSource};
pub use snapshots::{
    Keeping, KnownSnapshot, NotKept, ShadowCopy, ShareSnapshots, SnapshotAct, SnapshotKeeper,
};
pub use sockets::{Listening, Occupied};
pub use tls::Tls;

/// The levels of a program's log.
pub trait LogLevels: Send + Sync {
    /// Changes the filter of all log lines, or that of lines about one client beside it. An empty
    /// filter ends the client's own. Returns the filters in force.
    ///
    /// # Errors
    /// The reason why the filter is none, for people.
    fn set(&self, filter: &str, client: Option<IpAddr>) -> Result<Levels, String>;

    /// Returns the filters in force.
    fn levels(&self) -> Levels;
}

/// The filters of a log that are in force.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct Levels {
    /// The filter of all lines.
    pub filter: String,
    /// A filter of the lines about one client, if there is one.
    pub client: Option<ClientLevel>,
}

/// A filter of the log lines about one client.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
pub struct ClientLevel {
    /// The address of the client.
    pub address: IpAddr,
    /// The filter, such as `debug` or `info,frevo::tree=debug`.
    pub filter: String,
}

/// The accounts of a program, which others change in a file.
pub trait AccountFiles: Send + Sync {
    /// Reads the accounts again if they are in `file`, and applies them.
    fn read_again(&self, file: PathBuf) -> ReadAgain<'_>;
}

/// The end of [`AccountFiles::read_again`].
pub type ReadAgain<'a> = Pin<Box<dyn Future<Output = Result<Reviewed, NotRead>> + Send + 'a>>;

/// The reason why accounts were not read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotRead {
    /// The accounts are in another file, or in none.
    OtherFile,
    /// The accounts cannot be used, for this reason; the old ones stay in force.
    Failed(String),
}

/// The parts of an admin interface.
pub struct Admin {
    /// The server that it shows.
    pub server: Server,
    /// The log that it changes the levels of.
    pub levels: Arc<dyn LogLevels>,
    /// The accounts that it has read again.
    pub accounts: Arc<dyn AccountFiles>,
    /// The configuration that it has read again.
    pub configuration: Arc<dyn Reloading>,
    /// The cluster that the server is a node of. None for a server on its own.
    pub cluster: Option<Arc<dyn ClusterNode>>,
    /// The keeper of snapshots. None for a server that makes none.
    pub snapshots: Option<Arc<dyn SnapshotKeeper>>,
    /// The quotas of users. None for a server that shows none.
    pub quotas: Option<Arc<dyn QuotaSource>>,
    /// The part that changes users, shares and limits. None for a program that changes none.
    pub managing: Option<Arc<dyn Managing>>,
    /// True if users may change their own passwords, without a token.
    pub changes_passwords: bool,
    /// The tokens that TCP needs. Without any TCP answers for health alone.
    pub tokens: Tokens,
}

impl Admin {
    /// Starts a thread that serves the interface until the process ends.
    ///
    /// # Errors
    /// When the thread or its event loop cannot be made.
    pub fn start(self, listening: Listening) -> io::Result<()> {
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .max_blocking_threads(limits::PROBE_THREADS)
            .build()?;
        let named = std::thread::Builder::new().name(String::from("frevo-admin"));
        named.spawn(move || {
            let local = tokio::task::LocalSet::new();
            local.block_on(&runtime, connections::serve(Arc::new(self), listening));
        })?;
        Ok(())
    }
}
