//! Opened devices, and letting go of those that are being removed.
//!
//! librdmacm opens a device for the first identifier that is bound to it, and keeps it open. A
//! driver that cannot take back what programs have open, as those of rxe and siw, waits for them:
//! `rdma link del` would wait until this process ends. So the descriptors of a device that is being
//! removed are closed as soon as the last identifier of it has been destroyed, which
//! rdma_get_cm_event(3) demands after RDMA_CM_EVENT_DEVICE_REMOVAL.

use std::collections::HashMap;
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;
use std::sync::LazyLock;

use parking_lot::Mutex;
use rustix::event::{EventfdFlags, eventfd};

use super::ffi::Context;

/// The opened devices, by the address of their context.
static DEVICES: LazyLock<Mutex<HashMap<usize, Use>>> = LazyLock::new(Mutex::default);

#[derive(Default)]
struct Use {
    identifiers: usize,
    is_removed: bool,
}

/// An identifier's use of a device.
pub(super) struct Device(NonNull<Context>);

// SAFETY: libibverbs' objects are bound to no thread.
unsafe impl Send for Device {}

impl Device {
    /// Counts a use of the device that librdmacm has opened.
    pub(super) fn new(context: NonNull<Context>) -> Self {
        DEVICES.lock().entry(context.addr().get()).or_default().identifiers += 1;
        Self(context)
    }
}

impl Drop for Device {
    fn drop(&mut self) {
        let address = self.0.addr().get();
        let mut devices = DEVICES.lock();
        let Some(device) = devices.get_mut(&address) else { return };
        device.identifiers = device.identifiers.saturating_sub(1);
        if device.identifiers > 0 {
            return;
        }
        let is_removed = device.is_removed;
        devices.remove(&address);
        if is_removed {
            // SAFETY: librdmacm keeps the context. No identifier uses it, and none will, since the
            // device is being removed.
            let context = unsafe { self.0.as_ref() };
            // Without a free descriptor `close` fails, and the kernel removes the device only when
            // the process ends.
            let _ = close(context.cmd_fd).and_then(|()| close(context.async_fd));
        }
    }
}

/// Notes that a device is being removed.
pub(super) fn note_removal(context: NonNull<Context>) {
    if let Some(device) = DEVICES.lock().get_mut(&context.addr().get()) {
        device.is_removed = true;
    }
}

/// Closes what a descriptor refers to. The number stays in use, with nothing behind it: the library
/// closes it later, and must not close another's.
fn close(descriptor: RawFd) -> io::Result<()> {
    let nothing = eventfd(0, EventfdFlags::CLOEXEC)?;
    // SAFETY: the library has the descriptor open, and it is not closed here.
    let mut place = ManuallyDrop::new(unsafe { OwnedFd::from_raw_fd(descriptor) });
    Ok(rustix::io::dup2(&nothing, &mut place)?)
}

#[cfg(test)]
mod tests {
    use std::io::{Read, pipe};
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_closed_descriptor_keeps_its_number() {
        let (mut reader, writer) = pipe().unwrap();
        close(writer.as_raw_fd()).unwrap();
        assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the last writer has closed");
        assert!(rustix::io::fcntl_getfd(&writer).is_ok());
    }
}
