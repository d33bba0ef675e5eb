//! Named limits of this crate.

/// UTF-16 units in one component of a name, MS-FSCC 2.1.5.
pub const COMPONENT_UNITS: usize = 255;

/// UTF-16 units in a whole name that a client sends, MS-SMB2 2.2.13 carries
/// up to 64 KiB; NTFS and Windows stop at 32,767 units.
pub const NAME_UNITS: usize = 32_767;

/// Components in a name: more cannot be walked in one request's step budget.
pub const NAME_COMPONENTS: usize = 1_024;

/// Byte ranges that one Open may hold locked.
pub const LOCKS_PER_OPEN: usize = 4_096;

/// Byte ranges locked in one file by all of its Opens.
pub const LOCKS_PER_FILE: usize = 65_536;

/// Opens of one file at a time.
pub const OPENS_PER_FILE: usize = 65_536;

/// Changes that are kept for one watch until they are fetched.
pub const CHANGES_PER_WATCH: usize = 512;

/// Bytes of the names of those changes.
pub const CHANGE_BYTES_PER_WATCH: usize = 64 * 1024;
