//! Named limits of this crate.

/// UTF-16 units in one component of a name, MS-FSCC 2.1.5.
pub const COMPONENT_UNITS: usize = 255;

/// UTF-16 units in a whole name from a client. MS-SMB2 2.2.13 carries up to 64 KiB; NTFS and
/// Windows stop at 32,767 units.
pub const NAME_UNITS: usize = 32_767;

/// Components in a name: more cannot be walked in one request's step budget.
pub const NAME_COMPONENTS: usize = 1_024;

/// Byte ranges that one Open may hold locked.
pub const LOCKS_PER_OPEN: usize = 65_536;

/// Byte ranges locked in one file by all of its Opens.
pub const LOCKS_PER_FILE: usize = 131_072;

/// Lock requests that wait for ranges of one file.
pub const LOCK_WAITS_PER_FILE: usize = 16_384;

/// Opens of one file at a time.
pub const OPENS_PER_FILE: usize = if cfg!(test) { 64 } else { 65_536 };

/// Opens, or oplocks and leases, of one file from which an index finds each of them: searching fewer
/// takes less than a microsecond.
pub const INDEXED_FROM: usize = if cfg!(test) { 8 } else { 64 };

/// Bytes of one text (usually a name) in the record of a persistent Open: the largest UTF-8 form of
/// a name of [`NAME_UNITS`].
pub const RECORD_TEXT_BYTES: usize = 3 * NAME_UNITS;

/// Groups of a user of the host in the record of a persistent Open: one for each group of a token of
/// Windows, and the primary group.
pub const RECORD_GROUPS: usize = 1_025;

/// Leases of all clients together. Each lease is held by an Open and is small beside it.
pub const LEASES: usize = if cfg!(test) { 4 << 10 } else { 4 << 20 };

/// Changes that are kept for one watch until they are fetched.
pub const CHANGES_PER_WATCH: usize = 512;

/// Bytes of the names of the changes that are kept for one watch.
pub const CHANGE_BYTES_PER_WATCH: usize = 64 * 1024;

/// Reports in the log of one watched directory; the oldest goes first. All watches of the directory
/// read this log, whatever their filters.
pub const REPORTS_PER_DIRECTORY: usize = 2 * CHANGES_PER_WATCH;

/// Bytes in the log of one watched directory.
pub const REPORT_BYTES_PER_DIRECTORY: usize = 4 * CHANGE_BYTES_PER_WATCH;

/// Bytes of all logs of watched directories, unless set otherwise. When they are full, a log keeps
/// only its newest report, and clients that did not fetch the others list the directory again.
pub const REPORT_BYTES: usize = 16 << 20;

/// Requests that one thread wakes in a row. Each of them wakes further ones, so that a change that
/// thousands wait for does not delay the request that made it.
pub const WAKES_AT_ONCE: usize = 16;

/// Bytes in one allocation unit of the file system in memory.
pub const MEMORY_PAGE_BYTES: usize = 4_096;

/// Bytes in one component of a name in memory, as in most file systems of Linux.
pub const MEMORY_COMPONENT_BYTES: usize = 255;

/// Named streams of one file in memory.
pub const MEMORY_STREAMS: usize = 1_024;

/// Largest end of a file in memory: as on ext4 with pages of 4 KiB.
pub const MEMORY_FILE_BYTES: u64 = 1 << 44;

/// Bytes of the name of an extended attribute in memory.
pub const MEMORY_EA_NAME_BYTES: usize = 250;

/// Bytes of the value of an extended attribute in memory.
pub const MEMORY_EA_VALUE_BYTES: usize = 65_536;

/// Changes of directories that the file system in memory keeps for a crash to
/// lose; the older half becomes stable when there would be more.
pub const MEMORY_JOURNAL_CHANGES: usize = 65_536;

#[cfg(test)]
mod tests;
