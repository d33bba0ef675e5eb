//! The last happenings of a node.

use std::collections::VecDeque;

use parking_lot::Mutex;

use crate::happening::{Happening, Noted, Observer};
use crate::limits::HAPPENINGS;
use crate::shared::Clock;

/// The last happenings of a node.
pub(crate) struct Notes {
    kept: Mutex<VecDeque<Noted>>,
    clock: Clock,
    observer: Option<Observer>,
}

impl Notes {
    /// No happenings yet.
    pub(crate) fn new(clock: Clock, observer: Option<Observer>) -> Self {
        Self { kept: Mutex::default(), clock, observer }
    }

    /// The last happenings, the oldest first.
    pub(crate) fn all(&self) -> Vec<Noted> {
        self.kept.lock().iter().cloned().collect()
    }

    /// Writes a happening into the log, and keeps it.
    pub(crate) fn note(&self, what: Happening) {
        if what.is_warning() {
            tracing::warn!(target: "frevo::cluster", "{what}");
        } else {
            tracing::info!(target: "frevo::cluster", "{what}");
        }
        let noted = Noted { at: (self.clock)(), what };
        if let Some(observer) = &self.observer {
            observer(&noted);
        }
        let mut kept = self.kept.lock();
        if kept.len() >= HAPPENINGS {
            kept.pop_front();
        }
        kept.push_back(noted);
    }
}
