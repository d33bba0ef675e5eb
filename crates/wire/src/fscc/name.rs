//! Names as they travel: UTF-16LE without a terminator.

use crate::codec::{Malformed, Parsed, Reader, Writer};
use alloc::string::String;
use core::fmt;

/// A name in UTF-16LE, borrowed from a message. The length is even; that the
/// code units are well-formed is found out by [`Self::decode`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct WireName<'a>(&'a [u8]);

impl<'a> WireName<'a> {
    /// Takes bytes of even length.
    pub fn new(bytes: &'a [u8]) -> Parsed<Self> {
        if bytes.len().is_multiple_of(2) {
            Ok(Self(bytes))
        } else {
            Err(Malformed::new("UTF-16 length"))
        }
    }

    /// The bytes as they travel.
    pub const fn as_bytes(self) -> &'a [u8] {
        self.0
    }

    /// True if there are no code units.
    pub const fn is_empty(self) -> bool {
        self.0.is_empty()
    }

    /// Iterates over the code units.
    pub fn units(self) -> impl Iterator<Item = u16> + Clone + 'a {
        let (pairs, _) = self.0.as_chunks::<2>();
        pairs.iter().map(|pair| u16::from_le_bytes(*pair))
    }

    /// The text; a lone surrogate is malformed (STATUS_OBJECT_NAME_INVALID).
    pub fn decode(self) -> Parsed<String> {
        let mut text = String::with_capacity(self.0.len().div_ceil(2));
        self.decode_into(&mut text)?;
        Ok(text)
    }

    /// Appends the text to `text`. On error the text decoded so far remains.
    pub fn decode_into(self, text: &mut String) -> Parsed<()> {
        for unit in char::decode_utf16(self.units()) {
            text.push(unit.map_err(|_| Malformed::new("UTF-16 surrogate"))?);
        }
        Ok(())
    }

    /// The text with U+FFFD for lone surrogates, for people.
    pub fn to_string_lossy(self) -> String {
        char::decode_utf16(self.units()).map(|c| c.unwrap_or(char::REPLACEMENT_CHARACTER)).collect()
    }

    /// True if the name is exactly `text`.
    pub fn is(self, text: &str) -> bool {
        self.units().eq(text.encode_utf16())
    }
}

impl fmt::Debug for WireName<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.to_string_lossy(), f)
    }
}

/// Code units of `text` in UTF-16.
pub fn utf16_units(text: &str) -> usize {
    // In ASCII each byte is one UTF-16 unit. Most names are ASCII, and the check for it is fast,
    // because it is vectorised.
    if text.is_ascii() {
        text.len()
    } else {
        text.chars().map(char::len_utf16).fold(0, usize::saturating_add)
    }
}

/// Bytes of `text` in UTF-16LE, as length fields count them.
pub fn utf16_len(text: &str) -> usize {
    utf16_units(text).saturating_mul(2)
}

/// [`utf16_len`] for a 32-bit length field. Texts of two gibioctets or more do
/// not occur; their length saturates.
pub(crate) fn utf16_len_u32(text: &str) -> u32 {
    u32::try_from(utf16_len(text)).unwrap_or(u32::MAX)
}

/// A name that follows its own 32-bit length (in bytes).
pub(crate) fn read_counted<'a>(r: &mut Reader<'a>, what: &'static str) -> Parsed<WireName<'a>> {
    let length = usize::try_from(r.u32(what)?).map_err(|_| Malformed::new(what))?;
    WireName::new(r.take(length, what)?)
}

/// The counterpart of [`read_counted`].
pub(crate) fn write_counted(w: &mut Writer<'_>, text: &str) {
    w.u32(utf16_len_u32(text)).utf16(text);
}

/// An 8.3 name: at most twelve UTF-16 code units, MS-FSCC 2.1.5.2.1.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct ShortName {
    bytes: [u8; 24],
    len: u8,
}

impl ShortName {
    /// The value for no short name.
    pub const NONE: Self = Self { bytes: [0; 24], len: 0 };

    /// `text` as a short name if it has at most twelve code units.
    pub fn new(text: &str) -> Option<Self> {
        let len = utf16_len(text);
        let mut name =
            Self { bytes: [0; 24], len: u8::try_from(len).ok().filter(|len| *len <= 24)? };
        let (pairs, _) = name.bytes.as_chunks_mut::<2>();
        for (pair, unit) in pairs.iter_mut().zip(text.encode_utf16()) {
            *pair = unit.to_le_bytes();
        }
        Some(name)
    }

    /// All 24 bytes, whatever they say: READ_DIR_ATTR of macOS.
    pub const fn filled(bytes: [u8; 24]) -> Self {
        Self { bytes, len: 24 }
    }

    /// From ShortNameLength and the 24 bytes of ShortName.
    pub(crate) fn from_wire(len: u8, bytes: [u8; 24]) -> Parsed<Self> {
        if len > 24 || !len.is_multiple_of(2) {
            return Err(Malformed::new("ShortNameLength"));
        }
        let mut name = Self { bytes: [0; 24], len };
        let used = usize::from(len);
        if let (Some(to), Some(from)) = (name.bytes.get_mut(..used), bytes.get(..used)) {
            to.copy_from_slice(from);
        }
        Ok(name)
    }

    /// ShortNameLength, in bytes.
    pub const fn len_bytes(&self) -> u8 {
        self.len
    }

    /// All 24 bytes, zero after the name.
    pub const fn padded(&self) -> &[u8; 24] {
        &self.bytes
    }

    /// Returns the name.
    pub fn name(&self) -> WireName<'_> {
        WireName(self.bytes.get(..usize::from(self.len)).unwrap_or(&[]))
    }

    /// True if there is no short name.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl fmt::Debug for ShortName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.name(), f)
    }
}
