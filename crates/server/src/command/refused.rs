//! The events of requests that were refused: a CREATE, a change, a limit that was met.

use std::sync::Arc;

use frevo_wire::Status;
use frevo_wire::command::create;

use super::{Refusals, ioctl, row, set_info};
use crate::audit::{Event, Kind, Operations};
use crate::command::request::Request;
use crate::objects::audited::{self, access, limit, path_of};
use crate::objects::open::Open;
use crate::objects::refusal::Outcome;

/// Passes an outcome on, and records a CREATE or a change that was refused, and a limit that was
/// met. Only a failure costs more than a comparison.
pub(crate) fn outcome(rq: &Request<'_>, outcome: Outcome) -> Outcome {
    if let Err(refusal) = &outcome
        && let Some(status) = refusal.status()
        && rq.server().audit.get().is_some()
    {
        if matches!(status, Status::INSUFFICIENT_RESOURCES | Status::TOO_MANY_OPENED_FILES) {
            limit(rq.server(), rq.connection.peer, &format!("{:?}", rq.header.command));
        }
        let refusals = row(rq.header.command).map_or(Refusals::Unrecorded, |row| row.refusals);
        record(rq, refusals, status);
    }
    outcome
}

/// Records a refusal as the row of its command says.
fn record(rq: &Request<'_>, refusals: Refusals, status: Status) {
    let is_denial = is_denial(status);
    match refusals {
        Refusals::Unrecorded | Refusals::ByHandler => {}
        Refusals::Open => {
            if is_denial {
                open_refused(rq, status);
            }
        }
        Refusals::Write => {
            if let Some(open) = audited_open(rq, status).filter(|_| is_denial) {
                audited::write_refused(open, status);
            }
        }
        Refusals::SetInfo => {
            if let Some(open) = audited_open(rq, status) {
                set_info::record_refused(rq, open, status);
            }
        }
        Refusals::Ioctl => {
            if let Some(open) = audited_open(rq, status) {
                ioctl::record_refused(rq, open, is_denial, status);
            }
        }
    }
}

/// True for a status that says that the client may not do what it asked for.
const fn is_denial(status: Status) -> bool {
    matches!(
        status,
        Status::ACCESS_DENIED
            | Status::PRIVILEGE_NOT_HELD
            | Status::CANNOT_DELETE
            | Status::MEDIA_WRITE_PROTECTED
    )
}

/// The Open whose client asked for a change and did not get it, if its share is audited and `status`
/// is a refusal.
fn audited_open<'a>(rq: &'a Request<'_>, status: Status) -> Option<&'a Arc<Open>> {
    // The client itself cancelled the request, or will send it to another server, so it is not a
    // refusal.
    if matches!(status, Status::CANCELLED | Status::SERVER_UNAVAILABLE) {
        return None;
    }
    rq.open().ok().filter(|open| open.tree().share.audit.is_some())
}

fn open_refused(rq: &Request<'_>, status: Status) {
    let (Ok(tree), Ok(request)) = (rq.tree(), create::Request::parse(rq.message)) else { return };
    tree.record(Operations::OPEN, || {
        let name = request.name.to_string().unwrap_or_default();
        let event = Event::new(Kind::Open)
            .status(status)
            .with("path", path_of(&name))
            .with("access", access(request.desired_access));
        let is_read_only = tree.share.read_only && status == Status::ACCESS_DENIED;
        if is_read_only {
            event.with("reason", "the share is read-only for this user")
        } else {
            event
        }
    });
}
