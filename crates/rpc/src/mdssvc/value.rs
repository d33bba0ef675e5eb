//! The values of a message.

use alloc::string::String;
use alloc::vec::Vec;

/// Seconds from 1970-01-01 to 2001-01-01, from which macOS counts.
pub(super) const EPOCH: i64 = 978_307_200;

/// The order of the bytes in a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// Little-endian, in which servers answer.
    Little,
    /// Big-endian.
    Big,
}

/// A value of a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// Nothing: an attribute that a file does not have.
    Nil,
    /// A boolean.
    Bool(bool),
    /// An integer.
    Integer(u64),
    /// A floating point number.
    Float(f64),
    /// A date, in seconds since 2001-01-01 00:00 UTC.
    Date(f64),
    /// A UUID.
    Uuid([u8; 16]),
    /// A text in UTF-8.
    Text(String),
    /// A text in UTF-16.
    WideText(String),
    /// An array.
    Array(Vec<Self>),
    /// A dictionary: keys, which are texts, each before its value.
    Dictionary(Vec<Self>),
    /// Numbers of files.
    Cnids(Cnids),
    /// Attributes of files: a message in the message.
    FileMeta(Vec<Self>),
}

/// Numbers of files, by which a client names what a query has found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cnids {
    /// A field of unknown meaning: [`Self::OF_RESULTS`] or [`Self::OF_ATTRIBUTES`].
    pub kind: u16,
    /// The lower number of the query's context.
    pub context: u32,
    /// The numbers, at most [`u16::MAX`].
    pub ids: Vec<u64>,
}

impl Cnids {
    /// The field in results of a query, and in requests.
    pub const OF_RESULTS: u16 = 0x0ADD;
    /// The field in answers about attributes.
    pub const OF_ATTRIBUTES: u16 = 0x0FEC;
}

impl Value {
    /// Makes a text.
    pub fn text(text: &str) -> Self {
        Self::Text(text.into())
    }

    /// Returns the text of a text.
    pub fn as_text(&self) -> Option<&str> {
        match self {
            Self::Text(text) | Self::WideText(text) => Some(text),
            _ => None,
        }
    }

    /// Returns the number of an integer.
    pub const fn as_integer(&self) -> Option<u64> {
        if let Self::Integer(number) = self { Some(*number) } else { None }
    }

    /// Returns the elements of an array.
    pub fn as_array(&self) -> Option<&[Self]> {
        if let Self::Array(elements) = self { Some(elements) } else { None }
    }

    /// Returns the numbers of files.
    pub const fn as_cnids(&self) -> Option<&Cnids> {
        if let Self::Cnids(cnids) = self { Some(cnids) } else { None }
    }

    /// Returns the texts of an array that has nothing else.
    pub fn as_texts(&self) -> Option<Vec<&str>> {
        self.as_array()?.iter().map(Self::as_text).collect()
    }

    /// Returns the value of a key in a dictionary.
    pub fn get(&self, key: &str) -> Option<&Self> {
        let Self::Dictionary(entries) = self else { return None };
        let mut entries = entries.chunks_exact(2);
        entries.find_map(|entry| match entry {
            [name, value] if name.as_text() == Some(key) => Some(value),
            _ => None,
        })
    }
}

/// Types of values in the data section, the middle sixteen bits of a tag.
pub(super) mod tag {
    pub(crate) const NIL: u16 = 0x0000;
    pub(crate) const BOOL: u16 = 0x0100;
    pub(crate) const COMPLEX: u16 = 0x0200;
    pub(crate) const DATA: u16 = 0x0700;
    pub(crate) const UUID: u16 = 0x0E00;
    pub(crate) const INTEGER: u16 = 0x8400;
    pub(crate) const FLOAT: u16 = 0x8500;
    pub(crate) const DATE: u16 = 0x8600;
    pub(crate) const CNIDS: u16 = 0x8700;
    pub(crate) const CONTENTS: u16 = 0x8800;
}

/// Types of complex values in the table of contents.
pub(super) mod complex {
    pub(crate) const ARRAY: u16 = 0x0A00;
    pub(crate) const TEXT: u16 = 0x0C00;
    pub(crate) const DICTIONARY: u16 = 0x0D00;
    pub(crate) const CNIDS: u16 = 0x1A00;
    pub(crate) const FILE_META: u16 = 0x1B00;
    pub(crate) const WIDE_TEXT: u16 = 0x1C00;
}

/// The first eight bytes of a message in little-endian order.
pub(super) const MAGIC_LITTLE: &[u8; 8] = b"432130dm";

/// The first eight bytes of a message in big-endian order.
pub(super) const MAGIC_BIG: &[u8; 8] = b"md031234";

/// Bytes of a unit: tags, numbers and offsets are units.
pub(super) const UNIT: usize = 8;

/// The third field of a tag with bytes whose length is whole units, and of a tag of numbers of files.
pub(super) const WHOLE_UNITS: u32 = 8;
