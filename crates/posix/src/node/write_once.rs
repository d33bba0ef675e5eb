//! The commitment of a file that is written once, in an extended attribute, and in the immutable flag where
//! the process has CAP_LINUX_IMMUTABLE and the file system has the flag: then no program of the host
//! changes the file either.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd};

use frevo_store::vfs::{Commitment, VfsResult};
use frevo_wire::dtyp::FileTime;
use rustix::fs::{IFlags, OFlags};
use rustix::io::Errno;

use crate::errno::fault_of;
use crate::node::PosixNode;
use crate::{stat, sys};

/// The attribute that holds the time of the commitment, FILETIME ticks in decimal digits.
const ATTRIBUTE: &CStr = c"user.frevo.committed";

/// Bytes of the attribute: digits of the largest number.
const ATTRIBUTE_BYTES: usize = 20;

/// The time that a value says. One that says none was not written by this program, and never ends.
fn time_of(value: &[u8]) -> FileTime {
    let ticks = str::from_utf8(value).ok().and_then(|digits| digits.parse().ok());
    FileTime(ticks.unwrap_or(u64::MAX))
}

fn set_immutable(fd: BorrowedFd<'_>, is_immutable: bool) -> Result<(), Errno> {
    // The flags of a file cannot be changed through an O_PATH descriptor, so the file is opened again.
    let file = sys::reopen(fd, OFlags::RDONLY)?;
    let mut flags = rustix::fs::ioctl_getflags(file.as_fd())?;
    if flags.contains(IFlags::IMMUTABLE) == is_immutable {
        return Ok(());
    }
    flags.set(IFlags::IMMUTABLE, is_immutable);
    rustix::fs::ioctl_setflags(file.as_fd(), flags)
}

impl PosixNode {
    pub(crate) fn kept_commitment(&self) -> VfsResult<Commitment> {
        // The host's own time of the last change counts, which no client sets.
        let stx = sys::stat_fd(self.handle().fd()).map_err(fault_of)?;
        let unchanged_since = stat::host_change(&stx);
        let mut value = [0; ATTRIBUTE_BYTES];
        let committed = match self.handle().value(ATTRIBUTE, &mut value) {
            Ok(len) => Some(time_of(value.get(..len).unwrap_or_default())),
            Err(Errno::NODATA | Errno::OPNOTSUPP) => None,
            Err(Errno::RANGE) => Some(FileTime(u64::MAX)),
            Err(errno) => return Err(fault_of(errno)),
        };
        Ok(Commitment { unchanged_since, committed })
    }

    pub(crate) fn keep_commitment(&self, at: FileTime) -> VfsResult<()> {
        let value = at.0.to_string();
        self.handle().set(ATTRIBUTE, value.as_bytes()).map_err(fault_of)?;
        match set_immutable(self.handle().fd(), true) {
            Ok(()) | Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => Ok(()),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    pub(crate) fn release_commitment(&self) -> VfsResult<()> {
        match set_immutable(self.handle().fd(), false) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOTTY | Errno::INVAL) => Ok(()),
            Err(errno) => Err(fault_of(errno)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_that_says_no_time_never_ends() {
        assert_eq!(time_of(b"133000000000000000"), FileTime(133_000_000_000_000_000));
        for value in [&b""[..], b"soon", b"-1", b"99999999999999999999", b"\xff"] {
            assert_eq!(time_of(value), FileTime(u64::MAX), "{value:?}");
        }
    }
}
