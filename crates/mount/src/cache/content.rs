//! The pages of one file and the lease that they are kept under.

mod fetching;
mod jumps;
mod sending;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use frevo_client::{File, Grant, Lease, LeaseHolder};
use frevo_wire::command::oplock_break::LeaseState;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::failures::Failures;
use super::keeper::{Count, Keeper};
use super::pages::{Evicted, Pages};
use crate::errno::{Outcome, errno};
use crate::limits::{AHEAD_BYTES, PAGE_BYTES, READ_TRIES};
use jumps::Asked;

const PAGE: u64 = PAGE_BYTES as u64;

/// What is kept of one file.
pub(crate) struct Content {
    pub(crate) lease: Arc<Lease>,
    /// Who is told when it breaks.
    _holder: Arc<dyn LeaseHolder>,
    pages: Mutex<Pages>,
    /// By which is sent what was gathered.
    writer: Mutex<Option<File>>,
    /// One at a time sends, so that no older bytes go over newer ones.
    sending: tokio::sync::Mutex<()>,
    /// What went wrong when nobody waited.
    pub(crate) failures: Failures,
    /// Pages being fetched.
    fetching: Mutex<HashSet<u64>>,
    fetched: Notify,
    /// Pages that were asked for in part.
    asked: Mutex<Asked>,
    /// Since when something waits to be sent.
    waiting: Mutex<Option<Instant>>,
    /// When something was sent last.
    sent: Mutex<Option<std::time::Instant>>,
    keeper: Arc<Keeper>,
}

impl Content {
    /// Kept under `lease`; `holder` gives it up when that breaks.
    pub(crate) fn new(
        lease: Arc<Lease>,
        keeper: &Arc<Keeper>,
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
            keeper: Arc::clone(keeper),
        }
    }

    /// Does something to the pages, and has it counted.
    fn with<T>(&self, work: impl FnOnce(&mut Pages) -> T) -> T {
        let mut pages = self.pages.lock();
        let before = Count::of(&pages);
        let done = work(&mut pages);
        self.keeper.count(before, Count::of(&pages));
        done
    }

    /// How often the pages changed: for who asks for the length, to say how old it is.
    pub(crate) fn changes(&self) -> u64 {
        self.pages.lock().changes()
    }

    /// A file was opened, of so many bytes when the pages had changed so often.
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

    /// All is closed: nothing may be kept any more.
    pub(crate) fn closed(&self) {
        *self.writer.lock() = None;
        self.forget();
    }

    /// What the lease allows now, the session taken up again if it was lost.
    async fn grant(&self, file: &File, wanted: LeaseState) -> Outcome<Option<Grant>> {
        let has = |grant: &Grant| grant.state.contains(wanted);
        let grant = self.lease.grant();
        if has(&grant) {
            return Ok(Some(grant));
        }
        file.confirm().await.map_err(|error| errno(&error))?;
        Ok(Some(self.lease.grant()).filter(has))
    }

    /// Makes sure that the pages are of this version of the lease.
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

    /// Reads through the pages where the lease allows it, else from the server.
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
        // Others may write meanwhile; then it goes to the server.
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
        let count = file.read_at(offset, &mut data).await.map_err(|error| errno(&error))?;
        data.truncate(count);
        Ok(data.into())
    }

    /// The length of the file, when some of it is not on the server yet.
    pub(crate) fn unsent_len(&self) -> Option<u64> {
        let pages = self.pages.lock();
        (pages.unsent() > 0).then(|| pages.len())
    }

    /// Whether the server, asked at `asked`, may have said what is older than what was
    /// written.
    pub(crate) fn is_ahead_of(&self, asked: std::time::Instant) -> bool {
        self.is_unsent() || self.sent.lock().is_some_and(|at| at >= asked)
    }

    /// Since when something waits to be sent.
    pub(crate) fn waiting(&self) -> Option<Instant> {
        *self.waiting.lock()
    }

    /// How many extents are to be sent.
    #[cfg(test)]
    pub(crate) fn unsent_extents(&self) -> usize {
        self.pages.lock().extents()
    }

    /// Whether anything is not on the server yet.
    pub(crate) fn is_unsent(&self) -> bool {
        self.pages.lock().unsent() > 0
    }

    /// The file has another length on the server now; nobody sends meanwhile.
    pub(crate) async fn resize(self: &Arc<Self>, file: &File, len: u64) -> Outcome<()> {
        self.send_unasked().await;
        let _turn = self.sending.lock().await;
        let resized = file.set_len(len).await.map_err(|error| errno(&error));
        self.with(|pages| if resized.is_ok() { pages.resized(len) } else { pages.forget() });
        resized
    }

    /// Changes the file on the server in a way that the pages do not know; nobody
    /// sends meanwhile.
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

    /// Forgets what was read.
    pub(crate) fn forget(&self) {
        self.with(Pages::forget);
    }

    /// Whether a page is kept.
    pub(super) fn is_kept(&self, page: u64) -> bool {
        self.pages.lock().is_kept(page)
    }

    /// Forgets a page.
    pub(super) fn evict(&self, page: u64) -> Evicted {
        self.with(|pages| pages.evict(page))
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Content({:?})", self.lease)
    }
}

impl Drop for Content {
    fn drop(&mut self) {
        self.keeper.count(Count::of(self.pages.get_mut()), Count::of(&Pages::default()));
    }
}

/// How far to read ahead of a reader who goes through a file from one end to the
/// other: twice as far each time, and nothing for who jumps about.
#[derive(Debug, Default)]
pub(crate) struct Course {
    next: AtomicU64,
    window: AtomicU64,
}

impl Course {
    /// He reads `len` bytes at `offset`: how much to fetch behind them.
    pub(crate) fn ahead(&self, offset: u64, len: u64) -> u64 {
        let expected = self.next.swap(offset + len, Ordering::AcqRel);
        let window = self.window.load(Ordering::Acquire);
        // Requests of one reader may overtake each other.
        let follows = offset.abs_diff(expected) <= window.max(len);
        let window = match (follows, window) {
            (false, _) => 0,
            (true, 0) => 2 * PAGE,
            (true, window) => (window * 2).min(AHEAD_BYTES),
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
        let course = Course::default();
        let windows: Vec<u64> = (0..12).map(|at| course.ahead(at * 4096, 4096)).collect();
        assert!(windows.is_sorted() && windows[0] > 0);
        assert_eq!(windows.last(), Some(&AHEAD_BYTES));
        assert_eq!(course.ahead(1 << 40, 4096), 0);
        assert_eq!(course.ahead(1 << 20, 4096), 0);
    }
}
