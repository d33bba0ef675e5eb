//! The pipes of IPC$: a fixed list, each an RPC endpoint inside this process.
//!
//! Nothing is looked up by what a client calls a pipe: the name is compared
//! with the list, and whatever is not in it does not exist.
//!
//! It may touch the objects and all below them, and of `command` the request and the response. What
//! the bytes in a pipe mean is of `frevo-rpc`; `services` answers its calls.

mod info;
mod manage;
mod password;
mod services;
mod share_changes;

pub(crate) use info::{peek, pipe_info, set_pipe_info};

use std::pin::pin;
use std::sync::Arc;

use frevo_rpc::{self as rpc, PipeError};
use frevo_wire::Status;
use frevo_wire::command::{create, read};
use frevo_wire::create_context::CreateContexts;
use frevo_wire::dtyp::{AccessMask, FileAttributes, FileTime};
use parking_lot::Mutex;
use tokio::runtime::Handle;
use tokio::sync::OwnedSemaphorePermit;

use crate::base::limits::{HOST_LOOKUP_TIMEOUT, OPEN_BYTES, PIPE_BYTES, PIPES_PER_SESSION};
use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::ledger::Kind;
use crate::objects::open::{Open, OpenTarget};
use crate::objects::pipe::{Pipe, Written};
use crate::objects::refusal::{Outcome, Refusal};
use crate::objects::session::Identity;
use services::Caller;

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
fn find(name: &str) -> Option<rpc::Pipe> {
    const PREFIX: &str = r"PIPE\";
    let name = name.strip_prefix('\\').unwrap_or(name);
    let bare = match name.split_at_checked(PREFIX.len()) {
        Some((prefix, bare)) if prefix.eq_ignore_ascii_case(PREFIX) => bare,
        _ => name,
    };
    rpc::Pipe::from_name(bare)
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
    if request.create_options.contains(create::CreateOptions::DIRECTORY_FILE) {
        return Err(Status::NOT_A_DIRECTORY.into());
    }
    // MS-SMB2 3.3.5.9: no pipe allows an anonymous user (MS-SRVS 3.1.6.17).
    if rq.session()?.identity().is_none_or(|identity| identity.is_nobody()) {
        return Err(Status::ACCESS_DENIED.into());
    }
    let name = request.name.to_string().map_err(|_| Status::OBJECT_NAME_NOT_FOUND)?;
    let kind = find(&name).ok_or(Status::OBJECT_NAME_NOT_FOUND)?;
    let tree = rq.tree()?;
    let session = rq.session()?;
    let granted = granted(request.desired_access, tree.maximal_access)?;
    let slot = session.pipes.take(PIPES_PER_SESSION).ok_or(Status::INSUFFICIENT_RESOURCES)?;
    let file_id = rq.server().new_file_id();
    // Any number but zero does: a client only hands it back.
    let association = (file_id.volatile as u32).max(1);
    let charge = session.holder().charge(Kind::Pipe, PIPE_BYTES)?;
    let target = OpenTarget::Pipe(Mutex::new(Pipe::new(kind, association, slot, charge)));
    let sequence = rq.header.channel_sequence();
    let charge = session.holder().charge(Kind::Open, OPEN_BYTES)?;
    let open = Open::new(file_id, Arc::clone(tree), granted, sequence, target);
    let open = Arc::new(open.charged(charge));
    session.add_open(&open, &rq.server().files)?;
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
        // Listens before it looks, so that a WRITE in between is not missed.
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
    put(rq, open, data).await.map(|(count, _)| count)
}

/// Writes; until the turn that comes back ends, nothing else is answered elsewhere.
async fn put(
    rq: &Request<'_>,
    open: &Arc<Open>,
    data: &[u8],
) -> Result<(u32, Option<OwnedSemaphorePermit>), Refusal> {
    open.require_any(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA)?;
    let count = u32::try_from(data.len()).map_err(|_| Status::INVALID_PARAMETER)?;
    let identity = rq.session()?.identity().ok_or(Status::USER_SESSION_DELETED)?;
    let address = rq.connection.peer.ip();
    let (kind, is_work) = {
        let pipe = open.pipe()?.lock();
        (pipe.kind, pipe.is_work(data))
    };
    let manages = kind == rpc::Pipe::Srvsvc && manage::is_administrator(rq.server(), &identity);
    let (written, turn) = if is_work || manages {
        let elsewhere = write_elsewhere(rq, open, data.to_vec(), Arc::clone(&identity), manages);
        let (written, turn) = elsewhere.await?;
        password::answer(rq, open, &identity).await?;
        (written, Some(turn))
    } else {
        let mut pipe = open.pipe()?.lock();
        pipe.reserve(data.len())?;
        let caller = Caller::new(rq.server(), &identity, address);
        let mut endpoint = pipe.endpoint.take().ok_or(Status::PIPE_DISCONNECTED)?;
        let written = endpoint.write(data, &caller).map_err(status);
        (pipe.put_back(endpoint, written), None)
    };
    written?;
    Ok((count, turn))
}

const fn status(error: PipeError) -> Status {
    match error {
        PipeError::Disconnected => Status::PIPE_DISCONNECTED,
        PipeError::Unread => Status::PIPE_BUSY,
    }
}

/// Like [`write`], on a thread that may wait for the host's name service, or compute for long: for
/// several messages, or where the caller `manages` the server. The pipe is not locked meanwhile, so
/// that other requests can use it. The answer is put into the pipe even when its request has ended.
async fn write_elsewhere(
    rq: &Request<'_>,
    open: &Arc<Open>,
    data: Vec<u8>,
    identity: Arc<Identity>,
    manages: bool,
) -> Result<(Written, OwnedSemaphorePermit), Status> {
    let (turn, asks_host) = {
        let pipe = open.pipe()?.lock();
        (Arc::clone(&pipe.turn), pipe.asks_host())
    };
    let turn = tokio::time::timeout(HOST_LOOKUP_TIMEOUT, turn.acquire_owned()).await;
    let turn = turn.map_err(|_| Status::IO_TIMEOUT)?.map_err(|_| Status::PIPE_DISCONNECTED)?;
    let (server, open) = (Arc::clone(rq.server()), Arc::clone(open));
    let address = rq.connection.peer.ip();
    let manager = manages.then(Handle::current);
    let written = move || {
        let pipe = open.pipe()?;
        let endpoint = {
            let mut pipe = pipe.lock();
            pipe.reserve(data.len())?;
            pipe.endpoint.take()
        };
        // The request whose turn it is finds the endpoint there.
        let mut endpoint = endpoint.ok_or(Status::PIPE_DISCONNECTED)?;
        let caller = Caller { manager, ..Caller::new(&server, &identity, address) };
        let written = endpoint.write(&data, &caller).map_err(status);
        pipe.lock().put_back(endpoint, written)
    };
    let written = move || (written(), turn);
    if asks_host { rq.naming(written).await } else { rq.beside_core(written).await }
}

/// FSCTL_PIPE_TRANSCEIVE, MS-SMB2 3.3.5.15.3: writes, then reads up to
/// `max_output` bytes of the answer.
///
/// It never waits: what a whole request causes is there once it is written,
/// and a part of one causes nothing, which is PIPE_EMPTY.
pub(crate) async fn transceive(
    rq: &Request<'_>,
    open: &Arc<Open>,
    input: &[u8],
    max_output: u32,
) -> Result<(Vec<u8>, Status), Refusal> {
    open.require(AccessMask::READ_DATA)?;
    // Nobody else's answer comes between.
    let (_, _turn) = put(rq, open, input).await?;
    let mut pipe = open.pipe()?.lock();
    let max_len = usize::try_from(max_output).unwrap_or(usize::MAX);
    let (data, goes_on) = pipe.take(max_len).ok_or(if pipe.is_closed() {
        Status::PIPE_DISCONNECTED
    } else {
        Status::PIPE_EMPTY
    })?;
    Ok((data, read_status(goes_on)))
}

/// FSCTL_PIPE_WAIT, MS-SMB2 3.3.5.15.10: a pipe that exists always has a free
/// end, so that there is nothing to wait for.
pub(crate) fn wait(name: &str) -> Result<(), Status> {
    find(name).map(|_| ()).ok_or(Status::OBJECT_NAME_NOT_FOUND)
}
