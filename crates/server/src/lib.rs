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
//! - `posix` (default): folders of the host, and its users. Without it a program shares file
//!   systems of its own.
//! - `plant`: faults that the simulator plants. In no build that anybody uses.
//! - `test-hooks`: control codes by which smbtorture makes the server misbehave. In no build
//!   that anybody uses.
#![forbid(unsafe_code)]
#![warn(missing_docs)]
// Clippy warns of a lock's guard, or a similar temporary value, in the head of a `for` or `match`,
// because it exists until the end of the block.
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
            crate::base::plant::is_planted(crate::base::plant::Plant::$fault)
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

mod access;
pub mod audit;
mod base;
mod command;
mod connection;
mod embed;
mod ipc;
mod objects;
mod protection;
mod serve;
mod shares;

#[doc(inline)]
pub use access::{
    access_rules, account_directory, administrators, domain_logons, domain_names, id_map,
    rate_rules, share_access, user_map,
};
#[doc(inline)]
pub use base::{panics, quoted};
#[cfg(feature = "traces")]
#[doc(inline)]
pub use connection::traces;
#[doc(inline)]
pub use objects::settings;
#[cfg(feature = "posix")]
#[doc(inline)]
pub use shares::folders;

#[doc(inline)]
pub use access::kerberos::KeySource;
#[doc(inline)]
pub use audit::Events;
#[doc(inline)]
pub use base::watchdog::client_served;
#[doc(inline)]
pub use embed::{
    ActivityStatus, BrakeStatus, BrakedStatus, CaptureData, CaptureStream, CaptureTarget, Captured,
    ChannelStatus, ClassStatus, Connection, ErrorStatus, HeldStatus, IntoListeners, Kick, Kicked,
    LatencyBuckets, LeaseStatus, Limits, LockStatus, Metrics, NotCaptured, OpenStatus, RateStatus,
    Reload, Rows, RpcConnectionStatus, Server, ServerBuilder, ServerStatus, SessionStatus,
    ShareSpace, ShareStatus, Site, Sites, Status, StatusQuery, TargetHealth, TargetServer,
    TargetStatus, UserList, WitnessStatus, vfs,
};
#[doc(hidden)]
pub use embed::{
    ClusterNames, ClusterNode, ClusterState, ClusterUnit, EntryPath, NamespaceChange,
    NamespacePriority, NamespaceSettings, NotChanged, NotEdited, NotOwn, OwnPassword, Priority,
    RpcPort, Seat, ShadowCopySets, ShareEdit, ShareEditor, Snapshotter, StateChange, TargetName,
};
#[doc(inline)]
pub use frevo_auth::{
    Account, AccountFault, AccountRules, Accounts, LogonHours, Membership, NtHash,
};
#[doc(inline)]
pub use frevo_store::state::StateStore;
#[doc(inline)]
pub use objects::durable::disk::DiskState;
#[doc(inline)]
pub use objects::review::Reviewed;
#[doc(inline)]
pub use objects::server::SharedAccounts;
#[doc(inline)]
pub use objects::settings::Settings;
#[doc(inline)]
pub use shares::life::ShareLife;
#[doc(inline)]
pub use shares::share::Share;
#[doc(inline)]
pub use vfs::Vfs;

/// The world of a server besides bytes and files: clock, random bytes, users of the host. A program
/// may bring its own, by [`ServerBuilder::ambient`].
pub mod ambient {
    pub use crate::base::ambient::{Ambient, CryptoPlace, Host};
    pub use crate::base::host::{HostNames, HostUser, NoNames, Said, UnixUser};
}

/// The options of a [`Share`] that are values of their own.
pub mod share {
    pub use crate::shares::brake::{BrakeAction, BrakeLimits, BrakeRules};
    pub use crate::shares::guests::GuestAccess;
    pub use crate::shares::share::{
        Compress, RecycleBin, RecycleCounts, RunAs, Share, USER, UserFolders,
    };
    pub use crate::shares::write_once::WriteOnce;
}

/// Indexes of the names, sizes and dates of shares, and searches in them.
#[doc(hidden)]
pub mod index {
    pub use crate::shares::index::{FoundFile, FoundPage, IndexRules, IndexState, SearchError};
    pub use frevo_index::{Bounds, Cursor, Kind, Match, Query, Text};
}

/// Scans of files for viruses by another program.
#[doc(hidden)]
pub mod scanning {
    pub use crate::shares::scanning::{
        Connect, Direct, FoundAct, ScanCounts, ScanRules, ScanService, Scanner, Scanning,
        connect_by, connect_unix, remember, remembered,
    };
}

#[doc(inline)]
pub use base::host::begin_thread;
#[cfg(feature = "plant")]
#[doc(inline)]
pub use base::plant;

/// Parts of the server that the tests and the fuzzers of this repository look at. Nothing of it is
/// promised to anybody.
///
/// It is a hidden module and not a feature, because a build of the whole workspace unifies
/// features: the server would be another one there than where it is built alone.
#[doc(hidden)]
pub mod internal {
    /// The named limits.
    pub mod limits {
        pub use crate::base::limits::*;
    }

    /// The state behind a [`Server`](crate::Server), and steps of its life one by one.
    pub mod state {
        pub use crate::base::pools::closer::{close as close_beside, has_closed_blocking};
        pub use crate::objects::admission::EVICTED;
        pub use crate::objects::audited::certificate as audit_certificate;
        pub use crate::objects::audited::limit as audit_limit;
        pub use crate::objects::durable::handover::{leave, take_up};
        pub use crate::objects::durable::owning::restore;
        pub use crate::objects::durable::record::renew as renew_record;
        pub use crate::objects::lease::client_id;
        pub use crate::objects::ledger::{GAVE_UP_WAITING, Kind};
        pub use crate::objects::notice::Notice;
        pub use crate::objects::server::ServerState;
        pub use crate::serve::idle::watch as watch_idle_sessions;
        pub use crate::shares::life::{Life, LifeState};
        pub use crate::shares::share::{Shares, life_of, off_core_settled};
    }

    /// The tables of commands and control codes, and a stored form.
    pub mod protocol {
        pub use crate::command::ioctl::table::{On, TABLE};
        pub use crate::command::row;
        pub use crate::shares::apple::afp_info::{AfpInfoNode, Record};
    }
}
