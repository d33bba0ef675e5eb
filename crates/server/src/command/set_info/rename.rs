//! FileRenameInformation, its extended form, and FileLinkInformation: MS-FSA
//! 2.1.5.15.12 and .7.

use std::sync::Arc;

use super::streams;
use frevo_store::name::{Name, Rules};
use frevo_store::share_mode::{Claim, Verdict};
use frevo_store::vfs::{Kind, Opened, Parent, Stat};
use frevo_store::{Fault, FileTable, Node, Sharing};
use frevo_wire::Status;
use frevo_wire::codec::Parsed;
use frevo_wire::command::set_info::{InfoType, Request};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::set::{FileRenameInformation, FileRenameInformationEx, RenameFlags};
use frevo_wire::fscc::{WireName, eq_ignore_case};

use crate::base::host;
use crate::command::create::symlink::{self, Separator};
use crate::command::ioctl::reparse::is_within;
use crate::command::request;
use crate::command::spelling::{self, Spelling};
use crate::objects::audited;
use crate::objects::name_holds;
use crate::objects::open::{ClosingPlace, FileOpen, Open};
use crate::objects::refusal::Refusal;
use crate::shares::protection;
use crate::shares::visibility;

/// A name that a file is to get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wanted {
    name: Name,
    /// `:name` alone: another stream of the same file.
    is_stream: bool,
    replace: bool,
    /// A file in the way is replaced although somebody has it open; they keep
    /// what they have.
    replace_open: bool,
    replace_readonly: bool,
}

impl Wanted {
    /// Returns the new name.
    pub(super) const fn name(&self) -> &Name {
        &self.name
    }

    /// Returns true if even a file that somebody has open is replaced.
    pub(super) const fn replaces_open(&self) -> bool {
        self.replace_open
    }
}

/// Reads FileRenameInformation or FileLinkInformation.
pub(super) fn wanted(bytes: &[u8], spelling: Spelling) -> Result<Wanted, Status> {
    let information = valid(FileRenameInformation::parse(bytes))?;
    let posix = spelling.posix;
    Ok(Wanted {
        is_stream: !posix && streams::is_stream_name(&information.name),
        name: name(information.root_directory, information.name, spelling)?,
        replace: information.replace_if_exists,
        replace_open: posix,
        replace_readonly: posix,
    })
}

/// Reads FileRenameInformationEx. The flags for storage reserves and pinning
/// have nothing here that they could apply to.
pub(super) fn wanted_ex(bytes: &[u8], spelling: Spelling) -> Result<Wanted, Status> {
    let information = valid(FileRenameInformationEx::parse(bytes))?;
    let posix = spelling.posix;
    let flags = information.flags;
    if !flags.without(RenameFlags(0x1FF)).is_empty() {
        return Err(Status::INVALID_PARAMETER);
    }
    let replace = flags.contains(RenameFlags::REPLACE_IF_EXISTS);
    Ok(Wanted {
        is_stream: !posix && streams::is_stream_name(&information.name),
        name: name(information.root_directory, information.name, spelling)?,
        replace,
        replace_open: posix || flags.contains(RenameFlags::POSIX_SEMANTICS),
        replace_readonly: posix || flags.contains(RenameFlags::IGNORE_READONLY_ATTRIBUTE),
    })
}

/// MS-SMB2 3.3.5.21.1: a link on the way to the new name ends the request; the client learns of
/// it as from a CREATE of that name. Any other status stays as it is.
pub(super) fn stopped(open: &Open, request: &Request<'_>, status: Status) -> Refusal {
    let class = FileInfoClass(request.file_info_class);
    let moves =
        matches!(class, FileInfoClass::RENAME | FileInfoClass::RENAME_EX | FileInfoClass::LINK);
    let Ok(file) = open.file() else { return status.into() };
    if status != Status::ACCESS_DENIED || request.info_type != InfoType::FILE || !moves {
        return status.into();
    }
    let Ok(Wanted { name, is_stream: false, .. }) = asked(request, Spelling::of_open(open, file))
    else {
        return status.into();
    };
    match file.vfs.stat(&name) {
        Err(Fault::Symlink) => {
            let separator = Separator::of(file.posix);
            symlink::stopped(&*file.vfs, &name, &name.to_string(), separator)
        }
        _ => status.into(),
    }
}

/// Tells of a new name that is refused as it is spelled.
pub(super) fn tell_name(rq: &request::Request<'_>, request: &Request<'_>, status: Status) {
    let name = match FileInfoClass(request.file_info_class) {
        _ if request.info_type != InfoType::FILE => return,
        FileInfoClass::RENAME_EX => {
            FileRenameInformationEx::parse(request.buffer).map(|information| information.name)
        }
        FileInfoClass::RENAME | FileInfoClass::LINK => {
            FileRenameInformation::parse(request.buffer).map(|information| information.name)
        }
        _ => return,
    };
    if let Some(name) = name.ok().and_then(|name| name.decode().ok()) {
        spelling::tell_refused(rq, &name, status);
    }
}

/// Reads what a request for another name wants.
fn asked(request: &Request<'_>, spelling: Spelling) -> Result<Wanted, Status> {
    match FileInfoClass(request.file_info_class) {
        FileInfoClass::RENAME_EX => wanted_ex(request.buffer, spelling),
        _ => wanted(request.buffer, spelling),
    }
}

/// Returns the new name and how to take it, if what has it now is to be replaced.
pub(super) fn replacement(
    request: &Request<'_>,
    spelling: Spelling,
) -> Result<Option<Wanted>, Status> {
    let wanted = asked(request, spelling)?;
    Ok((wanted.replace && !wanted.is_stream).then_some(wanted))
}

/// Returns the new name. INVALID_PARAMETER for the name of a stream.
pub(super) fn new_name(request: &Request<'_>, spelling: Spelling) -> Result<Name, Status> {
    let wanted = asked(request, spelling)?;
    if wanted.is_stream { Err(Status::INVALID_PARAMETER) } else { Ok(wanted.name) }
}

/// Returns the access and sharing with which adding a name opens its directory.
pub(super) const fn claim_on_directory(file: &FileOpen) -> Claim {
    let access = if file.is_directory { AccessMask::APPEND_DATA } else { AccessMask::WRITE_DATA };
    // A rename opens the target directory without sharing DELETE. Only a POSIX client shares it, so
    // that it can rename into a directory that another client has open for DELETE.
    Claim { access, sharing: Sharing { read: true, write: true, delete: file.posix } }
}

/// MS-FSA 2.1.5.15.12: lengths that do not hold.
fn valid<T>(parsed: Parsed<T>) -> Result<T, Status> {
    parsed.map_err(|_| Status::INVALID_PARAMETER)
}

fn name(root_directory: u64, name: WireName<'_>, spelling: Spelling) -> Result<Name, Status> {
    if root_directory != 0 || name.is_empty() {
        return Err(Status::INVALID_PARAMETER);
    }
    let text = name.decode().map_err(|_| Status::OBJECT_NAME_INVALID)?;
    let posix = spelling.posix;
    if !posix && text.starts_with(':') {
        return streams::parse(&text);
    }
    let text = spelling.spell(text);
    let name = Name::parse(&text, if posix { Rules::Posix } else { Rules::Windows })?;
    // MS-FSA 2.1.5.15.12 and .7: the text after the last separator is the name of the link, and
    // MS-FSCC 2.1.5.2 allows no empty name.
    if name.is_root() || text.ends_with(if posix { '/' } else { '\\' }) {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    Ok(name)
}

/// Deviation: macOS and POSIX clients may rename a directory that contains open files.
pub(super) const fn moves_open_files(file: &FileOpen) -> bool {
    file.posix || file.apple
}

/// Moves the file to another name.
pub(super) fn rename(
    open: &Open,
    file: &FileOpen,
    files: &FileTable,
    wanted: &Wanted,
) -> Result<(), Status> {
    if wanted.is_stream {
        return streams::rename(open, file, files, &wanted.name, wanted.replace);
    }
    let from = {
        let state = file.cell.lock();
        if state.name_of(open.id()).is_root() || state.is_going(open.id()) {
            return Err(Status::ACCESS_DENIED);
        }
        if !state.others_share_delete(open.id()) {
            return Err(Status::SHARING_VIOLATION);
        }
        if state.has_open_streams() {
            // As on Windows, a file whose streams are open is not renamed, even if the streams'
            // Opens share everything.
            return Err(Status::ACCESS_DENIED);
        }
        state.name_of(open.id()).clone()
    };
    let _names = name_holds::hold_both(files, file.folder_id(), &from, &wanted.name)
        .map_err(Fault::status)?;
    if from.stream().is_some() && wanted.name.stream().is_some() {
        // Windows takes the full path of a stream as a rename of its file. That fails, because the
        // file has an open stream, namely this one.
        return Err(Status::SHARING_VIOLATION);
    }
    if from.stream().is_some() || wanted.name.stream().is_some() {
        // MS-FSA 2.1.5.15.12: a stream can be renamed only to `:name`, and a file cannot become a
        // stream.
        return Err(Status::INVALID_PARAMETER);
    }
    let parent = check_parent(open, file, files, &wanted.name)?;
    let key = file.key();
    let is_unix = moves_open_files(file);
    if file.is_directory && !is_unix && files.open_below(file.folder_id(), &from) > 0 {
        return Err(Status::ACCESS_DENIED);
    }
    if from == wanted.name {
        return Ok(());
    }
    let mut replaced = check_replaced(open, file, Some(&from), files, wanted, parent.as_ref())?;
    check_link(file, &from, &wanted.name)?;
    if let Some(there) = &mut replaced {
        there.prepare(open, file)?;
    }
    let renamed = file.vfs.rename(&from, key, &wanted.name, wanted.replace);
    let name = renamed.map_err(Fault::status)?;
    let there = replaced.as_ref().map(|there| there.stat.key);
    open.brake_renamed(file, [&from, &name], there);
    if let Some(there) = replaced {
        there.went(open, files, &wanted.name);
    }
    file.cell.lock().rename(file.folder_id(), &from, &name);
    if file.is_directory && is_unix {
        files.rename_below(file.folder_id(), &from, &name);
    }
    Ok(())
}

/// Fails when what has the name now, `there`, must not be replaced, whoever has it open.
pub(super) fn may_replace(
    open: &Open,
    file: &FileOpen,
    wanted: &Wanted,
    there: &Stat,
) -> Result<(), Status> {
    let read_only = there.attributes.contains(FileAttributes::READONLY);
    let by_directory = file.posix && file.is_directory;
    let is_directory = there.kind == Kind::Directory && !by_directory;
    if is_directory || (read_only && !wanted.replace_readonly) {
        return Err(Status::ACCESS_DENIED);
    }
    protection::may_remove(&*file.vfs, &wanted.name, &open.tree().token())
}

/// Gives the file another name beside the one it has.
pub(super) fn link(
    open: &Open,
    file: &FileOpen,
    files: &FileTable,
    wanted: &Wanted,
) -> Result<(), Status> {
    if file.is_directory {
        return Err(Status::FILE_IS_A_DIRECTORY);
    }
    if file.cell.lock().is_going(open.id()) {
        return Err(Status::ACCESS_DENIED);
    }
    if wanted.is_stream || wanted.name.stream().is_some() {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    let _name = name_holds::hold(files, file.folder_id(), &wanted.name).map_err(Fault::status)?;
    let parent = check_parent(open, file, files, &wanted.name)?;
    let mut replaced = check_replaced(open, file, None, files, wanted, parent.as_ref())?;
    check_link(file, &file.name(), &wanted.name)?;
    if let Some(there) = &mut replaced {
        there.prepare(open, file)?;
    }
    file.vfs.link(&*file.node, &wanted.name, wanted.replace).map_err(Fault::status)?;
    file.own_cell().note_linked();
    open.brake_linked(file, &wanted.name, replaced.as_ref().map(|there| there.stat.key));
    if let Some(there) = replaced {
        there.went(open, files, &wanted.name);
    }
    Ok(())
}

/// A symbolic link of the host that leads to something inside the share must not lead
/// out of it from its new place: local programs would follow it. Clients make only links
/// that cannot (see `ioctl::reparse`); this is about those that local programs made.
fn check_link(file: &FileOpen, from: &Name, to: &Name) -> Result<(), Status> {
    let depth = |name: &Name| name.components().count().saturating_sub(1);
    if depth(to) >= depth(from) || file.stat()?.kind != Kind::Symlink {
        return Ok(());
    }
    let target = file.node.link_target().map_err(Fault::status)?;
    let leaves = is_within(&target, depth(from)) && !is_within(&target, depth(to));
    if leaves { Err(Status::ACCESS_DENIED) } else { Ok(()) }
}

/// Adding a name opens its directory, which must be compatible with those who
/// have that open. Returns it.
/// Windows: up to Windows 11 and Server 2022 the directory is opened without sharing deletion,
/// so that an Open with the right to delete the directory keeps names from being added to it.
fn check_parent(
    open: &Open,
    file: &FileOpen,
    files: &FileTable,
    to: &Name,
) -> Result<Option<Opened>, Status> {
    if let Some(viewer) = open.tree().viewer()
        && !visibility::is_way_visible(&*file.vfs, to, &viewer)
    {
        return Err(Status::OBJECT_PATH_NOT_FOUND);
    }
    // If the directory does not exist, the rename or link itself reports the error later.
    let Ok(Some(parent)) = protection::parent(&*file.vfs, to) else { return Ok(None) };
    // MS-FSA 2.1.5.15.12: adding the new name needs a right on its directory. Removing the old name
    // needs DELETE, which the handle has.
    protection::may_add(&*parent.node, &open.tree().token(), file.is_directory)?;
    let Some(cell) = files.find(parent.stat.key) else { return Ok(Some(parent)) };
    let state = cell.lock();
    if state.is_delete_pending() {
        return Err(Status::DELETE_PENDING);
    }
    match state.contender(claim_on_directory(file), None) {
        Verdict::Compatible => Ok(Some(parent)),
        Verdict::Violation => Err(Status::SHARING_VIOLATION),
    }
}

/// The object that has the name now and is replaced.
struct Replaced {
    stat: Stat,
    /// The object, open: it stays until this is dropped.
    node: Arc<dyn Node>,
    /// Its place among those that are closed beside the core; None for an object that is closed within
    /// the request.
    place: Option<ClosingPlace>,
}

impl Replaced {
    fn new(there: Opened) -> Self {
        Self { stat: there.stat, node: there.node, place: None }
    }

    /// Takes a place for an object that takes long to close. Fails on a core if the replacement takes
    /// long all the same: the object is closed within it, or the file system first writes back the new
    /// file, as ext4 does.
    fn prepare(&mut self, open: &Open, file: &FileOpen) -> Result<(), Status> {
        if host::is_long_to_free(self.stat.allocation) {
            self.place = open.closing_place();
        }
        let bytes = if self.place.is_some() { 0 } else { self.stat.allocation };
        let own = file.node.stat_without_eas().map_err(Fault::status)?.allocation;
        if host::gives_up_freeing(bytes.max(own)) {
            return Err(Fault::Leased.status());
        }
        Ok(())
    }

    /// Records that the object has lost its name, and closes it.
    fn went(self, open: &Open, files: &FileTable, name: &Name) {
        audited::replaced(open, name, self.stat.kind == Kind::Directory);
        if let Some(cell) = files.find(self.stat.key) {
            cell.note_slow_close();
        }
        if let Some(place) = self.place {
            open.close_replaced(self.node, place);
        }
    }
}

/// True if the name `wanted` is a link of the file that is about to be deleted, other than `from`.
/// The link has the name `there` in its directory: names are compared in their stored spelling, in
/// which two links may differ in case alone.
fn is_link_going(
    file: &FileOpen,
    from: Option<&Name>,
    wanted: &Name,
    there: &Opened,
) -> Result<bool, Status> {
    let (name, links) = (&there.name, there.stat.links);
    if !file.cell.lock().is_name_going(file.folder_id(), name, links) {
        return Ok(false);
    }
    let Some(from) = from else { return Ok(true) };
    let is_same =
        from.path() == name.path() || file.vfs.is_one_entry(from, wanted).map_err(Fault::status)?;
    Ok(!is_same)
}

/// Fails when the file that has the name now must not be replaced, and returns it otherwise. Other
/// names of the renamed file may be, and another case of its name `from` on a file system that
/// ignores case. `parent` is the directory of the name, just opened.
fn check_replaced(
    open: &Open,
    file: &FileOpen,
    from: Option<&Name>,
    files: &FileTable,
    wanted: &Wanted,
    parent: Option<&Opened>,
) -> Result<Option<Replaced>, Status> {
    let there = match parent {
        Some(Opened { node, name, .. }) => {
            let parent = Parent { node: &**node, name };
            file.vfs.open_in(parent, &wanted.name, &protection::LOOK)
        }
        None => file.vfs.open(&wanted.name, &protection::LOOK),
    };
    let there = match there {
        Ok(there) => there,
        Err(Fault::NotFound) => return Ok(None),
        Err(fault) => return Err(fault.status()),
    };
    if there.stat.key == file.key() {
        // The target may be another link of the file, which goes with its last Open: that close
        // would take the new name away.
        let is_going = is_link_going(file, from, &wanted.name, &there)?;
        return if is_going { Err(Status::DELETE_PENDING) } else { Ok(None) };
    }
    // MS-FSA 2.1.5.15.12: if old and new name differ only in case, the new name finds the same
    // link, which is no collision.
    if let Some(from) = from.filter(|from| eq_ignore_case(from.path(), wanted.name.path()))
        && file.vfs.is_one_entry(from, &wanted.name).map_err(Fault::status)?
    {
        return Ok(None);
    }
    if !wanted.replace {
        return Err(Status::OBJECT_NAME_COLLISION);
    }
    may_replace(open, file, wanted, &there.stat)?;
    let Some(cell) = files.find(there.stat.key) else { return Ok(Some(Replaced::new(there))) };
    let state = cell.lock();
    if state.is_name_going(file.folder_id(), &there.name, there.stat.links) {
        return Err(Status::DELETE_PENDING);
    }
    if state.open_count() > 0 && !wanted.replace_open {
        return Err(Status::ACCESS_DENIED);
    }
    Ok(Some(Replaced::new(there)))
}
