//! Space and valid data: MS-FSA 2.1.5.15.1 and 2.1.5.15.15.

use frevo_store::Fault;
use frevo_store::security::Privileges;
use frevo_wire::Status;
use frevo_wire::dtyp::FileAttributes;

use crate::objects::open::{FileOpen, Open};

/// The largest file of a Windows volume: 2^32 clusters of 2 MiB, less 64 KiB. MS-FSA 2.1.5.15.1,
/// note 177.
const LARGEST_FILE: u64 = (1 << 53) - (64 << 10);

/// Returns `bytes` in whole clusters; None for more than a file can have.
pub(super) fn whole_clusters(file: &FileOpen, bytes: u64) -> Option<u64> {
    let cluster = u64::from(file.vfs.volume().cluster).max(1);
    let whole = bytes.checked_next_multiple_of(cluster).unwrap_or(bytes);
    (bytes <= LARGEST_FILE).then_some(whole)
}

/// FileAllocationInformation: whole clusters, which may hold more than was asked
/// for. What is in the last of them stays.
pub(super) fn set_allocation(file: &FileOpen, bytes: u64) -> Result<(), Status> {
    let whole = whole_clusters(file, bytes).ok_or(Status::INVALID_PARAMETER)?;
    let is_cut = whole < file.stat()?.end_of_file;
    keep_times(file, is_cut, || file.node.set_allocation(whole).map_err(Fault::status))
}

/// Allocates by `set`. MS-FSA 2.1.5.15.1: if no data is cut off, only ChangeTime changes, so the write
/// time is restored. A cut is a change of data: its time is told again if another Open restores an
/// earlier one meanwhile.
pub(super) fn keep_times(
    file: &FileOpen,
    is_cut: bool,
    set: impl FnOnce() -> Result<(), Status>,
) -> Result<(), Status> {
    let mut kept = if is_cut { file.keep_times_of_write() } else { file.keep_written() };
    let done = set();
    match done {
        // Counted before `kept` looks for restorations, so that this or the other Open notices.
        Ok(()) if is_cut => file.times_moved(),
        Ok(()) => {}
        Err(_) => kept.was_refused(),
    }
    drop(kept);
    done
}

/// FileValidDataLengthInformation. The host shows zeros where nothing was written,
/// so all of a file is valid data up to its end, and there is nothing to be done
/// for those who may do it.
///
/// Windows: nor is anything valid behind the end.
pub(super) fn set_valid_data_length(
    open: &Open,
    file: &FileOpen,
    length: i64,
) -> Result<(), Status> {
    if !open.tree().token().holds(Privileges::MANAGE_VOLUME) {
        return Err(Status::PRIVILEGE_NOT_HELD);
    }
    let stat = file.stat()?;
    let odd = FileAttributes::COMPRESSED | FileAttributes::SPARSE_FILE;
    let fits = u64::try_from(length).is_ok_and(|length| length == stat.end_of_file);
    if file.is_directory || stat.attributes.intersects(odd) || !fits {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(())
}
