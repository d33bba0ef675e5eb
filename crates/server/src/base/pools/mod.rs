//! Threads beside the cores, and turns for their work.

pub(crate) mod blocking_pool;
pub(crate) mod crypto_threads;
pub(crate) mod places;
pub(crate) mod slots;
pub(crate) mod threads;
