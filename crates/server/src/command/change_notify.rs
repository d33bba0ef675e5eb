//! CHANGE_NOTIFY: MS-SMB2 3.3.5.19.
//!
//! A request is checked and then waits until its directory is closed or it is
//! cancelled. Changes are not reported yet: clients that list a directory
//! again by themselves (all do) see them, only later.

use frevo_wire::Status;
use frevo_wire::command::change_notify;
use frevo_wire::dtyp::AccessMask;

use crate::limits::NOTIFIES_PER_SESSION;
use crate::open::OpenTarget;
use crate::refusal::Outcome;
use crate::request::Request;
use crate::response::Response;

/// Waits for changes in a directory.
pub async fn handle(rq: &Request<'_>, _out: &mut Response) -> Outcome {
    let request = change_notify::Request::parse(rq.message)?;
    if request.output_buffer_length > rq.connection.negotiated()?.terms.max_transact_size {
        return Err(Status::INVALID_PARAMETER.into());
    }
    rq.check_charge(request.output_buffer_length)?;
    let open = rq.open()?;
    match &open.target {
        OpenTarget::File(file) if file.is_directory => {}
        _ => return Err(Status::INVALID_PARAMETER.into()),
    }
    // FILE_LIST_DIRECTORY. What the client asked for does not count, what it
    // was granted does.
    open.require(AccessMask::READ_DATA)?;
    let notifies = &rq.session()?.notifies;
    let _slot = notifies.take(NOTIFIES_PER_SESSION).ok_or(Status::INSUFFICIENT_RESOURCES)?;
    open.closed().await;
    Err(Status::NOTIFY_CLEANUP.into())
}
