//! Operations of a session that are under way, so that its end can wait for
//! them: after the answer to LOGOFF nothing is done in its name any more.

use std::sync::Arc;

use super::sync::{AtomicUsize, Notify, Ordering};

/// Counts operations. `tests/races` models it with loom.
#[derive(Debug, Default)]
pub struct UnderWay {
    /// [`ENDED`], [`GIVEN_UP`], and [`ONE`] for each operation.
    state: AtomicUsize,
    /// Told when the last one ends after the end, and of giving up.
    turns: Notify,
    /// Counts the same operations, with those of others.
    whole: Option<Arc<Self>>,
}

const ENDED: usize = 1;
const GIVEN_UP: usize = 2;
const ONE: usize = 4;

/// One operation, until it is dropped.
#[derive(Debug)]
pub struct Operation(Arc<UnderWay>);

impl UnderWay {
    /// A count whose operations `whole` counts, too.
    pub fn within(whole: Option<Arc<Self>>) -> Self {
        Self { whole, ..Self::default() }
    }

    /// Begins an operation; none after the end.
    pub fn begin(self: &Arc<Self>) -> Option<Operation> {
        if let Some(whole) = &self.whole {
            whole.state.fetch_add(ONE, Ordering::AcqRel);
        }
        let before = self.state.fetch_add(ONE, Ordering::AcqRel);
        let operation = Operation(Arc::clone(self));
        (before & ENDED == 0).then_some(operation)
    }

    /// No operation begins from here on. True for the first caller.
    pub fn end(&self) -> bool {
        self.state.fetch_or(ENDED, Ordering::AcqRel) & ENDED == 0
    }

    /// Ends the waits of operations that wait for others by nature.
    pub fn give_up(&self) {
        self.state.fetch_or(GIVEN_UP, Ordering::AcqRel);
        self.turns.notify_waiters();
    }

    /// Waits for those that had begun before the end.
    pub async fn drained(&self) {
        self.until(|state| state < ONE).await;
    }

    /// Returns when [`Self::give_up`] has been called.
    pub async fn given_up(&self) {
        self.until(|state| state & GIVEN_UP != 0).await;
    }

    async fn until(&self, has_come: impl Fn(usize) -> bool) {
        loop {
            let mut turn = std::pin::pin!(self.turns.notified());
            // Registers for the notification before reading the state, so that a change in between
            // is not missed.
            turn.as_mut().enable();
            if has_come(self.state.load(Ordering::Acquire)) {
                return;
            }
            turn.await;
        }
    }

    /// True while there is one. A caller that has made a change before, which operations look at when they have
    /// begun, misses none that did not see it: the count is read by a change of it.
    pub fn has_any(&self) -> bool {
        self.state.fetch_or(0, Ordering::AcqRel) >= ONE
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.state.load(Ordering::Acquire) / ONE
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let before = self.0.state.fetch_sub(ONE, Ordering::AcqRel);
        if before < ONE + ONE && before & ENDED != 0 {
            self.0.turns.notify_waiters();
        }
        if let Some(whole) = &self.0.whole {
            whole.state.fetch_sub(ONE, Ordering::AcqRel);
        }
    }
}
