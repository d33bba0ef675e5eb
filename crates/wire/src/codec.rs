//! Bounded reading and writing of little-endian protocol bytes.
//!
//! Every parser in this crate uses [`Reader`], which cannot read past its slice, and every encoder
//! [`Writer`], which knows where its SMB2 header begins, because MS-SMB2 counts all offsets from
//! there.

use alloc::vec::Vec;
use core::fmt;

/// Bytes that do not have the form that the specification gives them.
///
/// The caller decides what the peer is told (a status or a disconnect): MS-SMB2 answers malformed
/// bytes differently from case to case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// The field or rule that is violated, for logs.
    pub what: &'static str,
}

impl Malformed {
    /// Makes an error about the field or rule `what`.
    pub const fn new(what: &'static str) -> Self {
        Self { what }
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed {}", self.what)
    }
}

impl core::error::Error for Malformed {}

/// The result of parsers.
pub type Parsed<T> = Result<T, Malformed>;

/// Reads little-endian fields from a slice, and nothing outside it.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Makes a reader at the first byte of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes read so far.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Returns the number of unread bytes.
    pub const fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// True if all bytes have been read.
    pub const fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// Reads the next `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Parsed<&'a [u8]> {
        let end = self.at.checked_add(n).ok_or(Malformed::new(what))?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed::new(what))?;
        self.at = end;
        Ok(taken)
    }

    /// Reads all remaining bytes.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        self.at = self.bytes.len();
        rest
    }

    /// Skips `n` bytes (reserved fields, padding).
    pub fn skip(&mut self, n: usize, what: &'static str) -> Parsed<()> {
        self.take(n, what).map(|_| ())
    }

    /// Reads the next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Parsed<[u8; N]> {
        self.take(N, what)?.try_into().map_err(|_| Malformed::new(what))
    }

    /// Reads a byte.
    pub fn u8(&mut self, what: &'static str) -> Parsed<u8> {
        self.array::<1>(what).map(u8::from_le_bytes)
    }

    /// Reads a 16-bit little-endian number.
    pub fn u16(&mut self, what: &'static str) -> Parsed<u16> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// Reads a 32-bit little-endian number.
    pub fn u32(&mut self, what: &'static str) -> Parsed<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// Reads a 64-bit little-endian number.
    pub fn u64(&mut self, what: &'static str) -> Parsed<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// Reads a 64-bit little-endian signed number.
    pub fn i64(&mut self, what: &'static str) -> Parsed<i64> {
        self.array(what).map(i64::from_le_bytes)
    }

    /// Fails unless everything has been read.
    pub fn end(&self, what: &'static str) -> Parsed<()> {
        if self.is_empty() { Ok(()) } else { Err(Malformed::new(what)) }
    }
}

/// Returns the part of `message` that an (offset, length) pair of fields points to.
///
/// `message` begins at the SMB2 header; `not_before` is the lowest allowed offset (the end of the
/// fixed part). A length of zero gives an empty slice whatever the offset, as MS-SMB2 demands for
/// unused fields.
pub fn pointed<'a>(
    message: &'a [u8],
    offset: u32,
    length: u32,
    not_before: usize,
    what: &'static str,
) -> Parsed<&'a [u8]> {
    if length == 0 {
        return Ok(&[]);
    }
    let start = usize::try_from(offset).map_err(|_| Malformed::new(what))?;
    let length = usize::try_from(length).map_err(|_| Malformed::new(what))?;
    let end = start.checked_add(length).ok_or(Malformed::new(what))?;
    if start < not_before {
        return Err(Malformed::new(what));
    }
    message.get(start..end).ok_or(Malformed::new(what))
}

/// Fills an array of fixed length field by field, without an allocation.
pub(crate) struct Fields<'a>(&'a mut [u8]);

impl<'a> Fields<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self(bytes)
    }

    /// Puts the next field. The lengths of all fields are those of the array.
    #[inline(always)]
    pub(crate) fn put<const N: usize>(&mut self, field: [u8; N]) -> &mut Self {
        if let Some((place, rest)) = core::mem::take(&mut self.0).split_first_chunk_mut() {
            *place = field;
            self.0 = rest;
        }
        self
    }
}

/// Appends little-endian fields to a buffer, and knows where the structure begins from which
/// offsets count.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Makes a writer at the end of `bytes`; offsets count from that end.
    pub fn new(bytes: &'a mut Vec<u8>) -> Self {
        let start = bytes.len();
        Self { bytes, start }
    }

    /// Makes a writer at the end of `bytes`; offsets count from `start`, a position in `bytes` (the
    /// beginning of the SMB2 header).
    pub fn from(bytes: &'a mut Vec<u8>, start: usize) -> Self {
        Self { bytes, start }
    }

    /// Returns a writer for a nested structure whose offsets count from here.
    pub fn nested(&mut self) -> Writer<'_> {
        Writer::new(self.bytes)
    }

    /// Returns the number of bytes from the start of the structure: the value of an offset field
    /// for this position.
    pub fn offset(&self) -> usize {
        self.bytes.len().saturating_sub(self.start)
    }

    /// Appends bytes unchanged.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// Appends a byte.
    pub fn u8(&mut self, v: u8) -> &mut Self {
        self.bytes.push(v);
        self
    }

    /// Appends a 16-bit little-endian number.
    pub fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// Appends a 32-bit little-endian number.
    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// Appends a 64-bit little-endian number.
    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// Appends a 64-bit little-endian signed number.
    pub fn i64(&mut self, v: i64) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// Appends `n` zero bytes.
    pub fn zeros(&mut self, n: usize) -> &mut Self {
        let len = self.bytes.len().saturating_add(n);
        self.bytes.resize(len, 0);
        self
    }

    /// Appends zero bytes up to the next multiple of `alignment`, counted from the start of the
    /// structure.
    pub fn align(&mut self, alignment: usize) -> &mut Self {
        while !self.offset().is_multiple_of(alignment) {
            self.bytes.push(0);
        }
        self
    }

    /// Appends text as UTF-16LE, without a terminator.
    pub fn utf16(&mut self, text: &str) -> &mut Self {
        for unit in text.encode_utf16() {
            self.bytes.extend_from_slice(&unit.to_le_bytes());
        }
        self
    }

    /// Overwrites the two bytes at `offset` (from the structure's start) with `v`. Does nothing for
    /// bytes that are not written yet, which is a bug of the caller.
    pub fn patch_u16(&mut self, offset: usize, v: u16) {
        self.patch(offset, &v.to_le_bytes());
    }

    /// Overwrites the four bytes at `offset` with `v`, like [`Self::patch_u16`].
    pub fn patch_u32(&mut self, offset: usize, v: u32) {
        self.patch(offset, &v.to_le_bytes());
    }

    fn patch(&mut self, offset: usize, v: &[u8]) {
        let start = self.start.saturating_add(offset);
        let end = start.saturating_add(v.len());
        let target = self.bytes.get_mut(start..end);
        debug_assert!(target.is_some(), "patch of bytes not written");
        if let Some(target) = target {
            target.copy_from_slice(v);
        }
    }
}

/// Declares an open enumeration: a number with named values, whose unknown values survive and print
/// as hexadecimal.
#[macro_export]
macro_rules! open_enum {
    ($(#[$meta:meta])* $name:ident($repr:ty) { $($(#[$vmeta:meta])* $variant:ident = $value:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $repr);
        $(#[$meta])*
        impl $name {
            $($(#[$vmeta])* pub const $variant: Self = Self($value);)*
            /// Returns the specification's name of this value; None for an unknown one.
            pub const fn name(self) -> Option<&'static str> {
                match self { $(Self::$variant => Some(stringify!($variant)),)* _ => None }
            }
        }
        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                match self.name() {
                    Some(name) => f.write_str(name),
                    None => write!(f, concat!(stringify!($name), "({:#x})"), self.0),
                }
            }
        }
        impl ::core::fmt::Display for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                ::core::fmt::Debug::fmt(self, f)
            }
        }
    };
}

/// Declares a set of bits with names; unknown bits survive.
#[macro_export]
macro_rules! bit_set {
    ($(#[$meta:meta])* $name:ident($repr:ty) { $($(#[$vmeta:meta])* $variant:ident = $value:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $repr);
        impl $name {
            $($(#[$vmeta])* pub const $variant: Self = Self($value);)*
            /// The empty set.
            pub const EMPTY: Self = Self(0);
            /// True if every bit of `other` is set.
            pub const fn contains(self, other: Self) -> bool { self.0 & other.0 == other.0 }
            /// True if any bit of `other` is set.
            pub const fn intersects(self, other: Self) -> bool { self.0 & other.0 != 0 }
            /// True if no bit is set.
            pub const fn is_empty(self) -> bool { self.0 == 0 }
            /// Returns these bits without those of `other`.
            pub const fn without(self, other: Self) -> Self { Self(self.0 & !other.0) }
            /// Returns the bits of both sets.
            pub const fn union(self, other: Self) -> Self { Self(self.0 | other.0) }
        }
        impl ::core::ops::BitOr for $name { type Output = Self; fn bitor(self, o: Self) -> Self { Self(self.0 | o.0) } }
        impl ::core::ops::BitOrAssign for $name { fn bitor_assign(&mut self, o: Self) { self.0 |= o.0; } }
        impl ::core::ops::BitAnd for $name { type Output = Self; fn bitand(self, o: Self) -> Self { Self(self.0 & o.0) } }
        impl ::core::fmt::Debug for $name {
            fn fmt(&self, f: &mut ::core::fmt::Formatter<'_>) -> ::core::fmt::Result {
                let mut left = self.0;
                let mut first = true;
                f.write_str(concat!(stringify!($name), "("))?;
                $(if Self::$variant.0 != 0 && self.contains(Self::$variant) {
                    if !first { f.write_str(" | ")?; }
                    f.write_str(stringify!($variant))?;
                    left &= !Self::$variant.0;
                    first = false;
                })*
                if left != 0 || first { if !first { f.write_str(" | ")?; } write!(f, "{left:#x}")?; }
                f.write_str(")")
            }
        }
    };
}
