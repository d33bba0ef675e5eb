//! Answers to clients stay true: on a file system in memory that fails, fills up and crashes
//! when a test wants it to.
#![allow(clippy::print_stdout, reason = "tests")]
#![allow(unreachable_pub, reason = "a test binary is a crate")]

#[path = "../client/mod.rs"]
mod client;

mod crashes;
mod disk;
mod faults;
mod names;
