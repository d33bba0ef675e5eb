//! Folders of a share that are left open for later requests.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::Statx;

use crate::credentials;
use crate::share::Share;
use crate::xattr::Handle;

impl Share {
    /// True where folders may be kept open. For a user as whom the server works the host checks the
    /// way to a folder each time, and a link that is followed may lead elsewhere at any time.
    fn keeps_folders(&self) -> bool {
        self.readable_root.is_some()
            && !self.options.follow_symlinks_inside
            && !credentials::is_acting()
    }

    /// Returns the folder at `path` and its state, if it is open since an earlier request.
    pub(crate) fn kept_folder(&self, path: &[u8]) -> Option<(Arc<OwnedFd>, Statx)> {
        if self.keeps_folders() { self.folders.at(self.root.as_fd(), path) } else { None }
    }

    /// Leaves the folder at `path`, which has just been opened, open for later requests.
    pub(crate) fn keep_folder(&self, path: &[u8], handle: &Handle, stx: &Statx) {
        if self.keeps_folders() && !handle.is_path_only() {
            self.folders.keep(self.root.as_fd(), self.home, path, &handle.shared(), stx);
        }
    }
}
