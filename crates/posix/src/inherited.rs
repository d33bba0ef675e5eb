//! Descriptors that the program which started this process left open.

use std::ffi::c_int;
use std::ops::Range;

/// The first descriptor behind standard input, output and error.
const FIRST: c_int = 3;

/// Descriptors of whoever started this process, which nothing here owns.
#[derive(Debug, Default)]
pub struct Inherited(Vec<c_int>);

impl Inherited {
    /// Notes the descriptors that are open, and keeps them from programs that this process runs.
    /// `passed` are those that were passed on purpose, such as sockets from systemd.
    ///
    /// Must be called before this process has opened anything: all other descriptors that are open
    /// now will be closed by [`Self::close`].
    pub fn note(passed: Range<c_int>) -> Self {
        let Ok(entries) = std::fs::read_dir("/proc/self/fd") else { return Self::default() };
        let numbers =
            entries.flatten().filter_map(|entry| entry.file_name().to_str()?.parse().ok());
        let open: Vec<c_int> =
            numbers.filter(|number| *number >= FIRST && !passed.contains(number)).collect();
        // The listing of /proc/self/fd had a descriptor of its own, which is closed by now and must
        // be left out.
        let is_open = |number: &c_int| {
            // SAFETY: fcntl changes one flag of a descriptor and touches no memory.
            unsafe { libc::fcntl(*number, libc::F_SETFD, libc::FD_CLOEXEC) == 0 }
        };
        Self(open.into_iter().filter(is_open).collect())
    }

    /// Closes them.
    pub fn close(self) {
        for number in self.0 {
            // SAFETY: the descriptor was open before this process opened any, so no code here owns
            // it. It has stayed open since then, so its number was not given to another file.
            unsafe { libc::close(number) };
        }
    }
}

/// Closes all descriptors but standard input, output and error, for a process that was started with
/// those alone.
///
/// Must be called before this process has opened anything.
pub fn close_all() {
    Inherited::note(0..0).close();
}

#[cfg(test)]
mod tests {
    use std::os::fd::{AsRawFd as _, IntoRawFd as _};

    use super::*;

    #[test]
    fn inherited_descriptors_are_closed_and_passed_ones_stay_open() {
        // Other tests open files at the same time, so only the two descriptors of this test are
        // checked.
        let [one, two] = [0; 2].map(|_| std::fs::File::open("/").unwrap().into_raw_fd());
        let flags = |number: c_int| std::fs::read_to_string(format!("/proc/self/fdinfo/{number}"));
        let Inherited(mut noted) = Inherited::note(two..two + 1);
        assert!(noted.contains(&one) && !noted.contains(&two));
        noted.retain(|number| *number == one);
        Inherited(noted).close();
        assert!(flags(one).is_err() && flags(two).is_ok());
        // The number is free again, so a new file may get it and must not be closed.
        let file = std::fs::File::open("/").unwrap();
        assert!(flags(file.as_raw_fd()).is_ok());
        // SAFETY: the descriptor was opened above, and no Rust value owns it.
        unsafe { libc::close(two) };
    }
}
