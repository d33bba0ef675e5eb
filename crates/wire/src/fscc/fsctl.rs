//! Buffers of the FSCTLs of a file system, MS-FSCC 2.3. The FSCTLs that MS-SMB2 defines, and
//! FSCTL_PIPE_WAIT, are in [`crate::command::ioctl`].

use super::fixed::{fixed_struct, newtype_field};
use super::query::CompressionFormat;
use crate::bit_set;
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::dtyp::Guid;
use crate::file_id::FileId;

bit_set! {
    /// Flags of DUPLICATE_EXTENTS_DATA_EX, MS-FSCC 2.3.9.2.
    DuplicateExtentsFlags(u32) {
        /// DUPLICATE_EXTENTS_DATA_EX_SOURCE_ATOMIC
        SOURCE_ATOMIC = 0x1,
    }
}

bit_set! {
    /// Flags of integrity information, MS-FSCC 2.3.20 and 2.3.73.
    IntegrityFlags(u32) {
        /// FSCTL_INTEGRITY_FLAG_CHECKSUM_ENFORCEMENT_OFF
        CHECKSUM_ENFORCEMENT_OFF = 0x1,
    }
}

newtype_field! { DuplicateExtentsFlags(u32), IntegrityFlags(u32), }

/// ChecksumAlgorithm of a file without integrity, MS-FSCC 2.3.20.
pub const CHECKSUM_TYPE_NONE: u16 = 0;
/// ChecksumAlgorithm CRC32.
pub const CHECKSUM_TYPE_CRC32: u16 = 1;
/// ChecksumAlgorithm CRC64.
pub const CHECKSUM_TYPE_CRC64: u16 = 2;
/// ChecksumAlgorithm of a set that leaves it alone, MS-FSCC 2.3.73.
pub const CHECKSUM_TYPE_UNCHANGED: u16 = 0xFFFF;

/// StructureSize of SMB2_DUPLICATE_EXTENTS_DATA_EX.
pub const DUPLICATE_EXTENTS_EX_SIZE: u64 = 0x30;

fixed_struct! {
    /// FSCTL_SET_ZERO_DATA, MS-FSCC 2.3.85.
    ZeroData {
        /// FileOffset, in bytes.
        file_offset: i64;
        /// BeyondFinalZero: the first byte after the range.
        beyond_final_zero: i64;
    }

    /// FILE_ALLOCATED_RANGE_BUFFER: the request and each entry of the reply of
    /// FSCTL_QUERY_ALLOCATED_RANGES, MS-FSCC 2.3.51 and 2.3.52.
    AllocatedRange {
        /// FileOffset, in bytes.
        file_offset: i64;
        /// Length, in bytes.
        length: i64;
    }

    /// SMB2_DUPLICATE_EXTENTS_DATA, MS-FSCC 2.3.7.2.
    DuplicateExtents {
        /// SourceFileID
        source_file_id: FileId;
        /// SourceFileOffset, in bytes.
        source_file_offset: i64;
        /// TargetFileOffset, in bytes.
        target_file_offset: i64;
        /// ByteCount
        byte_count: i64;
    }

    /// SMB2_DUPLICATE_EXTENTS_DATA_EX, MS-FSCC 2.3.9.2.
    DuplicateExtentsEx {
        /// StructureSize, [`DUPLICATE_EXTENTS_EX_SIZE`].
        structure_size: u64;
        /// SourceFileID
        source_file_id: FileId;
        /// SourceFileOffset, in bytes.
        source_file_offset: i64;
        /// TargetFileOffset, in bytes.
        target_file_offset: i64;
        /// ByteCount
        byte_count: i64;
        /// Flags
        flags: DuplicateExtentsFlags, pad 4;
    }

    /// One range of FSCTL_FILE_LEVEL_TRIM, MS-FSCC 2.3.13.1.
    TrimRange {
        /// Offset in bytes.
        offset: u64;
        /// Length, in bytes.
        length: u64;
    }

    /// The reply of FSCTL_FILE_LEVEL_TRIM, MS-FSCC 2.3.14.
    TrimReply {
        /// NumRangesProcessed
        ranges_processed: u32;
    }

    /// The reply of FSCTL_GET_COMPRESSION and the request of
    /// FSCTL_SET_COMPRESSION, MS-FSCC 2.3.18 and 2.3.67.
    CompressionState {
        /// CompressionState
        format: CompressionFormat;
    }

    /// The reply of FSCTL_GET_INTEGRITY_INFORMATION, MS-FSCC 2.3.20.
    IntegrityInformation {
        /// ChecksumAlgorithm
        checksum_algorithm: u16, pad 2;
        /// Flags
        flags: IntegrityFlags;
        /// ChecksumChunkSizeInBytes
        checksum_chunk_size: u32;
        /// ClusterSizeInBytes
        cluster_size: u32;
    }

    /// The request of FSCTL_SET_INTEGRITY_INFORMATION, MS-FSCC 2.3.73.
    SetIntegrityInformation {
        /// ChecksumAlgorithm
        checksum_algorithm: u16, pad 2;
        /// Flags
        flags: IntegrityFlags;
    }

    /// FILE_OBJECTID_BUFFER type 1, MS-FSCC 2.1.3.1. The last three make the
    /// 48 bytes of extended information of type 2.
    ObjectIdBuffer {
        /// ObjectId
        object_id: Guid;
        /// BirthVolumeId
        birth_volume_id: Guid;
        /// BirthObjectId
        birth_object_id: Guid;
        /// DomainId
        domain_id: Guid;
    }

    /// STORAGE_OFFLOAD_TOKEN, MS-FSCC 2.1.11. Like all of the token, its first
    /// two fields are big-endian and opaque to the client.
    OffloadToken {
        /// The bytes of the token.
        bytes: [u8; 512];
    }

    /// The request of FSCTL_OFFLOAD_READ, MS-FSCC 2.3.41.
    OffloadReadRequest {
        /// Size of the structure.
        size: u32;
        /// Flags
        flags: u32;
        /// TokenTimeToLive, in milliseconds; zero for the default.
        token_time_to_live_ms: u32, pad 4;
        /// FileOffset, in bytes.
        file_offset: u64;
        /// CopyLength, in bytes.
        copy_length: u64;
    }

    /// The reply of FSCTL_OFFLOAD_READ, MS-FSCC 2.3.42.
    OffloadReadReply {
        /// Size of the structure.
        size: u32;
        /// Flags: 1 says that only zeros follow the range.
        flags: u32;
        /// TransferLength, in bytes.
        transfer_length: u64;
        /// Token
        token: OffloadToken;
    }

    /// The request of FSCTL_OFFLOAD_WRITE, MS-FSCC 2.3.43.
    OffloadWriteRequest {
        /// Size of the structure.
        size: u32;
        /// Flags
        flags: u32;
        /// FileOffset, in bytes.
        file_offset: u64;
        /// CopyLength, in bytes.
        copy_length: u64;
        /// TransferOffset: the first byte within the token's range.
        transfer_offset: u64;
        /// Token
        token: OffloadToken;
    }

    /// The reply of FSCTL_OFFLOAD_WRITE, MS-FSCC 2.3.44.
    OffloadWriteReply {
        /// Size of the structure.
        size: u32;
        /// Flags
        flags: u32;
        /// LengthWritten, in bytes.
        length_written: u64;
    }

    /// The request of FSCTL_QUERY_FILE_REGIONS, MS-FSCC 2.3.55, and each
    /// region of its reply, 2.3.56.1.
    FileRegion {
        /// FileOffset, in bytes.
        file_offset: i64;
        /// Length, in bytes.
        length: i64;
        /// DesiredUsage: 1 cached, 2 not cached.
        usage: u32, pad 4;
    }

    /// Header before the regions in the reply of FSCTL_QUERY_FILE_REGIONS.
    FileRegionsHeader {
        /// Flags
        flags: u32;
        /// TotalRegionEntryCount
        total_regions: u32;
        /// RegionEntryCount: how many follow.
        regions: u32, pad 4;
    }

    /// Header before the data in the reply of FSCTL_PIPE_PEEK, MS-FSCC 2.3.46.
    PipePeekHeader {
        /// NamedPipeState: 3 connected, 4 closing.
        named_pipe_state: u32;
        /// ReadDataAvailable, in bytes.
        read_data_available: u32;
        /// NumberOfMessages
        number_of_messages: u32;
        /// MessageLength of the first message, in bytes.
        message_length: u32;
    }
}

impl OffloadToken {
    /// STORAGE_OFFLOAD_TOKEN_TYPE_ZERO_DATA: stands for any number of zeros.
    pub const TYPE_ZERO_DATA: u32 = 0xFFFF_0001;

    /// TokenType.
    pub fn token_type(&self) -> u32 {
        self.bytes.first_chunk().map_or(0, |b| u32::from_be_bytes(*b))
    }
}

/// FSCTL_SET_SPARSE, MS-FSCC 2.3.83: an empty buffer means TRUE.
pub fn parse_set_sparse(input: &[u8]) -> bool {
    input.first().is_none_or(|v| *v != 0)
}

/// The request of FSCTL_FILE_LEVEL_TRIM, MS-FSCC 2.3.13.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TrimRequest<'a> {
    /// Key: the owner of the byte ranges.
    pub key: u32,
    ranges: &'a [u8],
}

impl<'a> TrimRequest<'a> {
    /// Parses the request. A count of zero, or of more ranges than there are,
    /// is STATUS_INVALID_PARAMETER.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let what = "FILE_LEVEL_TRIM";
        let mut r = Reader::new(bytes);
        let key = r.u32(what)?;
        let count = usize::try_from(r.u32(what)?).map_err(|_| Malformed::new(what))?;
        let len = count
            .checked_mul(TrimRange::SIZE)
            .filter(|len| *len != 0)
            .ok_or(Malformed::new(what))?;
        Ok(Self { key, ranges: r.take(len, what)? })
    }

    /// The ranges, in order.
    pub fn ranges(&self) -> impl Iterator<Item = TrimRange> + 'a {
        self.ranges.chunks_exact(TrimRange::SIZE).filter_map(|range| TrimRange::parse(range).ok())
    }

    /// Appends a request to `w`.
    pub fn encode(w: &mut Writer<'_>, key: u32, ranges: &[TrimRange]) {
        w.u32(key).u32(u32::try_from(ranges.len()).unwrap_or(u32::MAX));
        for range in ranges {
            range.encode(w);
        }
    }
}
