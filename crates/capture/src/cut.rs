//! The bytes of a frame that a capture keeps: the data of files is cut, all else is whole.
//!
//! The data at the end of a frame is not in the file, whose packet tells the true length. Data in the middle of a
//! compound, with further messages behind it, is there as zeros, so that these messages keep their places.

use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use frevo_wire::Command;
use frevo_wire::header::{HEADER_LEN, PROTOCOL_ID};

use crate::limits::{CUT_PACKET_BYTES, DATA_BYTES, DATA_BYTES_MAX};
use crate::secrets::is_calls;

/// The data of files that a capture keeps: of the answers to READ and of WRITE requests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CaptureData {
    /// All of it.
    Whole,
    /// So many bytes at the beginning of the data of each message, at most [`DATA_BYTES_MAX`].
    First(usize),
}

impl Default for CaptureData {
    fn default() -> Self {
        Self::First(DATA_BYTES)
    }
}

impl fmt::Display for CaptureData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole => f.write_str("all"),
            Self::First(bytes) => write!(f, "{bytes}"),
        }
    }
}

impl CaptureData {
    /// Returns true if data that is not in memory may be left out whole.
    pub const fn is_brief(self) -> bool {
        matches!(self, Self::First(bytes) if bytes <= DATA_BYTES)
    }
}

/// A frame without its prefix, as far as it is kept.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Kept {
    /// The bytes from its beginning on.
    pub bytes: Vec<u8>,
    /// Bytes behind these that are not kept.
    pub cut: usize,
    /// Bytes of data among those that are kept that were replaced by zeros.
    pub zeroed: usize,
}

impl Kept {
    /// Copies what is kept of a frame, behind whose bytes `tail` bytes of data follow that are not in memory.
    pub fn of(frame: &[u8], tail: usize, data: CaptureData) -> Self {
        Plan::new(frame, tail, data).copy()
    }
}

/// The sizes of what is kept of a frame, without a copy of it.
#[derive(Debug)]
pub(crate) struct Plan<'a> {
    gaps: Gaps<'a>,
    /// Bytes that are kept.
    pub(crate) len: usize,
    cut: usize,
    zeroed: usize,
}

impl<'a> Plan<'a> {
    /// Looks at a frame, behind whose bytes `tail` bytes of data follow that are not in memory.
    pub(crate) fn new(frame: &'a [u8], tail: usize, data: CaptureData) -> Self {
        let total = frame.len().saturating_add(tail);
        let (first, begin) = match data {
            CaptureData::Whole => (0, None),
            CaptureData::First(bytes) => (bytes.min(DATA_BYTES_MAX), Some(0)),
        };
        let gaps = Gaps { frame, total, first, at: begin };
        let (mut cut, mut zeroed) = (tail, 0_usize);
        for gap in gaps.clone() {
            if gap.end == total {
                cut = gap.len().max(tail);
            } else {
                zeroed = zeroed.saturating_add(gap.len());
            }
        }
        let mut len = total.saturating_sub(cut);
        if cut > 0 && len > CUT_PACKET_BYTES {
            // A cut frame is one packet, and readers do not take a longer one.
            zeroed = zeroed.saturating_add(cut);
            (len, cut) = (total, 0);
        }
        Self { gaps, len, cut, zeroed }
    }

    /// Copies what is kept.
    pub(crate) fn copy(self) -> Kept {
        let Self { gaps, len, cut, zeroed } = self;
        let (frame, mut done) = (gaps.frame, 0);
        let mut bytes = Vec::with_capacity(len);
        for gap in gaps {
            bytes.extend_from_slice(frame.get(done..gap.start).unwrap_or(&[]));
            bytes.resize(gap.end.min(len), 0);
            done = gap.end;
        }
        bytes.extend_from_slice(frame.get(done..).unwrap_or(&[]));
        bytes.resize(len, 0);
        Kept { bytes, cut, zeroed }
    }
}

/// Iterates over the parts of a frame that are left out: the data of files behind its first bytes.
#[derive(Debug, Clone)]
struct Gaps<'a> {
    frame: &'a [u8],
    /// Bytes of the frame, with those that are not in memory.
    total: usize,
    /// Bytes of data that are kept of each message.
    first: usize,
    /// The place of the next message; None behind the last one.
    at: Option<usize>,
}

impl Iterator for Gaps<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        while let Some(at) = self.at.take() {
            let message = self.frame.get(at..)?;
            let next = usize::try_from(u32_at(message, 20)?).ok()?;
            if next >= HEADER_LEN {
                self.at = at.checked_add(next);
            }
            let Some(data) = data_range(message) else { continue };
            let start = at.saturating_add(data.start);
            let message_end = self.at.unwrap_or(self.total).min(self.total);
            let mut end = at.saturating_add(data.end).min(message_end);
            if is_calls(self.frame.get(start..end).unwrap_or(&[])) {
                continue;
            }
            // A compound is padded to eight bytes.
            if self.at.is_none() && self.total.saturating_sub(end) < 8 {
                end = self.total;
            }
            let start = start.saturating_add(self.first).min(self.frame.len());
            if at.saturating_add(data.end) > start && start < end {
                return Some(start..end);
            }
        }
        None
    }
}

/// Returns the place of the data of a file in a message, from its header on. It may reach beyond what there is of the
/// message. None for a message without data.
pub(crate) fn data_range(message: &[u8]) -> Option<Range<usize>> {
    // MS-SMB2 2.2.20 and 2.2.21: StructureSize, DataOffset, and DataLength or Length.
    const READ_RESPONSE: (u16, usize) = (17, 80);
    const WRITE_REQUEST: (u16, usize) = (49, 112);
    if !message.starts_with(&PROTOCOL_ID) {
        return None;
    }
    let command = Command(u16_at(message, 12)?);
    let is_response = message.get(16)? & 1 != 0;
    let [low, high] = u16_at(message, 66)?.to_le_bytes();
    let (form, offset) = match (command, is_response) {
        (Command::READ, true) => (READ_RESPONSE, u16::from(low)),
        (Command::WRITE, false) => (WRITE_REQUEST, u16::from_le_bytes([low, high])),
        _ => return None,
    };
    let (structure_size, fixed) = form;
    let start = usize::from(offset);
    if u16_at(message, HEADER_LEN)? != structure_size || start < fixed {
        return None;
    }
    let len = usize::try_from(u32_at(message, 68)?).ok()?;
    Some(start..start.saturating_add(len))
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests;
