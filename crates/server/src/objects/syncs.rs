//! Requests that wait until what was written through one Open is stable: FLUSH, and WRITE with
//! WRITE_THROUGH.
//!
//! Those that wait at one time share a sync. A sync covers all that was written before it began, so
//! that a request needs one that begins after the request has come. Requests that come while one runs
//! wait for the next, which is then one for all of them. Opens of one file do not share: the kernel
//! tells each descriptor of lost data by itself.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use frevo_net::file_io::SyncFailure;
use frevo_wire::Status;
use rustix::io::Errno;
use tokio::sync::Mutex;

use crate::base::host;

/// The syncs of one Open.
#[derive(Debug, Default)]
pub struct Syncs {
    /// Number of syncs that have begun.
    begun: AtomicU64,
    /// Number of the last one that succeeded.
    done: AtomicU64,
    /// Held while one runs.
    turn: Mutex<()>,
    failure: OnceLock<Status>,
    /// The error of the host, set even if nobody waits for it any more.
    pub(crate) errno: SyncFailure,
}

impl Syncs {
    /// Runs `sync`, or waits for one of another request that begins after this call.
    ///
    /// # Errors
    /// The error of the sync, or of any earlier one. The kernel says once that data was lost and
    /// drops what it could not write, so that a later success would prove nothing: all fail until
    /// the file is opened anew.
    pub(crate) async fn join<F>(
        self: &Arc<Self>,
        sync: impl FnOnce(Arc<Self>) -> F,
    ) -> Result<(), Status>
    where
        F: Future<Output = Result<(), Status>>,
    {
        self.check()?;
        let wanted = self.begun.load(Ordering::SeqCst).saturating_add(1);
        let _turn = self.turn.lock().await;
        self.check()?;
        if self.done.load(Ordering::SeqCst) >= wanted {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, Ordering::SeqCst).saturating_add(1);
        sync(Arc::clone(self)).await.inspect_err(|failure| self.fail(*failure))?;
        self.done.store(number, Ordering::SeqCst);
        Ok(())
    }

    /// Records that data may be lost.
    pub(crate) fn fail(&self, status: Status) {
        let _ = self.failure.set(status);
    }

    fn check(&self) -> Result<(), Status> {
        if let Some(errno) = self.errno.get() {
            return Err(host::fault_of(Errno::from_raw_os_error(*errno)).status());
        }
        self.failure.get().map_or(Ok(()), |failure| Err(*failure))
    }
}
