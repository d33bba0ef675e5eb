//! [`Share`]: what all of a share's files have in common.

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use frevo_store::vfs::{VfsResult, Volume};
use frevo_store::{Fault, FileKey, Name, Stat};
use frevo_wire::fscc::Pattern;
use rustix::fs::Statx;
use rustix::io::Errno;

use crate::cache::NameCache;
use crate::options::{Case, PosixOptions};
use crate::short::Tunnels;
use crate::snapshots::Snapshots;
use crate::stat::{self, Extra};
use crate::{names, streams, sys, xattr};

/// What all nodes of one share have in common.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) root: Arc<OwnedFd>,
    pub(crate) options: PosixOptions,
    pub(crate) volume: Volume,
    pub(crate) names: NameCache,
    /// Names that are HIDDEN.
    pub(crate) hidden: Vec<Pattern>,
    pub(crate) tunnels: Tunnels,
    /// The attribute that holds security descriptors.
    pub(crate) ntacl: &'static CStr,
    pub(crate) streams: streams::Table,
    /// The kernel has getxattrat(2).
    pub(crate) entry_xattrs: bool,
    /// The file system that the root is on.
    pub(crate) home: u64,
    /// What the keys of files are marked with; 0 but for snapshots.
    pub(crate) mark: u64,
    /// Tells its names from those of other folders.
    pub(crate) place: frevo_store::FolderId,
    pub(crate) snapshots: Snapshots,
}

/// A number all of whose bits say what it was made of: the finalizer of SplitMix64.
const fn spread(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

impl Share {
    /// A key as it is told: those of snapshots are marked.
    pub(crate) const fn marked(&self, key: FileKey) -> FileKey {
        FileKey { device: key.device ^ self.mark, ..key }
    }

    /// The key that the host knows by a marked one.
    pub(crate) const fn unmarked(&self, key: FileKey) -> FileKey {
        // Twice marked is not marked.
        self.marked(key)
    }

    /// The state of a file of this share.
    pub(crate) fn stat_of(&self, stx: &Statx, extra: &Extra) -> Stat {
        let stat = stat::stat_of(stx, extra);
        Stat { key: self.marked(stat.key), id: self.id_of(stat.key), ..stat }
    }

    /// The number that clients know a file by. Those of a file system that is mounted
    /// below, or of a subvolume of btrfs, whose numbers all begin alike, are told
    /// apart by their upper half, where numbers hardly reach.
    fn id_of(&self, key: FileKey) -> u64 {
        if key.device == self.home { key.inode } else { key.inode ^ spread(key.device) << 32 }
    }

    /// Whether DOSATTRIB is used at all.
    pub(crate) fn keeps_attributes(&self) -> bool {
        self.options.dos_attributes && self.volume.xattrs
    }

    /// Whether an entry is HIDDEN because of its name.
    pub(crate) fn hides(&self, entry: &[u8]) -> bool {
        if self.options.hide_dot_files && entry.first() == Some(&b'.') {
            return true;
        }
        !self.hidden.is_empty() && {
            let name = names::map(entry);
            self.hidden.iter().any(|pattern| pattern.matches(&name))
        }
    }

    /// An extended attribute of an entry that is not opened.
    pub(crate) fn entry_xattr(
        &self,
        dir: BorrowedFd<'_>,
        entry: &CStr,
        name: &CStr,
        value: &mut [u8],
    ) -> Result<usize, Errno> {
        if self.entry_xattrs {
            return sys::getxattr_at(dir, entry, name, value);
        }
        rustix::fs::lgetxattr(entry_path(dir, entry).as_slice(), name, value)
    }

    /// As [`Stat::ea_size`], of an entry that is not opened.
    pub(crate) fn entry_ea_size(&self, dir: BorrowedFd<'_>, entry: &CStr) -> u32 {
        let list = |list: &mut [u8]| {
            if self.entry_xattrs {
                sys::listxattr_at(dir, entry, list)
            } else {
                rustix::fs::llistxattr(entry_path(dir, entry).as_slice(), list)
            }
        };
        let len = |name: &CStr| {
            if self.entry_xattrs {
                sys::getxattr_at(dir, entry, name, &mut [])
            } else {
                rustix::fs::lgetxattr_query(entry_path(dir, entry).as_slice(), name)
            }
        };
        xattr::ea_size(list, len)
    }

    pub(crate) fn writable(&self) -> VfsResult<()> {
        if self.volume.read_only { Err(Fault::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn exact(&self, name: &Name) -> bool {
        name.is_exact() || self.options.case == Case::Sensitive
    }
}

/// An entry of an open directory as one path.
fn entry_path(dir: BorrowedFd<'_>, entry: &CStr) -> Vec<u8> {
    let mut path = sys::ProcPath::of(dir).as_c_str().to_bytes().to_vec();
    path.push(b'/');
    path.extend_from_slice(entry.to_bytes());
    path
}
