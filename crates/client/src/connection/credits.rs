//! Credits, taken in turn: MS-SMB2 3.2.4.1.2 to 3.2.4.1.5.

use frevo_proto::window::{CreditPool, Taken};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The sequence window of one connection.
pub(super) struct Credits {
    held: Mutex<HeldCredits>,
    /// Held by the first of the waiting requests: small requests do not starve a large one.
    turn: tokio::sync::Mutex<()>,
    changed: Notify,
}

struct HeldCredits {
    pool: CreditPool,
    /// Credits of requests without an answer.
    out: u64,
    closed: bool,
}

impl HeldCredits {
    fn take(&mut self, charge: u16) -> Option<Taken> {
        let taken = self.pool.take(charge)?;
        self.out += u64::from(taken.charge);
        Some(taken)
    }

    fn take_all(&mut self, charges: &[u16]) -> Option<Vec<Taken>> {
        let needed: u64 = charges.iter().map(|charge| u64::from(*charge).max(1)).sum();
        if needed > self.pool.available() {
            return None;
        }
        charges.iter().map(|charge| self.take(*charge)).collect()
    }
}

/// The reason for which a request gets no credits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoCredits {
    /// The connection has ended.
    Closed,
    /// The server grants fewer than the request costs, and no request is under way whose
    /// answer could bring more.
    TooFew,
}

impl Credits {
    pub(super) fn new(target: u16) -> Self {
        let held = HeldCredits { pool: CreditPool::new(target), out: 0, closed: false };
        Self { held: Mutex::new(held), turn: tokio::sync::Mutex::default(), changed: Notify::new() }
    }

    /// Waits for the credits of a request and takes them with its MessageId.
    pub(super) async fn take(&self, charge: u16) -> Result<Taken, NoCredits> {
        self.in_turn(|held| held.take(charge)).await
    }

    /// Takes the MessageIds of several requests that are sent together: all or none. A holder of
    /// some could wait for ever for others that also hold some, and would leave unsent
    /// MessageIds behind if it gave up.
    pub(super) async fn take_all(&self, charges: &[u16]) -> Result<Vec<Taken>, NoCredits> {
        self.in_turn(|held| held.take_all(charges)).await
    }

    async fn in_turn<T>(
        &self,
        take: impl Fn(&mut HeldCredits) -> Option<T>,
    ) -> Result<T, NoCredits> {
        if let Ok(_turn) = self.turn.try_lock()
            && let Some(taken) = self.at_once(&take)?
        {
            return Ok(taken);
        }
        let _turn = self.turn.lock().await;
        loop {
            let changed = self.changed.notified();
            if let Some(taken) = self.at_once(&take)? {
                return Ok(taken);
            }
            if self.held.lock().out == 0 {
                return Err(NoCredits::TooFew);
            }
            changed.await;
        }
    }

    /// Takes the credits of a request without waiting.
    pub(super) fn try_take(&self, charge: u16) -> Result<Option<Taken>, NoCredits> {
        self.at_once(|held| held.take(charge))
    }

    fn at_once<T>(
        &self,
        take: impl Fn(&mut HeldCredits) -> Option<T>,
    ) -> Result<Option<T>, NoCredits> {
        let mut held = self.held.lock();
        if held.closed {
            return Err(NoCredits::Closed);
        }
        Ok(take(&mut held))
    }

    /// Notes a response. After an interim one the request stays under way.
    pub(super) fn answered(&self, taken: &mut Taken, granted: u16, is_final: bool) {
        let mut held = self.held.lock();
        held.pool.on_response(taken, granted);
        if is_final {
            held.out = held.out.saturating_sub(u64::from(taken.charge));
        }
        drop(held);
        self.changed.notify_one();
    }

    /// Returns all credits, free or in requests under way.
    pub(super) fn total(&self) -> u64 {
        let held = self.held.lock();
        held.pool.available() + held.out
    }

    /// Ends the granting of credits.
    pub(super) fn close(&self) {
        self.held.lock().closed = true;
        self.changed.notify_one();
    }
}
