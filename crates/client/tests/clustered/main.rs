//! The client against a cluster of real servers in the same process.
#![allow(missing_docs, reason = "tests")]

#[path = "../evil/mod.rs"]
mod evil;
#[path = "../nodes/mod.rs"]
mod nodes;

mod app_instances;
mod cluster;
mod cluster_links;
mod moves;
mod served_dialects;
