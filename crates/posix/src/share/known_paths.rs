//! Paths whose files were known the last time: an opening guesses by them, and checks the guess.
//!
//! A wrong guess costs one more open and nothing else, so a path is a hash in a small table.

use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use hashbrown::DefaultHashBuilder;

use crate::limits::KNOWN_PATHS;
use crate::share::Share;

static NOTED: [AtomicU64; KNOWN_PATHS] = [const { AtomicU64::new(0) }; KNOWN_PATHS];

static HASHES: LazyLock<DefaultHashBuilder> = LazyLock::new(DefaultHashBuilder::default);

/// A path below the root of a share.
#[derive(Debug, Clone, Copy)]
pub(crate) struct KnownPath(u64);

impl KnownPath {
    fn slot(self) -> &'static AtomicU64 {
        &NOTED[self.0 as usize % KNOWN_PATHS]
    }

    /// True if all attributes of its file were known the last time.
    pub(crate) fn is_noted(self) -> bool {
        self.slot().load(Ordering::Relaxed) == self.0
    }

    /// Records that all attributes of its file are known.
    pub(crate) fn note(self) {
        self.slot().store(self.0, Ordering::Relaxed);
    }
}

impl Share {
    /// Returns `path` below `dir` for the table. None below other directories than the root, and
    /// where no facts are kept.
    pub(crate) fn path_below_root(&self, dir: BorrowedFd<'_>, path: &[u8]) -> Option<KnownPath> {
        let is_root = dir.as_raw_fd() == self.root.as_raw_fd();
        let may_know = is_root && self.keeps_facts && !crate::credentials::is_acting();
        may_know.then(|| {
            let hash = std::hash::BuildHasher::hash_one(&*HASHES, (self.folder_id.0, path));
            KnownPath(hash.max(1))
        })
    }
}
