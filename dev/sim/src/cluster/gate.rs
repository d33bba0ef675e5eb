//! A process that can be stopped, and ended, whatever it does.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use parking_lot::Mutex;

/// The state of a process, which all that goes in and out asks.
#[derive(Debug, Default)]
pub(super) struct Gate(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    is_stopped: bool,
    is_ended: bool,
    waiting: Vec<Waker>,
    /// The tasks that are carried out, by number.
    inside: BTreeMap<u64, Waker>,
    last_inside: u64,
}

/// A task that is carried out, until its end.
struct Inside<'a> {
    gate: &'a Gate,
    number: u64,
}

impl<'a> Inside<'a> {
    fn new(gate: &'a Gate) -> Self {
        let mut state = gate.0.lock();
        state.last_inside += 1;
        Self { gate, number: state.last_inside }
    }

    /// Has the end of the process wake the task.
    fn is_to_wake(&self, waker: &Waker) {
        let before = {
            let mut state = self.gate.0.lock();
            if state.inside.get(&self.number).is_some_and(|present| present.will_wake(waker)) {
                return;
            }
            state.inside.insert(self.number, waker.clone())
        };
        // A waker may be the last one that holds its task.
        drop(before);
    }
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        let waker = self.gate.0.lock().inside.remove(&self.number);
        drop(waker);
    }
}

impl Gate {
    /// True while the process runs.
    pub(super) fn is_open(&self) -> bool {
        let state = self.0.lock();
        !state.is_stopped && !state.is_ended
    }

    /// True after the end of the process.
    pub(super) fn is_ended(&self) -> bool {
        self.0.lock().is_ended
    }

    /// Stops the process, or has it go on.
    pub(super) fn stop(&self, is_stopped: bool) {
        let waiting = {
            let mut state = self.0.lock();
            state.is_stopped = is_stopped;
            if is_stopped { Vec::new() } else { std::mem::take(&mut state.waiting) }
        };
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Ends the process.
    pub(super) fn end(&self) {
        let waiting = {
            let mut state = self.0.lock();
            state.is_ended = true;
            (std::mem::take(&mut state.waiting), std::mem::take(&mut state.inside))
        };
        waiting.0.into_iter().chain(waiting.1.into_values()).for_each(Waker::wake);
    }

    /// Waits while the process is stopped. Returns false after its end.
    pub(super) async fn opened(&self) -> bool {
        poll_fn(|cx| self.poll(cx)).await
    }

    fn poll(&self, cx: &Context<'_>) -> Poll<bool> {
        let mut state = self.0.lock();
        if state.is_ended {
            return Poll::Ready(false);
        }
        if state.is_stopped {
            state.waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(true)
    }

    /// Carries out a task of the process: while it is stopped, the task does nothing. None after the end
    /// of the process.
    pub(super) async fn serve<T>(self: Arc<Self>, task: impl Future<Output = T>) -> Option<T> {
        let mut task = pin!(task);
        let inside = Inside::new(&self);
        poll_fn(|cx| match self.poll(cx) {
            Poll::Ready(true) => {
                inside.is_to_wake(cx.waker());
                task.as_mut().poll(cx).map(Some)
            }
            Poll::Ready(false) => Poll::Ready(None),
            Poll::Pending => Poll::Pending,
        })
        .await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::{sleep, timeout};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_stopped_process_does_nothing() {
        let gate = Arc::new(Gate::default());
        let second = Duration::from_secs(1);
        gate.stop(true);
        let served = tokio::spawn(Arc::clone(&gate).serve(async move { sleep(second).await }));
        sleep(second * 3).await;
        assert!(!served.is_finished() && !gate.is_open());
        gate.stop(false);
        assert_eq!(timeout(second * 2, served).await.unwrap().unwrap(), Some(()));
        assert!(gate.opened().await);
        let served = tokio::spawn(Arc::clone(&gate).serve(std::future::pending::<()>()));
        sleep(second).await;
        gate.stop(true);
        gate.end();
        assert_eq!(timeout(second, served).await.unwrap().unwrap(), None);
        assert!(!gate.opened().await);
    }

    #[tokio::test(start_paused = true)]
    async fn the_end_ends_tasks_that_wait_for_something_else() {
        let gate = Arc::new(Gate::default());
        let second = Duration::from_secs(1);
        let tasks: Vec<_> = (0..3)
            .map(|_| tokio::spawn(Arc::clone(&gate).serve(std::future::pending::<()>())))
            .collect();
        let soon_over = tokio::spawn(Arc::clone(&gate).serve(async move { sleep(second).await }));
        sleep(second * 2).await;
        assert_eq!(soon_over.await.unwrap(), Some(()));
        assert_eq!(gate.0.lock().inside.len(), tasks.len());
        gate.end();
        for task in tasks {
            assert_eq!(timeout(second, task).await.unwrap().unwrap(), None);
        }
        assert!(gate.0.lock().inside.is_empty());
    }
}
