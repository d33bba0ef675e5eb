//! Key bytes that are wiped when dropped and cannot be printed.

use core::fmt;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// `N` secret bytes. Wiped when dropped, printed as `Secret(..)`, compared in constant time.
#[derive(Clone, Zeroize, ZeroizeOnDrop)]
pub struct Secret<const N: usize>([u8; N]);

impl<const N: usize> Secret<N> {
    /// Takes the bytes; the caller has to wipe its own copy.
    pub const fn new(bytes: [u8; N]) -> Self {
        Self(bytes)
    }

    /// Takes the first `N` bytes of `bytes`, with zeros if it is shorter: MS-SMB2 3.3.1.8 makes
    /// Session.SessionKey in this way.
    pub fn truncated(bytes: &[u8]) -> Self {
        let mut secret = Self([0; N]);
        for (to, from) in secret.0.iter_mut().zip(bytes) {
            *to = *from;
        }
        secret
    }

    /// Returns the bytes for a computation.
    pub const fn expose(&self) -> &[u8; N] {
        &self.0
    }

    pub(crate) const fn expose_mut(&mut self) -> &mut [u8; N] {
        &mut self.0
    }
}

impl<const N: usize> PartialEq for Secret<N> {
    fn eq(&self, other: &Self) -> bool {
        aws_lc_rs::constant_time::verify_slices_are_equal(&self.0, &other.0).is_ok()
    }
}

impl<const N: usize> Eq for Secret<N> {}

impl<const N: usize> fmt::Debug for Secret<N> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn does_not_print() {
        assert_eq!(std::format!("{:?}", Secret::new([0x41; 16])), "Secret(..)");
    }

    #[test]
    fn truncated_cuts_and_pads() {
        assert_eq!(Secret::<4>::truncated(&[1, 2, 3, 4, 5]).expose(), &[1, 2, 3, 4]);
        assert_eq!(Secret::<4>::truncated(&[1, 2, 3, 4]).expose(), &[1, 2, 3, 4]);
        assert_eq!(Secret::<4>::truncated(&[1, 2, 3]).expose(), &[1, 2, 3, 0]);
    }
}
