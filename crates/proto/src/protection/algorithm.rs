//! The algorithms that protect messages.

use frevo_crypto::{Cipher, SigningAlgorithm};

/// The algorithm that a message is signed or sealed with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// Of a signature.
    Signing(SigningAlgorithm),
    /// Of a seal.
    Sealing(Cipher),
}

impl Algorithm {
    /// Count of algorithms.
    pub const COUNT: usize = 7;

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
        }
    }

    /// True if each block of a message waits for the one before it.
    pub const fn is_chain(self) -> bool {
        match self {
            Self::Signing(algorithm) => !matches!(algorithm, SigningAlgorithm::AesGmac),
            Self::Sealing(cipher) => matches!(cipher, Cipher::Aes128Ccm | Cipher::Aes256Ccm),
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
        let all = signing.iter().chain(&sealing);
        let mut numbers: Vec<usize> = all.clone().map(|algorithm| algorithm.number()).collect();
        numbers.sort_unstable();
        assert_eq!(numbers, (0..Algorithm::COUNT).collect::<Vec<_>>());
        assert_eq!(all.filter(|algorithm| algorithm.is_chain()).count(), 4);
    }
}
