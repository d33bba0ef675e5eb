//! The keys of a session, MS-SMB2 3.1.4.2, 3.2.5.3 and 3.3.5.5.3.

use crate::out_of_memory;
use crate::{Cipher, OpeningKey, PreauthHash, SealingKey, Secret, Sender};
use crate::{SigningAlgorithm, SigningKey};
use alloc::vec::Vec;
use aws_lc_rs::kdf::{self, KbkdfCtrHmacAlgorithmId};
use core::fmt;

/// A dialect's way from the session key to other keys.
#[derive(Debug, Clone, Copy)]
pub enum Derivation<'a> {
    /// 2.0.2 and 2.1: the session key itself signs; there is no encryption.
    Smb2,
    /// 3.0 and 3.0.2: fixed contexts.
    Smb30,
    /// 3.1.1: the session's pre-authentication hash is the context.
    Smb311(&'a PreauthHash),
}

/// The authentication gave no key, as for some guests. A session without a key neither signs nor
/// seals.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NoSessionKey;

impl fmt::Display for NoSessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the authentication gave no session key")
    }
}

impl core::error::Error for NoSessionKey {}

/// The keys of a session as bytes, for [`Self::signing_key`], [`Self::sealing_key`] and
/// [`Self::opening_key`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionKeys {
    /// Session.SigningKey, which is also the signing key of the first channel.
    pub signing: Secret<16>,
    /// Session.ApplicationKey, for protocols above SMB (MS-SMB2 3.3.4.6, RPC).
    pub application: Secret<16>,
    /// The client's EncryptionKey and the server's DecryptionKey. The first [`Cipher::key_len`]
    /// bytes are the key. None without a cipher.
    pub client_to_server: Option<(Cipher, Secret<32>)>,
    /// The server's EncryptionKey and the client's DecryptionKey, in this form too.
    pub server_to_client: Option<(Cipher, Secret<32>)>,
}

impl SessionKeys {
    /// Derives the keys. `full_session_key` is the whole key from the authentication: its first 16
    /// bytes are Session.SessionKey, and AES-256 keys use all of it (Session.FullSessionKey).
    ///
    /// A channel bound to a session uses only [`Self::signing`], derived from the binding
    /// authentication's key and the binding's own hash.
    pub fn derive(
        derivation: Derivation<'_>,
        full_session_key: &[u8],
        cipher: Option<Cipher>,
    ) -> Result<Self, NoSessionKey> {
        if full_session_key.is_empty() {
            return Err(NoSessionKey);
        }
        let session_key = Secret::<16>::truncated(full_session_key);
        let derive16 = |label: &[u8], context: &[u8]| {
            let mut key = Secret::new([0; 16]);
            kbkdf(session_key.expose(), label, context, key.expose_mut());
            key
        };
        let derive_cipher = |label: &[u8], context: &[u8]| {
            cipher.map(|cipher| {
                let mut key = Secret::new([0; 32]);
                let material = match cipher.key_len() {
                    32 => full_session_key,
                    _ => session_key.expose(),
                };
                if let Some(out) = key.expose_mut().get_mut(..cipher.key_len()) {
                    kbkdf(material, label, context, out);
                }
                (cipher, key)
            })
        };
        // The labels, and the contexts of SMB 3.0, include their terminating zero (MS-SMB2
        // 3.1.4.2).
        Ok(match derivation {
            Derivation::Smb2 => Self {
                signing: session_key.clone(),
                application: session_key,
                client_to_server: None,
                server_to_client: None,
            },
            Derivation::Smb30 => Self {
                signing: derive16(b"SMB2AESCMAC\0", b"SmbSign\0"),
                application: derive16(b"SMB2APP\0", b"SmbRpc\0"),
                client_to_server: derive_cipher(b"SMB2AESCCM\0", b"ServerIn \0"),
                server_to_client: derive_cipher(b"SMB2AESCCM\0", b"ServerOut\0"),
            },
            Derivation::Smb311(hash) => Self {
                signing: derive16(b"SMBSigningKey\0", hash.as_bytes()),
                application: derive16(b"SMBAppKey\0", hash.as_bytes()),
                client_to_server: derive_cipher(b"SMBC2SCipherKey\0", hash.as_bytes()),
                server_to_client: derive_cipher(b"SMBS2CCipherKey\0", hash.as_bytes()),
            },
        })
    }

    /// Expands the signing key.
    pub fn signing_key(&self, algorithm: SigningAlgorithm) -> SigningKey {
        SigningKey::new(algorithm, self.signing.expose())
    }

    /// Returns the key with which `us` seals. To be called once for a session: the nonces begin
    /// again with every [`SealingKey`].
    pub fn sealing_key(&self, us: Sender) -> Option<SealingKey> {
        let keys = match us {
            Sender::Client => &self.client_to_server,
            Sender::Server => &self.server_to_client,
        };
        keys.as_ref().map(|(cipher, key)| SealingKey::new(*cipher, key.expose()))
    }

    /// Returns the key with which `us` opens the peer's messages.
    pub fn opening_key(&self, us: Sender) -> Option<OpeningKey> {
        let keys = match us {
            Sender::Client => &self.server_to_client,
            Sender::Server => &self.client_to_server,
        };
        keys.as_ref().map(|(cipher, key)| OpeningKey::new(*cipher, key.expose()))
    }
}

/// Computes SP800-108 in counter mode with HMAC-SHA256, r = 32, L = the bits of `out`.
///
/// Windows: L is the length of the key that is made: 128 for the signing and application keys
/// whatever the cipher. MS-SMB2 3.1.4.2 reads as if an AES-256 cipher changed L for all keys.
fn kbkdf(key: &[u8], label: &[u8], context: &[u8], out: &mut [u8]) {
    let bits = (out.len() as u32).saturating_mul(8).to_be_bytes();
    let info: Vec<u8> = [label, &[0], context, &bits].concat();
    kbkdf_fixed(key, &info, out);
}

/// Computes the derivation for whole fixed input data.
fn kbkdf_fixed(key: &[u8], info: &[u8], out: &mut [u8]) {
    let algorithm = kdf::get_kbkdf_ctr_hmac_algorithm(KbkdfCtrHmacAlgorithmId::Sha256);
    match algorithm.map(|algorithm| kdf::kbkdf_ctr_hmac(algorithm, key, info, out)) {
        Some(Ok(())) => {}
        _ => out_of_memory(),
    }
}

#[cfg(test)]
mod tests;
