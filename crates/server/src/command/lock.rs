//! LOCK: MS-SMB2 3.3.5.14.

mod host;

use std::cell::RefCell;
use std::future::poll_fn;
use std::pin::pin;
use std::task::Poll;

use frevo_proto::Dialect;
use frevo_proto::replay::Age;
use frevo_store::byte_range::{Mode, Range, Ticket};
use frevo_store::lease::Cause;
use frevo_store::{File, FileCell};
use frevo_wire::Status;
use frevo_wire::command::lock::{self, LockElement, LockFlags, LockSequence};
use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::dtyp::AccessMask;

use crate::base::limits::{LOCK_BYTES, LOCKS_PER_REQUEST, LOCKS_PER_SESSION};
use crate::base::pools::slots::Slot;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::durable::{Survival, record};
use crate::objects::host_locks;
use crate::objects::ledger::{Charge, Kind};
use crate::objects::open::{FileOpen, Open};
use crate::objects::refusal::Outcome;
use crate::objects::session::State;

/// Locks or unlocks byte ranges.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = lock::Request::parse(rq.message)?;
    let open = rq.open()?;
    let file = open.file()?;
    if request.locks.is_empty() {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if request.locks.len() > LOCKS_PER_REQUEST {
        return Err(Status::INSUFFICIENT_RESOURCES.into());
    }
    // Windows and smbd let an expired session only unlock, and so does this server; MS-SMB2
    // 3.3.5.2.9 would allow it every LOCK.
    let unlocks = request.locks.iter().all(|lock| lock.flags == LockFlags::UNLOCK);
    if !unlocks && rq.session()?.state() == State::Expired {
        return Err(Status::NETWORK_SESSION_EXPIRED.into());
    }
    // MS-FSA 2.1.5.8, 2.1.5.9: a directory cannot be locked.
    if file.is_directory {
        return Err(Status::INVALID_PARAMETER.into());
    }
    // As on Windows, the client needs a right to read or to write data.
    open.require_any(
        AccessMask::READ_DATA
            | AccessMask::WRITE_DATA
            | AccessMask::APPEND_DATA
            | AccessMask::EXECUTE,
    )?;
    let verifies = verifies_sequences(rq, open)? && !planted!(LockTwice);
    let sequence = verifies.then_some(request.lock_sequence);
    if let Some(_attempt) = begin(rq, open, sequence).await? {
        carry_out(rq, open, file, &request.locks, sequence).await?;
    }
    lock::Response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

async fn carry_out(
    rq: &Request<'_>,
    open: &Open,
    file: &FileOpen,
    locks: &[LockElement],
    sequence: Option<LockSequence>,
) -> Result<(), Status> {
    if locks.first().is_some_and(|first| first.flags == LockFlags::UNLOCK) {
        if let Err(status) = unlock(open, file, locks, sequence) {
            // An unlock that fails in the middle leaves the earlier ranges unlocked, so the durable
            // record is updated as well.
            let _ = record::keep(rq.server(), open).await;
            return Err(status);
        }
        return record::keep(rq.server(), open).await;
    }
    let modes = modes(locks)?;
    let mut taken = Taken { rq, open, file, ranges: Vec::new(), places: Vec::new(), sequence };
    taken.places = places_for(rq, modes.len())?;
    rq.contend(file, Cause::Write).await?;
    rq.still_served()?;
    let locking = Locking { open, file, ranges: RefCell::default() };
    lock(&locking, locks, &modes).await?;
    taken.ranges = locking.carried_out(sequence);
    record::keep(rq.server(), open).await?;
    taken.stay();
    Ok(())
}

/// An attempt at a LOCK. Its repetition waits for its end.
struct Attempt<'a> {
    open: &'a Open,
    sequence: Option<LockSequence>,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        if let Some(sequence) = self.sequence {
            self.open.lock_sequences.lock().end(sequence);
            self.open.lock_turns.notify_waiters();
        }
    }
}

/// Begins an attempt. A repetition waits for the first attempt: the server may not know yet that
/// the channel of the first one is lost, and each would conflict with the other's lock. None for a
/// LOCK that was carried out before; its locks then stay, even if its channel ends before it is
/// answered.
///
/// # Errors
/// FILE_NOT_AVAILABLE for a late copy of a request that was not carried out.
async fn begin<'a>(
    rq: &Request<'_>,
    open: &'a Open,
    sequence: Option<LockSequence>,
) -> Result<Option<Attempt<'a>>, Status> {
    let Some(number) = sequence else {
        return Ok(Some(Attempt { open, sequence: None }));
    };
    loop {
        let mut turn = pin!(open.lock_turns.notified());
        // Registers for the wake-up before the check, so that the end of the first LOCK is not
        // missed.
        turn.as_mut().enable();
        let (is_done, begins) = {
            // Deviation: MS-SMB2 3.3.5.2.10 accepts a LOCK from a lost channel. After the client's
            // repetition has been answered, such a LOCK would lock or unlock again, so it is
            // refused. Both mutexes are held, so that the repetition cannot come between the two
            // checks.
            let channel = open.channel_sequence.lock();
            let is_stale = rq.connection.is_smb3()
                && Age::of(rq.header.channel_sequence(), channel.current()) == Age::Older;
            let mut sequences = open.lock_sequences.lock();
            let is_done = sequences.has(number);
            if !is_done && is_stale && sequences.has_passed(number) {
                return Err(Status::FILE_NOT_AVAILABLE);
            }
            (is_done, !is_done && sequences.begin(number))
        };
        if begins {
            return Ok(Some(Attempt { open, sequence }));
        }
        if !is_done {
            turn.await;
            continue;
        }
        // A LOCK with this number has already succeeded, but its record may not be stable yet. The
        // record must be stable before the repetition is answered.
        record::keep(rq.server(), open).await?;
        if open.lock_sequences.lock().promise(number) {
            return Ok(None);
        }
    }
}

/// A LOCK that is not carried out yet. A record of the Open that is made meanwhile leaves out
/// the ranges that it has taken: without its sequence number a replay of the LOCK would count
/// as a new request, and conflict with itself.
struct Locking<'a> {
    open: &'a Open,
    file: &'a FileOpen,
    ranges: RefCell<Vec<(Range, Mode)>>,
}

impl Locking<'_> {
    /// It has taken a range. The File is locked.
    fn took(&self, range: Range, mode: Mode) {
        self.ranges.borrow_mut().push((range, mode));
        if let Some(survival) = self.open.survival() {
            survival.took((range, mode));
        }
    }

    /// Gives back the `count` ranges that it took last, or all, and nothing else: of the same
    /// range the Open may hold another lock.
    fn take_back(&self, shared: &mut File, count: usize) {
        let taken = {
            let mut ranges = self.ranges.borrow_mut();
            let stay = ranges.len().saturating_sub(count);
            ranges.split_off(stay)
        };
        shared.ranges.take_back(self.open.id(), taken.iter().copied());
        for lock in taken {
            host_locks::show_unlocked(self.file, &shared.ranges, lock.0);
            if let Some(survival) = self.open.survival() {
                survival.is_done_with(lock);
            }
        }
    }

    /// Ranges and sequence go on record together or not at all: the File is
    /// locked while a record is made.
    fn carried_out(self, sequence: Option<LockSequence>) -> Vec<(Range, Mode)> {
        let _shared = self.file.cell.lock();
        let ranges = std::mem::take(&mut *self.ranges.borrow_mut());
        if let Some(survival) = self.open.survival() {
            ranges.iter().for_each(|range| survival.is_done_with(*range));
        }
        if let Some(sequence) = sequence {
            self.open.lock_sequences.lock().carried_out(sequence);
            self.open.lock_turns.notify_waiters();
        }
        ranges
    }
}

impl Drop for Locking<'_> {
    /// It failed or was given up: nothing of it stays.
    fn drop(&mut self) {
        if self.ranges.borrow().is_empty() {
            return;
        }
        self.take_back(&mut self.file.cell.lock(), usize::MAX);
    }
}

/// Locks of a request that is not answered yet. They are released when it is cancelled, or cannot
/// be put on record, unless a repetition was answered. A later copy of the request is then a new
/// one.
struct Taken<'a> {
    rq: &'a Request<'a>,
    open: &'a Open,
    file: &'a FileOpen,
    ranges: Vec<(Range, Mode)>,
    /// The places of the ranges among the locks of session and account.
    places: Vec<(Slot, Charge)>,
    sequence: Option<LockSequence>,
}

impl Taken<'_> {
    /// Leaves the locks to the Open.
    fn stay(mut self) {
        let shared = self.file.cell.lock();
        self.hand_over(&shared);
        drop(shared);
    }

    /// Gives the places to the Open. It has no more of them than locks: a client that had the
    /// answer to a repetition may have unlocked already.
    fn hand_over(&mut self, shared: &File) {
        self.ranges.clear();
        let left = {
            let mut places = self.open.lock_places.lock();
            places.append(&mut self.places);
            let held = shared.ranges.held_by(self.open.id()).min(places.len());
            places.split_off(held)
        };
        drop(left);
    }
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.ranges.is_empty() {
            return;
        }
        let mut shared = self.file.cell.lock();
        if let Some(sequence) = self.sequence
            && !self.open.lock_sequences.lock().undone(sequence)
        {
            self.hand_over(&shared);
            return;
        }
        shared.ranges.take_back(self.open.id(), self.ranges.iter().copied());
        for (range, _) in &self.ranges {
            host_locks::show_unlocked(self.file, &shared.ranges, *range);
        }
        drop(shared);
        // The locks were released, but the durable record may already contain them, so it is
        // written again.
        record::renew(self.rq.server(), self.open);
    }
}

/// Places of as many locks among those of the session and the account.
fn places_for(rq: &Request<'_>, count: usize) -> Result<Vec<(Slot, Charge)>, Status> {
    let session = rq.session()?;
    let take = |_| {
        let slot = session.locks.take(LOCKS_PER_SESSION).ok_or(Status::INSUFFICIENT_RESOURCES)?;
        Ok((slot, session.holder().charge(Kind::Lock, LOCK_BYTES)?))
    };
    (0..count).map(take).collect()
}

/// MS-SMB2 3.3.5.14: where a channel can be lost and its Opens stay, requests
/// may come again.
///
/// Windows: up to Windows 10 and Server 2022 for resilient and persistent
/// Opens alone.
fn verifies_sequences(rq: &Request<'_>, open: &Open) -> Result<bool, Status> {
    let survives = |s: &Survival| s.is_durable() || s.is_resilient() || s.is_persistent();
    if rq.dialect() != Dialect::SMB_2_0_2 && open.survival().is_some_and(survives) {
        return Ok(true);
    }
    let capabilities = rq.connection.negotiated()?.server_capabilities;
    Ok(rq.connection.is_smb3() && capabilities.contains(GlobalCapabilities::MULTI_CHANNEL))
}

/// MS-SMB2 3.3.5.14.1: what is unlocked before an error stays unlocked. The
/// sequence is noted with it, under the File's lock.
fn unlock(
    open: &Open,
    file: &FileOpen,
    elements: &[LockElement],
    sequence: Option<LockSequence>,
) -> Result<(), Status> {
    let mut shared = file.cell.lock();
    let unlocks = elements.iter().take_while(|element| element.flags == LockFlags::UNLOCK);
    let (count, outcome) = shared.ranges.unlock_all(open.id(), unlocks.map(range));
    let places = {
        let mut places = open.lock_places.lock();
        let left = places.len().saturating_sub(count);
        places.split_off(left)
    };
    drop(places);
    for element in elements.iter().take(count) {
        host_locks::show_unlocked(file, &shared.ranges, range(element));
    }
    outcome?;
    if count < elements.len() {
        return Err(Status::INVALID_PARAMETER);
    }
    if let Some(sequence) = sequence {
        open.lock_sequences.lock().carried_out(sequence);
    }
    drop(shared);
    Ok(())
}

/// MS-SMB2 3.3.5.14.2: flags are checked before anything is locked; only a
/// single lock may wait.
fn modes(elements: &[LockElement]) -> Result<Vec<(Mode, bool)>, Status> {
    elements
        .iter()
        .map(|element| {
            let waits = !element.flags.contains(LockFlags::FAIL_IMMEDIATELY);
            let mode = match element.flags.without(LockFlags::FAIL_IMMEDIATELY) {
                LockFlags::SHARED_LOCK => Mode::Shared,
                LockFlags::EXCLUSIVE_LOCK => Mode::Exclusive,
                _ => return Err(Status::INVALID_PARAMETER),
            };
            if waits && elements.len() > 1 {
                return Err(Status::INVALID_PARAMETER);
            }
            Ok((mode, waits))
        })
        .collect()
}

async fn lock(
    locking: &Locking<'_>,
    elements: &[LockElement],
    modes: &[(Mode, bool)],
) -> Result<(), Status> {
    for (element, (mode, waits)) in elements.iter().zip(modes) {
        let range = range(element);
        if *waits {
            wait_for_all(locking, range, *mode).await?;
        } else {
            take(locking, range, *mode)?;
        }
    }
    Ok(())
}

/// Locks at once or not at all. An Open that another channel has closed
/// meanwhile takes nothing: nobody would release it.
fn take(locking: &Locking<'_>, range: Range, mode: Mode) -> Result<(), Status> {
    let Locking { open, file, .. } = locking;
    let mut shared = file.cell.lock();
    if open.is_closed() {
        return Err(Status::FILE_CLOSED);
    }
    shared.ranges.lock(open.id(), range, mode)?;
    locking.took(range, mode);
    drop(shared);
    host::confirm(locking, range)
}

/// Waits for other Opens, and for other programs.
async fn wait_for_all(locking: &Locking<'_>, range: Range, mode: Mode) -> Result<(), Status> {
    let mut patience = host::Patience::new();
    loop {
        wait(locking, range, mode).await?;
        match host::confirm(locking, range) {
            Err(Status::LOCK_NOT_GRANTED) => patience.pause(locking.open).await?,
            outcome => return outcome,
        }
    }
}

/// A place among those who wait for a file's locks, given up when dropped: a
/// request that is cancelled must leave nothing behind.
struct Waiter<'a> {
    cell: &'a FileCell,
    ticket: Ticket,
}

impl Drop for Waiter<'_> {
    fn drop(&mut self) {
        self.cell.lock().ranges.give_up(self.ticket);
    }
}

/// Waits until the range is free. The Open's end ends the wait.
async fn wait(locking: &Locking<'_>, range: Range, mode: Mode) -> Result<(), Status> {
    let Locking { open, file, .. } = locking;
    let ticket = {
        let mut shared = file.cell.lock();
        // The file's state (its cell) is locked during this check, so a close that comes later
        // finds the range and releases it.
        if open.is_closed() {
            return Err(Status::RANGE_NOT_LOCKED);
        }
        let ticket = shared.ranges.lock_or_wait(open.id(), range, mode)?;
        if ticket.is_none() {
            locking.took(range, mode);
        }
        ticket
    };
    let Some(ticket) = ticket else { return Ok(()) };
    let waiter = Waiter { cell: &file.cell, ticket };
    poll_fn(|cx| {
        let mut shared = waiter.cell.lock();
        let outcome = shared.ranges.poll(ticket, cx.waker());
        if outcome == Poll::Ready(Ok(())) {
            locking.took(range, mode);
        }
        outcome
    })
    .await
}

const fn range(element: &LockElement) -> Range {
    Range { offset: element.offset, length: element.length }
}
