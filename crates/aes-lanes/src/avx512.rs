//! The loops in AVX-512 and VAES. The intrinsics without pointers are safe here, because each
//! function enables their instructions.

use core::arch::x86_64::{
    __m128i, __m512i, _mm_cvtsi128_si64, _mm_extract_epi64, _mm_set_epi8, _mm_set_epi32,
    _mm_set_epi64x, _mm512_add_epi32, _mm512_aesenc_epi128, _mm512_aesenclast_epi128,
    _mm512_broadcast_i32x4, _mm512_castsi128_si512, _mm512_castsi512_si128,
    _mm512_extracti32x4_epi32, _mm512_inserti32x4, _mm512_setzero_si512, _mm512_shuffle_epi8,
    _mm512_xor_si512,
};

use zeroize::Zeroize;

use crate::keys::{expand_128, expand_256};
use crate::{BLOCK_LEN, Block, Direction, Key, LANES, Lane};

cpufeatures::new!(features, "aes", "avx512f", "avx512bw", "vaes");

/// Lanes of one register.
const QUAD: usize = 4;

/// Blocks that are handled at once if places of a register have no message.
const PADDED_BLOCKS: usize = 64;

/// True if the processor has the instructions and the operating system keeps the registers.
pub(crate) fn is_there() -> bool {
    features::get()
}

/// See [`crate::Lanes::ccm`].
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
pub(crate) fn ccm(key: Key<'_>, direction: Direction, lanes: &mut [Lane<'_>]) -> usize {
    match key {
        Key::Aes128(key) => {
            let mut keys = expand_128(key);
            let count = choose(&keys, direction, lanes);
            keys.zeroize();
            count
        }
        Key::Aes256(key) => {
            let mut keys = expand_256(key);
            let count = choose(&keys, direction, lanes);
            keys.zeroize();
            count
        }
    }
}

/// Chooses the loop for the number of lanes, and fills the places of registers that are left.
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
fn choose<const R: usize>(
    keys: &[Block; R],
    direction: Direction,
    lanes: &mut [Lane<'_>],
) -> usize {
    let count = lanes.len().min(LANES);
    let lanes = &mut lanes[..count];
    let Some(blocks) = lanes.iter().map(|lane| lane.blocks.len()).min() else { return 0 };
    let is_full = count == QUAD || count == LANES;
    let step = if is_full { blocks } else { PADDED_BLOCKS };
    let mut fillers = [[[0; BLOCK_LEN]; PADDED_BLOCKS]; QUAD - 1];
    let mut chains = [[0; BLOCK_LEN]; LANES];
    let mut counters = chains;
    for (lane, (chain, counter)) in lanes.iter().zip(chains.iter_mut().zip(&mut counters)) {
        (*chain, *counter) = (lane.chain, lane.counter);
    }
    let mut done = 0;
    while done < blocks {
        let next = blocks.min(done + step);
        let mut data: [&mut [Block]; LANES] = [(); LANES].map(|()| &mut [][..]);
        let fillers =
            fillers.iter_mut().map(|filler| &mut filler[..(next - done).min(PADDED_BLOCKS)]);
        let filled = lanes.iter_mut().map(|lane| &mut lane.blocks[done..next]).chain(fillers);
        for (place, slice) in data.iter_mut().zip(filled) {
            *place = slice;
        }
        match (count <= QUAD, direction) {
            (true, Direction::Seal) => quads::<R, 1, true>(keys, &mut chains, &mut counters, data),
            (true, Direction::Open) => quads::<R, 1, false>(keys, &mut chains, &mut counters, data),
            (_, Direction::Seal) => quads::<R, 2, true>(keys, &mut chains, &mut counters, data),
            (_, Direction::Open) => quads::<R, 2, false>(keys, &mut chains, &mut counters, data),
        }
        done = next;
    }
    for (lane, (chain, counter)) in lanes.iter_mut().zip(chains.iter().zip(&counters)) {
        (lane.chain, lane.counter) = (*chain, *counter);
    }
    blocks
}

/// Handles the blocks of `Q` registers of lanes.
#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
fn quads<const R: usize, const Q: usize, const SEAL: bool>(
    keys: &[Block; R],
    chains: &mut [Block; LANES],
    counters: &mut [Block; LANES],
    data: [&mut [Block]; LANES],
) {
    let mut round = [_mm512_setzero_si512(); R];
    for (wide, key) in round.iter_mut().zip(keys) {
        *wide = _mm512_broadcast_i32x4(load(key));
    }
    // The counter of a block is big-endian, but the additions work on little-endian words. So all
    // bytes are reversed. The counter is then the last word of the register.
    let order = _mm_set_epi8(12, 13, 14, 15, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
    let order = _mm512_broadcast_i32x4(order);
    let one = _mm512_broadcast_i32x4(_mm_set_epi32(1, 0, 0, 0));
    let mut chain = [_mm512_setzero_si512(); Q];
    let mut counter = chain;
    for q in 0..Q {
        chain[q] = load_four(chains, q);
        counter[q] = _mm512_shuffle_epi8(load_four(counters, q), order);
    }
    let [a, b, c, d, e, f, g, h] = data;
    let blocks = a.len();
    let (first, second) = ([a, b, c, d], [e, f, g, h]);
    let mut all = [first, second];
    for at in 0..blocks {
        let mut text = [_mm512_setzero_si512(); Q];
        let mut stream = text;
        for q in 0..Q {
            text[q] = gather(&all[q], at);
            counter[q] = _mm512_add_epi32(counter[q], one);
            stream[q] = _mm512_xor_si512(_mm512_shuffle_epi8(counter[q], order), round[0]);
        }
        encrypt(&round, &mut stream);
        for q in 0..Q {
            let out = _mm512_xor_si512(text[q], stream[q]);
            let plain = if SEAL { text[q] } else { out };
            // The plaintext is combined with the first round key before the chain's value is known.
            // XOR allows any order, so the result is the same.
            chain[q] = _mm512_xor_si512(chain[q], _mm512_xor_si512(plain, round[0]));
            scatter(out, &mut all[q], at);
        }
        encrypt(&round, &mut chain);
    }
    for q in 0..Q {
        store_four(chain[q], chains, q);
        store_four(_mm512_shuffle_epi8(counter[q], order), counters, q);
    }
}

/// The rounds after the first key has been added.
#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
fn encrypt<const R: usize, const Q: usize>(round: &[__m512i; R], state: &mut [__m512i; Q]) {
    for key in &round[1..R - 1] {
        for state in &mut *state {
            *state = _mm512_aesenc_epi128(*state, *key);
        }
    }
    for state in state {
        *state = _mm512_aesenclast_epi128(*state, round[R - 1]);
    }
}

/// Returns block `at` of four lanes.
#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
fn gather(lanes: &[&mut [Block]; QUAD], at: usize) -> __m512i {
    let [a, b, c, d] = lanes;
    four(load(&a[at]), load(&b[at]), load(&c[at]), load(&d[at]))
}

/// Writes block `at` of four lanes.
#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
fn scatter(value: __m512i, lanes: &mut [&mut [Block]; QUAD], at: usize) {
    let [a, b, c, d] = lanes;
    a[at] = store(_mm512_castsi512_si128(value));
    b[at] = store(_mm512_extracti32x4_epi32::<1>(value));
    c[at] = store(_mm512_extracti32x4_epi32::<2>(value));
    d[at] = store(_mm512_extracti32x4_epi32::<3>(value));
}

#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
fn load_four(blocks: &[Block; LANES], quad: usize) -> __m512i {
    let at = quad * QUAD;
    four(load(&blocks[at]), load(&blocks[at + 1]), load(&blocks[at + 2]), load(&blocks[at + 3]))
}

#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
fn store_four(value: __m512i, blocks: &mut [Block; LANES], quad: usize) {
    let at = quad * QUAD;
    blocks[at] = store(_mm512_castsi512_si128(value));
    blocks[at + 1] = store(_mm512_extracti32x4_epi32::<1>(value));
    blocks[at + 2] = store(_mm512_extracti32x4_epi32::<2>(value));
    blocks[at + 3] = store(_mm512_extracti32x4_epi32::<3>(value));
}

#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
fn four(a: __m128i, b: __m128i, c: __m128i, d: __m128i) -> __m512i {
    let value = _mm512_inserti32x4::<1>(_mm512_castsi128_si512(a), b);
    _mm512_inserti32x4::<3>(_mm512_inserti32x4::<2>(value, c), d)
}

/// Loads a block like [`crate::keys::load`], which has fewer features: through it eight lanes took half
/// as long again.
#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
fn load(block: &Block) -> __m128i {
    let number = u128::from_le_bytes(*block);
    _mm_set_epi64x((number >> 64) as i64, number as i64)
}

/// Stores a block; the compiler makes one instruction of it.
#[inline]
#[target_feature(enable = "aes,avx512f,avx512bw,vaes")]
fn store(value: __m128i) -> Block {
    let low = _mm_cvtsi128_si64(value).cast_unsigned();
    let high = _mm_extract_epi64::<1>(value).cast_unsigned();
    (u128::from(low) | (u128::from(high) << 64)).to_le_bytes()
}
