//! Verification of messages: MS-SMB2 3.3.5.2.4 (signatures), 3.3.5.2.5 (lengths) and
//! 3.3.5.2.9 (sessions).

use frevo_crypto::Sender;
use frevo_proto::Dialect;
use frevo_proto::limits::{BYTES_PER_CREDIT, MESSAGE_WITHOUT_PAYLOAD};
use frevo_wire::{Header, HeaderFlags, Status};

use super::Connection;
use super::checked::Checked;
use crate::audit::{self, Event};
use crate::base::pools::crypto_threads::Algorithm;
use crate::command::{Row, Signing};
use crate::objects::refusal::{Doom, Refusal};
use crate::objects::session::{Session, State};

impl Connection {
    /// MS-SMB2 3.3.5.2.5: the message is no longer than its credits pay for, and no longer
    /// than its command may need.
    pub(super) fn check_length(
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
    pub(super) fn verify(
        &self,
        message: &mut [u8],
        header: &Header,
        row: Row,
        sealed: bool,
        verified: Option<(&Checked, u8)>,
    ) -> Result<(), Refusal> {
        if sealed {
            return Ok(());
        }
        let channel = self.members.channel(header.session_id);
        if !header.flags.contains(HeaderFlags::SIGNED) {
            if row.signing == Signing::Demanded
                && self.info.dialect() == Dialect::SMB_3_1_1
                && channel.as_ref().is_some_and(|channel| !channel.session.is_anonymous())
            {
                // MS-SMB2 3.3.5.7: once there is a session, before all other answers.
                return Err(Doom::Rule("TREE_CONNECT neither signed nor sealed").into());
            }
            return self.check_unsigned(header);
        }
        let key = match (row.signing, &channel) {
            (Signing::Never, _) => return Err(Status::INVALID_PARAMETER.into()),
            // Binding: the handler verifies with the session's own key.
            (Signing::ByHandler, None) => return Ok(()),
            (_, None) => return Err(Status::USER_SESSION_DELETED.into()),
            (signing, Some(channel)) => match channel.signing_key() {
                Some(key) => key,
                // No key exists before authentication has ended.
                None if signing == Signing::ByHandler => return Ok(()),
                None => return Err(Status::NOT_SUPPORTED.into()),
            },
        };
        let verified = verified.and_then(|(all, at)| all.signature(at, channel.as_ref()));
        let is_right = verified.unwrap_or_else(|| {
            let algorithm = || Some(Algorithm::Signing(key.algorithm()));
            self.info.server.crypto_threads().measured(message.len(), algorithm, || {
                frevo_proto::protection::signature::verify(message, key, Sender::Client)
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
    pub(super) fn report_altered(&self, header: &Header, status: Status, reason: &'static str) {
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

    /// An unsigned message where one must be signed is refused.
    ///
    /// Windows: MS-SMB2 3.3.5.2.4 looks for the session among all; there the
    /// connection's own count, and any other is not there (3.3.5.2.9).
    fn check_unsigned(&self, header: &Header) -> Result<(), Refusal> {
        let channel = self.members.channel(header.session_id);
        let security = channel.as_ref().and_then(|c| c.session.security());
        if security.is_some_and(|s| s.signing_required) {
            return Err(Status::ACCESS_DENIED.into());
        }
        Ok(())
    }

    /// MS-SMB2 3.3.5.2.9.
    pub(super) fn check_session(
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
        let encrypt = session.security().is_some_and(|s| s.encrypt_data);
        if encrypt && !sealed && self.info.is_smb3() {
            return Err(Status::ACCESS_DENIED.into());
        }
        Ok(())
    }
}
