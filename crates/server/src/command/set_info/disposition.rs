//! FileDispositionInformation and its extended form: MS-FSA 2.1.5.15.3 and .4.

use frevo_store::Fault;
use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::set::DispositionFlags;

use crate::objects::open::{FileOpen, Open};
use crate::shares::impersonation;

/// Marks the file to go with its last close, or takes the mark back.
pub(super) fn set(open: &Open, file: &FileOpen, delete: bool) -> Result<(), Status> {
    if delete {
        // READONLY forbids deletion, but not to a POSIX client.
        check(file, file.posix)?;
    }
    file.cell.lock().set_delete_pending(open.id(), delete);
    Ok(())
}

/// Sets the disposition by FileDispositionInformationEx.
pub(super) fn set_ex(open: &Open, file: &FileOpen, flags: DispositionFlags) -> Result<(), Status> {
    let known = DispositionFlags::DELETE
        | DispositionFlags::POSIX_SEMANTICS
        | DispositionFlags::FORCE_IMAGE_SECTION_CHECK
        | DispositionFlags::ON_CLOSE
        | DispositionFlags::IGNORE_READONLY_ATTRIBUTE;
    if !flags.without(known).is_empty() {
        return Err(Status::NOT_SUPPORTED);
    }
    if !flags.contains(DispositionFlags::DELETE) {
        if flags.contains(DispositionFlags::ON_CLOSE) {
            // As on Windows, ON_CLOSE without DELETE also clears the DELETE_ON_CLOSE of the CREATE.
            file.cell.lock().forget_delete_on_close(open.id());
        }
        return set(open, file, false);
    }
    if flags.contains(DispositionFlags::ON_CLOSE) && !file.cell.lock().is_going(open.id()) {
        return Err(Status::NOT_SUPPORTED);
    }
    let ignore_readonly = file.posix
        || flags.contains(DispositionFlags::IGNORE_READONLY_ATTRIBUTE)
            && open.granted_access.contains(AccessMask::WRITE_ATTRIBUTES);
    check(file, ignore_readonly)?;
    let mut state = file.cell.lock();
    state.set_delete_pending(open.id(), true);
    if flags.contains(DispositionFlags::POSIX_SEMANTICS) {
        state.unlinks_at_close(open.id());
    }
    Ok(())
}

/// Fails when the file must not be removed.
fn check(file: &FileOpen, ignore_readonly: bool) -> Result<(), Status> {
    let name = file.name();
    if name.is_root() {
        return Err(Status::ACCESS_DENIED);
    }
    // If the file system takes no changes now, the deletion is refused at once, because the close
    // would fail to delete the file.
    file.node.takes_changes().map_err(Fault::status)?;
    if !ignore_readonly && file.node.is_read_only().map_err(Fault::status)? {
        return Err(Status::CANNOT_DELETE);
    }
    impersonation::check_removal(&*file.vfs, &*file.node, &name)?;
    if file.is_directory && file.node.has_entries().map_err(Fault::status)? {
        return Err(Status::DIRECTORY_NOT_EMPTY);
    }
    Ok(())
}
