//! Encryption and decryption on other cores, where they are slow: see [`Pace`].

use std::cell::OnceCell;

use frevo_proto::limits::CRYPTO_HELPED_BYTES_MIN;
use frevo_proto::protection::Pace;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::{spawn, spawn_blocking};
use tokio::time::Instant;

/// Does `work` on `bytes` and notes its time.
pub(super) fn measured<T>(pace: &Pace, bytes: usize, work: impl FnOnce() -> T) -> T {
    let start = OnceCell::new();
    let clock = || start.get_or_init(Instant::now).elapsed();
    pace.measured(bytes, CRYPTO_HELPED_BYTES_MIN, clock, work)
}

/// Does `work` on another core: on a worker of the runtime, or on a blocking thread of a
/// runtime with a single worker.
pub(super) fn hand_over(work: impl FnOnce() + Send + 'static) {
    if is_alone() {
        drop(spawn_blocking(work));
    } else {
        drop(spawn(async move { work() }));
    }
}

/// Returns true if all tasks run on one thread.
pub(super) fn is_alone() -> bool {
    Handle::try_current()
        .is_ok_and(|handle| handle.runtime_flavor() == RuntimeFlavor::CurrentThread)
}
