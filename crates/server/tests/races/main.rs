//! Clients on several cores: rows A6, L1 to L4 and L6 of the catalogue of faults.
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
mod orders;
mod racing;
mod reloads;
mod sync;
mod takeover;

#[path = "../../src/base/under_way.rs"]
#[allow(dead_code, reason = "the model has no use for all of it")]
mod under_way;
