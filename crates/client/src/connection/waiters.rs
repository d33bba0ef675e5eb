//! Requests under way and their callers: Connection.OutstandingRequests.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};

use frevo_proto::window::Taken;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Message;
use super::loan::Loan;
use crate::limits::PUT_OFF_FOR;

/// One request under way.
pub(super) struct Waiter {
    pub(super) taken: Taken,
    pub(super) reply: oneshot::Sender<Message>,
    /// The memory that is lent to the server until the answer, also when the caller gives up.
    pub(super) loan: Option<Loan>,
    /// AsyncId of its interim response; 0 before that came.
    pub(super) async_id: u64,
    /// Count of interim responses.
    interims: u32,
    /// Told of the first interim response.
    put_off: Option<oneshot::Sender<()>>,
    /// Deadline of the answer; `None` if it waits for other clients.
    until: Option<Instant>,
}

/// The requests under way.
pub(super) struct Waiters {
    /// By MessageId; `None` after the connection has ended.
    all: Mutex<Option<HashMap<u64, Waiter>>>,
    /// Credits that they cost together, at least one each.
    credits: AtomicUsize,
}

impl Default for Waiters {
    fn default() -> Self {
        Self { all: Mutex::new(Some(HashMap::new())), credits: AtomicUsize::new(0) }
    }
}

/// Returns the credits that a request counts for.
fn credits(taken: &Taken) -> usize {
    usize::from(taken.charge).max(1)
}

impl Waiters {
    /// Registers a request, without a deadline if it `waits`. `None` after the connection has
    /// ended.
    pub(super) fn enter(
        &self,
        taken: Taken,
        waits: bool,
        loan: Option<Loan>,
    ) -> Option<oneshot::Receiver<Message>> {
        let (reply, receiver) = oneshot::channel();
        let id = taken.message_id;
        let until = (!waits).then(|| Instant::now() + PUT_OFF_FOR);
        let cost = credits(&taken);
        let waiter = Waiter { taken, reply, loan, async_id: 0, interims: 0, put_off: None, until };
        let mut all = self.all.lock();
        all.as_mut()?.insert(id, waiter);
        self.credits.fetch_add(cost, Ordering::Relaxed);
        Some(receiver)
    }

    /// Returns true if the memory with this key was lent for a request.
    pub(super) fn has_lent(&self, id: u64, key: u32) -> bool {
        let waiters = self.all.lock();
        let loan = waiters.as_ref().and_then(|all| all.get(&id)?.loan.as_ref());
        loan.is_some_and(|loan| loan.is_of(key))
    }

    /// Removes the request that an answer belongs to.
    pub(super) fn take(&self, id: u64) -> Option<Waiter> {
        let waiter = self.remove(id)?;
        self.credits.fetch_sub(credits(&waiter.taken), Ordering::Relaxed);
        Some(waiter)
    }

    fn remove(&self, id: u64) -> Option<Waiter> {
        let mut waiters = self.all.lock();
        let waiters = waiters.as_mut()?;
        if planted!(WrongWaiter)
            && id.is_multiple_of(16)
            && let Some(other) = waiters.keys().copied().filter(|other| *other != id).min()
        {
            let taken = waiters.remove(&other);
            if let Some(left) = waiters.remove(&id) {
                waiters.insert(other, left);
            }
            return taken;
        }
        waiters.remove(&id)
    }

    /// Notes an interim response. Returns the count that the request has had; 0 if it is not
    /// under way.
    pub(super) fn interim(&self, id: u64, async_id: u64, account: impl FnOnce(&mut Taken)) -> u32 {
        let mut waiters = self.all.lock();
        let Some(waiter) = waiters.as_mut().and_then(|all| all.get_mut(&id)) else { return 0 };
        waiter.async_id = async_id;
        waiter.interims = waiter.interims.saturating_add(1);
        if let Some(put_off) = waiter.put_off.take() {
            let _ = put_off.send(());
        }
        account(&mut waiter.taken);
        waiter.interims
    }

    /// Returns a receiver that is told of the first interim response or the answer.
    pub(super) fn put_off(&self, id: u64) -> Option<oneshot::Receiver<()>> {
        let mut waiters = self.all.lock();
        let waiter = waiters.as_mut()?.get_mut(&id).filter(|waiter| waiter.async_id == 0)?;
        let (tell, told) = oneshot::channel();
        waiter.put_off = Some(tell);
        Some(told)
    }

    /// Returns the AsyncId of a request under way; 0 if it has none.
    pub(super) fn async_id(&self, id: u64) -> Option<u64> {
        self.all.lock().as_ref()?.get(&id).map(|waiter| waiter.async_id)
    }

    /// Returns the count of requests under way.
    pub(super) fn len(&self) -> usize {
        self.all.lock().as_ref().map_or(0, HashMap::len)
    }

    /// Returns the credits that the requests under way cost: a measure of their bytes.
    pub(super) fn credits(&self) -> usize {
        self.credits.load(Ordering::Relaxed)
    }

    /// Returns true if a request without an interim response is under way; for a vigilant client also one
    /// with such a response that waits for no other client.
    pub(super) fn due(&self, is_vigilant: bool) -> bool {
        let is_due = |one: &Waiter| one.async_id == 0 || is_vigilant && one.until.is_some();
        self.all.lock().as_ref().is_some_and(|all| all.values().any(is_due))
    }

    /// Returns true while a request is under way that waits for no other client and has no interim
    /// response: its answer comes soon.
    pub(super) fn expects_soon(&self) -> bool {
        let is_soon = |waiter: &Waiter| waiter.async_id == 0 && waiter.until.is_some();
        self.all.lock().as_ref().is_some_and(|all| all.values().any(is_soon))
    }

    /// Returns true if a request is past its deadline.
    pub(super) fn overdue(&self, now: Instant) -> bool {
        let is_over = |waiter: &Waiter| waiter.until.is_some_and(|until| now > until);
        self.all.lock().as_ref().is_some_and(|all| all.values().any(is_over))
    }

    /// Fails all requests that wait for an answer.
    pub(super) fn close(&self) {
        let Some(all) = self.all.lock().take() else { return };
        let mut all: Vec<_> = all.into_iter().collect();
        // The waiters are dropped in the order of sending, because the simulator needs the same
        // order in every run.
        all.sort_unstable_by_key(|(id, _)| *id);
        drop(all);
    }
}
