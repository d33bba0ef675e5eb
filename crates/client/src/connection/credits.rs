//! Credits, waited for in turn: MS-SMB2 3.2.4.1.2 to 3.2.4.1.5.

use frevo_proto::window::{CreditPool, Taken};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// The sequence window of one connection.
pub(super) struct Credits {
    held: Mutex<Held>,
    /// Those who wait do so one behind the other: a large request is not
    /// starved by small ones.
    turn: tokio::sync::Mutex<()>,
    changed: Notify,
}

struct Held {
    pool: CreditPool,
    /// Credits in requests that are not answered.
    out: u64,
    closed: bool,
}

/// Why no credits can be had.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum NoCredits {
    /// The connection has ended.
    Closed,
    /// The server grants fewer than the request costs, and nothing is under way
    /// whose answer could bring more.
    TooFew,
}

impl Credits {
    pub(super) fn new(target: u16) -> Self {
        let held = Held { pool: CreditPool::new(target), out: 0, closed: false };
        Self { held: Mutex::new(held), turn: tokio::sync::Mutex::default(), changed: Notify::new() }
    }

    /// Takes the numbers of a request, when it is its turn and they are there.
    pub(super) async fn take(&self, charge: u16) -> Result<Taken, NoCredits> {
        if let Ok(_turn) = self.turn.try_lock()
            && let Some(taken) = self.try_take(charge)?
        {
            return Ok(taken);
        }
        let _turn = self.turn.lock().await;
        loop {
            let changed = self.changed.notified();
            if let Some(taken) = self.try_take(charge)? {
                return Ok(taken);
            }
            if self.held.lock().out == 0 {
                return Err(NoCredits::TooFew);
            }
            changed.await;
        }
    }

    /// Takes them if they are there now.
    pub(super) fn try_take(&self, charge: u16) -> Result<Option<Taken>, NoCredits> {
        let mut held = self.held.lock();
        if held.closed {
            return Err(NoCredits::Closed);
        }
        let taken = held.pool.take(charge);
        if let Some(taken) = &taken {
            held.out += u64::from(taken.charge);
        }
        Ok(taken)
    }

    /// A response came: an interim one leaves the request under way.
    pub(super) fn answered(&self, taken: &mut Taken, granted: u16, is_final: bool) {
        let mut held = self.held.lock();
        held.pool.on_response(taken, granted);
        if is_final {
            held.out = held.out.saturating_sub(u64::from(taken.charge));
        }
        drop(held);
        self.changed.notify_one();
    }

    /// All credits there are, in hand or under way.
    pub(super) fn total(&self) -> u64 {
        let held = self.held.lock();
        held.pool.available() + held.out
    }

    /// Nobody gets any more.
    pub(super) fn close(&self) {
        self.held.lock().closed = true;
        self.changed.notify_one();
    }
}
