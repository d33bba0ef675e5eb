//! Numbered operations on names, an extension of Frevo.
//!
//! A compound of CREATE, SET_INFO and CLOSE makes, renames or removes a name and leaves no Open by
//! which MS-SMB2 3.3.5.9 could recognise its repetition. A client that may lose one of several
//! channels numbers such a compound by a create context, which other servers ignore. When the
//! answer was lost it asks on another channel for the outcome: FSCTL_FREVO_QUERY_OPERATION.

use crate::Status;
use crate::codec::{Parsed, Reader, Writer};
use crate::open_enum;

/// The number of an operation within its session. A slot has one operation at a time; a higher
/// sequence in it says that the answer to the one before has arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OperationId {
    /// The slot, from 0.
    pub slot: u32,
    /// The number in the slot, from 1.
    pub sequence: u64,
}

impl OperationId {
    /// Bytes on the wire.
    pub const LEN: usize = 16;

    /// Parses a create context, or the input buffer of the FSCTL.
    pub fn parse(data: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        let slot = r.u32("operation Slot")?;
        r.skip(4, "operation Reserved")?;
        let sequence = r.u64("operation Sequence")?;
        r.end("operation length")?;
        Ok(Self { slot, sequence })
    }

    /// Appends the bytes to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.slot).u32(0).u64(self.sequence);
    }
}

open_enum! {
    /// The progress of an operation.
    Progress(u32) {
        /// The operation has not begun, and never will: the question has closed its number.
        NOT_BEGUN = 0,
        /// The operation is under way.
        RUNNING = 1,
        /// The operation has ended.
        DONE = 2,
        /// The operation broke off: the server does not know how far it came.
        BROKEN_OFF = 3,
    }
}

/// The answer of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outcome {
    /// The progress of the operation.
    pub progress: Progress,
    /// The first error of its requests, else SUCCESS; of meaning with DONE only.
    pub status: Status,
}

impl Outcome {
    /// Bytes on the wire.
    pub const LEN: usize = 8;

    /// Parses the output buffer.
    pub fn parse(output: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(output);
        let progress = Progress(r.u32("operation Progress")?);
        let status = Status(r.u32("operation Status")?);
        Ok(Self { progress, status })
    }

    /// Appends the output buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.progress.0).u32(self.status.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    #[test]
    fn both_go_there_and_back() {
        let id = OperationId { slot: 5, sequence: 1 << 40 };
        let mut bytes = Vec::new();
        id.encode(&mut Writer::new(&mut bytes));
        assert_eq!((bytes.len(), OperationId::parse(&bytes)), (OperationId::LEN, Ok(id)));
        assert!(OperationId::parse(&bytes[1..]).is_err());
        bytes.push(0);
        assert!(OperationId::parse(&bytes).is_err());
        let outcome = Outcome { progress: Progress::DONE, status: Status::ACCESS_DENIED };
        let mut bytes = Vec::new();
        outcome.encode(&mut Writer::new(&mut bytes));
        assert_eq!((bytes.len(), Outcome::parse(&bytes)), (Outcome::LEN, Ok(outcome)));
    }
}
