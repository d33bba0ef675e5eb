//! Peers that the tests invent, on a paused clock: what they refuse, forget, or lie about.
#![allow(missing_docs, reason = "tests")]

#[path = "../dialed/mod.rs"]
mod dialed;
#[path = "../evil/mod.rs"]
mod evil;
#[path = "../witnesses/mod.rs"]
mod witnesses;
#[path = "../world/mod.rs"]
mod world;

mod cluster_dialects;
mod copies;
mod dates;
mod dfs;
mod full_disk;
mod given_up;
mod hostile_cluster;
mod hostile_compression;
mod hostile_namespace;
mod hostile_server;
mod hostile_trees;
mod hostile_witness;
mod leases;
mod newest_rules;
mod optional_questions;
mod session_closed;
mod simple_servers;
mod waiting;
mod witness;
