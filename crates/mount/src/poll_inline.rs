//! Starts work on the thread that takes the kernel's requests.
//!
//! Most reads are served from the cache and end at once; the others send their request from this
//! thread. Only the part after the wait becomes a task, spawned by the waker: no thread is woken
//! before there is work.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Wake};

use parking_lot::Mutex;
use tokio::runtime::Handle as Runtime;

type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Polls `work` once on this thread; the rest runs on `runtime`.
pub(crate) fn begin(runtime: &Runtime, work: impl Future<Output = ()> + Send + 'static) {
    let mut work: Work = Box::pin(work);
    let rest = Arc::new(Rest { runtime: runtime.clone(), stage: Mutex::new(Stage::Beginning) });
    let waker = Arc::clone(&rest).into();
    let polled = {
        let _inside = runtime.enter();
        work.as_mut().poll(&mut Context::from_waker(&waker))
    };
    if polled.is_pending() {
        rest.waits(work);
    }
}

/// The state of work that may have to wait.
struct Rest {
    runtime: Runtime,
    stage: Mutex<Stage>,
}

enum Stage {
    /// The first poll runs.
    Beginning,
    /// The waker was called during the first poll.
    Called,
    /// The work waits for its waker.
    Waiting(Work),
    /// The work is a task, or has ended.
    Over,
}

impl Rest {
    fn waits(&self, work: Work) {
        let mut stage = self.stage.lock();
        match *stage {
            Stage::Beginning => *stage = Stage::Waiting(work),
            Stage::Called => {
                *stage = Stage::Over;
                drop(stage);
                self.runtime.spawn(work);
            }
            // No other stage is possible before the first poll has ended.
            Stage::Waiting(_) | Stage::Over => {}
        }
    }
}

impl Wake for Rest {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut stage = self.stage.lock();
        match std::mem::replace(&mut *stage, Stage::Over) {
            Stage::Beginning | Stage::Called => *stage = Stage::Called,
            Stage::Waiting(work) => {
                drop(stage);
                self.runtime.spawn(work);
            }
            Stage::Over => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;
    use std::time::Duration;

    use tokio::sync::oneshot;

    use super::*;

    fn in_time<T>(told: &mpsc::Receiver<T>) -> T {
        told.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    #[test]
    fn what_need_not_wait_ends_where_it_began_and_the_rest_elsewhere() {
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
        let (tell, told) = mpsc::channel();
        let here = std::thread::current().id();
        let teller = tell.clone();
        begin(runtime.handle(), async move {
            teller.send(std::thread::current().id()).unwrap();
        });
        assert_eq!(told.try_recv().unwrap(), here);
        let (answer, waited) = oneshot::channel::<()>();
        let teller = tell;
        begin(runtime.handle(), async move {
            waited.await.unwrap();
            // The second wait happens in the task.
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
        let (tell, told) = mpsc::channel();
        for at in 0..2_000 {
            let (answer, waited) = oneshot::channel();
            let teller = tell.clone();
            if at % 2 == 0 {
                runtime.spawn(async move { _ = answer.send(at) });
                begin(runtime.handle(), async move { teller.send(waited.await.unwrap()).unwrap() });
            } else {
                begin(runtime.handle(), async move {
                    tokio::task::yield_now().await;
                    teller.send(at).unwrap();
                    drop(answer);
                });
            }
            assert_eq!(in_time(&told), at);
        }
    }
}
