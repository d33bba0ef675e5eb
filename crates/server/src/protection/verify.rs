//! Verification of messages: MS-SMB2 3.3.5.2.4 (signatures), 3.3.5.2.5 (lengths) and
//! 3.3.5.2.9 (sessions).

use frevo_crypto::Sender;
use frevo_proto::Dialect;
use frevo_proto::limits::{BYTES_PER_CREDIT, MESSAGE_WITHOUT_PAYLOAD};
use frevo_proto::protection::receive_policy::{self, Demand, SessionFacts};
use frevo_proto::protection::{Algorithm, Protection, signature};
use frevo_wire::{Header, HeaderFlags, Status};

use super::checked::Checked;
use crate::audit::{self, Event};
use crate::command::Row;
use crate::connection::{Channel, Connection};
use crate::objects::refusal::{Doom, Refusal};
use crate::objects::session::{Session, State};

impl Connection {
    /// MS-SMB2 3.3.5.2.5: the message is no longer than its credits pay for, and no longer
    /// than its command may need.
    pub(crate) fn check_length(
        &self,
        message: &[u8],
        header: &Header,
        row: Row,
    ) -> Result<(), Refusal> {
        if !self.info.is_negotiated() {
            return Ok(());
        }
        let paid = if self.info.supports_multi_credit() { header.credit_charge.max(1) } else { 1 };
        let paid = usize::from(paid - 1) * BYTES_PER_CREDIT as usize;
        let most = if row.carries_payload {
            paid + MESSAGE_WITHOUT_PAYLOAD
        } else {
            MESSAGE_WITHOUT_PAYLOAD
        };
        if message.len() > most { Err(Status::INVALID_PARAMETER.into()) } else { Ok(()) }
    }

    /// Verifies the signature of a message, MS-SMB2 3.3.5.2.4, or uses the result that is known
    /// already, with the message's position in its compound. Unsealing has verified a sealed message.
    pub(crate) fn verify(
        &self,
        message: &mut [u8],
        header: &Header,
        row: Row,
        sealed: bool,
        verified: Option<(&Checked, u8)>,
    ) -> Result<(), Refusal> {
        let protection = match sealed {
            true => Protection::Sealed,
            false if header.flags.contains(HeaderFlags::SIGNED) => Protection::Signed,
            false => Protection::None,
        };
        let is_3_1_1 = self.info.dialect() == Dialect::SMB_3_1_1;
        let request = receive_policy::Request { rule: row.signing, protection, is_3_1_1 };
        let mut channel = None;
        let demand = request.demand(|| {
            channel = self.members.channel(header.session_id);
            channel.as_deref().map(facts)
        });
        match demand {
            Demand::Nothing => return Ok(()),
            Demand::Refusal(status) => return Err(status.into()),
            Demand::Disconnect => {
                return Err(Doom::Rule("TREE_CONNECT neither signed nor sealed").into());
            }
            Demand::Signature => {}
        }
        let verified = verified.and_then(|(all, at)| all.signature(at, channel.as_ref()));
        let key = channel.as_deref().and_then(Channel::signing_key);
        let is_right = verified.unwrap_or_else(|| {
            let algorithm = || Some(Algorithm::Signing(key?.algorithm()));
            self.info.server.crypto_threads().measured(message.len(), algorithm, || {
                key.is_some_and(|key| signature::verify(message, key, Sender::Client))
            })
        });
        if is_right {
            return Ok(());
        }
        let status = Status::ACCESS_DENIED;
        self.report_altered(header, status, "a signature does not match");
        Err(status.into())
    }

    /// Reports a message, or data of one, that was altered, and is answered with `status`.
    pub(crate) fn report_altered(&self, header: &Header, status: Status, reason: &'static str) {
        let peer = self.info.peer;
        self.info.tell(|left_out| {
            tracing::warn!(target: "frevo::connection", %peer, command = %header.command, left_out,
                "{reason}: the message was changed on its way, or the client is broken");
        });
        self.info.server.audit.emit_limited(peer.ip(), || {
            let event = Event::new(audit::Kind::Violation).status(status).peer(peer);
            event.with("reason", reason)
        });
    }

    /// MS-SMB2 3.3.5.2.9.
    pub(crate) fn check_session(
        &self,
        session: &Session,
        row: Row,
        sealed: bool,
    ) -> Result<(), Refusal> {
        session.expire_in_time(|| self.info.server.ambient.now());
        match session.state() {
            State::Valid => {}
            State::Expired if row.when_expired => {}
            State::Expired => return Err(Status::NETWORK_SESSION_EXPIRED.into()),
            State::InProgress | State::Closed => return Err(Status::USER_SESSION_DELETED.into()),
        }
        let seals = session.security().is_some_and(|s| s.encrypt_data);
        match receive_policy::refusal_by_session(sealed, seals, self.info.is_smb3()) {
            None => Ok(()),
            Some(status) => Err(status.into()),
        }
    }
}

/// The facts of a channel that decide on the signatures of its requests.
fn facts(channel: &Channel) -> SessionFacts {
    SessionFacts {
        is_anonymous: channel.session.is_anonymous(),
        must_sign: channel.session.security().is_some_and(|s| s.signing_required),
        has_signing_key: channel.signing_key().is_some(),
    }
}
