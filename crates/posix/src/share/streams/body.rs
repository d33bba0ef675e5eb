//! The data of an open stream.

use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use frevo_store::Fault;
use frevo_store::vfs::VfsResult;
use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
use rustix::io::Errno;

use super::layout::{Extent, attribute, stream_id};
use crate::errno::fault_of;
use crate::limits::CACHE_PATIENCE;
use crate::patience;
use crate::sys;
use crate::xattr::Handle;

/// The storage of a stream's data.
#[derive(Debug)]
pub(crate) enum Where {
    /// An attribute of the file.
    Attribute,
    /// A file in the side folder. Data is moved without the lock of the [`State`], for which cores
    /// wait.
    Side(Arc<OwnedFd>),
    /// None: the stream was removed.
    Gone,
}

/// The state that all Opens of one stream share.
#[derive(Debug)]
pub(crate) struct Body {
    state: Mutex<State>,
    /// The number of the name in the state, which is read without the lock.
    id: AtomicU64,
    /// Held by each change of the data; alone by a rename that makes it the file's own.
    writes: RwLock<()>,
}

#[derive(Debug)]
pub(crate) struct State {
    /// The name as stored.
    pub(crate) name: String,
    pub(crate) at: Where,
}

impl Body {
    pub(crate) fn new(name: String, at: Where) -> Self {
        let id = AtomicU64::new(stream_id(&name));
        Self { state: Mutex::new(State { name, at }), id, writes: RwLock::new(()) }
    }

    /// Locks the state before anything is changed. A core waits for a limited time: another thread may
    /// move the data to the side folder.
    pub(crate) fn lock_soon(&self) -> VfsResult<MutexGuard<'_, State>> {
        if !patience::is_short() {
            return Ok(self.state.lock());
        }
        let locked = self.state.try_lock_for(CACHE_PATIENCE);
        locked.ok_or_else(|| fault_of(patience::give_up()))
    }

    /// Returns the number of the stream's name.
    pub(crate) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Records another name; `state` is that of this stream.
    pub(crate) fn set_name(&self, state: &mut State, name: &str) {
        name.clone_into(&mut state.name);
        self.id.store(stream_id(name), Ordering::Relaxed);
    }

    /// Reads data. A core reads none from a file.
    pub(crate) fn read(&self, file: &Handle, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        let side = {
            let state = self.lock_soon()?;
            match &state.at {
                Where::Attribute => return state.read_attribute(file, offset, into),
                Where::Side(fd) => Arc::clone(fd),
                Where::Gone => return Err(Fault::Stale),
            }
        };
        beside_the_core()?;
        read_all(side.as_fd(), offset, into)
    }

    /// Begins a change of the data. A core waits for a limited time for a rename that copies it.
    pub(crate) fn begin_write(&self) -> VfsResult<RwLockReadGuard<'_, ()>> {
        if !patience::is_short() {
            return Ok(self.writes.read());
        }
        let begun = self.writes.try_read_for(CACHE_PATIENCE);
        begun.ok_or_else(|| fault_of(patience::give_up()))
    }

    /// Keeps the data as it is.
    pub(crate) fn stop_writes(&self) -> RwLockWriteGuard<'_, ()> {
        self.writes.write()
    }
}

/// Gives up a call that moves data of a file, or makes one, if calls must not take long: it may wait for
/// the disk.
pub(crate) fn beside_the_core() -> VfsResult<()> {
    if patience::is_short() { Err(fault_of(patience::give_up())) } else { Ok(()) }
}

/// True if an attribute could not be set because it is too large: file systems have several errors
/// for that.
pub(crate) const fn is_full(errno: Errno) -> bool {
    matches!(errno, Errno::NOSPC | Errno::TOOBIG | Errno::RANGE)
}

impl State {
    /// Records that the stream was removed. Returns its storage, whose blocks may be freed when it is
    /// dropped: not under a lock for which cores wait.
    pub(crate) const fn end(&mut self) -> Where {
        std::mem::replace(&mut self.at, Where::Gone)
    }

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

    /// Returns the size of the data, and the space that it takes.
    pub(crate) fn extent(&self, file: &Handle) -> VfsResult<Extent> {
        match &self.at {
            Where::Attribute => {
                let attribute = attribute(&self.name).ok_or(Fault::NameTooLong)?;
                match file.value_len(&attribute) {
                    Ok(len) => Ok(Extent::of_attribute((len as u64).saturating_sub(1))),
                    Err(Errno::NODATA) => Err(Fault::Stale),
                    Err(errno) => Err(fault_of(errno)),
                }
            }
            Where::Side(fd) => Ok(Extent::of_side(&sys::stat_fd(fd.as_fd()).map_err(fault_of)?)),
            Where::Gone => Err(Fault::Stale),
        }
    }

    fn read_attribute(&self, file: &Handle, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        let value = self.value(file)?;
        let from = usize::try_from(offset).unwrap_or(usize::MAX).min(value.len());
        let len = into.len().min(value.len() - from);
        into[..len].copy_from_slice(&value[from..from + len]);
        Ok(len)
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests that a core does not wait for the copy that a rename makes, and that threads do.
    #[test]
    fn a_core_does_not_wait_for_a_copy() {
        let body = Body::new(String::from("s"), Where::Attribute);
        let begins = || patience::short(|| body.begin_write().is_ok());
        assert_eq!(begins(), (true, false));
        let copying = body.stop_writes();
        assert_eq!(begins(), (false, true));
        std::thread::scope(|scope| {
            let writer = scope.spawn(|| body.begin_write().is_ok());
            drop(copying);
            assert!(writer.join().unwrap());
        });
        assert!(matches!(body.lock_soon().unwrap().end(), Where::Attribute));
        assert!(matches!(body.lock_soon().unwrap().at, Where::Gone));
    }

    /// Tests that a core does not wait for a thread that moves the data, and knows the name's number all
    /// the same.
    #[test]
    fn a_core_does_not_wait_for_a_move() {
        let body = Body::new(String::from("s"), Where::Attribute);
        let locks = || patience::short(|| body.lock_soon().is_ok());
        assert_eq!(locks(), (true, false));
        let mut moving = body.lock_soon().unwrap();
        assert_eq!(locks(), (false, true));
        body.set_name(&mut moving, "t");
        assert_eq!((body.id(), moving.name.as_str()), (stream_id("t"), "t"));
        drop(moving);
        assert_eq!(locks(), (true, false));
    }
}
