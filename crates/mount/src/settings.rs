//! How a share is mounted.

use std::time::Duration;

use crate::limits;

/// Settings of a mount.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Nothing can be changed through it.
    pub read_only: bool,
    /// No program in it can be executed.
    pub no_exec: bool,
    /// Whose files they seem to be.
    pub uid: u32,
    /// Whose group's.
    pub gid: u32,
    /// Permission bits of files, where the server does not tell them.
    pub file_mode: u16,
    /// Those of directories.
    pub dir_mode: u16,
    /// Whether the server's POSIX extensions are made use of, if it has them: then modes
    /// and owners are its own.
    pub posix: bool,
    /// Whether anything is kept under leases.
    pub cache: bool,
    /// Most bytes kept of what was read.
    pub cache_bytes: usize,
    /// Whether other local users than the one who mounts may go in.
    pub allow_other: bool,
    /// How long names and attributes that no lease protects are believed.
    pub believed_for: Duration,
}

impl Settings {
    /// For a user, with all else at its default.
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
            believed_for: limits::BELIEVED_FOR,
        }
    }
}
