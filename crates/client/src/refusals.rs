//! Ways to copy and to remove that a share's file system does not support: the server is not asked
//! again for each file of a tree.

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::REFUSED_FOR;

/// Ways to copy and to remove that the server refused.
#[derive(Debug, Default)]
pub(crate) struct Refusals {
    /// FSCTL_OFFLOAD_READ and FSCTL_OFFLOAD_WRITE.
    pub(crate) offloads: Refusal,
    /// FSCTL_DUPLICATE_EXTENTS_TO_FILE.
    pub(crate) clones: Refusal,
    /// FileDispositionInformationEx for read-only files.
    pub(crate) read_only_removals: Refusal,
}

/// A refusal. It counts for a limited time: a share may contain several file systems, and a
/// server may be upgraded.
#[derive(Debug, Default)]
pub(crate) struct Refusal(Mutex<Option<Instant>>);

impl Refusal {
    /// Notes that the server refused now.
    pub(crate) fn note(&self) {
        *self.0.lock() = Some(Instant::now());
    }

    /// Returns true if the server refused a short time ago.
    pub(crate) fn stands(&self) -> bool {
        self.0.lock().is_some_and(|at| at.elapsed() < REFUSED_FOR)
    }
}
