//! The trait of an etcd: the client of a real one implements it, and the simulator's model.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use crate::types::{Fault, KeyValue, LeaseId, Range, Revision, Txn, TxnAnswer, WatchAnswer};

/// A moment of CLOCK_BOOTTIME: the time since this machine was started, with the time for which it
/// was suspended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Moment(pub Duration);

/// The answer to a [`Range`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RangeAnswer {
    /// The newest revision of etcd at the answer, also where an older one was asked for. The next
    /// parts of a long answer ask for it; a watch goes on after it.
    pub revision: Revision,
    /// The keys, in their order.
    pub values: Vec<KeyValue>,
    /// True if there are more after the last of them.
    pub more: bool,
}

/// A lease that was granted, or kept alive: it ends at `sent` + `ttl` at the earliest, unless it is
/// revoked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirmed {
    /// The lease.
    pub lease: LeaseId,
    /// The time for which it lives from now on. etcd may have chosen a longer one than was wanted.
    pub ttl: Duration,
    /// A moment before the request left this machine, so that it is not later than the moment from
    /// which etcd counts `ttl`.
    pub sent: Moment,
}

/// A callback for the end of a request.
pub type Done<T> = Box<dyn FnOnce(Result<T, Fault>) + Send>;

/// A callback for what a watch tells.
///
/// [`Fault::Unavailable`] is told when no member answers: changes are missing until the next answer, and
/// the watch goes on by itself with all of them. Any other fault, and [`WatchAnswer::Compacted`], is
/// the last call.
pub type Tell = Box<dyn FnMut(Result<WatchAnswer, Fault>) + Send>;

/// A watch that goes on until this value is dropped. A call of its callback may then still be under
/// way in another thread.
#[must_use = "the watch ends when this value is dropped"]
pub struct Watching {
    end: Option<Box<dyn FnOnce() + Send>>,
}

impl Watching {
    /// Returns a watch that `end` ends.
    pub fn new(end: impl FnOnce() + Send + 'static) -> Self {
        Self { end: Some(Box::new(end)) }
    }
}

impl Drop for Watching {
    fn drop(&mut self) {
        if let Some(end) = self.end.take() {
            end();
        }
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching").finish_non_exhaustive()
    }
}

/// An etcd.
///
/// All calls return at once. The callback of a request is called exactly once: from any thread, or by
/// the call itself, so the caller may hold no lock that the callback takes. Requests may overtake each
/// other; one that is made after the callback of another sees its effect.
///
/// An engine has a limit of time for each request: [`Fault::Unavailable`] comes after it at the latest.
pub trait Engine: Send + Sync + fmt::Debug {
    /// Carries out a transaction. It is never carried out twice. After [`Fault::Unavailable`] it may
    /// have happened, or may still happen: the caller reads the keys, or makes the next transaction
    /// compare them.
    fn txn(&self, txn: Txn, done: Done<TxnAnswer>);

    /// Reads keys, as they are after all changes that were answered before the call.
    /// [`Fault::Compacted`] if the revision that was asked for is no longer kept.
    fn range(&self, range: Range, done: Done<RangeAnswer>);

    /// Makes a lease that lives for `ttl` at least, a whole number of seconds from 1 on. After
    /// [`Fault::Unavailable`] one without keys may be left, which ends by itself.
    fn grant(&self, ttl: Duration, done: Done<Confirmed>);

    /// Ends a lease and deletes its keys. It is no fault if it has ended already.
    fn revoke(&self, lease: LeaseId, done: Done<()>);

    /// Keeps a lease alive once: from now on it lives for its whole time.
    /// [`Fault::LeaseNotFound`] if it has ended.
    fn keep_alive(&self, lease: LeaseId, done: Done<Confirmed>);

    /// Tells the changes of all keys that begin with `prefix`, those of revisions larger than `after`:
    /// each once, in the order of the revisions. `after` is the revision of the answer with which the
    /// keys were read.
    fn watch(&self, prefix: Vec<u8>, after: Revision, tell: Tell) -> Watching;
}
