//! The cached pages of one file, and the lease that allows them.

mod fetching;
mod random_reads;
mod sending;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use frevo_client::internal::{Grant, Lease, LeaseHolder};
use frevo_client::{File, LeaseState, Metadata};
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
    /// The file's size and time when its pages were known to be current; None after a write by this
    /// mount.
    seen: Mutex<Option<Stamp>>,
    budget: Arc<CacheBudget>,
}

/// The state of a file's cache before a CREATE is sent.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BeforeOpen {
    changes: u64,
    /// The version of the lease.
    version: u64,
    /// No other client could change the file: the lease allowed to cache writes.
    is_sole: bool,
}

impl BeforeOpen {
    /// A file without a cache.
    pub(crate) const NEW: Self = Self { changes: 0, version: 0, is_sole: false };
}

/// The size and the time of modification of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    len: u64,
    modified: u64,
}

impl Stamp {
    fn of(metadata: &Metadata) -> Self {
        Self { len: metadata.len(), modified: metadata.modified_ticks().0 }
    }
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
            seen: Mutex::new(None),
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

    /// Returns the state of the cache before a CREATE is sent.
    pub(crate) fn before_open(&self) -> BeforeOpen {
        let grant = self.lease.grant();
        let is_sole = grant.state.contains(LeaseState::WRITE);
        BeforeOpen { changes: self.changes(), version: grant.version, is_sole }
    }

    /// Records an open of the file, with the metadata and perhaps the first page that came with the
    /// answer. Discards pages that are older than that metadata. The caller has waited for the breaks
    /// that the server sent before its answer.
    pub(crate) fn opened(
        self: &Arc<Self>,
        file: &File,
        writes: bool,
        before: BeforeOpen,
        at_open: &Metadata,
        first_page: Option<Vec<u8>>,
    ) {
        if writes {
            *self.writer.lock() = Some(file.clone());
        }
        let grant = self.lease.grant();
        if !grant.state.contains(LeaseState::READ) {
            return;
        }
        let len = at_open.len();
        // The page that came with the open is used only if it is complete, because if the file grew
        // meanwhile, the page may be too short.
        let is_page = |data: &Vec<u8>| data.len() as u64 == len.min(PAGE);
        // The page is used only if the lease was held all the time since the page was read.
        let first_page = first_page.filter(is_page).filter(|_| before.version == grant.version);
        // If this mount held the right to cache writes (WRITE) before this open and still holds it,
        // no other client has changed the file. A right that only this open has granted does not
        // show that.
        let is_sole = before.is_sole && grant.state.contains(LeaseState::WRITE);
        let is_old = self.is_older(Stamp::of(at_open), is_sole);
        let new = self.with(|pages| {
            let is_unchanged = pages.changes() == before.changes;
            let is_current = is_unchanged && pages.before_fetch(0, 1).is_some();
            if is_old {
                pages.forget();
            }
            if !pages.is_of(grant.version) && pages.unsent() == 0 && is_unchanged {
                pages.begin(grant.version, len, pages.changes());
            }
            let data = first_page.filter(|_| is_current)?;
            pages.fetched(grant.version, pages.changes(), 0, &data, 1)
        });
        self.budget.came(self, &new.unwrap_or_default());
    }

    /// Discards pages that are older than the server's metadata `now` of the file. With the right to
    /// cache writes, no other client can have changed it.
    pub(crate) fn check(&self, now: &Metadata) {
        let is_sole = self.lease.grant().state.contains(LeaseState::WRITE);
        if self.is_older(Stamp::of(now), is_sole) {
            self.forget();
        }
    }

    /// Returns true if the pages are older than the file, which is at `now`, and remembers that.
    /// `is_sole` is true if no other client can have changed it.
    fn is_older(&self, now: Stamp, is_sole: bool) -> bool {
        // Unsent data makes this file newer than the server's copy, so the two are compared only
        // after the data was sent.
        if self.is_unsent() {
            return false;
        }
        let before = self.seen.lock().replace(now);
        !is_sole && before.is_some_and(|before| before != now)
    }

    /// Forgets the metadata that the pages belong to, after a write by this mount.
    pub(super) fn changed(&self) {
        *self.seen.lock() = None;
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
        let found = file.metadata().await.map_err(|error| errno(&error))?;
        self.with(|pages| {
            if !pages.is_of(grant.version) {
                pages.begin(grant.version, found.len(), changes);
            }
        });
        *self.seen.lock() = Some(Stamp::of(&found));
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
        // If other clients keep writing, the cached pages change in each of READ_TRIES attempts;
        // then the data is read from the server.
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
                    self.read_ahead(file, grant, offset..end, ahead);
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
    pub(crate) async fn resize(self: &Arc<Self>, file: &File, len: u64) -> Outcome<Metadata> {
        self.send_unasked().await;
        let _turn = self.sending.lock().await;
        self.changed();
        let resized = file.resize(len).await.map_err(|error| errno(&error));
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
        self.changed();
        let done = work().await.map_err(|error| errno(&error));
        self.forget();
        drop(turn);
        done
    }

    /// Discards the clean pages.
    pub(crate) fn forget(&self) {
        self.with(Pages::forget);
    }

    /// Returns true if anything is cached.
    pub(crate) fn is_any(&self) -> bool {
        self.pages.lock().is_any()
    }

    /// Returns true if the page is cached.
    pub(crate) fn is_kept(&self, page: u64) -> bool {
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
        // Parallel reads of one sequential reader may arrive out of order, so `offset` may differ a
        // little from `expected`.
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
