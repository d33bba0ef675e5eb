//! SET_INFO: MS-SMB2 3.3.5.21, with the object store's part of MS-FSA 2.1.5.15
//! to 2.1.5.17.

mod basic_information;
mod contention;
mod disposition;
pub(super) mod eas;
mod file;
mod quota;
mod rename;
mod sizes;
mod streams;
#[cfg(test)]
mod tests;
mod writable;

use frevo_store::{FileTable, Name};
use frevo_wire::Status;
use frevo_wire::command::change_notify::CompletionFilter;
use frevo_wire::command::set_info::{self, InfoType};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::notify::NotifyAction;
use frevo_wire::fscc::{FileInfoClass, FsInfoClass};

use self::writable::writable;
use super::host_lists::Identities;
use super::query_info::security;
use crate::access::domain_names::DomainNames;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::command::spelling::Spelling;
use crate::objects::audited;
use crate::objects::durable::record;
use crate::objects::open::{FileOpen, Open};
use crate::objects::refusal::Outcome;
use crate::objects::shortening::{Shortened, shorten};
use crate::objects::stable::{self, Change};
use crate::objects::times::KeptTimes;

/// Changes what is known of a file.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = set_info::Request::parse(rq.message)?;
    let length = u32::try_from(request.buffer.len()).unwrap_or(u32::MAX);
    if length == 0 || length > rq.connection.negotiated()?.terms.max_transact_size {
        return Err(Status::INVALID_PARAMETER.into());
    }
    rq.check_charge(length)?;
    contention::contend(rq, rq.open()?, &request).await?;
    rq.still_served()?;
    let open = rq.open()?;
    if let Ok(file) = open.file()
        && request.info_type == InfoType::FILE
        && file::settles(FileInfoClass(request.file_info_class))
    {
        file.settle_times(rq.server().ambient.now());
    }
    let names = request.info_type == InfoType::FILE
        && file::changes_names(FileInfoClass(request.file_info_class));
    let from = open.file().ok().filter(|_| names).map(FileOpen::name);
    let long = long_cut(open, &request);
    let mut kept = match (long, open.file()) {
        (Some(_), Ok(file)) => Some(file.keep_times_of_write()),
        (None, Ok(file)) => guarded(&request, file),
        (_, Err(_)) => None,
    };
    let mut has_cut = false;
    if let Some(end) = long {
        has_cut = Box::pin(cut_in_steps(rq, open, &request, end, &mut kept)).await?;
    }
    if request.info_type == InfoType::QUOTA {
        quota::set(rq, open, request.buffer).await?;
        open.tree().record_privilege("quota", &open.file()?.name());
    } else {
        let known = if request.info_type == InfoType::SECURITY {
            let asked = request.security_information();
            Box::pin(security::identities(rq, open, asked, request.buffer)).await?
        } else {
            None
        };
        let (files, names) = (&rq.server().files, &rq.server().domain_names);
        let applied = apply(open, files, names, &request, known.as_deref());
        if let (Some(kept), Err(_), false) = (&mut kept, &applied, has_cut) {
            kept.was_refused();
        }
        applied.map_err(|status| {
            rename::tell_name(rq, &request, status);
            rename::stopped(open, &request, status)
        })?;
        // After this change the handler must not run again, because it would find its own new name.
        out.note_change();
    }
    drop(kept);
    if let Ok(file) = open.file() {
        let stable = match changed(open, file, from, &request) {
            Some(change) => stable::sync_change(file, change).await,
            None => Ok(()),
        };
        // The rename has happened even if it could not be synced, so the durable records get the
        // new name first.
        record::keep_file(rq.server(), &file.cell).await?;
        stable?;
    }
    set_info::Response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

/// True for a request that changes more than the handle.
pub(super) fn modifies(request: &set_info::Request<'_>) -> bool {
    request.info_type != InfoType::FILE || file::modifies(FileInfoClass(request.file_info_class))
}

/// Returns the new end of a file that is cut in steps first.
fn long_cut(open: &Open, request: &set_info::Request<'_>) -> Option<u64> {
    let class = FileInfoClass(request.file_info_class);
    let is_file = request.info_type == InfoType::FILE;
    is_file.then(|| file::long_cut(open, class, request.buffer)).flatten()
}

/// Cuts a file in steps, and breaks what others were granted to cache between them: the last cut, by
/// [`apply`], follows. Returns true if data has gone; then times have moved, also if a later step fails.
async fn cut_in_steps(
    rq: &Request<'_>,
    open: &Open,
    request: &set_info::Request<'_>,
    end: u64,
    kept: &mut Option<KeptTimes<'_>>,
) -> Result<bool, Status> {
    let file = open.file()?;
    let Shortened { has_cut, ended } =
        shorten(&*file.node, end, || rq.still_served().is_ok()).await;
    if has_cut {
        file.times_moved();
    }
    let ended = match ended {
        Ok(()) => contention::contend(rq, open, request).await.and_then(|()| rq.still_served()),
        Err(fault) => Err(fault.status()),
    };
    let is_allocation = FileInfoClass(request.file_info_class) == FileInfoClass::ALLOCATION;
    if let (Some(kept), false) = (kept, has_cut)
        && (ended.is_err() || is_allocation)
    {
        // An allocation looks itself at what it moves (`sizes`).
        kept.was_refused();
    }
    ended.map(|()| has_cut)
}

/// Keeps the times that a request must leave, and the time of a new length. FileBasicInformation sets
/// times itself. An allocation that cuts the file is guarded like a new length, others keep LastWriteTime
/// (`sizes`).
fn guarded<'a>(request: &set_info::Request<'_>, file: &'a FileOpen) -> Option<KeptTimes<'a>> {
    match (request.info_type, FileInfoClass(request.file_info_class)) {
        (InfoType::FILE, FileInfoClass::BASIC) => None,
        (InfoType::FILE, FileInfoClass::END_OF_FILE) => Some(file.keep_times_of_write()),
        _ => Some(file.keep_times()),
    }
}

/// Returns the change of a request, if it changed more than the handle. What is to be deleted is
/// not yet.
fn changed(
    open: &Open,
    file: &FileOpen,
    from: Option<Name>,
    request: &set_info::Request<'_>,
) -> Option<Change> {
    let class = FileInfoClass(request.file_info_class);
    match (request.info_type, class) {
        (InfoType::SECURITY, _) => Some(Change::Attributes),
        (InfoType::FILE, FileInfoClass::DISPOSITION | FileInfoClass::DISPOSITION_EX) => None,
        (InfoType::FILE, FileInfoClass::RENAME | FileInfoClass::RENAME_EX) => {
            let to = file.name();
            let names = from.into_iter().filter(|from| *from != to).chain([to.clone()]);
            Some(Change::Names(names.collect()))
        }
        (InfoType::FILE, FileInfoClass::LINK) => {
            let added = rename::new_name(request, Spelling::of_open(open, file));
            Some(Change::Names(added.into_iter().collect()))
        }
        (InfoType::FILE, FileInfoClass::END_OF_FILE | FileInfoClass::ALLOCATION) => {
            Some(Change::Size)
        }
        (InfoType::FILE, _) if file::modifies(class) => Some(Change::Attributes),
        _ => None,
    }
}

fn apply(
    open: &Open,
    files: &FileTable,
    names: &DomainNames,
    request: &set_info::Request<'_>,
    known: Option<&Identities<'_>>,
) -> Result<(), Status> {
    let class = request.file_info_class;
    match request.info_type {
        InfoType::FILE => file::set(open, files, FileInfoClass(class), request.buffer),
        InfoType::FILESYSTEM => volume(open, FsInfoClass(class), request.buffer),
        InfoType::SECURITY => {
            writable(open)?;
            let asked = request.security_information();
            security::set(open, asked, request.buffer, known)?;
            audited::protected(open, asked, request.buffer, names, Ok(()));
            if !open.file()?.is_directory {
                // MS-FSA 2.1.5.17: after a change of the security descriptor, the file gets ARCHIVE
                // and watches are notified.
                open.file()?.set_archive();
            }
            open.file()?.report(files, NotifyAction::MODIFIED, CompletionFilter::SECURITY);
            Ok(())
        }
        _ => Err(Status::INVALID_PARAMETER),
    }
}

/// Records a change that was refused.
pub(super) fn record_refused(rq: &Request<'_>, open: &Open, status: Status) {
    let Ok(request) = set_info::Request::parse(rq.message) else { return };
    let class = request.file_info_class;
    match request.info_type {
        InfoType::FILE => match FileInfoClass(class) {
            FileInfoClass::QUOTA => quota_refused(open, status),
            FileInfoClass::TRACKING => audited::attributes(open, "link_tracking", Err(status)),
            class => file::record_refused(open, class, request.buffer, status),
        },
        InfoType::FILESYSTEM => volume_refused(open, FsInfoClass(class), status),
        InfoType::SECURITY => {
            let (asked, names) = (request.security_information(), &rq.server().domain_names);
            audited::protected(open, asked, request.buffer, names, Err(status));
        }
        InfoType::QUOTA => quota_refused(open, status),
        _ => {}
    }
}

/// Records an attempt to change something of the volume.
fn volume_refused(open: &Open, class: FsInfoClass, status: Status) {
    let part = match class {
        FsInfoClass::CONTROL => return quota_refused(open, status),
        FsInfoClass::LABEL => "volume_label",
        FsInfoClass::OBJECT_ID => "volume_object_id",
        FsInfoClass::VOLUME_FLAGS => "volume_flags",
        _ => return,
    };
    audited::attributes(open, part, Err(status));
}

fn quota_refused(open: &Open, status: Status) {
    if let Ok(file) = open.file() {
        open.tree().record_privilege_as("quota", &file.name(), status);
    }
}

/// Bytes of FILE_FS_OBJECTID_INFORMATION (MS-FSCC 2.5.6).
const VOLUME_OBJECT_ID: usize = 64;

/// MS-SMB2 3.3.5.21.2: of a volume nothing but the default quota can be set over the
/// network.
fn volume(open: &Open, class: FsInfoClass, buffer: &[u8]) -> Result<(), Status> {
    match class {
        FsInfoClass::CONTROL | FsInfoClass::OBJECT_ID => {
            open.require(AccessMask::WRITE_DATA)?;
            writable(open)?;
            if class == FsInfoClass::CONTROL {
                quota::set_control(open, buffer)?;
                open.tree().record_privilege("quota", &open.file()?.name());
                return Ok(());
            }
            // MS-FSA 2.1.5.16.8: the class is the volume's object ID, which this server cannot set.
            // As in MS-FSA, the status depends on the length.
            let is_whole = buffer.len() >= VOLUME_OBJECT_ID;
            Err(if is_whole { Status::INVALID_PARAMETER } else { Status::INVALID_INFO_CLASS })
        }
        FsInfoClass::LABEL | FsInfoClass::DRIVER_PATH | FsInfoClass::VOLUME_FLAGS => {
            Err(Status::NOT_SUPPORTED)
        }
        _ => Err(Status::INVALID_INFO_CLASS),
    }
}
