//! The processor of the servers in a run with a flood: it works for one connection at a time, as long
//! as the server's code counts work, and gives turns as the shipped cores do.

use std::collections::VecDeque;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use frevo_net::{turns, watchdog};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::{JoinHandle, spawn_local};
use tokio::time::{Instant, sleep_until};

/// The shortest time for which a task waits for the processor: the clock has no shorter one.
const TICK: Duration = Duration::from_millis(1);

/// A processor.
#[derive(Debug, Default)]
pub struct Core {
    state: Mutex<State>,
    /// Notified when there is work.
    changed: Notify,
}

#[derive(Debug, Default)]
struct State {
    /// The end of the work that was begun. None while there is nothing to wait for.
    busy_until: Option<Instant>,
    /// Tasks that wait for the processor.
    waiting: VecDeque<Waker>,
}

/// The tasks of a processor.
#[derive(Debug)]
pub struct Running(Vec<JoinHandle<()>>);

impl Core {
    /// Starts a processor on this thread.
    pub fn start() -> (Arc<Self>, Running) {
        turns::simulate(true);
        let core = Arc::new(Self::default());
        let running = Arc::clone(&core);
        let clock = spawn_local(async move { running.run().await });
        let giver = spawn_local(async {
            let never: std::convert::Infallible = poll_fn(|cx| turns::poll_give(cx)).await;
            match never {}
        });
        (core, Running(vec![clock, giver]))
    }

    /// Carries out a task of a server. While the processor is busy it waits.
    pub async fn serve<T>(self: Arc<Self>, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        poll_fn(|cx| {
            if self.is_busy(cx) {
                return Poll::Pending;
            }
            // As on a shipped core, the whole poll is measured.
            let (polled, _) = watchdog::measured(|| task.as_mut().poll(cx));
            self.note_work();
            polled
        })
        .await
    }

    fn is_busy(&self, cx: &Context<'_>) -> bool {
        let mut state = self.state.lock();
        let is_busy = state.busy_until.is_some_and(|until| Instant::now() < until);
        if is_busy {
            state.waiting.push_back(cx.waker().clone());
        }
        is_busy
    }

    /// Notes the work of a poll.
    fn note_work(&self) {
        let done = turns::simulated_time();
        if done >= Instant::now() + TICK {
            self.state.lock().busy_until = Some(done);
            self.changed.notify_one();
        }
    }

    /// Notes that the work has ended. Returns the tasks that wait.
    fn take_waiting(&self) -> VecDeque<Waker> {
        let mut state = self.state.lock();
        state.busy_until = None;
        std::mem::take(&mut state.waiting)
    }

    /// Goes on with the tasks that wait, in their order, whenever work has ended.
    async fn run(&self) {
        loop {
            let until = self.state.lock().busy_until;
            match until {
                None => self.changed.notified().await,
                Some(until) if Instant::now() < until => sleep_until(until).await,
                Some(_) => self.take_waiting().into_iter().for_each(Waker::wake),
            }
        }
    }
}

impl Running {
    /// Stops the processor.
    pub async fn stop(self) {
        for task in self.0 {
            task.abort();
            let _ = task.await;
        }
        turns::simulate(false);
    }
}
