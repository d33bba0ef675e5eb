//! Rings that can read, write and sync, and nothing else.
//!
//! Requests in an io_uring pass filters of system calls by, and an unrestricted ring makes sockets
//! and connects them. So the kernel is told the permitted operations before it accepts the first one,
//! and a program that gives up rights makes its rings before: [`prepare`].

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use io_uring::register::Restriction;
use io_uring::{IoUring, opcode};
use parking_lot::Mutex;
use rustix::event::EventfdFlags;

use crate::limits::RING_OPS_MAX;

/// Operations that a ring performs.
const OPERATIONS: [u8; 3] = [opcode::Read::CODE, opcode::Write::CODE, opcode::Fsync::CODE];
/// IORING_REGISTER_IOWQ_MAX_WORKERS of linux/io_uring.h: all that can be registered with a ring that
/// accepts operations.
const LIMIT_OF_WORKERS: u8 = 19;

/// Rings beside those of the cores, for other threads with a runtime that read files.
const SPARE: usize = 2;

/// The rings that no thread has taken yet. None while each thread makes its own.
static PREPARED: Mutex<Option<Vec<RestrictedRing>>> = Mutex::new(None);

/// A ring that no thread uses yet. It belongs to the thread that enables it.
pub(super) struct RestrictedRing {
    ring: IoUring,
    eventfd: OwnedFd,
}

/// Makes the rings of `cores` core threads. From then on this process makes no others: a thread for
/// which none is left uses threads. Does nothing where the kernel has no rings.
pub fn prepare_rings(cores: usize) {
    let made = (0..cores.saturating_add(SPARE)).map_while(|_| RestrictedRing::new().ok()).collect();
    *PREPARED.lock() = Some(made);
}

/// Makes a ring that may do anything, which a confined process must not: for tests of the confinement.
///
/// # Errors
/// The kernel's refusal.
#[doc(hidden)]
pub fn attempt_ring() -> io::Result<()> {
    IoUring::new(1).map(drop)
}

impl RestrictedRing {
    /// Takes a ring that was prepared, or makes one.
    pub(super) fn take() -> io::Result<Self> {
        match PREPARED.lock().as_mut() {
            Some(left) => left.pop().ok_or_else(|| io::Error::from_raw_os_error(libc::EPERM)),
            None => Self::new(),
        }
    }

    fn new() -> io::Result<Self> {
        // These flags (Linux 6.1) keep completions from interrupting the core thread. If the kernel
        // does not know them, the ring is made without them.
        let ring = IoUring::builder()
            .setup_r_disabled()
            .setup_single_issuer()
            .setup_defer_taskrun()
            .setup_submit_all()
            .build(RING_OPS_MAX)
            .or_else(|_| IoUring::builder().setup_r_disabled().build(RING_OPS_MAX))?;
        let mut probe = io_uring::Probe::new();
        ring.submitter().register_probe(&mut probe)?;
        if !OPERATIONS.iter().all(|code| probe.is_supported(*code)) {
            return Err(io::Error::from_raw_os_error(libc::ENOSYS));
        }
        let eventfd = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        ring.submitter().register_eventfd(eventfd.as_raw_fd())?;
        let [read, write, sync] = OPERATIONS.map(Restriction::sqe_op);
        let mut restrictions = [read, write, sync, Restriction::register_op(LIMIT_OF_WORKERS)];
        ring.submitter().register_restrictions(&mut restrictions)?;
        Ok(Self { ring, eventfd })
    }

    /// Lets the calling thread, and no other, use the ring.
    pub(super) fn enable(self) -> io::Result<(IoUring, OwnedFd)> {
        self.ring.submitter().register_enable_rings()?;
        Ok((self.ring, self.eventfd))
    }
}

#[cfg(test)]
mod tests {
    use io_uring::types;

    use super::*;

    /// Tests that a ring refuses all that is not reading, writing and syncing.
    #[test]
    fn a_ring_makes_no_socket_and_opens_no_file() {
        let Ok(prepared) = RestrictedRing::new() else { return };
        // The ring is made by one thread and enabled by another, as for the rings of the cores.
        let refused = std::thread::spawn(move || {
            let (mut ring, _eventfd) = prepared.enable().unwrap();
            let path = c"/etc/passwd";
            let entries = [
                opcode::Socket::new(libc::AF_UNIX, libc::SOCK_STREAM, 0).build(),
                opcode::OpenAt::new(types::Fd(libc::AT_FDCWD), path.as_ptr()).build(),
                opcode::Nop::new().build(),
                opcode::Close::new(types::Fd(0)).build(),
                // fsync is allowed, but not with the flag IO_LINK, which chains the next operation
                // to it.
                opcode::Fsync::new(types::Fd(0)).build().flags(io_uring::squeue::Flags::IO_LINK),
            ];
            let mut results = Vec::new();
            for entry in entries {
                // SAFETY: the only memory that an entry names is a static string.
                unsafe { ring.submission().push(&entry) }.unwrap();
                ring.submit_and_wait(1).unwrap();
                results.extend(ring.completion().map(|completion| completion.result()));
            }
            let personality = ring.submitter().register_personality();
            (results, personality.err().and_then(|error| error.raw_os_error()))
        });
        let (results, personality) = refused.join().unwrap();
        assert_eq!(results, [-libc::EACCES; 5]);
        assert_eq!(personality, Some(libc::EACCES));
    }
}
