//! The change of an account's password at a KDC: RFC 3244, in the form of version 1, in which a user sends
//! the new password of its own account alone.
//!
//! The caller has a ticket for `kadmin/changepw` that an AS exchange gave
//! ([`AsExchange::begin_for`](super::kdc::AsExchange::begin_for)). Time and random bytes are arguments.

use super::asn1::{
    EncryptedData, Fields, VERSION, application, field, number, octets, octets_field, sequence,
    time_field,
};
use super::message::{KrbError, Moment};
use super::proof::Proof;
use super::{
    Fault, InitiatorEntropy, KdcErrorCode, Key, KeyUsage, NameType, Principal, ServiceTicket,
};
use crate::der;
use crate::limits::MAX_KDC_MESSAGE_LEN;
use alloc::string::String;
use alloc::vec::Vec;
use core::net::IpAddr;
use frevo_wire::dtyp::FileTime;
use zeroize::Zeroizing;

const KRB_PRIV: u8 = 21;
const ENC_KRB_PRIV_PART: u8 = 28;
const KRB_ERROR: u8 = 30;
/// The version of the protocol in which the request has the new password alone.
const CHANGE: u16 = 1;
/// Bytes of the three numbers before the AP-REQ or the AP-REP.
const HEADER_LEN: usize = 6;

frevo_wire::open_enum! {
    /// The result of a change, RFC 3244 section 2.
    ChangeResult(u16) {
        /// KRB5_KPASSWD_SUCCESS
        SUCCESS = 0,
        /// KRB5_KPASSWD_MALFORMED
        MALFORMED = 1,
        /// KRB5_KPASSWD_HARDERROR
        HARD_ERROR = 2,
        /// KRB5_KPASSWD_AUTHERROR
        AUTHENTICATION_ERROR = 3,
        /// KRB5_KPASSWD_SOFTERROR: the rules for passwords.
        SOFT_ERROR = 4,
        /// KRB5_KPASSWD_ACCESSDENIED
        ACCESS_DENIED = 5,
        /// KRB5_KPASSWD_BAD_VERSION
        BAD_VERSION = 6,
        /// KRB5_KPASSWD_INITIAL_FLAG_NEEDED
        INITIAL_FLAG_NEEDED = 7,
    }
}

/// The answer of a KDC to a request for a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeAnswer {
    /// The KDC has proved itself and says this. The text is empty where it is none that can be shown.
    Proven(ChangeResult, String),
    /// A refusal that nothing proves.
    Refused(KdcErrorCode),
}

/// A request for a change that was sent.
#[derive(Debug)]
pub struct PasswordChange {
    proof: Proof,
    /// The encrypted part of the request's KRB-PRIV, which is no reply.
    own: Vec<u8>,
}

impl PasswordChange {
    /// Returns the service that changes passwords in `realm`.
    pub fn service(realm: &str) -> Principal {
        Principal {
            name_type: NameType::PRINCIPAL,
            ..Principal::service("kadmin", "changepw", realm)
        }
    }

    /// Makes the request that gives the client of `ticket` a new password. `address` is that of the
    /// connection on this machine.
    pub fn request(
        ticket: &ServiceTicket,
        password: &str,
        address: IpAddr,
        entropy: &InitiatorEntropy,
        now: FileTime,
    ) -> (Vec<u8>, Self) {
        let [confounder, second] = &entropy.confounders;
        let (message, proof) = Proof::make(ticket, entropy, confounder, None, now);
        let part = private_part(password.as_bytes(), address, proof.time, proof.sequence);
        let cipher = proof.subkey.encrypt(KeyUsage::PRIVATE, second, &part);
        let etype = proof.subkey.etype().number();
        let private = private(&EncryptedData { etype, kvno: None, cipher: &cipher });
        (framed(&message, &private), Self { proof, own: cipher })
    }

    /// Reads the KDC's reply.
    ///
    /// # Errors
    /// When it is malformed, or does not prove that it comes from the KDC.
    pub fn answer(&self, reply: &[u8]) -> Result<ChangeAnswer, Fault> {
        const WHAT: &str = "reply to a change of the password";
        let malformed = || Fault::Malformed(WHAT);
        if reply.len() > MAX_KDC_MESSAGE_LEN {
            return Err(malformed());
        }
        if reply.first() == Some(&der::application(KRB_ERROR)) {
            return Ok(ChangeAnswer::Refused(KdcErrorCode(KrbError::parse(reply)?.code.0)));
        }
        let (header, rest) = reply.split_first_chunk::<HEADER_LEN>().ok_or_else(malformed)?;
        let [length, _, proof_length] = numbers(*header);
        if usize::from(length) != reply.len() {
            return Err(malformed());
        }
        let (proof, private) = rest.split_at_checked(proof_length.into()).ok_or_else(malformed)?;
        if proof.is_empty() {
            // RFC 3244 section 2: without an AP-REP a KRB-ERROR follows.
            return Ok(ChangeAnswer::Refused(KdcErrorCode(KrbError::parse(private)?.code.0)));
        }
        // A subkey that cannot be used is as good as none: the reply need not be under it.
        let theirs = self.proof.check(proof)?.subkey.and_then(Result::ok);
        let data = self.open(private, theirs.as_ref())?;
        let (code, text) = data.split_first_chunk().ok_or_else(malformed)?;
        let text = str::from_utf8(text).ok().filter(|text| !text.contains(char::is_control));
        let result = ChangeResult(u16::from_be_bytes(*code));
        Ok(ChangeAnswer::Proven(result, String::from(text.unwrap_or_default())))
    }

    /// Opens the KRB-PRIV of a reply, and returns its data. RFC 3244 section 2 has it under the subkey of
    /// the request; some KDCs use that of their AP-REP.
    fn open(&self, private: &[u8], theirs: Option<&Key>) -> Result<Zeroizing<Vec<u8>>, Fault> {
        const WHAT: &str = "KRB-PRIV";
        let mut fields = Fields::application(private, KRB_PRIV, WHAT)?;
        fields.constant(0, VERSION, WHAT)?;
        fields.constant(1, i64::from(KRB_PRIV), WHAT)?;
        let sealed = EncryptedData::parse(fields.required(3, WHAT)?, WHAT)?;
        fields.end(WHAT)?;
        // RFC 4120 section 3.5.2: without this check, the request could be put behind an honest AP-REP. Its
        // password would be read as the reason of a refusal, and shown.
        if sealed.cipher == self.own {
            return Err(Fault::WrongProof);
        }
        let own = [&self.proof.subkey, &self.proof.session_key];
        let keys = own.into_iter().chain(theirs);
        let mut of_type = keys.filter(|key| key.etype().number() == sealed.etype);
        let part = of_type.find_map(|key| key.decrypt(KeyUsage::PRIVATE, sealed.cipher));
        let part = part.ok_or(Fault::WrongProof)?;
        let mut fields = Fields::application(&part, ENC_KRB_PRIV_PART, WHAT)?;
        Ok(Zeroizing::new(octets(fields.required(0, WHAT)?, "KRB-PRIV data")?.to_vec()))
    }
}

/// Encodes an EncKrbPrivPart, RFC 4120 section 5.7.1. Every buffer that `data` is in is wiped.
fn private_part(data: &[u8], address: IpAddr, time: Moment, first: u32) -> Zeroizing<Vec<u8>> {
    // The address types are those of RFC 4120 section 7.5.3.
    let (kind, address) = match address.to_canonical() {
        IpAddr::V4(address) => (2, address.octets().to_vec()),
        IpAddr::V6(address) => (24, address.octets().to_vec()),
    };
    let wiped = |tag, contents: &[u8]| Zeroizing::new(der::element(tag, contents));
    let data = wiped(der::context(0), &wiped(der::OCTET_STRING, data));
    let rest = [
        time_field(1, time.seconds),
        number(2, i64::from(time.microseconds)),
        number(3, i64::from(first)),
        field(4, &sequence(&[&number(0, kind), &octets_field(1, &address)])),
    ]
    .concat();
    // The buffer has its final size at once, because growing it would leave copies of `data`.
    let mut fields = Zeroizing::new(Vec::with_capacity(data.len().saturating_add(rest.len())));
    fields.extend_from_slice(&data);
    fields.extend_from_slice(&rest);
    wiped(der::application(ENC_KRB_PRIV_PART), &wiped(der::SEQUENCE, &fields))
}

/// Encodes a KRB-PRIV.
fn private(sealed: &EncryptedData<'_>) -> Vec<u8> {
    let sealed = field(3, &sealed.encode());
    application(KRB_PRIV, &[&number(0, VERSION), &number(1, i64::from(KRB_PRIV)), &sealed])
}

/// Puts the header before a proof and a KRB-PRIV.
fn framed(proof: &[u8], private: &[u8]) -> Vec<u8> {
    let short = |length: usize| u16::try_from(length).unwrap_or(u16::MAX).to_be_bytes();
    let length = HEADER_LEN.saturating_add(proof.len()).saturating_add(private.len());
    [&short(length), &CHANGE.to_be_bytes(), &short(proof.len()), proof, private].concat()
}

fn numbers([a, b, c, d, e, f]: [u8; HEADER_LEN]) -> [u16; 3] {
    [[a, b], [c, d], [e, f]].map(u16::from_be_bytes)
}

impl ChangeAnswer {
    /// True if the KDC has proved that the password is changed.
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Proven(ChangeResult::SUCCESS, _))
    }
}

#[cfg(test)]
mod tests;
