//! A lease as the client has it: MS-SMB2 3.2.1.5, one for each file that is
//! cached, whatever number of Opens it has.

use std::sync::{Arc, Weak};

use frevo_wire::command::oplock_break::{LeaseBreakNotification, LeaseKey, LeaseState};
use parking_lot::Mutex;

use super::breaks::{LeaseHolder, Yield};
use super::{Inner, Session};
use crate::ambient::random;
use crate::create::Granted;
use crate::error::{Cause, During, Result};
use crate::share::{Bound, Share};

/// What may be kept of a file now, and since when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Grant {
    /// What the server allows. Nothing while the session is lost: then only asking
    /// tells.
    pub state: LeaseState,
    /// Counts the times at which the right to keep what was read was lost: what
    /// was read under another number is not to be used.
    pub version: u64,
}

/// A lease. The Opens that are made with it share it: what one of them does breaks
/// nothing of what the others keep.
pub struct Lease {
    pub(crate) key: LeaseKey,
    session: Weak<Inner>,
    now: Mutex<Now>,
    /// Who is told when it breaks.
    watcher: Mutex<Option<Weak<dyn LeaseHolder>>>,
    /// The key of the directory's lease, which changes by this client leave alone.
    parent: Mutex<Option<LeaseKey>>,
}

#[derive(Debug, Clone, Copy)]
struct Now {
    state: LeaseState,
    /// The number of the state, of version 2; none before the server told one.
    epoch: Option<u16>,
    version: u64,
    /// Where it was granted last; before that, where it was asked for first.
    bound: Option<Bound>,
    /// Where it was asked for last: its breaks are answered there. A server may break it
    /// before the answer to who asked is read, and while the last Open before is closed.
    asked: Option<Bound>,
    /// Opens that are of it: with the last one it goes.
    opens: usize,
}

impl std::fmt::Debug for Lease {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Lease({:?}, {:?})", self.key, self.now.lock().state)
    }
}

impl Share {
    /// A lease for Opens of one file in this share. The server is asked for it with
    /// the first of them.
    ///
    /// # Errors
    /// When the system has no random numbers.
    pub fn lease(&self) -> Result<Arc<Lease>> {
        Lease::new(self).during("open", self.name())
    }

    /// A lease for Opens of the file `path`, which may lie behind links of a DFS
    /// namespace: behind those that were crossed before. An Open behind one that is
    /// new has no lease.
    ///
    /// # Errors
    /// When the system has no random numbers; a target that cannot be reached.
    pub async fn lease_of(&self, path: &str) -> Result<Arc<Lease>> {
        if self.way.is_none() {
            return self.lease();
        }
        let path = crate::path::wire_path(path).during("open", &self.url(path))?;
        self.located(path).await?.share.lease()
    }
}

impl Lease {
    pub(crate) fn new(share: &Share) -> std::result::Result<Arc<Self>, Cause> {
        let inner = &share.inner.session.inner;
        let key = LeaseKey(random(&*share.session().options().ambient)?);
        let lease = Arc::new(Self {
            key,
            session: Arc::downgrade(inner),
            now: Mutex::new(Now {
                state: LeaseState::EMPTY,
                epoch: None,
                version: 0,
                bound: None,
                asked: None,
                opens: 0,
            }),
            watcher: Mutex::new(None),
            parent: Mutex::new(None),
        });
        // Before it is asked for: the break may be faster than the answer.
        inner.leases.enter(&lease);
        Ok(lease)
    }

    /// Whether it is of `session`.
    pub(crate) fn is_of(&self, session: &Session) -> bool {
        std::ptr::eq(self.session.as_ptr(), Arc::as_ptr(&session.inner))
    }

    /// The lease is on something in the directory that `parent` is on.
    pub fn set_parent(&self, parent: Option<&Self>) {
        *self.parent.lock() = parent.map(|parent| parent.key);
    }

    pub(crate) fn parent(&self) -> Option<LeaseKey> {
        *self.parent.lock()
    }

    /// What may be kept, as far as is known in the session that there is now.
    pub fn grant(&self) -> Grant {
        let now = *self.now.lock();
        let session = self.session.upgrade().and_then(|session| session.current());
        let is_current =
            session.is_some_and(|live| now.bound.is_some_and(|b| b.generation == live.generation));
        Grant {
            state: if is_current { now.state } else { LeaseState::EMPTY },
            version: now.version,
        }
    }

    /// What the server said last.
    pub fn state(&self) -> LeaseState {
        self.now.lock().state
    }

    /// `watcher` is told when it breaks, before the server is answered.
    pub fn watch(&self, watcher: Weak<dyn LeaseHolder>) {
        *self.watcher.lock() = Some(watcher);
    }

    /// An Open is of it.
    pub(crate) fn joined(&self) {
        self.now.lock().opens += 1;
    }

    /// An Open of it is about to be closed. With the last one nothing may be kept any more.
    pub(crate) fn left(&self) {
        let mut now = self.now.lock();
        now.opens = now.opens.saturating_sub(1);
        if now.opens > 0 {
            return;
        }
        now.set(LeaseState::EMPTY);
        now.version += 1;
        now.epoch = None;
        now.bound = None;
    }

    /// It is asked for in `bound`.
    pub(crate) fn asked(&self, bound: Bound) {
        let mut now = self.now.lock();
        now.asked = Some(bound);
        if now.bound.is_none() {
            now.bound = Some(bound);
        }
    }

    /// A CREATE that made an Open answered `state`. In another session than before it begins
    /// anew: whether its Opens were lost is not known, and what was kept may not be so any
    /// more.
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
        // What was kept and gathered was so under the old one.
        self.lost(granted.state & LeaseState::HANDLE);
    }

    /// A CREATE that took an Open up again, or one of the same session as others, answered
    /// `state`. An answer that a break has overtaken is not believed (MS-SMB2 3.2.5.7.5: the
    /// epoch tells).
    pub(crate) fn kept(&self, bound: Bound, Granted { state, epoch, breaking }: Granted) {
        let mut now = self.now.lock();
        if now.opens == 0 {
            // Of one that is closed.
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
        // A break that nobody heard, as the session was lost.
        if !same_session && !left.contains(before) {
            self.lost(left);
        }
    }

    /// Some of it is gone without a break to be answered.
    fn lost(&self, left: LeaseState) {
        if let Some(watcher) = self.watcher.lock().as_ref().and_then(Weak::upgrade) {
            // Beside this: it may ask something of the Open that is being taken up.
            drop(tokio::spawn(watcher.broken(left)));
        }
    }

    /// Nobody knows what the server makes of it.
    pub(crate) fn forfeited(&self) {
        self.now.lock().set(LeaseState::EMPTY);
        self.lost(LeaseState::EMPTY);
    }

    /// The server takes some of it. What is to be done first, and where the
    /// server is told then.
    pub(crate) fn broken(&self, told: &LeaseBreakNotification) -> (Option<Yield>, Option<Bound>) {
        let (to, bound) = {
            let mut now = self.now.lock();
            if planted!(StaleCache) {
                return (None, now.asked);
            }
            // Before it was granted in this session: what it was in the one before is over.
            if let Some(asked) = now.asked.filter(|asked| !now.is_in(*asked)) {
                now.set(LeaseState::EMPTY);
                now.version += 1;
                now.bound = Some(asked);
            }
            // A break gives nothing: it bears no signature, and could be anybody's.
            let to = told.new_lease_state & now.state;
            now.set(to);
            // Zero: version 1, or a server that counts nothing.
            if told.new_epoch != 0 {
                now.epoch = Some(told.new_epoch);
            }
            (to, now.asked)
        };
        let watcher = self.watcher.lock().as_ref().and_then(Weak::upgrade);
        (watcher.map(|watcher| watcher.broken(to)), bound)
    }
}

impl Now {
    /// Whether it was granted or asked for in the session of `bound`.
    fn is_in(&self, bound: Bound) -> bool {
        self.bound.is_some_and(|known| known.generation == bound.generation)
    }

    fn set(&mut self, state: LeaseState) {
        if self.state.contains(LeaseState::READ) && !state.contains(LeaseState::READ) {
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

/// Whether `told` is `known` or a number after it; they wrap.
const fn is_after(told: u16, known: u16) -> bool {
    told.wrapping_sub(known) < 0x8000
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_wire::command::oplock_break::LeaseBreakFlags;

    /// A notification bears no signature: whoever is on the way can send one.
    #[test]
    fn a_break_gives_nothing() {
        let state = LeaseState::READ | LeaseState::HANDLE;
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
        drop(lease.broken(&told(state | LeaseState::WRITE)));
        assert_eq!(lease.state(), state);
        drop(lease.broken(&told(LeaseState::READ)));
        drop(lease.broken(&told(state)));
        assert_eq!(lease.state(), LeaseState::READ);
        assert_eq!(lease.grant().version, 0, "what was read is so still");
        lease.forfeited();
        assert_eq!((lease.state(), lease.grant().version), (LeaseState::EMPTY, 1));
    }

    #[test]
    fn epochs_wrap() {
        assert!(is_after(5, 5) && is_after(6, 5) && is_after(0, 0xffff) && is_after(2, 0xfffe));
        assert!(!is_after(4, 5) && !is_after(0xffff, 0) && !is_after(0x9000, 0x1000));
    }
}
