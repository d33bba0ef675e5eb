//! Oplock and lease breaks that SET_INFO causes: MS-FSA 2.1.5.15 and 2.1.5.17.

use frevo_store::Fault;
use frevo_store::lease::Cause;
use frevo_store::share_mode::Verdict;
use frevo_wire::Status;
use frevo_wire::command::set_info::{InfoType, Request};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::set::{
    DispositionFlags, FileDispositionInformation, FileDispositionInformationEx,
};

use super::{file, rename};
use crate::base::host;
use crate::base::limits::OPEN_FILES_COMPARED;
use crate::command::request;
use crate::objects::open::{FileOpen, Open, OpenTarget};

/// Breaks what is in the way, and waits for it. What will be refused for want of
/// rights breaks nothing.
pub(super) async fn contend(
    rq: &request::Request<'_>,
    open: &Open,
    request: &Request<'_>,
) -> Result<(), Status> {
    let OpenTarget::File(target) = &open.target else { return Ok(()) };
    let Some(cause) = cause(open, request) else { return Ok(()) };
    if cause == Cause::Rename && target.is_directory {
        // A rename of a directory looks at all open files: with many of them that takes long for a
        // core.
        let many = rq.server().files.len() > OPEN_FILES_COMPARED;
        if many && host::gives_up(usize::MAX) {
            return Err(Fault::Busy.status());
        }
    }
    rq.contend(target, cause).await?;
    if cause == Cause::Rename {
        below(rq, target).await?;
        replaced(rq, open, request).await?;
        destination(rq, target, request).await?;
    }
    Ok(())
}

/// MS-FSA 2.1.4.2: who keeps closed handles below a directory that is renamed
/// gives them up. Whatever is open then stands in the way.
async fn below(rq: &request::Request<'_>, target: &FileOpen) -> Result<(), Status> {
    if !target.is_directory {
        return Ok(());
    }
    for cell in rq.server().files.below(target.folder_id(), &target.name()) {
        rq.contend_for(&cell, target.id, Cause::Rename).await?;
    }
    Ok(())
}

/// MS-FSA 2.1.5.15.12: who caches the file that would be replaced must hear of it, if it may be
/// replaced. Where an open file cannot be, those who only keep its handle are asked to close it.
/// Where it can, it has a link less afterwards, and nothing that is cached of it stays valid.
async fn replaced(
    rq: &request::Request<'_>,
    open: &Open,
    request: &Request<'_>,
) -> Result<(), Status> {
    let file = open.file()?;
    let Ok(Some(wanted)) = rename::replacement(request, file.posix) else { return Ok(()) };
    if wanted.name().stream().is_some() {
        return Ok(());
    }
    let Ok(there) = file.vfs.stat(wanted.name()) else { return Ok(()) };
    match rq.server().files.find(there.key) {
        Some(cell)
            if there.key != file.key()
                && rename::may_replace(open, file, &wanted, &there).is_ok() =>
        {
            let cause = if wanted.replaces_open() { Cause::Write } else { Cause::Rename };
            rq.contend_for(&cell, file.id, cause).await
        }
        _ => Ok(()),
    }
}

/// MS-FSA 2.1.5.15.12 opens the directory of the new name. A client that caches a handle of this
/// directory without allowing that is asked to close it, as for any other open (2.1.4.12).
async fn destination(
    rq: &request::Request<'_>,
    target: &FileOpen,
    request: &Request<'_>,
) -> Result<(), Status> {
    let files = &rq.server().files;
    if !files.leases.has_directories() {
        return Ok(());
    }
    let Ok(name) = rename::new_name(request, target.posix) else { return Ok(()) };
    let Ok(parent) = target.vfs.stat(&name.parent()) else { return Ok(()) };
    let Some(cell) = files.find(parent.key) else { return Ok(()) };
    let verdict = cell.lock().contender(rename::claim_on_directory(target), None);
    match verdict {
        Verdict::Violation => {
            let cause = Cause::Violation { overwrites: false };
            rq.contend_for(&cell, target.id, cause).await
        }
        Verdict::Compatible => Ok(()),
    }
}

fn cause(open: &Open, request: &Request<'_>) -> Option<Cause> {
    match request.info_type {
        InfoType::SECURITY => return Some(Cause::Delete),
        InfoType::FILE => {}
        _ => return None,
    }
    let class = FileInfoClass(request.file_info_class);
    let row = file::row(class).ok()?;
    open.require(row.access).ok()?;
    match class {
        FileInfoClass::END_OF_FILE | FileInfoClass::ALLOCATION => Some(Cause::Write),
        FileInfoClass::RENAME | FileInfoClass::RENAME_EX | FileInfoClass::LINK => {
            Some(Cause::Rename)
        }
        FileInfoClass::DISPOSITION => {
            let wanted = FileDispositionInformation::parse(request.buffer).ok()?;
            wanted.delete_pending.then_some(Cause::Delete)
        }
        FileInfoClass::DISPOSITION_EX => {
            let wanted = FileDispositionInformationEx::parse(request.buffer).ok()?;
            wanted.flags.contains(DispositionFlags::DELETE).then_some(Cause::Delete)
        }
        _ => None,
    }
}
