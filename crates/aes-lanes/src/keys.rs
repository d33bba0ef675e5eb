//! Round keys, and blocks in registers.

use core::arch::x86_64::{
    __m128i, _mm_aeskeygenassist_si128, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_set_epi64x,
    _mm_shuffle_epi32, _mm_slli_si128, _mm_xor_si128,
};

/// Length of a block, bytes.
const BLOCK_LEN: usize = 16;

type Block = [u8; BLOCK_LEN];

/// Loads a block; the compiler makes one instruction of it.
#[inline]
#[target_feature(enable = "aes,avx")]
pub(crate) fn load(block: &Block) -> __m128i {
    let number = u128::from_le_bytes(*block);
    _mm_set_epi64x((number >> 64) as i64, number as i64)
}

/// Stores a block; the compiler makes one instruction of it.
#[inline]
#[target_feature(enable = "aes,avx")]
pub(crate) fn store(value: __m128i) -> Block {
    let low = _mm_cvtsi128_si64(value).cast_unsigned();
    let high = _mm_extract_epi64::<1>(value).cast_unsigned();
    (u128::from(low) | (u128::from(high) << 64)).to_le_bytes()
}

/// Makes the round keys of AES-128, FIPS 197 5.2.
#[target_feature(enable = "aes,avx")]
pub(crate) fn expand_128(key: &[u8; 16]) -> [Block; 11] {
    let mut keys = [[0; BLOCK_LEN]; 11];
    let mut last = load(key);
    keys[0] = store(last);
    // The round constant must be a literal in the instruction, so a macro, not a function, makes
    // each round.
    macro_rules! round {
        ($at:literal, $constant:literal) => {
            let word = _mm_shuffle_epi32::<0xFF>(_mm_aeskeygenassist_si128::<$constant>(last));
            last = _mm_xor_si128(sums(last), word);
            keys[$at] = store(last);
        };
    }
    round!(1, 0x01);
    round!(2, 0x02);
    round!(3, 0x04);
    round!(4, 0x08);
    round!(5, 0x10);
    round!(6, 0x20);
    round!(7, 0x40);
    round!(8, 0x80);
    round!(9, 0x1B);
    round!(10, 0x36);
    keys
}

/// Makes the round keys of AES-256, FIPS 197 5.2.
#[target_feature(enable = "aes,avx")]
pub(crate) fn expand_256(key: &[u8; 32]) -> [Block; 15] {
    let mut keys = [[0; BLOCK_LEN]; 15];
    let (halves, _) = key.as_chunks::<BLOCK_LEN>();
    let (mut even, mut odd) = (load(&halves[0]), load(&halves[1]));
    (keys[0], keys[1]) = (store(even), store(odd));
    macro_rules! round {
        ($at:literal, $constant:literal) => {
            let word = _mm_shuffle_epi32::<0xFF>(_mm_aeskeygenassist_si128::<$constant>(odd));
            even = _mm_xor_si128(sums(even), word);
            keys[$at] = store(even);
            if let Some(place) = keys.get_mut($at + 1) {
                // Every second step of AES-256 has no round constant and no rotation.
                let word = _mm_shuffle_epi32::<0xAA>(_mm_aeskeygenassist_si128::<0>(even));
                odd = _mm_xor_si128(sums(odd), word);
                *place = store(odd);
            }
        };
    }
    round!(2, 0x01);
    round!(4, 0x02);
    round!(6, 0x04);
    round!(8, 0x08);
    round!(10, 0x10);
    round!(12, 0x20);
    round!(14, 0x40);
    keys
}

/// Adds to each word of `key` the words before it.
#[target_feature(enable = "aes,avx")]
fn sums(key: __m128i) -> __m128i {
    let mut sum = key;
    let mut moved = key;
    for _ in 0..3 {
        moved = _mm_slli_si128::<4>(moved);
        sum = _mm_xor_si128(sum, moved);
    }
    sum
}
