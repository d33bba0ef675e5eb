//! Strings of messages: UTF-16LE, or the bytes of a code page (MS-CIFS 2.2.1.1).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;

use frevo_wire::codec::{Malformed, Parsed};

pub use crate::code_page::CodePage;

/// The form of the strings of a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Charset {
    /// UTF-16LE.
    Unicode,
    /// OEM characters: bytes of this code page.
    Oem(CodePage),
}

/// The error of text that a server without Unicode has no characters for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Unmappable(pub char);

impl fmt::Display for Unmappable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server's code page has no character {:?}", self.0)
    }
}

impl core::error::Error for Unmappable {}

impl Charset {
    /// Returns the bytes of `text`, without a terminator.
    ///
    /// # Errors
    /// If the code page lacks a character of it.
    pub fn encode(self, text: &str) -> Result<Vec<u8>, Unmappable> {
        match self {
            Self::Unicode => Ok(text.encode_utf16().flat_map(u16::to_le_bytes).collect()),
            Self::Oem(page) => {
                text.chars().map(|one| page.to_byte(one).ok_or(Unmappable(one))).collect()
            }
        }
    }

    /// Returns the terminator of a string.
    pub(crate) const fn end(self) -> &'static [u8] {
        match self {
            Self::Unicode => &[0, 0],
            Self::Oem(_) => &[0],
        }
    }

    /// Returns the text of `bytes`, up to a terminator if there is one. Half of a surrogate pair, which some
    /// servers allow in names, is U+FFFD.
    ///
    /// # Errors
    /// If they are half of a character too many.
    pub fn decode(self, bytes: &[u8]) -> Parsed<String> {
        match self {
            Self::Unicode => {
                let (pairs, rest) = bytes.as_chunks::<2>();
                if !rest.is_empty() {
                    return Err(Malformed::new("UTF-16 length"));
                }
                let units = pairs.iter().map(|pair| u16::from_le_bytes(*pair));
                let units = units.take_while(|unit| *unit != 0);
                let text = char::decode_utf16(units);
                Ok(text.map(|one| one.unwrap_or(char::REPLACEMENT_CHARACTER)).collect())
            }
            Self::Oem(page) => Ok(bytes
                .iter()
                .take_while(|byte| **byte != 0)
                .map(|byte| page.to_char(*byte))
                .collect()),
        }
    }
}

/// Strings in the data block of a request, whose first byte has an odd offset from the header.
#[derive(Debug)]
pub(crate) struct Strings {
    charset: Charset,
    pub(crate) bytes: Vec<u8>,
}

impl Strings {
    pub(crate) const fn new(charset: Charset) -> Self {
        Self { charset, bytes: Vec::new() }
    }

    /// Appends bytes unchanged.
    pub(crate) fn raw(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends a string with its terminator, at an even offset from the header if it is Unicode.
    ///
    /// # Errors
    /// If the code page lacks a character.
    pub(crate) fn text(&mut self, text: &str) -> Result<&mut Self, Unmappable> {
        if self.charset == Charset::Unicode && self.bytes.len().is_multiple_of(2) {
            self.bytes.push(0);
        }
        let encoded = self.charset.encode(text)?;
        self.bytes.extend_from_slice(&encoded);
        self.bytes.extend_from_slice(self.charset.end());
        Ok(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const OEM: Charset = Charset::Oem(CodePage::Cp850);

    #[test]
    fn strings_are_aligned_and_come_back() {
        for charset in [Charset::Unicode, OEM] {
            let mut strings = Strings::new(charset);
            strings.raw(&[9]).text("Größe").unwrap();
            assert_eq!(charset.decode(&strings.bytes[1..]).unwrap(), "Größe");
        }
        let mut strings = Strings::new(Charset::Unicode);
        strings.text("a").unwrap();
        assert_eq!(strings.bytes, [0, b'a', 0, 0, 0], "one byte of padding");
    }

    #[test]
    fn text_outside_the_code_page_is_refused() {
        assert_eq!(OEM.encode("aΩ"), Err(Unmappable('Ω')));
        assert_eq!(Charset::Oem(CodePage::Cp437).encode("Ω").unwrap(), [0xEA]);
        assert!(Charset::Unicode.encode("aΩ").is_ok());
    }

    proptest! {
        #[test]
        fn any_bytes_are_read(bytes in proptest::collection::vec(any::<u8>(), 0..64)) {
            for charset in [Charset::Unicode, OEM] {
                let _ = charset.decode(&bytes);
            }
        }
    }
}
