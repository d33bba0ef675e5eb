//! Oplock and lease breaks that SET_INFO causes: MS-FSA 2.1.5.15 and 2.1.5.17.

use std::sync::Arc;

use frevo_store::lease::Cause;
use frevo_store::share_mode::Verdict;
use frevo_store::{Fault, FileCell, Name};
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
use crate::command::spelling::Spelling;
use crate::objects::lease::{self, Contender};
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
        // A rename of a directory compares its path with all open files. If they are many, that
        // takes too long for a core thread, so the request moves to a blocking thread.
        let many = rq.server().files.len() > OPEN_FILES_COMPARED;
        if many && host::gives_up(usize::MAX) {
            return Err(Fault::Busy.status());
        }
    }
    if cause != Cause::Rename {
        return rq.contend(target, cause).await;
    }
    let mut contenders = vec![Contender { cell: Arc::clone(&target.cell), id: target.id, cause }];
    contenders.extend(below(rq, target));
    contenders.extend(replaced(rq, open, request)?);
    contenders.extend(destination(rq, open, request));
    // If an Open stays below the directory, the rename fails anyway, so the breaks of the other
    // Opens are not awaited.
    let name = target.name();
    let goes_on = move |cell: &FileCell| !stays_below(target, &name, cell);
    let (server, cancellation) = (rq.server(), &rq.cancellation);
    // The future is boxed, because its state would enlarge the state of each request.
    Box::pin(lease::contend_for_all(server, cancellation, contenders, goes_on)).await
}

/// MS-FSA 2.1.4.2: who keeps closed handles below a directory that is renamed
/// gives them up. Whatever is open then stands in the way. Where an Open stays in any case nobody is
/// asked.
fn below(rq: &request::Request<'_>, target: &FileOpen) -> Vec<Contender> {
    if !target.is_directory {
        return Vec::new();
    }
    let name = target.name();
    let cells = rq.server().files.below(target.folder_id(), &name);
    if cells.iter().any(|cell| stays_below(target, &name, cell)) {
        return Vec::new();
    }
    let contender = |cell| Contender { cell, id: target.id, cause: Cause::Rename };
    cells.into_iter().map(contender).collect()
}

/// True if the file keeps `target` from being renamed, whatever its clients are asked. Clients that
/// rename directories with open files only take the handles that others cache.
fn stays_below(target: &FileOpen, name: &Name, cell: &FileCell) -> bool {
    target.is_directory
        && !rename::moves_open_files(target)
        && cell.lock().stays_below(target.folder_id(), name)
}

/// MS-FSA 2.1.5.15.12: who caches the file that would be replaced must hear of it, if it may be
/// replaced. Where an open file cannot be, those who only keep its handle are asked to close it.
/// Where it can, it has a link less afterwards, and nothing that is cached of it stays valid.
fn replaced(
    rq: &request::Request<'_>,
    open: &Open,
    request: &Request<'_>,
) -> Result<Option<Contender>, Status> {
    let file = open.file()?;
    let Ok(Some(wanted)) = rename::replacement(request, Spelling::of_open(open, file)) else {
        return Ok(None);
    };
    if wanted.name().stream().is_some() {
        return Ok(None);
    }
    let Ok(there) = file.vfs.stat(wanted.name()) else { return Ok(None) };
    let cell = rq.server().files.find(there.key).filter(|_| {
        there.key != file.key() && rename::may_replace(open, file, &wanted, &there).is_ok()
    });
    let cause = if wanted.replaces_open() { Cause::Write } else { Cause::Rename };
    Ok(cell.map(|cell| Contender { cell, id: file.id, cause }))
}

/// MS-FSA 2.1.5.15.12 opens the directory of the new name. A client that caches a handle of this
/// directory without allowing that is asked to close it, as for any other open (2.1.4.12).
fn destination(rq: &request::Request<'_>, open: &Open, request: &Request<'_>) -> Option<Contender> {
    let target = open.file().ok()?;
    let files = &rq.server().files;
    if !files.leases.has_directories() {
        return None;
    }
    let name = rename::new_name(request, Spelling::of_open(open, target)).ok()?;
    let parent = target.vfs.stat(&name.parent()).ok()?;
    let cell = files.find(parent.key)?;
    let verdict = cell.lock().contender(rename::claim_on_directory(target), None);
    let cause = Cause::Violation { overwrites: false };
    (verdict == Verdict::Violation).then_some(Contender { cell, id: target.id, cause })
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
