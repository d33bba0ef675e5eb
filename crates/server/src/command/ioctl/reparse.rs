//! Reparse points: FSCTL_GET, SET and DELETE_REPARSE_POINT.
//! A reparse point that the host has too becomes an object of the host, in the place of the
//! empty file or directory: a symbolic link whose target is in its own directory or below, a
//! FIFO, a socket. All others are stored with the file and returned unchanged. Devices are
//! too: a device node of the host would give access to the host's own devices. In a relative link
//! that is stored, a client with another separator is shown its own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use frevo_store::vfs::{Kind, Replacement, links};
use frevo_store::{Fault, Name, Stat};
use frevo_wire::Status;
use frevo_wire::codec::{Reader, Writer};
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::dtyp::{FileAttributes, Guid};
use frevo_wire::fscc::notify::NotifyAction;
use frevo_wire::fscc::reparse::{NfsSpecial, ReparseBuffer, ReparseData, ReparseTag, Symlink};

use super::call::{Answer, Call, NO_OUTPUT, output};
use crate::command::create::symlink::Separator;
use crate::objects::open::FileOpen;

/// Bytes of a reparse buffer before its data: with a Microsoft tag, with another.
const HEAD: usize = 8;
const GUID_HEAD: usize = 24;

/// IO_REPARSE_TAG_RESERVED_ZERO and IO_REPARSE_TAG_RESERVED_ONE.
const RESERVED: [ReparseTag; 2] = [ReparseTag(0), ReparseTag(1)];

/// FSCTL_GET_REPARSE_POINT, MS-FSA 2.1.5.10.14.
pub(super) fn get(call: &Call<'_>) -> Answer {
    let file = call.file()?;
    let stat = file.stat()?;
    let device = || file.node.device().ok_or(Status::IO_REPARSE_TAG_NOT_HANDLED);
    let mut whole = match stat.kind {
        Kind::File | Kind::Directory => match file.node.reparse_buffer() {
            Ok(buffer) => shown(buffer, Separator::of(file.posix)),
            Err(Fault::NotFound) => return Err(Status::NOT_A_REPARSE_POINT.into()),
            Err(fault) => return Err(fault.status().into()),
        },
        Kind::Symlink => symlink(file)?,
        Kind::Fifo => special(NfsSpecial::Fifo)?,
        Kind::Socket => special(NfsSpecial::Socket)?,
        Kind::CharDevice => {
            let (major, minor) = device()?;
            special(NfsSpecial::Character { major, minor })?
        }
        Kind::BlockDevice => {
            let (major, minor) = device()?;
            special(NfsSpecial::Block { major, minor })?
        }
    };
    let head = if ReparseTag(stat.reparse_tag).is_microsoft() { HEAD } else { GUID_HEAD };
    let room = call.max_output as usize;
    if room < head {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    let status = if whole.len() > room { Status::BUFFER_OVERFLOW } else { Status::SUCCESS };
    whole.truncate(room);
    Ok((whole, status))
}

fn symlink(file: &FileOpen) -> Result<Vec<u8>, Status> {
    let target = file.node.link_target().map_err(Fault::status)?;
    let relative = !target.starts_with('/');
    let name = Separator::of(file.posix).show(target);
    let link = Symlink { substitute_name: name.as_str(), print_name: name.as_str(), relative };
    encoded(|w| link.encode(w))
}

/// A kept buffer for a client with this separator. Only relative links have one.
fn shown(kept: Vec<u8>, separator: Separator) -> Vec<u8> {
    let reread = || {
        let meaning = ReparseBuffer::parse(&kept).ok()?.meaning().ok()?;
        let ReparseData::Symlink(link @ Symlink { relative: true, .. }) = meaning else {
            return None;
        };
        let names = [link.substitute_name.decode().ok()?, link.print_name.decode().ok()?];
        let [substitute, print] = names.clone().map(|name| separator.show_kept(name));
        if names == [&*substitute, &*print] {
            // The stored link already has this client's separators, so the stored buffer is
            // returned unchanged.
            return None;
        }
        let link = Symlink { substitute_name: &*substitute, print_name: &*print, relative: true };
        encoded(|w| link.encode(w)).ok()
    };
    reread().unwrap_or(kept)
}

fn special(special: NfsSpecial<&str>) -> Result<Vec<u8>, Status> {
    encoded(|w| special.encode(w))
}

fn encoded(encode: impl FnOnce(&mut Writer<'_>) -> Option<()>) -> Result<Vec<u8>, Status> {
    let mut fits = None;
    let bytes = output(|w| fits = encode(w));
    fits.map(|()| bytes).ok_or(Status::IO_REPARSE_DATA_INVALID)
}

/// FSCTL_SET_REPARSE_POINT, MS-FSA 2.1.5.10.37.
///
/// Deviation: everybody may make symbolic links (Open.HasCreateSymbolicLinkAccess),
/// as on the host.
pub(super) async fn set(call: &Call<'_>) -> Answer {
    let invalid = Status::IO_REPARSE_DATA_INVALID;
    let buffer = ReparseBuffer::parse(call.input).map_err(|_| invalid)?;
    check_tag(buffer.tag, buffer.guid)?;
    buffer.meaning().map_err(|_| invalid)?;
    let file = call.file()?;
    let stat = file.stat_with_eas()?;
    if file.base.is_some() {
        // Reparse points cannot have streams on this server, so a file with streams is refused.
        return Err(Status::NOT_SUPPORTED.into());
    }
    if buffer.tag == ReparseTag::MOUNT_POINT && !is_directory(&stat) {
        return Err(Status::NOT_A_DIRECTORY.into());
    }
    if stat.kind == Kind::Directory {
        let mut entries = file.node.directory().map_err(Fault::status)?;
        if entries.next_name().map_err(Fault::status)?.is_some() {
            return Err(Status::DIRECTORY_NOT_EMPTY.into());
        }
    }
    if buffer.tag == ReparseTag::SYMLINK && stat.end_of_file != 0 {
        return Err(invalid.into());
    }
    // Windows refuses a reparse point on a file with extended attributes. WSL's special files are
    // allowed, because they need attributes such as $LXDEV.
    if stat.reparse_tag == 0 && stat.ea_size != 0 && !is_wsl(buffer.tag) {
        return Err(Status::EAS_NOT_SUPPORTED.into());
    }
    if stat.reparse_tag != 0 {
        check_same(file, stat.reparse_tag, &buffer)?;
    }
    let whole = call.input.to_vec();
    // The request runs on a blocking thread, because it may wait for the lock of the name while
    // another thread searches a large folder.
    let placed = beside_core(call, move |file, name| {
        let buffer = ReparseBuffer::parse(&whole).map_err(|_| Fault::Invalid)?;
        let meaning = buffer.meaning().map_err(|_| Fault::Invalid)?;
        place(file, name, &stat, buffer.tag, &meaning, &whole)
    });
    placed.await?;
    let files = &call.rq.server().files;
    file.report(files, NotifyAction::MODIFIED, CompletionFilter::ATTRIBUTES);
    NO_OUTPUT
}

/// Changes what the name of the file means, which nobody else does meanwhile, on a thread that may wait.
async fn beside_core(
    call: &Call<'_>,
    change: impl FnOnce(&FileOpen, &Name) -> Result<(), Fault> + Send + 'static,
) -> Result<(), Status> {
    let (server, open) = (Arc::clone(call.rq.server()), Arc::clone(call.open()?));
    let changed = move || {
        let file = open.file()?;
        let name = file.name();
        let _name = server.files.names.hold(file.folder_id(), &name);
        change(file, &name).map_err(Fault::status)
    };
    call.rq.beside_core(changed).await?
}

/// Makes an object of the host, or keeps the buffer.
fn place(
    file: &FileOpen,
    name: &Name,
    stat: &Stat,
    tag: ReparseTag,
    meaning: &ReparseData<'_>,
    whole: &[u8],
) -> Result<(), Fault> {
    let plain = matches!(stat.kind, Kind::File | Kind::Directory);
    let target = target(meaning, Separator::of(file.posix))
        .map(|target| links::stored(&target, is_directory(stat)));
    let by = match (meaning, target.as_deref()) {
        (_, Some(target)) => Some(Replacement::Symlink(target)),
        (ReparseData::Nfs(NfsSpecial::Fifo), None) => Some(Replacement::Fifo),
        (ReparseData::Nfs(NfsSpecial::Socket), None) => Some(Replacement::Socket),
        _ if tag == ReparseTag::LX_FIFO => Some(Replacement::Fifo),
        _ if tag == ReparseTag::AF_UNIX => Some(Replacement::Socket),
        _ => None,
    };
    // The file is replaced by a new object only if it has no other Opens, attributes or streams,
    // which would be lost.
    let is_bare = stat.ea_size == 0 && file.node.streams()?.is_empty();
    let is_alone = is_bare && file.cell.lock().is_alone(file.id);
    match by.filter(|_| is_alone) {
        Some(by) => match replace(file, name, &by) {
            // The host cannot store such an object, or the file has data, so the reparse buffer is
            // stored as it is.
            Err(Fault::NotSupported | Fault::Invalid) if plain => {}
            other => return other,
        },
        None if plain => {}
        None if is_alone => replace(file, name, &Replacement::File)?,
        None => return Err(Fault::Busy),
    }
    file.node.keep_reparse(Some(whole))
}

/// True for a directory, and for a symbolic link that stands for one.
const fn is_directory(stat: &Stat) -> bool {
    stat.attributes.contains(FileAttributes::DIRECTORY)
}

fn replace(file: &FileOpen, name: &Name, by: &Replacement<'_>) -> Result<(), Fault> {
    file.vfs.replace(name, &*file.node, by)?;
    file.turned.store(true, Ordering::Release);
    if !file.is_directory {
        // MS-FSA 2.1.5.10.3 and 2.1.5.10.37: the file gets the ARCHIVE attribute when its reparse
        // point changes.
        file.set_archive_anew();
    }
    Ok(())
}

/// The target of a symbolic link as the host may have it.
fn target(meaning: &ReparseData<'_>, separator: Separator) -> Option<String> {
    let text = match meaning {
        ReparseData::Symlink(link) if link.relative => {
            separator.read(link.substitute_name.decode().ok()?)
        }
        ReparseData::Nfs(NfsSpecial::Symlink(target)) => target.decode().ok()?,
        ReparseData::LxSymlink(target) => std::str::from_utf8(target).ok()?.to_owned(),
        _ => return None,
    };
    // Programs such as smbd take a link with such a text for one of DFS, whatever file system holds it.
    (is_sound(&text) && !links::is_of_dfs(&text)).then_some(text)
}

/// True for a target that stays within the share for local programs, wherever the link
/// or a folder above it is moved to: it does not begin at the host's root, and no `..`
/// climbs above the link's own directory.
///
/// A target with `..` may lead inside today and out after a rename. To find such links
/// when a folder is renamed would take a walk through all that is in it.
fn is_sound(target: &str) -> bool {
    let is_bare = target.is_empty() || target.starts_with('/') || target.contains(['\0', '\\']);
    !is_bare && target.split('/').all(|part| part != "..")
}

/// True for a target that stays within the share where its link is `depth` folders deep.
pub(in crate::command) fn is_within(target: &str, depth: usize) -> bool {
    let mut depth = Some(depth);
    for part in target.split('/') {
        depth = match (part, depth) {
            (_, None) => return false,
            ("..", Some(depth)) => depth.checked_sub(1),
            ("" | ".", depth) => depth,
            (_, Some(depth)) => depth.checked_add(1),
        };
    }
    depth.is_some() && !target.starts_with('/')
}

/// FSCTL_DELETE_REPARSE_POINT, MS-FSA 2.1.5.10.3. A link or special file of the
/// host becomes an empty file.
pub(super) async fn delete(call: &Call<'_>) -> Answer {
    let (tag, guid) = parse_head(call.input).ok_or(Status::IO_REPARSE_DATA_INVALID)?;
    check_tag(tag, guid)?;
    let file = call.file()?;
    let stat = file.stat()?;
    if stat.reparse_tag == 0 {
        // As on Windows, a file without a reparse point gets NOT_A_REPARSE_POINT, not
        // IO_REPARSE_TAG_MISMATCH.
        return Err(Status::NOT_A_REPARSE_POINT.into());
    }
    check_same(file, stat.reparse_tag, &ReparseBuffer { tag, guid, data: &[] })?;
    let done = beside_core(call, move |file, name| match stat.kind {
        Kind::File | Kind::Directory => file.node.keep_reparse(None),
        Kind::CharDevice | Kind::BlockDevice => Err(Fault::NotSupported),
        _ if !file.cell.lock().is_alone(file.id) => Err(Fault::Busy),
        _ => replace(file, name, &Replacement::File),
    });
    done.await?;
    let files = &call.rq.server().files;
    file.report(files, NotifyAction::MODIFIED, CompletionFilter::ATTRIBUTES);
    NO_OUTPUT
}

/// The head alone, MS-FSCC 2.3.5: ReparseDataLength is zero.
fn parse_head(input: &[u8]) -> Option<(ReparseTag, Option<Guid>)> {
    let mut r = Reader::new(input);
    let tag = ReparseTag(r.u32("ReparseTag").ok()?);
    let length = r.u16("ReparseDataLength").ok()?;
    r.skip(2, "Reserved").ok()?;
    let guid = match input.len() {
        HEAD => None,
        GUID_HEAD => Some(Guid(r.array("ReparseGuid").ok()?)),
        _ => return None,
    };
    (length == 0).then_some((tag, guid))
}

/// MS-FSA 2.1.5.10.3: tags that nobody has, and others than Microsoft's that do
/// not say whose they are.
fn check_tag(tag: ReparseTag, guid: Option<Guid>) -> Result<(), Status> {
    if RESERVED.contains(&tag) {
        return Err(Status::IO_REPARSE_TAG_INVALID);
    }
    let has_owner = tag.is_microsoft() || guid.is_some_and(|guid| guid != Guid::default());
    if has_owner { Ok(()) } else { Err(Status::IO_REPARSE_DATA_INVALID) }
}

/// MS-FSA 2.1.5.10.37, phase 2: whose reparse point it is does not change.
fn check_same(file: &FileOpen, present: u32, new: &ReparseBuffer<'_>) -> Result<(), Status> {
    if present != new.tag.0 {
        return Err(Status::IO_REPARSE_TAG_MISMATCH);
    }
    if new.tag.is_microsoft() {
        return Ok(());
    }
    let kept = file.node.reparse_buffer().map_err(Fault::status)?;
    let guid = ReparseBuffer::parse(&kept).ok().and_then(|kept| kept.guid);
    if guid == new.guid { Ok(()) } else { Err(Status::REPARSE_ATTRIBUTE_CONFLICT) }
}

/// Tags of the Windows Subsystem for Linux, MS-FSCC 2.1.2.1.
const fn is_wsl(tag: ReparseTag) -> bool {
    matches!(
        tag,
        ReparseTag::LX_SYMLINK
            | ReparseTag::AF_UNIX
            | ReparseTag::LX_FIFO
            | ReparseTag::LX_CHR
            | ReparseTag::LX_BLK
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_that_leave_the_share_are_not_for_the_host() {
        for target in ["a", "a/b", "./a", "..a/b..", "..."] {
            assert!(is_sound(target), "{target}");
        }
        for target in ["", "/a", "../a", "..", "a/..", "a/../b", "a\\b", "a\0b"] {
            assert!(!is_sound(target), "{target}");
        }
    }

    #[test]
    fn a_target_is_within_as_deep_as_its_link_is() {
        for (target, depth) in [("a", 0), ("../a", 1), ("../../a/./b", 2), ("..", 1), ("a/../b", 0)]
        {
            assert!(is_within(target, depth), "{target}");
        }
        for (target, depth) in [("/a", 3), ("../a", 0), ("../../a", 1), ("a/../../b/..", 0)] {
            assert!(!is_within(target, depth), "{target}");
        }
    }
}
