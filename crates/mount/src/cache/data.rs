//! The bytes of pages and of unsent data; a large write is shared between both.
//!
//! A page that is part of a write keeps the whole write in memory. Its pages arrive together and
//! are evicted together. A page that is written again is copied, so that at worst twice the counted
//! memory is used.

use bytes::Bytes;

/// Bytes that a page owns or shares.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    /// Bytes that can be changed.
    Own(Vec<u8>),
    /// A part of one large write; it is copied before a change.
    Shared(Bytes),
}

impl Data {
    pub(super) fn len(&self) -> usize {
        self.as_slice().len()
    }

    pub(crate) fn as_slice(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(bytes) => bytes,
        }
    }

    /// Extends the data to at least `end` bytes and copies `part` to the bytes before `end`.
    pub(super) fn put(&mut self, part: &[u8], end: usize) {
        if let Self::Shared(bytes) = self {
            *self = Self::Own(bytes.to_vec());
        }
        let Self::Own(bytes) = self else { return };
        if bytes.len() < end {
            bytes.resize(end, 0);
        }
        if let Some(place) = bytes.get_mut(end.saturating_sub(part.len())..end) {
            place.copy_from_slice(part);
        }
    }

    pub(super) fn truncate(&mut self, len: usize) {
        match self {
            Self::Own(bytes) => bytes.truncate(len),
            Self::Shared(bytes) => bytes.truncate(len),
        }
    }

    /// Splits off the bytes from `at` on.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Own(bytes) => Self::Own(bytes.split_off(at)),
            Self::Shared(bytes) => Self::Shared(bytes.split_off(at)),
        }
    }
}
