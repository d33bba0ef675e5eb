//! Limits of the index, and of what a query may be.

/// Files and folders that an index has, if its owner sets no other limit.
pub const ENTRIES: usize = 2_000_000;

/// Bytes that an index takes, if its owner sets no other limit.
pub const BYTES: usize = 384 << 20;

/// Bytes of a name that is kept; names of SMB have at most 255 characters, and 765 bytes.
pub const NAME_BYTES: usize = 4_096;

/// Entries of the index that are kept, changed and passed over together.
pub const CHUNK: usize = 512;

/// Conditions that are within each other in a query.
pub const QUERY_DEPTH: usize = 32;

/// Conditions of a query.
pub const QUERY_CONDITIONS: usize = 256;

/// Bytes of a text that is looked for.
pub const TEXT_BYTES: usize = 1_024;

/// Folders above an entry. Deeper ones are not told.
pub const DEPTH: usize = 512;
