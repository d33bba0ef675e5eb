//! Registered memory.

use std::ffi::c_int;
use std::io;
use std::mem::ManuallyDrop;
use std::ptr::NonNull;
use std::sync::Arc;

use super::counters::REGIONS;
use super::ffi::{
    ACCESS_LOCAL_WRITE, ACCESS_MW_BIND, ACCESS_REMOTE_READ, ACCESS_REMOTE_WRITE, Mr, Pd,
};
use super::library::Library;
use super::quota::{Counted, Holder};
use crate::buffer::{Buf, Memory};

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

    /// The rights of the peer that a window has.
    pub(super) const fn remote_flags(self) -> c_int {
        self.flags() & (ACCESS_REMOTE_READ | ACCESS_REMOTE_WRITE)
    }

    /// The place in the buffer, and the bytes that the device puts behind the buffer's own.
    fn place(self, buf: &mut Buf) -> io::Result<(NonNull<u8>, usize, usize)> {
        let (room, is_full) = match self {
            Self::Source | Self::PeerReads => (&mut **buf, true),
            Self::Slots(len) | Self::Sink(len) | Self::SinkIwarp(len) | Self::PeerWrites(len) => {
                let room = buf.memory_mut().get_mut(..len);
                (room.ok_or(io::ErrorKind::InvalidInput)?, false)
            }
        };
        let len = room.len();
        Ok((NonNull::from(room).cast(), len, if is_full { 0 } else { len }))
    }
}

/// Memory that a device knows. Its keys count until this is dropped.
pub(super) struct Registration {
    mr: NonNull<Mr>,
    // SAFETY: the caller must pass a region that is registered and no longer used.
    deregister: unsafe extern "C" fn(*mut Mr) -> c_int,
    len: usize,
    counted: ManuallyDrop<Counted>,
}

impl Registration {
    /// Registers memory, which is counted.
    ///
    /// # Safety
    /// The domain lives longer than the registration. Whoever has requests posted that name its
    /// keys owns the memory meanwhile.
    ///
    /// # Errors
    /// `ulimit -l` is too small.
    unsafe fn new(
        library: &'static Library,
        pd: NonNull<Pd>,
        memory: NonNull<[u8]>,
        flags: c_int,
        counted: Counted,
    ) -> io::Result<Self> {
        // SAFETY: the domain is valid, and the memory is the caller's.
        let mr = unsafe {
            (library.ibv_reg_mr)(pd.as_ptr(), memory.as_ptr().cast(), memory.len(), flags)
        };
        let mr = NonNull::new(mr).ok_or_else(io::Error::last_os_error)?;
        REGIONS.add();
        let deregister = library.ibv_dereg_mr;
        Ok(Self { mr, deregister, len: memory.len(), counted: ManuallyDrop::new(counted) })
    }

    /// Registers the whole block of a buffer for windows. No peer can use it without one.
    ///
    /// # Safety
    /// As for [`Self::new`].
    ///
    /// # Errors
    /// `ulimit -l` is too small.
    pub(super) unsafe fn for_windows(
        library: &'static Library,
        pd: NonNull<Pd>,
        memory: Memory,
        counted: Counted,
    ) -> io::Result<Self> {
        let flags = ACCESS_LOCAL_WRITE | ACCESS_MW_BIND;
        let memory = NonNull::slice_from_raw_parts(memory.base, memory.len);
        // SAFETY: the caller guarantees what `new` requires.
        unsafe { Self::new(library, pd, memory, flags, counted) }
    }

    /// The bytes that are registered.
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// Counts the bytes for another holder from now on.
    pub(super) fn move_to(&mut self, holder: &Arc<Holder>) {
        self.counted.move_to(holder);
    }

    /// Deregisters the memory. False if the device does not: it may go on using it.
    fn end(self) -> bool {
        ManuallyDrop::new(self).release()
    }

    fn release(&mut self) -> bool {
        // SAFETY: the region is registered; `release` is called once.
        let is_free = unsafe { (self.deregister)(self.mr.as_ptr()) } == 0;
        if is_free {
            REGIONS.remove();
            // SAFETY: the field is taken once. If the device may still use the memory, the field is
            // not dropped, so the memory stays counted.
            drop(unsafe { ManuallyDrop::take(&mut self.counted) });
        }
        is_free
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.release();
    }
}

/// A buffer that the device may use. Its key counts until it is dropped.
pub(super) struct Region {
    base: NonNull<u8>,
    len: usize,
    /// Bytes that the device has put behind the buffer's own.
    appended: usize,
    buf: ManuallyDrop<Buf>,
    registration: ManuallyDrop<Registration>,
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
        let (base, len, appended) = access.place(&mut buf)?;
        let flags = access.flags();
        let memory = NonNull::slice_from_raw_parts(base, len);
        // SAFETY: the domain is valid, and the memory is owned by the buffer.
        let registration = unsafe { Registration::new(library, pd, memory, flags, counted) }?;
        Ok(Self {
            base,
            len,
            appended,
            buf: ManuallyDrop::new(buf),
            registration: ManuallyDrop::new(registration),
        })
    }

    /// Makes a region of a buffer whose block is registered for windows.
    ///
    /// # Errors
    /// The buffer has too little room.
    pub(super) fn within(
        registration: Registration,
        mut buf: Buf,
        access: Access,
    ) -> io::Result<Self> {
        let (base, len, appended) = access.place(&mut buf)?;
        Ok(Self {
            base,
            len,
            appended,
            buf: ManuallyDrop::new(buf),
            registration: ManuallyDrop::new(registration),
        })
    }

    pub(super) const fn len(&self) -> usize {
        self.len
    }

    /// The bytes that are registered.
    pub(super) fn registered(&self) -> usize {
        self.registration.len()
    }

    /// Counts the bytes for another holder from now on.
    pub(super) fn move_to(&mut self, holder: &Arc<Holder>) {
        self.registration.move_to(holder);
    }

    /// The device's structure, for a request that binds a window to it.
    pub(super) fn raw(&self) -> *mut Mr {
        self.registration.mr.as_ptr()
    }

    /// The key that requests of this side name.
    pub(super) fn key(&self) -> u32 {
        // SAFETY: the library's structure stays valid until the region is deregistered.
        unsafe { self.registration.mr.as_ref() }.lkey
    }

    /// The key that the peer's requests name.
    pub(super) fn remote_key(&self) -> u32 {
        // SAFETY: the library's structure stays valid until the region is deregistered.
        unsafe { self.registration.mr.as_ref() }.rkey
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
        // no other code writes to the part meanwhile.
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
        // SAFETY: the part lies inside the buffer's initialised block; self is borrowed mutably.
        unsafe { std::slice::from_raw_parts_mut(self.base.as_ptr().add(offset), len) }
    }

    /// Ends the region of a buffer whose block stays registered for windows: none is bound to it.
    pub(super) fn apart(self) -> (Registration, Buf) {
        let mut region = ManuallyDrop::new(self);
        // SAFETY: each field is taken once, because `drop` is not run.
        let (registration, mut buf) = unsafe {
            (ManuallyDrop::take(&mut region.registration), ManuallyDrop::take(&mut region.buf))
        };
        buf.set_filled(region.appended);
        (registration, buf)
    }

    /// Deregisters the memory, and returns the buffer with what the device has put there.
    pub(super) fn into_buf(self) -> Buf {
        let (registration, buf) = self.apart();
        if registration.end() {
            return buf;
        }
        // The device may still use the old buffer, so it is leaked and an empty one is returned.
        std::mem::forget(buf);
        Buf::new()
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: each field is taken once. A buffer that the device may still use is leaked.
        unsafe {
            if ManuallyDrop::take(&mut self.registration).end() {
                drop(ManuallyDrop::take(&mut self.buf));
            }
        }
    }
}

#[cfg(test)]
impl Registration {
    /// A registration with no device.
    pub(super) fn fake(len: usize, counted: Counted) -> Self {
        // SAFETY: the caller passes the box that is leaked below, once.
        unsafe extern "C" fn deregister(mr: *mut Mr) -> c_int {
            // SAFETY: the box was leaked below, and is freed once.
            drop(unsafe { Box::from_raw(mr) });
            0
        }
        REGIONS.add();
        let mr = NonNull::from(Box::leak(Box::new(Mr::fake(len))));
        Self { mr, deregister, len, counted: ManuallyDrop::new(counted) }
    }
}
