//! The algorithms that protect messages.

use core::time::Duration;

use frevo_crypto::{Cipher, SigningAlgorithm};

use super::Codec;

/// The algorithm that takes the time of the work on a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Of a signature.
    Signing(SigningAlgorithm),
    /// Of a seal.
    Sealing(Cipher),
    /// Of compression, with the signature or the seal of what is compressed.
    Compressing(Codec),
    /// Of expansion, with the check of a signature.
    Expanding(Codec),
}

impl Algorithm {
    /// Count of algorithms.
    pub const COUNT: usize = 15;

    /// Returns the position of the algorithm in a table of all.
    pub const fn number(self) -> usize {
        match self {
            Self::Signing(SigningAlgorithm::HmacSha256) => 0,
            Self::Signing(SigningAlgorithm::AesCmac) => 1,
            Self::Signing(SigningAlgorithm::AesGmac) => 2,
            Self::Sealing(Cipher::Aes128Ccm) => 3,
            Self::Sealing(Cipher::Aes128Gcm) => 4,
            Self::Sealing(Cipher::Aes256Ccm) => 5,
            Self::Sealing(Cipher::Aes256Gcm) => 6,
            Self::Compressing(Codec::Lznt1) => 7,
            Self::Compressing(Codec::Lz77) => 8,
            Self::Compressing(Codec::Huffman) => 9,
            Self::Compressing(Codec::Lz4) => 10,
            Self::Expanding(Codec::Lznt1) => 11,
            Self::Expanding(Codec::Lz77) => 12,
            Self::Expanding(Codec::Huffman) => 13,
            Self::Expanding(Codec::Lz4) => 14,
        }
    }

    /// True if each block of a message waits for the one before it.
    pub const fn is_chain(self) -> bool {
        match self {
            Self::Signing(algorithm) => !matches!(algorithm, SigningAlgorithm::AesGmac),
            Self::Sealing(cipher) => matches!(cipher, Cipher::Aes128Ccm | Cipher::Aes256Ccm),
            Self::Compressing(_) | Self::Expanding(_) => true,
        }
    }

    /// Returns the longest time for a mebibyte of work whose time its data decides: that of earlier data
    /// says nothing on what a peer sends next, so it is not measured. None for what is measured.
    pub const fn longest(self) -> Option<Duration> {
        let millis = match self {
            Self::Signing(_) | Self::Sealing(_) => return None,
            Self::Compressing(Codec::Lz4) => 3,
            Self::Compressing(Codec::Lz77) | Self::Expanding(Codec::Lznt1) => 6,
            Self::Compressing(Codec::Huffman | Codec::Lznt1) => 8,
            Self::Expanding(Codec::Lz4) => 2,
            Self::Expanding(Codec::Lz77) => 4,
            Self::Expanding(Codec::Huffman) => 7,
        };
        Some(Duration::from_millis(millis))
    }

    /// Returns the longest time for `bytes`; zero for what is measured.
    pub fn longest_for(self, bytes: usize) -> Duration {
        let nanoseconds = self.longest().unwrap_or_default().as_nanos();
        let nanoseconds = u64::try_from(nanoseconds).unwrap_or(u64::MAX);
        let bytes = u64::try_from(bytes).unwrap_or(u64::MAX);
        Duration::from_nanos(nanoseconds.saturating_mul(bytes) >> 20)
    }

    /// Returns the time for a mebibyte that counts until it is measured.
    pub(super) const fn supposed(self) -> Duration {
        match self.is_chain() {
            true => Duration::from_millis(1),
            false => Duration::ZERO,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::vec::Vec;

    #[test]
    fn every_algorithm_has_a_number_of_its_own() {
        let signing =
            [0, 1, 2].map(|id| Algorithm::Signing(SigningAlgorithm::from_id(id).unwrap()));
        let sealing = [1, 2, 3, 4].map(|id| Algorithm::Sealing(Cipher::from_id(id).unwrap()));
        let compressing = Codec::ALL.map(Algorithm::Compressing);
        let expanding = Codec::ALL.map(Algorithm::Expanding);
        let all = signing.iter().chain(&sealing).chain(&compressing).chain(&expanding);
        let mut numbers: Vec<usize> = all.clone().map(|algorithm| algorithm.number()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..Algorithm::COUNT).collect::<Vec<_>>());
        assert_eq!(all.filter(|algorithm| algorithm.is_chain()).count(), 12);
    }
}
