//! Opens that outlive their connection, and CREATEs that come again.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]

#[path = "../client/mod.rs"]
mod client;

mod accounts;
mod asking;
mod handles;
mod handover;
mod instances;
mod moving;
mod newest_rules;
mod persistent;
mod posix_opens;
mod replayed;
mod resilient;
mod scavenged;
mod theft;
