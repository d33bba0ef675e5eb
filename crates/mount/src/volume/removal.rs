//! Removing names: unlink, rmdir, and files that are open or read-only.

use std::ffi::OsStr;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_client::{Error, FileAttributes, Share, Status};
use fuser::Errno;

use super::names::{HIDDEN, is_hidden, is_unknown_to_server};
use super::{Volume, once};
use crate::errno::{Outcome, errno};
use crate::limits::{REMOVE_RETRY, REMOVE_TRIES};
use crate::node::Node;

/// Returns true if a repeated removal shows that the first attempt succeeded.
fn is_gone(found: Errno) -> bool {
    found == Errno::ENOENT
}

/// Returns true if a server refuses a removal because of the attribute READONLY: MS-FSA 2.1.5.15.3.
fn is_read_only(error: &Error) -> bool {
    error.status() == Some(Status::CANNOT_DELETE)
}

impl Volume {
    pub(crate) async fn rmdir(&self, parent: u64, name: &OsStr) -> Outcome<()> {
        self.check_writable()?;
        let (parent, name) = (self.nodes.find(parent)?, self.wire(name)?);
        let path = parent.below(&name)?;
        self.let_go_below(&path).await;
        let mut tries = REMOVE_TRIES;
        loop {
            let removed = self.remove_dir(&self.share_in(&parent), &path).await;
            match removed.map_err(|error| errno(&error)) {
                Err(error) if error == Errno::ENOTEMPTY && tries > 0 => tries -= 1,
                other => break other?,
            }
            // The kernel reports the last close of a removed file late. Until then the directory
            // contains the file under a hidden name, and removing the directory is tried again.
            if !self.holds_hidden_only(&path).await {
                return Err(Errno::ENOTEMPTY);
            }
            tokio::time::sleep(REMOVE_RETRY).await;
        }
        self.removed(&parent, &name);
        Ok(())
    }

    /// Removes an empty directory, also if it is read-only: POSIX looks only at the directory above.
    pub(super) async fn remove_dir(&self, share: &Share, path: &str) -> Result<(), Error> {
        match once(|| share.remove_dir(path), is_gone).await {
            Err(error) if is_read_only(&error) => {
                once(|| share.remove_dir_anyway(path), is_gone).await
            }
            removed => removed,
        }
    }

    /// Returns true if a directory contains only removed files.
    async fn holds_hidden_only(&self, path: &str) -> bool {
        let entries = self.share.list_dir(path).await;
        entries.is_ok_and(|entries| entries.iter().all(|entry| is_hidden(entry.file_name())))
    }

    pub(crate) async fn unlink(&self, parent: u64, name: &OsStr) -> Outcome<()> {
        self.check_writable()?;
        let (parent, name) = (self.nodes.find(parent)?, self.wire(name)?);
        self.unlink_in(&parent, &name).await?;
        self.removed(&parent, &name);
        Ok(())
    }

    /// Removes a file's name. Open handles stay usable.
    async fn unlink_in(&self, parent: &Arc<Node>, name: &str) -> Outcome<()> {
        let path = parent.below(name)?;
        self.let_go_at(parent, name, &path).await;
        let share = self.share_in(parent);
        let is_open = || self.open_at(parent, name).is_some();
        // For a file that is known as read-only, the plain attempt would be refused, so skipping it
        // saves a round trip.
        let mut is_read_only_file = self.is_known_read_only(parent, name) && !is_open();
        if !is_read_only_file && !self.plain.load(Ordering::Relaxed) {
            match once(|| share.unlink_file(&path), is_gone).await {
                Err(error) if is_unknown_to_server(&error) => {
                    self.plain.store(true, Ordering::Relaxed);
                }
                Err(error) if is_read_only(&error) => is_read_only_file = true,
                other => return other.map_err(|error| errno(&error)),
            }
        }
        if self.plain.load(Ordering::Relaxed)
            && let Some(node) = self.open_at(parent, name)
        {
            return self.hide(parent, name, &node).await;
        }
        let removed = match is_read_only_file {
            true => once(|| share.remove_file_anyway(&path), is_gone).await,
            false => self.remove_file(&share, &path).await,
        };
        removed.map_err(|error| errno(&error))
    }

    /// Returns true if a file has the attribute READONLY, as far as this mount knows.
    fn is_known_read_only(&self, parent: &Node, name: &str) -> bool {
        let is_so = |node: &Arc<Node>| {
            let known = node.known();
            known.is_some_and(|at| at.metadata.attributes().contains(FileAttributes::READONLY))
        };
        self.nodes.seen_as(parent.id, name).iter().any(is_so)
    }

    /// Removes a file that may be read-only.
    pub(super) async fn remove_file(&self, share: &Share, path: &str) -> Result<(), Error> {
        match once(|| share.remove_file(path), is_gone).await {
            Err(error) if is_read_only(&error) => {
                once(|| share.remove_file_anyway(path), is_gone).await
            }
            removed => removed,
        }
    }

    /// Gives an open file a hidden name, which is removed at its last close.
    pub(super) async fn hide(
        &self,
        parent: &Arc<Node>,
        name: &str,
        node: &Arc<Node>,
    ) -> Outcome<()> {
        let hidden = format!("{HIDDEN}{:016x}{:016x}", node.id, self.unique());
        let (from, to) = (parent.below(name)?, parent.below(&hidden)?);
        let share = self.share_in(parent);
        let rename = || share.rename(&from, &to);
        // The rename is sent before the lock `opening` is taken, because the server may break the
        // lease during the rename.
        once(rename, is_gone).await.map_err(|error| errno(&error))?;
        let _turn = self.turn(node).await;
        if node.is_open() {
            self.remove_at_close(node, to);
            return Ok(());
        }
        self.remove_file(&self.share, &to).await.map_err(|error| errno(&error))
    }
}
