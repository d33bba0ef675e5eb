//! The server's Opens of a file, which all of its handles share.

use std::sync::{Arc, Weak};

use frevo_client::internal::Lease;
use frevo_client::{Cause, File, LeaseState, Metadata, OpenOptions, Status};
use fuser::{Errno, INodeNo};
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::Volume;
use super::maintenance::FileLeaseHolder;
use crate::cache::FileCache;
use crate::errno::{Outcome, errno};
use crate::limits::IDLE_FILES_MAX;
use crate::node::{Node, Opened};

/// Lease states requested for reading, and for writing.
const READING: LeaseState = LeaseState::READ.union(LeaseState::HANDLE);
pub(super) const WRITING: LeaseState = READING.union(LeaseState::WRITE);

impl Volume {
    /// Returns any Open of the node.
    pub(super) fn open_file(&self, node: &Node) -> Option<File> {
        node.opens.lock().find(false, false)
    }

    /// Returns an Open of the node with write access.
    pub(super) fn writer(&self, node: &Node) -> Option<File> {
        node.opens.lock().find(false, true)
    }

    /// Returns an Open of the node with read access.
    pub(super) fn reader(&self, node: &Node) -> Option<File> {
        node.opens.lock().find(true, false)
    }

    /// Removes the name `path` when the node is closed. The caller holds `opening`.
    pub(super) fn remove_at_close(&self, node: &Node, path: String) {
        node.opens.lock().hidden.push(path);
    }

    /// Returns the data cache of a node; makes it if there is none.
    pub(super) async fn content(&self, node: &Arc<Node>) -> Outcome<Arc<FileCache>> {
        if let Some(content) = node.content() {
            return Ok(content);
        }
        let lease = self.share.lease_of(&node.path()?).await.map_err(|error| errno(&error))?;
        // Another task may have made it meanwhile.
        if let Some(content) = node.content() {
            return Ok(content);
        }
        self.keep(node, lease);
        node.content().ok_or(Errno::EIO)
    }

    /// Gives the node a data cache under `lease`.
    pub(super) fn keep(&self, node: &Arc<Node>, lease: Arc<Lease>) {
        let (volume, of) = (Weak::clone(&self.me), Arc::downgrade(node));
        node.keep(FileCache::new(
            lease,
            &self.budget,
            Arc::new(FileLeaseHolder { volume, node: of }),
        ));
    }

    /// Returns an Open with these rights; makes it if there is none. The caller holds `opening`. If
    /// that fails and no program uses the file, it is closed.
    pub(super) async fn open_on_server(
        &self,
        node: &Arc<Node>,
        reads: bool,
        writes: bool,
    ) -> Outcome<File> {
        let opened = self.take_or_open(node, reads, writes).await;
        if opened.is_err() && node.opens.lock().users == 0 {
            self.close_all(node).await;
        }
        opened
    }

    async fn take_or_open(&self, node: &Arc<Node>, reads: bool, writes: bool) -> Outcome<File> {
        let content = self.content(node).await?;
        let is_kept = {
            let mut opens = node.opens.lock();
            let is_kept = opens.kept.take().is_some();
            if is_kept {
                self.not_kept(node);
            }
            is_kept
        };
        loop {
            let found = node.opens.lock().best(reads, writes).map(|one| (one.id, one.file.clone()));
            let is_good = || !is_kept || content.lease.grant().state.contains(LeaseState::HANDLE);
            let Some((id, file)) = found.filter(|_| is_good()) else { break };
            match file.confirm().await {
                // Its locks are lost with it; the program must learn that.
                Err(error) if matches!(error.cause(), Cause::HandleLost) => {
                    if node.locks.lock().await.is_any() {
                        return Err(errno(&error));
                    }
                    node.opens.lock().files.retain(|one| one.id != id);
                }
                Err(error) => return Err(errno(&error)),
                Ok(()) => {
                    // Without this lease nobody tells this mount of another client's changes.
                    if !content.lease.grant().state.contains(LeaseState::READ) {
                        self.forget_attributes(node);
                    }
                    return Ok(file);
                }
            }
        }
        let changes = content.changes();
        let opened = self.open_as(node, &content, writes).await?;
        let file = opened.file.clone();
        let at_open = file.metadata_at_open();
        content.opened(&file, writes, at_open.len(), changes);
        node.opens.lock().files.push(opened);
        let told = node.known().map(|known| known.metadata);
        let is_changed = |told: Metadata| {
            (told.len(), told.modified_ticks()) != (at_open.len(), at_open.modified_ticks())
        };
        if told.is_some_and(is_changed) {
            self.forget_attributes(node);
        }
        Ok(file)
    }

    /// Makes this mount and the kernel forget a node's size and times. A program that opens a file
    /// sees what another client did before, as on NFS, although the kernel may still cache older
    /// attributes.
    fn forget_attributes(&self, node: &Node) {
        node.invalidate();
        if let Some(notifier) = self.notifier.get() {
            // A negative offset: attributes only, which needs no page and so never waits.
            if let Err(error) = notifier.inval_inode(INodeNo(node.id), -1, 0) {
                tracing::debug!(%error, "the kernel did not drop cached attributes");
            }
        }
    }

    /// Opens a node's file on the server; for writing also with read access, if that is allowed.
    async fn open_as(
        &self,
        node: &Arc<Node>,
        content: &FileCache,
        writes: bool,
    ) -> Outcome<Opened> {
        let path = node.path()?;
        let options = self.options(if writes { WRITING } else { READING });
        let options = options.write(writes).shared_lease(&content.lease);
        let (file, reads) = match options.clone().read(true).open(&self.share, &path).await {
            Err(error) if writes && error.status() == Some(Status::ACCESS_DENIED) => {
                (options.open(&self.share, &path).await.map_err(|e| errno(&e))?, false)
            }
            // The lease belongs to another file: MS-SMB2 3.3.5.9.8.
            Err(error) if error.status() == Some(Status::INVALID_PARAMETER) => {
                self.refresh_by_name(node).await?;
                // Another file may have had the name for a moment; the next look-up finds out.
                self.distrust(node);
                return Err(Errno::from_i32(libc::ESTALE));
            }
            other => (other.map_err(|error| errno(&error))?, true),
        };
        // Another client may have replaced the file: after ESTALE the kernel looks the name up
        // again and opens the new file.
        if ![0, node.id].contains(&file.metadata_at_open().file_id()) && !node.is_made_up() {
            let _ = file.close().await;
            self.distrust(node);
            return Err(Errno::from_i32(libc::ESTALE));
        }
        Ok(Opened { id: self.number(), file, reads, writes })
    }

    pub(super) fn options(&self, lease: LeaseState) -> OpenOptions {
        OpenOptions::new().lease(if self.settings.cache { lease } else { LeaseState::EMPTY })
    }

    /// Returns true if an unused file stays open for a while. Only files that were not written do:
    /// the server updates the times of a written file at its close.
    pub(super) fn keeps(&self, node: &Arc<Node>) -> bool {
        let Some(content) = node.content() else { return false };
        let keeping = LeaseState::READ | LeaseState::HANDLE;
        let may = self.settings.cache && content.lease.grant().state.contains(keeping);
        let mut opens = node.opens.lock();
        let is_plain = opens.hidden.is_empty() && opens.files.iter().all(|one| !one.writes);
        let mut kept = self.kept.lock();
        let keeps = may && is_plain && kept.len() < IDLE_FILES_MAX;
        if keeps {
            opens.kept = Some(Instant::now());
            kept.insert(node.id, Arc::clone(node));
        }
        keeps
    }

    pub(super) fn not_kept(&self, node: &Node) {
        let mut kept = self.kept.lock();
        if kept.get(&node.id).is_some_and(|one| std::ptr::eq(&**one, node)) {
            kept.remove(&node.id);
        }
    }

    /// Waits for its turn to change the Opens of a node.
    pub(super) async fn turn<'n>(&self, node: &'n Node) -> MutexGuard<'n, ()> {
        if let Ok(turn) = node.opening.try_lock() {
            return turn;
        }
        // The holder may wait for a CLOSE that was held back.
        self.share.hurry();
        node.opening.lock().await
    }

    /// Closes all Opens of a node. The caller holds `opening`.
    pub(super) async fn close_all(&self, node: &Node) {
        self.close_opens(node, false).await;
    }

    /// As [`Self::close_all`], when nobody waits for it: a CLOSE leaves with the next request.
    pub(super) async fn close_all_with_next(&self, node: &Node) {
        self.close_opens(node, true).await;
    }

    async fn close_opens(&self, node: &Node, with_next: bool) {
        let (files, hidden) = {
            let mut opens = node.opens.lock();
            if opens.kept.take().is_some() {
                self.not_kept(node);
            }
            (std::mem::take(&mut opens.files), std::mem::take(&mut opens.hidden))
        };
        for opened in files {
            let asked = std::time::Instant::now();
            let closed = match with_next {
                true => opened.file.close_with_next().await,
                false => opened.file.close().await.map(|()| None),
            };
            match closed {
                Ok(Some(told)) => node.closed(&told, asked),
                Ok(None) => {}
                Err(error) => tracing::warn!(%error, "closing a file failed"),
            }
        }
        if let Some(content) = node.content() {
            content.closed();
        }
        for hidden in hidden {
            if let Err(error) = self.share.remove_file(&hidden).await {
                tracing::warn!(%error, "a removed file remains under a hidden name");
            }
        }
    }

    /// Closes a node that no program uses.
    pub(crate) async fn let_go(&self, node: &Arc<Node>) {
        if node.directory.is_held() {
            self.let_go_dir(node).await;
        }
        let _turn = self.turn(node).await;
        self.close_if_unused(node).await;
    }

    /// Closes a file that no program uses. The caller holds `opening`.
    pub(super) async fn close_if_unused(&self, node: &Node) {
        let is_kept = {
            let opens = node.opens.lock();
            opens.users == 0 && opens.is_open()
        };
        if is_kept {
            self.close_all(node).await;
        }
    }
}
