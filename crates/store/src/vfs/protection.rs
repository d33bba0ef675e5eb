//! The protection of an object, as a file system stores it.

use alloc::vec::Vec;

use crate::security::HostAcl;

/// The protection of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Security {
    /// A self-relative security descriptor, as it was stored.
    Stored(Vec<u8>),
    /// The host's permissions: no descriptor is stored, or the host's permissions changed since it
    /// was.
    Host(HostAcl),
}

/// A new protection of an object.
#[derive(Debug, Clone, Copy, Default)]
pub struct SecurityChange<'a> {
    /// The self-relative descriptor to store; None if the host's permissions alone express it.
    pub descriptor: Option<&'a [u8]>,
    /// The user id of the owner of a new object.
    pub uid: Option<u32>,
    /// The group id of a new object.
    pub gid: Option<u32>,
    /// New permission bits, of which the lowest nine count. The sticky bit and set-group-ID of a
    /// directory are not changed; set-user-ID and set-group-ID of a file are cleared.
    pub mode: Option<u32>,
    /// The host's POSIX lists, which take the place of the present ones and of `mode` where they have
    /// entries; None leaves the present ones. A file system without such lists takes lists without
    /// named users and groups, and refuses others: [`Fault::NotSupported`](crate::Fault::NotSupported).
    pub lists: Option<&'a HostAcl>,
}

/// The access of this process to one object under the host's permissions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostAccess {
    /// May read or list.
    pub read: bool,
    /// May write, or add and remove entries.
    pub write: bool,
    /// May execute or traverse.
    pub execute: bool,
    /// Is owner (or privileged), or may do as the owner by an option of the share: may change mode, times
    /// and attributes.
    pub owner: bool,
}
