//! LOCK: MS-SMB2 3.3.5.14.

pub mod host;

use std::future::poll_fn;

use frevo_proto::Dialect;
use frevo_store::FileCell;
use frevo_store::byte_range::{Mode, Range, Ticket};
use frevo_store::lease::Cause;
use frevo_wire::Status;
use frevo_wire::command::lock::{self, LockElement, LockFlags};
use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::dtyp::AccessMask;

use crate::durable::{Survival, record};
use crate::lease;
use crate::open::{FileOpen, Open};
use crate::refusal::Outcome;
use crate::request::Request;
use crate::response::Response;

/// Locks or unlocks byte ranges.
pub async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = lock::Request::parse(rq.message)?;
    let open = rq.open()?;
    let file = open.file()?;
    let first = request.locks.first().ok_or(Status::INVALID_PARAMETER)?;
    // MS-FSA 2.1.5.8, 2.1.5.9.
    if file.is_directory {
        return Err(Status::INVALID_PARAMETER.into());
    }
    // Windows: whoever may neither read nor write locks nothing.
    open.require_any(
        AccessMask::READ_DATA
            | AccessMask::WRITE_DATA
            | AccessMask::APPEND_DATA
            | AccessMask::EXECUTE,
    )?;
    let verifies = verifies_sequences(rq, open)?;
    if verifies && open.lock_sequences.lock().is_replay(request.lock_sequence) {
        lock::Response.encode(&mut out.writer());
        return Ok(Status::SUCCESS);
    }
    let mut taken = Taken { open, file, elements: &request.locks, modes: Vec::new() };
    if first.flags == LockFlags::UNLOCK {
        unlock(open, file, &request.locks)?;
    } else {
        let modes = modes(&request.locks)?;
        lease::contend(rq, file, Cause::Write).await?;
        lock(open, file, &request.locks, &modes).await?;
        taken.modes = modes;
    }
    if verifies {
        open.lock_sequences.lock().carried_out(request.lock_sequence);
    }
    record::keep(rq.server(), open).await?;
    taken.modes.clear();
    lock::Response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

/// Locks of a request that is not answered yet. They are given back when it is
/// cancelled, or cannot be put on record.
struct Taken<'a> {
    open: &'a Open,
    file: &'a FileOpen,
    elements: &'a [LockElement],
    modes: Vec<(Mode, bool)>,
}

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        if self.modes.is_empty() {
            return;
        }
        let mut shared = self.file.cell.lock();
        for (element, (mode, _)) in self.elements.iter().zip(&self.modes) {
            shared.ranges.take_back(self.open.id(), range(element), *mode);
            host::show_unlocked(self.file, &shared.ranges, range(element));
        }
    }
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

/// MS-SMB2 3.3.5.14.1: what is unlocked before an error stays unlocked.
fn unlock(open: &Open, file: &FileOpen, elements: &[LockElement]) -> Result<(), Status> {
    let mut shared = file.cell.lock();
    for element in elements {
        if element.flags != LockFlags::UNLOCK {
            return Err(Status::INVALID_PARAMETER);
        }
        shared.ranges.unlock(open.id(), range(element))?;
        host::show_unlocked(file, &shared.ranges, range(element));
    }
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
    open: &Open,
    file: &FileOpen,
    elements: &[LockElement],
    modes: &[(Mode, bool)],
) -> Result<(), Status> {
    for (at, (element, (mode, waits))) in elements.iter().zip(modes).enumerate() {
        let range = range(element);
        let outcome = if *waits {
            wait_for_all(open, file, range, *mode).await
        } else {
            take(open, file, range, *mode)
        };
        if let Err(status) = outcome {
            let mut shared = file.cell.lock();
            for (taken, (mode, _)) in elements.iter().zip(modes).take(at) {
                // What this request locked is given back, and nothing else: of
                // the same range the Open may hold another kind of lock.
                shared.ranges.take_back(open.id(), self::range(taken), *mode);
                host::show_unlocked(file, &shared.ranges, self::range(taken));
            }
            return Err(status);
        }
    }
    Ok(())
}

/// Locks at once or not at all. An Open that another channel has closed
/// meanwhile takes nothing: nobody would release it.
fn take(open: &Open, file: &FileOpen, range: Range, mode: Mode) -> Result<(), Status> {
    let mut shared = file.cell.lock();
    if open.is_closed() {
        return Err(Status::FILE_CLOSED);
    }
    shared.ranges.lock(open.id(), range, mode)?;
    drop(shared);
    host::confirm(open, file, range, mode)
}

/// Waits for other Opens, and for other programs.
async fn wait_for_all(
    open: &Open,
    file: &FileOpen,
    range: Range,
    mode: Mode,
) -> Result<(), Status> {
    let mut patience = host::Patience::new();
    loop {
        wait(open, file, range, mode).await?;
        match host::confirm(open, file, range, mode) {
            Err(Status::LOCK_NOT_GRANTED) => patience.pause(open).await?,
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
async fn wait(open: &Open, file: &FileOpen, range: Range, mode: Mode) -> Result<(), Status> {
    let ticket = {
        let mut shared = file.cell.lock();
        // Under the lock, as its end takes an Open out under it: whoever is not
        // closed yet will have its ranges released and its waits ended.
        if open.is_closed() {
            return Err(Status::RANGE_NOT_LOCKED);
        }
        shared.ranges.lock_or_wait(open.id(), range, mode)?
    };
    let Some(ticket) = ticket else { return Ok(()) };
    let waiter = Waiter { cell: &file.cell, ticket };
    poll_fn(|cx| waiter.cell.lock().ranges.poll(ticket, cx.waker())).await
}

const fn range(element: &LockElement) -> Range {
    Range { offset: element.offset, length: element.length }
}
