//! Numbers that Kerberos assigns: encryption types and key usages.

use core::fmt;

/// Bytes of random data before each plain text. RC4-HMAC uses the first eight.
pub const CONFOUNDER_LEN: usize = 16;

/// An encryption type, RFC 3961 section 8. DES and triple DES do not exist here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum EncryptionType {
    /// aes128-cts-hmac-sha1-96, RFC 3962.
    Aes128Sha1,
    /// aes256-cts-hmac-sha1-96, RFC 3962.
    Aes256Sha1,
    /// aes128-cts-hmac-sha256-128, RFC 8009.
    Aes128Sha2,
    /// aes256-cts-hmac-sha384-192, RFC 8009.
    Aes256Sha2,
    /// rc4-hmac, RFC 4757. Its key is the NT hash of the password.
    Rc4Hmac,
}

impl EncryptionType {
    /// All types, the best first.
    pub const ALL: [Self; 5] =
        [Self::Aes256Sha2, Self::Aes128Sha2, Self::Aes256Sha1, Self::Aes128Sha1, Self::Rc4Hmac];

    /// Returns the type with this assigned number.
    pub const fn from_number(number: i32) -> Option<Self> {
        Some(match number {
            17 => Self::Aes128Sha1,
            18 => Self::Aes256Sha1,
            19 => Self::Aes128Sha2,
            20 => Self::Aes256Sha2,
            23 => Self::Rc4Hmac,
            _ => return None,
        })
    }

    /// Returns the assigned number.
    pub const fn number(self) -> i32 {
        match self {
            Self::Aes128Sha1 => 17,
            Self::Aes256Sha1 => 18,
            Self::Aes128Sha2 => 19,
            Self::Aes256Sha2 => 20,
            Self::Rc4Hmac => 23,
        }
    }

    /// Returns the assigned number of the type's checksum.
    pub const fn checksum_type(self) -> i32 {
        match self {
            Self::Aes128Sha1 => 15,
            Self::Aes256Sha1 => 16,
            Self::Aes128Sha2 => 19,
            Self::Aes256Sha2 => 20,
            // RFC 4757 section 4: -138 is the number of RC4's checksum, HMAC-MD5.
            Self::Rc4Hmac => -138,
        }
    }

    /// Returns the name in krb5.conf and in messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Aes128Sha1 => "aes128-cts-hmac-sha1-96",
            Self::Aes256Sha1 => "aes256-cts-hmac-sha1-96",
            Self::Aes128Sha2 => "aes128-cts-hmac-sha256-128",
            Self::Aes256Sha2 => "aes256-cts-hmac-sha384-192",
            Self::Rc4Hmac => "rc4-hmac",
        }
    }

    /// Returns the length of a key in bytes.
    pub const fn key_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha2 | Self::Rc4Hmac => 16,
            Self::Aes256Sha1 | Self::Aes256Sha2 => 32,
        }
    }

    /// Returns the length of a checksum in bytes.
    pub const fn checksum_len(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 12,
            Self::Aes128Sha2 | Self::Rc4Hmac => 16,
            Self::Aes256Sha2 => 24,
        }
    }

    /// Returns the bytes by which encryption lengthens a plain text.
    pub const fn overhead(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 28,
            Self::Aes128Sha2 => 32,
            Self::Aes256Sha2 => 40,
            Self::Rc4Hmac => 24,
        }
    }
}

impl fmt::Display for EncryptionType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A key usage number, RFC 4120 section 7.5.1. A ciphertext or checksum is good for one usage only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct KeyUsage(pub u32);

impl KeyUsage {
    /// PA-ENC-TIMESTAMP of an AS-REQ, under the client's key.
    pub const AS_REQ_TIMESTAMP: Self = Self(1);
    /// The encrypted part of a ticket, under the service's key.
    pub const TICKET: Self = Self(2);
    /// The encrypted part of an AS-REP, under the client's key.
    pub const AS_REP: Self = Self(3);
    /// Authorization data of a TGS-REQ, under the session key.
    pub const TGS_REQ_DATA_SESSION_KEY: Self = Self(4);
    /// Authorization data of a TGS-REQ, under the authenticator's subkey.
    pub const TGS_REQ_DATA_SUBKEY: Self = Self(5);
    /// The checksum in the authenticator of a TGS-REQ, under the session key.
    pub const TGS_REQ_CHECKSUM: Self = Self(6);
    /// The authenticator of a TGS-REQ, under the session key.
    pub const TGS_REQ_AUTHENTICATOR: Self = Self(7);
    /// The encrypted part of a TGS-REP, under the session key.
    pub const TGS_REP_SESSION_KEY: Self = Self(8);
    /// The encrypted part of a TGS-REP, under the authenticator's subkey.
    pub const TGS_REP_SUBKEY: Self = Self(9);
    /// The checksum in the authenticator of an AP-REQ, under the session key.
    pub const AP_REQ_CHECKSUM: Self = Self(10);
    /// The authenticator of an AP-REQ, under the session key.
    pub const AP_REQ_AUTHENTICATOR: Self = Self(11);
    /// The encrypted part of an AP-REP, under the session key.
    pub const AP_REP: Self = Self(12);
    /// The encrypted part of a KRB-PRIV.
    pub const PRIVATE: Self = Self(13);
    /// Signatures of a PAC: KERB_NON_KERB_CKSUM_SALT of MS-KILE 3.1.5.9.
    pub const PAC: Self = Self(17);
    /// A MIC of the acceptor, RFC 4121 section 2.
    pub const ACCEPTOR_SIGN: Self = Self(23);
    /// KG-USAGE-ACCEPTOR-SEAL, RFC 4121 section 2.
    pub const ACCEPTOR_SEAL: Self = Self(22);
    /// KG-USAGE-INITIATOR-SEAL, RFC 4121 section 2.
    pub const INITIATOR_SEAL: Self = Self(24);
    /// A MIC of the initiator, RFC 4121 section 2.
    pub const INITIATOR_SIGN: Self = Self(25);
}
