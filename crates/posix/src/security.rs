//! The protection of a file: its stored security descriptor while the host's permissions are those
//! at the time of storing, else the host's permissions.

use std::ffi::{CStr, CString};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use frevo_store::Fault;
use frevo_store::security::HostAcl;
use frevo_store::vfs::{Kind, Security, SecurityChange, VfsResult};
use rustix::fs::{Access, AtFlags, CWD, Mode, OFlags, Statx, XattrFlags};
use rustix::io::Errno;
use rustix::thread::CapabilitySet;

use crate::credentials::{self, Assumed};
use crate::errno::fault_of;
use crate::facts::{self, Version};
use crate::ntacl::{self, Permissions};
use crate::options::NtAcls;
use crate::share::Share;
use crate::stat;
use crate::sys::{self, ProcPath};
use crate::xattr::Handle;

/// Returns the attribute that this process writes descriptors to in the folder `root`:
/// `security.NTACL` where it may, else `user.NTACL`.
pub(crate) fn attribute(root: BorrowedFd<'_>) -> &'static CStr {
    let path = ProcPath::of(root);
    if may_write(path.as_c_str()) { ntacl::PRIVILEGED } else { ntacl::UNPRIVILEGED }
}

/// True when this thread may write `security.NTACL` in `folder`.
pub fn may_write_security_attributes(folder: &Path) -> bool {
    CString::new(folder.as_os_str().as_bytes()).is_ok_and(|path| may_write(&path))
}

/// Asks the kernel for a change that it refuses in any case, for a reason that tells. The
/// capability alone does not: in a container's user namespace it is one for other file systems.
fn may_write(path: &CStr) -> bool {
    let held = rustix::thread::capabilities(None).map(|sets| sets.effective);
    if !held.is_ok_and(|held| held.contains(CapabilitySet::SYS_ADMIN)) {
        return false;
    }
    let there = rustix::fs::getxattr(path, ntacl::PRIVILEGED, &mut [0; 0]).is_ok();
    let flags = if there { XattrFlags::CREATE } else { XattrFlags::REPLACE };
    !matches!(
        rustix::fs::setxattr(path, ntacl::PRIVILEGED, &[], flags),
        Err(Errno::PERM | Errno::ACCESS)
    )
}

/// Returns the descriptor in force for the file behind `handle`, or the host's permissions.
pub(crate) fn query(share: &Share, handle: &Handle) -> VfsResult<Security> {
    if share.options.nt_acls == NtAcls::Off {
        return Ok(Security::Host(HostAcl::default()));
    }
    if let Some(descriptor) = stored(share, handle, None)? {
        return Ok(Security::Stored(descriptor));
    }
    if !share.volume.xattrs {
        return Ok(Security::Host(HostAcl::default()));
    }
    let stx = sys::stat_fd(handle.fd()).map_err(fault_of)?;
    Ok(Security::Host(host_acl(handle, &stx)?))
}

/// Returns the stored descriptor that is in force.
///
/// `security.NTACL` decides first: no capability is needed to read it, and only a
/// privileged process can have written it. A server that cannot write it keeps its own
/// descriptors in `user.NTACL`, which decides where `security.NTACL` does not. So it does for a
/// server that can write both: what a user was denied before such a server came stays denied.
///
/// An attribute that is absent is remembered for the `version` of the file, which was settled
/// before.
pub(crate) fn stored(
    share: &Share,
    handle: &Handle,
    version: Option<Version>,
) -> VfsResult<Option<Vec<u8>>> {
    if share.options.nt_acls != NtAcls::Xattr {
        return Ok(None);
    }
    let privileged = in_force(handle, ntacl::PRIVILEGED, version)?;
    if privileged.is_some() || !reads_unprivileged(share) {
        return Ok(privileged);
    }
    in_force(handle, ntacl::UNPRIVILEGED, version)
}

fn reads_unprivileged(share: &Share) -> bool {
    share.volume.descriptors
}

/// True if a file is known to have no stored descriptor in this version.
pub(crate) fn is_bare(share: &Share, version: Version) -> bool {
    share.options.nt_acls == NtAcls::Xattr
        && facts::lacks(version, ntacl::PRIVILEGED)
        && (!reads_unprivileged(share) || facts::lacks(version, ntacl::UNPRIVILEGED))
}

/// True if nothing has to be read to tell the stored descriptor of a file in this version.
pub(crate) fn needs_no_read(share: &Share, version: Version) -> bool {
    share.options.nt_acls != NtAcls::Xattr || is_bare(share, version)
}

/// Returns the descriptor in `attribute` if it belongs to the permissions that the host
/// has now. Costs one system call where there is no such attribute.
fn in_force(
    handle: &Handle,
    attribute: &CStr,
    version: Option<Version>,
) -> VfsResult<Option<Vec<u8>>> {
    let Some(stored) = value(handle, attribute)? else {
        version.into_iter().for_each(|version| facts::note_lack(version, attribute));
        return Ok(None);
    };
    let stx = sys::stat_fd(handle.fd()).map_err(fault_of)?;
    let acl = host_acl(handle, &stx)?;
    Ok(ntacl::decode(&stored, &permissions(&stx, &acl)))
}

/// Changes owner, mode and the stored descriptor, which is in force for the file's final
/// permissions. After a failure in between the old descriptor is no longer in force, and the host's
/// permissions decide.
pub(crate) fn set(share: &Share, handle: &Handle, change: &SecurityChange<'_>) -> VfsResult<()> {
    let kind = stat::kind_of(&sys::stat_fd(handle.fd()).map_err(fault_of)?);
    if !matches!(kind, Kind::File | Kind::Directory) || share.options.nt_acls == NtAcls::Off {
        return Err(Fault::NotSupported);
    }
    if change.descriptor.is_some() && !share.volume.descriptors {
        return Err(Fault::NotSupported);
    }
    // A descriptor in the privileged attribute can be replaced only with privileges. A second one
    // in another attribute could contradict it, so the change is refused.
    if change.descriptor.is_some()
        && share.ntacl != ntacl::PRIVILEGED
        && value(handle, ntacl::PRIVILEGED)?.is_some()
    {
        return Err(Fault::AccessDenied);
    }
    if change.uid.is_some() || change.gid.is_some() {
        chown(handle, change.uid, change.gid)?;
    }
    if change.descriptor.is_some() {
        check_owner(&sys::stat_fd(handle.fd()).map_err(fault_of)?)?;
    }
    let _server = as_owner(share, handle)?;
    let has_list = match change.lists {
        Some(lists) => set_lists(handle, kind, lists, change.mode)?,
        None => false,
    };
    if let Some(mode) = change.mode.filter(|_| !has_list) {
        // The special bits of the mode may have changed since the caller read them, so they are
        // read again.
        let stx = sys::stat_fd(handle.fd()).map_err(fault_of)?;
        let special = u32::from(stx.stx_mode) & settable(kind) & !0o777;
        chmod(handle, mode & 0o777 | special)?;
    }
    let Some(descriptor) = change.descriptor else { return Ok(()) };
    let stx = sys::stat_fd(handle.fd()).map_err(fault_of)?;
    let acl = host_acl(handle, &stx)?;
    let now = stat::coarse_clock();
    let value = ntacl::encode(descriptor, &permissions(&stx, &acl), now).ok_or(Fault::Invalid)?;
    check_owner(&stx)?;
    let _server = credentials::as_server();
    match handle.set(share.ntacl, &value) {
        Ok(()) => drop_older(share, handle),
        Err(Errno::RANGE | Errno::TOOBIG) => Err(Fault::DiskFull),
        Err(errno) => Err(fault_of(errno)),
    }
}

/// Lets the server act for a user that may write the object, where such users may change permissions as
/// its owner does. None leaves a change to the user's own rights.
pub(crate) fn as_owner(share: &Share, handle: &Handle) -> VfsResult<Option<Assumed>> {
    let acting = credentials::acting().filter(|_| share.lets_writers_set_modes());
    let Some(user) = acting else { return Ok(None) };
    let owner = sys::stat_fd(handle.fd()).map_err(fault_of)?.stx_uid;
    let is_writer = owner != user.uid() && sys::may_access(handle.fd(), Access::WRITE_OK);
    Ok(is_writer.then(credentials::as_server))
}

/// Checks that the user that this thread acts as owns the file. The server writes descriptors with its
/// own rights, so it must check that itself, before it changes anything and at the end.
fn check_owner(stx: &Statx) -> VfsResult<()> {
    let is_others = credentials::acting().is_some_and(|user| user.uid() != stx.stx_uid);
    if is_others { Err(Fault::AccessDenied) } else { Ok(()) }
}

/// Replaces the host's lists where they differ, as the user that this thread acts as: the kernel
/// takes them from the owner and from a process with CAP_FOWNER. Returns true if the list of the
/// object says what `mode` would.
fn set_lists(handle: &Handle, kind: Kind, lists: &HostAcl, mode: Option<u32>) -> VfsResult<bool> {
    let stx = sys::stat_fd(handle.fd()).map_err(fault_of)?;
    let present = host_acl(handle, &stx)?;
    if kind == Kind::Directory && lists.default != present.default {
        set_default(handle, lists)?;
    }
    if lists.access.is_empty() && present.access.is_empty() {
        return Ok(false);
    }
    let of_mode = ntacl::of_mode(mode.unwrap_or_else(|| u32::from(stx.stx_mode)));
    // The kernel removes a list that says no more than permission bits.
    let access = if lists.access.is_empty() { &of_mode[..] } else { &lists.access };
    if access != present.access {
        handle.set(ntacl::ACCESS, &ntacl::encode_list(access)).map_err(list_fault)?;
    }
    Ok(true)
}

/// Replaces the list of new objects in a directory. A file system without lists makes them with
/// permission bits, which is as good where these say the same.
fn set_default(handle: &Handle, lists: &HostAcl) -> VfsResult<()> {
    let done = if lists.default.is_empty() {
        handle.remove(ntacl::DEFAULT)
    } else {
        handle.set(ntacl::DEFAULT, &ntacl::encode_list(&lists.default))
    };
    match done {
        Ok(()) | Err(Errno::NODATA) => Ok(()),
        Err(Errno::OPNOTSUPP) if !lists.names_others() => Ok(()),
        Err(errno) => Err(list_fault(errno)),
    }
}

/// Returns the fault for a list that the kernel does not take. One that is longer than the file
/// system has room for is as a full disk.
fn list_fault(errno: Errno) -> Fault {
    match errno {
        Errno::RANGE | Errno::TOOBIG => Fault::DiskFull,
        errno => fault_of(errno),
    }
}

/// Removes the descriptor of a server without CAP_SYS_ADMIN, after a newer one was stored in
/// `security.NTACL`: only one is left that can be in force.
fn drop_older(share: &Share, handle: &Handle) -> VfsResult<()> {
    if share.ntacl != ntacl::PRIVILEGED {
        return Ok(());
    }
    match handle.remove(ntacl::UNPRIVILEGED) {
        Ok(()) | Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(()),
        Err(errno) => Err(fault_of(errno)),
    }
}

/// Changes owner and group, if the host allows it.
pub(crate) fn chown(handle: &Handle, uid: Option<u32>, gid: Option<u32>) -> VfsResult<()> {
    use rustix::process::{Gid, Uid};
    if uid == Some(u32::MAX) || gid == Some(u32::MAX) {
        // For chown(2) u32::MAX means "no change", so a client cannot set it as an id.
        return Err(Fault::Invalid);
    }
    let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
    rustix::fs::chownat(handle.fd(), c"", uid, gid, AtFlags::EMPTY_PATH).map_err(fault_of)
}

/// Returns the mode bits that a client may set. A program never gets set-user-ID or set-group-ID
/// over the network: it would run with rights that the client does not have.
const fn settable(kind: Kind) -> u32 {
    match kind {
        Kind::Directory => 0o3777,
        _ => 0o1777,
    }
}

/// Changes the mode for a client.
///
/// The kernel clears set-group-ID if the caller is not in the file's group and lacks CAP_FSETID,
/// which threads give up (see [`credentials::begin_thread`]). A directory keeps the bit: the server
/// assumes the directory's group for the call.
pub(crate) fn chmod(handle: &Handle, mode: u32) -> VfsResult<()> {
    let stx = sys::stat_fd(handle.fd()).map_err(fault_of)?;
    let kind = stat::kind_of(&stx);
    if kind == Kind::Symlink {
        return Err(Fault::NotSupported);
    }
    let mode = Mode::from_raw_mode(mode & settable(kind));
    if !mode.contains(Mode::SGID) {
        let path = ProcPath::of(handle.fd());
        return rustix::fs::chmodat(CWD, path.as_c_str(), mode, AtFlags::empty()).map_err(fault_of);
    }
    // The sandbox allows fchmod(2) but not chmod(2) by path, so the directory is opened for it.
    let opened = {
        // The owner may lack the right to read the directory, so the server opens it with its own
        // rights.
        let _server = credentials::as_server();
        sys::reopen(handle.fd(), OFlags::RDONLY | OFlags::DIRECTORY).map_err(fault_of)?
    };
    let change = || rustix::fs::fchmod(&opened, mode).map_err(fault_of);
    credentials::with_file_group(stx.stx_gid, change).map_err(fault_of)?
}

const fn permissions<'a>(stx: &Statx, acl: &'a HostAcl) -> Permissions<'a> {
    let mode = stx.stx_mode as u32;
    Permissions {
        uid: stx.stx_uid,
        gid: stx.stx_gid,
        mode,
        is_directory: mode & 0o170_000 == 0o040_000,
        acl,
    }
}

/// Returns the host's lists; empty on a file system without them.
fn host_acl(handle: &Handle, stx: &Statx) -> VfsResult<HostAcl> {
    let list = |name| match value(handle, name)? {
        Some(value) => ntacl::parse_list(&value).ok_or(Fault::Io(libc::EINVAL)),
        None => Ok(Vec::new()),
    };
    let kind = stat::kind_of(stx);
    let access = if kind == Kind::Symlink { Vec::new() } else { list(ntacl::ACCESS)? };
    let default = if kind == Kind::Directory { list(ntacl::DEFAULT)? } else { Vec::new() };
    Ok(HostAcl { access, default })
}

/// Returns an attribute, if it exists. The server reads what the user that it acts as may not read:
/// `user.NTACL` of a file that the user cannot read.
///
/// Only ENODATA, and EOPNOTSUPP of a file system that has no such attributes, say that it does not
/// exist. After any other error nobody knows what it says, and the caller refuses.
fn value(handle: &Handle, name: &CStr) -> VfsResult<Option<Vec<u8>>> {
    let mut small = [0; 512];
    match handle.value(name, &mut small) {
        Ok(len) => Ok(Some(small.get(..len).unwrap_or_default().to_vec())),
        Err(Errno::ACCESS | Errno::PERM) if credentials::is_acting() => {
            let _server = credentials::as_server();
            value(handle, name)
        }
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(Errno::RANGE) => match handle.whole_value(name) {
            Ok(value) => Ok(Some(value)),
            Err(Errno::NODATA) => Ok(None),
            Err(errno) => Err(fault_of(errno)),
        },
        Err(errno) => Err(fault_of(errno)),
    }
}
