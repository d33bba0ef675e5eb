//! Makes a node stable.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use frevo_store::vfs::{Kind, VfsResult};
use rustix::fs::OFlags;
use rustix::io::{Errno, retry_on_intr};

use super::PosixNode;
use crate::credentials;
use crate::errno::fault_of;
use crate::sys;

impl PosixNode {
    /// Records a change that fdatasync does not cover: of attributes, times, protection.
    pub(super) fn mark_altered(&self) {
        self.altered.store(true, Ordering::Release);
    }

    /// Makes the object itself stable. fdatasync covers the data and all that is needed to find it,
    /// the length included. The entries of a directory and attributes need fsync: ext4 leaves them to
    /// the next commit of its journal otherwise.
    pub(super) fn sync_self(&self, is_all: bool) -> VfsResult<()> {
        let reopened;
        let fd = if self.handle.is_path_only() {
            match self.reopen_to_sync()? {
                Some(fd) => {
                    reopened = fd;
                    reopened.as_fd()
                }
                None => return Ok(()),
            }
        } else {
            self.handle.fd()
        };
        let sync = || if is_all { rustix::fs::fsync(fd) } else { rustix::fs::fdatasync(fd) };
        retry_on_intr(sync).map_err(fault_of)
    }

    /// Opens the object again with a descriptor that can be synced. None for links and special
    /// files, which have no such descriptor, and for what this process may neither read nor write:
    /// through such nodes nobody writes data.
    fn reopen_to_sync(&self) -> VfsResult<Option<OwnedFd>> {
        if !matches!(self.kind, Kind::File | Kind::Directory) {
            return Ok(None);
        }
        let _server = credentials::as_server();
        match sys::reopen(self.handle.fd(), OFlags::RDONLY) {
            Err(Errno::ACCESS) => {}
            opened => return opened.map(Some).map_err(fault_of),
        }
        match sys::reopen(self.handle.fd(), OFlags::WRONLY) {
            Err(Errno::ACCESS | Errno::ISDIR) => Ok(None),
            opened => opened.map(Some).map_err(fault_of),
        }
    }

    /// Makes the entries of a directory stable, also of one that a client may only write to.
    pub(super) fn sync_folder(&self, folder: BorrowedFd<'_>) -> VfsResult<()> {
        let _server = credentials::as_server();
        let fd = sys::reopen(folder, OFlags::RDONLY | OFlags::DIRECTORY).map_err(fault_of)?;
        retry_on_intr(|| rustix::fs::fsync(&fd)).map_err(fault_of)
    }
}
