//! Information about a file system in QUERY_INFO and SET_INFO, MS-FSCC 2.5.

use super::fixed::{fixed_struct, newtype_field};
use super::name::{WireName, utf16_len_u32};
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::dtyp::{FileTime, Guid};
use crate::{bit_set, open_enum};

bit_set! {
    /// FileSystemAttributes, MS-FSCC 2.5.1.
    FsAttributes(u32) {
        /// FILE_CASE_SENSITIVE_SEARCH
        CASE_SENSITIVE_SEARCH = 0x0000_0001,
        /// FILE_CASE_PRESERVED_NAMES
        CASE_PRESERVED_NAMES = 0x0000_0002,
        /// FILE_UNICODE_ON_DISK
        UNICODE_ON_DISK = 0x0000_0004,
        /// FILE_PERSISTENT_ACLS
        PERSISTENT_ACLS = 0x0000_0008,
        /// FILE_FILE_COMPRESSION
        FILE_COMPRESSION = 0x0000_0010,
        /// FILE_VOLUME_QUOTAS
        VOLUME_QUOTAS = 0x0000_0020,
        /// FILE_SUPPORTS_SPARSE_FILES
        SUPPORTS_SPARSE_FILES = 0x0000_0040,
        /// FILE_SUPPORTS_REPARSE_POINTS
        SUPPORTS_REPARSE_POINTS = 0x0000_0080,
        /// FILE_SUPPORTS_REMOTE_STORAGE
        SUPPORTS_REMOTE_STORAGE = 0x0000_0100,
        /// FILE_RETURNS_CLEANUP_RESULT_INFO
        RETURNS_CLEANUP_RESULT_INFO = 0x0000_0200,
        /// FILE_SUPPORTS_POSIX_UNLINK_RENAME
        SUPPORTS_POSIX_UNLINK_RENAME = 0x0000_0400,
        /// FILE_VOLUME_IS_COMPRESSED
        VOLUME_IS_COMPRESSED = 0x0000_8000,
        /// FILE_SUPPORTS_OBJECT_IDS
        SUPPORTS_OBJECT_IDS = 0x0001_0000,
        /// FILE_SUPPORTS_ENCRYPTION
        SUPPORTS_ENCRYPTION = 0x0002_0000,
        /// FILE_NAMED_STREAMS
        NAMED_STREAMS = 0x0004_0000,
        /// FILE_READ_ONLY_VOLUME
        READ_ONLY_VOLUME = 0x0008_0000,
        /// FILE_SEQUENTIAL_WRITE_ONCE
        SEQUENTIAL_WRITE_ONCE = 0x0010_0000,
        /// FILE_SUPPORTS_TRANSACTIONS
        SUPPORTS_TRANSACTIONS = 0x0020_0000,
        /// FILE_SUPPORTS_HARD_LINKS
        SUPPORTS_HARD_LINKS = 0x0040_0000,
        /// FILE_SUPPORTS_EXTENDED_ATTRIBUTES
        SUPPORTS_EXTENDED_ATTRIBUTES = 0x0080_0000,
        /// FILE_SUPPORTS_OPEN_BY_FILE_ID
        SUPPORTS_OPEN_BY_FILE_ID = 0x0100_0000,
        /// FILE_SUPPORTS_USN_JOURNAL
        SUPPORTS_USN_JOURNAL = 0x0200_0000,
        /// FILE_SUPPORT_INTEGRITY_STREAMS
        SUPPORT_INTEGRITY_STREAMS = 0x0400_0000,
        /// FILE_SUPPORTS_BLOCK_REFCOUNTING
        SUPPORTS_BLOCK_REFCOUNTING = 0x0800_0000,
        /// FILE_SUPPORTS_SPARSE_VDL
        SUPPORTS_SPARSE_VDL = 0x1000_0000,
    }
}

bit_set! {
    /// FileSystemControlFlags, MS-FSCC 2.5.2.
    FsControlFlags(u32) {
        /// FILE_VC_QUOTA_TRACK
        QUOTA_TRACK = 0x001,
        /// FILE_VC_QUOTA_ENFORCE
        QUOTA_ENFORCE = 0x002,
        /// FILE_VC_CONTENT_INDEX_DISABLED
        CONTENT_INDEX_DISABLED = 0x008,
        /// FILE_VC_LOG_QUOTA_THRESHOLD
        LOG_QUOTA_THRESHOLD = 0x010,
        /// FILE_VC_LOG_QUOTA_LIMIT
        LOG_QUOTA_LIMIT = 0x020,
        /// FILE_VC_LOG_VOLUME_THRESHOLD
        LOG_VOLUME_THRESHOLD = 0x040,
        /// FILE_VC_LOG_VOLUME_LIMIT
        LOG_VOLUME_LIMIT = 0x080,
        /// FILE_VC_QUOTAS_INCOMPLETE
        QUOTAS_INCOMPLETE = 0x100,
        /// FILE_VC_QUOTAS_REBUILDING
        QUOTAS_REBUILDING = 0x200,
    }
}

bit_set! {
    /// Characteristics of a device, MS-FSCC 2.5.10.
    DeviceCharacteristics(u32) {
        /// FILE_REMOVABLE_MEDIA
        REMOVABLE_MEDIA = 0x0000_0001,
        /// FILE_READ_ONLY_DEVICE
        READ_ONLY_DEVICE = 0x0000_0002,
        /// FILE_FLOPPY_DISKETTE
        FLOPPY_DISKETTE = 0x0000_0004,
        /// FILE_WRITE_ONCE_MEDIA
        WRITE_ONCE_MEDIA = 0x0000_0008,
        /// FILE_REMOTE_DEVICE
        REMOTE_DEVICE = 0x0000_0010,
        /// FILE_DEVICE_IS_MOUNTED
        DEVICE_IS_MOUNTED = 0x0000_0020,
        /// FILE_VIRTUAL_VOLUME
        VIRTUAL_VOLUME = 0x0000_0040,
        /// FILE_DEVICE_SECURE_OPEN
        DEVICE_SECURE_OPEN = 0x0000_0100,
    }
}

bit_set! {
    /// Flags of FileFsSectorSizeInformation, MS-FSCC 2.5.7.
    SectorSizeFlags(u32) {
        /// SSINFO_FLAGS_ALIGNED_DEVICE
        ALIGNED_DEVICE = 0x1,
        /// SSINFO_FLAGS_PARTITION_ALIGNED_ON_DEVICE
        PARTITION_ALIGNED_ON_DEVICE = 0x2,
        /// SSINFO_FLAGS_NO_SEEK_PENALTY
        NO_SEEK_PENALTY = 0x4,
        /// SSINFO_FLAGS_TRIM_ENABLED
        TRIM_ENABLED = 0x8,
    }
}

open_enum! {
    /// DeviceType, MS-FSCC 2.5.10.
    DeviceType(u32) {
        /// FILE_DEVICE_CD_ROM
        CD_ROM = 0x02,
        /// FILE_DEVICE_DISK
        DISK = 0x07,
        /// FILE_DEVICE_NAMED_PIPE: the answer of Windows on IPC$.
        NAMED_PIPE = 0x11,
    }
}

newtype_field! {
    FsAttributes(u32), FsControlFlags(u32), DeviceCharacteristics(u32), SectorSizeFlags(u32), DeviceType(u32),
}

fixed_struct! {
    /// FileFsSizeInformation, MS-FSCC 2.5.8.
    FsSizeInformation {
        /// TotalAllocationUnits
        total_allocation_units: u64;
        /// AvailableAllocationUnits, to this user.
        available_allocation_units: u64;
        /// SectorsPerAllocationUnit
        sectors_per_allocation_unit: u32;
        /// BytesPerSector
        bytes_per_sector: u32;
    }

    /// FileFsFullSizeInformation, MS-FSCC 2.5.4.
    FsFullSizeInformation {
        /// TotalAllocationUnits
        total_allocation_units: u64;
        /// CallerAvailableAllocationUnits
        caller_available_allocation_units: u64;
        /// ActualAvailableAllocationUnits
        actual_available_allocation_units: u64;
        /// SectorsPerAllocationUnit
        sectors_per_allocation_unit: u32;
        /// BytesPerSector
        bytes_per_sector: u32;
    }

    /// FileFsDeviceInformation, MS-FSCC 2.5.10.
    FsDeviceInformation {
        /// DeviceType
        device_type: DeviceType;
        /// Characteristics
        characteristics: DeviceCharacteristics;
    }

    /// FileFsControlInformation, MS-FSCC 2.5.2.
    FsControlInformation {
        /// FreeSpaceStartFiltering, in bytes.
        free_space_start_filtering: i64;
        /// FreeSpaceThreshold, in bytes.
        free_space_threshold: i64;
        /// FreeSpaceStopFiltering, in bytes.
        free_space_stop_filtering: i64;
        /// DefaultQuotaThreshold, in bytes; all ones for none.
        default_quota_threshold: u64;
        /// DefaultQuotaLimit, in bytes; all ones for none.
        default_quota_limit: u64;
        /// FileSystemControlFlags
        flags: FsControlFlags, pad 4;
    }

    /// FileFsObjectIdInformation, MS-FSCC 2.5.6.
    FsObjectIdInformation {
        /// ObjectId
        object_id: Guid;
        /// ExtendedInfo
        extended_info: [u8; 48];
    }

    /// FileFsSectorSizeInformation, MS-FSCC 2.5.7.
    FsSectorSizeInformation {
        /// LogicalBytesPerSector
        logical_bytes_per_sector: u32;
        /// PhysicalBytesPerSectorForAtomicity
        physical_bytes_per_sector_for_atomicity: u32;
        /// PhysicalBytesPerSectorForPerformance
        physical_bytes_per_sector_for_performance: u32;
        /// FileSystemEffectivePhysicalBytesPerSectorForAtomicity
        effective_physical_bytes_per_sector_for_atomicity: u32;
        /// Flags
        flags: SectorSizeFlags;
        /// ByteOffsetForSectorAlignment
        byte_offset_for_sector_alignment: u32;
        /// ByteOffsetForPartitionAlignment
        byte_offset_for_partition_alignment: u32;
    }
}

/// FileFsVolumeInformation, MS-FSCC 2.5.9.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsVolumeInformation<N> {
    /// VolumeCreationTime
    pub creation_time: FileTime,
    /// VolumeSerialNumber
    pub serial_number: u32,
    /// SupportsObjects
    pub supports_objects: bool,
    /// VolumeLabel
    pub label: N,
}

impl FsVolumeInformation<()> {
    /// Bytes before the label.
    pub const FIXED_SIZE: usize = 18;
}

impl FsVolumeInformation<&str> {
    /// Appends the structure. A server with less room truncates the label and
    /// answers STATUS_BUFFER_OVERFLOW; VolumeLabelLength stays whole.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.creation_time.0).u32(self.serial_number).u32(utf16_len_u32(self.label));
        w.u8(u8::from(self.supports_objects)).u8(0).utf16(self.label);
    }
}

impl<'a> FsVolumeInformation<WireName<'a>> {
    /// Parses the structure at the start of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let what = "volume information";
        let mut r = Reader::new(bytes);
        let creation_time = FileTime(r.u64(what)?);
        let serial_number = r.u32(what)?;
        let label_len = r.u32(what)?;
        let supports_objects = r.u8(what)? != 0;
        r.skip(1, what)?;
        Ok(Self {
            creation_time,
            serial_number,
            supports_objects,
            label: take_name(&mut r, label_len)?,
        })
    }
}

fn take_name<'a>(r: &mut Reader<'a>, len: u32) -> Parsed<WireName<'a>> {
    let what = "file system name length";
    WireName::new(r.take(usize::try_from(len).map_err(|_| Malformed::new(what))?, what)?)
}

/// FileFsAttributeInformation, MS-FSCC 2.5.1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FsAttributeInformation<N> {
    /// FileSystemAttributes
    pub attributes: FsAttributes,
    /// MaximumComponentNameLength, in code units, at most 255.
    pub maximum_component_name_length: u32,
    /// FileSystemName
    pub file_system_name: N,
}

impl FsAttributeInformation<()> {
    /// Bytes before the name.
    pub const FIXED_SIZE: usize = 12;
}

impl FsAttributeInformation<&str> {
    /// Appends the structure; see [`FsVolumeInformation::encode`] on truncation.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.attributes.0).u32(self.maximum_component_name_length);
        w.u32(utf16_len_u32(self.file_system_name)).utf16(self.file_system_name);
    }
}

impl<'a> FsAttributeInformation<WireName<'a>> {
    /// Parses the structure at the start of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let what = "file system attribute information";
        let mut r = Reader::new(bytes);
        let attributes = FsAttributes(r.u32(what)?);
        let maximum_component_name_length = r.u32(what)?;
        let name_len = r.u32(what)?;
        Ok(Self {
            attributes,
            maximum_component_name_length,
            file_system_name: take_name(&mut r, name_len)?,
        })
    }
}
