//! Users and groups of the host by name and number.

use std::fmt;

use rustix::io::Errno;

use super::UnixUser;

/// The result of a look-up: somebody, or nobody. An error is neither: the host did not
/// answer.
pub type Said<T> = Result<Option<T>, Errno>;

/// The users and groups of the host. Each call may wait for a directory service, so the
/// server makes them on threads that may wait.
pub trait HostNames: Send + Sync + fmt::Debug {
    /// Returns the user called `name`.
    ///
    /// # Errors
    /// When the host does not answer.
    fn user(&self, name: &str) -> Said<UnixUser>;

    /// Returns the name of the user with the number `uid`.
    ///
    /// # Errors
    /// When the host does not answer.
    fn user_name(&self, uid: u32) -> Said<String>;

    /// Returns the name of the group with the number `gid`.
    ///
    /// # Errors
    /// When the host does not answer.
    fn group_name(&self, gid: u32) -> Said<String>;

    /// Returns the number of the group called `name`.
    ///
    /// # Errors
    /// When the host does not answer.
    fn group_id(&self, name: &str) -> Said<u32>;
}

/// A host without users: all that a simulation and a server without host users know.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoNames;

impl HostNames for NoNames {
    fn user(&self, _name: &str) -> Said<UnixUser> {
        Ok(None)
    }

    fn user_name(&self, _uid: u32) -> Said<String> {
        Ok(None)
    }

    fn group_name(&self, _gid: u32) -> Said<String> {
        Ok(None)
    }

    fn group_id(&self, _name: &str) -> Said<u32> {
        Ok(None)
    }
}
