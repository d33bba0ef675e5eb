//! Sharing extents, giving them back, and their checksums:
//! FSCTL_DUPLICATE_EXTENTS_TO_FILE and _EX, FSCTL_FILE_LEVEL_TRIM,
//! FSCTL_GET_ and FSCTL_SET_INTEGRITY_INFORMATION.

use std::sync::Arc;

use frevo_store::Fault;
use frevo_store::byte_range::Range;
use frevo_store::lease::Cause;
use frevo_store::vfs::ExtentCopy;
use frevo_wire::Status;
use frevo_wire::command::ioctl::copychunk::Chunk;
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::fsctl::{
    CHECKSUM_TYPE_CRC32, CHECKSUM_TYPE_CRC64, CHECKSUM_TYPE_NONE, CHECKSUM_TYPE_UNCHANGED,
    DUPLICATE_EXTENTS_EX_SIZE, DuplicateExtents, DuplicateExtentsEx, DuplicateExtentsFlags,
    IntegrityFlags, IntegrityInformation, SetIntegrityInformation, TrimRange, TrimReply,
    TrimRequest,
};

use super::call::{Answer, Call, NO_OUTPUT, output};
use super::copychunk;
use crate::base::limits::TRIM_RANGES;
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::shares::share::MAX_OFFSET;

/// SystemPageSize of MS-FSA 2.1.5.10.6.
const PAGE: u64 = 4096;

/// FSCTL_DUPLICATE_EXTENTS_TO_FILE, MS-SMB2 3.3.5.15.17, MS-FSA 2.1.5.10.4.
pub(super) async fn duplicate(call: &Call<'_>) -> Answer {
    let request = DuplicateExtents::parse(call.input)?;
    duplicate_from(call, &request, false).await
}

/// FSCTL_DUPLICATE_EXTENTS_TO_FILE_EX, MS-SMB2 3.3.5.15.18, MS-FSA 2.1.5.10.5.
pub(super) async fn duplicate_ex(call: &Call<'_>) -> Answer {
    let request = DuplicateExtentsEx::parse(call.input)?;
    if request.structure_size != DUPLICATE_EXTENTS_EX_SIZE {
        return Err(Status::NOT_SUPPORTED.into());
    }
    let plain = DuplicateExtents {
        source_file_id: request.source_file_id,
        source_file_offset: request.source_file_offset,
        target_file_offset: request.target_file_offset,
        byte_count: request.byte_count,
    };
    let is_atomic = request.flags.contains(DuplicateExtentsFlags::SOURCE_ATOMIC);
    duplicate_from(call, &plain, is_atomic).await
}

async fn duplicate_from(call: &Call<'_>, request: &DuplicateExtents, is_atomic: bool) -> Answer {
    let from = call.rq.session()?.open(request.source_file_id);
    let from = from.map_err(|_| Status::INVALID_HANDLE)?;
    let target = call.file()?;
    let volume = target.vfs.volume();
    if !volume.shares_extents {
        return Err(Status::INVALID_DEVICE_REQUEST.into());
    }
    let OpenTarget::File(source) = &from.target else {
        return Err(Status::INVALID_PARAMETER.into());
    };
    let copy = ranges(request, is_atomic)?;
    let cluster = u64::from(volume.cluster);
    let is_aligned = |number: u64| number.is_multiple_of(cluster);
    // Deviation: MS-FSA demands an aligned ByteCount. Here the range may also end at the end of the
    // source, because Linux clients clone whole files, whose last cluster is incomplete.
    let source_end = if source.is_directory { 0 } else { source.stat()?.end_of_file };
    let ends_with_source = copy.source_offset.checked_add(copy.length) == Some(source_end);
    if !is_aligned(copy.source_offset)
        || !is_aligned(copy.target_offset)
        || !(is_aligned(copy.length) || ends_with_source)
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if copy.length == 0 {
        return NO_OUTPUT;
    }
    check_pair(&from, source, target, &copy, source_end)?;
    // MS-FSA 2.1.5.10.4 breaks no oplocks. But the target's data changes as in a WRITE, so oplocks
    // are broken (MS-FSA 2.1.5.4).
    call.rq.contend(target, Cause::Write).await?;
    call.rq.still_served()?;
    // Byte-range locks are not checked, because on Windows only ReFS supports this request, and it
    // ignores locks (MS-FSA 2.1.5.10.4, notes 91 and 92).
    share_within(call, source, target, copy).await?;
    let places = [copy.source_offset, copy.target_offset];
    call.open()?.brake_copied(target, source, places, copy.length);
    written(call, target).await
}

/// The numbers as what they are.
fn ranges(request: &DuplicateExtents, is_atomic: bool) -> Result<ExtentCopy, Status> {
    let number = |number: i64| u64::try_from(number).map_err(|_| Status::INVALID_PARAMETER);
    let copy = ExtentCopy {
        source_offset: number(request.source_file_offset)?,
        target_offset: number(request.target_file_offset)?,
        length: number(request.byte_count)?,
        is_atomic,
    };
    let fits = |offset: u64| offset.checked_add(copy.length).is_some_and(|end| end <= MAX_OFFSET);
    if fits(copy.source_offset) && fits(copy.target_offset) {
        Ok(copy)
    } else {
        Err(Status::INVALID_PARAMETER)
    }
}

/// Checks the pair of files: MS-FSA 2.1.5.10.4, in its order.
fn check_pair(
    from: &Open,
    source: &FileOpen,
    target: &FileOpen,
    copy: &ExtentCopy,
    source_end: u64,
) -> Result<(), Status> {
    if target.is_directory {
        return Err(Status::NOT_SUPPORTED);
    }
    let reads = AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES;
    if source.is_directory || !from.granted_access.contains(reads) {
        return Err(Status::INVALID_PARAMETER);
    }
    if copy.source_offset + copy.length > source_end {
        return Err(Status::NOT_SUPPORTED);
    }
    let (a, b) = (source.node.key(), target.node.key());
    if a.device != b.device {
        return Err(Status::INVALID_PARAMETER);
    }
    let sparse = |file: &FileOpen| {
        file.stat().map(|stat| stat.attributes.contains(FileAttributes::SPARSE_FILE))
    };
    if sparse(source)? && !sparse(target)? {
        return Err(Status::NOT_SUPPORTED);
    }
    // MS-FSCC 2.3.8: source and target ranges in one file must not overlap.
    if a == b && copy.source_offset.abs_diff(copy.target_offset) < copy.length {
        return Err(Status::NOT_SUPPORTED);
    }
    Ok(())
}

/// Windows: the target's end stays where it is, and what would come behind it
/// does not come. The cluster that the end is in is copied, since sharing it
/// would move the end.
async fn share_within(
    call: &Call<'_>,
    source: &FileOpen,
    target: &FileOpen,
    copy: ExtentCopy,
) -> Result<(), Status> {
    let room = target.stat()?.end_of_file.saturating_sub(copy.target_offset);
    if copy.length <= room {
        return share(call, source, target, copy).await;
    }
    let whole = room - room % u64::from(target.vfs.volume().cluster);
    if whole != 0 {
        share(call, source, target, ExtentCopy { length: whole, ..copy }).await?;
    }
    if room == whole {
        return Ok(());
    }
    let tail = Chunk {
        source_offset: copy.source_offset + whole,
        target_offset: copy.target_offset + whole,
        length: u32::try_from(room - whole).map_err(|_| Status::INVALID_PARAMETER)?,
    };
    copychunk::copy_all(call, vec![tail], source, target).await
}

async fn share(
    call: &Call<'_>,
    source: &FileOpen,
    target: &FileOpen,
    copy: ExtentCopy,
) -> Result<(), Status> {
    let (from, to) = (Arc::clone(&source.node), Arc::clone(&target.node));
    let shared = call.rq.beside_core(move || to.share_extents(&*from, &copy)).await?;
    shared.map_err(|fault| match fault {
        Fault::CrossDevice => Status::INVALID_PARAMETER,
        Fault::NotSupported => Status::INVALID_DEVICE_REQUEST,
        fault => fault.status(),
    })
}

/// Finishes a change of a file's data: times, reports and stable storage.
pub(super) async fn written(call: &Call<'_>, file: &FileOpen) -> Answer {
    file.report_written(&call.rq.server().files);
    NO_OUTPUT
}

/// FSCTL_FILE_LEVEL_TRIM, MS-FSA 2.1.5.10.6: what is not needed any more is
/// given back, and reads as zeros.
pub(super) async fn trim(call: &Call<'_>) -> Answer {
    let file = call.data_file()?;
    if !file.vfs.volume().sparse {
        return Err(Status::INVALID_DEVICE_REQUEST.into());
    }
    if file.stat()?.attributes.intersects(FileAttributes::COMPRESSED | FileAttributes::ENCRYPTED) {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let request = TrimRequest::parse(call.input)?;
    if request.key != 0 {
        // MS-FSCC 2.3.13 leaves the use of the key to remote protocols, and MS-SMB2 does not use
        // it. So a request with a key is refused, as on Windows.
        return Err(Status::INVALID_PARAMETER.into());
    }
    if call.max_output != 0 && (call.max_output as usize) < TrimReply::SIZE {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if request.ranges().count() > TRIM_RANGES {
        return Err(Status::INSUFFICIENT_RESOURCES.into());
    }
    // A freed range reads as zeros, so oplocks are broken as for a WRITE (MS-FSA 2.1.5.4). The size
    // is read afterwards, because a client that cached the file may extend it.
    call.rq.contend(file, Cause::Write).await?;
    call.rq.still_served()?;
    let end = file.stat()?.end_of_file.next_multiple_of(PAGE);
    let (mut ranges_processed, mut changed) = (0, false);
    for range in request.ranges() {
        match give_back(call, file, range, end).await {
            Ok(Trimmed::Nothing) => {}
            Ok(given) => {
                ranges_processed += 1;
                changed |= given == Trimmed::Data;
            }
            Err(status) => {
                if changed {
                    written(call, file).await?;
                }
                return Err(status.into());
            }
        }
    }
    if changed {
        written(call, file).await?;
    }
    if call.max_output == 0 {
        return NO_OUTPUT;
    }
    Ok((output(|w| TrimReply { ranges_processed }.encode(w)), Status::SUCCESS))
}

/// The outcome for one range.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trimmed {
    /// No whole page is in it: it does not count.
    Nothing,
    /// All of it is behind the end, where there is nothing to give back.
    Behind,
    Data,
}

async fn give_back(
    call: &Call<'_>,
    file: &FileOpen,
    range: TrimRange,
    end: u64,
) -> Result<Trimmed, Status> {
    let Some((first, length)) = whole_pages(range.offset, range.length, end)? else {
        return Ok(Trimmed::Nothing);
    };
    let open = call.open()?;
    let range = Range { offset: first, length }.check().map_err(|_| Status::INTEGER_OVERFLOW)?;
    if !file.cell.lock().ranges.may_write(open.id(), range) {
        return Err(Status::FILE_LOCK_CONFLICT);
    }
    if first >= end {
        return Ok(Trimmed::Behind);
    }
    let node = Arc::clone(&file.node);
    let zeroed = call.rq.beside_core(move || node.zero(first, length, true)).await?;
    zeroed.map_err(refusal)?;
    Ok(Trimmed::Data)
}

const fn refusal(fault: Fault) -> Status {
    match fault {
        Fault::NotSupported => Status::INVALID_DEVICE_REQUEST,
        fault => fault.status(),
    }
}

/// The pages that lie wholly in a range; `None` without any. Of a range that begins
/// before `end`, where the file's last page ends, those before it.
fn whole_pages(offset: u64, length: u64, end: u64) -> Result<Option<(u64, u64)>, Status> {
    let first = offset.checked_next_multiple_of(PAGE).ok_or(Status::INTEGER_OVERFLOW)?;
    let mut length = length.saturating_sub(first - offset);
    if first < end {
        let beyond = first.checked_add(length).ok_or(Status::INTEGER_OVERFLOW)?;
        length = beyond.min(end) - first;
    }
    length -= length % PAGE;
    Ok((length != 0).then_some((first, length)))
}

/// FSCTL_GET_INTEGRITY_INFORMATION, MS-FSA 2.1.5.10.10: clients ask before they
/// duplicate extents, so volumes that share them answer.
pub(super) fn integrity(call: &Call<'_>) -> Answer {
    let volume = call.file()?.vfs.volume();
    if !volume.shares_extents {
        return Err(Status::INVALID_DEVICE_REQUEST.into());
    }
    if (call.max_output as usize) < IntegrityInformation::SIZE {
        return Err(Status::INVALID_PARAMETER.into());
    }
    // The answer says that there are no checksums, because clients cannot control the checksums of
    // btrfs.
    let information = IntegrityInformation {
        checksum_algorithm: CHECKSUM_TYPE_NONE,
        flags: IntegrityFlags::EMPTY,
        checksum_chunk_size: 0,
        cluster_size: volume.cluster,
    };
    Ok((output(|w| information.encode(w)), Status::SUCCESS))
}

/// FSCTL_SET_INTEGRITY_INFORMATION, MS-FSA 2.1.5.10.33. Only "no integrity" succeeds: the
/// server has none.
pub(super) fn set_integrity(call: &Call<'_>) -> Answer {
    if !call.file()?.vfs.volume().shares_extents {
        return Err(Status::INVALID_DEVICE_REQUEST.into());
    }
    let request = SetIntegrityInformation::parse(call.input)?;
    if !request.flags.is_empty() {
        // A well-formed request to use checksums returns NOT_SUPPORTED, any other request
        // INVALID_PARAMETER.
        let known = request.flags == IntegrityFlags::CHECKSUM_ENFORCEMENT_OFF;
        let wants = matches!(request.checksum_algorithm, CHECKSUM_TYPE_CRC32 | CHECKSUM_TYPE_CRC64);
        let status = if known && wants { Status::NOT_SUPPORTED } else { Status::INVALID_PARAMETER };
        return Err(status.into());
    }
    match request.checksum_algorithm {
        CHECKSUM_TYPE_NONE | CHECKSUM_TYPE_UNCHANGED => NO_OUTPUT,
        CHECKSUM_TYPE_CRC32 | CHECKSUM_TYPE_CRC64 => Err(Status::NOT_SUPPORTED.into()),
        _ => Err(Status::INVALID_PARAMETER.into()),
    }
}
