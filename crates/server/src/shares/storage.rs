//! Signs that the file system of a share does not serve this server any more: another server has fenced
//! it, or it has gone.

use frevo_store::{Fault, Name, Vfs};

/// Looks at the folder of a share itself, and at the space of its file system, which no cache answers
/// for. True if the file system does not serve this server any more.
///
/// ceph-fuse whose client is on the blocklist forgets the folder, and still tells the space.
pub(crate) fn has_gone(vfs: &dyn Vfs) -> bool {
    let folder = vfs.stat(&Name::root()).map(drop);
    let has_no_folder = matches!(folder, Err(Fault::NotFound | Fault::PathNotFound));
    has_no_folder || folder.and_then(|()| vfs.space().map(drop)).is_err_and(may_have_gone)
}

/// True for a fault of a call that lost storage may have caused.
pub(crate) const fn may_have_gone(fault: Fault) -> bool {
    matches!(fault, Fault::Io(_) | Fault::Stale | Fault::Dismounted)
}
