//! What a share's file system cannot do at all, so that its server is not asked again for
//! each file of a tree.

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::REFUSED_FOR;

/// Ways to copy that were refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// FSCTL_OFFLOAD_READ and FSCTL_OFFLOAD_WRITE.
    pub(crate) offloads: Refusal,
    /// FSCTL_DUPLICATE_EXTENTS_TO_FILE.
    pub(crate) clones: Refusal,
}

/// One of them. It stands for a while only: below a share there may be other file systems,
/// and its server may become another.
#[derive(Debug, Default)]
pub(crate) struct Refusal(Mutex<Option<Instant>>);

impl Refusal {
    pub(crate) fn note(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    pub(crate) fn stands(&self) -> bool {
        self.0.lock().is_some_and(|at| at.elapsed() < REFUSED_FOR)
    }
}
