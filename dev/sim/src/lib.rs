//! A deterministic simulator: the shipped client and the shipped server on tokio's paused clock,
//! one thread, one seed.
//!
//! A [`Run`] consists of a [`network`] that delays, cuts, half-opens and stalls connections, of TCP
//! and of RDMA as its [`scenario`] says; a [`machine`] whose server is killed and restarted on a
//! file system in memory and a [`store`] of persistent handles; [`actor`]s that use the client as
//! programs do; [`weather`] that chooses the faults; a [`flood`] of listings in some runs, where a [`core`]
//! works for one connection at a time; rules of [`rates`] in others, whose
//! [`rate_book`] knows what they let pass; and a [`judge`] that knows the possible answers.
//! A run of a [`cluster`] has several nodes of one file system instead, with a model of etcd.
//! [`figures`] counts what a large cluster asks of etcd.
//! All random choices come from the seed: two runs of one seed have equal traces.
#![forbid(unsafe_code)]

pub mod actor;
pub mod ambient;
mod cluster;
mod company;
pub mod core;
pub mod dice;
pub mod figures;
pub mod flood;
pub mod judge;
pub mod machine;
pub mod network;
pub mod nonces;
pub mod rate_book;
pub mod rates;
mod run;
pub mod scenario;
pub mod store;
pub mod trace;
pub mod weather;

pub use run::{Kind, Outcome, Run};
