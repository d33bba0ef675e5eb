//! An AP-REQ, by which an initiator proves that it has the session key of its ticket: RFC 4120 section 3.2.

use super::asn1::{EncryptedData, Typed};
use super::message::{ApOptions, ApRep, ApReq, Authenticator, EncApRepPart, Moment};
use super::{EncryptionType, Fault, InitiatorEntropy, Key, KeyUsage, ServiceTicket};
use alloc::vec::Vec;
use frevo_wire::dtyp::FileTime;
use zeroize::Zeroizing;

/// The values of an AP-REQ that was sent; its answer is checked against them.
#[derive(Debug)]
pub(super) struct Proof {
    pub(super) time: Moment,
    pub(super) session_key: Key,
    /// The initiator's subkey.
    pub(super) subkey: Key,
    /// The initiator's first sequence number.
    pub(super) sequence: u32,
}

/// The values of the peer's AP-REP, after it has proved that it can read the ticket.
#[derive(Debug)]
pub(super) struct Answered {
    /// The acceptor's subkey. None if it sent none; an error if its type or length is not known.
    pub(super) subkey: Option<Result<Key, Fault>>,
    /// The acceptor's first sequence number.
    pub(super) sequence: Option<u32>,
}

impl Proof {
    /// Makes an AP-REQ at `now`, with a checksum of the GSS-API if it has one. `confounder` is one of
    /// those of `entropy`, and is used here alone.
    pub(super) fn make(
        ticket: &ServiceTicket,
        entropy: &InitiatorEntropy,
        confounder: &[u8; 16],
        checksum: Option<Typed<'_>>,
        now: FileTime,
    ) -> (Vec<u8>, Self) {
        let (seconds, nanoseconds) = now.to_unix();
        let time = Moment { seconds, microseconds: nanoseconds / 1_000 };
        let session_key = ticket.session_key.clone();
        let etype = session_key.etype();
        let subkey = entropy.subkey.get(..etype.key_len()).unwrap_or_default();
        let subkey = Key::new(etype, subkey).unwrap_or_else(|| session_key.clone());
        let sequence = u32::from_be_bytes(entropy.sequence) & 0x3fff_ffff;
        let authenticator = Authenticator {
            client: ticket.client.clone(),
            checksum,
            time,
            subkey: Some(Typed { number: etype.number(), bytes: subkey.expose() }),
            sequence: Some(sequence),
            authorization_data: None,
        };
        let authenticator = Zeroizing::new(authenticator.encode());
        let cipher =
            session_key.encrypt(KeyUsage::AP_REQ_AUTHENTICATOR, confounder, &authenticator);
        let sealed = EncryptedData { etype: etype.number(), kvno: None, cipher: &cipher };
        let message = ApReq::encode(ApOptions::MUTUAL_REQUIRED, &ticket.ticket, &sealed);
        (message, Self { time, session_key, subkey, sequence })
    }

    /// Reads the AP-REP.
    ///
    /// # Errors
    /// When it is malformed, or does not prove that its sender can read the ticket.
    pub(super) fn check(&self, message: &[u8]) -> Result<Answered, Fault> {
        let part = ApRep::parse(message)?.open(&self.session_key)?;
        let part = EncApRepPart::parse(&part)?;
        if part.time != self.time {
            return Err(Fault::WrongProof);
        }
        let read = |key: Typed<'_>| Key::new(EncryptionType::from_number(key.number)?, key.bytes);
        let subkey = part.subkey.map(|key| read(key).ok_or(Fault::WrongProof));
        Ok(Answered { subkey, sequence: part.sequence })
    }
}
