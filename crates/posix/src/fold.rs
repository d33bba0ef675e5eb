//! Comparison of names by the upper case of each character.
//!
//! Names that are not UTF-8 compare byte for byte.

use frevo_wire::fscc::{eq_ignore_case, upcase};

use crate::limits::COMPONENT_BYTES;

/// True if two components fold alike.
pub(crate) fn alike(a: &[u8], b: &[u8]) -> bool {
    if a.is_ascii() && b.is_ascii() {
        return a.eq_ignore_ascii_case(b);
    }
    match (core::str::from_utf8(a), core::str::from_utf8(b)) {
        (Ok(a), Ok(b)) => eq_ignore_case(a, b),
        _ => a == b,
    }
}

/// Returns an entry's name without periods and spaces at its end, which FAT and exFAT drop: all
/// spellings with them lead to one entry there.
pub(crate) const fn without_tail(mut name: &[u8]) -> &[u8] {
    while let [rest @ .., b'.' | b' '] = name {
        name = rest;
    }
    name
}

/// A folded component, without allocation.
pub(crate) struct Folded {
    // The upper-case form may have more bytes than the name, but never more UTF-16 units, so the
    // buffer is sized for them.
    bytes: [u8; COMPONENT_BYTES],
    len: usize,
}

impl Folded {
    pub(crate) fn of(component: &[u8]) -> Self {
        let mut folded = Self { bytes: [0; COMPONENT_BYTES], len: 0 };
        if component.is_ascii() {
            folded.push(component);
            folded.bytes[..folded.len].make_ascii_uppercase();
        } else if let Ok(text) = core::str::from_utf8(component) {
            for c in text.chars() {
                folded.push(upcase(c).encode_utf8(&mut [0; 4]).as_bytes());
            }
        } else {
            folded.push(component);
        }
        folded
    }

    /// Appends bytes; those that do not fit are dropped. Different names may then have equal folded
    /// forms, and [`alike`] compares the names themselves.
    fn push(&mut self, more: &[u8]) {
        if let Some(room) = self.bytes.get_mut(self.len..self.len + more.len()) {
            room.copy_from_slice(more);
            self.len += more.len();
        }
    }

    pub(crate) fn as_bytes(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_fold_one_to_one() {
        for (a, b) in [("abc", "ABC"), ("é", "É"), ("ж", "Ж"), ("ÿ", "Ÿ"), ("aé", "AÉ")] {
            assert!(alike(a.as_bytes(), b.as_bytes()), "{a} {b}");
            assert_eq!(Folded::of(a.as_bytes()).as_bytes(), Folded::of(b.as_bytes()).as_bytes());
        }
        for (a, b) in [("a", "b"), ("ß", "SS"), ("a", "aa"), ("e\u{301}", "é"), ("a", "é")] {
            assert!(!alike(a.as_bytes(), b.as_bytes()), "{a} {b}");
            assert_ne!(Folded::of(a.as_bytes()).as_bytes(), Folded::of(b.as_bytes()).as_bytes());
        }
        assert!(!alike(b"a\xff", b"A\xff"));
        assert!(alike(b"a\xff", b"a\xff"));
    }

    proptest::proptest! {
        #[test]
        fn alike_is_what_folds_the_same(a in "\\PC{0,8}", b in "\\PC{0,8}") {
            for (a, b) in [(&a, &b), (&a, &a.to_uppercase()), (&b, &b.to_lowercase())] {
                let same = Folded::of(a.as_bytes()).as_bytes() == Folded::of(b.as_bytes()).as_bytes();
                assert_eq!(alike(a.as_bytes(), b.as_bytes()), same, "{a:?} {b:?}");
            }
        }
    }
}
