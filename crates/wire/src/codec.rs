//! Bounded reading and writing of little-endian protocol bytes.
//!
//! Every parser in this crate goes through [`Reader`], which cannot read past
//! its slice, and every encoder through [`Writer`], which knows where its SMB2
//! header starts, because MS-SMB2 counts all offsets from there.

use alloc::vec::Vec;
use core::fmt;

/// The bytes do not have the shape that the specification gives them.
///
/// What the peer is told (a status or a disconnect) is decided by the caller:
/// MS-SMB2 answers malformed bytes differently from place to place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Malformed {
    /// The field or rule that does not hold, for people.
    pub what: &'static str,
}

impl Malformed {
    /// A fault in `what`.
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

/// What parsers return.
pub type Parsed<T> = Result<T, Malformed>;

/// Reads little-endian fields from a slice, and nothing outside it.
#[derive(Debug, Clone)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte of `bytes`.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Bytes read so far, counted from where this reader started.
    pub const fn position(&self) -> usize {
        self.at
    }

    /// Bytes not read yet.
    pub const fn remaining(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    /// Whether nothing is left.
    pub const fn is_empty(&self) -> bool {
        self.remaining() == 0
    }

    /// The next `n` bytes.
    pub fn take(&mut self, n: usize, what: &'static str) -> Parsed<&'a [u8]> {
        let end = self.at.checked_add(n).ok_or(Malformed::new(what))?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed::new(what))?;
        self.at = end;
        Ok(taken)
    }

    /// Everything not read yet.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or(&[]);
        self.at = self.bytes.len();
        rest
    }

    /// Passes over `n` bytes without looking (reserved fields, padding).
    pub fn skip(&mut self, n: usize, what: &'static str) -> Parsed<()> {
        self.take(n, what).map(|_| ())
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Parsed<[u8; N]> {
        self.take(N, what)?.try_into().map_err(|_| Malformed::new(what))
    }

    /// A byte.
    pub fn u8(&mut self, what: &'static str) -> Parsed<u8> {
        self.array::<1>(what).map(u8::from_le_bytes)
    }

    /// A 16-bit little-endian number.
    pub fn u16(&mut self, what: &'static str) -> Parsed<u16> {
        self.array(what).map(u16::from_le_bytes)
    }

    /// A 32-bit little-endian number.
    pub fn u32(&mut self, what: &'static str) -> Parsed<u32> {
        self.array(what).map(u32::from_le_bytes)
    }

    /// A 64-bit little-endian number.
    pub fn u64(&mut self, what: &'static str) -> Parsed<u64> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A 64-bit little-endian signed number.
    pub fn i64(&mut self, what: &'static str) -> Parsed<i64> {
        self.array(what).map(i64::from_le_bytes)
    }

    /// Fails unless everything has been read.
    pub fn end(&self, what: &'static str) -> Parsed<()> {
        if self.is_empty() { Ok(()) } else { Err(Malformed::new(what)) }
    }
}

/// The part of `message` that an (offset, length) pair of fields points at.
///
/// `message` starts at the SMB2 header; `not_before` is the first byte that
/// the field may point at (the end of the fixed part). A length of zero is an
/// empty slice whatever the offset says, as MS-SMB2 asks for unused fields.
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

/// Appends little-endian fields to a buffer and remembers where the structure
/// that offsets are counted from begins.
#[derive(Debug)]
pub struct Writer<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
}

impl<'a> Writer<'a> {
    /// Appends to `bytes`; offsets count from its present end.
    pub fn new(bytes: &'a mut Vec<u8>) -> Self {
        let start = bytes.len();
        Self { bytes, start }
    }

    /// Appends to `bytes`; offsets count from `start`, a position in `bytes`
    /// (where the SMB2 header begins).
    pub fn from(bytes: &'a mut Vec<u8>, start: usize) -> Self {
        Self { bytes, start }
    }

    /// A writer for a nested structure whose offsets count from here.
    pub fn nested(&mut self) -> Writer<'_> {
        Writer::new(self.bytes)
    }

    /// Bytes from the start of the structure to here: the value that an offset
    /// field pointing here has.
    pub fn offset(&self) -> usize {
        self.bytes.len().saturating_sub(self.start)
    }

    /// Appends bytes as they are.
    pub fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// A byte.
    pub fn u8(&mut self, v: u8) -> &mut Self {
        self.bytes.push(v);
        self
    }

    /// A 16-bit little-endian number.
    pub fn u16(&mut self, v: u16) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// A 32-bit little-endian number.
    pub fn u32(&mut self, v: u32) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// A 64-bit little-endian number.
    pub fn u64(&mut self, v: u64) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// A 64-bit little-endian signed number.
    pub fn i64(&mut self, v: i64) -> &mut Self {
        self.bytes(&v.to_le_bytes())
    }

    /// `n` zero bytes.
    pub fn zeros(&mut self, n: usize) -> &mut Self {
        let len = self.bytes.len().saturating_add(n);
        self.bytes.resize(len, 0);
        self
    }

    /// Zero bytes up to the next multiple of `alignment`, counted from the
    /// start of the structure.
    pub fn align(&mut self, alignment: usize) -> &mut Self {
        while !self.offset().is_multiple_of(alignment) {
            self.bytes.push(0);
        }
        self
    }

    /// UTF-16LE without a terminator.
    pub fn utf16(&mut self, text: &str) -> &mut Self {
        for unit in text.encode_utf16() {
            self.bytes.extend_from_slice(&unit.to_le_bytes());
        }
        self
    }

    /// Writes `v` over the two bytes at `offset` (from the structure's start).
    /// Ignored when they have not been written yet, which is our own bug.
    pub fn patch_u16(&mut self, offset: usize, v: u16) {
        self.patch(offset, &v.to_le_bytes());
    }

    /// Writes `v` over the four bytes at `offset`, like [`Self::patch_u16`].
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

/// Declares an open enumeration: a number with named values, in which unknown
/// values survive and print as hexadecimal.
#[macro_export]
macro_rules! open_enum {
    ($(#[$meta:meta])* $name:ident($repr:ty) { $($(#[$vmeta:meta])* $variant:ident = $value:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $repr);
        $(#[$meta])*
        impl $name {
            $($(#[$vmeta])* pub const $variant: Self = Self($value);)*
            /// The name that the specification gives this value, if it gives one.
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

/// Declares a set of bits: named bits, unknown ones survive.
#[macro_export]
macro_rules! bit_set {
    ($(#[$meta:meta])* $name:ident($repr:ty) { $($(#[$vmeta:meta])* $variant:ident = $value:expr,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
        pub struct $name(pub $repr);
        impl $name {
            $($(#[$vmeta])* pub const $variant: Self = Self($value);)*
            /// No bit.
            pub const EMPTY: Self = Self(0);
            /// Whether every bit of `other` is set.
            pub const fn contains(self, other: Self) -> bool { self.0 & other.0 == other.0 }
            /// Whether any bit of `other` is set.
            pub const fn intersects(self, other: Self) -> bool { self.0 & other.0 != 0 }
            /// Whether no bit is set.
            pub const fn is_empty(self) -> bool { self.0 == 0 }
            /// These bits without those of `other`.
            pub const fn without(self, other: Self) -> Self { Self(self.0 & !other.0) }
            /// The bits of both.
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
