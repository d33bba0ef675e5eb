//! File data by the shortest road that works.
//!
//! A read is first tried inline with `preadv2(RWF_NOWAIT)`: what lies in the
//! page cache is served on the spot, and nothing else. A miss goes to the
//! core's own io_uring, and where the kernel forbids that, or a server or process
//! answers for the file system, to a bounded set of threads. Which calls a file
//! system understands is learned once per mount.
//!
//! A buffered write to a local disk is a copy into the page cache and is done
//! inline, 1 MiB at a time, as long as the disk follows: on ext4 that is three
//! to four times as fast as any detour. When such copies sleep for
//! [`INLINE_WRITE_STALL`](crate::limits::INLINE_WRITE_STALL) or longer the
//! kernel is slowing its writer down: then the mount's writes leave the core
//! for a while. `RWF_NOWAIT` is of no use for that: ext4 refuses it for
//! buffered writes, and others refuse it for every write that extends a file.
//!
//! Files of servers and of user-space file systems are never written inline.
//! `fsync` never runs on the core.

use std::cell::Cell;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::buffer::Buf;
use crate::limits::{BUF_BYTES_MAX, INLINE_WRITE_BYTES_MAX};
use crate::send_queue::Segment;

mod mount;
mod ring;
mod sys;

pub use mount::{Learned, Medium, Mount, MountReport, medium_at, mounts};

/// An open file whose descriptor several may hold: an `OwnedFd`, or an object
/// that has one and closes it with its last owner.
pub type FileFd = Arc<dyn AsFd + Send + Sync>;

/// Where operations go that may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IoRoad {
    /// The core's own io_uring.
    Ring,
    /// Threads.
    Threads,
}

/// Which roads this core may take. All, unless configuration or a test says
/// otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RoadChoice {
    /// Try reads and writes on the core first.
    pub inline: bool,
    /// Use an io_uring if there is one.
    pub ring: bool,
}

impl Default for RoadChoice {
    fn default() -> Self {
        Self { inline: true, ring: true }
    }
}

thread_local! {
    static CHOICE: Cell<RoadChoice> = const { Cell::new(RoadChoice { inline: true, ring: true }) };
}

/// Sets which roads this core thread may take from now on.
pub fn choose_roads(choice: RoadChoice) {
    CHOICE.set(choice);
}

/// The road that waiting operations of this core take, and why.
#[must_use]
pub fn road() -> (IoRoad, String) {
    if !CHOICE.get().ring {
        return (IoRoad::Threads, "io_uring is switched off".to_owned());
    }
    match ring::availability() {
        Ok(()) => (IoRoad::Ring, "io_uring works".to_owned()),
        Err(reason) => (IoRoad::Threads, reason),
    }
}

/// As [`road`] without its words, for every operation.
fn takes_ring() -> bool {
    CHOICE.get().ring && ring::is_available()
}

/// Runs a call that may block on a thread meant for that, and waits for it.
/// The call runs to its end even if the wait is dropped.
///
/// # Errors
/// When the runtime is shutting down.
///
/// # Panics
/// When the call did: its panic goes on here.
pub async fn run_blocking<T, F>(call: F) -> io::Result<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    if STAYS.get() {
        return Ok(call());
    }
    tokio::task::spawn_blocking(call).await.map_err(|error| match error.try_into_panic() {
        Ok(panic) => std::panic::resume_unwind(panic),
        Err(error) => io::Error::other(error),
    })
}

thread_local! {
    static STAYS: Cell<bool> = const { Cell::new(false) };
}

/// From here on what [`run_blocking`] is given runs on this very thread: in a
/// simulator nothing blocks, and one thread decides the order of everything.
pub fn stay_on_this_thread() {
    STAYS.set(true);
}

/// True where [`stay_on_this_thread`] was called.
#[must_use]
pub fn stays() -> bool {
    STAYS.get()
}

/// An open regular file, and what is known about where it lies.
#[derive(Clone)]
pub struct File {
    fd: FileFd,
    mount: Arc<Mount>,
}

/// What came of an attempt that must not wait.
enum Attempt {
    /// All that was asked for, or all there is.
    Done,
    /// The rest would have to be waited for.
    WouldWait,
}

impl File {
    /// Whether what has to be waited for goes to the core's ring. Where a server or a
    /// process answers it does not: of a descriptor with `O_NONBLOCK` the kernel
    /// believes that it can be tried at once, on the core, and FUSE waits there.
    fn takes_ring(&self) -> bool {
        self.mount.medium() != Medium::Remote && takes_ring()
    }

    /// Looks up the mount of a regular file.
    ///
    /// # Errors
    /// `InvalidInput` when it is not a regular file, or what `fstat` says.
    pub fn new(fd: FileFd) -> io::Result<Self> {
        let mount = Mount::of(fd.as_fd())?;
        Ok(Self { fd, mount })
    }

    /// The same for what is known to be a regular file on the device with these numbers.
    ///
    /// # Errors
    /// What `fstatfs` says.
    pub fn on(fd: FileFd, major: u32, minor: u32) -> io::Result<Self> {
        let mount = Mount::at(rustix::fs::makedev(major, minor), fd.as_fd())?;
        Ok(Self { fd, mount })
    }

    /// The descriptor.
    #[must_use]
    pub fn fd(&self) -> &FileFd {
        &self.fd
    }

    /// What is known about the file system it lies on.
    #[must_use]
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// A range of the file as a frame's tail.
    #[must_use]
    pub fn segment(&self, offset: u64, len: usize) -> Segment {
        Segment::File { file: Arc::clone(&self.fd), offset, len }
    }

    /// Whether the range, which does not reach beyond the file's end, lies in
    /// the page cache, so that `sendfile` would not wait for a disk. Nothing
    /// keeps it there: this is advice.
    #[must_use]
    pub fn is_cached(&self, offset: u64, len: usize) -> bool {
        if self.mount.medium() == Medium::Memory || len == 0 {
            return true;
        }
        let Some(last) = offset.checked_add(len as u64 - 1) else { return false };
        if self.mount.may_cachestat() {
            let page = rustix::param::page_size() as u64;
            match sys::cached_pages(self.fd.as_fd(), offset, len as u64) {
                Ok(cached) => {
                    self.mount.learn_cachestat(true);
                    return cached > last / page - offset / page;
                }
                // Old kernels lack it, newer ones want ownership.
                Err(_) => self.mount.learn_cachestat(false),
            }
        }
        self.probe_cached(offset, last)
    }

    /// Reads a byte here and there without waiting.
    fn probe_cached(&self, offset: u64, last: u64) -> bool {
        const STEP: usize = 64 << 10;
        if !self.mount.may_read_nowait() {
            return false;
        }
        let mut byte = Buf::with_capacity(1);
        let mut at_hand = |at| {
            byte.clear();
            sys::read(self.fd.as_fd(), at, &mut byte, 1, libc::RWF_NOWAIT).is_ok()
        };
        (offset..last).step_by(STEP).all(&mut at_hand) && at_hand(last)
    }

    /// Reads up to `len` bytes at `offset` and appends them to `buf`; fewer
    /// only at the end of the file. If the future is dropped the kernel may go
    /// on, into memory that stays owned until it is done.
    ///
    /// # Errors
    /// What the file system says; the buffer then returns to its pool.
    ///
    /// # Panics
    /// When `len` is more than a [`Buf`] can hold.
    pub async fn read(&self, offset: u64, mut buf: Buf, len: usize) -> io::Result<Buf> {
        assert!(len <= BUF_BYTES_MAX, "read beyond every limit");
        // Beyond what an offset can say is beyond the end of any file.
        let len = len.min(usize::try_from(before_last_offset(offset)).unwrap_or(usize::MAX));
        buf.reserve(len);
        let (first, goal) = (buf.len(), buf.len() + len);
        let mut inline = true;
        while buf.len() < goal {
            let at = offset + (buf.len() - first) as u64;
            let missing = goal - buf.len();
            if let Attempt::Done = self.read_inline(at, &mut buf, missing)? {
                break;
            }
            inline = false;
            let at = offset + (buf.len() - first) as u64;
            let missing = goal - buf.len();
            let before = buf.len();
            buf = self.read_off_core(at, buf, missing).await?;
            if buf.len() == before {
                break;
            }
        }
        self.mount.count_read(inline);
        Ok(buf)
    }

    /// As [`Self::read`] where nothing has to be waited for: appends what is
    /// at hand, and says whether that was all there is to the request.
    ///
    /// # Errors
    /// What the file system says.
    pub fn try_read(&self, offset: u64, buf: &mut Buf, len: usize) -> io::Result<bool> {
        let len = len.min(usize::try_from(before_last_offset(offset)).unwrap_or(usize::MAX));
        buf.reserve(len);
        let done = matches!(self.read_inline(offset, buf, len)?, Attempt::Done);
        if done {
            self.mount.count_read(true);
        }
        Ok(done)
    }

    fn read_inline(&self, offset: u64, buf: &mut Buf, len: usize) -> io::Result<Attempt> {
        let in_memory = self.mount.medium() == Medium::Memory;
        if len == 0 {
            return Ok(Attempt::Done);
        }
        if !CHOICE.get().inline || !(in_memory || self.mount.may_read_nowait()) {
            return Ok(Attempt::WouldWait);
        }
        let flags = if in_memory { 0 } else { libc::RWF_NOWAIT };
        let mut done = 0;
        while done < len {
            let at = offset + done as u64;
            match sys::read(self.fd.as_fd(), at, buf, len - done, flags) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.mount.learn_read_nowait(true);
                    return Ok(Attempt::WouldWait);
                }
                Err(error) if !in_memory && mount::refuses(&error) => {
                    self.mount.learn_read_nowait(false);
                    return Ok(Attempt::WouldWait);
                }
                Err(error) => return Err(error),
            }
            self.mount.learn_read_nowait(true);
        }
        Ok(Attempt::Done)
    }

    async fn read_off_core(&self, offset: u64, buf: Buf, len: usize) -> io::Result<Buf> {
        if self.takes_ring() {
            let permit = permit(&self.mount.ring_ops).await?;
            let (buf, outcome) = ring::read(&self.fd, offset, buf, len, permit).await;
            return match outcome {
                Ok(_) => Ok(buf),
                // The kernel's worker was interrupted, or has given the wait up, as it
                // does where the medium fails: a thread finds out what is wrong.
                Err(error) if gave_up(&error) => self.read_on_thread(offset, buf, len).await,
                Err(error) => Err(error),
            };
        }
        self.read_on_thread(offset, buf, len).await
    }

    async fn read_on_thread(&self, offset: u64, mut buf: Buf, len: usize) -> io::Result<Buf> {
        self.run_blocking(move |fd| {
            loop {
                match sys::read(fd, offset, &mut buf, len, 0) {
                    Ok(_) => return Ok(buf),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        })
        .await
    }

    /// Writes all of `data` at `offset`. If the future is dropped part of it
    /// may have been, or may yet be, written.
    ///
    /// # Errors
    /// What the file system says; part of the data may then be written.
    pub async fn write<B>(&self, offset: u64, data: B) -> io::Result<()>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let len = data.as_ref().len();
        if len as u64 > before_last_offset(offset) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let mut done = 0;
        while let Attempt::Done = self.write_inline(offset, data.as_ref(), &mut done)? {
            if done == len {
                self.mount.count_write(true);
                return Ok(());
            }
            // A long write shares the core with others.
            tokio::task::yield_now().await;
        }
        self.mount.count_write(false);
        self.write_off_core(offset, Box::new(data), done).await
    }

    /// As [`Self::write`] for borrowed bytes: where they leave the core they
    /// are copied.
    ///
    /// # Errors
    /// As [`Self::write`].
    pub async fn write_slice(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.len() as u64 > before_last_offset(offset) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let mut done = 0;
        while let Attempt::Done = self.write_inline(offset, data, &mut done)? {
            if done == data.len() {
                self.mount.count_write(true);
                return Ok(());
            }
            // A long write shares the core with others.
            tokio::task::yield_now().await;
        }
        self.mount.count_write(false);
        let rest = Buf::copy_of(&data[done..]);
        self.write_off_core(offset + done as u64, Box::new(rest), 0).await
    }

    /// As [`Self::write`] where nothing has to be waited for. `None` means
    /// that it would have to be: the data, part of which may be written
    /// already, is for [`Self::write`].
    pub fn try_write(&self, offset: u64, data: &[u8]) -> Option<io::Result<()>> {
        if data.len() > INLINE_WRITE_BYTES_MAX || data.len() as u64 > before_last_offset(offset) {
            return None;
        }
        let mut done = 0;
        while done < data.len() {
            match self.write_inline(offset, data, &mut done) {
                Ok(Attempt::Done) => {}
                Ok(Attempt::WouldWait) => return None,
                Err(error) => return Some(Err(error)),
            }
        }
        self.mount.count_write(true);
        Some(Ok(()))
    }

    /// Writes a piece of `data[done..]` on the core, if that may be done.
    fn write_inline(&self, offset: u64, data: &[u8], done: &mut usize) -> io::Result<Attempt> {
        let rest = &data[*done..];
        let rest = &rest[..rest.len().min(INLINE_WRITE_BYTES_MAX)];
        if rest.is_empty() {
            return Ok(Attempt::Done);
        }
        if !CHOICE.get().inline {
            return Ok(Attempt::WouldWait);
        }
        let began = Instant::now();
        let plain = self.mount.may_write_inline(began);
        if !plain && !self.mount.may_write_nowait() {
            return Ok(Attempt::WouldWait);
        }
        let flags = if plain { 0 } else { libc::RWF_NOWAIT };
        let sleeps = self.mount.is_suspect().then(sys::voluntary_switches);
        match sys::write(self.fd.as_fd(), offset + *done as u64, rest, flags) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(count) => *done += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) if !plain && error.kind() == io::ErrorKind::WouldBlock => {
                return Ok(Attempt::WouldWait);
            }
            Err(error) if !plain && mount::refuses(&error) => {
                self.mount.learn_write_nowait(false);
                return Ok(Attempt::WouldWait);
            }
            Err(error) => return Err(error),
        }
        if plain {
            let slept = sleeps.map(|before| sys::voluntary_switches() != before);
            self.mount.wrote_inline(began, Instant::now(), slept);
        } else {
            self.mount.learn_write_nowait(true);
        }
        Ok(Attempt::Done)
    }

    async fn write_off_core<B>(&self, offset: u64, data: Box<B>, done: usize) -> io::Result<()>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        let (mut data, mut done) = (data, done);
        while done < (*data).as_ref().len() {
            if !self.takes_ring() {
                return self.write_on_thread(offset, data, done).await;
            }
            let permit = permit(&self.mount.blocking_calls).await?;
            let at = offset + done as u64;
            let (back, outcome) = ring::write(&self.fd, at, data, done, permit).await;
            match outcome {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if !gave_up(&error) => return Err(error),
                Err(_) => {
                    let data = back.ok_or_else(lost)?;
                    return self.write_on_thread(offset, data, done).await;
                }
            }
            data = back.ok_or_else(lost)?;
        }
        Ok(())
    }

    async fn write_on_thread<B>(&self, offset: u64, data: Box<B>, done: usize) -> io::Result<()>
    where
        B: AsRef<[u8]> + Send + 'static,
    {
        self.run_blocking(move |fd| {
            let bytes = (*data).as_ref();
            let mut done = done;
            while done < bytes.len() {
                match sys::write(fd, offset + done as u64, &bytes[done..], 0) {
                    Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                    Ok(count) => done += count,
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
            Ok(())
        })
        .await
    }

    /// Puts what was written on stable storage: with `data_only` the data and
    /// what is needed to find it (`fdatasync`), else the times as well.
    ///
    /// # Errors
    /// What the file system says. After a failure nothing may be concluded
    /// from a later success: the data may be gone.
    pub async fn sync(&self, data_only: bool) -> io::Result<()> {
        if self.takes_ring() {
            let permit = permit(&self.mount.blocking_calls).await?;
            return ring::sync(&self.fd, data_only, permit).await;
        }
        self.run_blocking(move |fd| {
            let outcome = if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) };
            Ok(outcome?)
        })
        .await
    }

    /// Runs a call on this file that may block (`fallocate`, `ftruncate`,
    /// `copy_file_range`...) off the core. One mount has only so many such
    /// calls under way: a disk that stalls holds up its own files.
    ///
    /// # Errors
    /// What the call returns, or that it could not be run.
    pub async fn run_blocking<T, F>(&self, call: F) -> io::Result<T>
    where
        F: FnOnce(BorrowedFd<'_>) -> io::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let permit = permit(&self.mount.blocking_calls).await?;
        let fd = Arc::clone(&self.fd);
        run_blocking(move || {
            let _permit = permit;
            call(fd.as_fd())
        })
        .await?
    }
}

/// Bytes between `offset` and the last offset the kernel can say.
fn before_last_offset(offset: u64) -> u64 {
    (i64::MAX as u64).saturating_sub(offset)
}

/// Whether an operation of the ring has ended with nothing found out.
fn gave_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

fn lost() -> io::Error {
    io::Error::other("the ring lost its data")
}

async fn permit(semaphore: &Arc<Semaphore>) -> io::Result<OwnedSemaphorePermit> {
    Arc::clone(semaphore).acquire_owned().await.map_err(io::Error::other)
}

#[cfg(test)]
mod tests;
