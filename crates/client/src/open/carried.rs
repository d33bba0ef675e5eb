//! Work that goes on when its caller gives up waiting.

use std::panic::resume_unwind;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::task::JoinHandle;

/// Carries `work` through, even if the caller gives up waiting.
///
/// With several threads the caller carries the work out itself as long as it waits, so that no
/// thread is woken for it. With one thread the work is a task: tasks that could run before it, such
/// as the close of a file that was dropped, have run.
pub fn carried_through<W>(work: W) -> CarriedThrough<W>
where
    W: Future<Output: Send> + Send + 'static,
{
    match Handle::try_current() {
        Ok(runtime) if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread => {
            CarriedThrough(Carrier::Task(runtime.spawn(work)))
        }
        _ => CarriedThrough(Carrier::Caller(Box::pin(work))),
    }
}

/// Work under way. Dropping it makes the rest a task.
pub struct CarriedThrough<W>(Carrier<W>)
where
    W: Future<Output: Send> + Send + 'static;

/// The one that carries the work out.
enum Carrier<W: Future> {
    Caller(Pin<Box<W>>),
    Task(JoinHandle<W::Output>),
    Done,
}

impl<W: Future<Output: Send> + Send + 'static> Future for CarriedThrough<W> {
    type Output = W::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let polled = match &mut self.0 {
            Carrier::Caller(work) => work.as_mut().poll(cx),
            Carrier::Task(task) => match Pin::new(task).poll(cx) {
                Poll::Ready(Ok(output)) => Poll::Ready(output),
                Poll::Ready(Err(failed)) if failed.is_panic() => resume_unwind(failed.into_panic()),
                // The runtime is shutting down and has cancelled the task; it will cancel this
                // caller, too.
                Poll::Ready(Err(_)) => Poll::Pending,
                Poll::Pending => Poll::Pending,
            },
            Carrier::Done => Poll::Pending,
        };
        if polled.is_ready() {
            self.0 = Carrier::Done;
        }
        polled
    }
}

impl<W: Future<Output: Send> + Send + 'static> Drop for CarriedThrough<W> {
    fn drop(&mut self) {
        if let Carrier::Caller(work) = std::mem::replace(&mut self.0, Carrier::Done)
            && let Ok(runtime) = Handle::try_current()
        {
            runtime.spawn(work);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::sync::oneshot;
    use tokio::task::try_id;

    use super::*;

    /// Returns true if the caller carried the work out.
    async fn is_here() -> bool {
        carried_through(async { try_id() }).await == try_id()
    }

    async fn goes_on() {
        let (go_on, waits) = oneshot::channel::<()>();
        let (tell, told) = oneshot::channel();
        let work = carried_through(async {
            waits.await.unwrap();
            tell.send(7).unwrap();
        });
        tokio::time::timeout(Duration::from_millis(5), work).await.unwrap_err();
        go_on.send(()).unwrap();
        assert_eq!(told.await, Ok(7));
        // Dropping the future at once does not stop its work, because `tell` still sends.
        let (tell, told) = oneshot::channel();
        drop(carried_through(async { tell.send(8) }));
        assert_eq!(told.await, Ok(8));
    }

    #[tokio::test(flavor = "multi_thread")]
    async fn with_several_threads_the_caller_carries_it_out_and_a_task_what_is_left() {
        assert!(is_here().await);
        goes_on().await;
    }

    #[tokio::test]
    async fn with_one_thread_it_has_its_turn_after_the_tasks_before_it() {
        assert!(!is_here().await);
        goes_on().await;
        let (tell, mut told) = oneshot::channel();
        tokio::spawn(async move { tell.send(9) });
        assert_eq!(carried_through(async move { told.try_recv() }).await, Ok(9));
    }
}
