//! Signing, sealing and key derivation for SMB 3.x, in place, on slices; and Kerberos encryption.
//!
//! Keys are expanded once, when they are made, and used from any thread through `&self`; they
//! cannot be printed and are wiped when dropped. A nonce belongs to the key for which it is unique.
//! Nothing here reads a clock or a random source.
//!
//! AWS-LC computes SHA-512, HMAC, GCM and the key derivation. AWS-LC's safe interface has no CCM
//! with 11-byte nonces, and its CMAC signs one message at a time, so these two are composed here
//! (`sealing/ccm.rs`, `signing/cmac.rs`) over the AES of RustCrypto, and of several sealed messages at
//! once over `frevo-aes-lanes`.
#![no_std]
#![forbid(unsafe_code)]
#![deny(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::arithmetic_side_effects
)]
#![cfg_attr(
    test,
    allow(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::indexing_slicing,
        clippy::panic,
        clippy::arithmetic_side_effects
    )
)]

extern crate alloc;
#[cfg(test)]
extern crate std;

mod cbc;
mod chain;
mod derivation;
mod hash;
mod kerberos;
pub mod limits;
mod nonce;
mod password;
mod preauth;
mod sealing;
mod secret;
mod signing;
mod stored;

pub use cbc::{hkdf_key, open_cbc, seal_cbc};
pub use derivation::{Derivation, NoSessionKey, SessionKeys};
pub use hash::sha256;
pub use kerberos::{
    CONFOUNDER_LEN, EncryptionType, KERBEROS_ITERATIONS, KerberosKey, KeyUsage, Surroundings,
    kerberos_aes128, kerberos_aes256,
};
pub use nonce::{KeyExhausted, Nonce, NonceSequence};
pub use password::{PASSWORD_FIELD, SEALED_PASSWORD, SealedPassword};
pub use preauth::PreauthHash;
pub use sealing::{BadSeal, Cipher, OpeningKey, SealingKey, TAG_LEN, ToOpen, ToSeal};
pub use secret::Secret;
pub use signing::{
    DataNonce, SIGNATURE_LEN, SIGNATURE_RANGE, Sender, SignatureNonce, SigningAlgorithm,
    SigningKey, TooShort,
};
pub use stored::{STORED_SALT, open_stored, seal_stored};

/// Ends the process like a failed Rust allocation.
///
/// The AWS-LC calls that end here get arguments of fixed lengths; the only remaining failure is
/// `malloc` returning nothing.
#[cold]
fn out_of_memory() -> ! {
    alloc::alloc::handle_alloc_error(core::alloc::Layout::new::<[u8; 512]>())
}

#[cfg(test)]
mod vectors;
