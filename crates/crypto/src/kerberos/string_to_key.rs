//! Kerberos keys of passwords: RFC 3962 section 4 and RFC 8009 section 4.
//!
//! They cannot be made of an NT hash, so they are made whenever a password is known.

use core::num::NonZeroU32;

use alloc::vec::Vec;
use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA1, PBKDF2_HMAC_SHA256, PBKDF2_HMAC_SHA384};
use md4::{Digest, Md4};
use zeroize::Zeroizing;

use super::derive::{Derived, Hash, dk};
use super::etype::EncryptionType;
use crate::limits::KERBEROS_ITERATIONS_MAX;

/// Iterations where nobody says otherwise (RFC 3962 section 4: 4,096), as a KDC has them.
pub const KERBEROS_ITERATIONS: NonZeroU32 = match NonZeroU32::new(4_096) {
    Some(count) => count,
    None => NonZeroU32::MIN,
};

/// Iterations of the types of RFC 8009 section 4 where the KDC names no other number.
const KERBEROS_SHA2_ITERATIONS: NonZeroU32 = match NonZeroU32::new(32_768) {
    Some(count) => count,
    None => NonZeroU32::MIN,
};

/// The constant of both derivations.
const CONSTANT: &[u8] = b"kerberos";

/// Returns the key of aes128-cts-hmac-sha1-96. The salt is the realm and the principal's name.
pub fn kerberos_aes128(password: &str, salt: &[u8], iterations: NonZeroU32) -> Zeroizing<[u8; 16]> {
    let key = aes_sha1(16, password, salt, iterations);
    Zeroizing::new(key.short().copied().unwrap_or_default())
}

/// Returns the key of aes256-cts-hmac-sha1-96. The salt is the realm and the principal's name.
pub fn kerberos_aes256(password: &str, salt: &[u8], iterations: NonZeroU32) -> Zeroizing<[u8; 32]> {
    Zeroizing::new(*aes_sha1(32, password, salt, iterations).long())
}

/// Returns the iterations that s2kparams of a KDC ask for, if they are within the limits.
pub(super) fn iterations(etype: EncryptionType, parameters: Option<&[u8]>) -> Option<NonZeroU32> {
    let own = match etype {
        EncryptionType::Aes128Sha2 | EncryptionType::Aes256Sha2 => KERBEROS_SHA2_ITERATIONS,
        _ => KERBEROS_ITERATIONS,
    };
    match (etype, parameters) {
        // RFC 4757 defines no parameters for RC4, so any that the KDC sends are ignored.
        (EncryptionType::Rc4Hmac, _) | (_, None) => Some(own),
        (_, Some(parameters)) => {
            let iterations = u32::from_be_bytes(parameters.try_into().ok()?);
            let allowed = own.get()..=KERBEROS_ITERATIONS_MAX;
            NonZeroU32::new(iterations).filter(|count| allowed.contains(&count.get()))
        }
    }
}

/// Returns the key of a password.
pub(super) fn derive(
    etype: EncryptionType,
    password: &str,
    salt: &[u8],
    iterations: NonZeroU32,
) -> Derived {
    let length = etype.key_len();
    match etype {
        EncryptionType::Aes128Sha1 | EncryptionType::Aes256Sha1 => {
            aes_sha1(length, password, salt, iterations)
        }
        EncryptionType::Aes128Sha2 => aes_sha2(etype, Hash::Sha256, password, salt, iterations),
        EncryptionType::Aes256Sha2 => aes_sha2(etype, Hash::Sha384, password, salt, iterations),
        EncryptionType::Rc4Hmac => {
            let units: Zeroizing<Vec<u8>> =
                Zeroizing::new(password.encode_utf16().flat_map(u16::to_le_bytes).collect());
            let hash: Zeroizing<[u8; 16]> = Zeroizing::new(Md4::digest(&*units).into());
            Derived::of(&hash)
        }
    }
}

fn aes_sha1(length: usize, password: &str, salt: &[u8], iterations: NonZeroU32) -> Derived {
    let mut seed = Zeroizing::new([0; 32]);
    let seed = seed.get_mut(..length).unwrap_or_default();
    pbkdf2::derive(PBKDF2_HMAC_SHA1, iterations, salt, password.as_bytes(), seed);
    dk(seed, CONSTANT)
}

fn aes_sha2(
    etype: EncryptionType,
    hash: Hash,
    password: &str,
    salt: &[u8],
    iterations: NonZeroU32,
) -> Derived {
    let algorithm = if hash == Hash::Sha384 { PBKDF2_HMAC_SHA384 } else { PBKDF2_HMAC_SHA256 };
    let salt = [etype.name().as_bytes(), &[0], salt].concat();
    let mut seed = Zeroizing::new([0; 32]);
    let seed = seed.get_mut(..etype.key_len()).unwrap_or_default();
    pbkdf2::derive(algorithm, iterations, &salt, password.as_bytes(), seed);
    hash.kdf(seed, CONSTANT, etype.key_len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn hex(text: &str) -> Vec<u8> {
        let digits: Vec<u8> = text.bytes().filter(|byte| *byte != b' ').collect();
        let pair = |pair: &[u8]| u8::from_str_radix(str::from_utf8(pair).unwrap(), 16).unwrap();
        digits.chunks(2).map(pair).collect()
    }

    /// RFC 3962 appendix B: iterations, pass phrase, salt, the 128-bit and the 256-bit key.
    #[test]
    fn the_vectors_of_rfc_3962() {
        let athena = b"ATHENA.MIT.EDUraeburn".as_slice();
        let long = "X".repeat(64);
        let longer = "X".repeat(65);
        let clef = "\u{1d11e}";
        let rows: [(u32, &str, &[u8], &str, &str); 7] = [
            (
                1,
                "password",
                athena,
                "42 26 3c 6e 89 f4 fc 28 b8 df 68 ee 09 79 9f 15",
                "fe 69 7b 52 bc 0d 3c e1 44 32 ba 03 6a 92 e6 5b \
                 bb 52 28 09 90 a2 fa 27 88 39 98 d7 2a f3 01 61",
            ),
            (
                2,
                "password",
                athena,
                "c6 51 bf 29 e2 30 0a c2 7f a4 69 d6 93 bd da 13",
                "a2 e1 6d 16 b3 60 69 c1 35 d5 e9 d2 e2 5f 89 61 \
                 02 68 56 18 b9 59 14 b4 67 c6 76 22 22 58 24 ff",
            ),
            (
                1200,
                "password",
                athena,
                "4c 01 cd 46 d6 32 d0 1e 6d be 23 0a 01 ed 64 2a",
                "55 a6 ac 74 0a d1 7b 48 46 94 10 51 e1 e8 b0 a7 \
                 54 8d 93 b0 ab 30 a8 bc 3f f1 62 80 38 2b 8c 2a",
            ),
            (
                5,
                "password",
                b"\x12\x34\x56\x78\x78\x56\x34\x12",
                "e9 b2 3d 52 27 37 47 dd 5c 35 cb 55 be 61 9d 8e",
                "97 a4 e7 86 be 20 d8 1a 38 2d 5e bc 96 d5 90 9c \
                 ab cd ad c8 7c a4 8f 57 45 04 15 9f 16 c3 6e 31",
            ),
            (
                1200,
                &long,
                b"pass phrase equals block size",
                "59 d1 bb 78 9a 82 8b 1a a5 4e f9 c2 88 3f 69 ed",
                "89 ad ee 36 08 db 8b c7 1f 1b fb fe 45 94 86 b0 \
                 56 18 b7 0c ba e2 20 92 53 4e 56 c5 53 ba 4b 34",
            ),
            (
                1200,
                &longer,
                b"pass phrase exceeds block size",
                "cb 80 05 dc 5f 90 17 9a 7f 02 10 4c 00 18 75 1d",
                "d7 8c 5c 9c b8 72 a8 c9 da d4 69 7f 0b b5 b2 d2 \
                 14 96 c8 2b eb 2c ae da 21 12 fc ee a0 57 40 1b",
            ),
            (
                50,
                clef,
                b"EXAMPLE.COMpianist",
                "f1 49 c1 f2 e1 54 a7 34 52 d4 3e 7f e6 2a 56 e5",
                "4b 6d 98 39 f8 44 06 df 1f 09 cc 16 6d b4 b8 3c \
                 57 18 48 b7 84 a3 d6 bd c3 46 58 9a 3e 39 3f 9e",
            ),
        ];
        for (iterations, password, salt, short, wide) in rows {
            let count = NonZeroU32::new(iterations).unwrap();
            assert_eq!(
                kerberos_aes128(password, salt, count).as_slice(),
                hex(short),
                "{iterations}"
            );
            assert_eq!(
                kerberos_aes256(password, salt, count).as_slice(),
                hex(wide),
                "{iterations}"
            );
        }
    }

    /// MS-KILE 4.4: a password of a machine.
    #[test]
    fn the_vector_of_ms_kile() {
        let password = "\u{ffff}".repeat(120);
        let salt = b"DOMAIN.COMhostclient.domain.com";
        let key = kerberos_aes128(&password, salt, NonZeroU32::new(1_000).unwrap());
        assert_eq!(key.as_slice(), hex("b8 2e e1 22 53 1c 2d 94 82 1a c7 55 bc cb 58 79"));
    }
}
