//! An SMB 3.1.1 server for other programs to embed (MS-SMB2 3.3).
//!
//! ```no_run
//! use std::sync::Arc;
//! use frevo_server::{Server, UserList, vfs};
//!
//! #[tokio::main(flavor = "current_thread")]
//! async fn main() -> std::io::Result<()> {
//!     let listener = tokio::net::TcpListener::bind("127.0.0.1:4450").await?;
//!     Server::builder()
//!         .share("data", vfs::memory(64 << 20))
//!         .accounts(Arc::new(UserList::new().user("ann", "secret")))
//!         .serve(listener)
//!         .await
//! }
//! ```
//!
//! # Parts
//!
//! - [`ServerBuilder`] takes shares, accounts, settings, limits, an audit log and a store
//!   for persistent handles. [`Server`] is the handle: it serves, stops, reloads, and tells
//!   [`Metrics`] and [`Events`].
//! - A [`Share`] shows a file system: a folder of the host ([`vfs::folder`]), files in memory
//!   ([`vfs::memory`]), a tree that the program lists ([`vfs::ReadOnlyTree`]), or any other
//!   implementor of [`Vfs`].
//! - [`Accounts`] says who may log on; [`UserList`] is a fixed list.
//! - [`Settings`] are of the protocol, [`Limits`] of memory, connections and accounts.
//! - [`config`] reads `frevo.toml`, the file of the command `frevo serve`.
//!
//! # Threads
//!
//! [`Server::serve`] starts core threads, one for each processor, that carry out requests;
//! any tokio runtime can run its future. A connection lives on one core and owns its framing,
//! sequence window, credits and send queue without locks. Sessions, tree connects and opens
//! are shared by all channels of a client, from any core. A program that has one thread and
//! accepts connections itself uses [`Server::serve_connection`].
//!
//! The order of locks is in the types of the store crate. No lock is held across an await.
//!
//! # State of the process
//!
//! Several servers can live in one process, with other accounts, shares and limits. The
//! process has these things once: the panic hook ([`panics::watch`]), the count of bytes in
//! large buffers (the limit is the sum of the servers' `Limits::memory`), and what a thread
//! remembers (random bytes fetched ahead, the user it acts as, the request it works for).
//!
//! # Features
//!
//! - `posix` (default): folders of the host, its users, and the configuration file. Without
//!   it a program shares file systems of its own.
//! - `plant`: faults that the simulator plants. In no build that anybody uses.
//! - `test-hooks`: control codes by which smbtorture makes the server misbehave. In no build
//!   that anybody uses.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
// What a `for` or `match` is about lives to its end, a lock's guard too.
#![warn(clippy::significant_drop_in_scrutinee)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

/// True where the simulator has planted a fault: never without the feature.
macro_rules! planted {
    ($fault:ident) => {{
        #[cfg(feature = "plant")]
        {
            crate::plant::is_planted(crate::plant::Plant::$fault)
        }
        #[cfg(not(feature = "plant"))]
        {
            false
        }
    }};
}

/// True where a client has switched on a fault of smbtorture: never without the feature.
macro_rules! hooked {
    ($connection:expr, $fault:ident) => {{
        #[cfg(feature = "test-hooks")]
        {
            $connection.test_hooks.$fault.load(std::sync::atomic::Ordering::Relaxed)
        }
        #[cfg(not(feature = "test-hooks"))]
        {
            false
        }
    }};
}

pub mod access_rules;
mod activity;
mod admission;
mod ambient;
mod apple;
mod archive;
pub mod audit;
mod blocking_pool;
mod blocking_requests;
mod changes;
mod client;
mod command;
#[cfg(feature = "posix")]
pub mod config;
mod connection;
mod crypto_threads;
mod data;
mod descriptors;
pub mod domain_logons;
pub mod domain_names;
mod domain_users;
mod durable;
mod embed;
mod enumeration;
#[cfg(test)]
mod full_tables;
mod host;
mod host_locks;
mod host_users;
mod id_map;
mod identity;
mod idle;
mod impersonation;
mod ipc;
mod kerberos;
mod lease;
mod ledger;
mod limits;
mod lines;
mod name_holds;
mod offload;
mod open;
mod operations;
pub mod panics;
mod places;
#[cfg(feature = "plant")]
mod plant;
mod posix;
mod prefix;
mod principals;
mod protection;
mod protection_names;
mod quota;
pub mod quoted;
mod recycle;
mod refusal;
mod request;
mod response;
mod review;
mod serve;
mod server;
mod session;
pub mod settings;
pub mod share;
pub mod share_access;
mod shown;
mod slots;
mod stable;
mod surplus;
mod sync;
mod syncs;
mod threads;
mod throttle;
mod time_machine;
mod times;
#[cfg(feature = "traces")]
pub mod traces;
mod tree_connect;
mod under_way;
mod user_folders;
pub mod user_map;
mod visibility;
mod watchdog;

#[doc(inline)]
pub use audit::Events;
#[doc(inline)]
pub use durable::disk::DiskState;
#[doc(inline)]
pub use embed::{
    ActivityStatus, ChannelStatus, ClassStatus, Connection, ErrorStatus, IntoListeners, Kick,
    Kicked, LatencyBuckets, LeaseStatus, Limits, LockStatus, Metrics, OpenStatus, Reload, Rows,
    Server, ServerBuilder, ServerStatus, SessionStatus, ShareSpace, ShareStatus, Status,
    StatusQuery, UserList, vfs,
};
#[doc(hidden)]
pub use embed::{NotEdited, ShareEdit, ShareEditor};
#[doc(inline)]
pub use frevo_auth::{Account, Accounts, Membership, NtHash};
#[doc(inline)]
pub use frevo_store::state::StateStore;
#[doc(inline)]
pub use review::Reviewed;
#[doc(inline)]
pub use server::SharedAccounts;
#[doc(inline)]
pub use settings::Settings;
#[doc(inline)]
pub use share::Share;
#[doc(inline)]
pub use vfs::Vfs;
#[doc(inline)]
pub use watchdog::client_served;

/// Parts of the server that the tests, the simulator, the benchmarks and the fuzzers of this
/// repository look at. Nothing of it is promised to anybody.
///
/// It is a hidden module and not a feature, because a build of the whole workspace unifies
/// features: the server would be another one there than where it is built alone.
#[doc(hidden)]
pub mod internal {
    /// Makes a module of the public items of each part.
    macro_rules! parts {
        ($($(#[$meta:meta])* $part:ident),* $(,)?) => {
            $($(#[$meta])* pub mod $part {
                pub use crate::$part::*;
            })*
        };
    }

    parts! {
        admission, ambient, apple, command, connection, durable, host, host_users, id_map, idle, impersonation,
        lease, ledger, limits, server, time_machine, user_folders,
        #[cfg(feature = "plant")]
        plant,
    }
    pub use crate::audit::told;
}
