//! QUERY_DIRECTORY: MS-SMB2 3.3.5.18, with the object store's part of MS-FSA
//! 2.1.5.6.3.

pub(crate) mod apple;
mod enumeration;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use frevo_store::limits::COMPONENT_UNITS;
use frevo_store::name::{Name, Rules};
use frevo_store::security::Token;
use frevo_wire::Status;
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::directory::fixed_size;
use frevo_wire::fscc::wildcard::has_wildcard;
use frevo_wire::fscc::{DirectoryWriter, FileInfoClass, Pattern};

use self::enumeration::Filled;
use super::query_info::Output;
use crate::base::host;
use crate::base::limits::LISTING_BYTES_SHORT;
use crate::command::query_directory::apple::Filling;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::command::spelling::Spelling;
use crate::objects::enumeration::{Enumeration, Scan};
use crate::objects::ledger::{Charge, Holder, Kind};
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::objects::refusal::Outcome;

/// Entries looked at before other requests of the core get their turn; an entry that
/// takes long to compare counts more than once.
const SLICE: usize = 2048;

/// The facts of a request that lists a directory.
struct Asked<'a> {
    /// The body.
    request: query_directory::Request<'a>,
    /// The spelling of the pattern.
    spelling: Spelling,
    /// Changes of entries for macOS.
    filling: Option<&'a Filling>,
    /// The user that sees only readable entries; all, without one.
    viewer: Option<&'a Token>,
    /// The account, which is charged.
    holder: &'a Arc<Holder>,
    /// Tells that nobody waits for the answer any more.
    is_left: &'a dyn Fn() -> bool,
}

/// Bytes reserved for entries at first; more is allocated as they come.
const RESERVED: usize = 16 * 1024;

/// Answers QUERY_DIRECTORY: lists a directory.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = query_directory::Request::parse(rq.message)?;
    let open = rq.open()?;
    let file = directory(open)?;
    let length = request.output_buffer_length;
    if length > rq.connection.negotiated()?.terms.max_transact_size {
        return Err(Status::INVALID_PARAMETER.into());
    }
    rq.check_charge(length)?;
    open.require(AccessMask::READ_DATA)?;
    let mut output = Output::begin(out.bytes_mut(), length, rq.room);
    let class = FileInfoClass(request.file_information_class);
    let filling = Filling::of(open, file, class);
    let viewer = open.tree().viewer();
    let holder = rq.session()?.holder();
    let (filling, viewer) = (filling.as_ref(), viewer.as_deref());
    let is_left = &|| rq.connection.is_left();
    let spelling = Spelling::of_open(open, file);
    let asked = Asked { request, spelling, filling, viewer, holder, is_left };
    let listed = list(file, &asked, &mut output).await;
    let (server, own) = (rq.server(), holder.with_descriptors());
    let admits = || server.descriptors.admit_open(own, server.ledger.with_descriptors());
    if !file.enumeration.lock().as_mut().is_none_or(|e| e.keeps_within(admits)) {
        return Err(Status::INSUFFICIENT_RESOURCES.into());
    }
    Ok(listed.map(|()| output.finish())?)
}

/// The directory that is listed. Windows: a pipe or a file is refused like
/// this whatever the flags say.
const fn directory(open: &Open) -> Result<&FileOpen, Status> {
    match &open.target {
        OpenTarget::File(file) if file.is_directory => Ok(file),
        _ => Err(Status::INVALID_PARAMETER),
    }
}

/// Fills `output` with entries. The state for the next request is charged to the account, and the
/// answer while it grows: an account with much that waits to be sent gets short answers.
async fn list(file: &FileOpen, asked: &Asked<'_>, output: &mut Output<'_>) -> Result<(), Status> {
    let Asked { request, spelling, filling, viewer, holder, is_left } = asked;
    let (filling, viewer) = (*filling, *viewer);
    let class = FileInfoClass(request.file_information_class);
    let fixed = match class {
        FileInfoClass::POSIX if !file.posix => None,
        _ => fixed_size(class),
    };
    let fixed = fixed.ok_or(Status::INVALID_INFO_CLASS)?;
    output.require(fixed)?;
    let is_new = file.enumeration.lock().as_ref().is_none_or(|e| e.scan.is_none());
    let is_first = start(file, holder, request, *spelling)?;
    let single = request.flags.contains(QueryDirectoryFlags::RETURN_SINGLE_ENTRY);
    let room = match holder.has_much_waiting() {
        true => output.room.min(LISTING_BYTES_SHORT),
        false => output.room,
    };
    // `charge` stays None if the listing is complete after its first slice of time.
    let mut charge = None;
    output.bytes().reserve(room.min(RESERVED));
    let mut writer =
        DirectoryWriter::new(output.bytes(), class, room).ok_or(Status::INVALID_INFO_CLASS)?;
    let begins = file.enumeration.lock().as_ref().is_some_and(Enumeration::is_at_start);
    let filled = loop {
        let filled = {
            let mut place = file.enumeration.lock();
            let scan =
                place.as_mut().and_then(|e| e.scan.as_deref_mut()).ok_or(Status::NO_MORE_FILES)?;
            enumeration::fill(scan, file, filling, &mut writer, single, viewer, SLICE)
        };
        match filled {
            Ok(Filled::Slice) => {
                grow(&mut charge, holder, writer.len())?;
                if writer.len() >= LISTING_BYTES_SHORT && holder.has_much_waiting() {
                    break Filled::Full;
                }
                tokio::task::yield_now().await;
                if is_left() {
                    return Err(Status::CANCELLED);
                }
            }
            Ok(filled) => break filled,
            // The directory is too large to be listed on a core thread, so a blocking thread begins
            // the listing again.
            Err(fault) if begins && host::has_given_up() => {
                take_back(file, is_new);
                return Err(fault.status());
            }
            // The buffer has entries already. They are returned, and the next request reports the
            // fault.
            Err(_) if !writer.is_empty() => break Filled::Full,
            Err(fault) => return Err(fault.status()),
        }
    };
    match filled {
        _ if !writer.is_empty() => Ok(()),
        Filled::Full => {
            cut_first(file, class, filling, output);
            Ok(())
        }
        _ if is_first => Err(Status::NO_SUCH_FILE),
        _ => Err(Status::NO_MORE_FILES),
    }
}

/// Charges an answer that has `bytes` so far.
fn grow(charge: &mut Option<Charge>, holder: &Arc<Holder>, bytes: usize) -> Result<(), Status> {
    match charge {
        Some(charge) => charge.resize(bytes),
        none => {
            *none = Some(holder.charge(Kind::Reply, bytes)?);
            Ok(())
        }
    }
}

/// Takes back the beginning of a scan: the request is carried out again. `is_new` is true if the request
/// made the scan.
fn take_back(file: &FileOpen, is_new: bool) {
    let mut place = file.enumeration.lock();
    let Some(place) = place.as_mut() else { return };
    if is_new {
        place.scan = None;
    } else if let Some(scan) = &mut place.scan {
        scan.restart();
    }
}

/// MS-FSA 2.1.5.6.3: the first entry is answered in part when its name does
/// not fit (and stays the next one, for a client that comes with more room).
fn cut_first(
    file: &FileOpen,
    class: FileInfoClass,
    filling: Option<&Filling>,
    output: &mut Output<'_>,
) {
    let place = file.enumeration.lock();
    let scan = place.as_ref().and_then(|e| e.scan.as_deref());
    let shown = scan.map(Scan::shown).unwrap_or_default();
    let held = scan.and_then(|scan| enumeration::held(scan, file, filling, &shown));
    if let (Some(entry), Some(mut writer)) =
        (held, DirectoryWriter::new(output.bytes(), class, usize::MAX))
    {
        // A single entry is longer than the client's buffer. It is written whole, and `Output` cuts
        // it to the client's length.
        let _ = writer.push(&entry);
    }
}

/// Begins the scan, or begins it again, as the flags say; whether an empty
/// answer is the first. INDEX_SPECIFIED is ignored, as Windows does.
fn start(
    file: &FileOpen,
    holder: &Arc<Holder>,
    request: &query_directory::Request<'_>,
    spelling: Spelling,
) -> Result<bool, Status> {
    let reopen = request.flags.contains(QueryDirectoryFlags::REOPEN);
    let restart = reopen || request.flags.contains(QueryDirectoryFlags::RESTART_SCANS);
    let mut place = file.enumeration.lock();
    let place = place.get_or_insert_default();
    let text = || match request.file_name.to_string() {
        Ok(text) => Ok(spelling.spell(text)),
        Err(_) => Err(Status::OBJECT_NAME_INVALID),
    };
    match &mut place.scan {
        Some(scan) if restart => {
            let text = text()?;
            // MS-FSA: a restart without a pattern keeps the pattern of the scan.
            if text.is_empty() {
                scan.restart();
            } else {
                scan.search(pattern(&text, file.posix)?);
            }
            Ok(reopen)
        }
        Some(_) => Ok(false),
        none => {
            let text = text()?;
            let pattern = pattern(if text.is_empty() { "*" } else { &text }, file.posix)?;
            *none = Some(Box::new(Scan::new(pattern, file.posix, holder)?));
            Ok(true)
        }
    }
}

/// A search pattern: one component, in which wildcards may stand, or a dot name.
fn pattern(text: &str, posix: bool) -> Result<Pattern, Status> {
    // MS-FSA 2.1.5.6.3: a pattern must not contain a separator, but Windows ignores separators at
    // the end of a plain name.
    let text = match text.trim_end_matches('\\') {
        "" => text,
        _ if posix => text,
        trimmed if has_wildcard(trimmed) => text,
        trimmed => trimmed,
    };
    let separates = |c| match posix {
        true => matches!(c, '/' | '\0'),
        false => matches!(c, '\\' | '/' | ':' | '|') || c < ' ',
    };
    // A name has at most COMPONENT_UNITS characters, so a longer pattern matches nothing, and
    // testing it would take long.
    let too_long = text.encode_utf16().nth(COMPONENT_UNITS).is_some();
    if too_long || text.contains(separates) {
        return Err(Status::OBJECT_NAME_INVALID);
    }
    if !matches!(text, "." | "..") && !has_wildcard(text) {
        let rules = if posix { Rules::Posix } else { Rules::Windows };
        Name::parse(text, rules).map_err(|_| Status::OBJECT_NAME_INVALID)?;
    }
    Ok(Pattern::new(text, !posix))
}
