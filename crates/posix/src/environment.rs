//! Secrets in the environment: taken out of it at the start of a process.

use std::ffi::{CStr, OsString};
use std::os::unix::ffi::OsStringExt as _;

/// Takes a variable out of the environment, and clears its value in the memory that the process was
/// started with, which `/proc/PID/environ` shows. None if it is not set.
///
/// Must be called before this process has other threads. Where it has some, the variable is returned
/// and stays as it is: they may be reading the environment.
pub fn take_variable(name: &CStr) -> Option<OsString> {
    if !has_one_thread() {
        return std::env::var_os(OsString::from_vec(name.to_bytes().to_vec()));
    }
    let mut found = None;
    // The variable may occur twice. The loop erases all of its values and keeps the first one.
    loop {
        // SAFETY: the name is a C string, and no other thread changes the environment.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        if value.is_null() {
            return found;
        }
        // SAFETY: getenv returned a C string of the environment, which stays at its place and which
        // only this thread uses now. Its memory may be written.
        let bytes = unsafe {
            std::slice::from_raw_parts_mut(value.cast::<u8>(), CStr::from_ptr(value).count_bytes())
        };
        found.get_or_insert_with(|| OsString::from_vec(bytes.to_vec()));
        bytes.fill(0);
        // SAFETY: the name is a C string, and no other thread changes the environment.
        if unsafe { libc::unsetenv(name.as_ptr()) } != 0 {
            return found;
        }
    }
}

/// True if the calling thread is the only one. False where the kernel does not tell.
fn has_one_thread() -> bool {
    std::fs::read_dir("/proc/self/task").is_ok_and(|threads| threads.count() == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The harness has several threads, so the variable stays.
    #[test]
    fn a_process_with_threads_keeps_its_environment() {
        let other = std::thread::spawn(std::thread::park);
        assert_eq!(take_variable(c"PATH"), std::env::var_os("PATH"));
        assert!(std::env::var_os("PATH").is_some());
        assert_eq!(take_variable(c"no such variable"), None);
        other.thread().unpark();
        other.join().unwrap();
    }
}
