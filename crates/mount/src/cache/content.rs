//! The pages of one file and the lease that they are kept under.

mod jumps;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use frevo_client::{File, Grant, Lease, LeaseHolder};
use frevo_wire::command::oplock_break::LeaseState;
use fuser::Errno;
use futures_util::stream::StreamExt;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use super::failures::Failures;
use super::keeper::{Count, Keeper};
use super::pages::{Evicted, Extent, Missing, Pages};
use crate::errno::{Outcome, errno};
use crate::limits::{
    AHEAD_BYTES, FETCH_PAGES, GATHER_BYTES, GATHER_EXTENTS, GATHER_MOST, LEN_MAX, PAGE_BYTES,
    READ_TRIES, SENDS_AT_ONCE, UNSENT_BYTES,
};
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

/// How much is to be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Gathered {
    Little,
    /// It is worth sending.
    Enough,
    /// Who writes more has to wait.
    TooMuch,
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
                    self.read_ahead(file, grant, end, ahead);
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

    /// Fetches pages, or waits for who does.
    async fn fetch(self: &Arc<Self>, file: &File, grant: Grant, missing: Missing) -> Outcome<()> {
        let Missing { first, count } = missing;
        let count = count.min(FETCH_PAGES);
        if self.pages.lock().is_unsent(first * PAGE, count * PAGE) {
            self.send_unasked().await;
            return Ok(());
        }
        let ended = self.fetched.notified();
        tokio::pin!(ended);
        ended.as_mut().enable();
        let mine = {
            let mut fetching = self.fetching.lock();
            if fetching.contains(&first) {
                0
            } else {
                let free = (first..first + count).take_while(|page| !fetching.contains(page));
                let free: Vec<u64> = free.collect();
                fetching.extend(&free);
                free.len() as u64
            }
        };
        if mine == 0 {
            ended.await;
            return Ok(());
        }
        self.fetch_marked(file, grant, first, mine).await
    }

    /// Fetches pages that are marked as being fetched.
    async fn fetch_marked(
        self: &Arc<Self>,
        file: &File,
        grant: Grant,
        first: u64,
        count: u64,
    ) -> Outcome<()> {
        let _marks = Marks { content: self, first, count };
        // Somebody may have written since these pages were found missing: what is not
        // on the server yet must be sent first, by who needs them.
        let Some(changes) = self.pages.lock().before_fetch(first, count) else { return Ok(()) };
        let mut bytes = vec![0; count as usize * PAGE_BYTES];
        let read = file.read_at(first * PAGE, &mut bytes).await.map_err(|error| errno(&error))?;
        let there = bytes.get(..read).unwrap_or_default();
        if self.is_still(grant) {
            let fetched =
                |pages: &mut Pages| pages.fetched(grant.version, changes, first, there, count);
            let new = self.with(fetched);
            self.keeper.came(self, &new.unwrap_or_default());
        }
        Ok(())
    }

    /// Begins to fetch what lies behind `end`, `ahead` bytes of it.
    fn read_ahead(self: &Arc<Self>, file: &File, grant: Grant, end: u64, ahead: u64) {
        if ahead == 0 {
            return;
        }
        let first = end.div_ceil(PAGE);
        let count = ahead.min(AHEAD_BYTES) / PAGE;
        let unknown = self.pages.lock().unknown(first, count);
        // One request for each run; a run begins where a whole request fits, so that
        // the window does not move by single pages.
        let mut runs: Vec<(u64, u64)> = Vec::new();
        {
            let mut fetching = self.fetching.lock();
            for page in
                unknown.into_iter().filter(|page| !fetching.contains(page)).collect::<Vec<_>>()
            {
                match runs.last_mut() {
                    Some((at, len)) if *at + *len == page && *len < FETCH_PAGES => *len += 1,
                    _ => runs.push((page, 1)),
                }
            }
            let behind = first + count;
            runs.retain(|(at, len)| *len == FETCH_PAGES || at + len < behind || *at == first);
            for (at, len) in &runs {
                fetching.extend(*at..*at + *len);
            }
        }
        for (at, len) in runs {
            // It is this one's pages that are marked, whatever the node keeps by then.
            let (content, file) = (Arc::clone(self), file.clone());
            tokio::spawn(async move {
                if let Err(error) = content.fetch_marked(&file, grant, at, len).await {
                    tracing::debug!(?error, "nothing read ahead");
                }
            });
        }
    }

    /// Keeps what is written, where the lease allows it; else sends it. To the end
    /// of the file without an offset.
    pub(crate) async fn write(
        self: &Arc<Self>,
        file: &File,
        offset: Option<u64>,
        data: &[u8],
        keep: bool,
    ) -> Outcome<()> {
        let len = data.len() as u64;
        if offset.unwrap_or(0).checked_add(len).is_none_or(|end| end > LEN_MAX) {
            return Err(Errno::EFBIG);
        }
        let wanted = LeaseState::READ | LeaseState::WRITE;
        let grant = if keep { self.grant(file, wanted).await? } else { None };
        if let Some(grant) = grant {
            self.begin(file, grant).await?;
            if self.gather(grant, offset, data) {
                return self.relieve().await;
            }
        }
        // What of it goes wrong is not this write's.
        self.send_unasked().await;
        let offset = match offset {
            Some(offset) => offset,
            None => file.metadata().await.map_err(|error| errno(&error))?.len().min(LEN_MAX),
        };
        self.pages.lock().pass(offset, len);
        let sent = file.write_at(offset, data).await;
        self.with(|pages| pages.passed(offset, data, sent.is_ok()));
        sent.map_err(|error| errno(&error))
    }

    /// Takes `data` in. Not when the lease was taken meanwhile, or others write there
    /// past the pages.
    fn gather(self: &Arc<Self>, grant: Grant, offset: Option<u64>, data: &[u8]) -> bool {
        let new = self.with(|pages| {
            // Under the mutex: who breaks the lease empties the pages after this.
            let now = self.lease.grant();
            let offset = offset.unwrap_or(pages.len());
            if now.version != grant.version
                || !now.state.contains(LeaseState::WRITE)
                || !pages.is_of(grant.version)
                || pages.is_passed(offset, data.len() as u64)
            {
                return None;
            }
            Some(pages.write(offset, data))
        });
        let Some(new) = new else { return false };
        self.keeper.came(self, &new);
        self.waiting.lock().get_or_insert_with(Instant::now);
        true
    }

    /// Takes in what is written, where that can be done at once: under the lease, and
    /// while nobody has to wait until others' data is sent. False when it was not.
    pub(crate) fn write_now(self: &Arc<Self>, offset: Option<u64>, data: &[u8]) -> bool {
        let end = offset.unwrap_or(0).checked_add(data.len() as u64);
        let grant = self.lease.grant();
        let gathers = end.is_some_and(|end| end <= LEN_MAX)
            && grant.state.contains(LeaseState::READ | LeaseState::WRITE)
            && self.gathered() != Gathered::TooMuch
            && self.gather(grant, offset, data);
        if gathers && self.gathered() != Gathered::Little {
            self.send_soon();
        }
        gathers
    }

    /// Sends when enough has come together; waits when it is too much.
    async fn relieve(self: &Arc<Self>) -> Outcome<()> {
        match self.gathered() {
            Gathered::TooMuch => return self.send().await,
            Gathered::Enough => self.send_soon(),
            Gathered::Little => {}
        }
        Ok(())
    }

    /// Has it sent, unless somebody does.
    pub(crate) fn send_soon(self: &Arc<Self>) {
        if self.sending.try_lock().is_ok() {
            let content = Arc::clone(self);
            tokio::spawn(async move { content.send_unasked().await });
        }
    }

    fn gathered(&self) -> Gathered {
        let (bytes, extents) = {
            let pages = self.pages.lock();
            (pages.unsent(), pages.extents())
        };
        if self.keeper.unsent() > UNSENT_BYTES
            || bytes > GATHER_MOST as u64 * GATHER_BYTES
            || extents > GATHER_MOST * GATHER_EXTENTS
        {
            Gathered::TooMuch
        } else if bytes >= GATHER_BYTES || extents >= GATHER_EXTENTS {
            Gathered::Enough
        } else {
            Gathered::Little
        }
    }

    /// The length of the file, when some of it is not on the server yet.
    pub(crate) fn unsent_len(&self) -> Option<u64> {
        let pages = self.pages.lock();
        (pages.unsent() > 0).then(|| pages.len())
    }

    /// Sends while nobody waits for it; who writes, syncs or closes is told what went
    /// wrong.
    pub(crate) async fn send_unasked(self: &Arc<Self>) {
        let _ = self.send().await;
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

    /// Sends all that was gathered. What goes wrong is noted for each handle too.
    pub(crate) async fn send(self: &Arc<Self>) -> Outcome<()> {
        if !self.is_unsent() {
            return Ok(());
        }
        // By a task of its own: whoever waits for it may give up.
        let content = Arc::clone(self);
        let sent = tokio::spawn(async move { content.send_gathered().await }).await;
        sent.unwrap_or(Err(Errno::EIO))
    }

    async fn send_gathered(&self) -> Outcome<()> {
        let _turn = self.sending.lock().await;
        *self.waiting.lock() = None;
        let extents = self.pages.lock().take();
        if extents.is_empty() {
            return Ok(());
        }
        let bytes: u64 = extents.iter().map(|(_, data)| data.len() as u64).sum();
        let writer = self.writer.lock().clone();
        let outcome = match writer {
            Some(writer) => send_all(&writer, extents).await,
            None => Err(Errno::EIO),
        };
        *self.sent.lock() = Some(std::time::Instant::now());
        // Before anybody else gets his turn, who would find nothing to send and think
        // that all is well.
        if let Err(error) = outcome {
            self.failures.note(error);
            self.keeper.lose(bytes);
        }
        self.with(|pages| if outcome.is_ok() { pages.sent() } else { pages.not_sent() });
        outcome
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

/// Sends extents, several at once and on several cores.
async fn send_all(writer: &File, extents: Vec<Extent>) -> Outcome<()> {
    let each = extents.into_iter().map(|(offset, data)| {
        let writer = writer.clone();
        async move {
            let written =
                tokio::spawn(async move { writer.write_at(offset, data.as_slice()).await }).await;
            written.map_err(|_| Errno::EIO)?.map_err(|error| errno(&error))
        }
    });
    let mut written = futures_util::stream::iter(each).buffer_unordered(SENDS_AT_ONCE);
    let mut outcome = Ok(());
    while let Some(one) = written.next().await {
        outcome = outcome.and(one);
    }
    outcome
}

/// Pages that are being fetched; afterwards they are not, whatever came of it.
struct Marks<'a> {
    content: &'a Content,
    first: u64,
    count: u64,
}

impl Drop for Marks<'_> {
    fn drop(&mut self) {
        let mut fetching = self.content.fetching.lock();
        (self.first..self.first + self.count).for_each(|page| _ = fetching.remove(&page));
        drop(fetching);
        self.content.fetched.notify_waiters();
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
