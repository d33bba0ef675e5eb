//! Direct calls of the C library.

use std::ffi::{CStr, CString, c_char};
use std::mem::MaybeUninit;

use rustix::io::Errno;

use super::user::{Said, UnixUser};
use crate::limits::{GROUPS_PER_USER, PASSWD_BYTES};

/// Returns the user called `name`.
pub(crate) fn user(name: &str) -> Said<UnixUser> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    let found = look_up(
        // SAFETY: the name is NUL-terminated; `look_up` passes the other arguments as required.
        |entry, buffer, len, found| unsafe {
            libc::getpwnam_r(name.as_ptr(), entry, buffer, len, found)
        },
        |entry: &libc::passwd| Some((entry.pw_uid, entry.pw_gid)),
    )?;
    let Some((uid, gid)) = found else { return Ok(None) };
    Ok(Some(UnixUser { uid, gid, groups: groups_of(&name, gid)? }))
}

fn groups_of(name: &CStr, gid: u32) -> Result<Vec<u32>, Errno> {
    let mut groups = vec![0 as libc::gid_t; GROUPS_PER_USER];
    let mut count = libc::c_int::try_from(groups.len()).unwrap_or(libc::c_int::MAX);
    // SAFETY: the name is NUL-terminated and `groups` has room for `count` ids.
    let filled =
        unsafe { libc::getgrouplist(name.as_ptr(), gid, groups.as_mut_ptr(), &raw mut count) };
    if filled < 0 {
        // The user has more groups than the kernel takes. A part of the list must not be used,
        // because a share can deny access by group.
        return Err(Errno::TOOBIG);
    }
    groups.truncate(usize::try_from(count).unwrap_or(0));
    Ok(groups)
}

/// Returns the name of a user id.
pub(crate) fn user_name(uid: u32) -> Said<String> {
    look_up(
        // SAFETY: `look_up` passes all arguments as required.
        |entry, buffer, len, found| unsafe { libc::getpwuid_r(uid, entry, buffer, len, found) },
        // SAFETY: the name of an entry that was found is NUL-terminated.
        |entry: &libc::passwd| unsafe { text(entry.pw_name) },
    )
}

/// Returns the name of a group id.
pub(crate) fn group_name(gid: u32) -> Said<String> {
    look_up(
        // SAFETY: `look_up` passes all arguments as required.
        |entry, buffer, len, found| unsafe { libc::getgrgid_r(gid, entry, buffer, len, found) },
        // SAFETY: the name of an entry that was found is NUL-terminated.
        |entry: &libc::group| unsafe { text(entry.gr_name) },
    )
}

/// Returns the id of the group called `name`.
pub(crate) fn group_id(name: &str) -> Said<u32> {
    let Ok(name) = CString::new(name) else { return Ok(None) };
    look_up(
        // SAFETY: the name is NUL-terminated; `look_up` passes the other arguments as required.
        |entry, buffer, len, found| unsafe {
            libc::getgrnam_r(name.as_ptr(), entry, buffer, len, found)
        },
        |entry: &libc::group| Some(entry.gr_gid),
    )
}

/// Returns a name in an entry's buffer, if it is UTF-8.
///
/// # Safety
/// It must be NUL-terminated.
unsafe fn text(name: *const c_char) -> Option<String> {
    // SAFETY: the caller guarantees a NUL-terminated string.
    unsafe { CStr::from_ptr(name) }.to_str().ok().map(str::to_owned)
}

/// Looks an entry up: `call` gets room for an entry, a buffer with its length, and a pointer that
/// tells whether an entry was found; `read` reads the entry while the buffer exists. The buffer
/// grows while the library finds it too small.
fn look_up<E, T>(
    call: impl Fn(*mut E, *mut c_char, usize, *mut *mut E) -> libc::c_int,
    read: impl Fn(&E) -> Option<T>,
) -> Said<T> {
    let mut len = 1_024;
    while len <= PASSWD_BYTES {
        let mut buffer = vec![0_u8; len];
        let mut entry = MaybeUninit::<E>::uninit();
        let mut found = std::ptr::null_mut();
        let place = buffer.as_mut_ptr().cast::<c_char>();
        match call(entry.as_mut_ptr(), place, buffer.len(), &raw mut found) {
            libc::ERANGE => len *= 4,
            0 if !found.is_null() => {
                // SAFETY: the call succeeded and found an entry, so `entry` is filled, and the
                // buffer that it points into still exists.
                return Ok(read(unsafe { entry.assume_init_ref() }));
            }
            said => return nobody(said),
        }
    }
    Err(Errno::TOOBIG)
}

/// Returns the result of a call that found no entry: getpwnam(3) lists the errors that mean "no
/// such entry". Any other one means a failing service, or a lack of memory or descriptors.
fn nobody<T>(said: libc::c_int) -> Said<T> {
    match said {
        0 | libc::ENOENT | libc::ESRCH | libc::EBADF | libc::EPERM => Ok(None),
        failed => Err(Errno::from_raw_os_error(failed)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that a failing service is an error and not "no such user", which would let refused
    /// users in.
    #[test]
    fn a_service_that_fails_says_nothing() {
        assert_eq!(nobody::<()>(0), Ok(None));
        assert_eq!(nobody::<()>(libc::ENOENT), Ok(None));
        for failed in [libc::EMFILE, libc::ENOMEM, libc::EIO, libc::EAGAIN, libc::ECONNREFUSED] {
            assert_eq!(nobody::<()>(failed), Err(Errno::from_raw_os_error(failed)));
        }
    }
}
