//! Who may do what on a share: its lists of users, groups and networks.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

#[path = "rights/lists.rs"]
mod lists;
