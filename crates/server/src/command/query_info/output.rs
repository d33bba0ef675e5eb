//! The output buffer of QUERY_INFO and QUERY_DIRECTORY responses while it is
//! being filled, MS-SMB2 2.2.34 and 2.2.38.

use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::command::output_head;

/// Bytes of the body before the output buffer.
const HEAD: usize = 8;

/// A response body that is written in place: its head, then the data.
pub(crate) struct Output<'a> {
    bytes: &'a mut Vec<u8>,
    start: usize,
    /// Bytes of data that the client and the message have room for.
    pub(crate) room: usize,
    /// Whole entries were left out: BUFFER_OVERFLOW, although nothing is cut.
    pub(crate) overflowed: bool,
}

impl<'a> Output<'a> {
    /// Begins at the end of `bytes`. `length` is the client's OutputBufferLength,
    /// `body_room` what the body may take of the message.
    pub(crate) fn begin(bytes: &'a mut Vec<u8>, length: u32, body_room: usize) -> Self {
        bytes.extend_from_slice(&[0; HEAD]);
        let start = bytes.len();
        let room = usize::try_from(length).unwrap_or(usize::MAX);
        Self { bytes, start, room: room.min(body_room.saturating_sub(HEAD)), overflowed: false }
    }

    /// Fails with INFO_LENGTH_MISMATCH unless there is room for `min` bytes.
    pub(crate) const fn require(&self, min: usize) -> Result<(), Status> {
        if self.room < min || self.room == 0 {
            return Err(Status::INFO_LENGTH_MISMATCH);
        }
        Ok(())
    }

    /// Appends data; offsets count from the first byte of data.
    pub(crate) fn writer(&mut self) -> Writer<'_> {
        Writer::from(self.bytes, self.start)
    }

    /// The buffer, to append data to.
    pub(crate) const fn bytes(&mut self) -> &mut Vec<u8> {
        self.bytes
    }

    /// Bytes of data so far.
    pub(crate) const fn len(&self) -> usize {
        self.bytes.len().saturating_sub(self.start)
    }

    /// Ends the body. Data beyond the room is cut off, which BUFFER_OVERFLOW
    /// tells.
    pub(crate) fn finish(self) -> Status {
        let is_cut = self.len() > self.room;
        if is_cut {
            self.bytes.truncate(self.start + self.room);
        }
        let head = output_head(u32::try_from(self.len()).unwrap_or(u32::MAX));
        let room = self.start.checked_sub(HEAD).and_then(|at| self.bytes.get_mut(at..self.start));
        if let Some(room) = room {
            room.copy_from_slice(&head);
        }
        if is_cut || self.overflowed { Status::BUFFER_OVERFLOW } else { Status::SUCCESS }
    }
}
