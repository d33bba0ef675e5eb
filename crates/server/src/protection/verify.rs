//! Verification of messages: MS-SMB2 3.3.5.2.4 (signatures), 3.3.5.2.5 (lengths) and
//! 3.3.5.2.9 (sessions).

use frevo_crypto::Sender;
use frevo_proto::Dialect;
use frevo_proto::limits::{BYTES_PER_CREDIT, MESSAGE_WITHOUT_PAYLOAD};
use frevo_proto::protection::receive_policy::{self, Demand, SessionFacts, SignatureRule};
use frevo_proto::protection::{Algorithm, Protection, signature};
use frevo_wire::{Header, HeaderFlags, Status};

use super::checked::Checked;
use super::circumstances::Keyring;
use crate::audit::{self, Event};
use crate::objects::channel::Channel;
use crate::objects::connection_info::ConnectionInfo;
use crate::objects::refusal::{Doom, Refusal};
use crate::objects::session::{Session, State};
use crate::objects::settings::Signing;

/// A message whose sender is to be proved.
pub(crate) struct Claim<'a> {
    /// The message. It is changed meanwhile and then restored.
    pub(crate) message: &'a mut [u8],
    /// Its header, with what it has inherited.
    pub(crate) header: &'a Header,
    /// The rule of its command.
    pub(crate) rule: SignatureRule,
    /// Unsealing has verified a sealed message.
    pub(crate) is_sealed: bool,
    /// The results for its frame, if they are known already.
    pub(crate) checked: Option<&'a Checked>,
    /// Its position in its compound.
    pub(crate) at: u8,
}

/// Verifies the signature of a message, MS-SMB2 3.3.5.2.4, or uses the result that is known already.
///
/// # Errors
/// The refusal of the request, or the end of the connection.
pub(crate) fn verify(keys: &Keyring<'_>, claim: Claim<'_>) -> Result<(), Refusal> {
    let Claim { message, header, rule, is_sealed, checked, at } = claim;
    let protection = match is_sealed {
        true => Protection::Sealed,
        false if header.flags.contains(HeaderFlags::SIGNED) => Protection::Signed,
        false => Protection::None,
    };
    let is_3_1_1 = keys.info.dialect() == Dialect::SMB_3_1_1;
    let transport_seals = keys.info.accepts_transport_security();
    let request = receive_policy::Request { rule, protection, is_3_1_1, transport_seals };
    let mut channel = None;
    let demand = request.demand(|| {
        channel = keys.channel(header.session_id);
        channel.as_deref().map(facts)
    });
    match demand {
        Demand::Nothing => return Ok(()),
        Demand::Refusal(status) => {
            if protection == Protection::None {
                tell_unsigned(keys.info, header);
            }
            return Err(status.into());
        }
        Demand::Disconnect => {
            return Err(Doom::Rule("TREE_CONNECT neither signed nor sealed").into());
        }
        Demand::Signature => {}
    }
    let known = checked.and_then(|checked| checked.signature(at, channel.as_ref()));
    let key = channel.as_deref().and_then(Channel::signing_key);
    let is_right = known.unwrap_or_else(|| {
        let algorithm = || Some(Algorithm::Signing(key?.algorithm()));
        keys.info.server.crypto_threads().measured(message.len(), algorithm, || {
            key.is_some_and(|key| signature::verify(message, key, Sender::Client))
        })
    });
    if is_right {
        return Ok(());
    }
    let status = Status::ACCESS_DENIED;
    report_altered(keys.info, header, status, "a signature does not match");
    Err(status.into())
}

/// Tells of an unsigned request in a session that demands signatures.
fn tell_unsigned(info: &ConnectionInfo, header: &Header) {
    let advice = match info.settings.signing {
        Signing::Required => "set signing = \"offered\" for a client that cannot sign",
        Signing::Offered => "the client itself demanded signatures when it logged on",
    };
    info.tell(|left_out| {
        tracing::warn!(target: "frevo::connection", peer = %info.peer, command = %header.command,
            left_out, "refused: the request is not signed; {advice}");
    });
}

/// Tells of a request in the clear in a session that demands encryption.
fn tell_unsealed(info: &ConnectionInfo, session: &Session) {
    info.tell(|left_out| {
        let user = session.identity();
        tracing::warn!(target: "frevo::connection", peer = %info.peer, left_out,
            user = %user.as_ref().map_or("", |user| &*user.user),
            "refused: the request is not encrypted; mount with encryption (Linux: seal), or set \
             encryption = \"offered\"");
    });
}

/// Fails for a message that is longer than its credits pay for, or than its command may need:
/// MS-SMB2 3.3.5.2.5.
///
/// # Errors
/// INVALID_PARAMETER
pub(crate) fn check_length(
    info: &ConnectionInfo,
    bytes: usize,
    header: &Header,
    carries_payload: bool,
) -> Result<(), Refusal> {
    if !info.is_negotiated() {
        return Ok(());
    }
    let paid = if info.supports_multi_credit() { header.credit_charge.max(1) } else { 1 };
    let paid = usize::from(paid - 1) * BYTES_PER_CREDIT as usize;
    let most =
        if carries_payload { paid + MESSAGE_WITHOUT_PAYLOAD } else { MESSAGE_WITHOUT_PAYLOAD };
    if bytes > most { Err(Status::INVALID_PARAMETER.into()) } else { Ok(()) }
}

/// Reports a message, or data of one, that was altered, and is answered with `status`.
pub(crate) fn report_altered(
    info: &ConnectionInfo,
    header: &Header,
    status: Status,
    reason: &'static str,
) {
    let peer = info.peer;
    info.tell(|left_out| {
        tracing::warn!(target: "frevo::connection", %peer, command = %header.command, left_out,
            "{reason}: the message was changed on its way, or the client is broken");
    });
    info.server.audit.emit_limited(peer.ip(), || {
        let event = Event::new(audit::Kind::Violation).status(status).peer(peer);
        event.with("reason", reason)
    });
}

/// Fails for a session that may not be used now, or not in the clear: MS-SMB2 3.3.5.2.9.
/// `when_expired` is true for a command that an expired session may send.
///
/// # Errors
/// The status of the specification.
pub(crate) fn check_session(
    info: &ConnectionInfo,
    session: &Session,
    when_expired: bool,
    sealed: bool,
) -> Result<(), Refusal> {
    session.expire_in_time(|| info.server.ambient.now());
    match session.state() {
        State::Valid => {}
        State::Expired if when_expired => {}
        State::Expired => return Err(Status::NETWORK_SESSION_EXPIRED.into()),
        State::InProgress | State::Closed => return Err(Status::USER_SESSION_DELETED.into()),
    }
    if sealed {
        session.note_sealed();
    }
    let seals = session.security().is_some_and(|security| security.encrypt_data);
    let is_sealed = sealed || info.accepts_transport_security();
    match receive_policy::refusal_by_session(is_sealed, seals, info.is_smb3()) {
        None => Ok(()),
        Some(status) => {
            tell_unsealed(info, session);
            Err(status.into())
        }
    }
}

/// The facts of a channel that decide on the signatures of its requests.
fn facts(channel: &Channel) -> SessionFacts {
    let security = channel.session.security();
    SessionFacts {
        is_anonymous: channel.session.is_anonymous(),
        must_sign: security.is_some_and(|security| security.signing_required),
        has_signing_key: channel.signing_key().is_some(),
    }
}
