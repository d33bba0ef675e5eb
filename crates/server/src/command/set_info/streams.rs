//! Renaming a stream: MS-FSA 2.1.5.15.12.1.

use frevo_store::limits::COMPONENT_UNITS;
use frevo_store::{Fault, FileKey, FileTable, Name};
use frevo_wire::Status;
use frevo_wire::fscc::{WireName, eq_ignore_case};

use crate::objects::audited;
use crate::objects::open::{FileOpen, Open};

/// True for a new name that names a stream and no file.
pub(super) fn is_stream_name(name: &WireName<'_>) -> bool {
    name.decode().is_ok_and(|text| text.starts_with(':'))
}

/// `:stream` or `:stream:type`, as a name without a path; without a stream when
/// the file's own data is meant.
pub(super) fn parse(text: &str) -> Result<Name, Status> {
    let rest = text.strip_prefix(':').ok_or(Status::INVALID_PARAMETER)?;
    let (stream, kind) = rest.split_once(':').unwrap_or((rest, "$DATA"));
    let is_invalid = |c| matches!(c, '\0' | '/' | '\\' | ':');
    if text.ends_with(':')
        || stream.contains(is_invalid)
        || kind.contains(is_invalid)
        || stream.encode_utf16().take(COMPONENT_UNITS + 1).count() > COMPONENT_UNITS
    {
        return Err(Status::INVALID_PARAMETER);
    }
    if !kind.eq_ignore_ascii_case("$DATA") {
        return Err(Status::OBJECT_TYPE_MISMATCH);
    }
    Ok(Name::root().with_stream(Some(stream).filter(|stream| !stream.is_empty())))
}

/// Gives an open stream another name.
///
/// Deviation: the file's own data does not become a named stream, which would
/// have to be copied; and a stream that became the file's data is read and
/// written by opening the file, no more by this handle.
pub(super) fn rename(
    open: &Open,
    file: &FileOpen,
    files: &FileTable,
    new: &Name,
    replace: bool,
) -> Result<(), Status> {
    if file.is_directory {
        return Err(Status::INVALID_PARAMETER);
    }
    let from = {
        let state = file.cell.lock();
        if state.is_going(open.id()) {
            return Err(Status::ACCESS_DENIED);
        }
        if !state.others_share_delete(open.id()) {
            return Err(Status::SHARING_VIOLATION);
        }
        state.name_of(open.id()).clone()
    };
    let to = from.with_stream(new.stream());
    match (from.stream(), to.stream()) {
        (None, None) => return Ok(()),
        (None, Some(_)) => return Err(Status::NOT_SUPPORTED),
        (Some(old), Some(new)) if eq_ignore_case(old, new) => return Ok(()),
        _ => {}
    }
    let key = file.cell.key();
    let target = FileKey { stream: to.stream_id(), ..key };
    let is_replaced = check_target(file, files, &to, target, replace)?;
    let name = file.vfs.rename(&from, key, &to, replace).map_err(Fault::status)?;
    if is_replaced {
        audited::replaced(open, &to, false);
    }
    file.cell.lock().rename(file.folder_id(), &from, &name);
    if target.stream != 0 {
        files.rename_stream(&file.cell, target.stream);
    }
    Ok(())
}

/// A stream in the way must be empty, and open to nobody. Returns true if there is one.
fn check_target(
    file: &FileOpen,
    files: &FileTable,
    name: &Name,
    key: FileKey,
    replace: bool,
) -> Result<bool, Status> {
    let there = match file.vfs.stat(name) {
        Ok(stat) => stat,
        Err(Fault::NotFound) => return Ok(false),
        Err(fault) => return Err(fault.status()),
    };
    if there.kind == frevo_store::vfs::Kind::Directory {
        // A stream cannot become the main data of a directory, because a directory has none.
        return Err(Status::INVALID_PARAMETER);
    }
    if !replace {
        return Err(Status::OBJECT_NAME_COLLISION);
    }
    let is_open = key.stream != 0 && files.find(key).is_some();
    if is_open || there.end_of_file != 0 {
        return Err(Status::INVALID_PARAMETER);
    }
    Ok(true)
}
