//! The parameters and results of single operations on a node.

use alloc::vec::Vec;

use frevo_wire::dtyp::{FileAttributes, FileTime};

use crate::byte_range::Mode;

/// Changes of times and attributes. `None` and `FileTime::ZERO` leave a value unchanged.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BasicChange {
    /// New CreationTime.
    pub created: Option<FileTime>,
    /// New LastAccessTime.
    pub accessed: Option<FileTime>,
    /// New LastWriteTime.
    pub written: Option<FileTime>,
    /// New ChangeTime (stored only if the host can).
    pub changed: Option<FileTime>,
    /// New settable attributes; NORMAL clears all.
    pub attributes: Option<FileAttributes>,
    /// New POSIX mode.
    pub mode: Option<u32>,
    /// New POSIX owner.
    pub uid: Option<u32>,
    /// New POSIX group.
    pub gid: Option<u32>,
}

/// The facts by which a file that is written once is committed: from then on nobody changes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Commitment {
    /// The time of the last change of the file, its attributes or its names, by the host's own record, which
    /// no client sets.
    pub unchanged_since: FileTime,
    /// The time of the commitment, if one is stored.
    pub committed: Option<FileTime>,
}

/// A change of one extended attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EaChange<'a> {
    /// Name of the attribute, without the host's prefix `user.`.
    pub name: &'a str,
    /// The new value; an empty one removes the attribute.
    pub value: &'a [u8],
    /// FILE_NEED_EA is set.
    pub need: bool,
}

/// FILE_OBJECTID_BUFFER, MS-FSCC 2.1.3: 16 bytes of id, 48 of extended information.
pub type ObjectId = [u8; 64];

/// A change of an object id, MS-FSA 2.1.5.10.2, .35 and .36.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectIdChange {
    /// Sets the id of an object without one.
    New(ObjectId),
    /// Sets the extended information of the present id.
    Extended([u8; 48]),
    /// Removes the id if there is one.
    Forget,
}

/// Two ranges of equal length in two files, MS-FSA 2.1.5.10.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtentCopy {
    /// Offset in the source, bytes.
    pub source_offset: u64,
    /// Offset in the target, bytes.
    pub target_offset: u64,
    /// Length of both ranges, bytes.
    pub length: u64,
    /// True if a failure must leave the target unchanged.
    pub is_atomic: bool,
}

/// Ranges of a file that have data: first byte, and first byte behind the range.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Allocated {
    /// In order; no range is empty or touches the next.
    pub ranges: Vec<(u64, u64)>,
    /// True if there are more ranges than the limit.
    pub has_more: bool,
}

/// A part of a file that lies in one piece on its volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskExtent {
    /// Offset of its first byte in the file.
    pub first: u64,
    /// Offset of the first byte behind it in the file.
    pub beyond: u64,
    /// Offset of its first byte on the volume. None for data that has no place of its own there: data
    /// that is not written yet, or lies in the file's inode.
    pub place: Option<u64>,
}

/// Extents of a file, in order; what is between two is a hole.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct DiskExtents {
    /// The extents that end behind the first byte that was asked about.
    pub extents: Vec<DiskExtent>,
    /// True if there are more extents than the limit.
    pub has_more: bool,
}

/// A range of an Open's byte-range locks, as shown to other programs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostLock {
    /// Offset of the first byte.
    pub first: u64,
    /// Offset of the last byte.
    pub last: u64,
    /// The strongest lock on the range; None if it is free.
    pub mode: Option<Mode>,
}
