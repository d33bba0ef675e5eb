//! Starts work on the thread that takes the kernel's requests.
//!
//! Most reads are served from the cache and end at once; the others send their request from this
//! thread. The part after the wait runs on the runtime: no thread is woken before there is work. Works
//! whose answers come together go on in one task, since a second one would wake a second thread.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake};

use parking_lot::Mutex;
use tokio::runtime::{EnterGuard, Handle as Runtime};

use crate::limits::{GO_ON_AT_ONCE, POLLS_AT_ONCE};

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// The works of a mount.
#[derive(Clone)]
pub(crate) struct Works(Arc<Shared>);

struct Shared {
    runtime: Runtime,
    ready: Mutex<Ready>,
    /// Most tasks that take works at once.
    takers_max: usize,
}

/// Works that can go on.
#[derive(Default)]
struct Ready {
    works: VecDeque<(Arc<Rest>, Work)>,
    /// Tasks that take them, including those that have not begun.
    takers: usize,
}

impl Works {
    pub(crate) fn on(runtime: Runtime) -> Self {
        let takers_max = runtime.metrics().num_workers();
        Self(Arc::new(Shared { runtime, ready: Mutex::default(), takers_max }))
    }

    /// Begins `work` on this thread; the rest runs on the runtime.
    pub(crate) fn begin(&self, work: impl Future<Output = ()> + Send + 'static) {
        let rest = Arc::new(Rest { shared: Arc::clone(&self.0), stage: Mutex::new(Stage::Polled) });
        let _inside = self.enter();
        rest.go_on(Box::pin(work));
    }

    /// Runs `work` as a task.
    pub(crate) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.0.runtime.spawn(work);
    }

    /// Lets this thread use the runtime.
    pub(crate) fn enter(&self) -> EnterGuard<'_> {
        self.0.runtime.enter()
    }
}

impl Shared {
    fn push(self: &Arc<Self>, rest: Arc<Rest>, work: Work) {
        let mut ready = self.ready.lock();
        ready.works.push_back((rest, work));
        if ready.takers == 0 {
            ready.takers = 1;
            drop(ready);
            self.add_taker();
        }
    }

    fn add_taker(self: &Arc<Self>) {
        let shared = Arc::clone(self);
        self.runtime.spawn(async move { shared.take() });
    }

    fn take(self: &Arc<Self>) {
        // A Taker starts a new task when it is dropped, so it is made only in a running task. A
        // task that never ran, dropped at the end of its runtime, must start none.
        let _taker = Taker(self);
        for _ in 0..GO_ON_AT_ONCE {
            let mut ready = self.ready.lock();
            let Some((rest, work)) = ready.works.pop_front() else { return };
            // A single waiting item is soon taken by this task. If more wait, a further task is
            // started, up to `takers_max`.
            let is_much = ready.works.len() > ready.takers && ready.takers < self.takers_max;
            ready.takers += usize::from(is_much);
            drop(ready);
            if is_much {
                self.add_taker();
            }
            rest.go_on(work);
        }
    }
}

/// One task that takes works; also after a panic another one goes on.
struct Taker<'a>(&'a Arc<Shared>);

impl Drop for Taker<'_> {
    fn drop(&mut self) {
        let mut ready = self.0.ready.lock();
        ready.takers -= 1;
        if ready.takers == 0 && !ready.works.is_empty() {
            ready.takers = 1;
            drop(ready);
            self.0.add_taker();
        }
    }
}

/// The state of work that may have to wait.
struct Rest {
    shared: Arc<Shared>,
    stage: Mutex<Stage>,
}

enum Stage {
    /// A poll runs, or the work has ended, or waits for its turn.
    Polled,
    /// The waker was called during the poll.
    Called,
    /// The work waits for its waker.
    Waiting(Work),
}

impl Rest {
    /// Polls `work` until it waits or has ended.
    fn go_on(self: &Arc<Self>, mut work: Work) {
        let waker = Arc::clone(self).into();
        for _ in 0..POLLS_AT_ONCE {
            *self.stage.lock() = Stage::Polled;
            if work.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                return;
            }
            let mut stage = self.stage.lock();
            if !matches!(*stage, Stage::Called) {
                *stage = Stage::Waiting(work);
                return;
            }
            // The waker was called during the poll, so the work is polled again.
        }
        self.shared.push(Arc::clone(self), work);
    }
}

impl Wake for Rest {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut stage = self.stage.lock();
        if let Stage::Waiting(work) = std::mem::replace(&mut *stage, Stage::Called) {
            drop(stage);
            self.shared.push(Arc::clone(self), work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::future::poll_fn;
    use std::sync::mpsc;
    use std::task::Poll;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    fn in_time<T>(told: &mpsc::Receiver<T>) -> T {
        told.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    #[test]
    fn what_need_not_wait_ends_where_it_began_and_the_rest_elsewhere() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let works = Works::on(runtime.handle().clone());
        let (tell, told) = mpsc::channel();
        let here = std::thread::current().id();
        let teller = tell.clone();
        works.begin(async move {
            teller.send(std::thread::current().id()).unwrap();
        });
        assert_eq!(told.try_recv().unwrap(), here);
        let (answer, waited) = oneshot::channel::<()>();
        let teller = tell;
        works.begin(async move {
            waited.await.unwrap();
            // The first wait was on the thread that began the work. The second wait happens in the
            // task, on another thread.
            tokio::time::sleep(Duration::from_millis(5)).await;
            teller.send(std::thread::current().id()).unwrap();
        });
        assert!(told.try_recv().is_err());
        answer.send(()).unwrap();
        assert_ne!(in_time(&told), here);
    }

    #[test]
    fn who_is_called_while_he_begins_is_not_forgotten() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let works = Works::on(runtime.handle().clone());
        let (tell, told) = mpsc::channel();
        for at in 0..2_000 {
            let (answer, waited) = oneshot::channel();
            let teller = tell.clone();
            if at % 2 == 0 {
                runtime.spawn(async move { _ = answer.send(at) });
                works.begin(async move { teller.send(waited.await.unwrap()).unwrap() });
            } else {
                works.begin(async move {
                    tokio::task::yield_now().await;
                    teller.send(at).unwrap();
                    drop(answer);
                });
            }
            assert_eq!(in_time(&told), at);
        }
    }

    #[test]
    fn an_answer_that_comes_while_it_is_asked_for_is_taken_here() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let works = Works::on(runtime.handle().clone());
        let (tell, told) = mpsc::channel();
        let mut is_asked = false;
        works.begin(async move {
            poll_fn(|cx| {
                if std::mem::replace(&mut is_asked, true) {
                    return Poll::Ready(());
                }
                cx.waker().wake_by_ref();
                Poll::Pending
            })
            .await;
            tell.send(std::thread::current().id()).unwrap();
        });
        assert_eq!(told.try_recv(), Ok(std::thread::current().id()));
    }

    #[test]
    fn works_that_are_answered_together_go_on_in_one_task_and_many_in_several() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let works = Works::on(runtime.handle().clone());
        for count in [2, 100] {
            let (tell, told) = mpsc::channel();
            let mut answers = Vec::new();
            for _ in 0..count {
                let (answer, waited) = oneshot::channel::<()>();
                answers.push(answer);
                let tell = tell.clone();
                works.begin(async move {
                    waited.await.unwrap();
                    tell.send(tokio::task::id()).unwrap();
                });
            }
            // All answers are sent from one task, as by the task that reads the connection. The
            // work of two answers stays in one task; the work of more answers is spread over
            // several.
            runtime
                .spawn(async move { answers.into_iter().for_each(|answer| _ = answer.send(())) });
            let tasks: HashSet<_> = (0..count).map(|_| in_time(&told)).collect();
            assert_eq!(tasks.len() == 1, count == 2, "{tasks:?}");
        }
    }

    #[test]
    fn who_panics_takes_nobody_along() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let works = Works::on(runtime.handle().clone());
        let (tell, told) = mpsc::channel();
        let mut answers = Vec::new();
        for at in 0..40 {
            let (answer, waited) = oneshot::channel::<()>();
            answers.push(answer);
            let tell = tell.clone();
            works.begin(async move {
                waited.await.unwrap();
                assert!(at % 4 != 0, "as a fault would");
                tell.send(at).unwrap();
            });
        }
        runtime.spawn(async move { answers.into_iter().for_each(|answer| _ = answer.send(())) });
        let came: HashSet<_> = (0..30).map(|_| in_time(&told)).collect();
        assert_eq!(came.len(), 30);
    }
}
