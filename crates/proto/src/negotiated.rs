//! The result of NEGOTIATE for a Connection.

use frevo_crypto::{
    Cipher, Derivation, NoSessionKey, PreauthHash, SessionKeys, SigningAlgorithm, SigningKey,
};
pub use frevo_wire::command::negotiate::Dialect;

use crate::protection::Compression;
use crate::rdma_transform::RdmaTransforms;

/// The result of NEGOTIATE, fixed for the life of the Connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Negotiated {
    /// Connection.Dialect, never the wildcard.
    pub dialect: Dialect,
    /// Connection.CipherId; None if both sides have none in common.
    pub cipher: Option<Cipher>,
    /// Connection.SigningAlgorithmId. See [`Self::default_signing_algorithm`].
    pub signing_algorithm: SigningAlgorithm,
    /// Connection.SupportsMultiCredit: LARGE_MTU on both sides.
    pub is_multi_credit: bool,
    /// Connection.MaxTransactSize, bytes.
    pub max_transact_size: u32,
    /// Connection.MaxReadSize, bytes.
    pub max_read_size: u32,
    /// Connection.MaxWriteSize, bytes.
    pub max_write_size: u32,
    /// Connection.RDMATransformIds.
    pub rdma_transforms: RdmaTransforms,
    /// Connection.CompressionIds and Connection.SupportsChainedCompression; None if nothing is
    /// compressed.
    pub compression: Option<Compression>,
}

impl Negotiated {
    /// Returns a dialect's signing algorithm without a negotiate context, MS-SMB2 3.1.4.1.
    pub const fn default_signing_algorithm(dialect: Dialect) -> SigningAlgorithm {
        match dialect {
            Dialect::SMB_2_0_2 | Dialect::SMB_2_1 => SigningAlgorithm::HmacSha256,
            _ => SigningAlgorithm::AesCmac,
        }
    }

    /// True for dialects of the 3.x family, which have encryption, channels and replay.
    pub const fn is_smb3(&self) -> bool {
        matches!(self.dialect, Dialect::SMB_3_0 | Dialect::SMB_3_0_2 | Dialect::SMB_3_1_1)
    }

    /// True for the dialect with the pre-authentication hash.
    pub const fn is_3_1_1(&self) -> bool {
        matches!(self.dialect, Dialect::SMB_3_1_1)
    }

    /// Returns the largest payload of a message in bytes.
    pub fn max_payload(&self) -> u32 {
        self.max_transact_size.max(self.max_read_size).max(self.max_write_size)
    }

    /// Derives the keys of a session on this Connection, or of a channel bound through it.
    /// `full_session_key` is the whole key from the authentication; `preauth` is the hash of the
    /// session (for a channel: of the binding), used only by 3.1.1.
    pub fn session_keys(
        &self,
        full_session_key: &[u8],
        preauth: &PreauthHash,
    ) -> Result<SessionKeys, NoSessionKey> {
        let derivation = if self.is_3_1_1() {
            Derivation::Smb311(preauth)
        } else if self.is_smb3() {
            Derivation::Smb30
        } else {
            Derivation::Smb2
        };
        SessionKeys::derive(derivation, full_session_key, self.cipher)
    }

    /// Expands the signing key of `keys` for this Connection's algorithm.
    pub fn signing_key(&self, keys: &SessionKeys) -> SigningKey {
        keys.signing_key(self.signing_algorithm)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn negotiated(dialect: Dialect) -> Negotiated {
        Negotiated {
            dialect,
            cipher: Some(Cipher::Aes128Ccm),
            signing_algorithm: Negotiated::default_signing_algorithm(dialect),
            is_multi_credit: true,
            max_transact_size: 1 << 20,
            max_read_size: 8 << 20,
            max_write_size: 4 << 20,
            rdma_transforms: RdmaTransforms::default(),
            compression: None,
        }
    }

    #[test]
    fn keys_follow_the_dialect() {
        let hash = PreauthHash::new();
        let keys = |dialect| negotiated(dialect).session_keys(&[7; 16], &hash).unwrap();
        let two = keys(Dialect::SMB_2_1);
        assert_eq!(two.signing.expose(), &[7; 16]);
        assert_eq!(two, keys(Dialect::SMB_2_0_2));
        assert_eq!(keys(Dialect::SMB_3_0), keys(Dialect::SMB_3_0_2));
        assert_ne!(keys(Dialect::SMB_3_0).signing, keys(Dialect::SMB_3_1_1).signing);
        let algorithm = |dialect| negotiated(dialect).signing_algorithm;
        assert_eq!(algorithm(Dialect::SMB_2_1), SigningAlgorithm::HmacSha256);
        assert_eq!(algorithm(Dialect::SMB_3_0), SigningAlgorithm::AesCmac);
        assert_eq!(algorithm(Dialect::SMB_3_1_1), SigningAlgorithm::AesCmac);
    }

    #[test]
    fn families() {
        assert!(!negotiated(Dialect::SMB_2_1).is_smb3());
        assert!(negotiated(Dialect::SMB_3_0).is_smb3());
        assert!(!negotiated(Dialect::SMB_3_0_2).is_3_1_1());
        assert!(negotiated(Dialect::SMB_3_1_1).is_3_1_1());
        assert_eq!(negotiated(Dialect::SMB_3_0).max_payload(), 8 << 20);
    }
}
