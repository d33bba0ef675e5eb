//! Choices that client and server negotiate: dialects and algorithms.

use std::fmt;

/// A version of the SMB protocol. Newer ones are greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Dialect {
    /// SMB 2.0.2: Windows Vista, Server 2008.
    Smb202,
    /// SMB 2.1: Windows 7, Server 2008 R2.
    Smb210,
    /// SMB 3.0: Windows 8, Server 2012.
    Smb300,
    /// SMB 3.0.2: Windows 8.1, Server 2012 R2.
    Smb302,
    /// SMB 3.1.1: Windows 10, Server 2016 and later.
    Smb311,
}

impl Dialect {
    /// Every dialect, the oldest first.
    pub(crate) const ALL: [Self; 5] =
        [Self::Smb202, Self::Smb210, Self::Smb300, Self::Smb302, Self::Smb311];

    pub(crate) const fn wire(self) -> frevo_proto::Dialect {
        match self {
            Self::Smb202 => frevo_proto::Dialect::SMB_2_0_2,
            Self::Smb210 => frevo_proto::Dialect::SMB_2_1,
            Self::Smb300 => frevo_proto::Dialect::SMB_3_0,
            Self::Smb302 => frevo_proto::Dialect::SMB_3_0_2,
            Self::Smb311 => frevo_proto::Dialect::SMB_3_1_1,
        }
    }
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Smb202 => "SMB 2.0.2",
            Self::Smb210 => "SMB 2.1",
            Self::Smb300 => "SMB 3.0",
            Self::Smb302 => "SMB 3.0.2",
            Self::Smb311 => "SMB 3.1.1",
        })
    }
}

#[doc(hidden)]
impl From<frevo_proto::Dialect> for Dialect {
    /// An unknown number is the newest known dialect that is not newer.
    fn from(wire: frevo_proto::Dialect) -> Self {
        let not_newer = |known: &Self| known.wire().0 <= wire.0;
        Self::ALL.into_iter().rfind(not_newer).unwrap_or(Self::Smb202)
    }
}

/// A cipher for encrypted sessions and shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Cipher {
    /// AES-128-CCM: the only cipher of SMB 3.0 and 3.0.2.
    Aes128Ccm,
    /// AES-128-GCM, since SMB 3.1.1.
    Aes128Gcm,
    /// AES-256-CCM, since SMB 3.1.1 of Windows Server 2022.
    Aes256Ccm,
    /// AES-256-GCM, since SMB 3.1.1 of Windows Server 2022.
    Aes256Gcm,
}

impl Cipher {
    pub(crate) const fn wire(self) -> frevo_crypto::Cipher {
        match self {
            Self::Aes128Ccm => frevo_crypto::Cipher::Aes128Ccm,
            Self::Aes128Gcm => frevo_crypto::Cipher::Aes128Gcm,
            Self::Aes256Ccm => frevo_crypto::Cipher::Aes256Ccm,
            Self::Aes256Gcm => frevo_crypto::Cipher::Aes256Gcm,
        }
    }

    pub(crate) const fn of_wire(cipher: frevo_crypto::Cipher) -> Self {
        match cipher {
            frevo_crypto::Cipher::Aes128Ccm => Self::Aes128Ccm,
            frevo_crypto::Cipher::Aes128Gcm => Self::Aes128Gcm,
            frevo_crypto::Cipher::Aes256Ccm => Self::Aes256Ccm,
            frevo_crypto::Cipher::Aes256Gcm => Self::Aes256Gcm,
        }
    }
}

impl fmt::Display for Cipher {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Aes128Ccm => "AES-128-CCM",
            Self::Aes128Gcm => "AES-128-GCM",
            Self::Aes256Ccm => "AES-256-CCM",
            Self::Aes256Gcm => "AES-256-GCM",
        })
    }
}

/// An algorithm that signs messages which are not encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SigningAlgorithm {
    /// HMAC-SHA256: SMB 2.0.2 and 2.1.
    HmacSha256,
    /// AES-CMAC: SMB 3.0 and 3.0.2, and SMB 3.1.1 where nothing is negotiated.
    AesCmac,
    /// AES-GMAC: SMB 3.1.1 only; the fastest.
    AesGmac,
}

impl SigningAlgorithm {
    pub(crate) const fn wire(self) -> frevo_crypto::SigningAlgorithm {
        match self {
            Self::HmacSha256 => frevo_crypto::SigningAlgorithm::HmacSha256,
            Self::AesCmac => frevo_crypto::SigningAlgorithm::AesCmac,
            Self::AesGmac => frevo_crypto::SigningAlgorithm::AesGmac,
        }
    }

    pub(crate) const fn of_wire(algorithm: frevo_crypto::SigningAlgorithm) -> Self {
        match algorithm {
            frevo_crypto::SigningAlgorithm::HmacSha256 => Self::HmacSha256,
            frevo_crypto::SigningAlgorithm::AesCmac => Self::AesCmac,
            frevo_crypto::SigningAlgorithm::AesGmac => Self::AesGmac,
        }
    }
}

impl fmt::Display for SigningAlgorithm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::HmacSha256 => "HMAC-SHA256",
            Self::AesCmac => "AES-CMAC",
            Self::AesGmac => "AES-GMAC",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dialects_are_in_the_order_of_their_age() {
        assert!(Dialect::ALL.is_sorted());
        for dialect in Dialect::ALL {
            assert_eq!(Dialect::from(dialect.wire()), dialect);
        }
        assert_eq!(Dialect::Smb302.to_string(), "SMB 3.0.2");
    }
}
