//! What is done without being asked for: a lease is given up, what was written a while ago is
//! sent, what nobody uses is closed; and all of that at the end.

use std::sync::{Arc, Weak};

use frevo_client::{LeaseHolder, Yield};
use frevo_wire::command::oplock_break::LeaseState;
use fuser::INodeNo;
use futures_util::StreamExt;

use super::Volume;
use crate::limits::{AT_ONCE_AT_THE_END, CLOSED_WITHIN, KEPT_FOR};
use crate::node::Node;

/// Gives up what a lease of a node allowed.
pub(crate) struct Breaker {
    pub(super) volume: Weak<Volume>,
    pub(super) node: Weak<Node>,
}

impl LeaseHolder for Breaker {
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
    /// A lease of the node falls to `to`: what it allowed is given up.
    async fn give_up(&self, node: &Arc<Node>, to: LeaseState) {
        node.unlearn();
        if let Some(notifier) = self.notifier.get().cloned() {
            // What programs have mapped: written back first, then forgotten.
            let number = INodeNo(node.id);
            let told = tokio::task::spawn_blocking(move || notifier.inval_inode(number, 0, 0));
            if let Ok(Err(error)) = told.await {
                tracing::debug!(%error, "the kernel keeps what it mapped");
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
                // Whoever opens or closes it waits for the server, and that for this, or for
                // another client who waits for it in the same way. He looks at the lease
                // himself, or had just done so.
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

    /// What is done from time to time: sending what was written a while ago, closing
    /// what nobody has used for a while.
    pub(crate) async fn tidy(&self) {
        for node in self.open_nodes() {
            let Some(content) = node.content() else { continue };
            if content.waiting().is_some_and(|since| since.elapsed() >= crate::limits::SEND_AFTER) {
                // One that has to wait does not keep the others.
                content.send_soon();
            }
        }
        self.tidy_dirs().await;
        self.tidy_listings();
        let kept: Vec<_> = self.kept.lock().values().cloned().collect();
        for node in kept {
            let since = node.opens.lock().kept;
            if since.is_none_or(|since| since.elapsed() >= KEPT_FOR) {
                self.let_go(&node).await;
            }
        }
    }

    /// Writes all that was gathered.
    pub(crate) async fn flush_all(&self) {
        let nodes = futures_util::stream::iter(self.nodes.all());
        let flush = async |node: Arc<Node>| {
            if let Err(error) = self.send(&node).await {
                tracing::warn!(?node, ?error, "what was written is lost");
            }
        };
        nodes.for_each_concurrent(AT_ONCE_AT_THE_END, flush).await;
    }

    /// How many bytes of all files are not on the server yet, and never will be.
    pub(crate) fn unsent_and_lost(&self) -> (u64, u64) {
        (self.keeper.unsent(), self.keeper.lost())
    }

    /// Closes all that is open: nobody can use it any more. A server that does not answer
    /// closes it itself.
    pub(crate) async fn settle(&self) {
        self.flush_all().await;
        let close = async {
            let handles: Vec<u64> = self.files.lock().keys().copied().collect();
            let handles = futures_util::stream::iter(handles);
            handles.for_each_concurrent(AT_ONCE_AT_THE_END, |one| self.release(one)).await;
            let nodes = futures_util::stream::iter(self.nodes.all());
            let let_go = async |node: Arc<Node>| self.let_go(&node).await;
            nodes.for_each_concurrent(AT_ONCE_AT_THE_END, let_go).await;
        };
        if tokio::time::timeout(CLOSED_WITHIN, close).await.is_err() {
            tracing::warn!("the server does not answer, and has files open of what is unmounted");
        }
    }

    /// Nobody will use the handle that was made.
    pub(crate) fn not_opened(self: &Arc<Self>, number: u64) {
        let volume = Arc::clone(self);
        tokio::spawn(async move { volume.release(number).await });
    }

    /// The kernel was not told of a node after all.
    pub(crate) fn not_told(self: &Arc<Self>, id: u64) {
        if let Some(node) = self.forget(id, 1) {
            let volume = Arc::clone(self);
            tokio::spawn(async move { volume.let_go(&node).await });
        }
    }

    /// The kernel has forgotten a node so many times. The node, when that was
    /// altogether and it is still open.
    pub(crate) fn forget(&self, id: u64, count: u64) -> Option<Arc<Node>> {
        let is_busy = |node: &Arc<Node>| node.is_open() || node.listed.is_held();
        self.nodes.forget(id, count).filter(is_busy)
    }
}
