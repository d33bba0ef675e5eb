//! LOCK, MS-SMB2 2.2.26 and 2.2.27.

use super::field_u16;
use crate::bit_set;
use crate::codec::{Malformed, Parsed, Writer};
use crate::file_id::FileId;
use alloc::vec::Vec;

bit_set! {
    /// Flags of a lock element; five combinations are valid.
    LockFlags(u32) {
        /// Other Opens may read the range and lock it shared.
        SHARED_LOCK = 0x0000_0001,
        /// Other Opens may not use the range.
        EXCLUSIVE_LOCK = 0x0000_0002,
        /// Unlocks exactly this range.
        UNLOCK = 0x0000_0004,
        /// Fails instead of waiting.
        FAIL_IMMEDIATELY = 0x0000_0010,
    }
}

/// LockSequenceNumber and LockSequenceIndex (2.1 and up).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct LockSequence(pub u32);

impl LockSequence {
    /// Makes a sequence from its parts; bits that do not fit are dropped.
    pub const fn new(number: u8, index: u32) -> Self {
        Self((index << 4) | (number & 0xF) as u32)
    }

    /// Returns LockSequenceNumber, the low four bits.
    pub const fn number(self) -> u8 {
        (self.0 & 0xF) as u8
    }

    /// Returns LockSequenceIndex: 1 to 64, or 0 for none. Larger values are invalid.
    pub const fn index(self) -> u32 {
        self.0 >> 4
    }
}

/// SMB2_LOCK_ELEMENT, MS-SMB2 2.2.26.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LockElement {
    /// Offset of the first byte.
    pub offset: u64,
    /// Number of bytes.
    pub length: u64,
    /// The action on the range.
    pub flags: LockFlags,
}

/// Bytes of a lock element.
const ELEMENT_LEN: usize = 24;

/// MS-SMB2 2.2.26.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    /// Identifies the request in replays.
    pub lock_sequence: LockSequence,
    /// FileId of the Open.
    pub file_id: FileId,
    /// The ranges; the server refuses an empty list.
    pub locks: Vec<LockElement>,
}

impl Request {
    /// Parses a whole message. Allocates only elements that the message contains.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 48, "LOCK request StructureSize")?;
        let count = usize::from(r.u16("LockCount")?);
        let lock_sequence = LockSequence(r.u32("LockSequenceNumber")?);
        let file_id = FileId::read(r)?;
        if count.saturating_mul(ELEMENT_LEN) > r.remaining() {
            return Err(Malformed::new("LockCount"));
        }
        let mut locks = Vec::with_capacity(count);
        for _ in 0..count {
            let offset = r.u64("lock Offset")?;
            let length = r.u64("lock Length")?;
            let flags = LockFlags(r.u32("lock Flags")?);
            r.skip(4, "lock Reserved")?;
            locks.push(LockElement { offset, length, flags });
        }
        Ok(Self { lock_sequence, file_id, locks })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(48).u16(field_u16(self.locks.len())).u32(self.lock_sequence.0);
        self.file_id.encode(w);
        for lock in &self.locks {
            w.u64(lock.offset).u64(lock.length).u32(lock.flags.0).u32(0);
        }
    }
}

super::empty_messages! {
    /// MS-SMB2 2.2.27.
    Response, "LOCK response";
}
