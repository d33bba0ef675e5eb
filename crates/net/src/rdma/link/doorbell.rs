//! Giving queued requests to the device.
//!
//! The libraries of soft devices put requests into a queue that they share with the kernel, and tell
//! it of them with write(2): their doorbell. The kernel refuses it from a thread whose credentials
//! were replaced (see [`threads`]): then the requests are queued, and no request is named as the one
//! that was not taken (`bad_wr`). So a refusal costs nothing but the doorbell, which another thread
//! rings. To ask before each doorbell would cost each a system call, on all threads.

use std::cell::Cell;
use std::io;
use std::os::fd::BorrowedFd;
use std::ptr::null_mut;

use super::super::ffi::{Doorbell, Qp};
use super::super::threads;
use super::{Link, result_of};

thread_local! {
    /// The kernel takes no doorbell from this thread: it never will.
    static IS_REFUSED: Cell<bool> = const { Cell::new(false) };
}

impl Link {
    /// Gives the device all queued requests at once: each time may cost a system call, or a look of
    /// the device at this program's memory. True if there were any.
    ///
    /// # Errors
    /// The device takes no more requests. Those that it did not take count as under way until the
    /// link ends.
    pub(in crate::rdma) fn ring(&mut self) -> io::Result<bool> {
        if self.queued.is_empty() {
            return Ok(false);
        }
        let mut first = null_mut();
        for (request, place) in self.queued.iter_mut().rev() {
            request.sg_list = place;
            request.next = first;
            first = request;
        }
        let mut bad = null_mut();
        let is_elsewhere = self.is_soft && IS_REFUSED.get();
        // SAFETY: the queue pair is valid; the requests are copied during the call, and their
        // memory stays registered and unused until their completion. No queue pair is bound to a
        // thread.
        let errno = unsafe {
            let qp = self.id.raw().as_ref().qp;
            let context = self.id.raw().as_ref().verbs.as_ref();
            // errno belongs to a thread, so it is read on the thread that has made the call.
            let mut post =
                || context.map_or(libc::ENOTCONN, |c| error_of((c.post_send)(qp, first, &mut bad)));
            if is_elsewhere { threads::call(post) } else { post() }
        };
        self.queued.clear();
        if !is_elsewhere && self.is_soft && bad.is_null() && errno == libc::EACCES {
            IS_REFUSED.set(true);
            return self.ring_elsewhere().map(|()| true);
        }
        result_of(errno).map(|()| true)
    }

    /// Tells the kernel of requests that are in the queue of a soft device, from another thread.
    fn ring_elsewhere(&self) -> io::Result<()> {
        // SAFETY: the identifier and its queue pair are valid, and the library keeps the device
        // open.
        let (handle, device) = unsafe {
            let id = self.id.raw();
            let qp: Option<&Qp> = id.as_ref().qp.as_ref();
            let context = id.as_ref().verbs.as_ref();
            (qp.map(Qp::handle), context.map(|context| BorrowedFd::borrow_raw(context.cmd_fd)))
        };
        let (Some(handle), Some(device)) = (handle, device) else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        // SAFETY: any thread may write to the doorbell.
        unsafe { threads::call(|| Doorbell::new(handle).ring(device)) }
    }
}

/// The error number of a request. rxe returns it; siw returns its negative, or what write(2) has
/// returned, -1, and the number is where the C library has it.
fn error_of(returned: i32) -> i32 {
    match returned {
        -1 => io::Error::last_os_error().raw_os_error().filter(|n| *n != 0).unwrap_or(libc::EIO),
        number => number.abs(),
    }
}
