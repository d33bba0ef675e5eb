//! Names and what hangs on them: streams, reparse points, links, identifiers.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

#[path = "../client/mod.rs"]
mod client;

mod archive;
#[path = "../ioctl/calls.rs"]
#[allow(dead_code, reason = "each test binary uses its own part")]
mod calls;
mod classes;
mod eas;
mod hard_links;
mod link_kinds;
mod reparse;
mod separators;
mod shares;
mod short;
mod sizes;
mod streams;
mod times;
