//! The settings of a mount.

use std::time::Duration;

use crate::limits;

/// How a share is mounted: options, owners, caching.
#[derive(Debug, Clone)]
pub struct Settings {
    /// True for a read-only mount.
    pub read_only: bool,
    /// True if no program on the mount may be executed.
    pub no_exec: bool,
    /// The owner of all files, where the server does not report owners.
    pub uid: u32,
    /// The group of all files, where the server does not report groups.
    pub gid: u32,
    /// Permission bits of files, where the server does not report modes.
    pub file_mode: u16,
    /// Permission bits of directories, where the server does not report modes.
    pub dir_mode: u16,
    /// True to use the server's POSIX extensions if it has them: modes and owners are then those of
    /// the server.
    pub posix: bool,
    /// True to cache data and names under leases.
    pub cache: bool,
    /// Most bytes of cached file data.
    pub cache_bytes: usize,
    /// True if local users other than the one who mounts may use the mount.
    pub allow_other: bool,
    /// How long names and attributes without a lease stay valid in the cache.
    pub attr_timeout: Duration,
}

impl Settings {
    /// Returns the defaults for a user and a group.
    pub const fn of(uid: u32, gid: u32) -> Self {
        Self {
            read_only: false,
            no_exec: false,
            uid,
            gid,
            file_mode: 0o755,
            dir_mode: 0o755,
            posix: true,
            cache: true,
            cache_bytes: limits::CACHE_BYTES,
            allow_other: false,
            attr_timeout: limits::ATTR_TIMEOUT,
        }
    }
}
