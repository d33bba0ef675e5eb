//! The ground floor: what any room may use, and what knows nothing of sessions and files.
//!
//! Limits by name, log lines and how many of them a client may cause, values of clients in lines of
//! text, panics, prefixes of addresses, the outside world (`ambient`), and the watchdog. [`pools`]
//! holds threads and turns for work that leaves its core.
//!
//! It may touch `frevo-net`, the protocol crates and the operating system, and no other room.

pub(crate) mod ambient;
pub(crate) mod descriptors;
pub(crate) mod host;
pub(crate) mod limits;
pub(crate) mod lines;
pub mod panics;
#[cfg(feature = "plant")]
pub mod plant;
pub(crate) mod pools;
pub(crate) mod prefix;
pub(crate) mod protection_names;
pub mod quoted;
pub(crate) mod rates;
pub(crate) mod scanners;
pub(crate) mod surplus;
pub(crate) mod sync;
pub(crate) mod under_way;
pub(crate) mod watchdog;
