//! The protocol from a client's side: what MS-SMB2 3.3 promises, asked of the
//! server over an in-memory connection.
#![allow(clippy::print_stdout, reason = "tests")]

#[path = "../client/mod.rs"]
mod client;

mod admission;
mod batches;
mod caps;
mod compounds;
mod compression;
mod credits;
mod directory;
mod elsewhere;
mod empty;
mod farewells;
mod files;
mod guests;
mod host_locks;
mod hung;
mod limits;
mod logged;
mod negotiation;
mod off_core;
mod protected;
mod rates;
mod scanning;
mod secure_transport;
mod sessions;
mod sharing;
mod slow_disk;
mod unbuffered;
mod waiting;
mod watchdog;
