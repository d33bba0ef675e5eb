//! CLOSE: MS-SMB2 3.3.5.10.

use frevo_store::lease::Cause;
use frevo_wire::Status;
use frevo_wire::command::close::{self, CloseFlags};

use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::durable::record::{self, HeldRecord};
use crate::objects::open::{Open, OpenTarget};
use crate::objects::refusal::Outcome;
use crate::objects::shown;
use crate::objects::stable;

/// Closes an Open; returns the attributes of the file when asked.
/// Waits for its operations on all channels: after the answer nothing is read or written
/// through it any more.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = close::Request::parse(rq.message)?;
    let open = rq.open()?;
    if let OpenTarget::File(file) = &open.target {
        if planted!(LockOrder) {
            let _held = file.cell.lock();
            rq.session()?.open_count();
        }
        file.close_times(rq.server().ambient.now());
    }
    let response = if request.flags.contains(CloseFlags::POSTQUERY_ATTRIB) {
        attributes(rq, open)
    } else {
        close::Response::default()
    };
    let mut doomed = None;
    if let OpenTarget::File(file) = &open.target {
        let (deletes, is_doomed) = file.cell.lock().deletion_of(file.id);
        doomed = (deletes || is_doomed).then(|| (file, file.name()));
        // As on Windows (smbtorture's test lease.unlink), a close that deletes the file first
        // breaks the handle caching of other clients.
        if deletes && rq.contend(file, Cause::Delete).await.is_err() {
            // The wait for the break fails if the client is gone or has cancelled the request. The
            // Open is closed all the same.
            tracing::debug!(target: "frevo::lease", "a close did not wait for a break");
        }
    }
    // Another server may own the share since the wait. Its Open and its deletion are promised, so they stay as
    // they are: the client connects again, or the owner of the share deletes the file.
    rq.still_served()?;
    rq.session()?.take_open(open)?;
    let record = HeldRecord::of(open);
    for deletion in open.close_briefly(&rq.server().files) {
        // A handler that panicked is still counted in `under_way`, so the wait below may be long.
        // The deletion is finished before that wait.
        let _ = rq.server().finish_deletion(open, deletion).await;
    }
    open.under_way.end();
    if open.under_way.count() != 0 {
        open.under_way.give_up();
        open.under_way.drained().await;
    }
    // A deletion that a pause has kept from being made needs the record of its Open.
    rq.still_served()?;
    // The durable record is removed only when the removal of the file's name is stable, so that a
    // crash in between leaves no file without its record.
    let stable = match doomed {
        Some((file, name)) => stable::sync_removal(file, name).await,
        None => Ok(()),
    };
    // The Open is closed even if its record cannot be removed. A background task (the scavenger)
    // removes the record later.
    if record::gone(rq.server(), open).await.is_err() {
        rq.server().start_scavenger();
    }
    drop(record);
    // Deviation: in MS-FSA 2.1.5.5 a close does not report that the file could not be removed. Here
    // the Open is closed, but the status tells the client that the file still exists, as with smbd.
    open.removed()?;
    stable?;
    response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

/// Attributes that cannot be had are zero, and the flag says so.
fn attributes(rq: &Request<'_>, open: &Open) -> close::Response {
    let OpenTarget::File(file) = &open.target else { return close::Response::default() };
    let Ok(stat) = shown::stat(rq.shown, file) else { return close::Response::default() };
    close::Response {
        flags: CloseFlags::POSTQUERY_ATTRIB,
        creation_time: stat.created,
        last_access_time: stat.accessed,
        last_write_time: stat.written,
        change_time: stat.changed,
        allocation_size: stat.allocation,
        end_of_file: stat.end_of_file,
        file_attributes: stat.attributes,
    }
}
