//! The locks and atomics of the server's threads, under one name: a model checker that
//! includes a file of this crate puts its own in their place. In builds with assertions each use of an
//! atomic is a step of the models in `tests/models`.

#[cfg(not(debug_assertions))]
pub(crate) use std::sync::atomic::AtomicUsize;
pub(crate) use std::sync::atomic::Ordering;
pub(crate) use tokio::sync::Notify;

#[cfg(debug_assertions)]
pub(crate) use stepping::AtomicUsize;

#[cfg(debug_assertions)]
mod stepping {
    use std::sync::atomic::{self, Ordering};

    use frevo_store::order::model::step;

    /// An atomic whose every use is a step of a model: other threads may run before it.
    #[derive(Debug, Default)]
    pub(crate) struct AtomicUsize(atomic::AtomicUsize);

    impl AtomicUsize {
        pub(crate) fn load(&self, order: Ordering) -> usize {
            step();
            self.0.load(order)
        }

        pub(crate) fn fetch_add(&self, value: usize, order: Ordering) -> usize {
            step();
            self.0.fetch_add(value, order)
        }

        pub(crate) fn fetch_sub(&self, value: usize, order: Ordering) -> usize {
            step();
            self.0.fetch_sub(value, order)
        }

        pub(crate) fn fetch_or(&self, value: usize, order: Ordering) -> usize {
            step();
            self.0.fetch_or(value, order)
        }
    }
}
