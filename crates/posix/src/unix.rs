//! Users and groups of the host, by way of its C library, so that whatever
//! `/etc/nsswitch.conf` names is asked: here, or by the process of
//! [`crate::name_service`] once that runs.

pub(crate) mod direct;

use rustix::io::Errno;

use crate::name_service;

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

/// The result of a look-up: somebody, or nobody. An error is neither: nobody could
/// be asked.
pub type Said<T> = Result<Option<T>, Errno>;

/// The user called `name`, if there is one.
///
/// # Errors
/// When the host cannot say.
pub fn user(name: &str) -> Said<UnixUser> {
    if name_service::is_running() { name_service::user(name) } else { direct::user(name) }
}

/// The name of a user id.
///
/// # Errors
/// When the host cannot say.
pub fn user_name(uid: u32) -> Said<String> {
    if name_service::is_running() { name_service::user_name(uid) } else { direct::user_name(uid) }
}

/// The name of a group id.
///
/// # Errors
/// When the host cannot say.
pub fn group_name(gid: u32) -> Said<String> {
    if name_service::is_running() { name_service::group_name(gid) } else { direct::group_name(gid) }
}

/// The id of the group called `name`.
///
/// # Errors
/// When the host cannot say.
pub fn group_id(name: &str) -> Said<u32> {
    if name_service::is_running() { name_service::group_id(name) } else { direct::group_id(name) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_on_every_host() {
        let root = user("root").unwrap().unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(user_name(0), Ok(Some(String::from("root"))));
        assert_eq!(group_name(0), Ok(Some(String::from("root"))));
        assert_eq!(group_id("root"), Ok(Some(0)));
        assert_eq!(user("no such user here"), Ok(None));
        assert_eq!(user("a\0b"), Ok(None));
    }
}
