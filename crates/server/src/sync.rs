//! The locks and atomics of the server's threads, under one name: a model checker that
//! includes a file of this crate puts its own in their place.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use tokio::sync::Notify;
