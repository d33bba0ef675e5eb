//! WRITE, MS-SMB2 2.2.21 and 2.2.22.

pub use super::read::Channel;
use super::{field_u16, field_u32};
use crate::bit_set;
use crate::codec::{Parsed, Writer};
use crate::file_id::FileId;
use core::ops::Range;

bit_set! {
    /// Flags of the request.
    WriteFlags(u32) {
        /// The server answers when the data is stable (2.1 and up).
        WRITE_THROUGH = 0x0000_0001,
        /// The server does not cache the data (3.0.2).
        WRITE_UNBUFFERED = 0x0000_0002,
    }
}

/// Where the variable part of the request starts.
pub const REQUEST_DATA_OFFSET: u16 = 112;

/// MS-SMB2 2.2.21.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// DataOffset as received: the server has rules for it beyond bounds. Ignored by `encode`.
    pub data_offset: u16,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// FileId of the Open.
    pub file_id: FileId,
    /// The way of the data.
    pub channel: Channel,
    /// Bytes moved by RDMA.
    pub remaining_bytes: u32,
    /// RDMA descriptors, with a transform before them if there is one.
    pub channel_info: &'a [u8],
    /// The bits of [`WriteFlags`].
    pub flags: WriteFlags,
    /// The data; empty if RDMA moves it.
    pub data: &'a [u8],
    /// Position of the data in the message (`0..0` for none); set by `parse`, ignored by `encode`.
    pub data_range: Range<usize>,
}

impl<'a> Request<'a> {
    /// Makes a write of `data` without options.
    pub fn new(file_id: FileId, offset: u64, data: &'a [u8]) -> Self {
        let start = usize::from(REQUEST_DATA_OFFSET);
        let data_range =
            if data.is_empty() { 0..0 } else { start..start.saturating_add(data.len()) };
        Self {
            data_offset: REQUEST_DATA_OFFSET,
            offset,
            file_id,
            channel: Channel::NONE,
            remaining_bytes: 0,
            channel_info: &[],
            flags: WriteFlags::EMPTY,
            data,
            data_range,
        }
    }

    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 49, "WRITE request StructureSize")?;
        let data_offset = r.u16("DataOffset")?;
        let length = r.u32("Length")?;
        let offset = r.u64("Offset")?;
        let file_id = FileId::read(r)?;
        let channel = Channel(r.u32("Channel")?);
        let remaining_bytes = r.u32("RemainingBytes")?;
        let info_offset = r.u16("WriteChannelInfoOffset")?;
        let info_length = r.u16("WriteChannelInfoLength")?;
        let flags = WriteFlags(r.u32("Flags")?);
        let fixed = usize::from(REQUEST_DATA_OFFSET);
        let channel_info = channel.info(message, info_offset, info_length, fixed)?;
        let (data, data_range) = super::read::payload(message, data_offset.into(), length, fixed)?;
        Ok(Self {
            data_offset,
            offset,
            file_id,
            channel,
            remaining_bytes,
            channel_info,
            flags,
            data,
            data_range,
        })
    }

    /// Appends the body, with channel information behind the data.
    pub fn encode(&self, w: &mut Writer<'_>) {
        self.encode_fixed(field_u32(self.data.len()), w);
        w.bytes(self.data).bytes(self.channel_info);
        if self.data.is_empty() && self.channel_info.is_empty() {
            // StructureSize counts one byte of the buffer, and Windows refuses the request without
            // it.
            w.u8(0);
        }
    }

    /// Appends only the 48 bytes between the header and the data, for a client that sends
    /// `data_len` bytes from a buffer of its own behind them (and then the channel information).
    pub fn encode_fixed(&self, data_len: u32, w: &mut Writer<'_>) {
        // MS-SMB2 3.2.4.7: if RDMA moves the data, the message has none and its DataOffset is zero.
        let is_moved = self.channel != Channel::NONE && data_len == 0;
        let data_offset = if is_moved { 0 } else { REQUEST_DATA_OFFSET };
        w.u16(49).u16(data_offset).u32(data_len).u64(self.offset);
        self.file_id.encode(w);
        w.u32(self.channel.0).u32(self.remaining_bytes);
        if self.channel_info.is_empty() {
            w.u16(0).u16(0);
        } else {
            let after = usize::try_from(data_len).unwrap_or(usize::MAX);
            let info_offset = usize::from(REQUEST_DATA_OFFSET).saturating_add(after);
            w.u16(field_u16(info_offset)).u16(field_u16(self.channel_info.len()));
        }
        w.u32(self.flags.0);
    }
}

/// MS-SMB2 2.2.22.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Response {
    /// Number of bytes written.
    pub count: u32,
}

impl Response {
    /// Parses a whole message. Remaining and the channel fields are reserved.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 17, "WRITE response StructureSize")?;
        r.skip(2, "Reserved")?;
        let count = r.u32("Count")?;
        r.skip(8, "Remaining")?;
        Ok(Self { count })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(17).u16(0).u32(self.count).u32(0).u16(0).u16(0);
    }
}
