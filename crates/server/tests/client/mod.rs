//! A client for tests: it speaks to a real server in the same process, over an
//! in-memory transport, and lets a test send any bytes at all. It is no product:
//! where a product would refuse to send nonsense, this one obeys.
#![allow(dead_code, reason = "each test binary uses its own part")]
#![allow(unreachable_pub, reason = "each test binary is a crate")]
#![allow(missing_docs, unused_imports, reason = "tests")]
#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "tests")]

pub mod draft;
pub mod files;
pub mod logon;
pub mod negotiate;
pub mod peer;
pub mod protection;
pub mod queries;
#[cfg(feature = "rdma")]
pub mod rdma;
pub mod script;
pub mod world;

pub use draft::{Draft, Reply, Via};
pub use files::{Mount, Want};
pub use logon::{Logon, Setup};
pub use negotiate::Offer;
pub use peer::Peer;
pub use protection::{everyone, protect, protect_draft};
pub use queries::{list_draft, query_draft, query_info_draft};
pub use world::{World, in_frozen_world, in_world, in_world_with, settings};

pub use frevo_proto::Dialect;
pub use frevo_server::Settings;
pub use frevo_wire::file_id::FileId;
pub use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
