//! Diffie-Hellman over the second Oakley group (RFC 2409 6.2), as the Secret Service uses it.

use frevo_auth::Zeroizing;

/// Bytes of the prime.
pub(super) const BYTES: usize = 128;

/// 64-bit words of the prime.
const WORDS: usize = 16;

/// A number below the prime, with its lowest word first.
type Number = [u64; WORDS];

/// The prime, with its highest word first.
const PRIME: Number = [
    0xFFFF_FFFF_FFFF_FFFF,
    0xC90F_DAA2_2168_C234,
    0xC4C6_628B_80DC_1CD1,
    0x2902_4E08_8A67_CC74,
    0x020B_BEA6_3B13_9B22,
    0x514A_0879_8E34_04DD,
    0xEF95_19B3_CD3A_431B,
    0x302B_0A6D_F25F_1437,
    0x4FE1_356D_6D51_C245,
    0xE485_B576_625E_7EC6,
    0xF44C_42E9_A637_ED6B,
    0x0BFF_5CB6_F406_B7ED,
    0xEE38_6BFB_5A89_9FA5,
    0xAE9F_2411_7C4B_1FE6,
    0x4928_6651_ECE6_5381,
    0xFFFF_FFFF_FFFF_FFFF,
];

fn prime() -> Number {
    let mut prime = PRIME;
    prime.reverse();
    prime
}

/// a - b, and true if that is below zero.
fn minus(a: &Number, b: &Number) -> (Number, bool) {
    let (mut result, mut borrow) = ([0; WORDS], false);
    for ((to, a), b) in result.iter_mut().zip(a).zip(b) {
        let (first, under) = a.overflowing_sub(*b);
        let (second, more) = first.overflowing_sub(u64::from(borrow));
        (*to, borrow) = (second, under || more);
    }
    (result, borrow)
}

/// a + b modulo the prime.
fn plus(a: &Number, b: &Number) -> Number {
    let (mut sum, mut carry) = ([0; WORDS], false);
    for ((to, a), b) in sum.iter_mut().zip(a).zip(b) {
        let (first, over) = a.overflowing_add(*b);
        let (second, more) = first.overflowing_add(u64::from(carry));
        (*to, carry) = (second, over || more);
    }
    let (reduced, is_below) = minus(&sum, &prime());
    if carry || !is_below { reduced } else { sum }
}

/// The bits of a number, the highest first.
fn bits(words: &[u64]) -> impl Iterator<Item = bool> {
    words.iter().rev().flat_map(|word| (0..64).rev().map(move |bit| word >> bit & 1 != 0))
}

/// a * b modulo the prime.
fn times(a: &Number, b: &Number) -> Number {
    bits(a).skip_while(|bit| !bit).fold([0; WORDS], |product, bit| {
        let twice = plus(&product, &product);
        if bit { plus(&twice, b) } else { twice }
    })
}

fn power(base: &Number, exponent: &[u64]) -> Number {
    let mut one = [0; WORDS];
    one[0] = 1;
    bits(exponent).skip_while(|bit| !bit).fold(one, |power, bit| {
        let square = times(&power, &power);
        if bit { times(base, &square) } else { square }
    })
}

fn to_bytes(number: &Number) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    for (eight, word) in bytes.chunks_exact_mut(8).zip(number.iter().rev()) {
        eight.copy_from_slice(&word.to_be_bytes());
    }
    bytes
}

/// A public key of the other side. None for one outside of 2 to p - 2.
fn number(bytes: &[u8]) -> Option<Number> {
    let start = bytes.iter().position(|byte| *byte != 0)?;
    let bytes = bytes.get(start..).filter(|bytes| bytes.len() <= BYTES)?;
    let mut padded = [0; BYTES];
    padded[BYTES - bytes.len()..].copy_from_slice(bytes);
    let mut number = [0; WORDS];
    for (word, eight) in number.iter_mut().rev().zip(padded.chunks_exact(8)) {
        *word = eight.first_chunk().map_or(0, |eight| u64::from_be_bytes(*eight));
    }
    let mut highest = prime();
    highest[0] -= 2;
    let is_one = number[0] == 1 && number[1..].iter().all(|word| *word == 0);
    (!is_one && !minus(&highest, &number).1).then_some(number)
}

/// A key of one session.
pub(super) struct Key(Zeroizing<[u64; 4]>);

impl Key {
    /// The key of 32 random bytes.
    pub(super) fn new(random: &[u8; 32]) -> Self {
        let mut words = Zeroizing::new([0; 4]);
        for (word, eight) in words.iter_mut().zip(random.chunks_exact(8)) {
            *word = eight.first_chunk().map_or(0, |eight| u64::from_le_bytes(*eight));
        }
        Self(words)
    }

    /// Returns the public key, big-endian.
    pub(super) fn public(&self) -> [u8; BYTES] {
        let mut two = [0; WORDS];
        two[0] = 2;
        to_bytes(&power(&two, &*self.0))
    }

    /// The secret that this key and the public key of the other side make. None for a public key
    /// that is none.
    pub(super) fn agree(&self, public: &[u8]) -> Option<Zeroizing<[u8; BYTES]>> {
        Some(Zeroizing::new(to_bytes(&power(&number(public)?, &*self.0))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_sides_agree() {
        let (one, two) = (Key::new(&[7; 32]), Key::new(&[9; 32]));
        let agreed = one.agree(&two.public()).unwrap();
        assert_eq!(*agreed, *two.agree(&one.public()).unwrap());
        assert_ne!(*agreed, one.public());
    }

    /// Made with Python's pow().
    #[test]
    fn a_known_public_key() {
        let mut random: [u8; 32] = core::array::from_fn(|at| 32 - at as u8);
        let public = Key::new(&random).public();
        let ends = [&public[..4], &public[124..]].concat();
        assert_eq!(ends, [0x45, 0x71, 0x20, 0x76, 0xBF, 0x16, 0x71, 0xDD]);
        random[0] = 0;
        assert_ne!(Key::new(&random).public(), public);
    }

    #[test]
    fn public_keys_outside_of_the_group_are_refused() {
        let key = Key::new(&[7; 32]);
        let prime = to_bytes(&prime());
        let (mut below, mut largest) = (prime, prime);
        below[127] -= 1;
        largest[127] -= 2;
        for wrong in [&[][..], &[0], &[0, 1], &prime, &below, &[0xFF; 128], &[1; 129]] {
            assert!(key.agree(wrong).is_none(), "{wrong:?}");
        }
        for right in [&[2][..], &[0, 0, 2], &largest] {
            assert!(key.agree(right).is_some());
        }
    }
}
