//! Registered memory.

use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::ffi::{ACCESS_LOCAL_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, Mr, Pd};
use super::library::Library;
use super::quota::{Counted, Holder};
use crate::buffer::Buf;

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
    /// The peer reads the bytes of the buffer.
    PeerReads,
    /// The peer writes into the spare room of the buffer, so many bytes.
    PeerWrites(usize),
}

impl Access {
    /// `enum ibv_access_flags`. A server's memory no peer can ever read, and only an iWARP peer can
    /// write it, for as long as the transfer takes.
    const fn flags(self) -> c_int {
        match self {
            Self::Source => 0,
            Self::Slots(_) | Self::Sink(_) => ACCESS_LOCAL_WRITE,
            Self::SinkIwarp(_) | Self::PeerWrites(_) => ACCESS_LOCAL_WRITE | ACCESS_REMOTE_WRITE,
            Self::PeerReads => ACCESS_REMOTE_READ,
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
    counted: ManuallyDrop<Counted>,
}

impl Region {
    /// Registers the bytes of `buf`, or its spare room, which are counted.
    ///
    /// # Safety
    /// The domain lives longer than the region. While the device may use a part of the region,
    /// the owner neither drops it nor asks for that part.
    ///
    /// # Errors
    /// `ulimit -l` is too small.
    pub(super) unsafe fn new(
        library: &'static Library,
        pd: NonNull<Pd>,
        mut buf: Buf,
        access: Access,
        counted: Counted,
    ) -> io::Result<Self> {
        let room = match access {
            Access::Source | Access::PeerReads => &mut *buf,
            Access::Slots(len)
            | Access::Sink(len)
            | Access::SinkIwarp(len)
            | Access::PeerWrites(len) => {
                buf.memory_mut().get_mut(..len).ok_or(io::ErrorKind::InvalidInput)?
            }
        };
        let len = room.len();
        let base = NonNull::from(room).cast::<u8>();
        let is_full = matches!(access, Access::Source | Access::PeerReads);
        let appended = if is_full { 0 } else { len };
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
            counted: ManuallyDrop::new(counted),
        })
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Counts the bytes for another holder from now on.
    pub(super) fn move_to(&mut self, holder: &Arc<Holder>) {
        self.counted.move_to(holder);
    }

    /// The key that requests of this side name.
    pub(super) fn key(&self) -> u32 {
        // SAFETY: the library's structure lives until the region is deregistered.
        unsafe { self.mr.as_ref() }.lkey
    }

    /// The key that the peer's requests name.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: as above.
        unsafe { self.mr.as_ref() }.rkey
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
        // SAFETY: each is taken once: `drop` is not run.
        let (mut buf, counted) =
            unsafe { (ManuallyDrop::take(&mut self.buf), ManuallyDrop::take(&mut self.counted)) };
        drop(counted);
        buf.set_filled(self.appended);
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
            // SAFETY: each is taken once, and the device has no key to the buffer any more.
            unsafe {
                drop(ManuallyDrop::take(&mut self.buf));
                drop(ManuallyDrop::take(&mut self.counted));
            }
        }
        // A buffer that the device may still use is leaked, and stays counted.
    }
}
