//! Binding of further channels to a session: MS-SMB2 3.3.5.5.

use std::sync::Arc;

use frevo_auth::Done;
use frevo_crypto::{Sender, SigningAlgorithm};
use frevo_wire::{HeaderFlags, Status};

use super::charge_connection;
use crate::access::identity::Identity;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::connection::{Authentication, Connection};
use crate::objects::channel::Channel;
use crate::objects::refusal::Refusal;
use crate::objects::session::{Session, State};

/// The session that a request binds to, MS-SMB2 3.3.5.5: all checks come before any change, so that a failed attempt to bind to a
/// session leaves no trace on it.
pub(super) fn check(
    rq: &Request<'_>,
    connection: &Connection,
    out: &mut Response,
) -> Result<Arc<Session>, Refusal> {
    let negotiated = rq.connection.negotiated()?;
    let found = rq.server().session(rq.header.session_id);
    let is_proven = match found.as_ref().and_then(|session| Some((session, session.security()?))) {
        Some((session, security)) => {
            may_mix(security.signing_key.algorithm(), negotiated.terms.signing_algorithm)?;
            let mut message = rq.message.to_vec();
            let is_proven = rq.header.flags.contains(HeaderFlags::SIGNED)
                && frevo_proto::protection::signature::verify(
                    &mut message,
                    &security.signing_key,
                    Sender::Client,
                );
            if is_proven {
                out.set_binding(Arc::clone(session));
            }
            is_proven
        }
        None => false,
    };
    if !rq.connection.is_smb3() {
        return Err(Status::REQUEST_NOT_ACCEPTED.into());
    }
    let session = found.ok_or(Status::USER_SESSION_DELETED)?;
    if session.dialect != negotiated.terms.dialect || !rq.header.flags.contains(HeaderFlags::SIGNED)
    {
        return Err(Status::INVALID_PARAMETER.into());
    }
    match session.state() {
        State::Valid => {}
        State::InProgress => return Err(Status::REQUEST_NOT_ACCEPTED.into()),
        State::Expired => return Err(Status::NETWORK_SESSION_EXPIRED.into()),
        State::Closed => return Err(Status::USER_SESSION_DELETED.into()),
    }
    if connection.members.channel(session.id).is_some() {
        return Err(Status::REQUEST_NOT_ACCEPTED.into());
    }
    if session.cipher != negotiated.terms.cipher {
        return Err(Status::INVALID_PARAMETER.into());
    }
    if session.client_guid != negotiated.client_guid {
        return Err(Status::USER_SESSION_DELETED.into());
    }
    if !is_proven {
        return Err(Status::ACCESS_DENIED.into());
    }
    // MS-SMB2 3.3.5.5: the server tells the end of a session over any of its channels, so either all of
    // them take notifications, or none does.
    if session.supports_notifications() != negotiated.supports_notifications() {
        return Err(Status::INVALID_PARAMETER.into());
    }
    Ok(session)
}

/// Fails when a connection with one signing algorithm must not be bound to a session whose key
/// is for another.
///
/// Windows: where AES-GMAC is one of them they must be the same; before the
/// dialects are compared.
fn may_mix(session: SigningAlgorithm, connection: SigningAlgorithm) -> Result<(), Status> {
    match (session, connection) {
        _ if session == connection => Ok(()),
        (SigningAlgorithm::AesGmac, _) => Err(Status::REQUEST_OUT_OF_SEQUENCE),
        (_, SigningAlgorithm::AesGmac) => Err(Status::NOT_SUPPORTED),
        _ => Ok(()),
    }
}

/// Makes the connection a channel of the session.
pub(super) fn bind(
    rq: &Request<'_>,
    connection: &Connection,
    authentication: &Authentication,
    done: &Done,
    identity: &Identity,
) -> Result<(), Status> {
    let session = &authentication.session;
    let owner = session.identity().ok_or(Status::USER_SESSION_DELETED)?;
    // MS-SMB2 3.3.5.5: a channel can be bound only by the session's own user, and never to an
    // anonymous session.
    if !owner.is_same_user(identity) || owner.is_nobody() {
        return Err(Status::NOT_SUPPORTED);
    }
    if session.state() != State::Valid {
        // The session ended or expired after this binding had begun, so it gets no further channel.
        return Err(Status::USER_SESSION_DELETED);
    }
    if connection.members.channel(session.id).is_some() {
        // Another exchange on this connection has bound the channel meanwhile, so this exchange
        // fails.
        return Err(Status::REQUEST_NOT_ACCEPTED);
    }
    let terms = &rq.connection.negotiated()?.terms;
    let keys = terms
        .session_keys(&done.session_key, authentication.preauth.hash())
        .map_err(|_| Status::LOGON_FAILURE)?;
    charge_connection(rq, connection, session.holder())?;
    session.add_channel(rq.connection.id, rq.connection.handle.clone())?;
    connection.move_to(session.holder());
    let signing_key = Some(terms.signing_key(&keys));
    connection.members.add_channel(Channel::new(session, signing_key, rq.connection));
    Ok(())
}

/// A binding fails without harm to its session: the error is reported here, for
/// a handler's error would abandon the session.
pub(super) fn refuse(out: &mut Response, status: Status) -> Status {
    out.clear_body();
    out.writer().u16(9).u16(0).u32(0).u8(0);
    status
}
