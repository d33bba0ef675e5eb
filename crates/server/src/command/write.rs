//! WRITE: MS-SMB2 3.3.5.13.

use frevo_store::byte_range::Range;
use frevo_store::lease::Cause;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::write::{self, WriteFlags};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::{HeaderFlags, Status};

use super::client_memory;
use crate::base::pools::closer;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::ipc;
use crate::objects::data;
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::objects::refusal::Outcome;
use crate::objects::stable;
use crate::shares::share::MAX_OFFSET;

/// MS-SMB2 3.3.5.13: no header is longer.
const MAX_DATA_OFFSET: u16 = 0x100;

/// Writes to a file or a pipe.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let mut request = write::Request::parse(rq.message)?;
    let negotiated = rq.connection.negotiated()?;
    let memory = client_memory::of_write(rq, &request)?;
    out.set_invalidates(memory.as_ref().and_then(|memory| memory.invalidates));
    let length = match &memory {
        Some(_) => request.remaining_bytes,
        None => u32::try_from(request.data.len()).unwrap_or(u32::MAX),
    };
    if request.data_offset > MAX_DATA_OFFSET || length > negotiated.terms.max_write_size {
        return Err(Status::INVALID_PARAMETER.into());
    }
    rq.check_charge(length)?;
    let fetched = rq.fetched.take();
    if memory.is_some() {
        // With RDMA the data is not in the message, because the connection has fetched the data
        // before the handler began.
        request.data = fetched.as_deref().ok_or(Status::INSUFFICIENT_RESOURCES)?;
    }
    let open = rq.open()?;
    let special =
        request.flags.intersects(WriteFlags::WRITE_THROUGH | WriteFlags::WRITE_UNBUFFERED);
    match &open.target {
        OpenTarget::Pipe(_) if special && rq.connection.is_smb3() => {
            return Err(Status::INVALID_PARAMETER.into());
        }
        OpenTarget::Pipe(_) => {
            let count = ipc::write(rq, open, request.data).await?;
            write::Response { count }.encode(&mut out.writer());
            return Ok(Status::SUCCESS);
        }
        OpenTarget::File(file) => {
            let is_replay = rq.header.flags.contains(HeaderFlags::REPLAY_OPERATION);
            let kept = file.keep_times_of_write();
            if !(is_replay && planted!(ReplayBelieved)) {
                write_file(rq, open, file, &request).await?;
            }
            if length != 0 {
                file.report_written(&rq.server().files);
            }
            drop(kept);
        }
    }
    write::Response { count: length }.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

async fn write_file(
    rq: &Request<'_>,
    open: &Open,
    file: &FileOpen,
    request: &write::Request<'_>,
) -> Result<(), Status> {
    if file.is_directory {
        return Err(Status::INVALID_DEVICE_REQUEST);
    }
    let rights = open.require_any(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA);
    // MS-FSA 2.1.5.4: for a file of a snapshot the status is that of a write-protected medium.
    rights.map_err(|denied| if is_protected(open, file) { PROTECTED } else { denied })?;
    let length = request.data.len() as u64;
    // MS-FSA 2.1.5.4 takes a negative offset as the end of the file, but the SMB server of Windows
    // refuses it, and so does this server.
    if request.offset > MAX_OFFSET || MAX_OFFSET - request.offset < length {
        return Err(Status::INVALID_PARAMETER);
    }
    if length == 0 {
        return Ok(());
    }
    if request.offset + length > file.max_size {
        return Err(Status::INVALID_PARAMETER);
    }
    may_write_there(open, file, request)?;
    rq.contend(file, Cause::Write).await?;
    rq.still_served()?;
    let offset = request.offset;
    if !file.cell.lock().ranges.may_write(open.id(), Range { offset, length }) {
        return Err(Status::FILE_LOCK_CONFLICT);
    }
    file.before_write()?;
    let caching = data::demanded(open, request.flags.contains(WriteFlags::WRITE_UNBUFFERED));
    let permits = async || rq.call_permits().await;
    let before = closer::ended();
    let mut written = data::write(file, offset, request.data, caching, permits).await;
    if written == Err(Status::DISK_FULL) && rq.has_freed(before).await {
        rq.still_served()?;
        let permits = async || rq.call_permits().await;
        written = Box::pin(data::write(file, offset, request.data, caching, permits)).await;
    }
    // Even a failed write may have changed part of the data, so ARCHIVE is set first.
    file.set_archive();
    written?;
    open.brake_wrote(file, offset, request.data);
    // Deviation: MS-SMB2 3.3.5.13 refuses WRITE_THROUGH on a buffered Open. Linux clients send it
    // to have the data synced, so the data is synced.
    if request.flags.contains(WriteFlags::WRITE_THROUGH)
        || file.has_mode(CreateOptions::WRITE_THROUGH)
    {
        stable::sync(file).await?;
    }
    Ok(())
}

const PROTECTED: Status = Status::MEDIA_WRITE_PROTECTED;

/// True when the volume, not the share, is read-only.
fn is_protected(open: &Open, file: &FileOpen) -> bool {
    file.vfs.volume().read_only && !open.tree().share.read_only
}

/// MS-SMB2 3.3.5.13: a range within the file needs FILE_WRITE_DATA; an Open that
/// may only append writes behind its end.
fn may_write_there(
    open: &Open,
    file: &FileOpen,
    request: &write::Request<'_>,
) -> Result<(), Status> {
    let overwrites = !open.granted_access.contains(AccessMask::WRITE_DATA)
        && request.offset < file.stat()?.end_of_file;
    if overwrites { Err(Status::ACCESS_DENIED) } else { Ok(()) }
}
