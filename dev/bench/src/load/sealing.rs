//! Sealed requests and replies. Of a reply the header alone is decrypted while a round runs: both
//! ciphers encrypt in counter mode, whose first blocks need no others.

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128, Block};
use anyhow::{Context, Result, bail, ensure};
use frevo_crypto::{Cipher, OpeningKey, SealingKey, Sender};
use frevo_proto::protection::transform::{HEADROOM, seal_frame, unseal_frame};
use frevo_wire::transform::{TRANSFORM_HEADER_LEN, TransformHeader};

use crate::client::SealingKeys;

/// Bytes of a header, which four blocks of the cipher hold.
const HEADER_LEN: usize = 64;

/// The keys of one session.
pub(super) struct Sealing {
    cipher: Cipher,
    session_id: u64,
    to_server: [u8; 32],
    /// For requests that are sealed when they are sent.
    sealing: SealingKey,
    opening: OpeningKey,
    /// The cipher's block function, for headers of replies.
    block: Aes128,
}

impl Sealing {
    pub(super) fn new(keys: &SealingKeys, session_id: u64) -> Result<Self> {
        let cipher = match keys.cipher {
            smb2::crypto::encryption::Cipher::Aes128Ccm => Cipher::Aes128Ccm,
            smb2::crypto::encryption::Cipher::Aes128Gcm => Cipher::Aes128Gcm,
            other => bail!("the server has chosen {other:?}"),
        };
        let padded = |key: &[u8]| -> Result<[u8; 32]> {
            let mut padded = [0; 32];
            padded.get_mut(..key.len()).context("a key is too long")?.copy_from_slice(key);
            Ok(padded)
        };
        let (to_server, from_server) = (padded(&keys.to_server)?, padded(&keys.from_server)?);
        let block = Aes128::new_from_slice(&keys.from_server)
            .map_err(|_| anyhow::anyhow!("a key of {} bytes", keys.from_server.len()))?;
        Ok(Self {
            cipher,
            session_id,
            to_server,
            sealing: SealingKey::new(cipher, &to_server),
            opening: OpeningKey::new(cipher, &from_server),
            block,
        })
    }

    pub(super) const fn cipher(&self) -> Cipher {
        self.cipher
    }

    /// Returns `message` as a sealed frame with its prefix.
    pub(super) fn seal(&self, message: &[u8]) -> Result<Vec<u8>> {
        let mut frame = vec![0; HEADROOM];
        frame.extend_from_slice(message);
        seal_frame(&mut frame, &self.sealing, self.session_id)?;
        Ok(frame)
    }

    /// Seals like [`Self::seal`], but always with the first nonce: then equal payloads at equal places
    /// stay equal, and one file in memory holds them for all requests. Nothing here is secret.
    pub(super) fn seal_alike(&self, frame: &mut [u8]) -> Result<()> {
        let first = SealingKey::new(self.cipher, &self.to_server);
        Ok(seal_frame(frame, &first, self.session_id)?)
    }

    /// Decrypts the header of a reply; `head` begins with its transform header.
    pub(super) fn header(&self, head: &[u8]) -> Result<[u8; HEADER_LEN]> {
        let transform = TransformHeader::parse(head)?;
        let sealed = head.get(TRANSFORM_HEADER_LEN..).context("a reply that is not sealed")?;
        let mut header: [u8; HEADER_LEN] =
            *sealed.first_chunk().context("a reply without a header")?;
        let (blocks, _) = header.as_chunks_mut::<16>();
        for (n, text) in (0u8..).zip(blocks) {
            let mut key = Block::from(counter_block(self.cipher, &transform.nonce, n));
            self.block.encrypt_block(&mut key);
            text.iter_mut().zip(key).for_each(|(byte, mask)| *byte ^= mask);
        }
        Ok(header)
    }

    /// Unseals a whole reply; returns its message.
    pub(super) fn open<'a>(&self, frame: &'a mut [u8]) -> Result<&'a [u8]> {
        let unsealed = unseal_frame(frame, Sender::Server, |_| Some(&self.opening));
        let unsealed = unsealed.map_err(|e| anyhow::anyhow!("a reply that was sealed: {e:?}"))?;
        ensure!(unsealed.session_id == self.session_id, "a reply of another session");
        frame.get(unsealed.message).context("a message")
    }
}

/// The block whose encryption masks block `n` of a message: of GCM (NIST SP 800-38D 7.1) and CCM (RFC
/// 3610 2.3, with a length field of 4 bytes).
fn counter_block(cipher: Cipher, nonce: &[u8; 16], n: u8) -> [u8; 16] {
    let mut block = [0; 16];
    let used = cipher.nonce_len();
    match cipher {
        Cipher::Aes128Gcm | Cipher::Aes256Gcm => {
            block[..used].copy_from_slice(&nonce[..used]);
            block[15] = 2 + n;
        }
        Cipher::Aes128Ccm | Cipher::Aes256Ccm => {
            block[0] = 3;
            block[1..=used].copy_from_slice(&nonce[..used]);
            block[15] = 1 + n;
        }
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sealing(cipher: smb2::crypto::encryption::Cipher) -> Sealing {
        // Requests and replies are encrypted with one key, so that the bench can decrypt both of
        // them.
        let key: Vec<u8> = (1..=16).collect();
        Sealing::new(&SealingKeys { cipher, to_server: key.clone(), from_server: key }, 77).unwrap()
    }

    const CIPHERS: [smb2::crypto::encryption::Cipher; 2] =
        [smb2::crypto::encryption::Cipher::Aes128Gcm, smb2::crypto::encryption::Cipher::Aes128Ccm];

    #[test]
    fn headers_are_decrypted_alone() {
        for cipher in CIPHERS {
            let message: Vec<u8> = (0..200).collect();
            let sealing = sealing(cipher);
            for _ in 0..2 {
                let frame = sealing.seal(&message).unwrap();
                assert_eq!(sealing.header(&frame[4..]).unwrap()[..], message[..HEADER_LEN]);
            }
        }
    }

    #[test]
    fn payloads_that_are_sealed_alike_are_equal() {
        for cipher in CIPHERS {
            let sealing = sealing(cipher);
            let frame = |first: u8| {
                let mut frame = vec![0; HEADROOM];
                frame.extend((0..200).map(|n| if n < 112 { first ^ n } else { n }));
                sealing.seal_alike(&mut frame).unwrap();
                frame
            };
            let (one, other) = (frame(0), frame(1));
            assert_eq!(one[HEADROOM + 112..], other[HEADROOM + 112..]);
            assert_ne!(one[..HEADROOM + 112], other[..HEADROOM + 112]);
        }
    }
}
