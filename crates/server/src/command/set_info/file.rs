//! The classes of MS-SMB2 3.3.5.21.1: what each demands, and the small ones.

use std::sync::atomic::Ordering;

use frevo_store::security::Privileges;
use frevo_store::{Fault, FileTable, Name};
use frevo_wire::Status;
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::notify::NotifyAction;
use frevo_wire::fscc::query::{
    FileBasicInformation, FileMode, FileModeInformation, FilePositionInformation,
};
use frevo_wire::fscc::set::{
    FileAllocationInformation, FileDispositionInformation, FileDispositionInformationEx,
    FileEndOfFileInformation, FileValidDataLengthInformation,
};

use super::writable::writable;
use super::{basic_information, disposition, eas, rename, sizes};
use crate::audit::Recorded;
use crate::command::spelling::Spelling;
use crate::ipc;
use crate::objects::audited;
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::objects::shortening;
use crate::shares::apple;

/// Unbuffered positions are multiples of this number of bytes.
const SECTOR: u64 = 512;

/// The conditions that a class demands before it is applied.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Row {
    /// Rights, all of which must have been granted.
    pub(super) access: AccessMask,
    /// Smallest buffer; less is INFO_LENGTH_MISMATCH.
    pub(super) min: usize,
    /// Changes more than the handle.
    pub(super) modifies: bool,
    /// The event of the audit log that the change causes.
    pub(super) recorded: Recorded,
}

const fn changes(access: AccessMask, min: usize, recorded: Recorded) -> Row {
    Row { access, min, modifies: true, recorded }
}

const fn handle_only(min: usize) -> Row {
    Row { access: AccessMask::EMPTY, min, modifies: false, recorded: Recorded::Nothing }
}

/// The row of a class, or the status that refuses it.
pub(super) const fn row(class: FileInfoClass) -> Result<Row, Status> {
    use Recorded::{Attributes, Basic, Data, Link, Nothing, Removal, Rename};
    Ok(match class {
        FileInfoClass::BASIC => {
            changes(AccessMask::WRITE_ATTRIBUTES, FileBasicInformation::SIZE, Basic)
        }
        FileInfoClass::RENAME | FileInfoClass::RENAME_EX => changes(AccessMask::DELETE, 24, Rename),
        // MS-FSA 2.1.5.15.7: adding a hard link needs no right on the file itself.
        FileInfoClass::LINK => changes(AccessMask::EMPTY, 24, Link),
        FileInfoClass::DISPOSITION => {
            changes(AccessMask::DELETE, FileDispositionInformation::SIZE, Removal)
        }
        FileInfoClass::DISPOSITION_EX => {
            changes(AccessMask::DELETE, FileDispositionInformationEx::SIZE, Removal)
        }
        FileInfoClass::POSITION => handle_only(FilePositionInformation::SIZE),
        FileInfoClass::FULL_EA => changes(AccessMask::WRITE_EA, 1, Attributes("eas")),
        FileInfoClass::MODE => handle_only(FileModeInformation::SIZE),
        FileInfoClass::ALLOCATION => {
            changes(AccessMask::WRITE_DATA, FileAllocationInformation::SIZE, Data)
        }
        FileInfoClass::END_OF_FILE => {
            changes(AccessMask::WRITE_DATA, FileEndOfFileInformation::SIZE, Data)
        }
        FileInfoClass::PIPE => {
            let access = AccessMask::WRITE_ATTRIBUTES;
            Row { access, min: 8, modifies: false, recorded: Nothing }
        }
        // The valid data length is not stored, so after the checks of the right and the length
        // nothing is done.
        FileInfoClass::VALID_DATA_LENGTH => {
            changes(AccessMask::WRITE_DATA, FileValidDataLengthInformation::SIZE, Data)
        }
        // A short name cannot be set. `set` refuses it after the checks of the right and the
        // length, and the refusal is recorded.
        FileInfoClass::SHORT_NAME => changes(AccessMask::DELETE, 8, Attributes("short_name")),
        // MS-FSCC lets this class be set, but SMB2 sets quotas by another request, so it is
        // refused.
        FileInfoClass::QUOTA => return Err(Status::NOT_SUPPORTED),
        // MS-SMB2 3.3.5.21.1 note 428: numbers without a class that Windows knows nevertheless.
        FileInfoClass(30 | 41..=43) => return Err(Status::NOT_SUPPORTED),
        _ => return Err(Status::INVALID_INFO_CLASS),
    })
}

/// True for a class that changes more than the handle.
pub(super) fn modifies(class: FileInfoClass) -> bool {
    row(class).is_ok_and(|row| row.modifies)
}

/// True for a class before which a late LastWriteTime is brought up to date. Windows: also
/// FileBasicInformation, even when it changes nothing.
pub(super) const fn settles(class: FileInfoClass) -> bool {
    matches!(class, FileInfoClass::BASIC | FileInfoClass::END_OF_FILE | FileInfoClass::ALLOCATION)
}

/// Fails unless the conditions of a class hold; returns them.
fn check(open: &Open, class: FileInfoClass, bytes: &[u8]) -> Result<Row, Status> {
    let row = row(class)?;
    if bytes.len() < row.min {
        return Err(Status::INFO_LENGTH_MISMATCH);
    }
    open.require(row.access)?;
    if row.modifies {
        writable(open)?;
    }
    Ok(row)
}

/// Returns the new end of a file that is cut in steps before [`set`] makes the last cut: it has much on
/// the medium. None for other files and classes, and where [`set`] will refuse.
pub(super) fn long_cut(open: &Open, class: FileInfoClass, bytes: &[u8]) -> Option<u64> {
    let file = open.file().ok()?;
    let size = match class {
        FileInfoClass::END_OF_FILE => FileEndOfFileInformation::parse(bytes).ok()?.end_of_file,
        FileInfoClass::ALLOCATION => FileAllocationInformation::parse(bytes).ok()?.allocation_size,
        _ => return None,
    };
    check(open, class, bytes).ok()?;
    let size = data_size(file, size).ok()?;
    let end = match class {
        FileInfoClass::ALLOCATION => sizes::whole_clusters(file, size)?,
        _ => size,
    };
    shortening::is_long(&*file.node, end).then_some(end)
}

/// Applies a class to a file, a directory or a pipe.
pub(super) fn set(
    open: &Open,
    files: &FileTable,
    class: FileInfoClass,
    bytes: &[u8],
) -> Result<(), Status> {
    let row = check(open, class, bytes)?;
    let file = match &open.target {
        OpenTarget::File(file) => file,
        OpenTarget::Pipe(_) => return ipc::set_pipe_info(open, class, bytes),
    };
    let from = changes_names(class).then(|| file.name());
    let from = from.as_ref();
    apply(open, file, files, class, bytes)?;
    if matches!(class, FileInfoClass::ALLOCATION | FileInfoClass::END_OF_FILE) {
        open.brake_resized(file);
    }
    audit(open, class, row.recorded, bytes, from, Ok(()));
    if changes_content(file, class, from) {
        file.set_archive();
    }
    report(open, file, files, class, bytes, from);
    Ok(())
}

/// True for a class that changes or adds a name.
pub(super) const fn changes_names(class: FileInfoClass) -> bool {
    matches!(class, FileInfoClass::RENAME | FileInfoClass::RENAME_EX | FileInfoClass::LINK)
}

/// True when a class that was applied makes the file one to be archived: MS-FSA 2.1.5.15.1, .5, .6,
/// .7 and .12. `from` is the name before, for a class that changes names.
fn changes_content(file: &FileOpen, class: FileInfoClass, from: Option<&Name>) -> bool {
    match class {
        FileInfoClass::ALLOCATION
        | FileInfoClass::END_OF_FILE
        | FileInfoClass::FULL_EA
        | FileInfoClass::LINK => true,
        FileInfoClass::RENAME | FileInfoClass::RENAME_EX => {
            !file.is_directory && from != Some(&file.name())
        }
        _ => false,
    }
}

/// Records a change that was refused.
pub(super) fn record_refused(open: &Open, class: FileInfoClass, bytes: &[u8], status: Status) {
    let (Ok(row), Ok(file)) = (row(class), open.file()) else { return };
    match row.recorded {
        Recorded::Data => audited::write_refused(open, status),
        Recorded::Removal => audited::removal_refused(open, status),
        recorded => audit(open, class, recorded, bytes, Some(&file.name()), Err(status)),
    }
}

/// Records the change of a class, but for those that are recorded when the handle is closed. `from`
/// is the name before, for a class that changes names.
fn audit(
    open: &Open,
    class: FileInfoClass,
    recorded: Recorded,
    bytes: &[u8],
    from: Option<&Name>,
    applied: Result<(), Status>,
) {
    if open.tree().share.audit.is_none() {
        return;
    }
    let Ok(file) = open.file() else { return };
    match recorded {
        Recorded::Rename => {
            let wanted = match class {
                FileInfoClass::RENAME_EX => rename::wanted_ex(bytes, Spelling::of_open(open, file)),
                _ => rename::wanted(bytes, Spelling::of_open(open, file)),
            };
            if let (Ok(wanted), Some(from)) = (wanted, from) {
                audited::renamed(open, from, wanted.name(), applied);
            }
        }
        Recorded::Link => {
            if let (Ok(wanted), Some(from)) =
                (rename::wanted(bytes, Spelling::of_open(open, file)), from)
            {
                audited::linked(open, from, wanted.name(), applied);
            }
        }
        Recorded::Basic => {
            if let Some(parts) = basic_information::parts(bytes) {
                audited::attributes(open, parts, applied);
            }
        }
        Recorded::Attributes(parts) => audited::attributes(open, parts, applied),
        Recorded::Data | Recorded::Removal | Recorded::Nothing => {}
    }
}

/// MS-FSA 2.1.5.15: what those who watch are told.
fn report(
    open: &Open,
    file: &FileOpen,
    files: &FileTable,
    class: FileInfoClass,
    bytes: &[u8],
    from: Option<&Name>,
) {
    let matches = match class {
        FileInfoClass::RENAME | FileInfoClass::RENAME_EX => {
            if let Some(from) = from.filter(|from| file.name() != **from) {
                file.report_rename(files, from);
            }
            return;
        }
        FileInfoClass::LINK => {
            if let Ok(added) = rename::wanted(bytes, Spelling::of_open(open, file)) {
                file.entry_changed(files, added.name());
                let action = NotifyAction::ADDED;
                files.watches.report(file.folder_id(), added.name(), action, file.names());
            }
            return;
        }
        FileInfoClass::DISPOSITION | FileInfoClass::DISPOSITION_EX => {
            if file.is_directory && file.cell.lock().is_delete_pending() {
                files.watches.deleting(file.cell.key());
            }
            return;
        }
        FileInfoClass::BASIC => {
            return file.tell(files, NotifyAction::MODIFIED, basic_information::matches(bytes));
        }
        FileInfoClass::FULL_EA => CompletionFilter::EA,
        FileInfoClass::ALLOCATION | FileInfoClass::END_OF_FILE => CompletionFilter::SIZE,
        _ => return,
    };
    file.report(files, NotifyAction::MODIFIED, matches);
}

fn apply(
    open: &Open,
    file: &FileOpen,
    files: &FileTable,
    class: FileInfoClass,
    bytes: &[u8],
) -> Result<(), Status> {
    match class {
        FileInfoClass::BASIC => {
            basic_information::set(file, &parse(FileBasicInformation::parse(bytes))?)
        }
        FileInfoClass::RENAME => rename::rename(
            open,
            file,
            files,
            &rename::wanted(bytes, Spelling::of_open(open, file))?,
        ),
        FileInfoClass::RENAME_EX => rename::rename(
            open,
            file,
            files,
            &rename::wanted_ex(bytes, Spelling::of_open(open, file))?,
        ),
        FileInfoClass::LINK => {
            rename::link(open, file, files, &rename::wanted(bytes, Spelling::of_open(open, file))?)
        }
        FileInfoClass::DISPOSITION => {
            let delete = parse(FileDispositionInformation::parse(bytes))?.delete_pending;
            disposition::set(open, file, delete)
        }
        FileInfoClass::DISPOSITION_EX => disposition::set_ex(
            open,
            file,
            parse(FileDispositionInformationEx::parse(bytes))?.flags,
        ),
        FileInfoClass::POSITION => position(file, &parse(FilePositionInformation::parse(bytes))?),
        FileInfoClass::FULL_EA => eas::set(file, bytes),
        FileInfoClass::MODE => mode(file, parse(FileModeInformation::parse(bytes))?.mode),
        FileInfoClass::ALLOCATION => {
            let size = parse(FileAllocationInformation::parse(bytes))?.allocation_size;
            sizes::set_allocation(file, data_size(file, size)?)
        }
        FileInfoClass::END_OF_FILE => {
            let size = parse(FileEndOfFileInformation::parse(bytes))?.end_of_file;
            let size = data_size(file, size)?;
            apple::check_end(&*file.node, size)?;
            file.node.set_end_of_file(size).map_err(Fault::status)
        }
        FileInfoClass::VALID_DATA_LENGTH => {
            let length = parse(FileValidDataLengthInformation::parse(bytes))?.valid_data_length;
            sizes::set_valid_data_length(open, file, length)
        }
        FileInfoClass::SHORT_NAME => Err(short_name(open, file)),
        _ => Err(Status::INVALID_PARAMETER),
    }
}

/// MS-FSCC: a structure that is too short.
fn parse<T>(parsed: frevo_wire::codec::Parsed<T>) -> Result<T, Status> {
    parsed.map_err(|_| Status::INFO_LENGTH_MISMATCH)
}

/// MS-FSA 2.1.5.15.1 and .5: directories have no size, and none is negative.
fn data_size(file: &FileOpen, size: i64) -> Result<u64, Status> {
    if file.is_directory {
        return Err(Status::INVALID_PARAMETER);
    }
    let size = u64::try_from(size).ok().filter(|size| *size <= file.max_size);
    size.ok_or(Status::INVALID_PARAMETER)
}

/// MS-FSA 2.1.5.15.14. Deviation: short names are made of the long ones and kept
/// nowhere, so none can be set.
fn short_name(open: &Open, file: &FileOpen) -> Status {
    if !open.tree().token().holds(Privileges::RESTORE) {
        Status::PRIVILEGE_NOT_HELD
    } else if file.vfs.volume().short_names {
        Status::NOT_SUPPORTED
    } else {
        Status::SHORT_NAMES_NOT_ENABLED_ON_VOLUME
    }
}

/// MS-FSA 2.1.5.15.10.
fn position(file: &FileOpen, information: &FilePositionInformation) -> Result<(), Status> {
    let offset = u64::try_from(information.current_byte_offset);
    let offset = offset.map_err(|_| Status::INVALID_PARAMETER)?;
    let unbuffered = u64::from(FileMode::NO_INTERMEDIATE_BUFFERING.0);
    if file.mode.load(Ordering::Relaxed) & unbuffered != 0 && !offset.is_multiple_of(SECTOR) {
        return Err(Status::INVALID_PARAMETER);
    }
    file.position.store(offset, Ordering::Relaxed);
    Ok(())
}

/// MS-FSA 2.1.5.15.8.
fn mode(file: &FileOpen, new: FileMode) -> Result<(), Status> {
    let synchronous = FileMode::SYNCHRONOUS_IO_ALERT | FileMode::SYNCHRONOUS_IO_NONALERT;
    let settable = FileMode::WRITE_THROUGH | FileMode::SEQUENTIAL_ONLY | synchronous;
    let old = FileMode(u32::try_from(file.mode.load(Ordering::Relaxed)).unwrap_or(0));
    if !new.without(settable).is_empty()
        || new.intersects(synchronous) != old.intersects(synchronous)
        || new.contains(synchronous)
    {
        return Err(Status::INVALID_PARAMETER);
    }
    let mut changed = FileMode::SEQUENTIAL_ONLY | synchronous;
    if !old.contains(FileMode::NO_INTERMEDIATE_BUFFERING) {
        changed |= FileMode::WRITE_THROUGH;
    }
    let mode = old.without(changed) | (new & changed);
    file.mode.store(u64::from(mode.0), Ordering::Relaxed);
    Ok(())
}
