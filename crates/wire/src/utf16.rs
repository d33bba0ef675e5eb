//! UTF-16LE text as it stands in a message.

use crate::codec::{Malformed, Parsed};
use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

/// UTF-16LE text without a terminator: borrowed from a message, or owned.
///
/// The code units are whatever the peer sent; whether they are valid Unicode is
/// asked by [`Utf16::to_string`]. The number of bytes is always even.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Utf16<'a>(Cow<'a, [u8]>);

impl<'a> Utf16<'a> {
    /// The empty text.
    pub const EMPTY: Self = Self(Cow::Borrowed(&[]));

    /// Takes little-endian bytes; an odd number of them is malformed.
    pub const fn new(bytes: &'a [u8]) -> Parsed<Self> {
        if bytes.len().is_multiple_of(2) {
            Ok(Self(Cow::Borrowed(bytes)))
        } else {
            Err(Malformed::new("UTF-16 length"))
        }
    }

    /// Encodes `text`.
    #[allow(clippy::should_implement_trait)] // cannot fail, and returns a Utf16<'static>
    pub fn from_str(text: &str) -> Utf16<'static> {
        Utf16::from_units(text.encode_utf16())
    }

    /// Collects code units, which need not be valid Unicode.
    pub fn from_units(units: impl IntoIterator<Item = u16>) -> Utf16<'static> {
        let mut bytes = Vec::new();
        for unit in units {
            bytes.extend_from_slice(&unit.to_le_bytes());
        }
        Utf16(Cow::Owned(bytes))
    }

    /// The text, when it is valid Unicode: a lone surrogate is malformed.
    #[allow(clippy::inherent_to_string_shadow_display)] // can fail, unlike Display
    pub fn to_string(&self) -> Parsed<String> {
        if self.is_ascii() {
            let bytes = self.0.iter().copied().step_by(2).collect();
            return String::from_utf8(bytes).map_err(|_| Malformed::new("UTF-16 surrogate"));
        }
        char::decode_utf16(self.units())
            .collect::<Result<String, _>>()
            .map_err(|_| Malformed::new("UTF-16 surrogate"))
    }

    /// True if all characters are ASCII, as nearly always.
    fn is_ascii(&self) -> bool {
        // All units are combined before the test, without an early exit, so that the compiler can
        // vectorise the loop.
        self.units().fold(0, |all, unit| all | unit) < 0x80
    }

    /// The text with U+FFFD for lone surrogates; for people.
    pub fn to_string_lossy(&self) -> String {
        char::decode_utf16(self.units())
            .map(|unit| unit.unwrap_or(char::REPLACEMENT_CHARACTER))
            .collect()
    }

    /// True if there are no code units.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the code units.
    pub fn units(&self) -> impl DoubleEndedIterator<Item = u16> + ExactSizeIterator + Clone + '_ {
        self.0.chunks_exact(2).map(|pair| match pair {
            [low, high] => u16::from_le_bytes([*low, *high]),
            _ => 0, // never: chunks_exact(2) yields pairs
        })
    }

    /// Returns the little-endian bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Cuts the tie to the message.
    pub fn into_owned(self) -> Utf16<'static> {
        Utf16(Cow::Owned(self.0.into_owned()))
    }
}

impl fmt::Display for Utf16<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_string_lossy())
    }
}

impl fmt::Debug for Utf16<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::Utf16;
    use proptest::prelude::*;

    #[test]
    fn odd_lengths_and_lone_surrogates_are_malformed() {
        assert!(Utf16::new(&[0x41]).is_err());
        let lone = Utf16::new(&[0x00, 0xD8, 0x41, 0x00]).unwrap();
        assert!(lone.to_string().is_err());
        assert_eq!(lone.to_string_lossy(), "\u{FFFD}A");
        assert_eq!(lone.units().len(), 2);
    }

    proptest! {
        #[test]
        fn text_survives(text in ".*") {
            let utf16 = Utf16::from_str(&text);
            prop_assert_eq!(utf16.to_string().unwrap(), text.as_str());
            prop_assert_eq!(Utf16::new(utf16.as_bytes()).unwrap(), utf16.clone());
            prop_assert_eq!(Utf16::from_units(utf16.units()), utf16);
        }
    }
}
