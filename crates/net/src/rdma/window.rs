//! Memory windows of type 2: keys to a part of a registered region. The peer ends such a key with a
//! message, or this side does by freeing the window; another request can give the window a new one.

use std::io;
use std::ptr::NonNull;

use super::counters::WINDOWS;
use super::ffi::{Context, DEVICE_WINDOWS, DeviceAttr, MW_TYPE_2, Mw, Pd, VENDORS_RXE};

/// True if a device has windows, and its kernel survives what a peer may do with them.
///
/// Linux's rxe does not (6.12 and 7.2): a peer that invalidates a key twice has it follow a null
/// pointer, before a program could do anything. `FREVO_RDMA_RXE_WINDOWS=1` uses its windows all the
/// same, for tests among peers that do not do so.
pub(super) fn is_safe(device: &DeviceAttr) -> bool {
    let is_wanted = || std::env::var_os("FREVO_RDMA_RXE_WINDOWS").is_some_and(|set| set == "1");
    let is_rxe = VENDORS_RXE.contains(&device.vendor_id);
    device.flags & DEVICE_WINDOWS != 0 && (!is_rxe || is_wanted())
}

/// A window. It is freed when it is dropped, and its key counts no more.
pub(super) struct Window {
    mw: NonNull<Mw>,
    /// The key of the last bind.
    key: u32,
    // SAFETY: the caller must pass a window that is allocated and no longer used.
    free: unsafe extern "C" fn(*mut Mw) -> i32,
}

impl Window {
    /// Makes a window without a key.
    ///
    /// # Safety
    /// The domain is of the device, and lives longer than the window.
    ///
    /// # Errors
    /// The device has none, or no further one.
    pub(super) unsafe fn new(device: &Context, pd: NonNull<Pd>) -> io::Result<Self> {
        let (Some(allocate), Some(free)) = (device.alloc_mw, device.dealloc_mw) else {
            return Err(io::ErrorKind::Unsupported.into());
        };
        // SAFETY: the domain is valid.
        let mw = NonNull::new(unsafe { allocate(pd.as_ptr(), MW_TYPE_2) });
        let mw = mw.ok_or_else(io::Error::last_os_error)?;
        WINDOWS.add();
        // SAFETY: the library's structure stays valid until the window is freed.
        let key = unsafe { mw.as_ref() }.rkey;
        Ok(Self { mw, key, free })
    }

    /// The device's structure, for a request that binds the window.
    pub(super) const fn raw(&self) -> *mut Mw {
        self.mw.as_ptr()
    }

    /// The key of the last bind.
    pub(super) const fn key(&self) -> u32 {
        self.key
    }

    /// Returns the key for the next bind: the last byte of a key is its owner's, and counts up.
    ///
    /// When the bind is posted, the library reads the key of the one before, and leaves it to its
    /// caller to note it: that bind is long done when the window is bound again.
    pub(super) fn take_key(&mut self) -> u32 {
        // SAFETY: the library's structure stays valid until the window is freed, and is borrowed
        // mutably.
        unsafe { self.mw.as_mut() }.rkey = self.key;
        self.key = (self.key & !0xff) | (self.key.wrapping_add(1) & 0xff);
        self.key
    }

    /// Frees the window, also one whose key still counts. False if the device does not.
    pub(super) fn end(self) -> bool {
        let mut window = std::mem::ManuallyDrop::new(self);
        window.release()
    }

    fn release(&mut self) -> bool {
        // SAFETY: the window is valid, and `release` is called once.
        let is_freed = unsafe { (self.free)(self.mw.as_ptr()) } == 0;
        if is_freed {
            WINDOWS.remove();
        }
        is_freed
    }
}

impl Drop for Window {
    fn drop(&mut self) {
        self.release();
    }
}

#[cfg(test)]
impl Window {
    /// A window of no device, with this key.
    pub(super) fn fake(key: u32) -> Self {
        // SAFETY: the caller passes the box that is leaked below, once.
        unsafe extern "C" fn free(mw: *mut Mw) -> i32 {
            // SAFETY: the box was leaked below, and is freed once.
            drop(unsafe { Box::from_raw(mw) });
            0
        }
        WINDOWS.add();
        Self { mw: NonNull::from(Box::leak(Box::new(Mw::fake(key)))), key, free }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_bind_has_another_key_of_its_window() {
        let mut window = Window::fake(0x12fe);
        for expected in [0x12ff, 0x1200, 0x1201] {
            assert_eq!((window.take_key(), window.key()), (expected, expected));
        }
    }

    #[test]
    fn the_windows_of_rxe_are_not_used() {
        let device = |vendor_id, flags| {
            let mut device = DeviceAttr::zeroed();
            (device.vendor_id, device.flags) = (vendor_id, flags);
            device
        };
        let (with, without) = (DEVICE_WINDOWS, !DEVICE_WINDOWS);
        assert!(is_safe(&device(0x02c9, with)) && is_safe(&device(0x02c9, 1 << 24)));
        assert!(!is_safe(&device(0x02c9, without)));
        if std::env::var_os("FREVO_RDMA_RXE_WINDOWS").is_none() {
            assert!(!is_safe(&device(0xff_ffff, with)) && !is_safe(&device(0, with)));
        }
    }
}
