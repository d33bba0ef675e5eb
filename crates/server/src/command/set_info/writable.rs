//! Shares and volumes that nothing may be changed on.

use frevo_wire::Status;

use crate::objects::open::Open;

/// Fails on a share or a volume that is read-only, whatever rights the handle has.
pub(super) fn writable(open: &Open) -> Result<(), Status> {
    if open.tree().share.read_only {
        return Err(Status::ACCESS_DENIED);
    }
    match open.file() {
        Ok(file) if file.vfs.volume().read_only => Err(Status::MEDIA_WRITE_PROTECTED),
        _ => Ok(()),
    }
}
