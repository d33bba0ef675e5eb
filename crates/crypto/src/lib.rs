//! Signing, sealing and key derivation for SMB 3.x, in place, on slices.
//!
//! Keys are expanded once, when they are made, and used from any thread
//! through `&self`; they never print and are wiped when dropped. Nonces belong
//! to the key that they are unique for. Nothing here reads a clock or draws a
//! random number.
//!
//! AWS-LC does SHA-512, HMAC, GCM and the key derivation. CCM, whose 11-byte
//! nonces AWS-LC's safe interface does not offer, and CMAC, of which it signs
//! one message at a time, are composed here (`sealing/ccm.rs`, `signing/cmac.rs`)
//! over the AES of RustCrypto.
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

mod chain;
mod derivation;
mod hash;
pub mod limits;
mod nonce;
mod preauth;
mod sealing;
mod secret;
mod signing;

pub use derivation::{Derivation, NoSessionKey, SessionKeys};
pub use hash::sha256;
pub use nonce::{KeyExhausted, Nonce, NonceSequence};
pub use preauth::PreauthHash;
pub use sealing::{BadSeal, Cipher, OpeningKey, SealingKey, TAG_LEN};
pub use secret::Secret;
pub use signing::{
    SIGNATURE_LEN, SIGNATURE_RANGE, Sender, SignatureNonce, SigningAlgorithm, SigningKey, TooShort,
};

/// Ends the process the way a failed Rust allocation does.
///
/// The AWS-LC calls that come here take arguments whose lengths this crate has
/// fixed; what is left for them to fail of is `malloc` returning nothing.
#[cold]
fn out_of_memory() -> ! {
    alloc::alloc::handle_alloc_error(core::alloc::Layout::new::<[u8; 512]>())
}

#[cfg(test)]
mod vectors;
