//! Kerberos as a mechanism of the GSS-API: RFC 4121, and RFC 4757 section 7 for RC4.

use super::{EncryptionType, Key, KeyUsage};
use crate::der::{self, Elements};
use crate::hash::same;
use crate::ntlm::crypt::{hmac_md5, rc4};
use crate::spnego::{KERBEROS, MS_KERBEROS};
use alloc::vec::Vec;
use frevo_wire::bit_set;
use frevo_wire::codec::{Malformed, Parsed, Reader};
use rc4::StreamCipher;
use zeroize::Zeroizing;

/// cksumtype of the checksum in an authenticator, RFC 4121 section 4.1.1.
pub(super) const CHECKSUM_TYPE: i32 = 0x8003;

/// TOK_ID of each message, RFC 4121 section 4.1.
pub(super) const AP_REQ: [u8; 2] = [1, 0];
pub(super) const AP_REP: [u8; 2] = [2, 0];
pub(super) const KRB_ERROR: [u8; 2] = [3, 0];

/// TOK_ID of a MIC, RFC 4121 section 4.2.6.1.
const MIC: [u8; 2] = [4, 4];

bit_set! {
    /// The flags of a context, RFC 4121 section 4.1.1.1 and MS-KILE 3.2.5.2.
    ContextFlags(u32) {
        /// GSS_C_DELEG_FLAG: a ticket of the client follows.
        DELEGATE = 1,
        /// GSS_C_MUTUAL_FLAG: the acceptor proves itself with an AP-REP.
        MUTUAL = 2,
        /// GSS_C_REPLAY_FLAG
        REPLAY = 4,
        /// GSS_C_SEQUENCE_FLAG
        SEQUENCE = 8,
        /// GSS_C_CONF_FLAG
        CONFIDENTIALITY = 16,
        /// GSS_C_INTEG_FLAG
        INTEGRITY = 32,
        /// GSS_C_DCE_STYLE: three messages without frames.
        DCE_STYLE = 0x1000,
        /// GSS_C_EXTENDED_ERROR_FLAG
        EXTENDED_ERROR = 0x4000,
    }
}

/// Puts a message into the frame of RFC 2743 3.1.
pub(super) fn framed(token_id: [u8; 2], message: &[u8]) -> Vec<u8> {
    let mut token = der::element(der::OID, KERBEROS);
    token.extend_from_slice(&token_id);
    token.extend_from_slice(message);
    der::element(der::APPLICATION_0, &token)
}

/// Takes a message out of its frame. Both object identifiers of Kerberos are accepted.
pub(super) fn unframed(token: &[u8]) -> Parsed<([u8; 2], &[u8])> {
    const WHAT: &str = "Kerberos token";
    let mut elements = Elements::strict(token);
    let inner = elements.expect(der::APPLICATION_0, WHAT)?;
    elements.end(WHAT)?;
    let mut elements = Elements::strict(inner);
    let oid = elements.expect(der::OID, WHAT)?;
    if oid != KERBEROS && oid != MS_KERBEROS {
        return Err(Malformed::new(WHAT));
    }
    let (token_id, message) = elements.rest().split_first_chunk().ok_or(Malformed::new(WHAT))?;
    Ok((*token_id, message))
}

/// True if `token` is an AP-REQ without a frame, as DCE RPC has it (MS-KILE 3.4.5.1).
pub(crate) fn is_frameless(token: &[u8]) -> bool {
    // 0x6e is the tag APPLICATION 14 of an AP-REQ (RFC 4120 section 5.5.1). The token is a bare
    // AP-REQ, without the GSS-API header.
    token.first() == Some(&0x6e)
}

/// True if `token` is a Kerberos message without SPNEGO around it, which Windows accepts too
/// (MS-SMB2 3.3.5.5.3, note).
pub(crate) fn is_kerberos(token: &[u8]) -> bool {
    let oid = |token| Elements::new(token).expect(der::APPLICATION_0, "").ok();
    let found = oid(token).and_then(|inner| Elements::new(inner).expect(der::OID, "").ok());
    found.is_some_and(|oid| oid == KERBEROS || oid == MS_KERBEROS)
}

/// The checksum of an authenticator, RFC 4121 section 4.1.1: what the client wants of the context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ContextChecksum {
    /// The hash of the channel bindings; zeros for none.
    pub(super) bindings: [u8; 16],
    pub(super) flags: ContextFlags,
}

impl ContextChecksum {
    pub(super) fn parse(bytes: &[u8]) -> Parsed<Self> {
        const WHAT: &str = "GSS checksum";
        let mut reader = Reader::new(bytes);
        if reader.u32(WHAT)? != 16 {
            return Err(Malformed::new(WHAT));
        }
        let bindings = reader.array(WHAT)?;
        let flags = ContextFlags(reader.u32(WHAT)?);
        if flags.contains(ContextFlags::DELEGATE) {
            // The optional field has a ticket that the client delegates to the server. The server
            // does not use it, so the field is only skipped.
            let (option, length) = (reader.u16(WHAT)?, reader.u16(WHAT)?);
            reader.take(usize::from(length), WHAT)?;
            if option != 1 {
                return Err(Malformed::new(WHAT));
            }
        }
        // RFC 4121 section 4.1.1: extensions may follow these fields. They are ignored, so the rest
        // is not read.
        Ok(Self { bindings, flags })
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        [&16_u32.to_le_bytes()[..], &self.bindings, &self.flags.0.to_le_bytes()].concat()
    }
}

/// An end of a context.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Initiator,
    Acceptor,
}

/// The key and the numbers that sign messages of an established context.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// The subkey that is in use, or the ticket's session key.
    pub(crate) key: Key,
    /// True if the acceptor has chosen the key.
    pub(crate) is_acceptor_subkey: bool,
    /// The first sequence number of the initiator, and of the acceptor.
    pub(crate) sequence: [u32; 2],
}

impl Context {
    /// Returns the MIC of the first message that an end signs: GSS_GetMIC.
    pub(crate) fn mic(&self, from: End, message: &[u8]) -> Vec<u8> {
        let [initiator, acceptor] = self.sequence;
        let sequence = if from == End::Initiator { initiator } else { acceptor };
        self.mic_with(from, u64::from(sequence), message)
    }

    /// True if `mic` is the peer's MIC of `message`.
    pub(crate) fn verify(&self, from: End, message: &[u8], mic: &[u8]) -> bool {
        same(&self.mic(from, message), mic)
    }

    /// Returns the MIC of the message with this number.
    pub(crate) fn mic_with(&self, from: End, sequence: u64, message: &[u8]) -> Vec<u8> {
        if self.key.etype() == EncryptionType::Rc4Hmac {
            let [.., a, b, c, d] = sequence.to_be_bytes();
            let sequence = u32::from_be_bytes([a, b, c, d]);
            return rc4_mic(&self.key, from, sequence, message);
        }
        let (sent_by_acceptor, usage) = match from {
            End::Initiator => (0, KeyUsage::INITIATOR_SIGN),
            End::Acceptor => (1, KeyUsage::ACCEPTOR_SIGN),
        };
        let subkey = if self.is_acceptor_subkey { 4 } else { 0 };
        let mut token = Vec::with_capacity(40);
        token.extend_from_slice(&MIC);
        token.push(sent_by_acceptor | subkey);
        token.extend_from_slice(&[0xff; 5]);
        token.extend_from_slice(&sequence.to_be_bytes());
        let checksum = self.key.checksum(usage, &[message, &token].concat());
        token.extend_from_slice(&checksum);
        token
    }
}

/// Returns the MIC of RFC 4757 section 7.2, in its frame.
fn rc4_mic(key: &Key, from: End, sequence: u32, message: &[u8]) -> Vec<u8> {
    // The constant HEAD is TOK_ID, SGN_ALG (HMAC) and Filler, which the checksum covers.
    const HEAD: [u8; 8] = [1, 1, 0x11, 0, 0xff, 0xff, 0xff, 0xff];
    const TOKEN: [u8; 2] = [1, 1];
    let checksum = key.checksum(KeyUsage(15), &[&HEAD[..], message].concat());
    let checksum = checksum.get(..8).unwrap_or_default();
    let base = key.expose().first_chunk().copied().map(Zeroizing::new).unwrap_or_default();
    let sequence_key = Zeroizing::new(hmac_md5(&base, &[&[0; 4]]));
    let sequence_key = Zeroizing::new(hmac_md5(&sequence_key, &[checksum]));
    let direction = if from == End::Initiator { [0; 4] } else { [0xff; 4] };
    let mut sealed = [sequence.to_be_bytes(), direction].concat();
    rc4(&sequence_key).apply_keystream(&mut sealed);
    framed(TOKEN, &[HEAD.get(2..).unwrap_or_default(), &sealed, checksum].concat())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn either_spelling_of_the_mechanism_is_kerberos() {
        let token = framed(AP_REQ, b"message");
        assert_eq!(unframed(&token).unwrap(), (AP_REQ, &b"message"[..]));
        let other = [&der::element(der::OID, MS_KERBEROS)[..], &AP_REP, b"x"].concat();
        let other = der::element(der::APPLICATION_0, &other);
        assert_eq!(unframed(&other).unwrap(), (AP_REP, &b"x"[..]));
        assert!(is_kerberos(&token) && is_kerberos(&other));
        let spnego = der::element(der::APPLICATION_0, &der::element(der::OID, crate::spnego::NTLM));
        assert!(unframed(&spnego).is_err() && !is_kerberos(&spnego));
        for cut in 0..token.len() {
            assert!(unframed(&token[..cut]).is_err(), "{cut}");
        }
        assert!(unframed(&[&token[..], &[0]].concat()).is_err());
    }

    #[test]
    fn the_checksum_of_a_context() {
        let plain = ContextChecksum { bindings: [7; 16], flags: ContextFlags(0x3e) };
        assert_eq!(ContextChecksum::parse(&plain.encode()).unwrap(), plain);
        let delegating = ContextChecksum { flags: ContextFlags(0x3f), ..plain };
        let with = |tail: &[u8]| ContextChecksum::parse(&[&delegating.encode()[..], tail].concat());
        assert_eq!(with(&[1, 0, 2, 0, 9, 9]).unwrap(), delegating);
        assert!(with(&[1, 0, 2, 0, 9, 9, 5, 5]).is_ok());
        for tail in [&[][..], &[1, 0], &[1, 0, 2, 0, 9], &[2, 0, 0, 0]] {
            assert!(with(tail).is_err(), "{tail:?}");
        }
        let mut other = plain.encode();
        other[0] = 15;
        assert!(ContextChecksum::parse(&other).is_err());
        for cut in 0..24 {
            assert!(ContextChecksum::parse(&plain.encode()[..cut]).is_err(), "{cut}");
        }
    }

    #[test]
    fn a_mic_is_good_for_its_end_message_and_number() {
        for etype in EncryptionType::ALL {
            let key = Key::new(etype, &alloc::vec![9; etype.key_len()]).unwrap();
            let context = Context { key, is_acceptor_subkey: true, sequence: [5, 6] };
            let mic = context.mic(End::Initiator, b"list");
            assert!(context.verify(End::Initiator, b"list", &mic));
            assert!(!context.verify(End::Acceptor, b"list", &mic));
            assert!(!context.verify(End::Initiator, b"lisT", &mic));
            assert!(!Context { sequence: [6, 6], ..context.clone() }.verify(
                End::Initiator,
                b"list",
                &mic
            ));
            for bit in 0..mic.len() * 8 {
                let mut changed = mic.clone();
                changed[bit / 8] ^= 1 << (bit % 8);
                assert!(!context.verify(End::Initiator, b"list", &changed), "{etype} {bit}");
            }
        }
    }
}
