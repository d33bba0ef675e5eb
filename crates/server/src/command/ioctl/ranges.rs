//! Holes: FSCTL_SET_SPARSE, FSCTL_SET_ZERO_DATA, FSCTL_QUERY_ALLOCATED_RANGES.

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use frevo_net::file_io::run_blocking;
use frevo_store::Fault;
use frevo_store::byte_range::Range;
use frevo_store::vfs::BasicChange;
use frevo_wire::Status;
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::fsctl::{AllocatedRange, ZeroData, parse_set_sparse};
use frevo_wire::fscc::notify::NotifyAction;
use rustix::fs::{FallocateFlags, SeekFrom};
use rustix::io::Errno;

use super::{Answer, Call, NO_OUTPUT, output};
use crate::changes;
use crate::data;
use crate::open::FileOpen;

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
    let node = Arc::clone(&file.node);
    let rest = now.attributes.without(FileAttributes::SPARSE_FILE | FileAttributes::NORMAL);
    let change = move || {
        let attributes = if sparse {
            rest | FileAttributes::SPARSE_FILE
        } else {
            // What is not sparse has all of its space.
            node.set_allocation(now.end_of_file)?;
            if rest.is_empty() { FileAttributes::NORMAL } else { rest }
        };
        node.set_basic(&BasicChange { attributes: Some(attributes), ..BasicChange::default() })
    };
    run_blocking(change).await.map_err(|error| data::status(&error))?.map_err(Fault::status)?;
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
    let stat = file.stat()?;
    let length = beyond.min(stat.end_of_file).saturating_sub(first);
    if length == 0 {
        return NO_OUTPUT;
    }
    let open = call.open()?;
    if !file.cell.lock().ranges.may_write(open.id(), Range { offset: first, length }) {
        return Err(Status::FILE_LOCK_CONFLICT.into());
    }
    let io = file.io().ok_or(Status::INVALID_DEVICE_REQUEST)?;
    let punch = stat.attributes.contains(FileAttributes::SPARSE_FILE);
    io.run_blocking(move |fd| Ok(zero(fd, first, length, punch)?)).await.map_err(|error| {
        match Errno::from_io_error(&error) {
            Some(Errno::OPNOTSUPP | Errno::NOSYS) => Status::INVALID_DEVICE_REQUEST,
            _ => data::status(&error),
        }
    })?;
    if file.has_mode(CreateOptions::WRITE_THROUGH) {
        data::sync(file).await?;
    }
    file.report(&call.rq.server().files, NotifyAction::MODIFIED, changes::DATA);
    NO_OUTPUT
}

/// A sparse file gives its space back; another keeps it where the file system
/// can zero without writing.
fn zero(fd: BorrowedFd<'_>, first: u64, length: u64, punch: bool) -> Result<(), Errno> {
    let fallocate = |flags: FallocateFlags| {
        rustix::io::retry_on_intr(|| {
            rustix::fs::fallocate(fd, flags | FallocateFlags::KEEP_SIZE, first, length)
        })
    };
    if !punch {
        match fallocate(FallocateFlags::ZERO_RANGE) {
            Err(Errno::OPNOTSUPP) => {}
            other => return other,
        }
    }
    fallocate(FallocateFlags::PUNCH_HOLE)
}

/// FSCTL_QUERY_ALLOCATED_RANGES, MS-FSA 2.1.5.10.22, within the file.
pub(super) async fn query_allocated(call: &Call<'_>) -> Answer {
    let file = call.data_file()?;
    let request = AllocatedRange::parse(call.input)?;
    let (Ok(first), Ok(length)) =
        (u64::try_from(request.file_offset), u64::try_from(request.length))
    else {
        return Err(Status::INVALID_PARAMETER.into());
    };
    let Some(beyond) = first.checked_add(length).filter(|b| *b <= data::MAX_OFFSET) else {
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
    let (ranges, complete) = match file.io() {
        Some(_) if sparse => allocated(file, first, beyond, limit).await?,
        // What has no holes, or none that can be seen, is all there.
        _ if limit > 0 => (vec![(first, beyond)], true),
        _ => (Vec::new(), false),
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
    file: &FileOpen,
    first: u64,
    beyond: u64,
    limit: usize,
) -> Result<(Vec<(u64, u64)>, bool), Status> {
    let io = file.io().ok_or(Status::INVALID_DEVICE_REQUEST)?;
    let walk = move |fd: BorrowedFd<'_>| -> io::Result<_> {
        let mut ranges = Vec::new();
        let mut at = first;
        while let Some((from, to)) = next_data(fd, at)?.filter(|(from, _)| *from < beyond) {
            if ranges.len() == limit {
                return Ok((ranges, false));
            }
            ranges.push((from, to.min(beyond)));
            at = to;
        }
        Ok((ranges, true))
    };
    io.run_blocking(walk).await.map_err(|error| data::status(&error))
}

/// The next range with data. The descriptor's position is moved, and nobody
/// uses it: all other I/O brings its own offset.
fn next_data(fd: BorrowedFd<'_>, at: u64) -> Result<Option<(u64, u64)>, Errno> {
    let from = match rustix::fs::seek(fd, SeekFrom::Data(at)) {
        // Nothing but a hole from here on.
        Err(Errno::NXIO) => return Ok(None),
        from => from?,
    };
    match rustix::fs::seek(fd, SeekFrom::Hole(from)) {
        Err(Errno::NXIO) => Ok(None),
        // The file may have changed in between: no range is empty.
        to => Ok(to.ok().filter(|to| *to > from).map(|to| (from, to))),
    }
}
