//! Signs that the file system of a share does not serve this server any more: another server has fenced
//! it, or it has gone.

use frevo_store::{Fault, Name, Vfs};

/// Looks at the folder of a share itself, and at the space of its file system, which no cache answers
/// for. True if the file system does not serve this server any more.
pub(crate) fn has_gone(vfs: &dyn Vfs) -> bool {
    let looked = vfs.stat(&Name::root()).map(drop).and_then(|()| vfs.space().map(drop));
    looked.is_err_and(may_have_gone)
}

/// True for a fault of a call that lost storage may have caused.
pub(crate) const fn may_have_gone(fault: Fault) -> bool {
    matches!(fault, Fault::Io(_) | Fault::Stale | Fault::Dismounted)
}
