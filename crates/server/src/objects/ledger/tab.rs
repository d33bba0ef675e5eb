//! Buffers of connections, charged by their sum.

use std::cell::{Cell, RefCell};
use std::sync::Arc;

use super::backlog::Backlog;
use super::window::Window;
use super::{Holder, Kind, Member, Room};
use crate::base::limits::TAB_STEP_BYTES;
use crate::objects::notice::ConnectionHandle;

/// A connection's buffers. They are added up on the connection's core; the holder is
/// charged in steps of [`TAB_STEP_BYTES`].
#[derive(Debug)]
pub(crate) struct Tabs {
    id: u64,
    /// The connection's door; a stand-in, which has no buffers, has none.
    handle: Option<ConnectionHandle>,
    holder: RefCell<Arc<Holder>>,
    /// Frames with requests that are not answered.
    frames: Tab,
    /// Replies that the client has not taken.
    replies: Tab,
    backlog: Arc<Backlog>,
}

impl Tabs {
    /// The tabs of the connection `id`, whose sums are in `backlog`. It loses by way of `handle` when its
    /// holder is the biggest and there is no room.
    pub(crate) fn new(
        id: u64,
        handle: Option<ConnectionHandle>,
        holder: Arc<Holder>,
        backlog: Arc<Backlog>,
    ) -> Self {
        if let Some(handle) = handle.clone() {
            holder.members.lock().push(Member { id, handle, backlog: Arc::clone(&backlog) });
        }
        let [frames, replies] =
            [Kind::Frame, Kind::Reply].map(|kind| Tab::new(Arc::clone(&holder), kind));
        Self { id, handle, holder: RefCell::new(holder), frames, replies, backlog }
    }

    /// The holder that is charged.
    pub(crate) fn holder(&self) -> Arc<Holder> {
        Arc::clone(&self.holder.borrow())
    }

    /// True while the holder has to wait for room when there is none.
    pub(crate) fn is_large(&self) -> bool {
        self.holder.borrow().is_large()
    }

    /// See [`Holder::room`].
    pub(crate) fn room(&self, is_idle: bool) -> Room {
        self.holder.borrow().room(is_idle)
    }

    /// Charges another holder from now on: an account has logged on.
    pub(crate) fn move_to(&self, holder: &Arc<Holder>) {
        let old = self.holder.replace(Arc::clone(holder));
        if Arc::ptr_eq(&old, holder) {
            return;
        }
        old.members.lock().retain(|member| member.id != self.id);
        if let Some(handle) = self.handle.clone() {
            let backlog = Arc::clone(&self.backlog);
            holder.members.lock().push(Member { id: self.id, handle, backlog });
        }
        self.frames.move_to(holder);
        self.replies.move_to(holder);
        let window = self.backlog.window().and_then(|window| window.into_any().downcast().ok());
        window.iter().for_each(|window: &Arc<Window>| window.move_to(holder));
    }

    /// Sets the bytes that the connection has now.
    pub(crate) fn set(&self, frames: usize, replies: usize) {
        let is_settled = self.frames.set(frames) | self.replies.set(replies);
        if is_settled {
            self.backlog.set(frames, replies);
        }
    }
}

impl Drop for Tabs {
    /// The connection has ended with its replies: those that are still being built do not wait for its client.
    fn drop(&mut self) {
        self.backlog.set(0, 0);
        if self.handle.is_some() {
            self.holder.borrow().members.lock().retain(|member| member.id != self.id);
        }
    }
}

/// Bytes of one kind on one connection.
#[derive(Debug)]
pub(crate) struct Tab {
    holder: RefCell<Arc<Holder>>,
    kind: Kind,
    bytes: Cell<usize>,
    charged: Cell<usize>,
}

impl Tab {
    /// An empty tab of a passing kind.
    pub(crate) const fn new(holder: Arc<Holder>, kind: Kind) -> Self {
        let holder = RefCell::new(holder);
        Self { holder, kind, bytes: Cell::new(0), charged: Cell::new(0) }
    }

    /// Sets the bytes that the connection has now. True when the holder was charged
    /// anew.
    pub(crate) fn set(&self, bytes: usize) -> bool {
        self.bytes.set(bytes);
        let charged = self.charged.get();
        let is_due = bytes.abs_diff(charged) >= TAB_STEP_BYTES || (bytes == 0 && charged != 0);
        if is_due {
            self.settle(bytes);
        }
        is_due
    }

    fn move_to(&self, holder: &Arc<Holder>) {
        let charged = self.charged.get();
        self.settle(0);
        self.holder.replace(Arc::clone(holder));
        self.settle(charged);
    }

    /// The bytes that the connection has now.
    #[cfg(test)]
    pub(super) fn bytes(&self) -> usize {
        self.bytes.get()
    }

    fn settle(&self, bytes: usize) {
        let charged = self.charged.replace(bytes);
        let holder = self.holder.borrow();
        if bytes >= charged {
            holder.add(self.kind, bytes - charged);
        } else {
            holder.subtract(self.kind, charged - bytes);
        }
    }
}

impl Drop for Tab {
    fn drop(&mut self) {
        self.settle(0);
    }
}
