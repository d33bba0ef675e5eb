//! The cached pages of one file, and the lease that allows them.

mod fetching;
mod random_reads;
mod sending;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use frevo_client::internal::{Grant, Lease, LeaseHolder};
use frevo_client::{File, LeaseState};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::budget::{CacheBudget, Count};
use super::failures::Failures;
use super::pages::{Evicted, Pages};
use crate::errno::{Outcome, errno};
use crate::limits::{PAGE_BYTES, READ_AHEAD_BYTES, READ_TRIES};
use random_reads::RecentPages;

const PAGE: u64 = PAGE_BYTES as u64;

/// The data cache of one file.
pub(crate) struct FileCache {
    pub(crate) lease: Arc<Lease>,
    /// Keeps the lease holder alive, which handles breaks.
    _holder: Arc<dyn LeaseHolder>,
    pages: Mutex<Pages>,
    /// The Open that sends unsent data.
    writer: Mutex<Option<File>>,
    /// Held while data is sent: older bytes must not overwrite newer ones.
    sending: tokio::sync::Mutex<()>,
    /// Failures of writing cached data back.
    pub(crate) failures: Failures,
    /// Pages that are being fetched.
    fetching: Mutex<HashSet<u64>>,
    fetched: Notify,
    /// Pages that were read in part.
    asked: Mutex<RecentPages>,
    /// The time since when data waits to be sent.
    waiting: Mutex<Option<Instant>>,
    /// The time of the last send.
    sent: Mutex<Option<std::time::Instant>>,
    budget: Arc<CacheBudget>,
}

impl FileCache {
    /// Returns an empty cache under `lease`; `holder` handles its breaks.
    pub(crate) fn new(
        lease: Arc<Lease>,
        budget: &Arc<CacheBudget>,
        holder: Arc<dyn LeaseHolder>,
    ) -> Self {
        lease.watch(Arc::downgrade(&holder));
        Self {
            lease,
            _holder: holder,
            pages: Mutex::default(),
            writer: Mutex::new(None),
            sending: tokio::sync::Mutex::default(),
            failures: Failures::default(),
            fetching: Mutex::default(),
            fetched: Notify::new(),
            asked: Mutex::default(),
            waiting: Mutex::new(None),
            sent: Mutex::new(None),
            budget: Arc::clone(budget),
        }
    }

    /// Changes the pages and updates the budget.
    fn with<T>(&self, work: impl FnOnce(&mut Pages) -> T) -> T {
        let mut pages = self.pages.lock();
        let before = Count::of(&pages);
        let done = work(&mut pages);
        self.budget.count(before, Count::of(&pages));
        done
    }

    /// Returns the count of changes, to date a length that the server reports.
    pub(crate) fn changes(&self) -> u64 {
        self.pages.lock().changes()
    }

    /// Records an open of the file, with the length `len` when the pages had changed `changes`
    /// times.
    pub(crate) fn opened(&self, file: &File, writes: bool, len: u64, changes: u64) {
        if writes {
            *self.writer.lock() = Some(file.clone());
        }
        let grant = self.lease.grant();
        self.with(|pages| {
            let is_known = pages.is_of(grant.version) || pages.unsent() > 0;
            if grant.state.contains(LeaseState::READ) && !is_known {
                pages.begin(grant.version, len, changes);
            }
        });
    }

    /// Discards the cache after the last close.
    pub(crate) fn closed(&self) {
        *self.writer.lock() = None;
        self.forget();
    }

    /// Returns the lease if it includes `wanted`; re-establishes a lost session first.
    async fn grant(&self, file: &File, wanted: LeaseState) -> Outcome<Option<Grant>> {
        let has = |grant: &Grant| grant.state.contains(wanted);
        let grant = self.lease.grant();
        if has(&grant) {
            return Ok(Some(grant));
        }
        file.confirm().await.map_err(|error| errno(&error))?;
        Ok(Some(self.lease.grant()).filter(has))
    }

    /// Starts a new cache if the pages belong to an older version of the lease.
    async fn begin(self: &Arc<Self>, file: &File, grant: Grant) -> Outcome<()> {
        if self.pages.lock().is_of(grant.version) {
            return Ok(());
        }
        self.send_unasked().await;
        let changes = self.changes();
        let len = file.metadata().await.map_err(|error| errno(&error))?.len();
        self.with(|pages| {
            if !pages.is_of(grant.version) {
                pages.begin(grant.version, len, changes);
            }
        });
        Ok(())
    }

    /// Reads through the cache if the lease allows it, otherwise from the server.
    pub(crate) async fn read(
        self: &Arc<Self>,
        file: &File,
        offset: u64,
        len: usize,
        ahead: u64,
    ) -> Outcome<Bytes> {
        let Some(grant) = self.grant(file, LeaseState::READ).await? else {
            return self.read_direct(file, offset, len).await;
        };
        self.begin(file, grant).await?;
        let mut jumps = None;
        // While others write, the read goes to the server after some attempts.
        for _ in 0..READ_TRIES {
            if !self.is_still(grant) {
                break;
            }
            let found = {
                let pages = self.pages.lock();
                if !pages.is_of(grant.version) {
                    break;
                }
                pages.read(offset, len)
            };
            match found {
                Ok(data) => {
                    let end = offset + data.len() as u64;
                    self.read_ahead(file, grant, (offset, end), ahead);
                    return Ok(data.into());
                }
                Err(missing) => {
                    let jumps =
                        jumps.get_or_insert_with(|| ahead == 0 && self.is_jump(len, missing));
                    if !*jumps {
                        self.fetch(file, grant, missing).await?;
                    } else if let Some(data) = self.read_that(file, grant, offset, len).await? {
                        return Ok(data);
                    }
                }
            }
        }
        self.read_direct(file, offset, len).await
    }

    fn is_still(&self, grant: Grant) -> bool {
        let now = self.lease.grant();
        now.version == grant.version && now.state.contains(LeaseState::READ)
    }

    pub(crate) async fn read_direct(
        self: &Arc<Self>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Outcome<Bytes> {
        self.send_unasked().await;
        let mut data = vec![0; len];
        let count = file.read_at(&mut data, offset).await.map_err(|error| errno(&error))?;
        data.truncate(count);
        Ok(data.into())
    }

    /// Returns the length of the file if some of its data is unsent.
    pub(crate) fn unsent_len(&self) -> Option<u64> {
        let pages = self.pages.lock();
        (pages.unsent() > 0).then(|| pages.len())
    }

    /// Returns true if an answer of the server, requested at `asked`, may be older than local
    /// writes.
    pub(crate) fn is_ahead_of(&self, asked: std::time::Instant) -> bool {
        self.is_unsent() || self.sent.lock().is_some_and(|at| at >= asked)
    }

    /// The time since when data waits to be sent.
    pub(crate) fn waiting(&self) -> Option<Instant> {
        *self.waiting.lock()
    }

    /// Returns the number of unsent extents.
    #[cfg(test)]
    pub(crate) fn unsent_extents(&self) -> usize {
        self.pages.lock().extents()
    }

    /// Returns true if any data is unsent.
    pub(crate) fn is_unsent(&self) -> bool {
        self.pages.lock().unsent() > 0
    }

    /// Sets the length of the file on the server; holds off sending meanwhile.
    pub(crate) async fn resize(self: &Arc<Self>, file: &File, len: u64) -> Outcome<()> {
        self.send_unasked().await;
        let _turn = self.sending.lock().await;
        let resized = file.set_len(len).await.map_err(|error| errno(&error));
        self.with(|pages| if resized.is_ok() { pages.resized(len) } else { pages.forget() });
        resized
    }

    /// Changes the file on the server by `work` and discards the pages; holds off sending
    /// meanwhile.
    pub(crate) async fn change<T>(
        self: &Arc<Self>,
        work: impl AsyncFnOnce() -> frevo_client::Result<T>,
    ) -> Outcome<T> {
        self.send_unasked().await;
        let turn = self.sending.lock().await;
        let done = work().await.map_err(|error| errno(&error));
        self.forget();
        drop(turn);
        done
    }

    /// Discards the clean pages.
    pub(crate) fn forget(&self) {
        self.with(Pages::forget);
    }

    /// Returns true if the page is cached.
    pub(super) fn is_kept(&self, page: u64) -> bool {
        self.pages.lock().is_kept(page)
    }

    /// Evicts a page, if it is not unsent.
    pub(super) fn evict(&self, page: u64) -> Evicted {
        self.with(|pages| pages.evict(page))
    }
}

impl std::fmt::Debug for FileCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FileCache({:?})", self.lease)
    }
}

impl Drop for FileCache {
    fn drop(&mut self) {
        self.budget.count(Count::of(self.pages.get_mut()), Count::of(&Pages::default()));
    }
}

/// The read-ahead of one handle: the window doubles for a sequential reader, and is 0 for random
/// reads.
#[derive(Debug, Default)]
pub(crate) struct ReadAhead {
    next: AtomicU64,
    window: AtomicU64,
}

impl ReadAhead {
    /// Records a read of `len` bytes at `offset`; returns the bytes to fetch after it.
    pub(crate) fn ahead(&self, offset: u64, len: u64) -> u64 {
        let expected = self.next.swap(offset + len, Ordering::AcqRel);
        let window = self.window.load(Ordering::Acquire);
        // Requests of one reader may arrive out of order.
        let follows = offset.abs_diff(expected) <= window.max(len);
        let window = match (follows, window) {
            (false, _) => 0,
            (true, 0) => 2 * PAGE,
            (true, window) => (window * 2).min(READ_AHEAD_BYTES),
        };
        self.window.store(window, Ordering::Release);
        window
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_goes_on_is_read_ahead_of_and_who_jumps_is_not() {
        let course = ReadAhead::default();
        let windows: Vec<u64> = (0..12).map(|at| course.ahead(at * 4096, 4096)).collect();
        assert!(windows.is_sorted() && windows[0] > 0);
        assert_eq!(windows.last(), Some(&READ_AHEAD_BYTES));
        assert_eq!(course.ahead(1 << 40, 4096), 0);
        assert_eq!(course.ahead(1 << 20, 4096), 0);
    }
}
