//! The content of the data files: it tells for each page which one it is, and does not compress.

use frevo_net::buffer::Buf;

/// Bytes of a page, the unit of random access.
pub(super) const PAGE: u64 = 4096;
/// Bytes after which the content repeats, apart from the number at the start of each page.
const REPEAT: usize = 1 << 20;
/// Bytes of the page's number.
const NUMBER: usize = 8;

/// The content of a file of any length.
#[derive(Debug)]
pub(super) struct Content {
    bytes: Vec<u8>,
}

impl Content {
    pub(super) fn new() -> Self {
        let mut random = Random::new(1);
        let words = std::iter::repeat_with(|| random.next().to_le_bytes());
        Self { bytes: words.take(REPEAT / NUMBER).flatten().collect() }
    }

    /// Appends `len` bytes from `offset` on: whole pages, or a part of one. Both numbers are
    /// multiples of eight.
    pub(super) fn append(&self, offset: u64, len: usize, into: &mut Buf) {
        let end = offset + len as u64;
        let mut at = offset;
        while at < end {
            let next = end.min((at / PAGE + 1) * PAGE);
            let start = usize::try_from(at % REPEAT as u64).unwrap_or_default();
            let stop = start + usize::try_from(next - at).unwrap_or_default();
            into.extend_from_slice(&self.first_word(at));
            into.extend_from_slice(self.bytes.get(start + NUMBER..stop).unwrap_or_default());
            at = next;
        }
    }

    /// The first bytes at a place: in front of a page its number.
    fn first_word(&self, at: u64) -> [u8; NUMBER] {
        if at.is_multiple_of(PAGE) {
            return (at / PAGE).to_le_bytes();
        }
        let start = usize::try_from(at % REPEAT as u64).unwrap_or_default();
        self.bytes.get(start..).and_then(|bytes| bytes.first_chunk()).copied().unwrap_or_default()
    }

    /// Returns true if `data` has the length `len`, and begins like the bytes from `offset` on, as
    /// do its pages. Only their first bytes are compared: this is part of what is measured.
    pub(super) fn is(&self, offset: u64, len: usize, data: &[u8]) -> bool {
        let mut pages = data.chunks(PAGE as usize).zip((offset..).step_by(PAGE as usize));
        data.len() == len && pages.all(|(page, at)| page.starts_with(&self.first_word(at)))
    }
}

/// Numbers without order: xorshift64.
#[derive(Debug)]
pub(super) struct Random(u64);

impl Random {
    /// The sequence of `seed`.
    pub(super) const fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(super) const fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_in_the_wrong_place_is_noticed() {
        let content = Content::new();
        let mut data = Buf::new();
        content.append(3 << 20, 1 << 20, &mut data);
        content.append(4 << 20, 8192, &mut data);
        let len = data.len();
        assert!(content.is(3 << 20, len, &data));
        assert!(!content.is(2 << 20, len, &data) && !content.is(3 << 20, len + 1, &data));
        let mut one_wrong = data.to_vec();
        one_wrong[5 * 4096] ^= 1;
        assert!(!content.is(3 << 20, len, &one_wrong));
    }

    #[test]
    fn parts_of_a_page_are_those_of_the_whole() {
        let content = Content::new();
        let (mut whole, mut parts) = (Buf::new(), Buf::new());
        content.append(5 * PAGE, PAGE as usize, &mut whole);
        for part in 0..4 {
            let at = 5 * PAGE + part * 1024;
            let mut data = Buf::new();
            content.append(at, 1024, &mut data);
            assert!(content.is(at, 1024, &data) && !content.is(at + 1024, 1024, &data));
            parts.extend_from_slice(&data);
        }
        assert_eq!(parts[..], whole[..]);
    }
}
