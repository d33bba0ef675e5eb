//! Who waits for which answer: Connection.OutstandingRequests.

use std::collections::HashMap;

use frevo_proto::window::Taken;
use parking_lot::Mutex;
use tokio::sync::oneshot;
use tokio::time::Instant;

use super::Message;
use crate::limits::PUT_OFF_FOR;

/// One request under way.
pub(super) struct Waiter {
    pub(super) taken: Taken,
    pub(super) reply: oneshot::Sender<Message>,
    /// Of its interim response; 0 before there was one.
    pub(super) async_id: u64,
    /// How many interim responses came.
    interims: u32,
    /// Who is told when the first comes.
    put_off: Option<oneshot::Sender<()>>,
    /// When it has to be answered at the latest; none for one that waits for
    /// what others do.
    until: Option<Instant>,
}

/// See the module's text. `None` once the connection has ended.
pub(super) struct Waiters(Mutex<Option<HashMap<u64, Waiter>>>);

impl Default for Waiters {
    fn default() -> Self {
        Self(Mutex::new(Some(HashMap::new())))
    }
}

impl Waiters {
    /// Enters a request, one that may wait for what others do if it `waits`; none after
    /// the end.
    pub(super) fn enter(&self, taken: Taken, waits: bool) -> Option<oneshot::Receiver<Message>> {
        let (reply, receiver) = oneshot::channel();
        let id = taken.message_id;
        let until = (!waits).then(|| Instant::now() + PUT_OFF_FOR);
        let waiter = Waiter { taken, reply, async_id: 0, interims: 0, put_off: None, until };
        self.0.lock().as_mut()?.insert(id, waiter);
        Some(receiver)
    }

    /// Takes out the request that an answer is for.
    pub(super) fn take(&self, id: u64) -> Option<Waiter> {
        let mut waiters = self.0.lock();
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

    /// Notes an interim response; returns how many the request has had, 0 when
    /// nobody waits for it.
    pub(super) fn interim(&self, id: u64, async_id: u64, account: impl FnOnce(&mut Taken)) -> u32 {
        let mut waiters = self.0.lock();
        let Some(waiter) = waiters.as_mut().and_then(|all| all.get_mut(&id)) else { return 0 };
        waiter.async_id = async_id;
        waiter.interims = waiter.interims.saturating_add(1);
        if let Some(put_off) = waiter.put_off.take() {
            let _ = put_off.send(());
        }
        account(&mut waiter.taken);
        waiter.interims
    }

    /// Tells when a request is put off that was not yet, or answered.
    pub(super) fn put_off(&self, id: u64) -> Option<oneshot::Receiver<()>> {
        let mut waiters = self.0.lock();
        let waiter = waiters.as_mut()?.get_mut(&id).filter(|waiter| waiter.async_id == 0)?;
        let (tell, told) = oneshot::channel();
        waiter.put_off = Some(tell);
        Some(told)
    }

    /// The AsyncId of a request under way, 0 if it has none.
    pub(super) fn async_id(&self, id: u64) -> Option<u64> {
        self.0.lock().as_ref()?.get(&id).map(|waiter| waiter.async_id)
    }

    /// How many there are.
    pub(super) fn len(&self) -> usize {
        self.0.lock().as_ref().map_or(0, HashMap::len)
    }

    /// Whether an answer is due: one that was not put off by an interim response.
    pub(super) fn due(&self) -> bool {
        self.0.lock().as_ref().is_some_and(|all| all.values().any(|w| w.async_id == 0))
    }

    /// True while the answer to a request is expected soon: one that does not wait for what
    /// others do, and that the server has not put off.
    pub(super) fn expects_soon(&self) -> bool {
        let is_soon = |waiter: &Waiter| waiter.async_id == 0 && waiter.until.is_some();
        self.0.lock().as_ref().is_some_and(|all| all.values().any(is_soon))
    }

    /// Whether the time of a request that was put off is over.
    pub(super) fn overdue(&self, now: Instant) -> bool {
        let is_over = |waiter: &Waiter| waiter.until.is_some_and(|until| now > until);
        self.0.lock().as_ref().is_some_and(|all| all.values().any(is_over))
    }

    /// Tells all that no answer comes.
    pub(super) fn close(&self) {
        let Some(all) = self.0.lock().take() else { return };
        let mut all: Vec<_> = all.into_iter().collect();
        // In the order in which they were sent: what follows shall not depend
        // on how a map lies in memory.
        all.sort_unstable_by_key(|(id, _)| *id);
        drop(all);
    }
}
