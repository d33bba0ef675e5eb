//! The pace at which a session comes back by itself.

use tokio::task::JoinSet;

use crate::limits::{COME_BACKS, COME_BACKS_WITHIN};
use crate::witness::Recent;

/// The times that a session came back because the server told of its end. A server that ends each session
/// at once does not have a client log on without end.
#[derive(Debug)]
pub(super) struct ComingBack {
    pub(super) recent: Recent,
    pub(super) tasks: JoinSet<()>,
}

impl Default for ComingBack {
    fn default() -> Self {
        Self { recent: Recent::of(COME_BACKS, COME_BACKS_WITHIN), tasks: JoinSet::new() }
    }
}
