//! Write-back: writes are collected under the lease and sent in larger parts.

use std::sync::Arc;

use frevo_client::internal::{Grant, carried_through};
use frevo_client::{File, LeaseState};
use fuser::Errno;
use futures_util::stream::StreamExt;
use tokio::time::Instant;

use super::super::pages::Extent;
use super::FileCache;
use crate::errno::{Outcome, errno};
use crate::limits::{
    LEN_MAX, SENDS_AT_ONCE, UNSENT_BYTES, WRITE_BACK_BYTES, WRITE_BACK_EXTENTS, WRITE_BACK_FACTOR,
};

/// The level of unsent data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum DirtyLevel {
    Low,
    /// Enough to be worth sending.
    High,
    /// Writers have to wait.
    TooHigh,
}

impl FileCache {
    /// Caches a write if the lease allows it, otherwise sends it. Without an offset it goes to the
    /// end of the file.
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
        // Errors of earlier writes are reported by the handles that wrote, not by this write.
        self.send_unasked().await;
        let offset = match offset {
            Some(offset) => offset,
            None => file.metadata().await.map_err(|error| errno(&error))?.len().min(LEN_MAX),
        };
        self.changed();
        self.pages.lock().pass(offset, len);
        let sent = file.write_all_at(data, offset).await;
        self.with(|pages| pages.passed(offset, data, sent.is_ok()));
        sent.map_err(|error| errno(&error))
    }

    /// Caches `data`; returns false if the lease broke meanwhile, or another write past the cache
    /// overlaps.
    fn gather(self: &Arc<Self>, grant: Grant, offset: Option<u64>, data: &[u8]) -> bool {
        let new = self.with(|pages| {
            // The lease is checked while the pages are locked, because a lease break needs the same
            // lock to empty the pages. So it cannot come between check and write.
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
        self.budget.came(self, &new);
        self.waiting.lock().get_or_insert_with(Instant::now);
        true
    }

    /// Caches a write if that needs no wait; returns false otherwise.
    pub(crate) fn write_now(self: &Arc<Self>, offset: Option<u64>, data: &[u8]) -> bool {
        let end = offset.unwrap_or(0).checked_add(data.len() as u64);
        let grant = self.lease.grant();
        let gathers = end.is_some_and(|end| end <= LEN_MAX)
            && grant.state.contains(LeaseState::READ | LeaseState::WRITE)
            && self.gathered() != DirtyLevel::TooHigh
            && self.gather(grant, offset, data);
        if gathers && self.gathered() != DirtyLevel::Low {
            self.send_soon();
        }
        gathers
    }

    /// Starts to send at a high level; waits at a too high one.
    async fn relieve(self: &Arc<Self>) -> Outcome<()> {
        match self.gathered() {
            DirtyLevel::TooHigh => return self.send().await,
            DirtyLevel::High => self.send_soon(),
            DirtyLevel::Low => {}
        }
        Ok(())
    }

    /// Sends in the background, unless a send is in progress.
    pub(crate) fn send_soon(self: &Arc<Self>) {
        if self.sending.try_lock().is_ok() {
            let content = Arc::clone(self);
            tokio::spawn(async move { content.send_unasked().await });
        }
    }

    fn gathered(&self) -> DirtyLevel {
        let (bytes, extents) = {
            let pages = self.pages.lock();
            (pages.unsent(), pages.extents())
        };
        if self.budget.unsent() > UNSENT_BYTES
            || bytes > WRITE_BACK_FACTOR as u64 * WRITE_BACK_BYTES
            || extents > WRITE_BACK_FACTOR * WRITE_BACK_EXTENTS
        {
            DirtyLevel::TooHigh
        } else if bytes >= WRITE_BACK_BYTES || extents >= WRITE_BACK_EXTENTS {
            DirtyLevel::High
        } else {
            DirtyLevel::Low
        }
    }

    /// Sends without a waiting program; write, fsync and close report failures later.
    pub(crate) async fn send_unasked(self: &Arc<Self>) {
        let _ = self.send().await;
    }

    /// Sends all unsent data. A failure is also recorded for each handle.
    pub(crate) async fn send(self: &Arc<Self>) -> Outcome<()> {
        if !self.is_unsent() {
            return Ok(());
        }
        // The data is sent even if the waiting program gives up (a signal).
        let content = Arc::clone(self);
        carried_through(async move { content.send_gathered().await }).await
    }

    async fn send_gathered(&self) -> Outcome<()> {
        let _turn = self.sending.lock().await;
        *self.waiting.lock() = None;
        let extents = self.pages.lock().take();
        if extents.is_empty() {
            return Ok(());
        }
        self.changed();
        let writer = self.writer.lock().clone();
        let (outcome, lost) = send_all(writer.as_ref(), extents).await;
        *self.sent.lock() = Some(std::time::Instant::now());
        // The error is recorded while the pages are locked. Otherwise the next caller would find no
        // unsent data and report success.
        if let Err(error) = outcome {
            self.failures.note(error);
            self.budget.lose(lost);
        }
        self.with(|pages| if outcome.is_ok() { pages.sent() } else { pages.not_sent() });
        outcome
    }
}

/// Sends extents, several at once and on several cores. Returns the first failure, and the bytes of
/// all failed extents.
async fn send_all(writer: Option<&File>, extents: Vec<Extent>) -> (Outcome<()>, u64) {
    if let (Some(writer), [(offset, data)]) = (writer, &*extents) {
        let written = writer.write_all_at(data.as_slice(), *offset).await;
        let lost = if written.is_err() { data.len() as u64 } else { 0 };
        return (written.map_err(|error| errno(&error)), lost);
    }
    let each = extents.into_iter().map(|(offset, data)| {
        let (writer, len) = (writer.cloned(), data.len() as u64);
        async move {
            let Some(writer) = writer else { return (Err(Errno::EIO), len) };
            let written =
                tokio::spawn(async move { writer.write_all_at(data.as_slice(), offset).await })
                    .await;
            let written = written.map_err(|_| Errno::EIO);
            (written.and_then(|written| written.map_err(|error| errno(&error))), len)
        }
    });
    let mut written = futures_util::stream::iter(each).buffer_unordered(SENDS_AT_ONCE);
    let (mut outcome, mut lost) = (Ok(()), 0);
    while let Some((one, len)) = written.next().await {
        lost += if one.is_err() { len } else { 0 };
        outcome = outcome.and(one);
    }
    (outcome, lost)
}
