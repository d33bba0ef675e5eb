//! Kerberos encryption: RFC 3961 with AES of RFC 3962 and RFC 8009, and RC4 of RFC 4757.
//!
//! A [`KerberosKey`] encrypts, decrypts and signs under a [`KeyUsage`], from which each operation
//! derives keys of its own.

mod cts;
mod derive;
mod etype;
mod key;
mod rc4_hmac;
mod string_to_key;
#[cfg(test)]
mod tests;
mod wrap;

pub use etype::{CONFOUNDER_LEN, EncryptionType, KeyUsage};
pub use key::KerberosKey;
pub use string_to_key::{KERBEROS_ITERATIONS, kerberos_aes128, kerberos_aes256};
pub use wrap::Surroundings;
