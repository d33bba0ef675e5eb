//! The pipes of IPC$: a fixed list, each an RPC endpoint inside this process.
//!
//! Nothing is looked up by what a client calls a pipe: the name is compared
//! with the list, and whatever is not in it does not exist.
//!
//! It may touch the objects and all below them, and of `command` the request and the response. What
//! the bytes in a pipe mean is of `frevo-rpc`; `services` answers its calls.

mod authentication;
mod fsrvp;
mod info;
mod manage;
mod mdssvc;
mod netdfs;
mod password;
mod peer;
mod services;
mod share_changes;
mod table;
pub(crate) mod tcp;
#[cfg(feature = "test-hooks")]
mod test_events;
mod waits;
mod witness;
mod writing;

pub(crate) use info::{peek, pipe_info, set_pipe_info};

use std::pin::pin;
use std::sync::Arc;

use frevo_wire::Status;
use frevo_wire::command::{create, read};
use frevo_wire::create_context::CreateContexts;
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime};
use parking_lot::Mutex;

use crate::base::limits::{OPEN_BYTES, PIPE_BYTES, PIPES_PER_SESSION};
use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::ledger::Kind;
use crate::objects::open::{Open, OpenTarget};
use crate::objects::pipe::Pipe;
use crate::objects::refusal::{Outcome, Refusal};
use table::{Association, Served};

/// Bytes that FileStandardInformation and CREATE say a pipe has allocated.
const ALLOCATION: u64 = 4096;

/// Bytes of a READ response before its data.
const READ_HEAD: usize = 16;

/// The status of a READ or of the reading half of a transaction.
const fn read_status(goes_on: bool) -> Status {
    if goes_on { Status::BUFFER_OVERFLOW } else { Status::SUCCESS }
}

/// The pipe that a CREATE names. Clients send `srvsvc`; older ones put what
/// SMB1 had before it. These few spellings are compared, nothing is parsed.
fn find(name: &str) -> Option<&'static Served> {
    const PREFIX: &str = r"PIPE\";
    let name = name.strip_prefix('\\').unwrap_or(name);
    let bare = match name.split_at_checked(PREFIX.len()) {
        Some((prefix, bare)) if prefix.eq_ignore_ascii_case(PREFIX) => bare,
        _ => name,
    };
    table::of_pipe(bare)
}

/// Opens a pipe: MS-SMB2 3.3.5.9. FileAttributes, CreateDisposition and create
/// contexts say nothing about something that is always there and has no name
/// in a file system.
pub(crate) fn create(
    rq: &Request<'_>,
    request: &create::Request<'_>,
    out: &mut Response,
) -> Outcome {
    if request.impersonation_level == create::ImpersonationLevel::DELEGATE {
        return Err(Status::BAD_IMPERSONATION_LEVEL.into());
    }
    // MS-SMB2 3.3.5.9: over QUIC, without AllowNamedPipeAccessOverQUIC.
    let connection = rq.connection;
    if connection.transport.facts().guards_pipes && !connection.settings.quic_pipes {
        return Err(Status::ACCESS_DENIED.into());
    }
    if request.create_options.contains(create::CreateOptions::DIRECTORY_FILE) {
        return Err(Status::NOT_A_DIRECTORY.into());
    }
    // MS-SMB2 3.3.5.9: an anonymous user may open no pipe, because none allows it (MS-SRVS
    // 3.1.6.17).
    let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
    if identity.is_nobody() && !identity.is_guest {
        return Err(Status::ACCESS_DENIED.into());
    }
    let name = request.name.to_string().map_err(|_| Status::OBJECT_NAME_NOT_FOUND)?;
    let served = find(&name);
    // A guest may list the shares that let it in, and nothing else: other pipes tell of accounts.
    if identity.is_guest && !served.is_some_and(Served::lists_shares) {
        return Err(Status::ACCESS_DENIED.into());
    }
    let served = served.filter(|served| served.is_offered(rq.server()));
    let served = served.ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    let tree = rq.tree()?;
    let session = rq.session()?;
    let granted = granted(request.desired_access, tree.maximal_access)?;
    let slot = session.pipes.take(PIPES_PER_SESSION).ok_or(Status::INSUFFICIENT_RESOURCES)?;
    let file_id = rq.server().new_file_id();
    // The client only sends this number back, so any value except zero is valid.
    let association = (file_id.volatile as u32).max(1);
    let charge = session.holder().charge(Kind::Pipe, PIPE_BYTES)?;
    let has_keys = rq.server().kerberos.service().is_some();
    let end = Box::new(Association::on_pipe(served, association, has_keys));
    let target = OpenTarget::Pipe(Mutex::new(Pipe::new(served.kind(), end, slot, charge)));
    let sequence = rq.header.channel_sequence();
    let charge = session.holder().charge(Kind::Open, OPEN_BYTES)?;
    let open = Open::new(file_id, Arc::clone(tree), granted, sequence, target);
    let open = Arc::new(open.charged(charge));
    session.attach_open(&open)?;
    out.set_file_id(file_id);
    create::Response {
        oplock_level: create::OplockLevel::NONE,
        flags: create::CreateFlags::EMPTY,
        create_action: create::CreateAction::OPENED,
        creation_time: FileTime::ZERO,
        last_access_time: FileTime::ZERO,
        last_write_time: FileTime::ZERO,
        change_time: FileTime::ZERO,
        allocation_size: ALLOCATION,
        end_of_file: 0,
        file_attributes: FileAttributes::NORMAL,
        file_id,
        contexts: CreateContexts::default(),
    }
    .encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

/// The access to an opened pipe: the access asked for, as far as the share grants it.
fn granted(desired: AccessMask, maximal: AccessMask) -> Result<AccessMask, Status> {
    let meanings = [
        (AccessMask::GENERIC_ALL, AccessMask::FILE_ALL),
        (AccessMask::GENERIC_READ, AccessMask::FILE_GENERIC_READ),
        (AccessMask::GENERIC_WRITE, AccessMask::FILE_GENERIC_WRITE),
        (AccessMask::GENERIC_EXECUTE, AccessMask::FILE_GENERIC_EXECUTE),
        (AccessMask::MAXIMUM_ALLOWED, maximal),
    ];
    let granted = meanings.into_iter().fold(desired, |granted, (bit, meaning)| {
        if granted.contains(bit) { granted.without(bit) | meaning } else { granted }
    });
    if granted.without(maximal).is_empty() { Ok(granted) } else { Err(Status::ACCESS_DENIED) }
}

/// READ: one message, or the part of it that was asked for with
/// BUFFER_OVERFLOW; the rest stays.
///
/// MS-SMB2 3.3.5.12: a pipe is in blocking mode unless its client set it
/// otherwise, so that a READ that comes before the WRITE it is to be answered
/// for waits, until CANCEL or the end of the pipe. With other requests behind
/// it in its frame, or in non-blocking mode, it is told PIPE_EMPTY.
pub(crate) async fn read(
    rq: &Request<'_>,
    open: &Open,
    length: u32,
    out: &mut Response,
) -> Outcome {
    open.require(AccessMask::READ_DATA)?;
    let pipe = open.pipe()?;
    let room = rq.room.saturating_sub(READ_HEAD);
    let max_len = usize::try_from(length).unwrap_or(usize::MAX).min(room);
    let filled = Arc::clone(&pipe.lock().filled);
    loop {
        // `filled` is registered before the check, so that a WRITE in between is not missed.
        let mut filled = pin!(filled.notified());
        filled.as_mut().enable();
        {
            let mut pipe = pipe.lock();
            if let Some((data, goes_on)) = pipe.take(max_len) {
                read::Response::new(&data).encode(&mut out.writer());
                return Ok(read_status(goes_on));
            }
            if pipe.is_closed() {
                return Err(Status::PIPE_DISCONNECTED.into());
            }
            if pipe.completes || !rq.alone {
                return Err(Status::PIPE_EMPTY.into());
            }
        }
        tokio::select! {
            biased;
            () = open.closed() => return Err(Status::PIPE_BROKEN.into()),
            () = filled => {}
        }
    }
}

/// WRITE: what the server answers is there to be read when this returns.
pub(crate) async fn write(rq: &Request<'_>, open: &Arc<Open>, data: &[u8]) -> Result<u32, Refusal> {
    // The future is boxed, because otherwise each request would reserve room for its state, and few
    // requests write to pipes.
    Box::pin(writing::put(rq, open, data)).await.map(|(count, _)| count)
}

/// FSCTL_PIPE_TRANSCEIVE, MS-SMB2 3.3.5.15.3: writes, then reads up to
/// `max_output` bytes of the answer.
///
/// It waits only for a call that waits for an event. What another whole request causes is there once
/// it is written, and a part of one causes nothing, which is PIPE_EMPTY.
pub(crate) async fn transceive(
    rq: &Request<'_>,
    open: &Arc<Open>,
    input: &[u8],
    max_output: u32,
) -> Result<(Vec<u8>, Status), Refusal> {
    open.require(AccessMask::READ_DATA)?;
    // The pipe's turn, which only one request has at a time, is held until the answer is read, so
    // that the answer is not mixed with answers to other requests.
    let (_, turn) = Box::pin(writing::put(rq, open, input)).await?;
    let max_len = usize::try_from(max_output).unwrap_or(usize::MAX);
    let taken = {
        let mut pipe = open.pipe()?.lock();
        let waits = !pipe.completes && rq.alone && pipe.has_pending();
        match pipe.take(max_len) {
            None if waits => None,
            None if pipe.is_closed() => return Err(Status::PIPE_DISCONNECTED.into()),
            None => return Err(Status::PIPE_EMPTY.into()),
            taken => taken,
        }
    };
    // The answer to a call that waits needs the turn.
    drop(turn);
    let (data, goes_on) = match taken {
        Some(taken) => taken,
        None => Box::pin(awaited(rq, open, max_len)).await?,
    };
    Ok((data, read_status(goes_on)))
}

/// Waits for an answer, until CANCEL, the end of the connection or the end of the pipe, and takes up to
/// `max_len` bytes of it.
async fn awaited(rq: &Request<'_>, open: &Open, max_len: usize) -> Result<(Vec<u8>, bool), Status> {
    let pipe = open.pipe()?;
    let filled = Arc::clone(&pipe.lock().filled);
    loop {
        // `filled` is registered before the look, so that an answer in between is not missed.
        let mut filled = pin!(filled.notified());
        filled.as_mut().enable();
        {
            let mut pipe = pipe.lock();
            if let Some(taken) = pipe.take(max_len) {
                return Ok(taken);
            }
            if pipe.is_closed() {
                return Err(Status::PIPE_DISCONNECTED);
            }
        }
        tokio::select! {
            biased;
            () = open.closed() => return Err(Status::PIPE_BROKEN),
            () = rq.cancellation.told() => return Err(Status::CANCELLED),
            () = filled => {}
        }
    }
}

/// FSCTL_PIPE_WAIT, MS-SMB2 3.3.5.15.10: a pipe that exists always has a free
/// end, so that there is nothing to wait for.
pub(crate) fn wait(name: &str) -> Result<(), Status> {
    find(name).map(|_| ()).ok_or(Status::OBJECT_NAME_NOT_FOUND)
}
