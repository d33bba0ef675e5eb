//! Buffers of the FSCTLs that tell of a file's place on its volume, and of the volume, MS-FSCC 2.3.

use super::fixed::fixed_struct;
use crate::codec::Writer;
use crate::dtyp::FileAttributes;

fixed_struct! {
    /// NTFS_VOLUME_DATA_BUFFER, the reply of FSCTL_GET_NTFS_VOLUME_DATA, MS-FSCC 2.3.22.
    NtfsVolumeData {
        /// VolumeSerialNumber
        volume_serial_number: u64;
        /// NumberSectors
        number_sectors: u64;
        /// TotalClusters
        total_clusters: u64;
        /// FreeClusters
        free_clusters: u64;
        /// TotalReserved: clusters that are kept for a full volume.
        total_reserved: u64;
        /// BytesPerSector
        bytes_per_sector: u32;
        /// BytesPerCluster
        bytes_per_cluster: u32;
        /// BytesPerFileRecordSegment
        bytes_per_file_record_segment: u32;
        /// ClustersPerFileRecordSegment
        clusters_per_file_record_segment: u32;
        /// MftValidDataLength, in bytes.
        mft_valid_data_length: u64;
        /// MftStartLcn
        mft_start_lcn: u64;
        /// Mft2StartLcn
        mft2_start_lcn: u64;
        /// MftZoneStart
        mft_zone_start: u64;
        /// MftZoneEnd
        mft_zone_end: u64;
    }

    /// STARTING_VCN_INPUT_BUFFER, the request of FSCTL_GET_RETRIEVAL_POINTERS, MS-FSCC 2.3.31.
    StartingVcn {
        /// StartingVcn: the first cluster of the file that is asked about.
        starting_vcn: i64;
    }

    /// The fields before the extents in the reply of FSCTL_GET_RETRIEVAL_POINTERS, MS-FSCC 2.3.32.
    RetrievalPointersHeader {
        /// ExtentCount
        extent_count: u32, pad 4;
        /// StartingVcn: the first cluster of the first extent.
        starting_vcn: i64;
    }

    /// EXTENTS, MS-FSCC 2.3.32.1.
    RetrievalPointer {
        /// NextVcn: the first cluster of the file behind the extent.
        next_vcn: i64;
        /// Lcn: the first cluster of the volume; [`Self::UNALLOCATED`] without space.
        lcn: i64;
    }

    /// MARK_HANDLE_INFO, the request of FSCTL_MARK_HANDLE, MS-FSCC 2.3.39.
    MarkHandle {
        /// CopyNumber
        copy_number: u32, pad 4;
        /// VolumeHandle
        volume_handle: u64;
        /// HandleInfo: [`Self::READ_COPY`] or [`Self::NOT_READ_COPY`].
        handle_info: u32, pad 4;
    }

    /// READ_FILE_USN_DATA, the request of FSCTL_READ_FILE_USN_DATA, MS-FSCC 2.3.61.
    ReadFileUsnData {
        /// MinMajorVersion
        min_major_version: u16;
        /// MaxMajorVersion
        max_major_version: u16;
    }
}

impl RetrievalPointer {
    /// The Lcn of an extent without space on the volume.
    pub const UNALLOCATED: i64 = -1;
}

impl MarkHandle {
    /// MARK_HANDLE_READ_COPY: reads of the handle come from one copy of the data.
    pub const READ_COPY: u32 = 0x80;
    /// MARK_HANDLE_NOT_READ_COPY: they come from any copy.
    pub const NOT_READ_COPY: u32 = 0x100;
}

/// The identifiers in a record of the change journal; their length tells its version.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UsnReferences {
    /// USN_RECORD_V2: FileReferenceNumber, ParentFileReferenceNumber.
    V2(u64, u64),
    /// USN_RECORD_V3: the same with 128 bits.
    V3([u8; 16], [u8; 16]),
}

impl UsnReferences {
    /// The bytes before FileName.
    const fn fixed(&self) -> usize {
        match self {
            Self::V2(..) => 60,
            Self::V3(..) => 76,
        }
    }

    /// The size of the structure with one character, as C pads it: the least output.
    pub const fn min_size(&self) -> usize {
        match self {
            Self::V2(..) => 64,
            Self::V3(..) => 80,
        }
    }
}

/// USN_RECORD_V2 and USN_RECORD_V3, the replies of FSCTL_READ_FILE_USN_DATA, MS-FSCC 2.3.62. The fields
/// that must be 0 there are: Reason, TimeStamp, SourceInfo and SecurityId.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UsnRecord<'a> {
    /// The file and its directory.
    pub references: UsnReferences,
    /// Usn; 0 for a file without a record in a journal.
    pub usn: u64,
    /// FileAttributes
    pub attributes: FileAttributes,
    /// FileName, without a path.
    pub name: &'a str,
}

impl UsnRecord<'_> {
    /// Returns RecordLength: the bytes of the record, a multiple of 8.
    pub fn record_length(&self) -> usize {
        let name = super::utf16_len(self.name);
        self.references.fixed().saturating_add(name).next_multiple_of(8)
    }

    /// Appends the record to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        let short = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
        w.u32(number(self.record_length()));
        match &self.references {
            UsnReferences::V2(file, parent) => w.u16(2).u16(0).u64(*file).u64(*parent),
            UsnReferences::V3(file, parent) => w.u16(3).u16(0).bytes(file).bytes(parent),
        };
        w.u64(self.usn).u64(0).u32(0).u32(0).u32(0).u32(self.attributes.0);
        w.u16(short(super::utf16_len(self.name))).u16(short(self.references.fixed()));
        for unit in self.name.encode_utf16() {
            w.u16(unit);
        }
        w.align(8);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    fn bytes(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
        let mut out = Vec::new();
        encode(&mut Writer::new(&mut out));
        out
    }

    /// Sizes as MS-FSCC draws them.
    #[test]
    fn sizes() {
        assert_eq!(NtfsVolumeData::SIZE, 96);
        assert_eq!((StartingVcn::SIZE, RetrievalPointersHeader::SIZE), (8, 16));
        assert_eq!((RetrievalPointer::SIZE, MarkHandle::SIZE, ReadFileUsnData::SIZE), (16, 24, 4));
    }

    #[test]
    fn structures_are_read_as_they_are_written() {
        let mark = MarkHandle { copy_number: 1, volume_handle: 2, handle_info: 0x80 };
        assert_eq!(MarkHandle::parse(&bytes(|w| mark.encode(w))), Ok(mark));
        let header = RetrievalPointersHeader { extent_count: 3, starting_vcn: -4 };
        assert_eq!(RetrievalPointersHeader::parse(&bytes(|w| header.encode(w))), Ok(header));
        let vcn = StartingVcn { starting_vcn: i64::MIN };
        assert_eq!(StartingVcn::parse(&bytes(|w| vcn.encode(w))), Ok(vcn));
        let versions = ReadFileUsnData { min_major_version: 2, max_major_version: 3 };
        assert_eq!(bytes(|w| versions.encode(w)), [2, 0, 3, 0]);
    }

    #[test]
    fn records_have_the_layout_of_their_version() {
        let (usn, attributes) = (0, FileAttributes::ARCHIVE);
        for (references, fixed, version) in
            [(UsnReferences::V2(7, 5), 60, 2), (UsnReferences::V3([7; 16], [5; 16]), 76, 3)]
        {
            let record = UsnRecord { references, usn, attributes, name: "aé\u{10000}" };
            let out = bytes(|w| record.encode(w));
            assert_eq!((out.len(), out.len() % 8), (record.record_length(), 0));
            assert_eq!(out[..4], u32::try_from(out.len()).unwrap().to_le_bytes());
            assert_eq!(out[4..8], [version, 0, 0, 0]);
            assert_eq!(out[8], 7);
            let tail = &out[fixed - 8..];
            assert_eq!(tail[..8], [0x20, 0, 0, 0, 8, 0, u8::try_from(fixed).unwrap(), 0]);
            assert_eq!(tail[8..16], [b'a', 0, 0xE9, 0, 0, 0xD8, 0, 0xDC]);
            assert!(references.min_size() >= fixed + 2);
        }
    }
}
