//! Offloaded copies (ODX): FSCTL_OFFLOAD_READ and FSCTL_OFFLOAD_WRITE.
//! MS-FSA 2.1.5.10.20 and 2.1.5.10.21.

use std::sync::Arc;
use std::time::Duration;

use frevo_store::Fault;
use frevo_store::byte_range::Range;
use frevo_store::lease::Cause;
use frevo_wire::Status;
use frevo_wire::command::ioctl::copychunk::Chunk;
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::fsctl::{
    OffloadReadReply, OffloadReadRequest, OffloadToken, OffloadWriteReply, OffloadWriteRequest,
};

use super::call::{Answer, Call, Copying, output};
use super::copychunk::Copied;
use super::{copychunk, extents};
use crate::base::limits::{COPY_CHUNK_BYTES, OFFLOAD_BYTES, OFFLOAD_QUIET};
use crate::command::request::Request;
use crate::objects::offload::{Content, Offloaded};
use crate::objects::open::FileOpen;
use crate::objects::session::Session;
use crate::shares::share::MAX_OFFSET;

/// Bytes of a logical sector, as FileFsSectorSizeInformation says.
const SECTOR: u64 = 512;
/// OFFLOAD_READ_FLAG_ALL_ZERO_BEYOND_CURRENT_RANGE
const ALL_ZERO_BEYOND: u32 = 1;
/// How often a file that changes all the time is looked at again.
const LOOKS: usize = 5;

/// The numbers of a read or a write.
struct Numbers<'a> {
    /// The size of its structure, as it says.
    size: u32,
    /// The size that its structure has.
    structure: usize,
    /// Numbers that must be multiples of a sector.
    aligned: &'a [u64],
    offset: u64,
    length: u64,
    max_size: u64,
}

impl Numbers<'_> {
    /// Checks them in MS-FSA's order.
    fn check(&self) -> Result<(), Status> {
        let is_whole = self.aligned.iter().all(|number| number.is_multiple_of(SECTOR));
        let fits = self.offset.checked_add(self.length).is_some_and(|end| end <= self.max_size);
        if is_whole && self.size as usize == self.structure && fits {
            Ok(())
        } else {
            Err(Status::INVALID_PARAMETER)
        }
    }
}

/// The data that a request of FSCTL_OFFLOAD_WRITE asks to write. Zeros are not read.
pub(super) fn asked(rq: &Request<'_>, input: &[u8]) -> Copying {
    let Ok(request) = OffloadWriteRequest::parse(input) else { return Copying::default() };
    let write = request.copy_length.min(OFFLOAD_BYTES);
    if request.token.token_type() == OffloadToken::TYPE_ZERO_DATA {
        return Copying { write, ..Copying::default() };
    }
    let find = |session: &Arc<Session>| session.offloads.lock().find(&request.token).ok();
    let Some(what) = rq.session.as_ref().and_then(find) else { return Copying::default() };
    let bytes = write.min(what.length.saturating_sub(request.transfer_offset));
    Copying { read: bytes, write: bytes, source: Some(what.source) }
}

/// FSCTL_OFFLOAD_READ: a token for a range.
pub(super) async fn read(call: &Call<'_>) -> Answer {
    let (open, file) = (call.open()?, call.file()?);
    let request = OffloadReadRequest::parse(call.input).map_err(|_| Status::BUFFER_TOO_SMALL)?;
    if (call.max_output as usize) < OffloadReadReply::SIZE {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    let (offset, wanted) = (request.file_offset, request.copy_length);
    Numbers {
        size: request.size,
        structure: OffloadReadRequest::SIZE,
        aligned: &[offset, wanted],
        offset,
        length: wanted,
        max_size: MAX_OFFSET,
    }
    .check()?;
    if wanted == 0 {
        return Ok((read_reply(0, 0, OffloadToken { bytes: [0; 512] }), Status::SUCCESS));
    }
    let refused = Status::OFFLOAD_READ_FILE_NOT_SUPPORTED;
    check_file(file, refused)?;
    let range = Range { offset, length: wanted };
    if !file.cell.lock().ranges.may_read(open.id(), range) {
        return Err(Status::FILE_LOCK_CONFLICT.into());
    }
    let content = settled(call, file).await?;
    let end = check_file(file, refused)?;
    if offset >= end {
        return Err(Status::END_OF_FILE.into());
    }
    let trimmed = wanted.min((end - offset).next_multiple_of(SECTOR));
    let length = trimmed.min(OFFLOAD_BYTES);
    // The token's data may end before the requested range. `reaches_end` tells the client that the
    // rest reads as zeros.
    let reaches_end = offset + wanted > end && length == trimmed;
    let what = Offloaded { source: Arc::clone(open), offset, length, content };
    let ambient = &*call.rq.server().ambient;
    let ttl_ms = request.token_time_to_live_ms;
    let session = call.rq.session()?;
    let token = session.offloads.lock().add(ambient, session.holder(), ttl_ms, what)?;
    let flags = if reaches_end { ALL_ZERO_BEYOND } else { 0 };
    Ok((read_reply(flags, length, token), Status::SUCCESS))
}

fn read_reply(flags: u32, transfer_length: u64, token: OffloadToken) -> Vec<u8> {
    let size = OffloadReadReply::SIZE as u32;
    output(|w| OffloadReadReply { size, flags, transfer_length, token }.encode(w))
}

/// The file's end, of one that may be copied so.
fn check_file(file: &FileOpen, refused: Status) -> Result<u64, Status> {
    let stat = file.stat()?;
    let odd = FileAttributes::SPARSE_FILE | FileAttributes::COMPRESSED | FileAttributes::ENCRYPTED;
    if file.is_directory || stat.attributes.intersects(odd) {
        return Err(refused);
    }
    if stat.links == 0 || file.cell.lock().is_going(file.id) {
        return Err(Status::FILE_DELETED);
    }
    // MS-FSCC 2.3.42 and 2.3.44: a file of less than one sector, unless it is empty, is refused.
    if (1..SECTOR).contains(&stat.end_of_file) {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(stat.end_of_file)
}

/// The content of the file, once its last change is long enough ago that the next one will
/// change its time.
async fn settled(call: &Call<'_>, file: &FileOpen) -> Result<Content, Status> {
    let mut content = Content::of(&file.stat()?);
    for _ in 0..LOOKS {
        let age = content.age(call.rq.server().ambient.now());
        let Some(left) = OFFLOAD_QUIET.checked_sub(age).filter(|left| *left != Duration::ZERO)
        else {
            return Ok(content);
        };
        tokio::time::sleep(left).await;
        content = Content::of(&file.stat()?);
    }
    // The file changed during each attempt, so its token would be invalid at once.
    Err(Status::INSUFFICIENT_RESOURCES)
}

/// FSCTL_OFFLOAD_WRITE: what a token stands for, into a range.
pub(super) async fn write(call: &Call<'_>) -> Answer {
    let (open, file) = (call.open()?, call.file()?);
    let request = OffloadWriteRequest::parse(call.input).map_err(|_| Status::BUFFER_TOO_SMALL)?;
    if (call.max_output as usize) < OffloadWriteReply::SIZE {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    let (offset, wanted) = (request.file_offset, request.copy_length);
    let aligned = [offset, wanted, request.transfer_offset];
    Numbers {
        size: request.size,
        structure: OffloadWriteRequest::SIZE,
        aligned: &aligned,
        offset,
        length: wanted,
        max_size: file.max_size,
    }
    .check()?;
    if wanted == 0 {
        return Ok((write_reply(0), Status::SUCCESS));
    }
    check_file(file, Status::OFFLOAD_WRITE_FILE_NOT_SUPPORTED)?;
    // The target's data changes as in a WRITE (MS-FSA 2.1.5.4), so oplocks are broken. The size is
    // read afterwards, because clients may write back data beyond the end.
    call.rq.contend(file, Cause::Write).await?;
    call.rq.still_served()?;
    let end = check_file(file, Status::OFFLOAD_WRITE_FILE_NOT_SUPPORTED)?;
    let range = Range { offset, length: wanted };
    if !file.cell.lock().ranges.may_write(open.id(), range) {
        return Err(Status::FILE_LOCK_CONFLICT.into());
    }
    if offset >= end {
        return Err(Status::END_OF_FILE.into());
    }
    // The copy must not extend the file, so data beyond its end is left out.
    let room = wanted.min(OFFLOAD_BYTES).min((end - offset).next_multiple_of(SECTOR));
    let (length, done) = if request.token.token_type() == OffloadToken::TYPE_ZERO_DATA {
        let zeros = room.min(end - offset);
        let failure = zero(call, file, offset, zeros).await.err();
        call.rq.pace.note_moved(0, if failure.is_none() { zeros } else { 0 });
        (room, Copied { bytes: if failure.is_none() { zeros } else { 0 }, failure })
    } else {
        let what = call.rq.session()?.offloads.lock().find(&request.token)?;
        let left = what.length.checked_sub(request.transfer_offset).filter(|left| *left != 0);
        let length = room.min(left.ok_or(Status::INVALID_PARAMETER)?);
        let from = what.offset + request.transfer_offset;
        (length, transfer(call, &what, from, offset, length.min(end - offset)).await?)
    };
    // The change is reported even if the copy failed, because a part may have been written.
    extents::written(call, file).await?;
    // MS-FSCC 2.3.44: a copy that failed after at least one sector still succeeds, and its answer
    // has the copied length (StorageOffloadBytesWritten in MS-FSA 2.1.5.10.21).
    match done.failure {
        None => Ok((write_reply(length), Status::SUCCESS)),
        Some(_) if done.bytes >= SECTOR => {
            Ok((write_reply(done.bytes - done.bytes % SECTOR), Status::SUCCESS))
        }
        Some(failure) => Err(failure.into()),
    }
}

fn write_reply(length_written: u64) -> Vec<u8> {
    let size = OffloadWriteReply::SIZE as u32;
    output(|w| OffloadWriteReply { size, flags: 0, length_written }.encode(w))
}

/// Checks that a token's source is still usable: the tree connect, the right to read, and the
/// unchanged file.
fn check_source(call: &Call<'_>, what: &Offloaded) -> Result<u64, Status> {
    let tree = call.rq.session()?.tree(what.source.tree().id).map_err(|_| Status::INVALID_TOKEN)?;
    if !Arc::ptr_eq(&tree, &what.source.tree()) {
        return Err(Status::INVALID_TOKEN);
    }
    what.source.require(AccessMask::READ_DATA)?;
    let stat = what.source.file()?.stat()?;
    if Content::of(&stat) == what.content {
        Ok(stat.end_of_file)
    } else {
        Err(Status::INVALID_TOKEN)
    }
}

/// Copies, the zeros behind the source's end included.
///
/// # Errors
/// Those of a copy that was not begun.
async fn transfer(
    call: &Call<'_>,
    what: &Offloaded,
    from: u64,
    to: u64,
    length: u64,
) -> Result<Copied, Status> {
    let file = call.file()?;
    let source_end = check_source(call, what)?;
    let held = length.min(source_end.saturating_sub(from));
    let source = what.source.file()?;
    if source.node.key() == file.node.key() && from.abs_diff(to) < held {
        // Overlapping ranges are refused, because a copied piece would overwrite source data of
        // later pieces.
        return Err(Status::INVALID_PARAMETER);
    }
    let step = u64::from(COPY_CHUNK_BYTES);
    let chunk = |at: u64| Chunk {
        source_offset: from + at,
        target_offset: to + at,
        length: u32::try_from((held - at).min(step)).unwrap_or(COPY_CHUNK_BYTES),
    };
    let chunks = (0..held.div_ceil(step)).map(|n| chunk(n * step)).collect();
    let is_same = source.node.key() == file.node.key();
    let mut copied = copychunk::copy_counted(call, chunks, source, file).await;
    // The source changed during the copy, so the copied data may be partly old and partly new. The
    // copy fails.
    if !is_same && let Err(changed) = check_source(call, what) {
        return Ok(Copied::failed(changed));
    }
    if copied.failure.is_none() && length > held {
        copied.failure = zero(call, file, to + held, length - held).await.err();
    }
    Ok(copied)
}

async fn zero(call: &Call<'_>, file: &FileOpen, first: u64, length: u64) -> Result<(), Status> {
    let node = Arc::clone(&file.node);
    call.rq.beside_core(move || node.zero(first, length, false)).await?.map_err(Fault::status)
}
