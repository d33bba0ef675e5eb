//! Protection of the messages of an established context, as DCE RPC uses it: RFC 4121 4.2.6 with
//! the order of bytes of MS-KILE 3.4.5.4.1.

use super::gss::{Context, End};
use super::{EncryptionType, KeyUsage};
use crate::hash::same;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;
use frevo_crypto::Surroundings;

/// TOK_ID of a wrap token, RFC 4121 section 4.2.6.2.
const WRAP: [u8; 2] = [5, 4];
/// Bytes of the header of a token.
const HEADER: usize = 16;
/// Bytes of a confounder.
const CONFOUNDER: usize = 16;
/// EC: bytes of filler, MS-KILE 3.4.5.4.1.
const EXTRA: u16 = 16;
/// Bytes of the token of a sealed message without its checksum: a header in the clear and one that is
/// encrypted, the filler and the confounder.
const AROUND_SEALED: usize = 64;
/// RRC of a token with encryption, MS-KILE 3.4.5.4.1.
const ROTATION: u16 = 28;

/// Flags of a token, RFC 4121 section 4.2.2.
const SENT_BY_ACCEPTOR: u8 = 1;
const SEALED: u8 = 2;
const ACCEPTOR_SUBKEY: u8 = 4;

/// One end of a context whose messages are protected.
pub(crate) struct Wrap {
    context: Context,
    own: End,
    sent: u64,
    received: u64,
    seed: [u8; 16],
}

impl Wrap {
    /// Makes the state of one end. `seed` are random bytes that no other context has. None for a
    /// key of RC4, whose tokens have another form.
    pub(crate) fn new(context: Context, own: End, seed: [u8; 16]) -> Option<Self> {
        if context.key.etype() == EncryptionType::Rc4Hmac {
            return None;
        }
        let [initiator, acceptor] = context.sequence.map(u64::from);
        let (sent, received) = match own {
            End::Initiator => (initiator, acceptor),
            End::Acceptor => (acceptor, initiator),
        };
        Some(Self { context, own, sent, received, seed })
    }

    /// Counts from this message on: a mechListMIC was the first message of both directions.
    #[must_use]
    pub(crate) const fn after_mic(mut self) -> Self {
        self.sent = self.sent.wrapping_add(1);
        self.received = self.received.wrapping_add(1);
        self
    }

    const fn other(&self) -> End {
        match self.own {
            End::Initiator => End::Acceptor,
            End::Acceptor => End::Initiator,
        }
    }

    /// Bytes of a token, for a message that is encrypted or not.
    pub(crate) const fn token_len(&self, is_sealed: bool) -> usize {
        let tag = self.context.key.etype().checksum_len();
        let around = if is_sealed { AROUND_SEALED } else { HEADER };
        around.saturating_add(tag)
    }

    /// Returns the MIC of the next message.
    pub(crate) fn sign(&mut self, message: &[u8]) -> Vec<u8> {
        let sequence = self.sent;
        self.sent = sequence.wrapping_add(1);
        self.context.mic_with(self.own, sequence, message)
    }

    /// True if `mic` is that of the peer's next message.
    pub(crate) fn verify(&mut self, message: &[u8], mic: &[u8]) -> bool {
        let expected = self.context.mic_with(self.other(), self.received, message);
        self.received = self.received.wrapping_add(1);
        same(&expected, mic)
    }

    fn header(&self, from: End, sequence: u64, rotation: u16) -> Vec<u8> {
        let by_acceptor = if from == End::Acceptor { SENT_BY_ACCEPTOR } else { 0 };
        let subkey = if self.context.is_acceptor_subkey { ACCEPTOR_SUBKEY } else { 0 };
        let mut header = Vec::with_capacity(HEADER);
        header.extend_from_slice(&WRAP);
        header.extend_from_slice(&[by_acceptor | SEALED | subkey, 0xff]);
        header.extend_from_slice(&EXTRA.to_be_bytes());
        header.extend_from_slice(&rotation.to_be_bytes());
        header.extend_from_slice(&sequence.to_be_bytes());
        header
    }

    /// Random bytes that only the two ends can compute.
    fn confounder(&self, sequence: u64) -> [u8; CONFOUNDER] {
        let mut bytes = zeroize::Zeroizing::new(self.context.key.expose().to_vec());
        bytes.extend_from_slice(&self.seed);
        bytes.extend_from_slice(&sequence.to_be_bytes());
        frevo_crypto::sha256(&bytes).first_chunk().copied().unwrap_or_default()
    }

    /// Encrypts the `body` of a message in place and signs all of it. Returns the token.
    pub(crate) fn seal(&mut self, message: &mut [u8], body: Range<usize>) -> Option<Vec<u8>> {
        let sequence = self.sent;
        self.sent = sequence.wrapping_add(1);
        let (head, rest) = message.split_at_mut_checked(body.start)?;
        let (plain, tail) = rest.split_at_mut_checked(body.len())?;
        let around = Surroundings { head, tail };
        let mut end = [0; EXTRA as usize].to_vec();
        end.extend(self.header(self.own, sequence, 0));
        let usage = usage(self.own);
        let confounder = self.confounder(sequence);
        let mut sealed = self.context.key.wrap(usage, &confounder, around, plain, &end)?;
        let turns = usize::from(EXTRA.saturating_add(ROTATION)).checked_rem(sealed.len())?;
        sealed.rotate_right(turns);
        let own = sealed.len().checked_sub(plain.len())?;
        let (token, cipher) = sealed.split_at_checked(own)?;
        plain.copy_from_slice(cipher);
        Some([&*self.header(self.own, sequence, ROTATION), token].concat())
    }

    /// Decrypts the `body` of the peer's next message in place; false if anything in the message or
    /// in its token was changed.
    pub(crate) fn unseal(&mut self, message: &mut [u8], body: Range<usize>, token: &[u8]) -> bool {
        let sequence = self.received;
        self.received = sequence.wrapping_add(1);
        self.open(sequence, message, body, token).is_some()
    }

    fn open(
        &self,
        sequence: u64,
        message: &mut [u8],
        body: Range<usize>,
        token: &[u8],
    ) -> Option<()> {
        let (header, own) = token.split_first_chunk::<HEADER>()?;
        let [_, _, _, _, extra0, extra1, rotation0, rotation1, ..] = *header;
        let extra = u16::from_be_bytes([extra0, extra1]);
        let rotation = u16::from_be_bytes([rotation0, rotation1]);
        // All fields except rotation and sequence number have only one valid value for this
        // message, so the whole header is compared with the expected one.
        if extra != EXTRA || *header != *self.header(self.other(), sequence, rotation) {
            return None;
        }
        let (head, rest) = message.split_at_mut_checked(body.start)?;
        let (text, tail) = rest.split_at_mut_checked(body.len())?;
        let mut sealed = [own, text].concat();
        let turns = usize::from(extra).checked_add(usize::from(rotation))?;
        let turns = turns.checked_rem(sealed.len())?;
        sealed.rotate_left(turns);
        let around = Surroundings { head, tail };
        let plain = self.context.key.unwrap(usage(self.other()), around, &sealed, text.len())?;
        let (opened, end) = plain.split_at_checked(text.len())?;
        let inner = end.get(usize::from(extra)..)?;
        // RFC 4121 section 4.2.4: the encrypted copy of the header must equal the header in the
        // clear, but with a rotation of 0.
        if inner != self.header(self.other(), sequence, 0) {
            return None;
        }
        text.copy_from_slice(opened);
        Some(())
    }
}

const fn usage(from: End) -> KeyUsage {
    match from {
        End::Initiator => KeyUsage::INITIATOR_SEAL,
        End::Acceptor => KeyUsage::ACCEPTOR_SEAL,
    }
}

impl fmt::Debug for Wrap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wrap(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kerberos::Key;

    fn ends(etype: EncryptionType) -> Option<(Wrap, Wrap)> {
        let key = Key::filled(etype, 3);
        let context = Context { key, is_acceptor_subkey: true, sequence: [5, 900] };
        let end = |own| Wrap::new(context.clone(), own, [1; 16]);
        Some((end(End::Initiator)?, end(End::Acceptor)?))
    }

    const MESSAGE: &[u8; 40] = b"headheadBODYBODYBODYBODYBODYBODYtailtail";

    #[test]
    fn messages_go_both_ways_in_their_order() {
        for etype in EncryptionType::ALL {
            let Some((mut client, mut server)) = ends(etype) else {
                assert_eq!(etype, EncryptionType::Rc4Hmac);
                continue;
            };
            for round in 0..3 {
                let (from, to) = (&mut client, &mut server);
                let mut message = *MESSAGE;
                let token = from.seal(&mut message, 8..32).unwrap();
                assert_eq!(token.len(), from.token_len(true), "{etype}");
                assert_eq!((&message[..8], &message[32..]), (&MESSAGE[..8], &MESSAGE[32..]));
                assert_ne!(message[8..32], MESSAGE[8..32]);
                assert!(to.unseal(&mut message, 8..32, &token), "{etype} {round}");
                assert_eq!(&message, MESSAGE);
                let mic = from.sign(MESSAGE);
                assert_eq!(mic.len(), from.token_len(false));
                assert!(to.verify(MESSAGE, &mic));
                let mut message = *MESSAGE;
                let token = server.seal(&mut message, 0..40).unwrap();
                assert!(client.unseal(&mut message, 0..40, &token));
            }
        }
    }

    /// The lengths that other programs have: 76 bytes for a sealed message with AES and SHA-1.
    #[test]
    fn the_form_of_a_token() {
        let (mut client, _) = ends(EncryptionType::Aes256Sha1).unwrap();
        assert_eq!((client.token_len(true), client.token_len(false)), (76, 28));
        let mut message = *MESSAGE;
        let token = client.seal(&mut message, 8..32).unwrap();
        assert_eq!(token[..16], [5, 4, 6, 0xff, 0, 16, 0, 28, 0, 0, 0, 0, 0, 0, 0, 5]);
    }

    #[test]
    fn a_changed_repeated_or_moved_message_is_refused() {
        let etype = EncryptionType::Aes128Sha1;
        let fresh = || ends(etype).unwrap();
        let sealed = || {
            let (mut client, server) = fresh();
            let mut message = *MESSAGE;
            let token = client.seal(&mut message, 8..32).unwrap();
            (server, message, token)
        };
        for at in 0..40 {
            let (mut server, mut message, token) = sealed();
            message[at] ^= 1;
            assert!(!server.unseal(&mut message, 8..32, &token), "{at}");
        }
        for at in 0..76 {
            let (mut server, mut message, mut token) = sealed();
            token[at] ^= 1;
            assert!(!server.unseal(&mut message, 8..32, &token), "{at}");
            let (mut server, mut message, token) = sealed();
            assert!(!server.unseal(&mut message, 8..32, &token[..at]), "{at}");
        }
        let (mut server, mut message, token) = sealed();
        let mut again = message;
        assert!(server.unseal(&mut message, 8..32, &token));
        assert!(!server.unseal(&mut again, 8..32, &token));
        // The client must not accept its own message if an attacker sends it back.
        let (mut client, _) = fresh();
        let mut message = *MESSAGE;
        let token = client.seal(&mut message, 8..32).unwrap();
        assert!(!client.unseal(&mut message, 8..32, &token));
        for cut in [0..41, 41..42, 8..33, 7..32] {
            let (mut server, mut message, token) = sealed();
            assert!(!server.unseal(&mut message, cut, &token));
        }
    }
}
