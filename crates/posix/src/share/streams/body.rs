//! The data of an open stream.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use frevo_store::Fault;
use frevo_store::vfs::VfsResult;
use parking_lot::{Mutex, MutexGuard};
use rustix::io::Errno;

use super::layout::attribute;
use crate::errno::fault_of;
use crate::sys;
use crate::xattr::Handle;

/// The storage of a stream's data.
#[derive(Debug)]
pub(crate) enum Where {
    /// An attribute of the file.
    Attribute,
    /// A file in the side folder.
    Side(OwnedFd),
    /// None: the stream was removed.
    Gone,
}

/// The state that all Opens of one stream share.
#[derive(Debug)]
pub(crate) struct Body(Mutex<State>);

#[derive(Debug)]
pub(crate) struct State {
    /// The name as stored.
    pub(crate) name: String,
    pub(crate) at: Where,
}

impl Body {
    pub(crate) const fn new(name: String, at: Where) -> Self {
        Self(Mutex::new(State { name, at }))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock()
    }
}

/// True if an attribute could not be set because it is too large: file systems have several errors
/// for that.
pub(crate) const fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::TOOBIG | Errno::RANGE)
}

impl State {
    /// Reads the data in the attribute, without the NUL behind it.
    pub(crate) fn value(&self, file: &Handle) -> VfsResult<Vec<u8>> {
        let attribute = attribute(&self.name).ok_or(Fault::NameTooLong)?;
        match file.whole_value(&attribute) {
            Ok(mut value) => {
                value.pop();
                Ok(value)
            }
            // Another program has removed the stream's attribute, so the handle of the stream is
            // stale.
            Err(Errno::NODATA) => Err(Fault::Stale),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    pub(crate) fn size(&self, file: &Handle) -> VfsResult<u64> {
        match &self.at {
            Where::Attribute => {
                let attribute = attribute(&self.name).ok_or(Fault::NameTooLong)?;
                match file.value_len(&attribute) {
                    Ok(len) => Ok((len as u64).saturating_sub(1)),
                    Err(Errno::NODATA) => Err(Fault::Stale),
                    Err(errno) => Err(fault_of(errno)),
                }
            }
            Where::Side(fd) => Ok(sys::stat_fd(fd.as_fd()).map_err(fault_of)?.stx_size),
            Where::Gone => Err(Fault::Stale),
        }
    }

    pub(crate) fn read(&self, file: &Handle, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        match &self.at {
            Where::Attribute => {
                let value = self.value(file)?;
                let from = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
                let len = into.len().min(value.len() - from);
                into[..len].copy_from_slice(&value[from..from + len]);
                Ok(len)
            }
            Where::Side(fd) => read_all(fd.as_fd(), offset, into),
            Where::Gone => Err(Fault::Stale),
        }
    }
}

fn read_all(fd: BorrowedFd<'_>, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
    let mut filled = 0;
    while filled < into.len() {
        match rustix::io::pread(fd, &mut into[filled..], offset.saturating_add(filled as u64)) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(fault_of(errno)),
        }
    }
    Ok(filled)
}

pub(crate) fn write_all(fd: BorrowedFd<'_>, offset: u64, data: &[u8]) -> VfsResult<()> {
    let mut done = 0;
    while done < data.len() {
        match rustix::io::pwrite(fd, &data[done..], offset.saturating_add(done as u64)) {
            Ok(0) => return Err(Fault::Io(libc::EIO)),
            Ok(count) => done += count,
            Err(Errno::INTR) => {}
            Err(errno) => return Err(fault_of(errno)),
        }
    }
    Ok(())
}
