//! The events that handlers cause by requests.

use std::sync::Arc;
use std::time::Duration;

use frevo_auth::Done;
use frevo_wire::Status;
use frevo_wire::command::create;

use crate::access::identity::Identity;
use crate::audit::{Event, Kind, Operations, Source};
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::cut;
use crate::command::request::Request;
use crate::objects::audited::{access, limit, path_of};
use crate::objects::refusal::Outcome;

impl Request<'_> {
    /// Where the request comes from.
    pub(crate) fn source(&self) -> Source {
        let session = self.session.as_ref().map_or(self.header.session_id, |session| session.id);
        Source { session, peer: self.connection.peer }
    }
}

/// A logon that succeeded.
pub(crate) fn logged_on(
    rq: &Request<'_>,
    session: u64,
    done: &Done,
    purpose: &'static str,
    sealed: bool,
) {
    let Some(audit) = rq.server().audit.get() else { return };
    let identity = rq.server().session(session).and_then(|session| session.identity());
    let event = Event::new(Kind::Logon)
        .from(Source { session, peer: rq.connection.peer })
        .by(identity)
        .with("workstation", cut(&done.identity.workstation, AUDIT_VALUE_BYTES))
        .with("purpose", purpose)
        .with("mechanism", format!("{:?}", done.identity.mechanism()))
        .with("dialect", format!("{:?}", rq.dialect()))
        .with("sealed", sealed)
        .with("mic", done.has_mic);
    audit.emit(event);
}

/// A logon that was refused; `user` and `domain` are the client's claim.
pub(crate) fn logon_refused(rq: &Request<'_>, refusal: &frevo_auth::Refusal) {
    rq.server().activity.count_failed_logon();
    let peer = rq.connection.peer;
    rq.server().audit.emit_limited(peer.ip(), || {
        Event::new(Kind::Logon)
            .status(refusal.status())
            .peer(peer)
            .with("user", cut(&refusal.user, AUDIT_VALUE_BYTES))
            .with("domain", cut(&refusal.domain, AUDIT_VALUE_BYTES))
            .with("reason", refusal.reason.to_string())
    });
}

/// A change of the user's own password, or the refusal of one.
pub(crate) fn password_changed(rq: &Request<'_>, identity: &Identity, status: Status) {
    let source = rq.source();
    rq.server().audit.emit_limited(source.peer.ip(), || {
        Event::new(Kind::Password).status(status).from(source).by(Some(Arc::new(identity.clone())))
    });
}

/// An answer to a logon that waits for `wait`; with `refused` it is a failure whatever
/// came out.
pub(crate) fn throttled(rq: &Request<'_>, user: &str, wait: Duration, refused: bool) {
    let peer = rq.connection.peer;
    rq.server().audit.emit_limited(peer.ip(), || {
        let status = if refused { Status::LOGON_FAILURE } else { Status::SUCCESS };
        Event::new(Kind::Throttle)
            .status(status)
            .peer(peer)
            .with("user", cut(user, AUDIT_VALUE_BYTES))
            .with("milliseconds", u64::try_from(wait.as_millis()).unwrap_or(u64::MAX))
    });
}

/// A session that was not connected to the share `name`.
pub(crate) fn connect_refused(rq: &Request<'_>, name: &str, status: Status, reason: &str) {
    let peer = rq.connection.peer;
    rq.server().audit.emit_limited(peer.ip(), || {
        let identity = rq.session.as_ref().and_then(|session| session.identity());
        Event::new(Kind::Connect)
            .status(status)
            .from(rq.source())
            .by(identity)
            .with("share", cut(name, AUDIT_VALUE_BYTES))
            .with("reason", reason)
    });
}

/// Passes an outcome on, and records a CREATE that was refused and a limit that was met.
/// Only a failure costs more than a comparison.
pub(crate) fn outcome(rq: &Request<'_>, outcome: Outcome) -> Outcome {
    if let Err(refusal) = &outcome
        && let Some(status) = refusal.status()
        && rq.server().audit.get().is_some()
    {
        match status {
            Status::INSUFFICIENT_RESOURCES | Status::TOO_MANY_OPENED_FILES => {
                limit(rq.server(), rq.connection.peer, &format!("{:?}", rq.header.command));
            }
            Status::ACCESS_DENIED
            | Status::PRIVILEGE_NOT_HELD
            | Status::CANNOT_DELETE
            | Status::MEDIA_WRITE_PROTECTED => open_refused(rq, status),
            _ => {}
        }
    }
    outcome
}

fn open_refused(rq: &Request<'_>, status: Status) {
    if rq.header.command != frevo_wire::Command::CREATE {
        return;
    }
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
