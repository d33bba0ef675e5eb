//! Encryption and signatures of data that moves by RDMA: MS-SMB2 2.2.43, 3.2.4.7, 3.2.5.11,
//! 3.3.5.12 and 3.3.5.13.
//!
//! The signature and the nonce of the data are in the message of the request or the response, which
//! has the same protection: so they belong to that message, and the data to them.
//!
//! Deviation: signatures of data are AES-GMAC only. With AES-CMAC and HMAC-SHA256 the specification
//! signs the bare data with the key that signs messages. Who writes a file whose content looks like
//! a message would get the signature of that message.

use alloc::vec::Vec;

use frevo_crypto::{
    BadSeal, Cipher, DataNonce, KeyExhausted, OpeningKey, SIGNATURE_LEN, SealingKey,
    SigningAlgorithm, SigningKey,
};
use frevo_wire::negotiate_context::RdmaTransformId;
use frevo_wire::rdma_transform::{RdmaCryptoTransform, RdmaTransform, RdmaTransformType};

use crate::protection::Protection;

/// Connection.RDMATransformIds. The default is an empty list.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct RdmaTransforms {
    /// SMB2_RDMA_TRANSFORM_ENCRYPTION
    pub encryption: bool,
    /// SMB2_RDMA_TRANSFORM_SIGNING
    pub signing: bool,
}

/// The data must not move by RDMA, because it would be without protection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unprotected;

impl RdmaTransforms {
    /// All transforms, as a client offers them.
    pub const ALL: Self = Self { encryption: true, signing: true };

    /// Returns those of `ids` that can be used with these algorithms.
    pub fn common(
        ids: &[RdmaTransformId],
        cipher: Option<Cipher>,
        signing: SigningAlgorithm,
    ) -> Self {
        Self {
            encryption: ids.contains(&RdmaTransformId::ENCRYPTION) && cipher.is_some(),
            signing: ids.contains(&RdmaTransformId::SIGNING)
                && signing == SigningAlgorithm::AesGmac,
        }
    }

    /// Returns RDMATransformIds for a negotiate context. MS-SMB2 3.3.5.4: an empty list is
    /// SMB2_RDMA_TRANSFORM_NONE there.
    pub fn ids(self) -> Vec<RdmaTransformId> {
        let mut ids = Vec::new();
        if self.encryption {
            ids.push(RdmaTransformId::ENCRYPTION);
        }
        if self.signing {
            ids.push(RdmaTransformId::SIGNING);
        }
        if ids.is_empty() {
            ids.push(RdmaTransformId::NONE);
        }
        ids
    }

    /// Returns the transform that the data of a message with this protection needs; `None` if it
    /// needs none.
    pub const fn needed(
        self,
        protection: Protection,
    ) -> Result<Option<RdmaTransformType>, Unprotected> {
        match protection {
            Protection::None => Ok(None),
            Protection::Sealed if self.encryption => Ok(Some(RdmaTransformType::ENCRYPTION)),
            Protection::Signed if self.signing => Ok(Some(RdmaTransformType::SIGNING)),
            _ => Err(Unprotected),
        }
    }
}

/// The fields of SMB2_RDMA_CRYPTO_TRANSFORM for data that this side protects or has received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataProof {
    kind: RdmaTransformType,
    signature: [u8; SIGNATURE_LEN],
    /// Zeros behind its length.
    nonce: [u8; 16],
    nonce_len: usize,
}

/// A length in SMB2_RDMA_CRYPTO_TRANSFORM is not that of the algorithm.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct WrongLength;

impl DataProof {
    /// Encrypts `data` in place, MS-SMB2 3.2.4.7 and 3.3.5.12. The nonces are those of messages: the
    /// key never sees one twice.
    pub fn encrypt(data: &mut [u8], key: &SealingKey) -> Result<Self, KeyExhausted> {
        let nonce = key.next_nonce()?;
        let field = *nonce.field();
        let signature = key.seal(nonce, &[], data);
        Ok(Self {
            kind: RdmaTransformType::ENCRYPTION,
            signature,
            nonce: field,
            nonce_len: key.cipher().nonce_len(),
        })
    }

    /// Signs `data`. `None` if the key's algorithm is not AES-GMAC.
    pub fn sign(data: &[u8], key: &SigningKey, nonce: DataNonce) -> Option<Self> {
        let mut field = [0; 16];
        field.iter_mut().zip(nonce.field()).for_each(|(to, from)| *to = *from);
        let signature = key.data_signature(data, nonce)?;
        let kind = RdmaTransformType::SIGNING;
        Some(Self { kind, signature, nonce: field, nonce_len: DataNonce::LEN })
    }

    /// Takes over a received transform. `cipher` is Connection.CipherId.
    pub fn received(
        transform: &RdmaCryptoTransform<'_>,
        cipher: Option<Cipher>,
    ) -> Result<Self, WrongLength> {
        let kind = transform.transform_type;
        let nonce_len = match (kind, cipher) {
            (RdmaTransformType::SIGNING, _) => DataNonce::LEN,
            (_, Some(cipher)) => cipher.nonce_len(),
            (_, None) => return Err(WrongLength),
        };
        // MS-SMB2 3.3.5.13 refuses only longer signatures, but a shorter one is easier to forge, so
        // it is refused too.
        let signature = transform.signature.try_into().map_err(|_| WrongLength)?;
        if transform.nonce.len() != nonce_len {
            return Err(WrongLength);
        }
        let mut nonce = [0; 16];
        nonce.iter_mut().zip(transform.nonce).for_each(|(to, from)| *to = *from);
        Ok(Self { kind, signature, nonce, nonce_len })
    }

    /// Returns the kind of protection.
    pub const fn kind(&self) -> RdmaTransformType {
        self.kind
    }

    /// Returns the transform for a message.
    pub fn transform(&self) -> RdmaCryptoTransform<'_> {
        RdmaCryptoTransform {
            transform_type: self.kind,
            signature: &self.signature,
            nonce: self.nonce.get(..self.nonce_len).unwrap_or_default(),
        }
    }

    /// Decrypts received data in place. After an error its contents must not be used. Nobody else
    /// may be able to change it any more.
    pub fn decrypt(&self, data: &mut [u8], key: &OpeningKey) -> Result<(), BadSeal> {
        if self.kind != RdmaTransformType::ENCRYPTION {
            return Err(BadSeal);
        }
        key.open(&self.nonce, &[], data, &self.signature)
    }

    /// True if received data has this signature. Nobody else may be able to change it any more.
    pub fn is_of(&self, data: &[u8], key: &SigningKey) -> bool {
        self.kind == RdmaTransformType::SIGNING
            && self
                .nonce
                .first_chunk()
                .is_some_and(|nonce| key.verifies_data(data, nonce, &self.signature))
    }
}

/// Returns the transform of a message whose data must have one of kind `needed`; `None` if there is
/// another, or more than one: MS-SMB2 3.2.5.11, 3.3.5.13.
pub fn sole<'a>(
    transform: &RdmaTransform<'a>,
    needed: RdmaTransformType,
) -> Option<RdmaCryptoTransform<'a>> {
    match *transform.transforms {
        [only] if only.transform_type == needed => Some(only),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
