//! READ: MS-SMB2 3.3.5.12.

use std::sync::Arc;

use frevo_net::buffer::Buf;
use frevo_net::file_io::{Caching, Medium};
use frevo_store::byte_range::Range;
use frevo_wire::Status;
use frevo_wire::command::read::{self, ReadFlags, ReadResponseFlags};
use frevo_wire::dtyp::AccessMask;

use super::client_memory::{self, ClientMemory};
use crate::base::host;
use crate::command::request::Request;
use crate::command::response::{Payload, RemoteData, Response};
use crate::ipc;
use crate::objects::data::{self, Payer};
use crate::objects::ledger::Built;
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::objects::refusal::Outcome;
use crate::shares::share::{Compress, MAX_OFFSET};

/// From this many bytes on, data that needs neither signature nor seal goes
/// from the file to the socket without entering this process.
const DIRECT_MIN: u32 = 32 * 1024;

/// Bytes of the response's body before the data.
const FIXED: usize = 16;

/// Reads from a file or a pipe.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = read::Request::parse(rq.message)?;
    let negotiated = rq.connection.negotiated()?;
    if request.length > negotiated.terms.max_read_size {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let memory = client_memory::of_read(rq, &request)?;
    out.set_invalidates(memory.as_ref().and_then(|memory| memory.invalidates));
    if memory.is_none() && request.length as usize > rq.room.saturating_sub(FIXED) {
        // The READs of one compound would together have a longer answer than allowed.
        return Err(Status::INVALID_PARAMETER.into());
    }
    rq.check_charge(request.length)?;
    let open = rq.open()?;
    let file = match &open.target {
        OpenTarget::File(file) => file,
        OpenTarget::Pipe(_) if request.flags.contains(ReadFlags::READ_UNBUFFERED) => {
            return Err(Status::INVALID_PARAMETER.into());
        }
        // A pipe's data is always in the message, so a READ by RDMA is refused.
        OpenTarget::Pipe(_) if memory.is_some() => return Err(Status::INVALID_PARAMETER.into()),
        OpenTarget::Pipe(_) => return ipc::read(rq, open, request.length, out).await,
    };
    if file.is_directory {
        return Err(Status::INVALID_DEVICE_REQUEST.into());
    }
    open.require_any(AccessMask::READ_DATA | AccessMask::EXECUTE)?;
    let length = u64::from(request.length);
    if request.offset > MAX_OFFSET || MAX_OFFSET - request.offset < length {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let range = Range { offset: request.offset, length };
    // MS-FSA 2.1.5.3: a read of zero bytes conflicts with no lock.
    if length != 0 && !file.cell.lock().ranges.may_read(open.id(), range) {
        return Err(Status::FILE_LOCK_CONFLICT.into());
    }
    let caching = data::demanded(open, request.flags.contains(ReadFlags::READ_UNBUFFERED));
    if let Some(ClientMemory { buffers, transform, .. }) = memory {
        let bytes = read(rq, file, &request, caching, out).await?;
        let count = u32::try_from(bytes.len()).unwrap_or(request.length);
        if count == 0 || count < request.minimum_count {
            return Err(Status::END_OF_FILE.into());
        }
        out.bytes_mut().extend(read::response_head(0, count, ReadResponseFlags::EMPTY));
        out.set_remote_data(RemoteData { bytes, buffers, transform });
        return Ok(Status::SUCCESS);
    }
    let thrift = may_be_compressed(rq, open, &request).then(|| open.thrift());
    // Data that is left out goes the road without a copy.
    let thrift = thrift.filter(|thrift| !thrift.leaves_out(request.length as usize));
    let direct = if thrift.is_some() { None } else { direct(rq, file, &request)? };
    let payload = match direct {
        Some(payload) => payload,
        None => Payload::Buf(read(rq, file, &request, caching, out).await?),
    };
    let count = u32::try_from(payload.len()).unwrap_or(request.length);
    if (count == 0 && request.length != 0) || count < request.minimum_count {
        return Err(Status::END_OF_FILE.into());
    }
    write_head(count, hooked!(rq.connection, pads_reads), out);
    if let Payload::Buf(data) = &payload
        && let Some(thrift) = thrift.filter(|thrift| thrift.tries(data))
    {
        out.compress_payload(Arc::clone(thrift));
    }
    out.set_payload(payload);
    Ok(Status::SUCCESS)
}

/// Writes what stands before `count` bytes of data, with padding if it `pads`.
fn write_head(count: u32, pads: bool, out: &mut Response) {
    let mut head = read::response_head(count, 0, ReadResponseFlags::EMPTY);
    if pads {
        let [_, _, offset, ..] = &mut head;
        *offset = offset.saturating_add(8);
        out.bytes_mut().extend(head);
        out.bytes_mut().extend([0; 8]);
    } else {
        out.bytes_mut().extend(head);
    }
}

/// MS-SMB2 3.3.5.12: Request.CompressReply. A compound, which may have names in its answers, is not
/// compressed, nor is a share that does not want it.
fn may_be_compressed(rq: &Request<'_>, open: &Open, request: &read::Request<'_>) -> bool {
    request.flags.contains(ReadFlags::REQUEST_COMPRESSED)
        && rq.compressible
        && rq.connection.compression().is_some()
        && open.tree().share.compress != Compress::Off
}

/// Reads into memory, which `out` charges to the account until it is sent.
async fn read(
    rq: &Request<'_>,
    file: &FileOpen,
    request: &read::Request<'_>,
    caching: Caching,
    out: &mut Response,
) -> Result<Buf, Status> {
    let mut payer = payer(rq, out.take_built())?;
    let permits = async move || rq.call_permits().await;
    let (offset, length) = (request.offset, request.length);
    let read = data::read(file, offset, length, caching, &mut payer, permits).await?;
    out.set_built(read.built);
    Ok(read.buf)
}

fn payer<'a>(rq: &'a Request<'_>, built: Option<Built>) -> Result<Payer<'a>, Status> {
    Ok(Payer {
        holder: rq.session()?.holder(),
        backlog: &rq.connection.backlog,
        cancellation: &rq.cancellation,
        wait: rq.memory_wait,
        built,
    })
}

/// Waits for the memory of a READ that is to run on a thread: there it would keep the thread from others while
/// its client takes no answers. None for a READ that needs none, or that its handler refuses.
///
/// # Errors
/// CANCELLED when the client has gone, INSUFFICIENT_RESOURCES where the request may not wait any longer.
pub(crate) async fn memory(rq: &Request<'_>) -> Result<Option<Built>, Status> {
    let Ok(request) = read::Request::parse(rq.message) else { return Ok(None) };
    let is_allowed = request.length <= rq.connection.negotiated()?.terms.max_read_size;
    let is_of_file = matches!(rq.open()?.target, OpenTarget::File(_));
    if request.length == 0 || !is_allowed || !is_of_file {
        return Ok(None);
    }
    payer(rq, None)?.build(request.length as usize).await.map(Some)
}

/// The road without a copy, where it may be taken.
fn direct(
    rq: &Request<'_>,
    file: &FileOpen,
    request: &read::Request<'_>,
) -> Result<Option<Payload>, Status> {
    // sendfile makes a client on this machine copy from the page cache, which is slower than from a
    // buffer that is still in the processor's cache. With few reads in flight the loss does not
    // matter (docs/adr/0003).
    let is_small =
        || rq.owner.is_some_and(|connection| connection.is_read_without_copy(request.length));
    if request.length < DIRECT_MIN
        || !rq.response_is_bare()
        || (rq.connection.is_same_host() && !is_small())
    {
        return Ok(None);
    }
    // On a network or FUSE file system even fstat may block, so the READ is not done on the core
    // thread.
    let Some(io) = file.io().filter(|io| io.mount().medium() != Medium::Remote) else {
        return Ok(None);
    };
    // Only the size is needed, so fstat is called on the descriptor instead of reading all
    // attributes.
    let end = rustix::fs::fstat(io.fd()).map_err(|errno| host::fault_of(errno).status())?;
    let end = u64::try_from(end.st_size).unwrap_or(0);
    let left = end.saturating_sub(request.offset).min(u64::from(request.length));
    let length = u32::try_from(left).unwrap_or(request.length);
    if length < DIRECT_MIN || !io.is_cached(request.offset, length as usize) {
        // The data is not in the page cache, so sendfile would block the core thread until the disk
        // has answered.
        return Ok(None);
    }
    Ok(Some(Payload::File { file: Arc::clone(io.fd()), offset: request.offset, length }))
}
