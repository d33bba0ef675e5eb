//! Kerberos keys of passwords: RFC 3962 section 4, aes128-cts-hmac-sha1-96 and
//! aes256-cts-hmac-sha1-96.
//!
//! They cannot be made of an NT hash, so they are made whenever a password is known.

use core::num::NonZeroU32;

use aes::cipher::{BlockCipherEncrypt, KeyInit};
use aes::{Aes128Enc, Aes256Enc, Block};
use aws_lc_rs::pbkdf2::{self, PBKDF2_HMAC_SHA1};
use zeroize::Zeroizing;

/// Iterations where nobody says otherwise (RFC 3962 section 4: 4,096), as a KDC has them.
pub const KERBEROS_ITERATIONS: NonZeroU32 = match NonZeroU32::new(4_096) {
    Some(count) => count,
    None => NonZeroU32::MIN,
};

/// "kerberos", folded to the cipher's block of 128 bits (RFC 3961 appendix A.1).
const KERBEROS: [u8; 16] = *b"kerberos\x7b\x9b\x5b\x2b\x93\x13\x2b\x93";

/// Returns the key of aes128-cts-hmac-sha1-96. The salt is the realm and the principal's name.
pub fn kerberos_aes128(password: &str, salt: &[u8], iterations: NonZeroU32) -> Zeroizing<[u8; 16]> {
    let mut seed = Zeroizing::new([0; 16]);
    stretch(password, salt, iterations, seed.as_mut_slice());
    let cipher = Aes128Enc::new((&*seed).into());
    let mut block = Block::from(KERBEROS);
    cipher.encrypt_block(&mut block);
    Zeroizing::new(block.into())
}

/// Returns the key of aes256-cts-hmac-sha1-96. The salt is the realm and the principal's name.
pub fn kerberos_aes256(password: &str, salt: &[u8], iterations: NonZeroU32) -> Zeroizing<[u8; 32]> {
    let mut seed = Zeroizing::new([0; 32]);
    stretch(password, salt, iterations, seed.as_mut_slice());
    let cipher = Aes256Enc::new((&*seed).into());
    let mut key = Zeroizing::new([0; 32]);
    let mut block = Block::from(KERBEROS);
    // RFC 3961 section 5.1, DR: each block is the cipher's output of the one before.
    for part in key.chunks_exact_mut(16) {
        cipher.encrypt_block(&mut block);
        part.copy_from_slice(&block);
    }
    key
}

fn stretch(password: &str, salt: &[u8], iterations: NonZeroU32, seed: &mut [u8]) {
    pbkdf2::derive(PBKDF2_HMAC_SHA1, iterations, salt, password.as_bytes(), seed);
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
