//! The initiator's end of the AP exchange: RFC 4120 section 3.2 and RFC 4121.

use super::asn1::{EncryptedData, Typed};
use super::gss::{self, Context, ContextChecksum, ContextFlags};
use super::message::{ApRep, EncApRepPart, ErrorCode, KrbError};
use super::proof::Proof;
use super::{EncryptionType, Fault, KeyUsage, ServiceTicket};
use alloc::vec::Vec;
use core::fmt;
use frevo_wire::dtyp::FileTime;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes from a cryptographic random source, for one logon only.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct InitiatorEntropy {
    /// The initiator's subkey; its type needs the first 16 or 32 bytes.
    pub subkey: [u8; 32],
    /// The confounders of the authenticator, and of the one that is sent with the server's time.
    pub confounders: [[u8; 16]; 2],
    /// The first sequence number.
    pub sequence: [u8; 4],
}

impl fmt::Debug for InitiatorEntropy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("InitiatorEntropy(..)")
    }
}

/// An AP-REQ that has been sent.
#[derive(Debug)]
pub(crate) struct Sent {
    proof: Proof,
    is_dce: bool,
}

/// The form of an AP-REQ.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Form {
    /// True for the one after [`Answer::Skewed`].
    pub(crate) is_second: bool,
    /// True for the three messages of DCE RPC, which have no frames (MS-KILE 3.4.5.1).
    pub(crate) is_dce: bool,
    /// The hash of the channel bindings, where the connection has any.
    pub(crate) bindings: Option<[u8; 16]>,
}

/// The server's answer to an AP-REQ.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The server has proved that it can read the ticket.
    Proven(Context),
    /// The server's clock is at this time; the client may try again with it.
    Skewed(FileTime),
}

/// Makes the token with an AP-REQ.
pub(crate) fn request(
    ticket: &ServiceTicket,
    entropy: &InitiatorEntropy,
    form: Form,
    now: FileTime,
) -> (Vec<u8>, Sent) {
    let dce = if form.is_dce { ContextFlags::DCE_STYLE } else { ContextFlags::EMPTY };
    let flags = dce
        | ContextFlags::MUTUAL
        | ContextFlags::REPLAY
        | ContextFlags::SEQUENCE
        | ContextFlags::CONFIDENTIALITY
        | ContextFlags::INTEGRITY;
    let wanted = ContextChecksum { bindings: form.bindings.unwrap_or_default(), flags }.encode();
    let checksum = Typed { number: gss::CHECKSUM_TYPE, bytes: &wanted };
    let [first, second] = &entropy.confounders;
    let confounder = if form.is_second { second } else { first };
    let (message, proof) = Proof::make(ticket, entropy, confounder, Some(checksum), now);
    let token = if form.is_dce { message } else { gss::framed(gss::AP_REQ, &message) };
    (token, Sent { proof, is_dce: form.is_dce })
}

impl Sent {
    /// Reads the server's token: an AP-REP that proves the server, or a KRB-ERROR.
    pub(crate) fn answer(&self, token: &[u8]) -> Result<Answer, Fault> {
        if self.is_dce {
            return self.check(token).map(Answer::Proven);
        }
        match gss::unframed(token)? {
            (gss::AP_REP, message) => self.check(message).map(Answer::Proven),
            (gss::KRB_ERROR, message) => {
                let error = KrbError::parse(message)?;
                if error.code != ErrorCode::SKEW {
                    return Err(Fault::Peer(error.code.0));
                }
                let nanoseconds = error.time.microseconds.saturating_mul(1_000);
                Ok(Answer::Skewed(FileTime::from_unix(error.time.seconds, nanoseconds)))
            }
            _ => Err(Fault::Malformed("Kerberos token: no AP-REP")),
        }
    }

    /// Returns the client's own AP-REP, the third message of DCE RPC. `confounder` was never used
    /// before.
    pub(crate) fn proof(&self, context: &Context, confounder: &[u8; 16]) -> Vec<u8> {
        let [_, sequence] = context.sequence;
        let part = EncApRepPart { time: self.proof.time, subkey: None, sequence: Some(sequence) };
        let part = Zeroizing::new(part.encode());
        let cipher = self.proof.session_key.encrypt(KeyUsage::AP_REP, confounder, &part);
        let etype = self.proof.session_key.etype().number();
        ApRep(EncryptedData { etype, kvno: None, cipher: &cipher }).encode()
    }

    /// True for the three messages of DCE RPC.
    pub(crate) const fn is_dce(&self) -> bool {
        self.is_dce
    }

    fn check(&self, message: &[u8]) -> Result<Context, Fault> {
        let answered = self.proof.check(message)?;
        let theirs = answered.subkey.transpose()?;
        // The server must not choose RC4 for its subkey if the KDC chose a stronger type.
        let is_weaker =
            |etype| etype == EncryptionType::Rc4Hmac && etype != self.proof.subkey.etype();
        if theirs.as_ref().is_some_and(|key| is_weaker(key.etype())) {
            return Err(Fault::WrongProof);
        }
        let is_acceptor_subkey = theirs.is_some();
        let key = theirs.unwrap_or_else(|| self.proof.subkey.clone());
        let sequence = [self.proof.sequence, answered.sequence.unwrap_or_default()];
        Ok(Context { key, is_acceptor_subkey, sequence })
    }
}
