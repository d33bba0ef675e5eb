//! A lease that is kept alive.

use alloc::boxed::Box;
use alloc::sync::Arc;
use core::time::Duration;

use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep};

use super::attempts::{Repeat, Request};
use super::exchange::miss_of;
use super::shared::Shared;
use crate::engine::{Confirmed, Moment};
use crate::json::{self, Call};
use crate::limits::PAUSE;
use crate::types::{Fault, LeaseId};

/// A callback for the end of each request that keeps a lease alive. [`Confirmed::sent`] is the moment
/// from which the lease is certain to live for its time.
pub type TellKept = Box<dyn FnMut(Result<Confirmed, Fault>) + Send>;

/// A lease that is kept alive until this value is dropped. It then ends after its time.
#[derive(Debug)]
#[must_use = "the lease is no longer kept alive when this value is dropped"]
pub struct Keeping {
    task: AbortHandle,
}

impl Keeping {
    pub(super) fn new(task: AbortHandle) -> Self {
        Self { task }
    }
}

impl Drop for Keeping {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Shared {
    /// Keeps a lease alive once.
    pub(super) async fn keep_alive(&self, lease: LeaseId) -> Result<Confirmed, Fault> {
        let request = Request::new(Call::KeepAlive, json::lease(lease), Repeat::Always);
        let check = |line: &[u8], sent: Moment| {
            let answer = json::kept_answer(line, lease)?.map_err(miss_of)?;
            Ok(Confirmed { lease, ttl: answer.ttl, sent })
        };
        self.ask_timed(&request, check).await
    }
}

/// Keeps a lease alive until it has ended.
pub(super) async fn keep(shared: Arc<Shared>, lease: LeaseId, every: Duration, mut tell: TellKept) {
    loop {
        let begun = Instant::now();
        let end = shared.keep_alive(lease).await;
        let is_over = matches!(end, Err(Fault::LeaseNotFound | Fault::Refused(_)));
        // After a fault the next attempt is made soon, because the lease is about to end.
        let pause = if end.is_ok() { every.saturating_sub(begun.elapsed()) } else { PAUSE };
        tell(end);
        if is_over {
            return;
        }
        sleep(pause).await;
    }
}
