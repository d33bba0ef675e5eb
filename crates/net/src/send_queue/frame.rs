//! A frame to send: segments in memory, and a tail that may lie in a file.

use std::fmt;

use smallvec::SmallVec;

use crate::buffer::Buf;
use crate::file_io::FileFd;

/// A piece of a frame.
pub enum Segment {
    /// Bytes that the frame owns.
    Buf(Buf),
    /// Bytes that several frames may share.
    Bytes(bytes::Bytes),
    /// A range of a file. It should lie in the page cache ([`crate::file_io::File::is_cached`]):
    /// other parts are read on the core, which waits.
    File {
        /// The file, open for reading.
        file: FileFd,
        /// Offset of the range in bytes.
        offset: u64,
        /// Length of the range in bytes; behind the file's end zeros are sent.
        len: usize,
    },
}

impl Segment {
    /// Returns the number of bytes that it adds to the frame.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Buf(buf) => buf.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::File { len, .. } => *len,
        }
    }

    /// True if it adds no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Makes a buffer of at least `least` bytes one that others may keep as well. Returns the bytes of memory that
    /// do not count any more then: those without content.
    pub(super) fn shared(&mut self, least: usize) -> Option<usize> {
        let Self::Buf(buf) = self else { return None };
        if buf.len() < least {
            return None;
        }
        let unused = buf.capacity() - buf.len();
        *self = Self::Bytes(bytes::Bytes::from_owner(std::mem::take(buf)));
        Some(unused)
    }

    /// Returns the bytes of memory that it keeps.
    pub(super) fn memory(&self) -> usize {
        match self {
            Self::Buf(buf) => buf.capacity(),
            Self::Bytes(bytes) => bytes.len(),
            Self::File { .. } => 0,
        }
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buf(buf) => write!(f, "Buf({})", buf.len()),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::File { offset, len, .. } => write!(f, "File({offset}, {len})"),
        }
    }
}

impl From<Buf> for Segment {
    fn from(buf: Buf) -> Self {
        Self::Buf(buf)
    }
}

impl From<bytes::Bytes> for Segment {
    fn from(bytes: bytes::Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// A frame to send: segments that follow each other without a gap. The queue writes the prefix.
#[derive(Debug, Default)]
pub struct OutFrame {
    pub(super) segments: SmallVec<[Segment; 2]>,
    /// The key of the peer that the frame invalidates.
    pub(super) invalidates: Option<u32>,
}

impl OutFrame {
    /// Makes a frame of one buffer. Four bytes of headroom save a segment.
    #[must_use]
    pub fn new(head: Buf) -> Self {
        let mut frame = Self::default();
        frame.push(head);
        frame
    }

    /// Makes a frame of a head and a tail.
    #[must_use]
    pub fn with_tail(head: Buf, tail: impl Into<Segment>) -> Self {
        let mut frame = Self::new(head);
        frame.push(tail);
        frame
    }

    /// Appends a segment to the frame.
    pub fn push(&mut self, segment: impl Into<Segment>) {
        self.segments.push(segment.into());
    }

    /// Makes the frame invalidate a key of the peer; only for an RDMA connection.
    #[must_use]
    pub const fn invalidating(mut self, key: Option<u32>) -> Self {
        self.invalidates = key;
        self
    }

    /// Returns the number of bytes without the prefix.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    /// True if the frame has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of memory that it keeps.
    #[must_use]
    pub fn memory(&self) -> usize {
        self.segments.iter().map(Segment::memory).sum()
    }
}

impl From<Buf> for OutFrame {
    fn from(head: Buf) -> Self {
        Self::new(head)
    }
}
