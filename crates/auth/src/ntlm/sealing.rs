//! Signing and sealing of messages after a logon, with extended session security (MS-NLMP 3.4.3,
//! 3.4.4.2).

use super::Flags;
use super::crypt::{self, Key, Mode};
use crate::hash::same;
use core::fmt;
use core::ops::Range;
use rc4::{Rc4, StreamCipher};

/// Length of a signature in bytes.
pub const SIGNATURE_LEN: usize = 16;

/// Both directions of a connection whose messages are signed or sealed.
pub struct Sealing {
    can_seal: bool,
    sent: Direction,
    received: Direction,
}

struct Direction {
    sign_key: Key,
    cipher: Rc4,
    sequence: u32,
    has_key_exchange: bool,
}

impl Sealing {
    /// Makes the state of one end, if the ends have agreed on signing or sealing with extended
    /// session security and 128-bit keys.
    pub(crate) fn new(flags: Flags, exported: &Key, own: Mode) -> Option<Self> {
        let needed = Flags::EXTENDED_SESSIONSECURITY | Flags::KEY_128;
        if !flags.contains(needed) || !flags.intersects(Flags::SIGN | Flags::SEAL) {
            return None;
        }
        let other = match own {
            Mode::Client => Mode::Server,
            Mode::Server => Mode::Client,
        };
        Some(Self {
            can_seal: flags.contains(Flags::SEAL),
            sent: Direction::new(flags, exported, own)?,
            received: Direction::new(flags, exported, other)?,
        })
    }

    /// Counts from this message on: a mechListMIC was the first message of both directions. The key
    /// streams begin anew after it (MS-SPNG 3.2.5.1), the numbers do not.
    #[must_use]
    pub(crate) const fn after_mic(mut self) -> Self {
        (self.sent.sequence, self.received.sequence) = (1, 1);
        self
    }

    /// True if the ends have agreed on sealing.
    pub const fn can_seal(&self) -> bool {
        self.can_seal
    }

    /// Returns the signature of a message that stays as it is.
    pub fn sign(&mut self, message: &[u8]) -> [u8; SIGNATURE_LEN] {
        let mac = self.sent.mac(message);
        self.sent.sign(mac)
    }

    /// Checks the signature of a message in the clear. False if it is wrong; nothing that follows
    /// can be checked then.
    pub fn verify(&mut self, message: &[u8], signature: &[u8]) -> bool {
        let mac = self.received.mac(message);
        same(&self.received.sign(mac), signature)
    }

    /// Seals the `sealed` part of `message` in place and returns the signature of all of it.
    pub fn seal(&mut self, message: &mut [u8], sealed: Range<usize>) -> [u8; SIGNATURE_LEN] {
        let mac = self.sent.mac(message);
        self.sent.cipher.apply_keystream(message.get_mut(sealed).unwrap_or_default());
        self.sent.sign(mac)
    }

    /// Unseals the `sealed` part of `message` in place. Returns false if the signature is wrong;
    /// nothing that follows can be unsealed then.
    pub fn unseal(&mut self, message: &mut [u8], sealed: Range<usize>, signature: &[u8]) -> bool {
        self.received.cipher.apply_keystream(message.get_mut(sealed).unwrap_or_default());
        let mac = self.received.mac(message);
        same(&self.received.sign(mac), signature)
    }
}

impl Direction {
    fn new(flags: Flags, exported: &Key, mode: Mode) -> Option<Self> {
        Some(Self {
            sign_key: crypt::sign_key(flags, exported, mode)?,
            cipher: crypt::rc4(&crypt::seal_key(flags, exported, mode)),
            sequence: 0,
            has_key_exchange: flags.contains(Flags::KEY_EXCH),
        })
    }

    fn mac(&self, message: &[u8]) -> [u8; 8] {
        let mac = crypt::hmac_md5(&self.sign_key, &[&self.sequence.to_le_bytes(), message]);
        mac.first_chunk().copied().unwrap_or_default()
    }

    /// MAC(): version 1, the checksum and the sequence number, which goes on.
    fn sign(&mut self, mut checksum: [u8; 8]) -> [u8; SIGNATURE_LEN] {
        if self.has_key_exchange {
            self.cipher.apply_keystream(&mut checksum);
        }
        let mut signature = [0; SIGNATURE_LEN];
        let (version, sequence) = (1u32.to_le_bytes(), self.sequence.to_le_bytes());
        let parts = version.iter().chain(&checksum).chain(&sequence);
        for (to, from) in signature.iter_mut().zip(parts) {
            *to = *from;
        }
        self.sequence = self.sequence.wrapping_add(1);
        signature
    }
}

impl fmt::Debug for Sealing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sealing(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const FLAGS: Flags = Flags(0xe28a_8233);

    fn ends() -> (Sealing, Sealing) {
        let exported = Key::new([0x55; 16]);
        let end = |mode| Sealing::new(FLAGS, &exported, mode).unwrap();
        (end(Mode::Client), end(Mode::Server))
    }

    /// MS-NLMP 4.2.4.4
    #[test]
    fn the_example_of_the_specification() {
        let (mut client, mut server) = ends();
        let plain: Vec<u8> = "Plaintext".encode_utf16().flat_map(u16::to_le_bytes).collect();
        let mut message = plain.clone();
        let signature = client.seal(&mut message, 0..18);
        let sealed = [
            0x54, 0xe5, 0x01, 0x65, 0xbf, 0x19, 0x36, 0xdc, 0x99, 0x60, 0x20, 0xc1, 0x81, 0x1b,
            0x0f, 0x06, 0xfb, 0x5f,
        ];
        assert_eq!(message, sealed);
        let expected = [1, 0, 0, 0, 0x7f, 0xb3, 0x8e, 0xc5, 0xc5, 0x5d, 0x49, 0x76, 0, 0, 0, 0];
        assert_eq!(signature, expected);
        assert!(server.unseal(&mut message, 0..18, &signature));
        assert_eq!(message, plain);
    }

    #[test]
    fn messages_follow_each_other_both_ways() {
        let (mut client, mut server) = ends();
        for text in ["one", "", "three"] {
            let mut message = text.as_bytes().to_vec();
            let signature = client.seal(&mut message, 0..text.len());
            assert!(server.unseal(&mut message, 0..text.len(), &signature));
            assert_eq!(message, text.as_bytes());
            let signature = server.seal(&mut message, 0..text.len());
            assert!(client.unseal(&mut message, 0..text.len(), &signature));
        }
        let mut message = *b"four";
        let mut signature = client.seal(&mut message, 0..4);
        signature[5] ^= 1;
        assert!(!server.unseal(&mut message, 0..4, &signature));
        // The server accepts the message once and refuses its repetition. The signature also covers
        // the head, which is not encrypted.
        let (mut client, mut server) = ends();
        let mut message = *b"head and body";
        let signature = client.seal(&mut message, 4..13);
        assert_eq!(message[..4], *b"head");
        assert!(server.unseal(&mut message.clone(), 4..13, &signature));
        assert!(!server.unseal(&mut message, 4..13, &signature));
        let (mut client, mut server) = ends();
        let mut message = *b"head and body";
        let signature = client.seal(&mut message, 4..13);
        message[0] = b'H';
        assert!(!server.unseal(&mut message, 4..13, &signature));
    }

    #[test]
    fn weak_sessions_seal_nothing() {
        let exported = Key::new([0x55; 16]);
        let neither = Flags::SEAL | Flags::SIGN;
        for missing in [Flags::EXTENDED_SESSIONSECURITY, neither, Flags::KEY_128] {
            let flags = Flags(FLAGS.0 & !missing.0);
            assert!(Sealing::new(flags, &exported, Mode::Server).is_none(), "{missing:?}");
        }
        let signs = Sealing::new(Flags(FLAGS.0 & !Flags::SEAL.0), &exported, Mode::Server);
        assert!(!signs.unwrap().can_seal());
    }
}
