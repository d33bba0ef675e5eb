//! Signatures: MD5 over key and message, MS-CIFS 3.1.4.1 and 3.1.5.1.

use alloc::vec::Vec;
use core::fmt;

use md5::{Digest, Md5};
use zeroize::Zeroizing;

use crate::header::SIGNATURE_RANGE;

/// The keys of a connection's signatures: SigningSessionKey and SigningChallengeResponse.
#[derive(Clone)]
pub struct Signer {
    key: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Signer(..)")
    }
}

impl Signer {
    /// Returns the keys of a logon: its session key, and its response to the challenge, which is empty
    /// with extended security.
    pub fn new(session_key: &[u8], response: &[u8]) -> Self {
        Self { key: Zeroizing::new([session_key, response].concat()) }
    }

    /// Returns the signature of a message, from its header, with this number.
    fn signature(&self, message: &[u8], payload: &[u8], sequence: u32) -> [u8; 8] {
        let before = message.get(..SIGNATURE_RANGE.start).unwrap_or_default();
        let after = message.get(SIGNATURE_RANGE.end..).unwrap_or_default();
        let mut md5 = Md5::new_with_prefix(self.key.as_slice());
        md5.update(before);
        md5.update(sequence.to_le_bytes());
        md5.update([0; 4]);
        md5.update(after);
        md5.update(payload);
        let digest: [u8; 16] = md5.finalize().into();
        let [a, b, c, d, e, f, g, h, ..] = digest;
        [a, b, c, d, e, f, g, h]
    }

    /// Writes the signature of a message that ends with `payload` into its header.
    pub(crate) fn sign(&self, message: &mut [u8], payload: &[u8], sequence: u32) {
        let signature = self.signature(message, payload, sequence);
        if let Some(place) = message.get_mut(SIGNATURE_RANGE) {
            place.copy_from_slice(&signature);
        }
    }

    /// Returns true if a message has the signature of this number.
    pub(crate) fn is_signed(&self, message: &[u8], sequence: u32) -> bool {
        let expected = self.signature(message, &[], sequence);
        let there = message.get(SIGNATURE_RANGE).unwrap_or_default();
        there.len() == expected.len()
            && there.iter().zip(expected).fold(0, |differing, (a, b)| differing | (a ^ b)) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_depends_on_every_part() {
        let signer = Signer::new(&[1; 16], &[2; 24]);
        let mut message = [3u8; 40];
        signer.sign(&mut message, &[], 5);
        let mut head = [3u8; 30];
        signer.sign(&mut head, &[3; 10], 5);
        assert_eq!(head, message[..30], "a payload may be elsewhere");
        assert!(signer.is_signed(&message, 5));
        assert!(!signer.is_signed(&message, 6));
        assert!(!Signer::new(&[1; 16], &[]).is_signed(&message, 5));
        for at in 0..message.len() {
            let mut other = message;
            other[at] ^= 1;
            assert!(!signer.is_signed(&other, 5), "{at}");
        }
        assert!(!signer.is_signed(&message[..20], 5), "cut");
    }

    /// MD5 of the key, the message and the number, computed by another program.
    #[test]
    fn the_hash_covers_key_and_message() {
        let signer = Signer::new(b"0123456789abcdef", b"");
        let mut message: Vec<u8> = (0..40).collect();
        signer.sign(&mut message, &[], 1);
        assert_eq!(message[14..22], SIGNED);
    }

    const SIGNED: [u8; 8] = [0x48, 0xE0, 0x42, 0xF6, 0x3F, 0xB7, 0x0E, 0x4D];
}
