//! A deterministic simulator: the shipped client and the shipped server on
//! tokio's paused clock, one thread, one seed.
//!
//! A [`Run`] is made of a [`network`] that delays, cuts, half-opens and stalls,
//! a [`machine`] whose server is killed and restarted on a file system in
//! memory and a [`store`] of persistent handles, [`actor`]s that use the client as programs do, [`weather`] that
//! chooses what goes wrong, and a [`judge`] that knows what every answer may be.
//! All that is left to chance comes from the seed: two runs of one seed give the
//! same trace.
#![forbid(unsafe_code)]

pub mod actor;
pub mod ambient;
pub mod dice;
pub mod judge;
pub mod machine;
pub mod network;
mod run;
pub mod store;
pub mod trace;
pub mod weather;

pub use run::{Outcome, Run};
