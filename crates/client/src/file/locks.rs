//! Byte-range locks: MS-SMB2 3.2.4.19.

use std::sync::Arc;

use frevo_wire::Command;
use frevo_wire::command::lock::{self, LockElement, LockFlags};
use frevo_wire::file_id::FileId;
use tokio::time::{sleep, timeout};

use crate::Status;
use crate::connection::{Call, Patience};
use crate::error::{Cause, Error, Result};
use crate::file::File;
use crate::limits::{BACK_OFF_FIRST, CANCELLED_MAX, CANCELLED_PAUSE, REPEAT_PAUSE_MAX};
use crate::open::{Open, carried_through};
use crate::sequences::Sequence;
use crate::share::Replay;

/// The kind of a byte-range lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LockKind {
    /// Other opens may lock the bytes for sharing, and may not write them.
    Shared,
    /// Other opens may neither lock, read nor write the bytes.
    Exclusive,
}

impl LockKind {
    const fn flag(self) -> LockFlags {
        match self {
            Self::Shared => LockFlags::SHARED_LOCK,
            Self::Exclusive => LockFlags::EXCLUSIVE_LOCK,
        }
    }
}

impl File {
    /// Locks `len` bytes from `offset` on, and waits while another open has locked any of
    /// them. A call that is given up (its future dropped) locks nothing: what the server
    /// granted meanwhile is unlocked.
    ///
    /// # Errors
    /// Fails if the server does, or the connection is lost and not recovered in time.
    pub async fn lock(&self, offset: u64, len: u64, kind: LockKind) -> Result<()> {
        self.lock_with(offset, len, kind.flag()).await
    }

    /// Locks `len` bytes from `offset` on, if no other open has locked any of them.
    ///
    /// # Errors
    /// Fails with [`Status::LOCK_NOT_GRANTED`](crate::Status::LOCK_NOT_GRANTED)
    /// (`WouldBlock`) if another open has, and as [`Self::lock`] does.
    pub async fn try_lock(&self, offset: u64, len: u64, kind: LockKind) -> Result<()> {
        self.lock_with(offset, len, kind.flag() | LockFlags::FAIL_IMMEDIATELY).await
    }

    async fn lock_with(&self, offset: u64, len: u64, flags: LockFlags) -> Result<()> {
        let patience = Arc::new(Patience::default());
        let work =
            locked(Arc::clone(&self.open), ByteRange { offset, len }, flags, Arc::clone(&patience));
        let _waits = Waits(patience);
        carried_through(work).await?.keep();
        Ok(())
    }

    /// Unlocks the range that [`Self::lock`] or [`Self::try_lock`] locked, with the same
    /// offset and length.
    ///
    /// # Errors
    /// Fails with [`Status::RANGE_NOT_LOCKED`](crate::Status::RANGE_NOT_LOCKED) if this file
    /// has not locked exactly this range.
    pub async fn unlock(&self, offset: u64, len: u64) -> Result<()> {
        let work = unlocked(Arc::clone(&self.open), ByteRange { offset, len });
        carried_through(work).await
    }
}

/// A range of bytes of a file.
#[derive(Clone, Copy)]
struct ByteRange {
    offset: u64,
    len: u64,
}

impl ByteRange {
    /// The range in a LOCK with `flags`.
    const fn with(self, flags: LockFlags) -> LockElement {
        LockElement { offset: self.offset, length: self.len, flags }
    }
}

/// A caller that waits for a lock. Dropping it cancels the lock.
struct Waits(Arc<Patience>);

impl Drop for Waits {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// A lock that the caller has not heard of yet. Dropping it unlocks.
struct PendingLock {
    open: Option<Arc<Open>>,
    range: ByteRange,
}

impl PendingLock {
    fn keep(mut self) {
        self.open = None;
    }
}

impl Drop for PendingLock {
    fn drop(&mut self) {
        let Some(open) = self.open.take() else { return };
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(unlocked(open, self.range));
    }
}

async fn locked(
    open: Arc<Open>,
    range: ByteRange,
    flags: LockFlags,
    patience: Arc<Patience>,
) -> Result<PendingLock> {
    open.make_resilient("lock").await?;
    let waits = !flags.contains(LockFlags::FAIL_IMMEDIATELY);
    match open.sequences.take_waiting().filter(|_| waits) {
        Some(sequence) => {
            lock_call(&open, range.with(flags), "lock", &sequence, Some(&patience)).await?;
        }
        None => try_until_locked(&open, range, flags, &patience).await?,
    }
    open.lock_taken();
    Ok(PendingLock { open: Some(open), range })
}

/// Locks at once or not at all. One that should wait tries again until it succeeds: as many wait as
/// can be told apart from their repetitions.
async fn try_until_locked(
    open: &Open,
    range: ByteRange,
    flags: LockFlags,
    patience: &Arc<Patience>,
) -> Result<()> {
    let waits = !flags.contains(LockFlags::FAIL_IMMEDIATELY);
    let at_once = flags | LockFlags::FAIL_IMMEDIATELY;
    let mut pause = BACK_OFF_FIRST;
    loop {
        let sequence = open.sequences.take().await;
        match lock_call(open, range.with(at_once), "lock", &sequence, Some(patience)).await {
            Err(error) if waits && error.status() == Some(Status::LOCK_NOT_GRANTED) => {}
            outcome => return outcome,
        }
        drop(sequence);
        // The pause ends early if the caller's patience ends. Then the next request returns the
        // error.
        let _ = timeout(pause, patience.ended()).await;
        pause = (pause * 2).min(REPEAT_PAUSE_MAX);
    }
}

async fn unlocked(open: Arc<Open>, range: ByteRange) -> Result<()> {
    let sequence = open.sequences.take().await;
    lock_call(&open, range.with(LockFlags::UNLOCK), "unlock", &sequence, None).await?;
    open.lock_released();
    Ok(())
}

/// Sends a LOCK. One whose answer is lost is sent again with the same sequence, by which a
/// server that keeps the Open recognises it (MS-SMB2 3.3.5.14).
async fn lock_call(
    open: &Open,
    element: LockElement,
    operation: &'static str,
    sequence: &Sequence<'_>,
    patience: Option<&Arc<Patience>>,
) -> Result<()> {
    let LockElement { offset, length, flags } = element;
    let waits = !flags.intersects(LockFlags::FAIL_IMMEDIATELY | LockFlags::UNLOCK);
    let mut was_sent = false;
    let mut call = |file_id: FileId| {
        if !was_sent && patience.is_some_and(|patience| patience.has_ended()) {
            return Err(Cause::Usage("the call was given up"));
        }
        was_sent = true;
        let locks = vec![LockElement { offset, length, flags }];
        let request = lock::Request { lock_sequence: sequence.sequence, file_id, locks };
        let call = Call::new(Command::LOCK, |w| request.encode(w));
        Ok(Call { waits, patience: patience.cloned().filter(|_| waits), ..call })
    };
    let (mut cancelled, mut cancelled_in) = (0, None);
    loop {
        let also = [Status::CANCELLED];
        let answer = open.ask(Replay::Idempotent, operation, &also, &mut call).await?;
        if answer.status() == Status::SUCCESS {
            return Ok(());
        }
        // The server gives its share away: the lock is waited for at the next node, where the count
        // begins anew. Or the caller waits no longer.
        let generation = open.generation();
        if cancelled_in.replace(generation) != Some(generation) {
            cancelled = 0;
        }
        cancelled += 1;
        if cancelled >= CANCELLED_MAX || patience.is_none_or(|patience| patience.has_ended()) {
            return Err(Error::new(Status::CANCELLED, operation, &*open.url));
        }
        sleep(CANCELLED_PAUSE).await;
    }
}
