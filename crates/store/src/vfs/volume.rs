//! Facts about a volume and the quotas of its users: MS-FSA 2.1.1.1.

use alloc::string::String;

use frevo_wire::dtyp::FileTime;

#[cfg(doc)]
use super::Node;

/// Space of the file system, MS-FSA 2.1.1.1 Volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Bytes in one allocation unit.
    pub unit: u32,
    /// Number of units in all.
    pub total: u64,
    /// Free units that this user may take.
    pub available: u64,
    /// Number of free units.
    pub free: u64,
    /// Number of files that the volume can hold; 0 without such a limit.
    pub files: u64,
    /// Number of files that can still be created.
    pub free_files: u64,
}

/// The space of a volume below the root's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct VolumeSpace {
    /// The space of all users.
    pub space: Space,
    /// The quota of the user that was asked for; None if none is enforced.
    pub quota: Option<UserQuota>,
}

impl Space {
    /// A volume without free space, of unknown size.
    pub const FULL: Self =
        Self { unit: 4_096, total: 0, available: 0, free: 0, files: 0, free_files: 0 };
}

/// The identity of a file system, equal on each machine that mounts it and after each restart.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct VolumeIdentity(pub [u8; 16]);

impl VolumeIdentity {
    /// The file system has no identity of its own, or does not tell it.
    pub const UNKNOWN: Self = Self([0; 16]);
}

/// Facts about the file system that do not change while it is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Serial number, equal after each restart.
    pub serial: u32,
    /// The identity of the file system, by which another machine knows it.
    pub identity: VolumeIdentity,
    /// Creation time if known, else the birth time of the share's root.
    pub created: FileTime,
    /// Name of the file system for clients ("NTFS" unless configured).
    pub file_system: String,
    /// Longest component in bytes on the medium.
    pub max_component: u32,
    /// Files can have holes.
    pub sparse: bool,
    /// Files can have several names: [`Vfs::link`](super::Vfs::link) works.
    pub hard_links: bool,
    /// Files can have extended attributes.
    pub xattrs: bool,
    /// Names may differ in case only, and may contain characters that Windows reserves. POSIX
    /// clients need both.
    pub posix_names: bool,
    /// Files can have named streams.
    pub streams: bool,
    /// The volume is mounted read-only.
    pub read_only: bool,
    /// Files can share extents: [`Node::share_extents`] works.
    pub shares_extents: bool,
    /// Files can be compressed: [`Node::set_compressed`] works.
    pub compresses: bool,
    /// Bytes of a cluster. Ranges of [`Node::share_extents`] are aligned to it.
    pub cluster: u32,
    /// Bytes that the device below writes together (MS-FSA 2.1.1.1 PhysicalBytesPerSector): a power
    /// of two from 512 to 4096, and 512 if nobody knows.
    pub physical_sector: u32,
    /// Files can have security descriptors.
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
            identity: VolumeIdentity::UNKNOWN,
            created: FileTime::ZERO,
            file_system: String::from(file_system),
            max_component: 255,
            sparse: false,
            hard_links: false,
            xattrs: false,
            posix_names: false,
            streams: false,
            read_only: false,
            shares_extents: false,
            compresses: false,
            cluster: 4_096,
            physical_sector: 512,
            descriptors: false,
            short_names: false,
        }
    }
}

/// The state of quotas on a file system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuotaState {
    /// True if users over quota get no more space; false if use is only counted.
    pub is_enforced: bool,
}

/// The quota of a user of the host, MS-FSCC 2.4.41.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserQuota {
    /// The user's number on the host.
    pub uid: u32,
    /// Bytes that the user's files take.
    pub used: u64,
    /// Soft limit in bytes, beyond which the user is warned.
    pub threshold: Option<u64>,
    /// Hard limit in bytes.
    pub limit: Option<u64>,
}

/// The limits for the files of a user.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Soft limit in bytes; see [`UserQuota::threshold`].
    pub threshold: Option<u64>,
    /// Hard limit in bytes; see [`UserQuota::limit`].
    pub limit: Option<u64>,
}
