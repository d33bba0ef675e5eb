//! Times in which a client waits although the server does nothing for it.

use std::cell::Cell;
use std::time::{Duration, Instant};

/// A stall of one kind, while it lasts. None: the client does not wait.
#[derive(Debug, Default)]
pub(super) struct Stalled(Cell<Option<Instant>>);

impl Stalled {
    /// Begins or ends the stall; returns the time of one that ended. The clock is not read while
    /// the client does not wait.
    pub(super) fn note(&self, waits: bool) -> Option<Duration> {
        match (self.0.get(), waits) {
            (None, true) => self.0.set(Some(Instant::now())),
            (Some(began), false) => {
                self.0.set(None);
                return Some(began.elapsed());
            }
            _ => {}
        }
        None
    }
}
