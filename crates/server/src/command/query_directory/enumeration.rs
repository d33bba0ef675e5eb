//! The entries of a listing, as far as a request takes them: MS-FSA 2.1.5.6.3.

use frevo_net::watchdog::is_due;
use frevo_store::Stat;
use frevo_store::security::Token;
use frevo_store::short_name::short_name;
use frevo_store::vfs::{HostAccess, VfsResult};
use frevo_wire::fscc::posix::PosixAttributes;
use frevo_wire::fscc::{DirectoryEntry, DirectoryWriter, Pushed, ShortName};

use super::super::query_info::wide_id;
use crate::command::query_directory::apple::Filling;
use crate::objects::enumeration::Scan;
use crate::objects::open::FileOpen;

/// Entries between two looks at the clock, where an entry is a name and its state. One that is
/// opened, for its access list or its streams, may take milliseconds by itself.
const LOOKS: usize = 16;

/// The reason why no more entries were added.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Filled {
    /// The next entry does not fit, or is not wanted.
    Full,
    /// There are no more.
    End,
    /// Enough for one turn; there may be more.
    Slice,
}

/// The entry that was found and not answered yet.
pub(super) fn held<'a>(
    scan: &Scan,
    file: &FileOpen,
    filling: Option<&Filling>,
    shown: &'a str,
) -> Option<DirectoryEntry<&'a str>> {
    let stat = scan.held.as_ref()?;
    let mut entry = entry(shown, stat, scan.posix_attributes(file, stat));
    complete(file, filling, &mut entry, stat, scan.plain).ok()?;
    Some(entry)
}

/// Writes entries, taking no longer than for `slice` names, without what
/// `viewer` cannot read.
pub(super) fn fill(
    scan: &mut Scan,
    file: &FileOpen,
    filling: Option<&Filling>,
    writer: &mut DirectoryWriter<'_>,
    single: bool,
    viewer: Option<&Token>,
    slice: usize,
) -> VfsResult<Filled> {
    scan.compared = 0;
    let mut looked_at: usize = 0;
    let asks = viewer.is_some() || filling.is_some();
    let mut may_take_long = asks;
    while looked_at.saturating_add(scan.compared) < slice {
        looked_at += 1;
        // Some entries take long: those far apart on the disk or with long access lists. So the
        // time is checked after them and at every LOOKSth entry.
        if (std::mem::take(&mut may_take_long) || looked_at.is_multiple_of(LOOKS)) && is_due() {
            return Ok(Filled::Slice);
        }
        if single && !writer.is_empty() {
            return Ok(Filled::Full);
        }
        if scan.held.is_none() {
            scan.plain = None;
            let goes_on = scan.step(file, asks)?;
            may_take_long = asks && scan.held.is_some() && scan.plain.is_none();
            if let (Some(viewer), Some(_)) = (viewer, &scan.held)
                && !matches!(&*scan.name, "." | "..")
                && !scan.is_visible(file, viewer)?
            {
                scan.held = None;
            }
            if !goes_on {
                return Ok(Filled::End);
            }
        }
        let Some(stat) = &scan.held else { continue };
        let name = scan.shown();
        let mut entry = entry(&name, stat, scan.posix_attributes(file, stat));
        complete(file, filling, &mut entry, stat, scan.plain)?;
        match writer.push(&entry) {
            Pushed::Fits => scan.held = None,
            Pushed::Full => return Ok(Filled::Full),
        }
    }
    Ok(Filled::Slice)
}

/// An entry of any class.
fn entry<'a>(
    name: &'a str,
    stat: &Stat,
    posix: Option<PosixAttributes>,
) -> DirectoryEntry<&'a str> {
    DirectoryEntry {
        name,
        short_name: ShortName::NONE,
        file_index: 0,
        creation_time: stat.created,
        last_access_time: stat.accessed,
        last_write_time: stat.written,
        change_time: stat.changed,
        end_of_file: stat.end_of_file,
        allocation_size: stat.allocation,
        attributes: stat.attributes,
        ea_size: stat.ea_size,
        reparse_tag: stat.reparse_tag,
        file_id: posix.as_ref().map_or(stat.id, |posix| posix.inode),
        file_id_128: wide_id(stat),
        posix,
        reserved2: 0,
    }
}

/// Changes an entry to the form that the client wants.
///
/// # Errors
/// When it would take long on a core; see [`Filling::fill`].
fn complete(
    file: &FileOpen,
    filling: Option<&Filling>,
    entry: &mut DirectoryEntry<&str>,
    stat: &Stat,
    plain: Option<HostAccess>,
) -> VfsResult<()> {
    if entry.posix.is_none()
        && file.vfs.volume().short_names
        && let Some(short) = short_name(entry.name)
    {
        entry.short_name = ShortName::new(&short).unwrap_or(ShortName::NONE);
    }
    if file.apple {
        (entry.file_id, entry.file_id_128) = (0, [0; 16]);
    }
    match filling {
        Some(filling) => filling.fill(file, stat, plain, entry),
        None => Ok(()),
    }
}
