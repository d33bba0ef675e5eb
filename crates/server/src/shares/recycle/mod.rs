//! Recycle bins: deleted files are moved to a folder of their share instead of being removed.
//!
//! A file goes to `FOLDER/USER/path`, where its user finds it with any client and moves it back.
//! As with Samba's `vfs_recycle`, only files that are deleted go there: not directories (the
//! folders of their files are made anew in the bin), and not the content that a rename or an
//! overwrite replaces. A file that is deleted in the bin is gone.
//!
//! [`RecyclingVfs`] is the file system of such a share as one account uses it. It moves files
//! by a rename, so that a deletion is one step as before, and keeps each account out of the bins
//! of others. Shares without a bin do not use it. [`sweep`] removes what is too old.

mod expiry;
mod folder;
mod naming;
mod sweep;
mod top;
mod vfs;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frevo_store::Name;
use frevo_wire::fscc::{Pattern, eq_ignore_case};

pub(crate) use sweep::watch;
pub(crate) use vfs::RecyclingVfs;

/// The recycle bin of a share.
#[derive(Debug, Clone)]
pub struct RecycleBin {
    /// The folder in the share's root that holds the bins of all users: one ASCII component.
    pub folder: String,
    /// Time after which a file is removed from the bin; None for never.
    pub keep: Option<Duration>,
    /// Bytes that each user's bin may hold: the oldest files go first. None for no limit.
    pub max_size: Option<u64>,
    /// Size from which on a file is deleted for good; None for no limit.
    pub max_file_size: Option<u64>,
    /// Patterns of files, and of folders with all their files, that are deleted for good.
    pub exclude: Vec<Pattern>,
    /// True where a file whose name is taken gets a number. Without it the file replaces the
    /// other one.
    pub versions: bool,
    /// The figures of the bin. A reload keeps those of the share's bin before.
    pub counts: Arc<RecycleCounts>,
}

/// Counts of a bin since the start of the server.
#[derive(Debug, Default)]
pub struct RecycleCounts {
    kept: AtomicU64,
    lost: AtomicU64,
    expired: AtomicU64,
}

impl RecycleCounts {
    /// Files that were moved to the bin.
    pub fn kept(&self) -> u64 {
        self.kept.load(Ordering::Relaxed)
    }

    /// Files that were deleted for good because the bin could not take them.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    /// Files that were removed from the bin because of their age or its size.
    pub fn expired(&self) -> u64 {
        self.expired.load(Ordering::Relaxed)
    }
}

impl Default for RecycleBin {
    fn default() -> Self {
        Self {
            folder: String::from(".recycle"),
            keep: None,
            max_size: None,
            max_file_size: None,
            exclude: Vec::new(),
            versions: true,
            counts: Arc::default(),
        }
    }
}

impl RecycleBin {
    /// True for a bin that something is ever removed from.
    pub(crate) const fn expires(&self) -> bool {
        self.keep.is_some() || self.max_size.is_some()
    }

    /// Returns the name of an account's own folder in the bin.
    pub fn folder_of(&self, account: &str) -> String {
        folder::of_account(account)
    }

    /// True for a name in the bin of another account than the one whose folder is `own`. Names
    /// are those of the medium: short names are resolved.
    pub(crate) fn hides(&self, name: &Name, own: &str) -> bool {
        let mut components = name.components();
        components.next().is_some_and(|top| eq_ignore_case(top, &self.folder))
            && components.next().is_some_and(|user| !eq_ignore_case(user, own))
    }

    /// True for a file that is deleted for good: by its size, its name or a folder above it.
    fn is_excluded(&self, name: &Name, size: u64) -> bool {
        let is_large = self.max_file_size.is_some_and(|most| size > most);
        let matches = |part: &str| self.exclude.iter().any(|pattern| pattern.matches(part));
        size == 0 || is_large || name.components().any(matches)
    }
}

#[cfg(test)]
mod tests;
