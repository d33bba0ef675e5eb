//! The place of compression in the pipeline: MS-SMB2 3.1.4.4, 3.2.5.1.1.2 and 3.3.5.2.1.2.
//!
//! The place is empty: no connection negotiates an algorithm, and [`Compression`] has no value.

use core::ops::Range;

use crate::Disconnect;

/// Connection.CompressionIds of a connection that compresses. `None` stands for a connection that
/// does not, and nothing else can be written down yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Compression {}

impl Compression {
    /// Compresses the message at `message` of `buffer`, which is signed but not sealed; returns its
    /// new place.
    pub(super) const fn compress(self, _buffer: &mut [u8], _message: Range<usize>) -> Range<usize> {
        match self {}
    }

    /// Decompresses the message at `message` of `frame`, which is unsealed but not verified; returns
    /// its new place.
    pub(super) const fn decompress(
        self,
        _frame: &mut [u8],
        _message: Range<usize>,
    ) -> Result<Range<usize>, Disconnect> {
        match self {}
    }
}
