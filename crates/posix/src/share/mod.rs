//! [`Share`]: the state that all files of a share use.

mod facts;
mod folders;
pub(crate) mod guard;
pub(crate) mod known_paths;
pub(crate) mod reparse_way;
mod short;
pub(crate) mod streams;
pub(crate) mod walk;

use std::ffi::CStr;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;

use frevo_store::vfs::{HostAccess, Kind, VfsResult, Volume};
use frevo_store::{Fault, FileKey, Name, Stat};
use frevo_wire::dtyp::FileAttributes;
use frevo_wire::fscc::Pattern;
use rustix::fs::{Access, Statx};
use rustix::io::Errno;

use crate::cache::NameCache;
use crate::casing::Casing;
use crate::kept_folders::KeptFolders;
use crate::names::Spelling;
use crate::options::{Case, ModeAttributes, NtAcls, PosixOptions};
use crate::share::guard::Guard;
use crate::share::reparse_way::Ways;
use crate::share::streams::Table;
use crate::snapshots::Snapshots;
use crate::stat::{self, Extra};
use crate::tunnels::Tunnels;
use crate::{names, sys, volume, xattr};

/// The state that all nodes of one share use.
#[derive(Debug)]
pub(crate) struct Share {
    pub(crate) root: Arc<OwnedFd>,
    /// The root again, open for reading, where it can be; snapshots have none.
    pub(crate) readable_root: Option<Arc<OwnedFd>>,
    pub(crate) options: PosixOptions,
    pub(crate) volume: Arc<Volume>,
    pub(crate) names: Arc<NameCache>,
    pub(crate) folders: Arc<KeptFolders>,
    /// Patterns of HIDDEN names.
    pub(crate) hidden: Vec<Pattern>,
    /// Patterns of names that clients do not reach.
    pub(crate) vetoed: Vec<Pattern>,
    pub(crate) tunnels: Tunnels,
    /// The attribute that stores security descriptors.
    pub(crate) ntacl: &'static CStr,
    pub(crate) streams: Table,
    /// True if the kernel has getxattrat(2).
    pub(crate) entry_xattrs: bool,
    /// True if facts from attributes of unchanged files are kept; see [`crate::facts`].
    pub(crate) keeps_facts: bool,
    /// True if each change that follows a read of the time of change gets another time.
    pub(crate) has_exact_times: bool,
    /// True if the file system stores zeros where a file gets a longer end.
    pub(crate) fills_holes: bool,
    /// The number of the root's file system.
    pub(crate) home: u64,
    /// True if that is FUSE.
    pub(crate) is_fuse: bool,
    /// The file systems of the share that find names in another case, and give each spelling
    /// another number.
    pub(crate) casing: Casing,
    /// The spelling of names on it.
    pub(crate) spelling: Spelling,
    /// The mark in the keys of files; 0 except in snapshots.
    pub(crate) mark: u64,
    /// The identity of the shared folder.
    pub(crate) folder_id: frevo_store::FolderId,
    pub(crate) snapshots: Snapshots,
    /// Directories that names lead through.
    pub(crate) ways: Ways,
    /// Folders of snapshots in this share.
    pub(crate) guards: Vec<Guard>,
}

/// The finalizer of SplitMix64: spreads a number over all bits.
const fn spread(number: u64) -> u64 {
    let number = (number ^ number >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ number >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ number >> 31
}

impl Share {
    /// Returns a key with this share's mark, which differs in snapshots.
    pub(crate) const fn marked(&self, key: FileKey) -> FileKey {
        FileKey { device: key.device ^ self.mark, ..key }
    }

    /// Returns the host's key of a marked one.
    pub(crate) const fn unmarked(&self, key: FileKey) -> FileKey {
        // `marked` is its own inverse, because marking a second time removes the mark.
        self.marked(key)
    }

    /// Returns the state of a file of this share.
    pub(crate) fn stat_of(&self, stx: &Statx, extra: &Extra) -> Stat {
        let mut stat = stat::stat_of(stx, extra);
        let mapped = self.mode_attributes();
        if !mapped.is_empty() && stat.kind == Kind::File {
            let attributes =
                stat.attributes.without(FileAttributes::NORMAL) | mapped.of_mode(stat.mode);
            stat.attributes =
                if attributes.is_empty() { FileAttributes::NORMAL } else { attributes };
        }
        Stat { key: self.marked(stat.key), id: self.id_of(stat.key), ..stat }
    }

    /// Returns the number of a file for clients. Files of a file system mounted below, or of a
    /// subvolume of btrfs, have equal low numbers; the upper half, which numbers rarely reach,
    /// tells them apart.
    fn id_of(&self, key: FileKey) -> u64 {
        if key.device == self.home { key.inode } else { key.inode ^ spread(key.device) << 32 }
    }

    /// True if DOSATTRIB is used.
    pub(crate) fn keeps_attributes(&self) -> bool {
        self.options.dos_attributes && self.volume.xattrs
    }

    /// Returns the DOS attributes that the modes of files store.
    pub(crate) fn mode_attributes(&self) -> ModeAttributes {
        if self.options.dos_attributes {
            ModeAttributes::default()
        } else {
            self.options.mode_attributes
        }
    }

    /// True if an entry is HIDDEN because of its name.
    pub(crate) fn hides(&self, entry: &[u8]) -> bool {
        if self.options.hide_dot_files && entry.first() == Some(&b'.') {
            return true;
        }
        !self.hidden.is_empty() && {
            let name = names::map(entry, self.spelling);
            self.hidden.iter().any(|pattern| pattern.matches(&name))
        }
    }

    /// Returns an extended attribute of an entry without opening it.
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

    /// Returns the size of the extended attributes of an entry without opening it; see
    /// [`Stat::ea_size`].
    pub(crate) fn entry_ea_size(&self, dir: BorrowedFd<'_>, entry: &CStr) -> Result<u32, Errno> {
        let list = |list: &mut [u8]| self.entry_names(dir, entry, list);
        let len = |name: &CStr| {
            if self.entry_xattrs {
                sys::getxattr_at(dir, entry, name, &mut [])
            } else {
                rustix::fs::lgetxattr_query(entry_path(dir, entry).as_slice(), name)
            }
        };
        xattr::ea_size(list, len)
    }

    /// Returns the names of an entry's extended attributes, one after the other with a NUL each,
    /// without opening it.
    pub(crate) fn entry_names(
        &self,
        dir: BorrowedFd<'_>,
        entry: &CStr,
        list: &mut [u8],
    ) -> Result<usize, Errno> {
        if self.entry_xattrs {
            return sys::listxattr_at(dir, entry, list);
        }
        rustix::fs::llistxattr(entry_path(dir, entry).as_slice(), list)
    }

    /// Returns the access of the effective user to an object of the user `owner`.
    pub(crate) fn access(&self, fd: BorrowedFd<'_>, owner: Option<u32>) -> HostAccess {
        let user = rustix::process::geteuid();
        let write = !self.volume.read_only && sys::may_access(fd, Access::WRITE_OK);
        let is_owner = owner.is_some_and(|owner| user.is_root() || user.as_raw() == owner);
        HostAccess {
            read: sys::may_access(fd, Access::READ_OK),
            write,
            execute: sys::may_access(fd, Access::EXEC_OK),
            owner: is_owner || write && self.lets_writers_set_modes(),
        }
    }

    /// True if whoever may write an object may change its permissions.
    pub(crate) fn lets_writers_set_modes(&self) -> bool {
        self.options.writers_set_modes && self.options.nt_acls == NtAcls::Posix
    }

    /// True if the object of this key is on FUSE.
    pub(crate) fn is_on_fuse(&self, key: FileKey, fd: BorrowedFd<'_>) -> bool {
        if self.unmarked(key).device == self.home { self.is_fuse } else { volume::is_fuse(fd) }
    }

    /// Returns the state of an object that is being opened.
    ///
    /// On FUSE the kernel answers for a second from what it has cached, also after an open. If this server
    /// has taken the folder over from another one meanwhile, a file may be longer than that. The present
    /// state is asked for once at each open, and is right from then on: nobody else writes.
    pub(crate) fn stat_opened(&self, fd: BorrowedFd<'_>) -> Result<Statx, Errno> {
        match self.options.shared_storage && self.is_fuse {
            true => sys::stat_fd_anew(fd),
            false => sys::stat_fd(fd),
        }
    }

    pub(crate) fn writable(&self) -> VfsResult<()> {
        if self.volume.read_only { Err(Fault::ReadOnly) } else { Ok(()) }
    }

    pub(crate) fn exact(&self, name: &Name) -> bool {
        name.is_exact() || self.options.case == Case::Sensitive
    }
}

/// Returns the path of an entry of an open directory.
fn entry_path(dir: BorrowedFd<'_>, entry: &CStr) -> Vec<u8> {
    let mut path = sys::ProcPath::of(dir).as_c_str().to_bytes().to_vec();
    path.push(b'/');
    path.extend_from_slice(entry.to_bytes());
    path
}
