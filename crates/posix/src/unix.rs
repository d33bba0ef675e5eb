//! Users and groups of the host, by way of its C library, so that whatever
//! `/etc/nsswitch.conf` names is asked.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;

use crate::limits::{GROUPS_PER_USER, PASSWD_BYTES};

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

/// The user called `name`, if there is one.
pub fn user(name: &str) -> Option<UnixUser> {
    let name = CString::new(name).ok()?;
    let (uid, gid) = with_buffer(|buffer| {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: the name is NUL-terminated, `entry` has room for the structure,
        // `buffer` is as long as is said, and `found` takes a pointer.
        let error = unsafe {
            libc::getpwnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer.as_mut_ptr().cast::<c_char>(),
                buffer.len(),
                &raw mut found,
            )
        };
        if error != 0 || found.is_null() {
            return (error, None);
        }
        // SAFETY: the call succeeded and found one: `entry` is filled.
        let entry = unsafe { entry.assume_init_ref() };
        (0, Some((entry.pw_uid, entry.pw_gid)))
    })?;
    Some(UnixUser { uid, gid, groups: groups_of(&name, gid) })
}

fn groups_of(name: &CStr, gid: u32) -> Vec<u32> {
    let mut groups = vec![0 as libc::gid_t; GROUPS_PER_USER];
    let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the name is NUL-terminated and `groups` has room for `count` ids.
    let filled =
        unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    if filled < 0 {
        // More than the kernel would take: the primary group alone is safe.
        return vec![gid];
    }
    groups.truncate(usize::try_from(count).unwrap_or(0));
    groups
}

/// The name of a user id.
pub fn user_name(uid: u32) -> Option<String> {
    with_buffer(|buffer| {
        let mut entry = MaybeUninit::<libc::passwd>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: as in `user`.
        let error = unsafe {
            libc::getpwuid_r(
                uid,
                entry.as_mut_ptr(),
                buffer.as_mut_ptr().cast::<c_char>(),
                buffer.len(),
                &raw mut found,
            )
        };
        if error != 0 || found.is_null() {
            return (error, None);
        }
        // SAFETY: `entry` is filled, and its name is NUL-terminated in `buffer`.
        let name = unsafe { CStr::from_ptr(entry.assume_init_ref().pw_name) };
        (0, name.to_str().ok().map(str::to_owned))
    })
}

/// The name of a group id.
pub fn group_name(gid: u32) -> Option<String> {
    with_buffer(|buffer| {
        let mut entry = MaybeUninit::<libc::group>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: as in `user`, for groups.
        let error = unsafe {
            libc::getgrgid_r(
                gid,
                entry.as_mut_ptr(),
                buffer.as_mut_ptr().cast::<c_char>(),
                buffer.len(),
                &raw mut found,
            )
        };
        if error != 0 || found.is_null() {
            return (error, None);
        }
        // SAFETY: `entry` is filled, and its name is NUL-terminated in `buffer`.
        let name = unsafe { CStr::from_ptr(entry.assume_init_ref().gr_name) };
        (0, name.to_str().ok().map(str::to_owned))
    })
}

/// The id of the group called `name`.
pub fn group_id(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    with_buffer(|buffer| {
        let mut entry = MaybeUninit::<libc::group>::uninit();
        let mut found = std::ptr::null_mut();
        // SAFETY: as in `user`, for groups.
        let error = unsafe {
            libc::getgrnam_r(
                name.as_ptr(),
                entry.as_mut_ptr(),
                buffer.as_mut_ptr().cast::<c_char>(),
                buffer.len(),
                &raw mut found,
            )
        };
        if error != 0 || found.is_null() {
            return (error, None);
        }
        // SAFETY: the call succeeded and found one: `entry` is filled.
        (0, Some(unsafe { entry.assume_init_ref() }.gr_gid))
    })
}

/// Calls with a buffer that grows while the library says that it is too small.
fn with_buffer<T>(mut call: impl FnMut(&mut [u8]) -> (libc::c_int, Option<T>)) -> Option<T> {
    let mut len = 1_024;
    while len <= PASSWD_BYTES {
        match call(&mut vec![0; len]) {
            (libc::ERANGE, _) => len *= 4,
            (_, found) => return found,
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_known_on_every_host() {
        let root = user("root").unwrap();
        assert_eq!((root.uid, root.gid), (0, 0));
        assert!(root.groups.contains(&0));
        assert_eq!(user_name(0).as_deref(), Some("root"));
        assert_eq!(group_name(0).as_deref(), Some("root"));
        assert_eq!(group_id("root"), Some(0));
        assert_eq!(user("no such user here"), None);
        assert_eq!(user("a\0b"), None);
    }
}
