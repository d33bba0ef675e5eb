//! What the threads of the server meet in, under one name: where a model
//! checker takes a file of this crate, it puts its own in the place of these.

pub(crate) use std::sync::atomic::{AtomicUsize, Ordering};
pub(crate) use tokio::sync::Notify;
