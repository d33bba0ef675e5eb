//! The events that handlers cause by requests.

use std::sync::Arc;
use std::time::Duration;

use frevo_auth::Done;
use frevo_wire::Status;

use crate::access::identity::Identity;
use crate::audit::{Event, Kind, Source};
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::cut;
use crate::command::request::Request;

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
