//! The events of requests that were refused: a CREATE, a change, a limit that was met.

use frevo_wire::command::create;
use frevo_wire::{Command, Status};

use super::{ioctl, set_info};
use crate::audit::{Event, Kind, Operations};
use crate::command::request::Request;
use crate::objects::audited::{self, access, limit, path_of};
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
        match rq.header.command {
            Command::CREATE if is_denial(status) => open_refused(rq, status),
            Command::WRITE | Command::SET_INFO | Command::IOCTL => change_refused(rq, status),
            _ => {}
        }
    }
    outcome
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

/// Records a change that an Open's client asked for and did not get.
fn change_refused(rq: &Request<'_>, status: Status) {
    // The client itself cancelled the request, or will send it to another server, so it is not a
    // refusal.
    if matches!(status, Status::CANCELLED | Status::SERVER_UNAVAILABLE) {
        return;
    }
    let Ok(open) = rq.open() else { return };
    if open.tree().share.audit.is_none() {
        return;
    }
    match rq.header.command {
        Command::SET_INFO => set_info::record_refused(rq, open, status),
        Command::IOCTL => ioctl::record_refused(rq, open, is_denial(status), status),
        Command::WRITE if is_denial(status) => audited::write_refused(open, status),
        _ => {}
    }
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
