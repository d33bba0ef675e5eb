//! Types of MS-DTYP: times, identifiers, and the parts of security descriptors.

mod acl;
mod descriptor;
mod sid;

pub use acl::{Ace, AceBody, AceFlags, AceType, Acl};
pub use descriptor::{
    MAX_SECURITY_DESCRIPTOR, SdControl, SecurityDescriptor, SecurityInformation, TooLarge,
};
pub use sid::{Sid, SidParseError};

use crate::bit_set;
use core::fmt;

/// 100 ns intervals since 1601-01-01 UTC, MS-DTYP 2.3.3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct FileTime(pub u64);

/// Seconds from 1601 to 1970.
const EPOCH_GAP_SECONDS: i64 = 11_644_473_600;
const TICKS_PER_SECOND: i64 = 10_000_000;

impl FileTime {
    /// No time: the answer for an unknown time, and the value that leaves a time unchanged.
    pub const ZERO: Self = Self(0);

    /// Converts Unix seconds and nanoseconds; saturates outside FILETIME's range.
    pub const fn from_unix(seconds: i64, nanoseconds: u32) -> Self {
        let seconds = seconds.saturating_add(EPOCH_GAP_SECONDS);
        let ticks = seconds.saturating_mul(TICKS_PER_SECOND);
        let ticks = ticks.saturating_add((nanoseconds / 100) as i64);
        Self(if ticks < 0 { 0 } else { ticks as u64 })
    }

    /// Returns Unix seconds and nanoseconds (a multiple of 100).
    pub const fn to_unix(self) -> (i64, u32) {
        let ticks = if self.0 > i64::MAX as u64 { i64::MAX } else { self.0 as i64 };
        let seconds = ticks / TICKS_PER_SECOND;
        let rest = (ticks % TICKS_PER_SECOND) as u32;
        (seconds.saturating_sub(EPOCH_GAP_SECONDS), rest.saturating_mul(100))
    }
}

/// A GUID in wire order, MS-DTYP 2.3.4.2.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, PartialOrd, Ord)]
pub struct Guid(pub [u8; 16]);

impl fmt::Display for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g, h, i, rest @ ..] = self.0;
        write!(
            f,
            "{d:02x}{c:02x}{b:02x}{a:02x}-{g:02x}{e:02x}-{i:02x}{h:02x}-{:02x}{:02x}-",
            rest[0], rest[1]
        )?;
        rest[2..].iter().try_for_each(|b| write!(f, "{b:02x}"))
    }
}

impl fmt::Debug for Guid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

bit_set! {
    /// ACCESS_MASK as MS-SMB2 2.2.13.1 names its bits.
    AccessMask(u32) {
        /// FILE_READ_DATA, of a directory FILE_LIST_DIRECTORY.
        READ_DATA = 0x0000_0001,
        /// FILE_WRITE_DATA, of a directory FILE_ADD_FILE.
        WRITE_DATA = 0x0000_0002,
        /// FILE_APPEND_DATA, of a directory FILE_ADD_SUBDIRECTORY.
        APPEND_DATA = 0x0000_0004,
        /// FILE_READ_EA
        READ_EA = 0x0000_0008,
        /// FILE_WRITE_EA
        WRITE_EA = 0x0000_0010,
        /// FILE_EXECUTE, of a directory FILE_TRAVERSE.
        EXECUTE = 0x0000_0020,
        /// FILE_DELETE_CHILD
        DELETE_CHILD = 0x0000_0040,
        /// FILE_READ_ATTRIBUTES
        READ_ATTRIBUTES = 0x0000_0080,
        /// FILE_WRITE_ATTRIBUTES
        WRITE_ATTRIBUTES = 0x0000_0100,
        /// DELETE
        DELETE = 0x0001_0000,
        /// READ_CONTROL
        READ_CONTROL = 0x0002_0000,
        /// WRITE_DAC
        WRITE_DAC = 0x0004_0000,
        /// WRITE_OWNER
        WRITE_OWNER = 0x0008_0000,
        /// SYNCHRONIZE
        SYNCHRONIZE = 0x0010_0000,
        /// ACCESS_SYSTEM_SECURITY
        ACCESS_SYSTEM_SECURITY = 0x0100_0000,
        /// MAXIMUM_ALLOWED
        MAXIMUM_ALLOWED = 0x0200_0000,
        /// GENERIC_ALL
        GENERIC_ALL = 0x1000_0000,
        /// GENERIC_EXECUTE
        GENERIC_EXECUTE = 0x2000_0000,
        /// GENERIC_WRITE
        GENERIC_WRITE = 0x4000_0000,
        /// GENERIC_READ
        GENERIC_READ = 0x8000_0000,
    }
}

impl AccessMask {
    /// FILE_ALL_ACCESS: every specific and standard right of a file.
    pub const FILE_ALL: Self = Self(0x001F_01FF);
    /// The rights of GENERIC_READ on a file.
    pub const FILE_GENERIC_READ: Self = Self(0x0012_0089);
    /// The rights of GENERIC_WRITE on a file.
    pub const FILE_GENERIC_WRITE: Self = Self(0x0012_0116);
    /// The rights of GENERIC_EXECUTE on a file.
    pub const FILE_GENERIC_EXECUTE: Self = Self(0x0012_00A0);
}

bit_set! {
    /// File attributes, MS-FSCC 2.6.
    FileAttributes(u32) {
        /// FILE_ATTRIBUTE_READONLY
        READONLY = 0x0000_0001,
        /// FILE_ATTRIBUTE_HIDDEN
        HIDDEN = 0x0000_0002,
        /// FILE_ATTRIBUTE_SYSTEM
        SYSTEM = 0x0000_0004,
        /// FILE_ATTRIBUTE_DIRECTORY
        DIRECTORY = 0x0000_0010,
        /// FILE_ATTRIBUTE_ARCHIVE
        ARCHIVE = 0x0000_0020,
        /// FILE_ATTRIBUTE_NORMAL: no other attribute is set.
        NORMAL = 0x0000_0080,
        /// FILE_ATTRIBUTE_TEMPORARY
        TEMPORARY = 0x0000_0100,
        /// FILE_ATTRIBUTE_SPARSE_FILE
        SPARSE_FILE = 0x0000_0200,
        /// FILE_ATTRIBUTE_REPARSE_POINT
        REPARSE_POINT = 0x0000_0400,
        /// FILE_ATTRIBUTE_COMPRESSED
        COMPRESSED = 0x0000_0800,
        /// FILE_ATTRIBUTE_OFFLINE
        OFFLINE = 0x0000_1000,
        /// FILE_ATTRIBUTE_NOT_CONTENT_INDEXED
        NOT_CONTENT_INDEXED = 0x0000_2000,
        /// FILE_ATTRIBUTE_ENCRYPTED
        ENCRYPTED = 0x0000_4000,
        /// FILE_ATTRIBUTE_INTEGRITY_STREAM
        INTEGRITY_STREAM = 0x0000_8000,
        /// FILE_ATTRIBUTE_NO_SCRUB_DATA
        NO_SCRUB_DATA = 0x0002_0000,
        /// FILE_ATTRIBUTE_RECALL_ON_OPEN
        RECALL_ON_OPEN = 0x0004_0000,
        /// FILE_ATTRIBUTE_RECALL_ON_DATA_ACCESS
        RECALL_ON_DATA_ACCESS = 0x0040_0000,
    }
}
