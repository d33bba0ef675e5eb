//! No host: file systems are the program's own, and are used as the program.

use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::sync::Arc;

use frevo_store::Fault;
use rustix::io::Errno;

use super::names::{HostNames, NoNames};

/// Returns a socket that is connected to the daemon of the log at `path`.
///
/// # Errors
/// The error of the connection.
pub(crate) fn log_socket(path: &Path) -> io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.connect(path)?;
    Ok(socket)
}

/// A user of the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnixUser {
    /// User id.
    pub uid: u32,
    /// Primary group.
    pub gid: u32,
    /// All groups, the primary one among them.
    pub groups: Vec<u32>,
}

/// The rights of a user of the host. There are none: [`Self::new`] makes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Credentials {}

impl Credentials {
    /// Returns nothing: files are used as the program.
    pub const fn new(_uid: u32, _gid: u32, _groups: &[u32]) -> Option<Self> {
        None
    }

    /// The user id.
    pub const fn uid(&self) -> u32 {
        match *self {}
    }

    /// The group id.
    pub const fn gid(&self) -> u32 {
        match *self {}
    }

    /// Acts as the user.
    ///
    /// # Errors
    /// When the kernel refuses.
    pub fn assume(self: &Arc<Self>) -> Result<Assumed, Errno> {
        match **self {}
    }
}

/// The time in which a thread acts as somebody.
#[derive(Debug)]
pub struct Assumed;

/// The time in which a thread may go on as the user that it acted as last.
#[derive(Debug)]
pub(crate) struct Scope;

impl Scope {
    /// Opens one.
    pub(crate) const fn open() -> Self {
        Self
    }
}

/// Acts as the program, as every thread does.
pub(crate) const fn as_server() -> Assumed {
    Assumed
}

/// Prepares a thread for acting as users: nothing to do.
pub const fn begin_thread() {}

/// The user and the group of the program.
pub(crate) fn server_ids() -> (u32, u32) {
    (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw())
}

/// Makes calls that must not take long; none of them gives up.
pub(crate) fn short_patience<T>(calls: impl FnOnce() -> T) -> (T, bool) {
    (calls(), false)
}

/// Makes calls that take as long as they need.
pub(crate) fn long_patience<T>(calls: impl FnOnce() -> T) -> T {
    calls()
}

/// Returns false: without a POSIX host no call gives up.
pub(crate) const fn remembers_names() -> bool {
    false
}

pub(crate) const fn forget_unused_names() {}

pub(crate) const fn gives_up(_steps: usize) -> bool {
    false
}

/// Returns false: without a POSIX host nothing is known of the time that freeing bytes takes.
pub(crate) const fn is_long_to_free(_bytes: u64) -> bool {
    false
}

/// Returns false: without a POSIX host no call gives up.
pub(crate) const fn gives_up_freeing(_bytes: u64) -> bool {
    false
}

/// Returns false: without a POSIX host no call gives up.
pub(crate) const fn gives_up_reserving(_bytes: u64) -> bool {
    false
}

/// Runs calls, and returns 0: nothing is known of the bytes that they free.
pub(crate) fn freeing<T>(calls: impl FnOnce() -> T) -> (T, u64) {
    (calls(), 0)
}

/// Returns false: without a POSIX host no call gives up.
pub(crate) const fn has_given_up() -> bool {
    false
}

/// Refusals of the kernel: there are none that count.
pub(crate) mod denials {
    /// Does nothing.
    pub(crate) const fn note() {}

    /// Does nothing.
    pub(crate) const fn forget() {}

    /// Returns false.
    pub(crate) const fn is_noted() -> bool {
        false
    }
}

/// The fault that an error of the kernel is, of those that moving data meets.
pub(crate) const fn fault_of(errno: Errno) -> Fault {
    match errno {
        Errno::ACCESS | Errno::PERM => Fault::AccessDenied,
        Errno::ROFS => Fault::ReadOnly,
        Errno::NOSPC => Fault::DiskFull,
        Errno::DQUOT => Fault::QuotaExceeded,
        Errno::FBIG => Fault::FileTooLarge,
        Errno::STALE => Fault::Stale,
        Errno::INVAL => Fault::Invalid,
        Errno::NOMEM | Errno::NOBUFS => Fault::NoMemory,
        other => Fault::Io(other.raw_os_error()),
    }
}

/// Returns the users of the host: there are none.
pub(crate) fn names() -> &'static dyn HostNames {
    &NoNames
}
