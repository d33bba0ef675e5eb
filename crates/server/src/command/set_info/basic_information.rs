//! FileBasicInformation: times and attributes, MS-FSA 2.1.5.15.2.

use frevo_store::Fault;
use frevo_store::vfs::BasicChange;
use frevo_wire::Status;
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::dtyp::{FileAttributes, FileTime};
use frevo_wire::fscc::query::FileBasicInformation;

use crate::objects::archive::moment;
use crate::objects::open::FileOpen;
use crate::objects::times::Setting;

/// Attributes that clients may change.
const SETTABLE: FileAttributes = FileAttributes(
    FileAttributes::READONLY.0
        | FileAttributes::HIDDEN.0
        | FileAttributes::SYSTEM.0
        | FileAttributes::ARCHIVE.0
        | FileAttributes::TEMPORARY.0
        | FileAttributes::OFFLINE.0
        | FileAttributes::NOT_CONTENT_INDEXED.0,
);

/// Applies times and attributes.
pub(super) fn set(file: &FileOpen, new: &FileBasicInformation) -> Result<(), Status> {
    let directory = new.attributes.contains(FileAttributes::DIRECTORY);
    let temporary = new.attributes.contains(FileAttributes::TEMPORARY);
    if (directory && !is_directory(file)?) || (temporary && is_directory(file)?) {
        return Err(Status::INVALID_PARAMETER);
    }
    // -1 and -2 stop and resume the automatic changes of LastWriteTime and ChangeTime. For
    // CreationTime and LastAccessTime they only mean "leave it unchanged".
    let [created, accessed, written, changed] =
        [new.creation_time, new.last_access_time, new.last_write_time, new.change_time]
            .map(Setting::of);
    let (created, accessed) = (created?.value(), accessed?.value());
    let (written, changed) = (written?, changed?);
    let sets_attributes = !new.attributes.is_empty();
    let is_bare = created.is_none() && accessed.is_none() && !sets_attributes;
    let is_bare = is_bare && written.value().is_none() && changed.value().is_none();
    let (written, changed) = file.set_times(written, changed)?;
    if is_bare {
        return Ok(());
    }
    file.own_cell().note_move();
    let change = BasicChange { created, accessed, written, changed, ..BasicChange::default() };
    if !sets_attributes {
        return file.node.set_basic(&change).map_err(Fault::status);
    }
    file.own_cell().change_attributes(moment(), || {
        let attributes = attributes(file, new.attributes)?;
        let change = BasicChange { attributes: Some(attributes), ..change };
        file.node.set_basic(&change).map_err(Fault::status)?;
        Ok(attributes.contains(FileAttributes::ARCHIVE))
    })
}

/// True for a directory, and for a symbolic link that stands for one.
fn is_directory(file: &FileOpen) -> Result<bool, Status> {
    Ok(file.is_directory || file.stat()?.attributes.contains(FileAttributes::DIRECTORY))
}

/// The filter of the watches that the change is reported to.
pub(super) fn matches(bytes: &[u8]) -> CompletionFilter {
    let Ok(new) = FileBasicInformation::parse(bytes) else { return CompletionFilter::EMPTY };
    let is_set = |value: FileTime| matches!(Setting::of(value), Ok(Setting::To(_)));
    let parts = [
        (is_set(new.creation_time), CompletionFilter::CREATION),
        (is_set(new.last_access_time), CompletionFilter::LAST_ACCESS),
        (is_set(new.last_write_time), CompletionFilter::LAST_WRITE),
        (!new.attributes.is_empty(), CompletionFilter::ATTRIBUTES),
    ];
    let set = parts.into_iter().filter(|(is_set, _)| *is_set);
    set.fold(CompletionFilter::EMPTY, |all, (_, part)| all | part)
}

/// The names of the parts that a change sets, for the audit log. None where it sets nothing.
pub(super) fn parts(bytes: &[u8]) -> Option<&'static str> {
    let new = FileBasicInformation::parse(bytes).ok()?;
    let is_set = |value: FileTime| matches!(Setting::of(value), Ok(Setting::To(_)));
    let times = [new.creation_time, new.last_access_time, new.last_write_time, new.change_time];
    match (times.into_iter().any(is_set), new.attributes.is_empty()) {
        (true, false) => Some("times,attributes"),
        (true, true) => Some("times"),
        (false, false) => Some("attributes"),
        (false, true) => None,
    }
}

/// The attributes of the file with those of `new` that can be set.
fn attributes(file: &FileOpen, new: FileAttributes) -> Result<FileAttributes, Status> {
    let mut settable = SETTABLE;
    if file.name().is_root() {
        settable = settable.without(FileAttributes::HIDDEN | FileAttributes::SYSTEM);
    }
    let old = file.stat()?.attributes.without(FileAttributes::NORMAL);
    let attributes = old.without(settable) | (new & settable);
    Ok(if attributes.is_empty() { FileAttributes::NORMAL } else { attributes })
}
