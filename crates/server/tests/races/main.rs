//! Channels of one client on several cores: THREATS L1 to L3 and L6.
//!
//! More of it: `FREVO_RACE_RUNS=100000 cargo test -p frevo-server --release
//! --test races`.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

#[path = "../client/mod.rs"]
mod client;

mod channels;
mod cores;
mod model;
mod names;
mod sync;

#[path = "../../src/under_way.rs"]
#[allow(dead_code, reason = "the model has no use for all of it")]
mod under_way;
