//! Holes: FSCTL_SET_SPARSE, FSCTL_SET_ZERO_DATA, FSCTL_QUERY_ALLOCATED_RANGES.

use std::sync::Arc;

use frevo_store::Fault;
use frevo_store::byte_range::Range;
use frevo_store::lease::Cause;
use frevo_store::vfs::BasicChange;
use frevo_wire::Status;
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::fsctl::{AllocatedRange, ZeroData, parse_set_sparse};
use frevo_wire::fscc::notify::NotifyAction;

use super::call::{Answer, Call, NO_OUTPUT, output};
use crate::objects::archive::moment;
use crate::objects::open::FileOpen;
use crate::objects::stable;
use crate::shares::share::MAX_OFFSET;

/// FSCTL_SET_SPARSE, MS-FSA 2.1.5.10.38. Every file of the host may have
/// holes; the attribute says whether clients are told of them.
pub(super) async fn set_sparse(call: &Call<'_>) -> Answer {
    let file = call.data_file()?;
    if !file.vfs.volume().sparse {
        return Err(Status::INVALID_DEVICE_REQUEST.into());
    }
    let sparse = parse_set_sparse(call.input);
    let now = file.stat()?;
    let was = now.attributes.contains(FileAttributes::SPARSE_FILE);
    if was == sparse {
        return NO_OUTPUT;
    }
    if !sparse {
        // A file that is no longer sparse gets disk space for all of its data.
        let node = Arc::clone(&file.node);
        let reserve = move || node.set_allocation(now.end_of_file);
        call.rq.beside_core(reserve).await?.map_err(Fault::status)?;
    }
    let mark = || {
        let rest = file.as_stored(file.node.stat_without_eas()?.attributes);
        let rest = rest.without(FileAttributes::SPARSE_FILE);
        let attributes = match sparse {
            true => rest | FileAttributes::SPARSE_FILE,
            false if rest.is_empty() => FileAttributes::NORMAL,
            false => rest,
        };
        let change = BasicChange { attributes: Some(attributes), ..BasicChange::default() };
        file.node.set_basic(&change)?;
        Ok::<_, Fault>(rest.contains(FileAttributes::ARCHIVE))
    };
    file.own_cell().change_attributes(moment(), mark).map_err(Fault::status)?;
    let files = &call.rq.server().files;
    file.report(files, NotifyAction::MODIFIED, CompletionFilter::ATTRIBUTES);
    NO_OUTPUT
}

/// FSCTL_SET_ZERO_DATA, MS-FSA 2.1.5.10.39. The end of the file stays.
pub(super) async fn set_zero_data(call: &Call<'_>) -> Answer {
    let file = call.data_file()?;
    let request = ZeroData::parse(call.input)?;
    let (Ok(first), Ok(beyond)) =
        (u64::try_from(request.file_offset), u64::try_from(request.beyond_final_zero))
    else {
        return Err(Status::INVALID_PARAMETER.into());
    };
    if first > beyond {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let inside = |end: u64| beyond.min(end).saturating_sub(first);
    if inside(file.stat()?.end_of_file) == 0 {
        return NO_OUTPUT;
    }
    let open = call.open()?;
    call.rq.contend(file, Cause::Write).await?;
    call.rq.still_served()?;
    // The size is read after the oplock break, because a client that cached the file may have
    // extended it.
    let stat = file.stat()?;
    let length = inside(stat.end_of_file);
    if length == 0 {
        return NO_OUTPUT;
    }
    if !file.cell.lock().ranges.may_write(open.id(), Range { offset: first, length }) {
        return Err(Status::FILE_LOCK_CONFLICT.into());
    }
    let holey = FileAttributes::SPARSE_FILE | FileAttributes::COMPRESSED;
    let punch = stat.attributes.intersects(holey);
    let node = Arc::clone(&file.node);
    let zeroed = call.rq.beside_core(move || node.zero(first, length, punch)).await?;
    zeroed.map_err(|fault| match fault {
        Fault::NotSupported => Status::INVALID_DEVICE_REQUEST,
        fault => fault.status(),
    })?;
    // MS-FSA 2.1.5.10.39: an unbuffered Open has its zeros synced here. For WRITE_THROUGH the
    // caller syncs them.
    if file.has_mode(CreateOptions::NO_INTERMEDIATE_BUFFERING)
        && !file.has_mode(CreateOptions::WRITE_THROUGH)
    {
        stable::sync(file).await?;
    }
    file.report_written(&call.rq.server().files);
    NO_OUTPUT
}

/// FSCTL_QUERY_ALLOCATED_RANGES, MS-FSA 2.1.5.10.22.
///
/// Windows: nothing behind the end of the file, be it sparse or not; and where
/// there is nothing to tell it takes no room.
pub(super) async fn query_allocated(call: &Call<'_>) -> Answer {
    let file = call.data_file()?;
    let request = AllocatedRange::parse(call.input)?;
    let (Ok(first), Ok(length)) =
        (u64::try_from(request.file_offset), u64::try_from(request.length))
    else {
        return Err(Status::INVALID_PARAMETER.into());
    };
    let Some(beyond) = first.checked_add(length).filter(|b| *b <= MAX_OFFSET) else {
        return Err(Status::INVALID_PARAMETER.into());
    };
    if length == 0 {
        return NO_OUTPUT;
    }
    let stat = file.stat()?;
    let beyond = beyond.min(stat.end_of_file);
    if first >= beyond {
        return NO_OUTPUT;
    }
    let sparse = stat.attributes.contains(FileAttributes::SPARSE_FILE);
    let limit = call.max_output as usize / AllocatedRange::SIZE;
    let (ranges, complete) = if sparse {
        allocated(call, file, first, beyond, limit).await?
    } else if limit > 0 {
        // A file that is not sparse is allocated as a whole, so one range is returned.
        (vec![(first, beyond)], true)
    } else {
        (Vec::new(), false)
    };
    if ranges.is_empty() && !complete {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    let bytes = output(|w| {
        for (first, beyond) in &ranges {
            let number = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
            let (file_offset, length) = (number(*first), number(beyond - first));
            AllocatedRange { file_offset, length }.encode(w);
        }
    });
    Ok((bytes, if complete { Status::SUCCESS } else { Status::BUFFER_OVERFLOW }))
}

/// Up to `limit` ranges with data in `first..beyond`, and whether those are all.
async fn allocated(
    call: &Call<'_>,
    file: &FileOpen,
    first: u64,
    beyond: u64,
    limit: usize,
) -> Result<(Vec<(u64, u64)>, bool), Status> {
    let node = Arc::clone(&file.node);
    let walked = call.rq.beside_core(move || node.allocated(first, beyond, limit)).await?;
    let found = walked.map_err(Fault::status)?;
    Ok((found.ranges, !found.has_more))
}
