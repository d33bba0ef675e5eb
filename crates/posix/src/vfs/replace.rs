//! Replacing an object by a link, a FIFO or a socket of the host, or by a file again.

use std::any::Any;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use frevo_store::vfs::{Kind, Node, Replacement, VfsResult, links};
use frevo_store::{Fault, Name};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Statx};
use rustix::io::Errno;

use super::{PosixVfs, rename_entry};
use crate::errno::{fault_of, walk_fault};
use crate::limits::RETRIES;
use crate::node::PosixNode;
use crate::xattr::Handle;
use crate::{stat, sys};

impl PosixVfs {
    /// Replaces an object; see [`frevo_store::Vfs::replace`].
    ///
    /// The new object is made under another name and exchanged with the old one, which is checked
    /// only then: an object that took its place meanwhile, or that was filled, is put back.
    pub(crate) fn replace_entry(
        &self,
        name: &Name,
        node: &dyn Node,
        by: &Replacement<'_>,
    ) -> VfsResult<()> {
        self.share().writable()?;
        let key = node.key();
        let any: &dyn Any = node;
        // A stream cannot become a reparse point, so only a handle of the file itself is accepted.
        let opened: &PosixNode = any.downcast_ref().ok_or(Fault::NotSupported)?;
        if name.is_root() || name.stream().is_some() {
            return Err(Fault::NotSupported);
        }
        let (place, stored, stx) = self.place_of(name, key)?;
        check_empty(&stx)?;
        let dir = place.parent.fd();
        let temporary = make(dir, by, &stx)?;
        let exchanged =
            settle(dir, &temporary, &stx).and_then(|()| exchange(dir, &temporary, &stored, &stx));
        if exchanged.is_err() {
            let _ = rustix::fs::unlinkat(dir, temporary.as_slice(), AtFlags::empty());
        }
        let handle = exchanged?;
        let made = sys::stat_fd(handle.fd()).map_err(fault_of)?;
        opened.become_other(Arc::new(opened.sibling(handle, &made)));
        Ok(())
    }
}

/// Refuses an object that contains something.
fn check_empty(stx: &Statx) -> VfsResult<()> {
    let filled = stat::kind_of(stx) == Kind::File && stx.stx_size != 0;
    if filled { Err(Fault::Invalid) } else { Ok(()) }
}

/// Makes the new object under an unused name.
fn make(dir: BorrowedFd<'_>, by: &Replacement<'_>, old: &Statx) -> VfsResult<Vec<u8>> {
    let inode = old.stx_ino;
    let mode = match stat::kind_of(old) {
        Kind::Symlink => 0o644,
        _ => u32::from(old.stx_mode) & 0o666,
    };
    let mode = Mode::from_raw_mode(mode);
    for attempt in 0..RETRIES {
        let name = format!(".frevo-reparse-{inode:x}-{:x}-{attempt}", std::process::id());
        let special = |kind| rustix::fs::mknodat(dir, name.as_bytes(), kind, mode, 0);
        let made = match *by {
            Replacement::File => special(FileType::RegularFile),
            // Programs of the host alone make links of DFS, so that a client cannot lead others away.
            Replacement::Symlink(target) if links::is_of_dfs(target) => Err(Errno::OPNOTSUPP),
            Replacement::Symlink(target) => rustix::fs::symlinkat(target, dir, name.as_bytes()),
            Replacement::Fifo => special(FileType::Fifo),
            Replacement::Socket => special(FileType::Socket),
        };
        return match made {
            Ok(()) => Ok(name.into_bytes()),
            Err(Errno::EXIST) => continue,
            // The file system cannot make this kind of object.
            Err(Errno::PERM | Errno::OPNOTSUPP) => Err(Fault::NotSupported),
            Err(errno) => Err(fault_of(errno)),
        };
    }
    Err(Fault::Busy)
}

/// Gives the new object the old one's owner.
fn settle(dir: BorrowedFd<'_>, temporary: &[u8], old: &Statx) -> VfsResult<()> {
    let made = sys::stat_at(dir, temporary).map_err(fault_of)?;
    if (made.stx_uid, made.stx_gid) != (old.stx_uid, old.stx_gid) {
        let owner = rustix::fs::Uid::from_raw(old.stx_uid);
        let group = rustix::fs::Gid::from_raw(old.stx_gid);
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::chownat(dir, temporary, Some(owner), Some(group), flags).map_err(fault_of)?;
    }
    Ok(())
}

/// Exchanges the two objects, removes the old one, and returns the new one, opened.
fn exchange(
    dir: BorrowedFd<'_>,
    temporary: &[u8],
    stored: &[u8],
    old: &Statx,
) -> VfsResult<Handle> {
    let (from, to) = ((dir, temporary), (dir, stored));
    let flags = OFlags::PATH | OFlags::NOFOLLOW;
    let made = sys::open_beneath(dir, temporary, flags, Mode::empty(), false);
    let made = Handle::new(made.map_err(walk_fault)?, true);
    rename_entry(from, to, RenameFlags::EXCHANGE)?;
    let removed = sys::stat_at(dir, temporary).map_err(fault_of).and_then(|now| {
        if stat::key_of(&now) != stat::key_of(old) {
            return Err(Fault::Stale);
        }
        check_empty(&now)?;
        let directory = stat::kind_of(&now) == Kind::Directory;
        let flags = if directory { AtFlags::REMOVEDIR } else { AtFlags::empty() };
        match rustix::fs::unlinkat(dir, temporary, flags) {
            Ok(()) => Ok(()),
            Err(Errno::EXIST) => Err(Fault::NotEmpty),
            Err(errno) => Err(fault_of(errno)),
        }
    });
    if removed.is_err() {
        let _ = rename_entry(from, to, RenameFlags::EXCHANGE);
    }
    removed.map(|()| made)
}
