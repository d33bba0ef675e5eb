//! One message alone. Its chain is as fast as the cipher's latency allows, so that nothing but the
//! rounds may stand between two blocks.
//!
//! The last round of a block adds the last key. The next block and the first key are added right
//! after it; here they are added to the last key before, while the rounds go on.

use core::arch::x86_64::{
    __m128i, _mm_add_epi32, _mm_aesenc_si128, _mm_aesenclast_si128, _mm_set_epi8, _mm_set_epi32,
    _mm_setzero_si128, _mm_shuffle_epi8, _mm_xor_si128,
};

use zeroize::Zeroize;

use crate::keys::{expand_128, expand_256, load, store};
use crate::{Block, Direction, Key, Lane};

cpufeatures::new!(features, "aes", "avx");

/// Blocks that go through the counter mode at once.
const GROUP: usize = 4;

/// True if the processor has the instructions and the operating system keeps the registers.
pub(crate) fn is_there() -> bool {
    features::get()
}

/// See [`crate::Alone::mac`].
#[target_feature(enable = "aes,avx")]
pub(crate) fn mac(key: Key<'_>, chain: &mut Block, blocks: &[Block]) {
    match key {
        Key::Aes128(key) => {
            let mut keys = expand_128(key);
            mac_with(&keys, chain, blocks);
            keys.zeroize();
        }
        Key::Aes256(key) => {
            let mut keys = expand_256(key);
            mac_with(&keys, chain, blocks);
            keys.zeroize();
        }
    }
}

/// See [`crate::Alone::ccm`].
#[target_feature(enable = "aes,avx")]
pub(crate) fn ccm(key: Key<'_>, direction: Direction, lane: &mut Lane<'_>) {
    match key {
        Key::Aes128(key) => {
            let mut keys = expand_128(key);
            ccm_with(&keys, direction, lane);
            keys.zeroize();
        }
        Key::Aes256(key) => {
            let mut keys = expand_256(key);
            ccm_with(&keys, direction, lane);
            keys.zeroize();
        }
    }
}

#[inline]
#[target_feature(enable = "aes,avx")]
fn mac_with<const R: usize>(keys: &[Block; R], chain: &mut Block, blocks: &[Block]) {
    let Some((first, rest)) = blocks.split_first() else { return };
    let keys = Keys::new(keys);
    let mut state = keys.begin(load(chain), load(first));
    for block in rest {
        state = keys.add(state, load(block));
    }
    *chain = store(keys.end(state));
}

#[inline]
#[target_feature(enable = "aes,avx")]
fn ccm_with<const R: usize>(keys: &[Block; R], direction: Direction, lane: &mut Lane<'_>) {
    match direction {
        Direction::Seal => pass::<R, true>(keys, lane),
        Direction::Open => pass::<R, false>(keys, lane),
    }
}

/// Both passes: the processor encrypts counter blocks while it waits for the chain.
#[inline]
#[target_feature(enable = "aes,avx")]
fn pass<const R: usize, const SEAL: bool>(keys: &[Block; R], lane: &mut Lane<'_>) {
    let Some((first, rest)) = lane.blocks.split_first_mut() else { return };
    let keys = Keys::new(keys);
    let mut counter = Counter::new(&lane.counter);
    let [plain] = crypt::<R, 1, SEAL>(&keys, &mut counter, core::array::from_mut(first));
    let mut state = keys.begin(load(&lane.chain), plain);
    let (groups, rest) = rest.as_chunks_mut::<GROUP>();
    for group in groups {
        for plain in crypt::<R, GROUP, SEAL>(&keys, &mut counter, group) {
            state = keys.add(state, plain);
        }
    }
    for block in rest {
        let [plain] = crypt::<R, 1, SEAL>(&keys, &mut counter, core::array::from_mut(block));
        state = keys.add(state, plain);
    }
    lane.chain = store(keys.end(state));
    lane.counter = counter.end();
}

/// Encrypts or decrypts `blocks`, and returns their plaintext.
#[inline]
#[target_feature(enable = "aes,avx")]
fn crypt<const R: usize, const N: usize, const SEAL: bool>(
    keys: &Keys<R>,
    counter: &mut Counter,
    blocks: &mut [Block; N],
) -> [__m128i; N] {
    let mut plain = [_mm_setzero_si128(); N];
    let mut stream = plain;
    for state in &mut stream {
        *state = _mm_xor_si128(counter.next(), keys.first());
    }
    for key in keys.middle() {
        for state in &mut stream {
            *state = _mm_aesenc_si128(*state, *key);
        }
    }
    for ((block, state), plain) in blocks.iter_mut().zip(stream).zip(&mut plain) {
        let text = load(block);
        let out = _mm_xor_si128(text, _mm_aesenclast_si128(state, keys.last()));
        *plain = if SEAL { text } else { out };
        *block = store(out);
    }
    plain
}

/// The counter, as a number in the order of the processor.
struct Counter {
    value: __m128i,
    order: __m128i,
}

impl Counter {
    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn new(block: &Block) -> Self {
        let order = _mm_set_epi8(12, 13, 14, 15, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
        Self { value: _mm_shuffle_epi8(load(block), order), order }
    }

    /// Returns the next counter block.
    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn next(&mut self) -> __m128i {
        self.value = _mm_add_epi32(self.value, _mm_set_epi32(1, 0, 0, 0));
        _mm_shuffle_epi8(self.value, self.order)
    }

    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn end(&self) -> Block {
        store(_mm_shuffle_epi8(self.value, self.order))
    }
}

/// The round keys.
struct Keys<const R: usize> {
    round: [__m128i; R],
    /// The sum of the last key and the first one.
    joint: __m128i,
}

impl<const R: usize> Keys<R> {
    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn new(keys: &[Block; R]) -> Self {
        let mut round = [_mm_setzero_si128(); R];
        for (wide, key) in round.iter_mut().zip(keys) {
            *wide = load(key);
        }
        Self { joint: _mm_xor_si128(round[0], round[R - 1]), round }
    }

    const fn first(&self) -> __m128i {
        self.round[0]
    }

    fn middle(&self) -> &[__m128i] {
        &self.round[1..R - 1]
    }

    const fn last(&self) -> __m128i {
        self.round[R - 1]
    }

    /// Continues the chain of this value with a block, up to the last round.
    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn begin(&self, chain: __m128i, block: __m128i) -> __m128i {
        self.rounds(_mm_xor_si128(chain, _mm_xor_si128(block, self.first())))
    }

    /// Carries out the last round, and continues with the next block up to its last round.
    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn add(&self, state: __m128i, block: __m128i) -> __m128i {
        self.rounds(_mm_aesenclast_si128(state, _mm_xor_si128(block, self.joint)))
    }

    /// Carries out the last round; returns the value of the chain.
    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn end(&self, state: __m128i) -> __m128i {
        _mm_aesenclast_si128(state, self.last())
    }

    #[inline]
    #[target_feature(enable = "aes,avx")]
    fn rounds(&self, mut state: __m128i) -> __m128i {
        for key in self.middle() {
            state = _mm_aesenc_si128(state, *key);
        }
        state
    }
}
