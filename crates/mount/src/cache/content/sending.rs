//! What is written is gathered under the lease, and sent when it is enough.

use std::sync::Arc;

use frevo_client::{File, Grant};
use frevo_wire::command::oplock_break::LeaseState;
use fuser::Errno;
use futures_util::stream::StreamExt;
use tokio::time::Instant;

use super::super::pages::Extent;
use super::Content;
use crate::errno::{Outcome, errno};
use crate::limits::{
    GATHER_BYTES, GATHER_EXTENTS, GATHER_MOST, LEN_MAX, SENDS_AT_ONCE, UNSENT_BYTES,
};

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

    /// Sends while nobody waits for it; who writes, syncs or closes is told what went
    /// wrong.
    pub(crate) async fn send_unasked(self: &Arc<Self>) {
        let _ = self.send().await;
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
        let writer = self.writer.lock().clone();
        let (outcome, lost) = send_all(writer.as_ref(), extents).await;
        *self.sent.lock() = Some(std::time::Instant::now());
        // Before anybody else gets his turn, who would find nothing to send and think
        // that all is well.
        if let Err(error) = outcome {
            self.failures.note(error);
            self.keeper.lose(lost);
        }
        self.with(|pages| if outcome.is_ok() { pages.sent() } else { pages.not_sent() });
        outcome
    }
}

/// Sends extents, several at once and on several cores. What went wrong first, and how many
/// bytes are in all that did not get there.
async fn send_all(writer: Option<&File>, extents: Vec<Extent>) -> (Outcome<()>, u64) {
    let each = extents.into_iter().map(|(offset, data)| {
        let (writer, len) = (writer.cloned(), data.len() as u64);
        async move {
            let Some(writer) = writer else { return (Err(Errno::EIO), len) };
            let written =
                tokio::spawn(async move { writer.write_at(offset, data.as_slice()).await }).await;
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
