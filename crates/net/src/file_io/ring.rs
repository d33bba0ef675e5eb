//! One io_uring for each core thread.
//!
//! Ownership makes this safe. The memory and the descriptor of an operation move into a slot of
//! this thread's ring and stay there until the kernel has reported the operation's end, whatever
//! happens to the waiting future: dropping the future only marks the slot as abandoned. A thread
//! that ends with unfinished operations waits a little, and then leaks their slots, because the
//! kernel may still write to their memory.
//!
//! A driver task submits all operations of one turn of the runtime together, and handles
//! completions when the ring's eventfd reports them.

use std::any::Any;
use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use io_uring::{IoUring, opcode, types};
use slab::Slab;
use tokio::io::unix::AsyncFd;
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::Notify;

use crate::buffer::Buf;
use crate::file_io::prepared_rings::RestrictedRing;
use crate::file_io::{FileFd, SyncFailure};
use crate::limits::{RING_FAREWELL, RING_OPS_MAX};
use crate::permits::{Permit, Permits};

/// Kernel workers for this ring's blocking operations (buffered writes, fsync). The default is four
/// for each processor, and then one stalled disk could delay the fsyncs of all others.
const RING_WORKERS_MAX: u32 = 64;

thread_local! {
    static RING: RefCell<State> = const { RefCell::new(State::Untried) };
}

enum State {
    Untried,
    Ready(Box<Ring>),
    Unavailable(String),
}

struct Ring {
    ring: IoUring,
    eventfd: OwnedFd,
    slots: Slab<Slot>,
    permits: Permits,
    submit: Arc<Notify>,
    /// True if a driver task runs on a runtime of this thread.
    driven: bool,
}

/// The memory that the kernel uses during an operation.
#[allow(dead_code, reason = "held for the kernel, not for us")]
enum KernelBuffer {
    Read(Buf),
    /// The owner of the bytes that are written.
    Write(Box<dyn Any + Send>),
    /// The place for the error of a sync.
    Sync(SyncFailure),
    Nothing,
}

struct Slot {
    held: KernelBuffer,
    /// Open until the operation has been submitted, when the kernel takes a reference of its own.
    _file: FileFd,
    /// Returned when the kernel has finished.
    permits: Option<[Permit; 2]>,
    progress: Progress,
}

enum Progress {
    Pending(Option<Waker>),
    Done(i32),
    /// The future was dropped; the completion frees the slot.
    Abandoned,
}

/// True if operations of this thread use a ring.
pub(super) fn is_available() -> bool {
    let driven = RING.with_borrow(|state| match state {
        State::Ready(ring) => Some(ring.driven),
        State::Unavailable(_) => Some(false),
        State::Untried => None,
    });
    match driven {
        Some(true) => true,
        _ => availability().is_ok(),
    }
}

/// Returns the reason if this thread has no ring.
pub(super) fn availability() -> Result<(), String> {
    match Handle::try_current().map(|runtime| runtime.runtime_flavor()) {
        Ok(RuntimeFlavor::CurrentThread) => {}
        Ok(_) => return Err("the runtime moves tasks between threads".to_owned()),
        Err(_) => return Err("no runtime on this thread".to_owned()),
    }
    RING.with_borrow_mut(|state| {
        if matches!(state, State::Untried) {
            *state = match Ring::new() {
                Ok(ring) => State::Ready(Box::new(ring)),
                Err(error) => State::Unavailable(refusal(&error)),
            };
        }
        match state {
            State::Unavailable(reason) => Err(reason.clone()),
            _ => Ok(()),
        }
    })
}

/// Explains the usual meaning of the kernel's refusal of a ring.
fn refusal(error: &io::Error) -> String {
    let why = match error.raw_os_error() {
        Some(libc::EPERM) => "forbidden by a seccomp filter or kernel.io_uring_disabled",
        Some(libc::ENOSYS) => "this kernel has no io_uring",
        Some(libc::ENOMEM) => "no memory that may be locked",
        Some(libc::EMFILE | libc::ENFILE) => "no file descriptor left",
        _ => "the kernel refused",
    };
    format!("io_uring: {why} ({error})")
}

/// Reads up to `len` bytes at `offset` with the flags of `preadv2`, and appends them to `buf`, which
/// has room. Returns the
/// buffer, and the number of bytes or an error.
pub(super) async fn read(
    file: &FileFd,
    offset: u64,
    mut buf: Buf,
    len: usize,
    flags: libc::c_int,
    mount: Permit,
) -> (Buf, io::Result<usize>) {
    let (target, count) = {
        let room = &mut buf.memory_mut()[..len];
        (room.as_mut_ptr(), room.len())
    };
    let Ok(count) = u32::try_from(count) else {
        return (buf, Err(io::ErrorKind::InvalidInput.into()));
    };
    let fd = types::Fd(file.as_fd().as_raw_fd());
    let entry = opcode::Read::new(fd, target, count).offset(offset).rw_flags(flags).build();
    // SAFETY: `target` points into the block that `buf` owns. The block does not move with the Buf,
    // which stays in the slot until the kernel has finished.
    let started = unsafe { start(entry, KernelBuffer::Read(buf), file, mount) }.await;
    match started {
        Ok(op) => match op.await {
            (KernelBuffer::Read(mut buf), outcome) => {
                let outcome = outcome.map(|count| {
                    let count = count.min(len);
                    buf.set_filled(count);
                    count
                });
                (buf, outcome)
            }
            (_, outcome) => (Buf::new(), outcome),
        },
        Err((held, error)) => match held {
            KernelBuffer::Read(buf) => (buf, Err(error)),
            _ => (Buf::new(), Err(error)),
        },
    }
}

/// Writes `data[skip..]` at `offset` with the flags of `pwritev2`, and returns the data for further writes.
pub(super) async fn write<B>(
    file: &FileFd,
    offset: u64,
    data: Box<B>,
    skip: usize,
    flags: libc::c_int,
    mount: Permit,
) -> (Option<Box<B>>, io::Result<usize>)
where
    B: AsRef<[u8]> + Send + 'static,
{
    let (source, count) = {
        let bytes = (*data).as_ref().get(skip..).unwrap_or_default();
        (bytes.as_ptr(), u32::try_from(bytes.len()).unwrap_or(u32::MAX))
    };
    let fd = types::Fd(file.as_fd().as_raw_fd());
    let entry = opcode::Write::new(fd, source, count).offset(offset).rw_flags(flags).build();
    // SAFETY: the bytes belong to the boxed value, which stays in the slot, unmoved and untouched,
    // until the kernel has finished.
    let started = unsafe { start(entry, KernelBuffer::Write(data), file, mount) }.await;
    let (held, outcome) = match started {
        Ok(op) => op.await,
        Err((held, error)) => (held, Err(error)),
    };
    let KernelBuffer::Write(data) = held else { return (None, outcome) };
    (data.downcast().ok(), outcome)
}

/// Calls `fsync`, or with `data_only` `fdatasync`.
pub(super) async fn sync(
    file: &FileFd,
    data_only: bool,
    failure: &SyncFailure,
    mount: Permit,
) -> io::Result<()> {
    let fd = types::Fd(file.as_fd().as_raw_fd());
    let mut entry = opcode::Fsync::new(fd);
    if data_only {
        entry = entry.flags(types::FsyncFlags::DATASYNC);
    }
    let held = KernelBuffer::Sync(Arc::clone(failure));
    // SAFETY: the operation touches no memory.
    match unsafe { start(entry.build(), held, file, mount) }.await {
        Ok(op) => op.await.1.map(drop),
        Err((_, error)) => Err(error),
    }
}

/// Records a failed sync whether or not anybody waits for it. An interrupted one says nothing of the
/// data.
fn note_failure(failure: &SyncFailure, result: i32) {
    let errno = result.checked_neg().unwrap_or_default();
    if errno > 0 && !matches!(errno, libc::EINTR | libc::EAGAIN | libc::ECANCELED) {
        let _ = failure.set(errno);
    }
}

/// Queues an operation on this thread's ring once there is a slot.
///
/// # Safety
/// All memory that `entry` names stays valid, and is used by nobody else (or, if the kernel only
/// reads it, changed by nobody), as long as `held` exists. Its descriptor is that of `file`.
async unsafe fn start(
    entry: io_uring::squeue::Entry,
    held: KernelBuffer,
    file: &FileFd,
    mount: Permit,
) -> Result<Op, (KernelBuffer, io::Error)> {
    let gone = || io::Error::other("this thread's io_uring is gone");
    let permits = RING.with_borrow(|state| match state {
        State::Ready(ring) => Some(ring.permits.clone()),
        _ => None,
    });
    let Some(permits) = permits else { return Err((held, gone())) };
    let permit = permits.take().await;
    let slot = Slot {
        held,
        _file: Arc::clone(file),
        permits: Some([permit, mount]),
        progress: Progress::Pending(None),
    };
    RING.with_borrow_mut(|state| {
        let State::Ready(ring) = state else { return Err((slot.held, gone())) };
        // SAFETY: the caller guarantees that the entry's memory belongs to `held`, which the slot
        // keeps until the completion is handled.
        unsafe { ring.queue(entry, slot) }
    })
}

impl Ring {
    fn new() -> io::Result<Self> {
        let (ring, eventfd) = RestrictedRing::take()?.enable()?;
        // Older kernels cannot limit the number of workers; their default limit is good enough.
        drop(ring.submitter().register_iowq_max_workers(&mut [RING_WORKERS_MAX, 0]));
        Ok(Self {
            ring,
            eventfd,
            slots: Slab::new(),
            // The places of each mount are in parts by account. With parts here too, a mount that
            // hangs would have the part of an account, whose other mounts would wait for it.
            permits: Permits::without_parts(RING_OPS_MAX as usize),
            submit: Arc::new(Notify::new()),
            driven: false,
        })
    }

    /// # Safety
    /// As for [`start`].
    unsafe fn queue(
        &mut self,
        entry: io_uring::squeue::Entry,
        slot: Slot,
    ) -> Result<Op, (KernelBuffer, io::Error)> {
        if let Err(error) = self.ensure_driven() {
            return Err((slot.held, error));
        }
        let key = self.slots.insert(slot);
        let entry = entry.user_data(key as u64);
        // SAFETY: the caller of this function guarantees that the entry's memory stays valid.
        let mut pushed = unsafe { self.ring.submission().push(&entry) };
        if pushed.is_err() && self.enter(0).is_ok() {
            // The queue was full and has been submitted now. SAFETY: the caller of this function
            // guarantees that the entry's memory stays valid.
            pushed = unsafe { self.ring.submission().push(&entry) };
        }
        if pushed.is_err() {
            let slot = self.slots.remove(key);
            return Err((slot.held, io::ErrorKind::WouldBlock.into()));
        }
        self.submit.notify_one();
        Ok(Op { key, finished: false, _this_thread: PhantomData })
    }

    /// Starts a driver task on this thread's runtime if there is none: a ring outlives runtimes
    /// that follow each other on one thread.
    fn ensure_driven(&mut self) -> io::Result<()> {
        if self.driven {
            return Ok(());
        }
        // SAFETY: the OwnedFd names one open descriptor until its drop closes it, and the AsyncFd
        // deregisters the descriptor before that.
        let eventfd = unsafe { AsyncFd::register(self.eventfd.try_clone()?) }?;
        tokio::spawn(drive(eventfd, Arc::clone(&self.submit)));
        self.driven = true;
        Ok(())
    }

    /// Submits queued operations and lets the kernel post completions.
    fn enter(&mut self, at_least: u32) -> io::Result<()> {
        let queued = self.ring.submission().len() as u32;
        const GETEVENTS: u32 = 1;
        // SAFETY: all arguments are numbers, and each queued entry was pushed with the guarantee of
        // `start`.
        unsafe {
            self.ring.submitter().enter::<libc::sigset_t>(queued, at_least, GETEVENTS, None)?;
        }
        Ok(())
    }

    /// Takes completions. Adds wakers to call and slots to free, both to be done outside the borrow
    /// of this thread's ring.
    fn reap(&mut self, wakers: &mut Vec<Waker>, freed: &mut Vec<Slot>) {
        for completion in self.ring.completion() {
            let key = completion.user_data() as usize;
            let Some(slot) = self.slots.get_mut(key) else { continue };
            // The permits are returned here, so the next operation need not wait until this future
            // is polled.
            slot.permits = None;
            if let KernelBuffer::Sync(failure) = &slot.held {
                note_failure(failure, completion.result());
            }
            let done = Progress::Done(completion.result());
            match std::mem::replace(&mut slot.progress, done) {
                Progress::Pending(waker) => wakers.extend(waker),
                Progress::Abandoned => freed.push(self.slots.remove(key)),
                Progress::Done(_) => {}
            }
        }
    }

    /// Returns the number of operations that the kernel works on.
    fn under_way(&self) -> usize {
        let done = |slot: &Slot| matches!(slot.progress, Progress::Done(_));
        self.slots.iter().filter(|(_, slot)| !done(slot)).count()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let deadline = Instant::now() + RING_FAREWELL;
        let (mut nobody, mut freed) = (Vec::new(), Vec::new());
        while self.under_way() > 0 && Instant::now() < deadline {
            if self.enter(0).is_err() {
                break;
            }
            self.reap(&mut nobody, &mut freed);
            if self.under_way() > 0 {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
        }
        if self.under_way() > 0 {
            // The kernel may still write to the buffers of pending operations, so their memory is
            // leaked.
            std::mem::forget(std::mem::take(&mut self.slots));
        }
    }
}

/// Submits operations and handles completions until its runtime ends.
async fn drive(eventfd: AsyncFd<OwnedFd>, submit: Arc<Notify>) {
    /// Records at its end that the ring has no driver any more.
    struct Driven;
    impl Drop for Driven {
        fn drop(&mut self) {
            // While the thread ends, its ring may be dropped already.
            let _ = RING.try_with(|state| {
                if let Ok(mut state) = state.try_borrow_mut()
                    && let State::Ready(ring) = &mut *state
                {
                    ring.driven = false;
                }
            });
        }
    }
    let _driven = Driven;
    let (mut wakers, mut freed) = (Vec::new(), Vec::new());
    loop {
        tokio::select! {
            () = submit.notified() => {}
            ready = eventfd.readable() => {
                let Ok(mut ready) = ready else { return };
                // Reading the eventfd clears it; the count that it returns is not needed.
                let _ = rustix::io::read(eventfd.get_ref(), &mut [0; 8]);
                ready.clear_ready();
            }
        }
        let alive = RING.with_borrow_mut(|state| {
            let State::Ready(ring) = state else { return false };
            let entered = ring.enter(0);
            ring.reap(&mut wakers, &mut freed);
            if entered.is_err() || !ring.ring.submission().is_empty() {
                // The submission failed for lack of memory or room, or was interrupted. The
                // completions handled meanwhile have made room, so the entries are submitted again.
                ring.submit.notify_one();
            }
            true
        });
        wakers.drain(..).for_each(Waker::wake);
        freed.clear();
        if !alive {
            return;
        }
    }
}

/// The wait for one operation. It stays on its thread.
struct Op {
    key: usize,
    finished: bool,
    _this_thread: PhantomData<*const ()>,
}

impl Future for Op {
    type Output = (KernelBuffer, io::Result<usize>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let key = self.key;
        let slot = RING.with_borrow_mut(|state| {
            let State::Ready(ring) = state else { return Poll::Ready(None) };
            let Some(slot) = ring.slots.get_mut(key) else { return Poll::Ready(None) };
            if let Progress::Pending(waker) = &mut slot.progress {
                *waker = Some(cx.waker().clone());
                return Poll::Pending;
            }
            Poll::Ready(Some(ring.slots.remove(key)))
        });
        let Poll::Ready(slot) = slot else { return Poll::Pending };
        self.finished = true;
        Poll::Ready(match slot {
            Some(Slot { held, progress: Progress::Done(result), .. }) => {
                let outcome =
                    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(-result));
                (held, outcome)
            }
            _ => (KernelBuffer::Nothing, Err(io::Error::other("this thread's io_uring is gone"))),
        })
    }
}

impl Drop for Op {
    fn drop(&mut self) {
        if self.finished {
            return;
        }
        // A thread without a ring has no slots, so there is nothing to free.
        let freed = RING.try_with(|state| {
            let mut state = state.try_borrow_mut().ok()?;
            let State::Ready(ring) = &mut *state else { return None };
            let slot = ring.slots.get_mut(self.key)?;
            match std::mem::replace(&mut slot.progress, Progress::Abandoned) {
                Progress::Done(_) => Some(ring.slots.remove(self.key)),
                _ => None,
            }
        });
        drop(freed);
    }
}

/// Returns the number of used slots of this thread, abandoned ones included.
#[cfg(test)]
pub(super) fn slots_in_use() -> usize {
    RING.with_borrow(|state| match state {
        State::Ready(ring) => ring.slots.len(),
        _ => 0,
    })
}
