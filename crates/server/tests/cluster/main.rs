//! Shares that the servers of a cluster have in turn.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "../durable/asking.rs"]
mod asking;
#[path = "../client/mod.rs"]
mod client;

mod attacks;
mod capabilities;
mod dialects;
mod grace;
mod limit;
mod many;
mod moves;
mod names;
mod nodes;
mod numbers;
mod redirects;
#[path = "../threats/rpc_peer.rs"]
mod rpc_peer;
mod storage;
mod witness;
