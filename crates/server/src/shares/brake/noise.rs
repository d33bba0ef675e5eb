//! Data that does not compress: encrypted, or compressed before.

/// Bytes of a piece that is looked at.
const PIECE: usize = 512;

/// Number of pieces at most, spread over the data.
const PIECES: usize = 4;

/// Bytes of a piece below which nothing can be said of it.
const LEAST: usize = 128;

/// Equal pairs of bytes that noise may have, in multiples of what chance alone makes. Encrypted data has 1,
/// pictures and archives 1 to 1.6, programs 5 and more, text 15 and more.
const TIMES_CHANCE: u64 = 2;

/// True for data of which half the pieces that are looked at do not compress. Data of less than 128 bytes never is.
pub(crate) fn is_noise(data: &[u8]) -> bool {
    let apart = data.len().div_ceil(PIECES).max(PIECE);
    let pieces = data.chunks(apart).map(|part| part.get(..PIECE).unwrap_or(part));
    let (mut noisy, mut all) = (0, 0);
    for piece in pieces.filter(|piece| piece.len() >= LEAST) {
        all += 1;
        noisy += usize::from(is_piece_noise(piece));
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

    use super::*;

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
}
