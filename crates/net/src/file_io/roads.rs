//! The ways that a core's file I/O may take.

use std::cell::Cell;
use std::io;

use super::ring;

/// The way of operations that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoRoad {
    /// The core's own io_uring.
    Ring,
    /// Threads.
    Threads,
}

/// The ways that this core may use: all, unless configuration or a test restricts them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoadChoice {
    /// Tries reads and writes on the core first.
    pub inline: bool,
    /// Uses an io_uring if there is one.
    pub ring: bool,
}

impl Default for RoadChoice {
    fn default() -> Self {
        Self { inline: true, ring: true }
    }
}

thread_local! {
    pub(super) static CHOICE: Cell<RoadChoice> = const { Cell::new(RoadChoice { inline: true, ring: true }) };
}

/// Sets the ways that this core thread may use from now on.
pub fn choose_roads(choice: RoadChoice) {
    CHOICE.set(choice);
}

/// Returns the way of this core's waiting operations, and the reason.
#[must_use]
pub fn road() -> (IoRoad, String) {
    if !CHOICE.get().ring {
        return (IoRoad::Threads, "io_uring is switched off".to_owned());
    }
    match ring::availability() {
        Ok(()) => (IoRoad::Ring, "io_uring works".to_owned()),
        Err(reason) => (IoRoad::Threads, reason),
    }
}

/// True if waiting operations of this core use the ring. Like [`road`], without the reason.
pub(super) fn takes_ring() -> bool {
    CHOICE.get().ring && ring::is_available()
}

/// Runs a call that may block on a thread for such calls, and waits for it. The call runs to its
/// end even if the wait is dropped.
///
/// # Errors
/// If the runtime is shutting down.
///
/// # Panics
/// If the call panics; its panic continues here.
pub async fn run_blocking<T, F>(call: F) -> io::Result<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if STAYS.get() {
        return Ok(call());
    }
    tokio::task::spawn_blocking(call).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => io::Error::other(error),
    })
}

thread_local! {
    static STAYS: Cell<bool> = const { Cell::new(false) };
}

/// Makes [`run_blocking`] run its calls on this thread from now on: in a simulator nothing blocks,
/// and one thread decides the order of everything.
pub fn stay_on_this_thread() {
    STAYS.set(true);
}

/// True if this thread called [`stay_on_this_thread`].
#[must_use]
pub fn stays() -> bool {
    STAYS.get()
}
