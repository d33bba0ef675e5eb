//! Data that does not compress: encrypted, or compressed before.

use std::ops::Range;

/// Bytes of a piece that is looked at.
const PIECE: usize = 512;

/// Number of pieces at most, spread over the data.
const PIECES: usize = 4;

/// Bytes of a piece below which nothing can be said of it.
const LEAST: usize = 128;

/// Equal pairs of bytes that noise may have, in multiples of what chance alone makes. Encrypted data has 1,
/// pictures and archives 1 to 1.6, programs 5 and more, text 15 and more.
const TIMES_CHANCE: u64 = 2;

/// The places of data that are looked at. They are random, so that no client can leave them as they were.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Places(u64);

impl Places {
    /// The places of a number that nobody else knows.
    pub(crate) const fn of(secret: u64) -> Self {
        Self(secret)
    }

    /// The places in data at an offset of a file.
    pub(crate) const fn at(self, offset: u64) -> Self {
        Self(mixed(self.0 ^ offset.rotate_left(17)))
    }

    /// Returns a number below `bound` for a part of the data, or 0.
    fn number(self, part: usize, bound: usize) -> usize {
        let mixed = mixed(self.0.wrapping_add(part as u64));
        let wide = u128::from(mixed) * (bound as u128);
        usize::try_from(wide >> 64).unwrap_or(0)
    }
}

/// Mixes the bits of a number, as SplitMix64 does.
const fn mixed(number: u64) -> u64 {
    let number = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let number = (number ^ (number >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    number ^ (number >> 31)
}

/// True for data of which half the pieces that are looked at do not compress. Data of less than 128 bytes never is.
pub(crate) fn is_noise(data: &[u8], places: Places) -> bool {
    let apart = data.len().div_ceil(PIECES).max(PIECE);
    let (mut noisy, mut all) = (0, 0);
    for (number, part) in data.chunks(apart).enumerate() {
        let start = places.number(number, (part.len() + 1).saturating_sub(PIECE));
        let piece = part.get(start..).unwrap_or(part);
        let piece = piece.get(..PIECE).unwrap_or(piece);
        if piece.len() >= LEAST {
            all += 1;
            noisy += usize::from(is_piece_noise(piece));
        }
    }
    all > 0 && noisy * 2 >= all
}

/// True for a range of a file whose pieces do not compress, as `read` reads them at their offsets.
pub(crate) fn is_noise_in(
    range: Range<u64>,
    places: Places,
    read: impl Fn(u64, &mut [u8]) -> Option<usize>,
) -> bool {
    let apart = (range.end.saturating_sub(range.start) / PIECES as u64).max(PIECE as u64);
    let (mut noisy, mut all) = (0, 0);
    for number in 0..PIECES {
        let within = usize::try_from(apart - PIECE as u64).unwrap_or(usize::MAX);
        let moved = places.at(range.start).number(number, within.saturating_add(1)) as u64;
        let start = range.start.saturating_add(apart.saturating_mul(number as u64));
        let start = start.saturating_add(moved);
        let mut piece = [0; PIECE];
        let most = range.end.saturating_sub(start).min(PIECE as u64);
        let Some(room) = usize::try_from(most).ok().and_then(|most| piece.get_mut(..most)) else {
            break;
        };
        let Some(count) = (room.len() >= LEAST).then(|| read(start, room)).flatten() else { break };
        if let Some(piece) = piece.get(..count).filter(|piece| piece.len() >= LEAST) {
            all += 1;
            noisy += usize::from(is_piece_noise(piece));
        }
    }
    all > 0 && noisy * 2 >= all
}

/// Compares the equal pairs of bytes with those of bytes by chance, which are one in 256.
fn is_piece_noise(piece: &[u8]) -> bool {
    // Several tables, so that equal bytes in a row do not wait for each other in the processor.
    let mut counts = [[0_u16; 256]; 4];
    for bytes in piece.chunks(4) {
        for (table, byte) in counts.iter_mut().zip(bytes) {
            if let Some(count) = table.get_mut(usize::from(*byte)) {
                *count += 1;
            }
        }
    }
    let [a, b, c, d] = &counts;
    let counts = a.iter().zip(b).zip(c.iter().zip(d));
    let counts = counts.map(|((a, b), (c, d))| u64::from(a + b + c + d));
    let pairs: u64 = counts.map(|count| count * count).sum();
    let length = piece.len() as u64;
    (pairs - length) * 256 <= length * (length - 1) * TIMES_CHANCE
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;

    use super::{is_noise as is_noise_at, *};

    fn is_noise(data: &[u8]) -> bool {
        is_noise_at(data, Places::of(1))
    }

    /// Bytes as encryption makes them.
    fn noise(length: usize, seed: u64) -> Vec<u8> {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
        let next = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 56) as u8
        };
        std::iter::repeat_with(next).take(length).collect()
    }

    #[test]
    fn encrypted_data_is_noise_from_128_bytes_on() {
        for seed in 1..200 {
            for length in [128, 129, 511, 512, 513, 1_000, 2_048, 2_049, 4_096, 65_536] {
                assert!(is_noise(&noise(length, seed)), "{length} {seed}");
            }
        }
        for length in [0, 1, 127] {
            assert!(!is_noise(&noise(length, 7)), "{length}");
        }
    }

    #[test]
    fn text_programs_and_zeros_are_not() {
        let text = include_str!("noise.rs").as_bytes();
        assert!(!is_noise(text) && !is_noise(&text[..128]));
        assert!(!is_noise(&[0; 4096]));
        let numbers: Vec<u8> = (0..4096_u32).flat_map(u32::to_le_bytes).collect();
        assert!(!is_noise(&numbers));
        let mut program = vec![0; 4 << 20];
        let mut file = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        file.read_exact(&mut program).unwrap();
        let pieces: Vec<&[u8]> = program.chunks(65_536).collect();
        let noisy = pieces.iter().filter(|piece| is_noise(piece)).count();
        assert!(noisy * 10 < pieces.len(), "{noisy} of {}", pieces.len());
    }

    /// Programs that encrypt every other block, to be quicker.
    #[test]
    fn half_of_the_pieces_are_enough() {
        let mut mixed = b"words and more of them, ".repeat(200);
        mixed.truncate(4096);
        let half = noise(2048, 3);
        mixed[..2048].copy_from_slice(&half);
        assert!(is_noise(&mixed));
        mixed[1024..2048].fill(b'a');
        assert!(!is_noise(&mixed));
    }

    /// A client that leaves the beginnings of all quarters as they were is seen all the same.
    #[test]
    fn the_places_that_are_looked_at_cannot_be_known() {
        let mut data = noise(131_072, 5);
        for quarter in data.chunks_mut(32_768) {
            quarter[..512].fill(b'a');
        }
        let found = (0..100).filter(|offset| is_noise_at(&data, Places::of(77).at(*offset)));
        assert!(found.count() > 95);
        let read = |at: u64, into: &mut [u8]| {
            let from = data.get(usize::try_from(at).unwrap()..)?;
            let count = from.len().min(into.len());
            into[..count].copy_from_slice(&from[..count]);
            Some(count)
        };
        let found = (0..100).filter(|secret| is_noise_in(0..131_072, Places::of(*secret), read));
        assert!(found.count() > 95);
        assert!(!is_noise_in(0..127, Places::of(1), read));
        assert!(is_noise_in(1_000..1_200, Places::of(1), read));
        assert!(!is_noise_in(0..131_072, Places::of(1), |_, _| None));
    }
}
