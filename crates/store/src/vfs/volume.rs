//! What is known of a volume, and of how much its users may take: MS-FSA 2.1.1.1.

use alloc::string::String;

use frevo_wire::dtyp::FileTime;

#[cfg(doc)]
use super::Node;

/// Space of the file system, MS-FSA 2.1.1.1 Volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes in one allocation unit.
    pub unit: u32,
    /// Units in all.
    pub total: u64,
    /// Free units that this user may take.
    pub available: u64,
    /// Free units.
    pub free: u64,
    /// Files that it can hold in all; 0 where there is no such limit.
    pub files: u64,
    /// Files that can still be made.
    pub free_files: u64,
}

impl Space {
    /// A volume without free space, of unknown size.
    pub const FULL: Self =
        Self { unit: 4_096, total: 0, available: 0, free: 0, files: 0, free_files: 0 };
}

/// Facts about the file system that do not change while it is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// A number that stays the same between restarts.
    pub serial: u32,
    /// When it was made, if known; else the share root's birth.
    pub created: FileTime,
    /// Name of its kind, shown to clients ("NTFS" unless configured).
    pub file_system: String,
    /// Longest component in bytes on the medium.
    pub max_component: u32,
    /// Can hold holes.
    pub sparse: bool,
    /// Extended attributes can be stored.
    pub xattrs: bool,
    /// Names that differ in case only can be stored, and characters that Windows
    /// reserves: what POSIX clients rely on.
    pub posix_names: bool,
    /// Named streams can be stored.
    pub streams: bool,
    /// Mounted read-only.
    pub read_only: bool,
    /// Files can share extents: [`Node::share_extents`] works.
    pub shares_extents: bool,
    /// Files can be kept compressed: [`Node::set_compressed`] works.
    pub compresses: bool,
    /// Bytes of a cluster, to which the ranges of [`Node::share_extents`] are
    /// aligned.
    pub cluster: u32,
    /// Security descriptors can be stored.
    pub descriptors: bool,
    /// Files have short names beside their own: [`crate::short_name`].
    pub short_names: bool,
}

impl Volume {
    /// The facts of a store that has names and data and nothing else. `serial` is a number
    /// that clients know the volume by; `file_system` is the name of its kind.
    pub fn plain(serial: u32, file_system: &str) -> Self {
        Self {
            serial,
            created: FileTime::ZERO,
            file_system: String::from(file_system),
            max_component: 255,
            sparse: false,
            xattrs: false,
            posix_names: false,
            streams: false,
            read_only: false,
            shares_extents: false,
            compresses: false,
            cluster: 4_096,
            descriptors: false,
            short_names: false,
        }
    }
}

/// What a file system does about the quotas of users.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaState {
    /// Who has used up his quota gets no more space; else it is counted only.
    pub is_enforced: bool,
}

/// The quota of a user of the host, MS-FSCC 2.4.41.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserQuota {
    /// Whose it is.
    pub uid: u32,
    /// Bytes that his files take.
    pub used: u64,
    /// Bytes from which on he is warned: the soft limit.
    pub threshold: Option<u64>,
    /// Bytes that his files may take: the hard limit.
    pub limit: Option<u64>,
}

/// How much the files of a user may take.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// As [`UserQuota::threshold`].
    pub threshold: Option<u64>,
    /// As [`UserQuota::limit`].
    pub limit: Option<u64>,
}
