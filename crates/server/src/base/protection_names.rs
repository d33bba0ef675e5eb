//! Names of dialects and algorithms in logs and for the admin interface.

use frevo_crypto::{Cipher, SigningAlgorithm};
use frevo_proto::Dialect;

/// Returns the version of SMB, such as "3.1.1".
pub(crate) fn dialect_name(dialect: Dialect) -> &'static str {
    match dialect {
        Dialect::SMB_2_0_2 => "2.0.2",
        Dialect::SMB_2_1 => "2.1",
        Dialect::SMB_3_0 => "3.0",
        Dialect::SMB_3_0_2 => "3.0.2",
        Dialect::SMB_3_1_1 => "3.1.1",
        _ => "unknown",
    }
}

/// Returns the name of a cipher, such as "AES-128-GCM".
pub(crate) const fn cipher_name(cipher: Cipher) -> &'static str {
    match cipher {
        Cipher::Aes128Ccm => "AES-128-CCM",
        Cipher::Aes128Gcm => "AES-128-GCM",
        Cipher::Aes256Ccm => "AES-256-CCM",
        Cipher::Aes256Gcm => "AES-256-GCM",
    }
}

/// Returns the name of an algorithm, such as "AES-GMAC".
pub(crate) const fn signing_name(algorithm: SigningAlgorithm) -> &'static str {
    match algorithm {
        SigningAlgorithm::HmacSha256 => "HMAC-SHA256",
        SigningAlgorithm::AesCmac => "AES-CMAC",
        SigningAlgorithm::AesGmac => "AES-GMAC",
    }
}
