//! The server's Opens of a file, which all of its handles share.

use std::pin::pin;
use std::sync::{Arc, Weak};

use frevo_client::internal::Lease;
use frevo_client::{Cause, File, LeaseState, Metadata, OpenOptions, Status};
use fuser::{Errno, INodeNo};
use futures_util::StreamExt as _;
use futures_util::stream;
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::maintenance::FileLeaseHolder;
use super::{Volume, begin};
use crate::cache::FileCache;
use crate::errno::{Outcome, errno};
use crate::limits::{IDLE_FILES_MAX, NAMES_AT_ONCE, PAGE_BYTES};
use crate::node::{Name, Node, Opened, TimedMetadata};

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
        // Another task may have made the cache while this one waited.
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
                // The locks were lost with the handle, so the program must get an error and not a
                // new handle.
                Err(error) if matches!(error.cause(), Cause::HandleLost) => {
                    if node.locks.lock().await.is_any() {
                        return Err(errno(&error));
                    }
                    node.opens.lock().files.retain(|one| one.id != id);
                }
                Err(error) => return Err(errno(&error)),
                Ok(()) => {
                    // Without a READ lease the server does not report changes by other clients, so
                    // the known attributes are dropped.
                    if !content.lease.grant().state.contains(LeaseState::READ) {
                        self.forget_attributes(node);
                    }
                    return Ok(file);
                }
            }
        }
        let before = content.before_open();
        let (opened, first_page) = self.open_as(node, &content, reads, writes).await?;
        let file = opened.file.clone();
        let at_open = file.metadata_at_open();
        self.count_breaks(node).await;
        content.opened(&file, writes, before, &at_open, first_page);
        node.opens.lock().files.push(opened);
        let told = node.known().map(|known| known.metadata);
        if told.is_some_and(|told| is_changed(&told, &at_open)) {
            self.forget_attributes(node);
        }
        Ok(file)
    }

    /// Lets the breaks count that the server sent before its last answer, if data of the file is cached.
    pub(super) async fn count_breaks(&self, node: &Node) {
        if node.content().is_some_and(|content| content.is_any()) {
            self.share.session().breaks_counted().await;
        }
    }

    /// Returns true if an open(2) would use an Open that this mount has.
    pub(super) fn reuses(&self, node: &Node, reads: bool, writes: bool) -> bool {
        let opens = node.opens.lock();
        let has_handle =
            |content: Arc<FileCache>| content.lease.grant().state.contains(LeaseState::HANDLE);
        let is_good = opens.kept.is_none() || node.content().is_some_and(has_handle);
        is_good && opens.best(reads, writes).is_some()
    }

    /// Checks that an open file still has its names, and discards what is cached of it and older than
    /// the server's answer: open(2) sees what another client has closed before (close-to-open). The
    /// break of a lease may be under way; the server sent it before this answer. The caller holds
    /// `opening`.
    ///
    /// # Errors
    /// ESTALE if a name is gone or leads to another file: the kernel then looks the name up again.
    pub(super) async fn check_names(&self, node: &Arc<Node>) -> Outcome<()> {
        let names = node.names();
        let asked = std::time::Instant::now();
        let look = |name: Name| async move {
            let found = match name.0.below(&name.1) {
                Ok(path) => self.look_at(&path).await.map_err(|error| errno(&error)),
                Err(error) => Err(error),
            };
            (name, found)
        };
        let mut looks = pin!(stream::iter(names).map(look).buffer_unordered(NAMES_AT_ONCE));
        let mut told = None;
        let mut wrong = Vec::new();
        while let Some((name, found)) = looks.next().await {
            match found {
                Ok(found) if self.is_same(node, &found) => told = Some(found),
                Ok(_) => wrong.push(name),
                Err(error) if error == Errno::ENOENT => wrong.push(name),
                Err(error) => return Err(error),
            }
        }
        if !wrong.is_empty() {
            node.invalidate();
            for (parent, name) in wrong {
                parent.directory.changed(None);
                if told.is_some() {
                    self.nodes.lost_name(node, &parent, &name);
                }
            }
            return Err(Errno::from_i32(libc::ESTALE));
        }
        // A removed file has no name that could lead to another file, so the cache is not compared.
        let Some(now) = told else { return Ok(()) };
        self.share.session().breaks_counted().await;
        if let Some(content) = node.content() {
            content.check(&now);
        }
        if node.known().is_some_and(|told| is_changed(&told.metadata, &now)) {
            self.drop_kernel_attributes(node);
        }
        node.set_metadata(now, asked);
        Ok(())
    }

    /// Makes this mount and the kernel forget a node's size and times. A program that opens a file
    /// sees what another client did before, as on NFS, although the kernel may still cache older
    /// attributes.
    fn forget_attributes(&self, node: &Node) {
        node.invalidate();
        self.drop_kernel_attributes(node);
    }

    /// Makes the kernel ask for the attributes of a node when a program wants them.
    fn drop_kernel_attributes(&self, node: &Node) {
        if let Some(notifier) = self.notifier.get() {
            // With a negative offset the kernel drops only the attributes and no pages, so the call
            // never waits for the kernel.
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
        reads: bool,
        writes: bool,
    ) -> Outcome<(Opened, Option<Vec<u8>>)> {
        let path = node.path()?;
        // With the parent's lease key the close of a written file does not break this mount's lease
        // on the directory.
        let parent = node.name().and_then(|(parent, _)| parent.directory.lease());
        content.lease.set_parent(parent.as_deref());
        let options = self.options(if writes { WRITING } else { READING });
        let options = options.write(writes).shared_lease(&content.lease);
        let is_small = |known: TimedMetadata| known.metadata.len() <= PAGE_BYTES as u64;
        let wants_data =
            self.settings.cache && reads && !writes && node.known().is_none_or(is_small);
        let mut first_page = None;
        let both = options.clone().read(true);
        let opened = match wants_data {
            true => both.open_and_read(&self.share, &path, PAGE_BYTES as u32).await.map(
                |(file, data)| {
                    first_page = data;
                    file
                },
            ),
            false => both.open(&self.share, &path).await,
        };
        let (file, reads) = match opened {
            Err(error) if writes && error.status() == Some(Status::ACCESS_DENIED) => {
                (options.open(&self.share, &path).await.map_err(|e| errno(&e))?, false)
            }
            // MS-SMB2 3.3.5.9.8: the lease belongs to another file than the one that has the name
            // now.
            Err(error) if error.status() == Some(Status::INVALID_PARAMETER) => {
                self.refresh_by_name(node).await?;
                // The name may have led to another file for a moment. The kernel looks it up again
                // after ESTALE.
                self.distrust(node);
                return Err(Errno::from_i32(libc::ESTALE));
            }
            other => (other.map_err(|error| errno(&error))?, true),
        };
        // Another client may have replaced the file. After ESTALE the kernel looks the name up
        // again and opens the new file.
        if ![0, node.id].contains(&file.metadata_at_open().file_id()) && !node.is_made_up() {
            let _ = file.close().await;
            self.distrust(node);
            return Err(Errno::from_i32(libc::ESTALE));
        }
        Ok((Opened { id: self.number(), file, reads, writes }, first_page))
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
        // The holder of `opening` may be waiting for a CLOSE that was not sent yet. `hurry` sends
        // it.
        self.share.hurry();
        node.opening.lock().await
    }

    /// Closes all Opens of a node. The caller holds `opening`.
    pub(super) async fn close_all(&self, node: &Node) {
        self.close_opens(node, false).await;
    }

    /// As [`Self::close_all`], when no caller waits for it: a CLOSE leaves with the next request.
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
        // The cache is closed before the first await. Later, the next open could have begun
        // already, and its data would have no Open to be sent through.
        if let Some(content) = node.content() {
            content.closed();
        }
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
        for hidden in hidden {
            if let Err(error) = self.remove_file(&self.share, &hidden).await {
                tracing::warn!(%error, "a removed file remains under a hidden name");
            }
        }
        self.not_forgotten(node);
    }

    /// Closes a node that no program uses.
    pub(crate) async fn let_go(&self, node: &Arc<Node>) {
        if node.directory.is_held() {
            self.let_go_dir(node).await;
        }
        let _turn = self.turn(node).await;
        self.close_if_unused(node).await;
        if !node.is_open() {
            self.not_forgotten(node);
        }
    }

    /// Drops a file that is closed from those that the kernel has forgotten before.
    fn not_forgotten(&self, node: &Node) {
        self.forgotten.lock().retain(|one| !std::ptr::eq(&**one, node));
    }

    /// As [`Self::let_go`], for a caller whose next request the Opens would hinder: the CLOSEs leave
    /// before it, and no caller waits for their answers. Where they might go another way than the next
    /// request, they are waited for.
    pub(super) async fn let_go_before_next(&self, node: &Arc<Node>) {
        if self.share.session().channels().len() > 1 {
            return self.let_go(node).await;
        }
        if node.directory.is_held() {
            self.let_go_dir(node).await;
        }
        let _turn = self.turn(node).await;
        let is_kept = {
            let opens = node.opens.lock();
            opens.users == 0 && opens.is_open()
        };
        if let Some(volume) = self.me.upgrade().filter(|_| is_kept) {
            let node = Arc::clone(node);
            begin(async move { volume.close_all_with_next(&node).await }).await;
        }
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

/// Returns true if size or time of modification differ.
fn is_changed(told: &Metadata, now: &Metadata) -> bool {
    (told.len(), told.modified_ticks()) != (now.len(), now.modified_ticks())
}
