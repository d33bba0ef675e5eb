//! Background work: lease breaks, sending old data, closing idle files, and the end of a mount.

use std::sync::{Arc, Weak};

use frevo_client::LeaseState;
use frevo_client::internal::{LeaseHolder, Yield};
use fuser::INodeNo;
use futures_util::StreamExt;

use super::Volume;
use crate::limits::{CLOSE_TIMEOUT, CLOSES_AT_ONCE, IDLE_FILE_TIMEOUT};
use crate::node::Node;

/// Handles breaks of a file's lease.
pub(crate) struct FileLeaseHolder {
    pub(super) volume: Weak<Volume>,
    pub(super) node: Weak<Node>,
}

impl LeaseHolder for FileLeaseHolder {
    fn broken(&self, to: LeaseState) -> Yield {
        let found = self.volume.upgrade().zip(self.node.upgrade());
        Box::pin(async move {
            if let Some((volume, node)) = found {
                volume.give_up(&node, to).await;
            }
        })
    }
}

impl Volume {
    /// Gives up what a lease allowed beyond the state `to`.
    async fn give_up(&self, node: &Arc<Node>, to: LeaseState) {
        node.invalidate();
        if let Some(notifier) = self.notifier.get().cloned() {
            // This call makes the kernel write mapped pages back and drop them.
            let number = INodeNo(node.id);
            let answer = tokio::task::spawn_blocking(move || notifier.inval_inode(number, 0, 0));
            if let Ok(Err(error)) = answer.await {
                tracing::debug!(%error, "the kernel did not drop mapped pages");
            }
        }
        let Some(content) = node.content() else { return };
        if !to.contains(LeaseState::WRITE) {
            content.send_unasked().await;
        }
        if !to.contains(LeaseState::READ) {
            content.forget();
        }
        if !to.contains(LeaseState::HANDLE) {
            match node.opening.try_lock() {
                Ok(_turn) => self.close_if_unused(node).await,
                // The holder of `opening` waits for the server, which waits for the answer to this
                // break. So this break does not wait for `opening`. The holder checks the lease
                // itself, and a task closes the file later.
                Err(_) => {
                    let (volume, node) = (Weak::clone(&self.me), Arc::clone(node));
                    tokio::spawn(async move {
                        if let Some(volume) = volume.upgrade() {
                            volume.let_go(&node).await;
                        }
                    });
                }
            }
        }
    }

    /// Sends data that was written a while ago, and closes idle files and directories.
    pub(crate) async fn tidy(&self) {
        for node in self.open_nodes() {
            let Some(content) = node.content() else { continue };
            if content.waiting().is_some_and(|since| since.elapsed() >= crate::limits::SEND_AFTER) {
                // `send_soon` only starts the sending, so a slow file does not delay other files.
                content.send_soon();
            }
        }
        self.tidy_dirs().await;
        self.tidy_listings();
        let kept: Vec<_> = self.kept.lock().values().cloned().collect();
        for node in kept {
            let since = node.opens.lock().kept;
            if since.is_none_or(|since| since.elapsed() >= IDLE_FILE_TIMEOUT) {
                self.let_go(&node).await;
            }
        }
    }

    /// Sends all unsent data.
    pub(crate) async fn flush_all(&self) {
        let nodes = futures_util::stream::iter(self.all_nodes());
        let flush = async |node: Arc<Node>| {
            if let Err(error) = self.send(&node).await {
                tracing::warn!(?node, ?error, "written data is lost");
            }
        };
        nodes.for_each_concurrent(CLOSES_AT_ONCE, flush).await;
    }

    /// Returns the nodes that the kernel knows, and those that it has forgotten while their files were
    /// still open.
    fn all_nodes(&self) -> Vec<Arc<Node>> {
        let mut all = self.nodes.all();
        all.extend(self.forgotten.lock().iter().cloned());
        all
    }

    /// Returns the bytes of all files that are not on the server yet, and those that are lost.
    pub(crate) fn unsent_and_lost(&self) -> (u64, u64) {
        (self.budget.unsent(), self.budget.lost())
    }

    /// Returns the written bytes that are not on the server: those that are unsent, and those lost
    /// since `lost_before` were.
    pub(crate) fn not_saved(&self, lost_before: u64) -> u64 {
        // The count of lost bytes is read last. So bytes that are lost in between may be counted
        // twice, but are never left out.
        let unsent = self.budget.unsent();
        unsent + self.budget.lost().saturating_sub(lost_before)
    }

    /// Sends and closes everything after an unmount. A server that does not answer closes the files
    /// itself.
    pub(crate) async fn settle(&self) {
        self.flush_all().await;
        let close = async {
            let handles: Vec<u64> = self.files.lock().keys().copied().collect();
            let handles = futures_util::stream::iter(handles);
            handles.for_each_concurrent(CLOSES_AT_ONCE, |one| self.release(one)).await;
            let nodes = futures_util::stream::iter(self.all_nodes());
            let let_go = async |node: Arc<Node>| self.let_go(&node).await;
            nodes.for_each_concurrent(CLOSES_AT_ONCE, let_go).await;
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, close).await.is_err() {
            tracing::warn!(
                "the server does not answer: it still has files of the unmounted share open"
            );
        }
    }

    /// Closes a new handle whose caller is gone.
    pub(crate) fn not_opened(self: &Arc<Self>, number: u64) {
        let volume = Arc::clone(self);
        tokio::spawn(async move { volume.release(number).await });
    }

    /// Takes back a lookup that was not sent to the kernel.
    pub(crate) fn forget_one(self: &Arc<Self>, id: u64) {
        if let Some(node) = self.forget(id, 1) {
            let volume = Arc::clone(self);
            tokio::spawn(async move { volume.let_go(&node).await });
        }
    }

    /// Subtracts `count` from a node's lookup count. Returns the node if it is forgotten and still
    /// open.
    pub(crate) fn forget(&self, id: u64, count: u64) -> Option<Arc<Node>> {
        let is_busy = |node: &Arc<Node>| node.is_open() || node.directory.is_held();
        let node = self.nodes.forget(id, count).filter(is_busy)?;
        if node.is_open() {
            // The end of the mount must still find the file, because its data may be unsent.
            self.forgotten.lock().push(Arc::clone(&node));
        }
        Some(node)
    }
}
