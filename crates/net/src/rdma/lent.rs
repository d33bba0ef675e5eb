//! The memory that one connection lends to its peer, the windows for it, and registrations that are
//! kept for the next request.
//!
//! A registration for windows opens its memory to no peer: a window does, for one request. So it may
//! be kept while its block of memory is elsewhere, and needs no second registration when a buffer
//! with this block is lent again.

use std::collections::VecDeque;
use std::sync::Arc;

use slab::Slab;

use super::counters::{INVALIDATIONS, count};
use super::quota::{self, Holder};
use super::region::{Region, Registration};
use super::values::RemoteBuffer;
use super::window::Window;
use crate::buffer::{Buf, Memory};
use crate::limits::{RDMA_KEPT_BYTES_MAX, RDMA_KEPT_MAX, RDMA_WINDOWS_MAX};

/// The number of a lent buffer in its link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct LentKey(pub(super) usize);

/// A buffer that was lent: its number, its place as the peer is told of it, and true if the peer can
/// invalidate its key.
pub(super) type NewlyLent = (LentKey, RemoteBuffer, bool);

/// One buffer that is lent.
struct Lent {
    /// The window through which the peer uses it; none if its region is open to the peer.
    window: Option<Window>,
    region: Region,
    state: State,
}

/// The state of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The device has not told yet that it is bound.
    Binding,
    /// Nobody wants it, and the device has not told yet that it is bound.
    Unwanted,
    /// The peer can use it.
    Bound,
    /// The peer has invalidated its key.
    Invalidated,
}

/// The end of a loan.
pub(super) enum Back {
    /// The buffer, which the peer cannot use any more.
    Buf(Buf),
    /// The device still binds its window: the caller asks again when it has told so.
    NotYet,
    /// There is none.
    Gone,
}

/// See the module's text.
#[derive(Default)]
pub(super) struct LentMemory {
    all: Slab<Lent>,
    /// Windows without a key that counts.
    free: Vec<Window>,
    /// Windows, in use and free.
    windows: usize,
    /// The device has no further window.
    has_no_more: bool,
    /// Registrations whose buffers are elsewhere, the last used at the end.
    kept: VecDeque<(Memory, Registration)>,
    /// Regions without windows, at the end of the connection.
    closed: Vec<Region>,
}

impl LentMemory {
    /// Number of lent buffers.
    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Bytes that are registered.
    pub(super) fn bytes(&self) -> usize {
        let lent: usize = self.all.iter().map(|(_, lent)| lent.region.registered()).sum();
        lent.saturating_add(self.kept_bytes())
    }

    fn kept_bytes(&self) -> usize {
        self.kept.iter().map(|(_, registration)| registration.len()).sum()
    }

    /// Counts the bytes for another holder from now on.
    pub(super) fn move_to(&mut self, holder: &Arc<Holder>) {
        self.all.iter_mut().for_each(|(_, lent)| lent.region.move_to(holder));
        self.kept.iter_mut().for_each(|(_, registration)| registration.move_to(holder));
    }

    /// Takes a free window, or a new one that `make` makes. None if there is none.
    pub(super) fn window(&mut self, make: impl FnOnce() -> Option<Window>) -> Option<Window> {
        if let Some(window) = self.free.pop() {
            return Some(window);
        }
        if self.has_no_more || self.windows == RDMA_WINDOWS_MAX {
            return None;
        }
        let window = make();
        self.has_no_more = window.is_none();
        self.windows += usize::from(window.is_some());
        window
    }

    /// Gives back a window whose key does not count.
    pub(super) fn is_free(&mut self, window: Window) {
        self.free.push(window);
    }

    /// Takes the registration of this block, if it was kept.
    pub(super) fn kept(&mut self, memory: Memory) -> Option<Registration> {
        let at = self.kept.iter().rposition(|(of, _)| *of == memory)?;
        self.kept.remove(at).map(|(_, registration)| registration)
    }

    /// Ends the registration that was not used for the longest time. False if none is kept.
    pub(super) fn forget_one(&mut self) -> bool {
        self.kept.pop_front().is_some()
    }

    /// Ends all registrations that are kept.
    pub(super) fn forget_all(&mut self) {
        self.kept.clear();
    }

    fn keep(&mut self, memory: Memory, registration: Registration) {
        if registration.len() > RDMA_KEPT_BYTES_MAX || !quota::of_process().is_ample() {
            return;
        }
        let most = RDMA_KEPT_BYTES_MAX - registration.len();
        while self.kept.len() >= RDMA_KEPT_MAX || self.kept_bytes() > most {
            self.forget_one();
        }
        self.kept.push_back((memory, registration));
    }

    /// Notes a buffer that is lent; `window`, if there is one, is being bound to it.
    pub(super) fn insert(&mut self, region: Region, window: Option<Window>) -> LentKey {
        LentKey(self.all.insert(Lent { window, region, state: State::Binding }))
    }

    fn of_key(&mut self, key: u32) -> Option<(usize, &mut Lent)> {
        let has_key = |lent: &Lent| lent.window.as_ref().is_some_and(|window| window.key() == key);
        self.all.iter_mut().find(|(_, lent)| has_key(lent))
    }

    /// Notes that the device has bound a window. One that nobody wants is freed.
    pub(super) fn is_bound(&mut self, key: u32) {
        let Some((number, lent)) = self.of_key(key) else { return };
        match lent.state {
            State::Binding => lent.state = State::Bound,
            State::Unwanted => {
                lent.state = State::Bound;
                drop(self.take_back(LentKey(number)));
            }
            State::Bound | State::Invalidated => {}
        }
    }

    /// Notes that the peer has invalidated a key. False if that was not lent, or was invalidated
    /// before.
    pub(super) fn is_invalidated(&mut self, key: u32) -> bool {
        let Some((_, lent)) = self.of_key(key) else { return false };
        let is_lent = matches!(lent.state, State::Binding | State::Bound);
        if is_lent {
            lent.state = State::Invalidated;
            count(&INVALIDATIONS);
        }
        is_lent
    }

    /// Ends the peer's use of a buffer as soon as that is possible: nobody wants it any more.
    pub(super) fn abandon(&mut self, key: LentKey) {
        if let Back::NotYet = self.take_back(key)
            && let Some(lent) = self.all.get_mut(key.0)
        {
            lent.state = State::Unwanted;
        }
    }

    /// Ends the peer's use of a buffer, and returns it: afterwards the peer's key counts no more.
    pub(super) fn take_back(&mut self, key: LentKey) -> Back {
        let Some(lent) = self.all.get(key.0) else { return Back::Gone };
        if lent.window.is_some() && matches!(lent.state, State::Binding | State::Unwanted) {
            return Back::NotYet;
        }
        let Some(lent) = self.all.try_remove(key.0) else { return Back::Gone };
        let Some(window) = lent.window else { return Back::Buf(lent.region.into_buf()) };
        if lent.state == State::Invalidated {
            self.free.push(window);
        } else {
            // A bound window may be freed at once (ibv_alloc_mw(3)). If its key were invalidated by
            // a request instead, the end of that request would have to be awaited.
            self.windows = self.windows.saturating_sub(1);
            if !window.end() {
                // The device has failed to free the window. The peer may still use the buffer, so
                // its memory is leaked.
                std::mem::forget(lent.region);
                return Back::Gone;
            }
        }
        let (registration, buf) = lent.region.apart();
        self.keep(buf.memory(), registration);
        Back::Buf(buf)
    }

    /// Frees all windows. Their queue pair has no use any more, and still lives: rxe waits for the
    /// end of its windows when it destroys it.
    pub(super) fn free_windows(&mut self) {
        self.free.clear();
        for lent in self.all.drain() {
            if lent.window.is_none_or(Window::end) {
                self.closed.push(lent.region);
            } else {
                // The device has failed to free the window. The peer may still use the buffer, so
                // its memory is leaked.
                std::mem::forget(lent.region);
            }
        }
    }

    /// Ends all regions, when no queue pair is left.
    pub(super) fn clear(&mut self) {
        self.closed.clear();
        self.kept.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::region::Access;

    const LEN: usize = 4096;

    /// Lends a new buffer through the next window, which then has this key.
    fn lend(memory: &mut LentMemory, key: u32) -> LentKey {
        let mut window = memory.window(|| Some(Window::fake(key - 1))).unwrap();
        assert_eq!(window.take_key(), key);
        let buf = Buf::with_capacity(LEN);
        let bytes = buf.capacity();
        let registration =
            memory.kept(buf.memory()).unwrap_or_else(|| Registration::fake(bytes, counted(bytes)));
        let region = Region::within(registration, buf, Access::PeerWrites(LEN)).unwrap();
        memory.insert(region, Some(window))
    }

    fn counted(bytes: usize) -> quota::Counted {
        quota::of_process().take(&Arc::default(), bytes).unwrap()
    }

    fn is_back(back: Back) -> bool {
        matches!(back, Back::Buf(buf) if buf.len() == LEN)
    }

    #[test]
    fn a_key_can_be_invalidated_once() {
        let memory = &mut LentMemory::default();
        let first = lend(memory, 0x101);
        let second = lend(memory, 0x201);
        memory.is_bound(0x101);
        assert!(!memory.is_invalidated(0x301) && !memory.is_invalidated(0x102));
        assert!(memory.is_invalidated(0x101));
        assert!(!memory.is_invalidated(0x101), "twice");
        assert!(is_back(memory.take_back(first)));
        assert!(!memory.is_invalidated(0x101), "after it was taken back");
        // The peer may invalidate the key 0x201 before the device reports the window as bound. The
        // buffer is still returned.
        assert!(memory.is_invalidated(0x201));
        assert!(is_back(memory.take_back(second)));
        memory.is_bound(0x201);
        assert!(matches!(memory.take_back(second), Back::Gone));
        assert_eq!((memory.len(), memory.free.len(), memory.windows), (0, 2, 2));
        // The freed window is lent again with another key, so its old key is not valid any more.
        let third = lend(memory, 0x202);
        assert!(!memory.is_invalidated(0x201) && memory.is_invalidated(0x202));
        assert!(is_back(memory.take_back(third)));
        memory.free_windows();
        memory.clear();
    }

    #[test]
    fn a_window_that_is_not_invalidated_is_freed() {
        let memory = &mut LentMemory::default();
        let key = lend(memory, 0x101);
        // Before the device has reported the bind, the buffer cannot be taken back, because that
        // would break the connection.
        assert!(matches!(memory.take_back(key), Back::NotYet));
        memory.is_bound(0x101);
        assert!(is_back(memory.take_back(key)));
        assert_eq!((memory.free.len(), memory.windows), (0, 0));
        let abandoned = lend(memory, 0x201);
        memory.abandon(abandoned);
        assert!(!memory.is_invalidated(0x201), "it was never asked for");
        assert_eq!((memory.len(), memory.windows), (1, 1));
        memory.is_bound(0x201);
        assert_eq!((memory.len(), memory.windows), (0, 0));
        memory.free_windows();
        memory.clear();
    }

    #[test]
    fn few_registrations_are_kept_and_the_last_ones() {
        let memory = &mut LentMemory::default();
        let many = u32::try_from(RDMA_WINDOWS_MAX).unwrap();
        let keys: Vec<_> = (1..=many).map(|n| (n << 8 | 1, lend(memory, n << 8 | 1))).collect();
        assert!(memory.window(|| Some(Window::fake(0))).is_none(), "more than there may be");
        let mut buffers = Vec::new();
        for (key, lent) in keys {
            assert!(memory.is_invalidated(key));
            if let Back::Buf(buf) = memory.take_back(lent) {
                buffers.push(buf);
            }
        }
        assert_eq!(memory.kept.len(), RDMA_KEPT_MAX);
        let block = buffers[0].memory();
        assert!(memory.kept(block).is_some() && memory.kept(block).is_none());
        assert!(memory.forget_one());
        assert!(memory.kept(buffers[1].memory()).is_none(), "the oldest goes first");
        assert!(memory.kept(buffers[2].memory()).is_some());
        memory.free_windows();
        memory.clear();
        assert_eq!(memory.bytes(), 0);
    }

    /// A block at the same place is another one if the first was freed meanwhile.
    #[test]
    fn a_registration_is_of_one_block() {
        let memory = &mut LentMemory::default();
        let large = 9 << 20;
        let take = |memory: &mut LentMemory| {
            // The buffer is too large for the pool, so its memory is freed at the end of this
            // closure.
            let buf = Buf::with_capacity(large);
            let place = buf.memory();
            let bytes = buf.capacity();
            memory.keep(place, Registration::fake(bytes, counted(bytes)));
            place
        };
        let first = take(memory);
        let again = Buf::with_capacity(large).memory();
        assert_ne!(first, again, "they are taken for one");
        assert!(memory.kept(again).is_none() && memory.kept(first).is_some());
    }
}
