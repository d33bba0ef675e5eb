//! Splitting a chain of messages, MS-SMB2 3.3.5.2.7.

use crate::codec::{Malformed, Parsed, Reader};
use crate::header::HEADER_LEN;

/// Bytes before NextCommand in the header.
const NEXT_COMMAND_OFFSET: usize = 20;

/// Iterates over the messages of a chain: `(offset in the chain, message)`.
///
/// Each message begins at its header and ends at the next header (padding included) or at the end
/// of the chain. The iteration ends after an error, because the next header's position is unknown;
/// the peer is then disconnected.
#[derive(Debug, Clone)]
pub struct Compound<'a> {
    chain: &'a [u8],
    at: Option<usize>,
}

impl<'a> Compound<'a> {
    /// Makes an iterator over `chain`, the whole decrypted and decompressed payload of a frame.
    pub const fn new(chain: &'a [u8]) -> Self {
        Self { chain, at: Some(0) }
    }

    fn split(&mut self, at: usize) -> Parsed<&'a [u8]> {
        let rest = self.chain.get(at..).unwrap_or(&[]);
        if rest.len() < HEADER_LEN {
            return Err(Malformed::new("message shorter than its header"));
        }
        let r = &mut Reader::new(rest);
        r.skip(NEXT_COMMAND_OFFSET, "header")?;
        let next = r.u32("NextCommand")?;
        if next == 0 {
            return Ok(rest);
        }
        let next = usize::try_from(next).map_err(|_| Malformed::new("NextCommand"))?;
        if next < HEADER_LEN {
            return Err(Malformed::new("NextCommand inside the header"));
        }
        if !next.is_multiple_of(8) {
            return Err(Malformed::new("NextCommand alignment"));
        }
        let message = rest.get(..next).ok_or(Malformed::new("NextCommand past the end"))?;
        self.at = at.checked_add(next);
        Ok(message)
    }
}

impl<'a> Iterator for Compound<'a> {
    type Item = Parsed<(usize, &'a [u8])>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at.take()?;
        Some(self.split(at).map(|message| (at, message)))
    }
}

#[cfg(test)]
mod tests {
    use super::Compound;
    use std::vec;
    use std::vec::Vec;

    fn chain(lengths_and_next: &[(usize, u32)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(length, next) in lengths_and_next {
            let mut message = vec![0u8; length];
            message[20..24].copy_from_slice(&next.to_le_bytes());
            bytes.extend_from_slice(&message);
        }
        bytes
    }

    #[test]
    fn splits_three() {
        let bytes = chain(&[(72, 72), (64, 64), (67, 0)]);
        let parts: Vec<_> = Compound::new(&bytes).map(Result::unwrap).collect();
        assert_eq!(
            parts.iter().map(|&(at, m)| (at, m.len())).collect::<Vec<_>>(),
            [(0, 72), (72, 64), (136, 67)]
        );
    }

    #[test]
    fn refuses_bad_next_command() {
        for next in [1, 8, 56, 63, 65, 68, 76, 136, 0xFFFF_FFF8] {
            let bytes = chain(&[(64, next), (64, 0)]);
            let mut parts = Compound::new(&bytes);
            assert!(parts.next().unwrap().is_err(), "{next}");
            assert!(parts.next().is_none(), "{next}");
        }
        // The second NextCommand points to the end of the frame, where no further message follows.
        let bytes = chain(&[(64, 128), (64, 0)]);
        let mut parts = Compound::new(&bytes);
        assert!(parts.next().unwrap().is_ok());
        assert!(parts.next().unwrap().is_err());
        assert!(parts.next().is_none());
    }

    #[test]
    fn refuses_short_messages() {
        assert!(Compound::new(&[]).next().unwrap().is_err());
        assert!(Compound::new(&[0; 63]).next().unwrap().is_err());
        assert!(Compound::new(&[0; 64]).next().unwrap().is_ok());
    }
}
