//! The server's shared state under every order of threads that shuttle thinks of: Session, Open,
//! lease, durable table and numbered operations, through the server itself. Each connection is a
//! thread of the model, as on a core of its own, and each lock that it takes is a step after which
//! another thread may go on (`frevo_store::order::model`).
//!
//! `FREVO_MODEL_RUNS=20000 cargo test -p frevo-server --test models` tries more orders. A failure
//! prints a schedule, which `FREVO_MODEL_SCHEDULE` repeats.
#![allow(clippy::print_stdout, unreachable_pub, reason = "tests")]
// Only builds with debug assertions have the steps that are explored.
#![cfg(debug_assertions)]

#[path = "../durable/asking.rs"]
#[allow(dead_code, reason = "a part is used")]
mod asking;
#[path = "../client/mod.rs"]
mod client;

mod exploring;
mod handles;
mod once;
mod sessions;
