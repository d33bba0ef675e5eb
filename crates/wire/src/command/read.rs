//! READ, MS-SMB2 2.2.19 and 2.2.20.

use super::{field_u16, field_u32};
use crate::codec::{Malformed, Parsed, Writer, pointed};
use crate::file_id::FileId;
use crate::{bit_set, open_enum};
use core::ops::Range;

open_enum! {
    /// The Channel field of READ and WRITE requests and of
    /// SMB2_RDMA_TRANSFORM.
    Channel(u32) {
        /// The message contains the data.
        NONE = 0,
        /// RDMA moves the data; descriptors of MS-SMBD 2.2.3.1 follow.
        RDMA_V1 = 1,
        /// As RDMA_V1, and the server invalidates the first descriptor (3.0.2).
        RDMA_V1_INVALIDATE = 2,
        /// An SMB2_RDMA_TRANSFORM precedes the descriptors (3.1.1).
        RDMA_TRANSFORM = 3,
    }
}

impl Channel {
    /// Returns the channel information of a request. It is ignored without a channel and with an
    /// unknown one.
    pub(super) fn info(
        self,
        message: &[u8],
        offset: u16,
        length: u16,
        fixed: usize,
    ) -> Parsed<&[u8]> {
        match self {
            Self::RDMA_V1 | Self::RDMA_V1_INVALIDATE | Self::RDMA_TRANSFORM => {
                pointed(message, offset.into(), length.into(), fixed, "ChannelInfo")
            }
            _ => Ok(&[]),
        }
    }
}

bit_set! {
    /// Flags of the request.
    ReadFlags(u8) {
        /// The server reads from storage, not from a cache (3.0.2).
        READ_UNBUFFERED = 0x01,
        /// The answer may be compressed (3.1.1).
        REQUEST_COMPRESSED = 0x02,
    }
}

bit_set! {
    /// The last field of the response: Flags in 3.1.1, reserved before.
    ReadResponseFlags(u32) {
        /// The buffer holds an SMB2_RDMA_TRANSFORM.
        RDMA_TRANSFORM = 0x0000_0001,
    }
}

/// Position of Flags in the request, from the header on.
pub const FLAGS_AT: usize = 67;
/// Where the variable part of the request starts.
const REQUEST_FIXED: usize = 112;
/// Offset of the data in the response, as this crate writes it.
pub const RESPONSE_DATA_OFFSET: u8 = 80;

/// MS-SMB2 2.2.19.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request<'a> {
    /// The offset at which the client prefers the data in the response; not binding.
    pub padding: u8,
    /// The bits of [`ReadFlags`].
    pub flags: ReadFlags,
    /// Number of bytes to read.
    pub length: u32,
    /// Offset in the file, bytes.
    pub offset: u64,
    /// FileId of the Open.
    pub file_id: FileId,
    /// The read fails with fewer bytes than this.
    pub minimum_count: u32,
    /// The way of the data.
    pub channel: Channel,
    /// Bytes moved by RDMA.
    pub remaining_bytes: u32,
    /// RDMA descriptors, with a transform before them if there is one.
    pub channel_info: &'a [u8],
}

impl<'a> Request<'a> {
    /// Makes a read without options.
    pub const fn new(file_id: FileId, offset: u64, length: u32) -> Self {
        Self {
            padding: RESPONSE_DATA_OFFSET,
            flags: ReadFlags::EMPTY,
            length,
            offset,
            file_id,
            minimum_count: 0,
            channel: Channel::NONE,
            remaining_bytes: 0,
            channel_info: &[],
        }
    }

    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 49, "READ request StructureSize")?;
        let padding = r.u8("Padding")?;
        let flags = ReadFlags(r.u8("Flags")?);
        let length = r.u32("Length")?;
        let offset = r.u64("Offset")?;
        let file_id = FileId::read(r)?;
        let minimum_count = r.u32("MinimumCount")?;
        let channel = Channel(r.u32("Channel")?);
        let remaining_bytes = r.u32("RemainingBytes")?;
        let info_offset = r.u16("ReadChannelInfoOffset")?;
        let info_length = r.u16("ReadChannelInfoLength")?;
        let channel_info = channel.info(message, info_offset, info_length, REQUEST_FIXED)?;
        Ok(Self {
            padding,
            flags,
            length,
            offset,
            file_id,
            minimum_count,
            channel,
            remaining_bytes,
            channel_info,
        })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u16(49).u8(self.padding).u8(self.flags.0).u32(self.length).u64(self.offset);
        self.file_id.encode(w);
        w.u32(self.minimum_count).u32(self.channel.0).u32(self.remaining_bytes);
        if self.channel_info.is_empty() {
            // StructureSize counts one byte of the buffer, and Windows refuses the request without
            // it.
            w.u16(0).u16(0).u8(0);
        } else {
            w.u16(field_u16(REQUEST_FIXED)).u16(field_u16(self.channel_info.len()));
            w.bytes(self.channel_info);
        }
    }
}

/// MS-SMB2 2.2.20.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// Bytes moved by RDMA.
    pub data_remaining: u32,
    /// Flags (3.1.1 only).
    pub flags: ReadResponseFlags,
    /// The data that was read.
    pub data: &'a [u8],
    /// Position of the data in the message; set by `parse`, ignored by `encode`.
    pub data_range: Range<usize>,
}

impl<'a> Response<'a> {
    /// Makes a response with `data`.
    pub fn new(data: &'a [u8]) -> Self {
        let start = usize::from(RESPONSE_DATA_OFFSET);
        let data_range =
            if data.is_empty() { 0..0 } else { start..start.saturating_add(data.len()) };
        Self { data_remaining: 0, flags: ReadResponseFlags::EMPTY, data, data_range }
    }

    /// Parses a whole message.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut super::body(message, 17, "READ response StructureSize")?;
        let offset = r.u8("DataOffset")?;
        r.skip(1, "Reserved")?;
        let length = r.u32("DataLength")?;
        let data_remaining = r.u32("DataRemaining")?;
        let flags = ReadResponseFlags(r.u32("Flags")?);
        let fixed = usize::from(RESPONSE_DATA_OFFSET);
        let (data, data_range) = payload(message, offset.into(), length, fixed)?;
        Ok(Self { data_remaining, flags, data, data_range })
    }

    /// Appends the body to `w`, behind the header.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.bytes(&response_head(field_u32(self.data.len()), self.data_remaining, self.flags));
        w.bytes(self.data);
    }
}

/// Returns the 16 bytes between the header and the data, for a server that writes them into the
/// headroom of a data buffer.
pub fn response_head(data_len: u32, data_remaining: u32, flags: ReadResponseFlags) -> [u8; 16] {
    let mut head = [0; 16];
    let (words, flag_bytes) = head.split_at_mut(12);
    if let [size, _, data_offset, _, rest @ ..] = words {
        *size = 17;
        *data_offset = RESPONSE_DATA_OFFSET;
        let (length, remaining) = rest.split_at_mut(4);
        length.copy_from_slice(&data_len.to_le_bytes());
        remaining.copy_from_slice(&data_remaining.to_le_bytes());
    }
    flag_bytes.copy_from_slice(&flags.0.to_le_bytes());
    head
}

/// Returns the payload of a message and its position (`0..0` for none).
pub(super) fn payload(
    message: &[u8],
    offset: u32,
    length: u32,
    fixed: usize,
) -> Parsed<(&[u8], Range<usize>)> {
    let data = pointed(message, offset, length, fixed, "Data")?;
    if data.is_empty() {
        return Ok((data, 0..0));
    }
    let start = usize::try_from(offset).map_err(|_| Malformed::new("DataOffset"))?;
    let end = start.checked_add(data.len()).ok_or(Malformed::new("Length"))?;
    Ok((data, start..end))
}
