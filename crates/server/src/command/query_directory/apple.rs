//! Directory entries as macOS reads them once READ_DIR_ATTR is agreed on: what it
//! would else have to open every file for stands in fields that it has no use for.

use std::sync::atomic::Ordering;

use frevo_store::vfs::{HostAccess, Kind, VfsResult};
use frevo_store::{Fault, Name, Stat};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::{DirectoryEntry, FileInfoClass, ShortName};

use crate::objects::open::{FileOpen, Open};
use crate::shares::apple::nfs_aces::mode;
use crate::shares::apple::{Kind as Stream, info_of};
use crate::shares::protection::{self, LOOK, WRITES};

/// Seconds between FILETIME's beginning and that of AppleDouble, 2000-01-01.
const APPLE_EPOCH: u64 = 12_591_158_400;
/// FILETIME's units in a second.
const SECOND: u64 = 10_000_000;

/// How entries of one directory are filled in.
#[derive(Debug)]
pub(crate) struct Filling {
    token: std::sync::Arc<frevo_store::security::Token>,
    /// The most that the share gives.
    within: AccessMask,
    /// Rights that the directory gives on what is in it.
    given: AccessMask,
}

impl Filling {
    /// For a request of `class` by macOS; None for all others.
    pub(crate) fn of(open: &Open, file: &FileOpen, class: FileInfoClass) -> Option<Self> {
        let tree = open.tree();
        let agreed = file.apple && tree.apple_entries.load(Ordering::Relaxed);
        if !agreed || class != FileInfoClass::ID_BOTH_DIRECTORY {
            return None;
        }
        let token = tree.token();
        let rights = protection::rights(&*file.node, Kind::Directory, &token);
        let mut given = AccessMask::EMPTY;
        if rights.is_ok_and(|rights| rights.contains(AccessMask::DELETE_CHILD)) {
            given |= AccessMask::DELETE;
        }
        if rights.is_ok_and(|rights| rights.contains(AccessMask::READ_DATA)) {
            given |= AccessMask::READ_ATTRIBUTES;
        }
        Some(Self { token, within: tree.maximal_access, given })
    }

    /// Puts into EaSize what the user may do, into ShortName the size of the
    /// resource fork and the Finder information, into Reserved2 the mode. An entry whose access is
    /// `plain` has no stored descriptor and no streams, and is not opened.
    ///
    /// # Errors
    /// `Leased` for a file with so many streams that a core does not look at them: the request
    /// begins again on a thread. An entry without its streams would show that it has none.
    pub(crate) fn fill(
        &self,
        file: &FileOpen,
        stat: &Stat,
        plain: Option<HostAccess>,
        entry: &mut DirectoryEntry<&str>,
    ) -> VfsResult<()> {
        let seen = match plain {
            Some(access) => Seen {
                rights: protection::host_rights(access, stat.kind != Kind::Directory),
                ..Seen::default()
            },
            None => self.look(file, stat, entry.name)?,
        };
        let mut access = self.given | seen.rights;
        if stat.kind != Kind::Directory && stat.attributes.contains(FileAttributes::READONLY) {
            access = access.without(WRITES | AccessMask::DELETE_CHILD);
        }
        access = access & self.within;
        let mut short = [0; 24];
        let (size, info) = short.split_at_mut(8);
        size.copy_from_slice(&seen.fork.to_le_bytes());
        info.copy_from_slice(&seen.finder);
        entry.ea_size = access.0;
        // For macOS the field contains the maximal access, even for a link, because macOS reads the
        // reparse tag only when it opens the link.
        entry.reparse_tag = access.0;
        entry.short_name = ShortName::filled(short);
        entry.reserved2 = mode(stat);
        Ok(())
    }

    /// Opens the entry `name` and looks at its streams.
    fn look(&self, file: &FileOpen, stat: &Stat, name: &str) -> VfsResult<Seen> {
        let directory = file.name();
        let name = match name {
            "." => directory,
            ".." => directory.parent(),
            name => directory.child(name),
        };
        let mut seen = Seen::default();
        let Ok(opened) = file.vfs.open(&name, &LOOK) else { return Ok(seen) };
        seen.rights = protection::rights(&*opened.node, stat.kind, &self.token).unwrap_or_default();
        let streams = match opened.node.streams() {
            Err(Fault::Leased) => return Err(Fault::Leased),
            streams => streams.unwrap_or_default(),
        };
        for stream in streams {
            match Stream::of(&stream.name) {
                Stream::Info => {
                    seen.finder = finder(file, &name.with_stream(Some(&stream.name)), stat);
                }
                Stream::Resource => seen.fork = stream.size,
                Stream::Other => {}
            }
        }
        Ok(seen)
    }
}

/// The part of an entry that is not in its state.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    rights: AccessMask,
    /// Bytes of the resource fork.
    fork: u64,
    finder: [u8; 16],
}

/// Bytes of Finder information that an entry has room for.
const FINDER_KEPT: [usize; 12] = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 24, 25];
/// The first behind type and creator, which directories do not have.
const FINDER_FLAGS: usize = 8;

/// Type and creator of a file, flags, extended flags, and the date it was added.
fn finder(file: &FileOpen, stream: &Name, stat: &Stat) -> [u8; 16] {
    let Some(record) = info_of(&*file.vfs, stream) else { return [0; 16] };
    let whole = record.finder_info();
    let mut short = [0; 16];
    for (to, from) in short.iter_mut().zip(FINDER_KEPT) {
        if stat.kind == Kind::File || from >= FINDER_FLAGS {
            *to = whole.get(from).copied().unwrap_or_default();
        }
    }
    let seconds = (stat.created.0 / SECOND).saturating_sub(APPLE_EPOCH);
    if let Some(added) = short.last_chunk_mut() {
        *added = u32::try_from(seconds).unwrap_or(u32::MAX).to_be_bytes();
    }
    short
}
