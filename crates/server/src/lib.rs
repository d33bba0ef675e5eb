//! The SMB 3.1.1 server: MS-SMB2 3.3.
//!
//! A [`connection`] lives on one core and owns its framing, sequence window,
//! credits and send queue without locks. [`Session`], [`TreeConnect`] and
//! [`Open`] are shared by every channel of a client, from any core.
//!
//! The order of locks is in the types of `frevo_store::order`. No lock is held across
//! an await.
#![forbid(unsafe_code)]
// What a `for` or `match` is about lives to its end, a lock's guard too.
#![warn(clippy::significant_drop_in_scrutinee)]
#![cfg_attr(
    not(test),
    deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing, clippy::panic)
)]

/// Whether a fault was planted here by the simulator: never without the feature.
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

pub mod access_rules;
pub mod admission;
pub mod ambient;
pub mod apple;
pub mod audit;
pub mod blocking_requests;
pub mod changes;
pub mod client;
pub mod command;
pub mod config;
pub mod connection;
pub mod data;
pub mod descriptors;
pub mod durable;
pub mod host_users;
pub mod idle;
pub mod impersonation;
pub mod ipc;
pub mod lease;
pub mod ledger;
pub mod limits;
pub mod lines;
pub mod offload;
pub mod open;
pub mod panics;
#[cfg(feature = "plant")]
pub mod plant;
pub mod posix;
pub mod prefix;
pub mod principals;
pub mod protection;
pub mod quota;
pub mod quoted;
pub mod refusal;
pub mod request;
pub mod response;
pub mod serve;
pub mod server;
pub mod session;
pub mod settings;
pub mod share;
pub mod slots;
mod sync;
pub mod throttle;
pub mod time_machine;
pub mod times;
pub mod tree_connect;
pub mod under_way;
pub mod user_map;
pub mod visibility;
pub mod watchdog;

pub use open::Open;
pub use refusal::{Doom, Outcome, Refusal};
pub use request::Request;
pub use response::Response;
pub use server::ServerState;
pub use session::Session;
pub use settings::Settings;
pub use share::Share;
pub use tree_connect::TreeConnect;
