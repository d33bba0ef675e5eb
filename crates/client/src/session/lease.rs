//! Leases: MS-SMB2 3.2.1.5. One for each cached file, for any number of Opens.

use std::sync::{Arc, Weak};

use frevo_wire::command::oplock_break::{
    LeaseBreakNotification, LeaseKey, LeaseState as WireState,
};
use frevo_wire::create_context::{Lease as WireLease, LeaseFlags};
use parking_lot::Mutex;

use super::bound::Bound;
use super::breaks::{LeaseHolder, Yield};
use super::{Inner, Session};
use crate::ambient::random;
use crate::error::Cause;
use crate::types::LeaseState;

/// The data of a file that may be cached now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// The caching that the server allows; nothing while the session is lost.
    pub state: LeaseState,
    /// Counts how often the right to cache reads was lost. Data that was read under another
    /// number must not be used.
    pub version: u64,
}

/// A lease as an answer to CREATE grants it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Granted {
    pub(crate) state: WireState,
    pub(crate) epoch: Option<u16>,
    pub(crate) breaking: bool,
}

impl Granted {
    /// The answer of a server that granted no lease.
    pub(crate) const NOTHING: Self = Self { state: WireState::EMPTY, epoch: None, breaking: false };

    pub(crate) const fn of(lease: &WireLease, epoch: Option<u16>) -> Self {
        let breaking = lease.flags.contains(LeaseFlags::BREAK_IN_PROGRESS);
        Self { state: lease.lease_state, epoch, breaking }
    }
}

/// A lease, shared by several Opens of one file: requests through one of them do not break the
/// cache of the others.
pub struct Lease {
    pub(crate) key: LeaseKey,
    session: Weak<Inner>,
    now: Mutex<Now>,
    /// The cache that is told of breaks.
    watcher: Mutex<Option<Weak<dyn LeaseHolder>>>,
    /// The key of the directory's lease, which this client's changes do not break.
    parent: Mutex<Option<LeaseKey>>,
}

#[derive(Debug, Clone, Copy)]
struct Now {
    state: WireState,
    /// The epoch of the state; `None` for version 1 and before the first answer.
    epoch: Option<u16>,
    version: u64,
    /// The tree connect in which it was granted last, or asked for first.
    bound: Option<Bound>,
    /// The tree connect in which it was asked for last: breaks are acknowledged there. A break
    /// may come before the answer to the CREATE, and while the last Open is being closed.
    asked: Option<Bound>,
    /// Count of its Opens. The lease ends with the last one.
    opens: usize,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({:?}, {:?})", self.key, self.now.lock().state)
    }
}

impl Lease {
    pub(crate) fn new(inner: &Arc<Inner>) -> Result<Arc<Self>, Cause> {
        let key = LeaseKey(random(&*inner.client.options().ambient)?);
        let lease = Arc::new(Self {
            key,
            session: Arc::downgrade(inner),
            now: Mutex::new(Now {
                state: WireState::EMPTY,
                epoch: None,
                version: 0,
                bound: None,
                asked: None,
                opens: 0,
            }),
            watcher: Mutex::new(None),
            parent: Mutex::new(None),
        });
        // The lease is registered before the CREATE is sent, because a break may arrive before the
        // answer.
        inner.leases.enter(&lease);
        Ok(lease)
    }

    /// Returns true if it belongs to `session`, or to the one that the session's share has left.
    pub(crate) fn is_of(&self, session: &Session) -> bool {
        let own = self.session.upgrade();
        own.is_some_and(|own| Arc::ptr_eq(&own.leases, &session.inner.leases))
    }

    /// Sets the lease of the directory that the file is in.
    pub fn set_parent(&self, parent: Option<&Self>) {
        *self.parent.lock() = parent.map(|parent| parent.key);
    }

    pub(crate) fn parent(&self) -> Option<LeaseKey> {
        *self.parent.lock()
    }

    /// Returns the caching that is allowed in the present session.
    pub fn grant(&self) -> Grant {
        let now = *self.now.lock();
        let session = self.session.upgrade().zip(now.bound);
        let live = session.and_then(|(session, bound)| session.current_of(bound.generation));
        let is_current = live.is_some();
        Grant {
            state: if is_current { now.state } else { WireState::EMPTY }.into(),
            version: now.version,
        }
    }

    /// Returns the state that the server sent last.
    pub fn state(&self) -> LeaseState {
        self.wire_state().into()
    }

    pub(crate) fn wire_state(&self) -> WireState {
        self.now.lock().state
    }

    /// Tells `watcher` of breaks, before they are acknowledged.
    pub fn watch(&self, watcher: Weak<dyn LeaseHolder>) {
        *self.watcher.lock() = Some(watcher);
    }

    /// Counts a further Open.
    pub(crate) fn joined(&self) {
        self.now.lock().opens += 1;
    }

    /// Counts an Open less, which is about to be closed. After the last one nothing may be cached.
    pub(crate) fn left(&self) {
        let mut now = self.now.lock();
        now.opens = now.opens.saturating_sub(1);
        if now.opens > 0 {
            return;
        }
        now.set(WireState::EMPTY);
        now.version += 1;
        now.epoch = None;
        now.bound = None;
    }

    /// Notes that a CREATE in `bound` asks for it.
    pub(crate) fn asked(&self, bound: Bound) {
        let mut now = self.now.lock();
        now.asked = Some(bound);
        if now.bound.is_none() {
            now.bound = Some(bound);
        }
    }

    /// Records the lease that a CREATE of a new Open returned. In another session than before
    /// the lease is a new one: cached data may be outdated.
    pub(crate) fn granted(&self, bound: Bound, granted: Granted) {
        let mut now = self.now.lock();
        if now.is_in(bound) || now.opens == 0 {
            drop(now);
            return self.kept(bound, granted);
        }
        now.version += 1;
        now.state = granted.state;
        now.epoch = granted.epoch;
        now.bound = Some(bound);
        drop(now);
        // The old lease is over, so what was cached under its HANDLE right is given up.
        self.lost(granted.state & WireState::HANDLE);
    }

    /// Records the lease that a reconnecting CREATE returned, or one in the same session. An
    /// answer that a break has overtaken is ignored: its epoch is older (MS-SMB2 3.2.5.7.5).
    pub(crate) fn kept(&self, bound: Bound, Granted { state, epoch, breaking }: Granted) {
        let mut now = self.now.lock();
        if now.opens == 0 {
            // The last Open was closed meanwhile, so this lease is not used any more.
            return;
        }
        let before = now.state;
        let same_session = now.is_in(bound);
        now.bound = Some(bound);
        let is_newer = match (now.epoch, epoch) {
            (Some(known), Some(told)) if same_session => is_after(told, known) && !breaking,
            _ => true,
        };
        if is_newer {
            now.set(state);
            now.epoch = epoch;
        }
        let left = now.state;
        drop(now);
        // The client had no session and could not receive a break, so the watcher is notified of
        // the lost rights now.
        if !same_session && !left.contains(before) {
            self.lost(left);
        }
    }

    /// Tells the cache of a loss that needs no acknowledgment.
    fn lost(&self, left: WireState) {
        if let Some(watcher) = self.watcher.lock().as_ref().and_then(Weak::upgrade) {
            // The watcher is notified in a task of its own. It may wait for the Open, and the Open
            // is reconnected only after this function has returned: to wait here is a deadlock.
            drop(tokio::spawn(watcher.broken(left.into())));
        }
    }

    /// Gives the whole lease up: the server did not accept an acknowledgment.
    pub(crate) fn forfeited(&self) {
        self.now.lock().set(WireState::EMPTY);
        self.lost(WireState::EMPTY);
    }

    /// Applies a break. Returns the work of the cache, and the tree connect for the
    /// acknowledgment.
    pub(crate) fn broken(&self, told: &LeaseBreakNotification) -> (Option<Yield>, Option<Bound>) {
        let (to, bound) = {
            let mut now = self.now.lock();
            if planted!(StaleCache) {
                return (None, now.asked);
            }
            // The lease is not granted in the present session yet, so the state that it had in the
            // earlier session is dropped.
            if let Some(asked) = now.asked.filter(|asked| !now.is_in(*asked)) {
                now.set(WireState::EMPTY);
                now.version += 1;
                now.bound = Some(asked);
            }
            // A break may only reduce the state, because its message is unsigned and may be forged.
            let to = told.new_lease_state & now.state;
            now.set(to);
            // An epoch of zero means a lease of version 1, or a server without epochs. Then the
            // known epoch is kept.
            if told.new_epoch != 0 {
                now.epoch = Some(told.new_epoch);
            }
            (to, now.asked)
        };
        let watcher = self.watcher.lock().as_ref().and_then(Weak::upgrade);
        (watcher.map(|watcher| watcher.broken(to.into())), bound)
    }
}

impl Now {
    /// Returns true if it was granted or asked for in the session of `bound`.
    fn is_in(&self, bound: Bound) -> bool {
        self.bound.is_some_and(|known| known.generation == bound.generation)
    }

    fn set(&mut self, state: WireState) {
        if self.state.contains(WireState::READ) && !state.contains(WireState::READ) {
            self.version += 1;
        }
        self.state = state;
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        if let Some(session) = self.session.upgrade() {
            session.leases.leave(self.key);
        }
    }
}

/// Returns true if `told` is `known` or a later number; epochs wrap.
const fn is_after(told: u16, known: u16) -> bool {
    told.wrapping_sub(known) < 0x8000
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_wire::command::oplock_break::LeaseBreakFlags;

    /// A notification has no signature: anyone on the network can send one.
    #[test]
    fn a_break_gives_nothing() {
        let state = WireState::READ | WireState::HANDLE;
        let lease = Lease {
            key: LeaseKey([1; 16]),
            session: Weak::new(),
            now: Mutex::new(Now {
                state,
                epoch: Some(3),
                version: 0,
                bound: None,
                asked: None,
                opens: 1,
            }),
            watcher: Mutex::new(None),
            parent: Mutex::new(None),
        };
        let told = |new_lease_state| LeaseBreakNotification {
            new_epoch: 4,
            flags: LeaseBreakFlags::EMPTY,
            lease_key: lease.key,
            current_lease_state: state,
            new_lease_state,
        };
        drop(lease.broken(&told(state | WireState::WRITE)));
        assert_eq!(lease.wire_state(), state);
        drop(lease.broken(&told(WireState::READ)));
        drop(lease.broken(&told(state)));
        assert_eq!(lease.wire_state(), WireState::READ);
        assert_eq!(lease.grant().version, 0, "what was read is so still");
        lease.forfeited();
        assert_eq!((lease.wire_state(), lease.grant().version), (WireState::EMPTY, 1));
    }

    #[test]
    fn epochs_wrap() {
        assert!(is_after(5, 5) && is_after(6, 5) && is_after(0, 0xffff) && is_after(2, 0xfffe));
        assert!(!is_after(4, 5) && !is_after(0xffff, 0) && !is_after(0x9000, 0x1000));
    }
}
