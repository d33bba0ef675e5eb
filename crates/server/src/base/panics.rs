//! Panics: a bug in a handler ends the connection that met it, and nothing else.
//! Each panic of the process is counted and logged by a hook ([`watch`]), wherever it is
//! caught. The functions below catch it at the places where others must go on. The code that
//! catches a panic gives up the state that the panicking code was changing.

use std::any::Any;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use futures_util::FutureExt as _;
use parking_lot::Mutex;

use crate::base::limits::PANIC_LOG_INTERVAL;

// The counter belongs to the process and not to a server, because the panic hook cannot tell which
// server has panicked.

/// Panics of this process since [`watch`].
static COUNT: AtomicU64 = AtomicU64::new(0);

/// The time of the last line in the log.
static LOGGED: Mutex<Option<Instant>> = Mutex::new(None);

/// The payload of a panic.
type Payload = Box<dyn Any + Send>;

/// Counts and logs every panic of the process from here on. The hook that was there
/// before is called too if `keeps_hook` is set.
pub fn watch(keeps_hook: bool) {
    static WATCHES: Once = Once::new();
    WATCHES.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let count = COUNT.fetch_add(1, Ordering::Relaxed) + 1;
            if is_to_be_logged() {
                let place = info.location().map(ToString::to_string).unwrap_or_default();
                let thread = std::thread::current();
                // The message is logged in quotes, because it may contain control characters that a
                // client sent.
                tracing::error!(target: "frevo::panic", place, count,
                    thread = thread.name().unwrap_or_default(),
                    message = ?said(info.payload()),
                    "a bug in Frevo; the request was given up, others go on; please report this line");
            }
            if keeps_hook {
                before(info);
            }
        }));
    });
}

/// The message of a panic.
fn said(payload: &(dyn Any + Send)) -> &str {
    let literal = payload.downcast_ref::<&str>().copied();
    literal.or_else(|| payload.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}

/// One line a second: a client that knows how to cause a panic must not fill the log.
fn is_to_be_logged() -> bool {
    let Some(mut logged) = LOGGED.try_lock() else { return false };
    let now = Instant::now();
    let is_due = logged.is_none_or(|last| now.duration_since(last) >= PANIC_LOG_INTERVAL);
    if is_due {
        *logged = Some(now);
    }
    is_due
}

/// Panics of this process since [`watch`].
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// Runs `work`; none when it panicked.
pub fn contained<T>(work: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Polls `work` to its end; none when it panicked. An async fn would hold `work` twice: as its
/// argument and where it is polled.
#[doc(hidden)]
pub fn outlived<F: Future>(work: F) -> impl Future<Output = Option<F::Output>> {
    AssertUnwindSafe(work).catch_unwind().map(Result::ok)
}

/// Steps that are all carried out even if one of them panics. The first panic goes on
/// at the end.
#[derive(Default)]
#[doc(hidden)]
pub struct Steps(Option<Payload>);

impl Steps {
    /// Carries out a step.
    pub fn take(&mut self, step: impl FnOnce()) {
        if let Err(payload) = catch_unwind(AssertUnwindSafe(step)) {
            self.0.get_or_insert(payload);
        }
    }

    /// Panics if a step did.
    pub fn end(self) {
        if let Some(payload) = self.0 {
            resume_unwind(payload);
        }
    }
}

/// Runs a step when it is dropped: at the end of a block, in a panic, or when a task is
/// cancelled.
#[doc(hidden)]
pub struct Always<F: FnMut()>(pub F);

impl<F: FnMut()> Drop for Always<F> {
    fn drop(&mut self) {
        // `contained` catches a panic of this step, because if the thread is already panicking, a
        // second panic would abort the process.
        contained(&mut self.0);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;

    #[test]
    fn all_steps_are_carried_out_and_the_first_panic_goes_on() {
        let done = Cell::new(0);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let mut steps = Steps::default();
            steps.take(|| panic!("first"));
            steps.take(|| done.set(done.get() + 1));
            steps.take(|| panic!("second"));
            steps.take(|| done.set(done.get() + 1));
            steps.end();
        }));
        assert_eq!(done.get(), 2);
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"first"));
    }

    #[test]
    fn what_is_always_done_is_done_in_a_panic_and_may_panic_itself() {
        let done = Cell::new(false);
        let panicked = catch_unwind(AssertUnwindSafe(|| {
            let _always = Always(|| {
                done.set(true);
                panic!("second");
            });
            panic!("first");
        }));
        assert!(done.get());
        assert_eq!(panicked.unwrap_err().downcast_ref(), Some(&"first"));
    }
}
