//! The result types of lookups.

use rustix::io::Errno;

/// A user of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixUser {
    /// The user's number on the host.
    pub uid: u32,
    /// The primary group's number.
    pub gid: u32,
    /// The numbers of all groups, the primary one included.
    pub groups: Vec<u32>,
}

/// The result of a lookup: Some or None. An error means that the host could not tell.
pub type Said<T> = Result<Option<T>, Errno>;
