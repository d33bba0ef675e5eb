//! Limits of messages, filters and answers.

/// Bytes of one message of a directory, its header included.
pub const MESSAGE_BYTES: usize = 1 << 20;
/// Entries of one answer to a search.
pub const ENTRIES: usize = 20_000;
/// Bytes of all entries of one answer to a search.
pub const ANSWER_BYTES: usize = 16 << 20;
/// Attributes of an entry.
pub const ATTRIBUTES: usize = 256;
/// Values of an attribute.
pub const VALUES: usize = 4_096;
/// References to other servers of one answer; none is followed.
pub const REFERENCES: usize = 64;
/// Bytes of the text of a filter.
pub const FILTER_BYTES: usize = 4_096;
/// Levels of a filter.
pub const FILTER_DEPTH: usize = 16;
/// Bytes of an account's name.
pub const NAME_BYTES: usize = 256;
/// Bytes of the name of an entry.
pub const DN_BYTES: usize = 4_096;
/// Bytes of a text of the directory that is told to a person.
pub const TOLD_BYTES: usize = 200;
/// Groups of an account.
pub const GROUPS: usize = 1_024;
/// Entries of one page of a listing.
pub const PAGE: u32 = 500;
