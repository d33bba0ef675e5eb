//! Registered memory, of which the whole process has a bounded amount.

use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::ffi::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE, Mr, Pd};
use super::library::Library;
use crate::buffer::Buf;
use crate::limits::RDMA_REGISTERED_BYTES_MAX;

static REGISTERED: AtomicUsize = AtomicUsize::new(0);
static REGISTERED_MAX: AtomicUsize = AtomicUsize::new(RDMA_REGISTERED_BYTES_MAX);

/// Returns the bytes that are registered now.
#[must_use]
pub fn registered_bytes() -> usize {
    REGISTERED.load(Ordering::Relaxed)
}

/// Sets the bytes that may be registered at a time.
pub fn set_registered_max(bytes: usize) {
    REGISTERED_MAX.store(bytes.min(RDMA_REGISTERED_BYTES_MAX), Ordering::Relaxed);
}

/// Bytes counted as registered until it is dropped.
struct Counted(usize);

impl Counted {
    fn new(bytes: usize) -> io::Result<Self> {
        let max = REGISTERED_MAX.load(Ordering::Relaxed);
        let add = |now: usize| now.checked_add(bytes).filter(|sum| *sum <= max);
        let added = REGISTERED.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        match added {
            Ok(_) => Ok(Self(bytes)),
            Err(_) => Err(io::ErrorKind::OutOfMemory.into()),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        REGISTERED.fetch_sub(self.0, Ordering::Relaxed);
    }
}

/// The use of a region.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Access {
    /// The spare room of the buffer, so many bytes, is for messages.
    Slots(usize),
    /// The buffer's bytes are written to a peer.
    Source,
    /// The spare room of the buffer, so many bytes, is read from a peer.
    Sink(usize),
    /// As `Sink`, through an iWARP device: its peer writes the bytes.
    SinkIwarp(usize),
}

impl Access {
    /// `enum ibv_access_flags`. No peer can ever read, and only an iWARP peer can write, for as
    /// long as the transfer takes.
    const fn flags(self) -> c_int {
        match self {
            Self::Source => 0,
            Self::Slots(_) | Self::Sink(_) => ACCESS_LOCAL_WRITE,
            Self::SinkIwarp(_) => ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE,
        }
    }
}

/// A buffer that the device may use. Its key counts until it is dropped.
pub(super) struct Region {
    library: &'static Library,
    mr: NonNull<Mr>,
    base: NonNull<u8>,
    len: usize,
    /// Bytes that the device has put behind the buffer's own.
    appended: usize,
    buf: ManuallyDrop<Buf>,
    _counted: Counted,
}

impl Region {
    /// Registers the bytes of `buf`, or its spare room.
    ///
    /// # Safety
    /// The domain lives longer than the region. While the device may use a part of the region,
    /// the owner neither drops it nor asks for that part.
    ///
    /// # Errors
    /// Too much is registered already, or `ulimit -l` is too small.
    pub(super) unsafe fn new(
        library: &'static Library,
        pd: NonNull<Pd>,
        mut buf: Buf,
        access: Access,
    ) -> io::Result<Self> {
        let room = match access {
            Access::Source => &mut *buf,
            Access::Slots(len) | Access::Sink(len) | Access::SinkIwarp(len) => {
                buf.memory_mut().get_mut(..len).ok_or(io::ErrorKind::InvalidInput)?
            }
        };
        let len = room.len();
        let base = NonNull::from(room).cast::<u8>();
        let appended = if access == Access::Source { 0 } else { len };
        let counted = Counted::new(len)?;
        // SAFETY: the domain lives, and the memory is owned by the buffer.
        let mr =
            unsafe { (library.ibv_reg_mr)(pd.as_ptr(), base.as_ptr().cast(), len, access.flags()) };
        let mr = NonNull::new(mr).ok_or_else(io::Error::last_os_error)?;
        Ok(Self {
            library,
            mr,
            base,
            len,
            appended,
            buf: ManuallyDrop::new(buf),
            _counted: counted,
        })
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The key that requests of this side name.
    pub(super) fn key(&self) -> u32 {
        // SAFETY: the library's structure lives until the region is deregistered.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// The address of a byte, for requests.
    pub(super) fn address(&self, offset: usize) -> u64 {
        u64::try_from(self.base.as_ptr().addr() + offset).unwrap_or(u64::MAX)
    }

    /// A part of the region.
    ///
    /// # Safety
    /// The device does not use the part while it is borrowed.
    ///
    /// # Panics
    /// If it is not inside the region.
    pub(super) unsafe fn part(&self, offset: usize, len: usize) -> &[u8] {
        assert!(offset <= self.len && len <= self.len - offset, "beyond the region");
        // SAFETY: the part lies inside the buffer's block, whose bytes are all initialised, and
        // nobody writes to it meanwhile.
        unsafe { std::slice::from_raw_parts(self.base.as_ptr().add(offset), len) }
    }

    /// A part of the region, to be written.
    ///
    /// # Safety
    /// The device does not use the part while it is borrowed.
    ///
    /// # Panics
    /// If it is not inside the region.
    pub(super) unsafe fn part_mut(&mut self, offset: usize, len: usize) -> &mut [u8] {
        assert!(offset <= self.len && len <= self.len - offset, "beyond the region");
        // SAFETY: as above, and the region is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), len) }
    }

    /// Deregisters the memory, and returns the buffer with what the device has put there.
    pub(super) fn into_buf(mut self) -> Buf {
        if !self.deregister() {
            // The device still has the old buffer, which is leaked.
            std::mem::forget(self);
            return Buf::new();
        }
        // SAFETY: the buffer is taken once: `drop` is not run.
        let mut buf = unsafe { ManuallyDrop::take(&mut self.buf) };
        buf.set_filled(self.appended);
        drop(std::mem::replace(&mut self._counted, Counted(0)));
        std::mem::forget(self);
        buf
    }

    fn deregister(&mut self) -> bool {
        // SAFETY: it is registered, and this is called once.
        unsafe { (self.library.ibv_dereg_mr)(self.mr.as_ptr()) == 0 }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if self.deregister() {
            // SAFETY: the buffer is taken once, and the device has no key to it any more.
            drop(unsafe { ManuallyDrop::take(&mut self.buf) });
        }
        // A buffer that the device may still use is leaked.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registered_memory_is_bounded() {
        let before = registered_bytes();
        let all = Counted::new(RDMA_REGISTERED_BYTES_MAX - before).unwrap();
        assert!(Counted::new(1).is_err());
        drop(all);
        assert_eq!(registered_bytes(), before);
        drop(Counted::new(1).unwrap());
    }
}
