//! The catalogue of faults that SMB servers have shipped, each with the answer
//! that this server gives. A test's name begins with the fault's number in the
//! catalogue. Every test ends with the same questions (`client::world`): is a
//! stranger's session unharmed, did nothing panic, is nothing left behind?
#![allow(clippy::print_stdout, reason = "tests")]

#[path = "../client/mod.rs"]
mod client;

mod again;
mod authentication;
mod compounds;
mod compression;
mod contexts;
mod documented;
mod frames;
mod freeing;
mod guessing;
mod holdings;
mod integrity;
mod lists;
mod memory;
mod names;
mod offsets;
mod previous;
mod programs;
mod rpc;
mod rpc_logons;
mod rpc_peer;
#[cfg(feature = "test-hooks")]
mod rpc_waits;
mod seals;
mod time;
mod turns;
