//! Kerberos keys of an account, as the account file holds them.

use crate::hash::{from_hex, to_hex};
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The keys that a password and a salt make (RFC 3962 section 4). They are as secret as the
/// password, wiped when dropped, and cannot be printed.
#[derive(Clone, PartialEq, Eq, Zeroize, ZeroizeOnDrop)]
pub struct KerberosKeys {
    /// The realm and the account's name, as they were when the password was set.
    pub salt: String,
    /// The number of iterations of PBKDF2.
    pub iterations: u32,
    /// The key of aes256-cts-hmac-sha1-96.
    pub aes256: [u8; 32],
    /// The key of aes128-cts-hmac-sha1-96.
    pub aes128: [u8; 16],
}

impl KerberosKeys {
    /// Parses `ITERATIONS,SALT,AES256,AES128`; all but the first are hexadecimal.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut fields = text.split(',');
        let iterations = fields.next()?.parse().ok()?;
        let salt = String::from_utf8(bytes(fields.next()?)?).ok()?;
        let aes256 = Zeroizing::new(bytes(fields.next()?)?);
        let aes128 = Zeroizing::new(bytes(fields.next()?)?);
        if fields.next().is_some() {
            return None;
        }
        let (aes256, aes128) = (aes256.as_slice().try_into(), aes128.as_slice().try_into());
        Some(Self { salt, iterations, aes256: aes256.ok()?, aes128: aes128.ok()? })
    }

    /// Appends what [`Self::parse`] reads.
    pub(crate) fn write(&self, out: &mut impl fmt::Write) -> fmt::Result {
        write!(out, "{},", self.iterations)?;
        to_hex(self.salt.as_bytes(), out)?;
        out.write_char(',')?;
        to_hex(&self.aes256, out)?;
        out.write_char(',')?;
        to_hex(&self.aes128, out)
    }
}

fn bytes(digits: &str) -> Option<Vec<u8>> {
    digits.as_bytes().chunks(2).map(from_hex).collect()
}

impl fmt::Debug for KerberosKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KerberosKeys").field("salt", &self.salt).finish_non_exhaustive()
    }
}
