//! The messages of SMB Direct, MS-SMBD 2.2: SMB2 over RDMA.

use crate::codec::{Malformed, Parsed, Reader};
use crate::limits::MAX_BUFFER_DESCRIPTORS;
use crate::status::Status;
use crate::{bit_set, open_enum};
use alloc::vec::Vec;

open_enum! {
    /// A version of the protocol, MS-SMBD 1.7.
    SmbdVersion(u16) {
        /// The only version.
        V1 = 0x0100,
    }
}

bit_set! {
    /// Flags of a data transfer message.
    DataTransferFlags(u16) {
        /// SMB_DIRECT_RESPONSE_REQUESTED: the peer answers promptly.
        RESPONSE_REQUESTED = 0x0001,
    }
}

/// Bytes of a negotiate request.
pub const NEGOTIATE_REQUEST_LEN: usize = 20;

/// Bytes of a negotiate response.
pub const NEGOTIATE_RESPONSE_LEN: usize = 32;

/// Bytes of a data transfer message without data.
pub const DATA_TRANSFER_LEN: usize = 20;

/// Where the data begins in a data transfer message, as this crate writes it.
pub const DATA_OFFSET: usize = 24;

/// Bytes of a buffer descriptor.
pub const BUFFER_DESCRIPTOR_LEN: usize = 16;

/// MS-SMBD 2.2.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NegotiateRequest {
    /// Lowest version of the sender.
    pub min_version: SmbdVersion,
    /// Highest version of the sender.
    pub max_version: SmbdVersion,
    /// Send credits that the sender asks for.
    pub credits_requested: u16,
    /// Bytes of the longest message that the sender wants to send.
    pub preferred_send_size: u32,
    /// Bytes of the longest message that the sender can receive.
    pub max_receive_size: u32,
    /// Bytes of upper-layer data that the sender can put together from fragments.
    pub max_fragmented_size: u32,
}

impl NegotiateRequest {
    /// Parses a message; bytes behind it are ignored.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(message);
        let min_version = SmbdVersion(r.u16("MinVersion")?);
        let max_version = SmbdVersion(r.u16("MaxVersion")?);
        r.skip(2, "Reserved")?;
        Ok(Self {
            min_version,
            max_version,
            credits_requested: r.u16("CreditsRequested")?,
            preferred_send_size: r.u32("PreferredSendSize")?,
            max_receive_size: r.u32("MaxReceiveSize")?,
            max_fragmented_size: r.u32("MaxFragmentedSize")?,
        })
    }

    /// The bytes of the message.
    pub fn to_bytes(&self) -> [u8; NEGOTIATE_REQUEST_LEN] {
        gathered(
            fields16([self.min_version.0, self.max_version.0, 0, self.credits_requested]).chain(
                fields32([
                    self.preferred_send_size,
                    self.max_receive_size,
                    self.max_fragmented_size,
                ]),
            ),
        )
    }
}

/// MS-SMBD 2.2.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NegotiateResponse {
    /// Lowest version of the sender.
    pub min_version: SmbdVersion,
    /// Highest version of the sender.
    pub max_version: SmbdVersion,
    /// The version of the connection.
    pub negotiated_version: SmbdVersion,
    /// Send credits that the sender asks for.
    pub credits_requested: u16,
    /// Send credits that the sender grants.
    pub credits_granted: u16,
    /// SUCCESS, or the reason of a refusal.
    pub status: Status,
    /// Bytes that the sender moves by RDMA for one request.
    pub max_read_write_size: u32,
    /// Bytes of the longest message that the sender will send.
    pub preferred_send_size: u32,
    /// Bytes of the longest message that the sender can receive.
    pub max_receive_size: u32,
    /// Bytes of upper-layer data that the sender can put together from fragments.
    pub max_fragmented_size: u32,
}

impl NegotiateResponse {
    /// Makes a refusal, MS-SMBD 3.1.5.3: all fields that a success would fill are zero.
    pub const fn refusal(status: Status) -> Self {
        Self {
            min_version: SmbdVersion::V1,
            max_version: SmbdVersion::V1,
            negotiated_version: SmbdVersion(0),
            credits_requested: 0,
            credits_granted: 0,
            status,
            max_read_write_size: 0,
            preferred_send_size: 0,
            max_receive_size: 0,
            max_fragmented_size: 0,
        }
    }

    /// Parses a message; bytes behind it are ignored.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(message);
        let min_version = SmbdVersion(r.u16("MinVersion")?);
        let max_version = SmbdVersion(r.u16("MaxVersion")?);
        let negotiated_version = SmbdVersion(r.u16("NegotiatedVersion")?);
        r.skip(2, "Reserved")?;
        Ok(Self {
            min_version,
            max_version,
            negotiated_version,
            credits_requested: r.u16("CreditsRequested")?,
            credits_granted: r.u16("CreditsGranted")?,
            status: Status(r.u32("Status")?),
            max_read_write_size: r.u32("MaxReadWriteSize")?,
            preferred_send_size: r.u32("PreferredSendSize")?,
            max_receive_size: r.u32("MaxReceiveSize")?,
            max_fragmented_size: r.u32("MaxFragmentedSize")?,
        })
    }

    /// The bytes of the message.
    pub fn to_bytes(&self) -> [u8; NEGOTIATE_RESPONSE_LEN] {
        let versions = [self.min_version.0, self.max_version.0, self.negotiated_version.0, 0];
        gathered(
            fields16(versions)
                .chain(fields16([self.credits_requested, self.credits_granted]))
                .chain(fields32([
                    self.status.0,
                    self.max_read_write_size,
                    self.preferred_send_size,
                    self.max_receive_size,
                    self.max_fragmented_size,
                ])),
        )
    }
}

/// MS-SMBD 2.2.3, without the data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DataTransfer {
    /// Send credits that the sender wants to hold in all.
    pub credits_requested: u16,
    /// Send credits that the sender grants in addition.
    pub credits_granted: u16,
    /// The bits of [`DataTransferFlags`].
    pub flags: DataTransferFlags,
    /// Bytes of the fragmented message that follow in later messages.
    pub remaining_data_length: u32,
    /// Offset of the data from the beginning of the message; 0 without data.
    pub data_offset: u32,
    /// Bytes of data in this message.
    pub data_length: u32,
}

impl DataTransfer {
    /// Parses the header of a message. The data's place is not checked: MS-SMBD 3.1.5.8 has the
    /// rules, and [`Self::data`] keeps within the message.
    pub fn parse(message: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(message);
        let credits_requested = r.u16("CreditsRequested")?;
        let credits_granted = r.u16("CreditsGranted")?;
        let flags = DataTransferFlags(r.u16("Flags")?);
        r.skip(2, "Reserved")?;
        Ok(Self {
            credits_requested,
            credits_granted,
            flags,
            remaining_data_length: r.u32("RemainingDataLength")?,
            data_offset: r.u32("DataOffset")?,
            data_length: r.u32("DataLength")?,
        })
    }

    /// Returns the data in `message`, whose header this is.
    pub fn data<'a>(&self, message: &'a [u8]) -> Parsed<&'a [u8]> {
        crate::codec::pointed(
            message,
            self.data_offset,
            self.data_length,
            DATA_TRANSFER_LEN,
            "DataOffset",
        )
    }

    /// The header, and padding up to [`DATA_OFFSET`]. A message without data is its first
    /// [`DATA_TRANSFER_LEN`] bytes.
    pub fn to_bytes(&self) -> [u8; DATA_OFFSET] {
        let words = [self.credits_requested, self.credits_granted, self.flags.0, 0];
        let lengths = [self.remaining_data_length, self.data_offset, self.data_length, 0];
        gathered(fields16(words).chain(fields32(lengths)))
    }
}

/// MS-SMBD 2.2.3.1: memory that the sender has registered for its peer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BufferDescriptor {
    /// Address of the first byte, as the sender's adapter counts.
    pub offset: u64,
    /// The steering tag of the registered memory.
    pub token: u32,
    /// Number of bytes in the buffer.
    pub length: u32,
}

impl BufferDescriptor {
    /// Parses channel information: one or more descriptors and nothing else.
    ///
    /// An `offset` whose buffer would end beyond 64 bits is malformed.
    pub fn parse_all(bytes: &[u8]) -> Parsed<Vec<Self>> {
        let count = bytes.len() / BUFFER_DESCRIPTOR_LEN;
        if count == 0 || count > MAX_BUFFER_DESCRIPTORS {
            return Err(Malformed::new("number of buffer descriptors"));
        }
        let r = &mut Reader::new(bytes);
        let mut all = Vec::with_capacity(count);
        for _ in 0..count {
            let descriptor = Self {
                offset: r.u64("descriptor Offset")?,
                token: r.u32("descriptor Token")?,
                length: r.u32("descriptor Length")?,
            };
            if descriptor.offset.checked_add(descriptor.length.into()).is_none() {
                return Err(Malformed::new("descriptor Offset"));
            }
            all.push(descriptor);
        }
        r.end("buffer descriptors")?;
        Ok(all)
    }

    /// The bytes of the descriptor.
    pub fn to_bytes(&self) -> [u8; BUFFER_DESCRIPTOR_LEN] {
        gathered(self.offset.to_le_bytes().into_iter().chain(fields32([self.token, self.length])))
    }
}

fn fields16<const N: usize>(fields: [u16; N]) -> impl Iterator<Item = u8> {
    fields.into_iter().flat_map(u16::to_le_bytes)
}

fn fields32<const N: usize>(fields: [u32; N]) -> impl Iterator<Item = u8> {
    fields.into_iter().flat_map(u32::to_le_bytes)
}

/// The first `N` bytes of `bytes`.
fn gathered<const N: usize>(bytes: impl Iterator<Item = u8>) -> [u8; N] {
    let mut all = [0; N];
    for (to, from) in all.iter_mut().zip(bytes) {
        *to = from;
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec;

    #[test]
    fn the_messages_of_the_specification_have_these_bytes() {
        // These are the first two messages of MS-SMBD 4.1, and the data message with 500 bytes of
        // 4.2.
        let request = NegotiateRequest {
            min_version: SmbdVersion::V1,
            max_version: SmbdVersion::V1,
            credits_requested: 10,
            preferred_send_size: 1024,
            max_receive_size: 1024,
            max_fragmented_size: 131_072,
        };
        assert_eq!(
            request.to_bytes(),
            [0, 1, 0, 1, 0, 0, 10, 0, 0, 4, 0, 0, 0, 4, 0, 0, 0, 0, 2, 0]
        );
        let response = NegotiateResponse {
            negotiated_version: SmbdVersion::V1,
            credits_requested: 10,
            credits_granted: 10,
            max_read_write_size: 1_048_576,
            preferred_send_size: 1024,
            max_receive_size: 1024,
            max_fragmented_size: 131_072,
            ..NegotiateResponse::refusal(Status::SUCCESS)
        };
        assert_eq!(
            response.to_bytes(),
            [
                0, 1, 0, 1, 0, 1, 0, 0, 10, 0, 10, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 4, 0, 0, 0, 4, 0,
                0, 0, 0, 2, 0
            ]
        );
        let data = DataTransfer {
            credits_requested: 10,
            credits_granted: 1,
            flags: DataTransferFlags::RESPONSE_REQUESTED,
            remaining_data_length: 0,
            data_offset: 24,
            data_length: 500,
        };
        assert_eq!(
            data.to_bytes(),
            [10, 0, 1, 0, 1, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0, 0xF4, 1, 0, 0, 0, 0, 0, 0]
        );
        let descriptor =
            BufferDescriptor { offset: 0xABCD_E012, token: 0x1A00_BC56, length: 0x0010_0000 };
        assert_eq!(
            descriptor.to_bytes(),
            [0x12, 0xE0, 0xCD, 0xAB, 0, 0, 0, 0, 0x56, 0xBC, 0, 0x1A, 0, 0, 0x10, 0]
        );
    }

    #[test]
    fn short_messages_are_malformed() {
        for length in 0..NEGOTIATE_RESPONSE_LEN {
            let bytes = vec![0; length];
            assert_eq!(NegotiateRequest::parse(&bytes).is_ok(), length >= NEGOTIATE_REQUEST_LEN);
            assert_eq!(DataTransfer::parse(&bytes).is_ok(), length >= DATA_TRANSFER_LEN);
            assert!(NegotiateResponse::parse(&bytes).is_err());
        }
    }

    #[test]
    fn data_lies_within_its_message_and_behind_the_header() {
        let message = [7; 40];
        let data = |data_offset, data_length| {
            let header = DataTransfer {
                credits_requested: 1,
                credits_granted: 0,
                flags: DataTransferFlags::EMPTY,
                remaining_data_length: 0,
                data_offset,
                data_length,
            };
            header.data(&message).map(<[u8]>::len)
        };
        assert_eq!(data(24, 16), Ok(16));
        assert_eq!(data(24, 0), Ok(0));
        for (offset, length) in [(24, 17), (16, 1), (40, 1), (u32::MAX, 1), (24, u32::MAX)] {
            assert!(data(offset, length).is_err(), "{offset} {length}");
        }
    }

    #[test]
    fn descriptors_are_whole_and_of_a_bounded_number() {
        for (count, good) in [
            (0, false),
            (1, true),
            (MAX_BUFFER_DESCRIPTORS - 1, true),
            (MAX_BUFFER_DESCRIPTORS, true),
            (MAX_BUFFER_DESCRIPTORS + 1, false),
        ] {
            let bytes = vec![1; count * BUFFER_DESCRIPTOR_LEN];
            assert_eq!(BufferDescriptor::parse_all(&bytes).is_ok(), good, "{count}");
        }
        assert!(BufferDescriptor::parse_all(&[0; 15]).is_err());
        assert!(BufferDescriptor::parse_all(&[0; 17]).is_err());
        let last = BufferDescriptor { offset: u64::MAX - 5, token: 1, length: 5 };
        assert!(BufferDescriptor::parse_all(&last.to_bytes()).is_ok());
        let beyond = BufferDescriptor { length: 6, ..last };
        assert!(BufferDescriptor::parse_all(&beyond.to_bytes()).is_err());
    }

    proptest! {
        #[test]
        fn negotiation_survives(words: [u16; 5], numbers: [u32; 5]) {
            let request = NegotiateRequest {
                min_version: SmbdVersion(words[0]),
                max_version: SmbdVersion(words[1]),
                credits_requested: words[2],
                preferred_send_size: numbers[0],
                max_receive_size: numbers[1],
                max_fragmented_size: numbers[2],
            };
            prop_assert_eq!(NegotiateRequest::parse(&request.to_bytes()).unwrap(), request);
            let response = NegotiateResponse {
                min_version: SmbdVersion(words[0]),
                max_version: SmbdVersion(words[1]),
                negotiated_version: SmbdVersion(words[2]),
                credits_requested: words[3],
                credits_granted: words[4],
                status: Status(numbers[0]),
                max_read_write_size: numbers[1],
                preferred_send_size: numbers[2],
                max_receive_size: numbers[3],
                max_fragmented_size: numbers[4],
            };
            prop_assert_eq!(NegotiateResponse::parse(&response.to_bytes()).unwrap(), response);
        }

        #[test]
        fn data_transfers_survive(words: [u16; 3], numbers: [u32; 3], many in 1..5_usize) {
            let header = DataTransfer {
                credits_requested: words[0],
                credits_granted: words[1],
                flags: DataTransferFlags(words[2]),
                remaining_data_length: numbers[0],
                data_offset: numbers[1],
                data_length: numbers[2],
            };
            prop_assert_eq!(DataTransfer::parse(&header.to_bytes()).unwrap(), header);
            let one = BufferDescriptor {
                offset: u64::from(numbers[0]), token: numbers[1], length: numbers[2],
            };
            let bytes: Vec<u8> = (0..many).flat_map(|_| one.to_bytes()).collect();
            let parsed = BufferDescriptor::parse_all(&bytes).unwrap();
            prop_assert_eq!(parsed.as_slice(), &vec![one; many][..]);
        }
    }
}
