//! Bytes of pages and of what is to be sent, which a large write shares between both.
//!
//! A page that is a part of a write holds all of that in memory. They came together and
//! make room together; one that is written to anew is copied, so that at worst twice as
//! much is held as is counted.

use bytes::Bytes;

/// See the module's text.
#[derive(Debug, Clone)]
pub(crate) enum Data {
    /// Which may be added to.
    Own(Vec<u8>),
    /// A part of what was written; it is copied before it is changed.
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

    /// Makes it at least `end` bytes long and puts `part` in front of that.
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

    /// Takes off what lies behind `at`.
    pub(super) fn split_off(&mut self, at: usize) -> Self {
        match self {
            Self::Own(bytes) => Self::Own(bytes.split_off(at)),
            Self::Shared(bytes) => Self::Shared(bytes.split_off(at)),
        }
    }
}
