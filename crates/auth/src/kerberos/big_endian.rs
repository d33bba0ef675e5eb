//! Reading of the big-endian fields of keytabs and credentials caches.

use alloc::string::String;
use frevo_wire::codec::{Malformed, Parsed, Reader};

/// Reads big-endian fields from a slice, and nothing outside it.
#[derive(Debug, Clone)]
pub(super) struct BigEndian<'a>(Reader<'a>);

impl<'a> BigEndian<'a> {
    pub(super) const fn new(bytes: &'a [u8]) -> Self {
        Self(Reader::new(bytes))
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) const fn remaining(&self) -> usize {
        self.0.remaining()
    }

    pub(super) fn u8(&mut self, what: &'static str) -> Parsed<u8> {
        self.0.u8(what)
    }

    pub(super) fn u16(&mut self, what: &'static str) -> Parsed<u16> {
        self.0.array(what).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Parsed<u32> {
        self.0.array(what).map(u32::from_be_bytes)
    }

    pub(super) fn i32(&mut self, what: &'static str) -> Parsed<i32> {
        self.0.array(what).map(i32::from_be_bytes)
    }

    /// Reads `count` bytes.
    pub(super) fn take(&mut self, count: u32, what: &'static str) -> Parsed<&'a [u8]> {
        self.0.take(usize::try_from(count).map_err(|_| Malformed::new(what))?, what)
    }

    /// Reads `count` bytes as UTF-8.
    pub(super) fn text(&mut self, count: u32, what: &'static str) -> Parsed<String> {
        let text = str::from_utf8(self.take(count, what)?);
        text.map(Into::into).map_err(|_| Malformed::new(what))
    }
}
