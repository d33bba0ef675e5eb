//! The information levels of MS-DFSNM: which members each one has, in their order.

/// A member of a DFS_INFO structure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Field {
    /// EntryPath, FtDfsName or DfsName.
    Path,
    Comment,
    State,
    /// Flags of DFS_INFO_300.
    Flags,
    Timeout,
    Guid,
    Generation,
    PropertyMask,
    Properties,
    MetadataSize,
    DescriptorLength,
    Descriptor,
    StorageCount,
    /// A pointer to an array of DFS_STORAGE_INFO.
    Storages,
    /// A pointer to an array of DFS_STORAGE_INFO_1.
    RankedStorages,
    Priority,
    MajorVersion,
    MinorVersion,
    Capabilities,
}

use Field::{
    Capabilities, Comment, Descriptor, DescriptorLength, Flags, Generation, Guid, MajorVersion,
    MetadataSize, MinorVersion, Path, Priority, Properties, PropertyMask, RankedStorages, State,
    StorageCount, Storages, Timeout,
};

/// The members of a case of DFS_INFO_STRUCT, MS-DFSNM 2.2.2.3.
pub(super) const fn of_entry(level: u32) -> Option<&'static [Field]> {
    Some(match level {
        1 => &[Path],
        2 => &[Path, Comment, State, StorageCount],
        3 => &[Path, Comment, State, StorageCount, Storages],
        4 => &[Path, Comment, State, Timeout, Guid, StorageCount, Storages],
        5 => &[Path, Comment, State, Timeout, Guid, Properties, MetadataSize, StorageCount],
        6 => &[
            Path,
            Comment,
            State,
            Timeout,
            Guid,
            Properties,
            MetadataSize,
            StorageCount,
            RankedStorages,
        ],
        7 => &[Generation],
        8 => &[
            Path,
            Comment,
            State,
            Timeout,
            Guid,
            Properties,
            MetadataSize,
            DescriptorLength,
            Descriptor,
            StorageCount,
        ],
        9 => &[
            Path,
            Comment,
            State,
            Timeout,
            Guid,
            Properties,
            MetadataSize,
            DescriptorLength,
            Descriptor,
            StorageCount,
            RankedStorages,
        ],
        50 => &[MajorVersion, MinorVersion, Capabilities],
        100 => &[Comment],
        101 => &[State],
        102 => &[Timeout],
        103 => &[PropertyMask, Properties],
        104 => &[Priority],
        105 => &[Comment, State, Timeout, PropertyMask, Properties],
        106 => &[State, Priority],
        107 => &[Comment, State, Timeout, PropertyMask, Properties, DescriptorLength, Descriptor],
        150 => &[DescriptorLength, Descriptor],
        _ => return None,
    })
}

/// The members of a case of DFS_INFO_ENUM_STRUCT, MS-DFSNM 2.2.2.4.
pub(super) const fn of_enumeration(level: u32) -> Option<&'static [Field]> {
    match level {
        1..=6 | 8 | 9 => of_entry(level),
        200 => Some(&[Path]),
        300 => Some(&[Flags, Path]),
        _ => None,
    }
}

/// The alignment of the structure of a level. DFS_INFO_50 has an unsigned __int64.
pub(super) const fn alignment(level: u32) -> usize {
    if level == 50 { 8 } else { 4 }
}

/// The size of the structure of a level in the memory of a 64-bit Windows, by which PrefMaxLen is divided
/// (MS-DFSNM 3.1.4.2.3 note 96).
pub(super) const fn native_size(level: u32) -> u32 {
    match level {
        2 => 24,
        3 => 32,
        4 | 5 => 56,
        6 => 64,
        8 => 72,
        9 => 80,
        300 => 16,
        _ => 8,
    }
}

/// The least bytes that the fixed part of an entry takes on the wire.
pub(super) const fn least_size(fields: &[Field]) -> usize {
    fields.len().saturating_mul(4)
}
