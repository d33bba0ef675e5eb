//! Users and groups of the host, from its C library and so from all sources of
//! `/etc/nsswitch.conf`. The calls run here, or in the process of [`crate::name_service`] once that
//! runs.

pub(crate) mod direct;
pub(crate) mod user;

use crate::name_service;
pub use user::{Said, UnixUser};

/// Returns the user called `name`.
///
/// # Errors
/// If the host cannot tell.
pub fn user(name: &str) -> Said<UnixUser> {
    if name_service::is_running() { name_service::user(name) } else { direct::user(name) }
}

/// Returns the name of a user id.
///
/// # Errors
/// If the host cannot tell.
pub fn user_name(uid: u32) -> Said<String> {
    if name_service::is_running() { name_service::user_name(uid) } else { direct::user_name(uid) }
}

/// Returns the name of a group id.
///
/// # Errors
/// If the host cannot tell.
pub fn group_name(gid: u32) -> Said<String> {
    if name_service::is_running() { name_service::group_name(gid) } else { direct::group_name(gid) }
}

/// Returns the id of the group called `name`.
///
/// # Errors
/// If the host cannot tell.
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
