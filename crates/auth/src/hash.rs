//! NT hashes, and comparison of secrets in constant time.

use alloc::vec::Vec;
use core::{fmt, hint::black_box};
use md4::{Digest, Md4};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// The MD4 hash of a password in UTF-16LE (MS-NLMP 3.3.1, NTOWFv1). NTLM needs nothing else to log
/// a user on, so it is as secret as the password. It is wiped when dropped and cannot be printed.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct NtHash([u8; 16]);

impl NtHash {
    /// Makes a hash of the stored bytes.
    pub const fn from_bytes(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// Computes the NT hash of a password.
    pub fn from_password(password: &str) -> Self {
        let utf16: Zeroizing<Vec<u8>> =
            Zeroizing::new(password.encode_utf16().flat_map(u16::to_le_bytes).collect());
        Self::from_utf16(&utf16)
    }

    /// Hashes a password in UTF-16LE.
    pub(crate) fn from_utf16(bytes: &[u8]) -> Self {
        Self(Md4::digest(bytes).into())
    }

    /// Parses 32 hexadecimal digits, the form in account files.
    pub fn from_hex(digits: &str) -> Option<Self> {
        let digits: &[u8; 32] = digits.as_bytes().try_into().ok()?;
        let mut bytes = [0u8; 16];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = from_hex(pair)?;
        }
        Some(Self(bytes))
    }

    /// Returns 32 upper-case hexadecimal digits, for an account file.
    pub fn to_hex(&self) -> Zeroizing<alloc::string::String> {
        let mut text = Zeroizing::new(alloc::string::String::with_capacity(32));
        // Writing to a String cannot fail.
        let _ = to_hex(&self.0, &mut *text);
        text
    }

    /// Returns the bytes of the hash.
    pub const fn as_bytes(&self) -> &[u8; 16] {
        &self.0
    }
}

impl PartialEq for NtHash {
    fn eq(&self, other: &Self) -> bool {
        same(&self.0, &other.0)
    }
}

impl Eq for NtHash {}

impl fmt::Debug for NtHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NtHash(..)")
    }
}

/// Returns the byte of two hexadecimal digits.
pub(crate) const fn from_hex(digits: &[u8]) -> Option<u8> {
    let &[high, low] = digits else { return None };
    match (nibble(high), nibble(low)) {
        (Some(high), Some(low)) => Some((high << 4) | low),
        _ => None,
    }
}

/// Appends bytes as upper-case hexadecimal digits.
pub(crate) fn to_hex(bytes: &[u8], out: &mut impl fmt::Write) -> fmt::Result {
    bytes.iter().try_for_each(|byte| write!(out, "{byte:02X}"))
}

const fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit.wrapping_sub(b'0')),
        b'a'..=b'f' => Some(digit.wrapping_sub(b'a').wrapping_add(10)),
        b'A'..=b'F' => Some(digit.wrapping_sub(b'A').wrapping_add(10)),
        _ => None,
    }
}

/// Compares two secrets in a time that depends only on their length.
pub(crate) fn same(a: &[u8], b: &[u8]) -> bool {
    let differing = a.iter().zip(b).fold(0u8, |d, (x, y)| black_box(d | (x ^ y)));
    a.len() == b.len() && black_box(differing) == 0
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    // The expected hash is from MS-NLMP 4.2.2.1.2.
    const PASSWORD_HASH: &str = "A4F49C406510BDCAB6824EE7C30FD852";

    #[test]
    fn the_hash_of_the_specification() {
        let hash = NtHash::from_password("Password");
        assert_eq!(*hash.to_hex(), PASSWORD_HASH);
        assert_eq!(NtHash::from_hex(&PASSWORD_HASH.to_lowercase()).unwrap(), hash);
    }

    #[test]
    fn the_empty_password_has_the_well_known_hash() {
        assert_eq!(*NtHash::from_password("").to_hex(), "31D6CFE0D16AE931B73C59D7E0C089C0");
    }

    #[test]
    fn hexadecimal_of_another_length_or_alphabet_is_no_hash() {
        assert!(NtHash::from_hex(&PASSWORD_HASH[1..]).is_none());
        assert!(NtHash::from_hex(&format!("{PASSWORD_HASH}0")).is_none());
        assert!(NtHash::from_hex("XXXXXXXXXXXXXXXXXXXXXXXXXXXXXXXX").is_none());
        assert!(NtHash::from_hex("A4F49C406510BDCAB6824EE7C30FD8é").is_none());
    }

    #[test]
    fn debug_does_not_print_the_secret() {
        assert_eq!(format!("{:?}", NtHash::from_password("Password")), "NtHash(..)");
    }

    #[test]
    fn same_sees_every_bit_and_the_length() {
        let a = [7u8; 16];
        assert!(same(&a, &a));
        assert!(!same(&a, &a[..15]));
        for bit in 0..128 {
            let mut b = a;
            b[bit / 8] ^= 1 << (bit % 8);
            assert!(!same(&a, &b));
        }
    }
}
