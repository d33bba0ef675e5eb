//! Information about a file in QUERY_INFO, MS-FSCC 2.4. SET_INFO uses several of the classes too.

use super::fixed::{fixed_struct, newtype_field};
use super::list::{Entries, ListWriter, Pushed};
use super::name::{WireName, read_counted, utf16_len, write_counted};
use super::reparse::ReparseTag;
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::dtyp::{AccessMask, FileAttributes, FileTime};
use crate::{bit_set, open_enum};
use alloc::vec::Vec;

bit_set! {
    /// Mode of FileModeInformation, MS-FSCC 2.4.31: bits of CreateOptions.
    FileMode(u32) {
        /// FILE_WRITE_THROUGH
        WRITE_THROUGH = 0x0000_0002,
        /// FILE_SEQUENTIAL_ONLY
        SEQUENTIAL_ONLY = 0x0000_0004,
        /// FILE_NO_INTERMEDIATE_BUFFERING
        NO_INTERMEDIATE_BUFFERING = 0x0000_0008,
        /// FILE_SYNCHRONOUS_IO_ALERT
        SYNCHRONOUS_IO_ALERT = 0x0000_0010,
        /// FILE_SYNCHRONOUS_IO_NONALERT
        SYNCHRONOUS_IO_NONALERT = 0x0000_0020,
        /// FILE_DELETE_ON_CLOSE
        DELETE_ON_CLOSE = 0x0000_1000,
    }
}

open_enum! {
    /// How a file is compressed, MS-FSCC 2.3.18 and 2.4.9.
    CompressionFormat(u16) {
        /// COMPRESSION_FORMAT_NONE
        NONE = 0,
        /// COMPRESSION_FORMAT_DEFAULT, only when set.
        DEFAULT = 1,
        /// COMPRESSION_FORMAT_LZNT1
        LZNT1 = 2,
    }
}

newtype_field! { FileMode(u32), CompressionFormat(u16), }

fixed_struct! {
    /// FileBasicInformation, MS-FSCC 2.4.7. When set, a time of 0 leaves the
    /// time alone, -1 stops and -2 resumes its automatic change on the handle.
    FileBasicInformation {
        /// CreationTime
        creation_time: FileTime;
        /// LastAccessTime
        last_access_time: FileTime;
        /// LastWriteTime
        last_write_time: FileTime;
        /// ChangeTime
        change_time: FileTime;
        /// FileAttributes; zero leaves them alone when set.
        attributes: FileAttributes, pad 4;
    }

    /// FileStandardInformation, MS-FSCC 2.4.47.
    FileStandardInformation {
        /// AllocationSize, in bytes.
        allocation_size: u64;
        /// EndOfFile, in bytes.
        end_of_file: u64;
        /// NumberOfLinks that are not deleted.
        number_of_links: u32;
        /// DeletePending
        delete_pending: bool;
        /// Directory
        directory: bool, pad 2;
    }

    /// FileInternalInformation, MS-FSCC 2.4.27.
    FileInternalInformation {
        /// IndexNumber: the 64-bit file identifier.
        index_number: u64;
    }

    /// FileEaInformation, MS-FSCC 2.4.13.
    FileEaInformation {
        /// EaSize: bytes of all extended attributes together.
        ea_size: u32;
    }

    /// FileAccessInformation, MS-FSCC 2.4.1.
    FileAccessInformation {
        /// AccessFlags: the granted access of the Open.
        access: AccessMask;
    }

    /// FilePositionInformation, MS-FSCC 2.4.40.
    FilePositionInformation {
        /// CurrentByteOffset
        current_byte_offset: i64;
    }

    /// FileModeInformation, MS-FSCC 2.4.31.
    FileModeInformation {
        /// Mode
        mode: FileMode;
    }

    /// FileAlignmentInformation, MS-FSCC 2.4.3.
    FileAlignmentInformation {
        /// AlignmentRequirement: one less than the alignment in bytes.
        alignment_requirement: u32;
    }

    /// FilePipeInformation, MS-FSCC 2.4.37.
    FilePipeInformation {
        /// ReadMode: 0 bytes, 1 messages.
        read_mode: u32;
        /// CompletionMode: 0 blocking, 1 not.
        completion_mode: u32;
    }

    /// FilePipeLocalInformation, MS-FSCC 2.4.38.
    FilePipeLocalInformation {
        /// NamedPipeType: 0 bytes, 1 messages.
        named_pipe_type: u32;
        /// NamedPipeConfiguration: 0 inbound, 1 outbound, 2 full duplex.
        named_pipe_configuration: u32;
        /// MaximumInstances
        maximum_instances: u32;
        /// CurrentInstances
        current_instances: u32;
        /// InboundQuota, in bytes.
        inbound_quota: u32;
        /// ReadDataAvailable, in bytes.
        read_data_available: u32;
        /// OutboundQuota, in bytes.
        outbound_quota: u32;
        /// WriteQuotaAvailable, in bytes.
        write_quota_available: u32;
        /// NamedPipeState: 1 disconnected, 2 listening, 3 connected, 4 closing.
        named_pipe_state: u32;
        /// NamedPipeEnd: 0 client, 1 server.
        named_pipe_end: u32;
    }

    /// FilePipeRemoteInformation, MS-FSCC 2.4.39.
    FilePipeRemoteInformation {
        /// CollectDataTime, in 100 ns.
        collect_data_time: u64;
        /// MaximumCollectionCount, in bytes.
        maximum_collection_count: u32;
    }

    /// FileCompressionInformation, MS-FSCC 2.4.9.
    FileCompressionInformation {
        /// CompressedFileSize, in bytes.
        compressed_file_size: u64;
        /// CompressionFormat
        compression_format: CompressionFormat;
        /// CompressionUnitShift
        compression_unit_shift: u8;
        /// ChunkShift
        chunk_shift: u8;
        /// ClusterShift
        cluster_shift: u8, pad 3;
    }

    /// FileNetworkOpenInformation, MS-FSCC 2.4.34.
    FileNetworkOpenInformation {
        /// CreationTime
        creation_time: FileTime;
        /// LastAccessTime
        last_access_time: FileTime;
        /// LastWriteTime
        last_write_time: FileTime;
        /// ChangeTime
        change_time: FileTime;
        /// AllocationSize, in bytes.
        allocation_size: u64;
        /// EndOfFile, in bytes.
        end_of_file: u64;
        /// FileAttributes
        attributes: FileAttributes, pad 4;
    }

    /// FileAttributeTagInformation, MS-FSCC 2.4.6.
    FileAttributeTagInformation {
        /// FileAttributes
        attributes: FileAttributes;
        /// ReparseTag, zero when the file is not a reparse point.
        reparse_tag: ReparseTag;
    }

    /// FileIdInformation, MS-FSCC 2.4.26.
    FileIdInformation {
        /// VolumeSerialNumber
        volume_serial_number: u64;
        /// FileId of 128 bits.
        file_id: [u8; 16];
    }
}

/// FILE_NAME_INFORMATION, MS-FSCC 2.1.7: the answer to FileAlternateNameInformation and
/// FileNormalizedNameInformation, and the input of FileShortNameInformation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileNameInformation<N> {
    /// FileName
    pub name: N,
}

impl FileNameInformation<()> {
    /// Bytes before the name.
    pub const FIXED_SIZE: usize = 4;
}

impl FileNameInformation<&str> {
    /// Appends the structure. A server with less room truncates the name and
    /// answers STATUS_BUFFER_OVERFLOW; FileNameLength stays whole.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_counted(w, self.name);
    }
}

impl<'a> FileNameInformation<WireName<'a>> {
    /// Parses the structure at the start of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        Ok(Self { name: read_counted(&mut Reader::new(bytes), "FileNameLength")? })
    }
}

/// FileAllInformation, MS-FSCC 2.4.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileAllInformation<N> {
    /// BasicInformation
    pub basic: FileBasicInformation,
    /// StandardInformation
    pub standard: FileStandardInformation,
    /// InternalInformation
    pub internal: FileInternalInformation,
    /// EaInformation
    pub ea: FileEaInformation,
    /// AccessInformation
    pub access: FileAccessInformation,
    /// PositionInformation
    pub position: FilePositionInformation,
    /// ModeInformation
    pub mode: FileModeInformation,
    /// AlignmentInformation
    pub alignment: FileAlignmentInformation,
    /// FileName of NameInformation: the path from the root of the share.
    pub name: N,
}

impl FileAllInformation<()> {
    /// Bytes before the name.
    pub const FIXED_SIZE: usize = 100;
}

impl FileAllInformation<&str> {
    /// Appends the structure; see [`FileNameInformation::encode`] on truncation.
    pub fn encode(&self, w: &mut Writer<'_>) {
        self.basic.encode(w);
        self.standard.encode(w);
        self.internal.encode(w);
        self.ea.encode(w);
        self.access.encode(w);
        self.position.encode(w);
        self.mode.encode(w);
        self.alignment.encode(w);
        write_counted(w, self.name);
    }
}

impl<'a> FileAllInformation<WireName<'a>> {
    /// Parses the structure at the start of `bytes`. A name that the server
    /// truncated (STATUS_BUFFER_OVERFLOW) ends where the bytes end.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let mut r = Reader::new(bytes);
        Ok(Self {
            basic: FileBasicInformation::read(&mut r)?,
            standard: FileStandardInformation::read(&mut r)?,
            internal: FileInternalInformation::read(&mut r)?,
            ea: FileEaInformation::read(&mut r)?,
            access: FileAccessInformation::read(&mut r)?,
            position: FilePositionInformation::read(&mut r)?,
            mode: FileModeInformation::read(&mut r)?,
            alignment: FileAlignmentInformation::read(&mut r)?,
            name: read_truncated(&mut r)?,
        })
    }
}

fn read_truncated<'a>(r: &mut Reader<'a>) -> Parsed<WireName<'a>> {
    let what = "FileNameLength";
    let length = usize::try_from(r.u32(what)?).map_err(|_| Malformed::new(what))?;
    let there = r.remaining() & !1;
    WireName::new(r.take(length.min(there), what)?)
}

/// One stream in the answer to FileStreamInformation, MS-FSCC 2.4.49.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StreamEntry<N> {
    /// StreamName in the form `:name:$DATA`.
    pub name: N,
    /// StreamSize, in bytes.
    pub size: u64,
    /// StreamAllocationSize, in bytes.
    pub allocation_size: u64,
}

const STREAM_FIXED: usize = 24;

/// Writes the answer to FileStreamInformation.
#[derive(Debug)]
pub struct StreamWriter<'a>(ListWriter<'a>);

impl<'a> StreamWriter<'a> {
    /// Appends entries to `out`, at most `max_len` bytes.
    pub fn new(out: &'a mut Vec<u8>, max_len: usize) -> Self {
        Self(ListWriter::new(out, 8, max_len))
    }

    /// Appends an entry if it fits whole.
    pub fn push(&mut self, entry: &StreamEntry<&str>) -> Pushed {
        let name_len = utf16_len(entry.name);
        let Ok(wire_len) = u32::try_from(name_len) else { return Pushed::Full };
        let Some(out) = self.0.begin(STREAM_FIXED.saturating_add(name_len)) else {
            return Pushed::Full;
        };
        Writer::new(out)
            .u32(0)
            .u32(wire_len)
            .u64(entry.size)
            .u64(entry.allocation_size)
            .utf16(entry.name);
        Pushed::Fits
    }
}

/// Reads the answer to FileStreamInformation.
#[derive(Debug, Clone)]
pub struct StreamEntries<'a>(Entries<'a>);

impl<'a> StreamEntries<'a> {
    /// The entries in `bytes`; none when it is empty.
    pub const fn new(bytes: &'a [u8]) -> Self {
        Self(Entries::new(bytes, STREAM_FIXED, "stream entry"))
    }
}

impl<'a> Iterator for StreamEntries<'a> {
    type Item = Parsed<StreamEntry<WireName<'a>>>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.0.next()?;
        Some(bytes.and_then(read_stream))
    }
}

fn read_stream(bytes: &[u8]) -> Parsed<StreamEntry<WireName<'_>>> {
    let what = "stream entry";
    let mut r = Reader::new(bytes);
    r.skip(4, what)?;
    let name_len = usize::try_from(r.u32(what)?).map_err(|_| Malformed::new(what))?;
    let size = r.u64(what)?;
    let allocation_size = r.u64(what)?;
    Ok(StreamEntry { name: WireName::new(r.take(name_len, what)?)?, size, allocation_size })
}
