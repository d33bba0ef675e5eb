//! A key, and its operations under a usage.

use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;

use aws_lc_rs::hmac;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

use super::derive::{Hash, Purpose, same};
use super::etype::{CONFOUNDER_LEN, EncryptionType, KeyUsage};
use super::{cts, rc4_hmac, string_to_key};

/// A key with its encryption type. It is wiped when dropped, cannot be printed, and is compared in
/// constant time.
#[derive(Clone)]
pub struct KerberosKey {
    etype: EncryptionType,
    bytes: KeyBytes,
}

/// The bytes of a key; the first [`EncryptionType::key_len`] count.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
struct KeyBytes([u8; 32]);

impl KerberosKey {
    /// Takes the bytes of a key; the caller has to wipe its own copy. None for a wrong length.
    pub fn new(etype: EncryptionType, bytes: &[u8]) -> Option<Self> {
        if bytes.len() != etype.key_len() {
            return None;
        }
        let mut key = KeyBytes([0; 32]);
        for (to, from) in key.0.iter_mut().zip(bytes) {
            *to = *from;
        }
        Some(Self { etype, bytes: key })
    }

    /// Makes a key that everybody knows, for tests: all of its bytes are `byte`.
    pub const fn filled(etype: EncryptionType, byte: u8) -> Self {
        Self { etype, bytes: KeyBytes([byte; 32]) }
    }

    /// Derives the key of a password. `salt` is the realm and the components of the principal's
    /// name, or the salt that a KDC tells. `parameters` are s2kparams of a KDC, four bytes of
    /// iterations; None means the type's own number. RC4 ignores the salt.
    ///
    /// None for parameters of another form, for fewer iterations than the type's own number, which
    /// would give the password away to a false KDC, and for more than
    /// [`KERBEROS_ITERATIONS_MAX`](crate::limits::KERBEROS_ITERATIONS_MAX).
    pub fn from_password(
        etype: EncryptionType,
        password: &str,
        salt: &[u8],
        parameters: Option<&[u8]>,
    ) -> Option<Self> {
        let iterations = string_to_key::iterations(etype, parameters)?;
        Self::new(etype, string_to_key::derive(etype, password, salt, iterations).as_bytes())
    }

    /// Derives the key of a password with this number of iterations.
    pub fn stretch(
        etype: EncryptionType,
        password: &str,
        salt: &[u8],
        iterations: NonZeroU32,
    ) -> Option<Self> {
        Self::new(etype, string_to_key::derive(etype, password, salt, iterations).as_bytes())
    }

    /// Returns the encryption type.
    pub const fn etype(&self) -> EncryptionType {
        self.etype
    }

    /// Returns the bytes for a computation.
    pub fn expose(&self) -> &[u8] {
        self.bytes.0.get(..self.etype.key_len()).unwrap_or_default()
    }

    /// Encrypts `plain`. `confounder` are random bytes that were never used before.
    pub fn encrypt(
        &self,
        usage: KeyUsage,
        confounder: &[u8; CONFOUNDER_LEN],
        plain: &[u8],
    ) -> Vec<u8> {
        let Some(hash) = Hash::of(self.etype) else {
            return rc4_hmac::encrypt(self.expose(), usage, confounder, plain);
        };
        let cipher_key = hash.derive(self.expose(), usage, Purpose::Encryption);
        let sign_key = hash.derive(self.expose(), usage, Purpose::Integrity);
        let message = Zeroizing::new([&confounder[..], plain].concat());
        let mut sealed = cts::encrypt(&cipher_key, &message);
        // RFC 3962 signs the plaintext; RFC 8009 section 5 signs the IV and the ciphertext.
        let tag = match hash {
            Hash::Sha1 => hash.sign(&sign_key, &[&message]),
            Hash::Sha256 | Hash::Sha384 => hash.sign(&sign_key, &[&cts::IV, &sealed]),
        };
        sealed.extend(truncated(&tag, self.etype.checksum_len()));
        sealed
    }

    /// Decrypts what [`Self::encrypt`] made. None if it was made with another key, for another
    /// usage, or was changed.
    pub fn decrypt(&self, usage: KeyUsage, sealed: &[u8]) -> Option<Zeroizing<Vec<u8>>> {
        let Some(hash) = Hash::of(self.etype) else {
            return rc4_hmac::decrypt(self.expose(), usage, sealed);
        };
        let length = sealed.len().checked_sub(self.etype.checksum_len())?;
        let (cipher_text, tag) = sealed.split_at_checked(length)?;
        if cipher_text.len() < CONFOUNDER_LEN {
            return None;
        }
        let sign_key = hash.derive(self.expose(), usage, Purpose::Integrity);
        let cipher_key = || hash.derive(self.expose(), usage, Purpose::Encryption);
        let mut plain = match hash {
            Hash::Sha1 => {
                let plain = cts::decrypt(&cipher_key(), cipher_text)?;
                same(truncated(&hash.sign(&sign_key, &[&plain]), tag.len()), tag)?;
                plain
            }
            Hash::Sha256 | Hash::Sha384 => {
                let expected = hash.sign(&sign_key, &[&cts::IV, cipher_text]);
                same(truncated(&expected, tag.len()), tag)?;
                cts::decrypt(&cipher_key(), cipher_text)?
            }
        };
        // The confounder is removed in place, so that no second copy of the plaintext exists.
        plain.copy_within(CONFOUNDER_LEN.., 0);
        let length = plain.len().checked_sub(CONFOUNDER_LEN)?;
        plain.truncate(length);
        Some(plain)
    }

    /// Returns the keyed checksum of `data`, of the type [`EncryptionType::checksum_type`].
    pub fn checksum(&self, usage: KeyUsage, data: &[u8]) -> Vec<u8> {
        match Hash::of(self.etype) {
            None => rc4_hmac::checksum(self.expose(), usage, data).to_vec(),
            Some(hash) => {
                let key = hash.derive(self.expose(), usage, Purpose::Checksum);
                truncated(&hash.sign(&key, &[data]), self.etype.checksum_len()).to_vec()
            }
        }
    }

    /// True if `checksum` is what [`Self::checksum`] returns for `data`, compared in constant time.
    pub fn verify(&self, usage: KeyUsage, data: &[u8], checksum: &[u8]) -> bool {
        same(&self.checksum(usage, data), checksum).is_some()
    }
}

impl PartialEq for KerberosKey {
    fn eq(&self, other: &Self) -> bool {
        self.etype == other.etype && same(self.expose(), other.expose()).is_some()
    }
}

impl Eq for KerberosKey {}

impl fmt::Debug for KerberosKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "KerberosKey({}, ..)", self.etype)
    }
}

fn truncated(tag: &hmac::Tag, length: usize) -> &[u8] {
    tag.as_ref().get(..length).unwrap_or_default()
}
