//! The number of compressed answers that are expanded at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::limits::EXPANSIONS;

/// The expansions of a connection that other cores carry out: a server that compresses well must not
/// make a client take memory and threads for all that it has asked for at once.
#[derive(Debug, Default)]
pub(super) struct Expansions(Arc<AtomicUsize>);

/// One of them, until it is dropped.
pub(super) struct Expansion(Arc<AtomicUsize>);

impl Expansions {
    /// Counts one. None if there are as many as may be: then the task that reads does it, and reads
    /// nothing meanwhile.
    pub(super) fn begin(&self) -> Option<Expansion> {
        let one = Expansion(Arc::clone(&self.0));
        (self.0.fetch_add(1, Ordering::Relaxed) < EXPANSIONS).then_some(one)
    }
}

impl Drop for Expansion {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_has_a_few_expansions_elsewhere() {
        let expansions = Expansions::default();
        let mut begun: Vec<_> = (0..EXPANSIONS).map(|_| expansions.begin().unwrap()).collect();
        assert!(expansions.begin().is_none() && expansions.begin().is_none());
        begun.pop();
        let again = expansions.begin();
        assert!(again.is_some() && expansions.begin().is_none());
    }
}
