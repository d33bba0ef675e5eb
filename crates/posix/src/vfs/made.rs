//! The mode and the owner of a new object.

use std::os::fd::{AsFd as _, BorrowedFd};

use frevo_store::Fault;
use frevo_store::vfs::{KindWanted, OpenHow, VfsResult};
use frevo_wire::dtyp::FileTime;
use rustix::fs::{AtFlags, Mode, OFlags, Statx};
use rustix::io::Errno;

use crate::credentials::{self, with_file_group};
use crate::errno::fault_of;
use crate::options::Heritage;
use crate::share::walk::Location;
use crate::vfs::PosixVfs;
use crate::xattr::Handle;
use crate::{directory, facts, ntacl, security, stat, sys, xattr};

/// A new object, as it was asked for.
#[derive(Clone, Copy)]
pub(super) struct Made<'a> {
    pub(super) place: &'a Location,
    pub(super) how: &'a OpenHow,
    pub(super) from: Heritage,
    /// The kernel's clock before it was made.
    pub(super) before: FileTime,
}

impl Made<'_> {
    fn is_directory(&self) -> bool {
        self.how.kind == KindWanted::Directory
    }

    /// True if this is an object that this thread has just made. A file is: the call that made it has opened
    /// it. A directory is made and then opened by its name, and another user of the host may have
    /// exchanged the two between these calls.
    fn is_own(&self, fd: BorrowedFd<'_>, stx: &Statx) -> VfsResult<bool> {
        if !self.is_directory() {
            return Ok(true);
        }
        if stx.stx_uid != rustix::process::geteuid().as_raw() {
            return Ok(false);
        }
        // Other file systems may have another clock.
        match stat::birth_of(stx).filter(|_| facts::are_kept(fd, true)) {
            Some(birth) => Ok(birth >= self.before),
            None => is_empty(fd),
        }
    }

    /// Removes the object after it could not be given its mode or its owner. One that was put in its place
    /// stays.
    fn remove(&self, handle: &Handle) {
        let (parent, entry) = (self.place.parent.fd(), self.place.wanted.as_slice());
        let (Ok(made), Ok(found)) = (sys::stat_fd(handle.fd()), sys::stat_at(parent, entry)) else {
            return;
        };
        if stat::key_of(&made) == stat::key_of(&found) {
            let flags = if self.is_directory() { AtFlags::REMOVEDIR } else { AtFlags::empty() };
            let _ = rustix::fs::unlinkat(parent, entry, flags);
        }
    }
}

/// True for a directory without entries.
fn is_empty(fd: BorrowedFd<'_>) -> VfsResult<bool> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY;
    let listed = sys::open_beneath(fd, b".", flags, Mode::empty(), false).map_err(fault_of)?;
    let has_entries = directory::has_entries(listed.as_fd());
    has_entries.map(|has_entries| !has_entries).map_err(fault_of)
}

/// Returns the permission bits that a directory hands down. With an access list its bits of the group are the
/// most that the list gives to anybody: without a default list, which limits new objects itself, they
/// get the rights of the owning group alone.
fn mode_handed_down(parent: BorrowedFd<'_>, stx: &Statx) -> Result<u32, Errno> {
    let mode = u32::from(stx.stx_mode) & 0o7777;
    if mode & 0o070 == 0 {
        return Ok(mode);
    }
    let Some(list) = xattr::access_list(parent)? else { return Ok(mode) };
    if xattr::has_default_list(parent) {
        return Ok(mode);
    }
    let of_group = ntacl::parse_list(&list).and_then(|list| ntacl::of_owning_group(&list));
    Ok(mode & (!0o070 | u32::from(of_group.unwrap_or(0)) << 3))
}

impl PosixVfs {
    /// Returns the parts of a directory that a new object in it inherits by the share's options.
    pub(super) fn heritage(&self, parent: BorrowedFd<'_>) -> Result<Heritage, Errno> {
        let options = &self.share().options;
        // The server keeps the folders that it makes for itself, such as that of the recycle bins.
        let gives = options.inherit_owner && credentials::is_acting();
        let mut from = Heritage::default();
        if options.inherit_modes || gives {
            let stx = sys::stat_fd(parent)?;
            from.owner = gives.then_some(stx.stx_uid);
            if options.inherit_modes {
                from.mode = Some(mode_handed_down(parent, &stx)?);
            }
        }
        from.has_list = options.inherit_lists && xattr::has_default_list(parent);
        Ok(from)
    }

    /// Gives a new object to the owner of its directory. Returns false if it need not be given away. Where the host refuses that, the object does not stay.
    pub(super) fn give(&self, handle: &Handle, made: Made<'_>) -> VfsResult<bool> {
        let Some(owner) = made.from.owner else { return Ok(false) };
        let stx = sys::stat_fd(handle.fd()).map_err(fault_of)?;
        if stx.stx_uid == owner {
            return Ok(false);
        }
        if !made.is_own(handle.fd(), &stx)? {
            return Err(Fault::Stale);
        }
        let given = {
            let _server = credentials::as_server();
            security::chown(handle, Some(owner), None)
        };
        given.map(|()| true).inspect_err(|_| made.remove(handle))
    }

    /// Sets the mode that a client asked for, and the set-group-ID bit of a directory. The client has
    /// applied its own umask already, so this process's must not count. A default ACL of the parent has
    /// priority. Where the host refuses the mode, the object does not stay.
    pub(super) fn settle_mode(&self, handle: &Handle, made: Made<'_>) -> VfsResult<()> {
        let options = &self.share().options;
        let group_bit = if made.is_directory() { options.group_bit(made.from) } else { 0 };
        if made.how.mode.is_none() && group_bit == 0 {
            return Ok(());
        }
        let fd = handle.fd();
        let stx = sys::stat_fd(fd).map_err(fault_of)?;
        let has = u32::from(stx.stx_mode) & 0o7777;
        let bits = match made.how.mode {
            None => has,
            // A new directory may have inherited the set-group-ID bit of its parent, which stays.
            mode if made.is_directory() => {
                options.directory_mode_of(mode, made.from) | has & 0o2000
            }
            mode => options.file_mode_of(mode, made.how.attributes, made.from),
        };
        let mut wanted = bits | group_bit;
        let has_list = || {
            rustix::fs::fgetxattr(fd, ntacl::ACCESS, &mut [0; 0]).is_ok()
                || xattr::has_default_list(made.place.parent.fd())
        };
        if has != wanted && made.how.mode.is_some() && has_list() {
            wanted = has | wanted & 0o2000;
        }
        if has == wanted {
            return Ok(());
        }
        if !made.is_own(fd, &stx)? {
            // Some file systems give all files to one owner, and a directory on them keeps the mode that it
            // was made with.
            return if facts::are_kept(fd, true) { Err(Fault::Stale) } else { Ok(()) };
        }
        match change_mode(fd, stx.stx_gid, wanted) {
            // The file system has no such bit.
            Err(Errno::PERM | Errno::OPNOTSUPP) if made.how.mode.is_none() => Ok(()),
            changed => changed.map_err(fault_of).inspect_err(|_| made.remove(handle)),
        }
    }
}

fn change_mode(fd: BorrowedFd<'_>, group: u32, mode: u32) -> Result<(), Errno> {
    let change = || rustix::fs::fchmod(fd, Mode::from_raw_mode(mode));
    if mode & 0o2000 == 0 { change() } else { with_file_group(group, change)? }
}
