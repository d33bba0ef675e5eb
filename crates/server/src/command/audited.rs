//! The events that handlers cause by requests.

use std::time::Duration;

use frevo_auth::Done;
use frevo_wire::Status;

use crate::audit::{Event, Kind, Source};
use crate::base::limits::AUDIT_VALUE_BYTES;
use crate::base::quoted::cut;
use crate::command::request::Request;
use crate::objects::audited;

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
    let ground = identity.as_ref().and_then(|identity| identity.administers_by.clone());
    let event = Event::new(Kind::Logon)
        .from(Source { session, peer: rq.connection.peer })
        .by(identity)
        .administering(ground.as_deref())
        .with("workstation", cut(&done.identity.workstation, AUDIT_VALUE_BYTES))
        .with("purpose", purpose)
        .with("mechanism", format!("{:?}", done.identity.mechanism()))
        .with("dialect", format!("{:?}", rq.dialect()))
        .with("sealed", sealed)
        .with("mic", done.has_mic);
    let source = rq.server().accounts().directory_of(&done.identity.user);
    audit.emit(match source {
        Some(source) => event.with("source", source),
        None => event,
    });
}

/// A logon that was refused; `user` and `domain` are the client's claim.
pub(crate) fn logon_refused(rq: &Request<'_>, refusal: &frevo_auth::Refusal) {
    audited::logon_refused(rq.server(), rq.connection.peer, refusal);
}

/// An answer to a logon that waits for `wait`; with `refused` it is a failure whatever
/// came out.
pub(crate) fn throttled(rq: &Request<'_>, user: &str, wait: Duration, refused: bool) {
    audited::throttled(rq.server(), rq.connection.peer, user, wait, refused);
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
