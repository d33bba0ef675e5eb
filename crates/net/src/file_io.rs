//! File I/O by the fastest way that works.
//!
//! A read is first tried on the core with `preadv2(RWF_NOWAIT)`, which serves only data in the page
//! cache. Other data is read by the core's io_uring, or by a bounded set of threads if the kernel
//! forbids io_uring or if a server or process serves the file system. The calls that a file system
//! supports are learned once for each mount.
//!
//! A buffered write to a local disk is a copy into the page cache. It runs on the core, 1 MiB at a
//! time, while the disk keeps up: on ext4 that is three to four times as fast as any other way. If
//! such copies sleep for [`INLINE_WRITE_STALL`](crate::limits::INLINE_WRITE_STALL) or longer, the
//! kernel is slowing its writer down, and the mount's writes leave the core for a while.
//! `RWF_NOWAIT` does not help: ext4 refuses it for buffered writes, and others for every write that
//! extends a file.
//!
//! Data can be kept out of the page cache ([`Caching::NotKept`]): with `RWF_DONTCACHE` the same calls
//! do so, on the same descriptor, without demands on alignment, and see what others have cached.
//! `O_DIRECT` would need a second descriptor, which breaks leases of the host, and aligned copies;
//! docs/benchmarks/unbuffered.md compares them.
//!
//! Files of servers and of user-space file systems are never written on the core. `fsync` never
//! runs on the core.

use std::fmt;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, OnceLock};
use std::time::Instant;

use crate::buffer::Buf;
use crate::limits::{BUF_BYTES_MAX, INLINE_WRITE_BYTES_MAX};
use crate::send_queue::Segment;

mod mount;
mod prepared_rings;
mod ring;
mod roads;
mod sys;

pub use mount::{Learned, Medium, Mount, MountReport, medium_at, mounts};
#[doc(hidden)]
pub use prepared_rings::attempt_ring;
pub use prepared_rings::prepare_rings;
use roads::{CHOICE, takes_ring};
pub use roads::{IoRoad, RoadChoice, choose_roads, road, run_blocking, stay_on_this_thread, stays};
pub use sys::FileFd;
pub(crate) use sys::thread_usage;

/// The place for the error of a failed sync: an errno of the host.
pub type SyncFailure = Arc<OnceLock<i32>>;

/// Asks the kernel which pages of a file are cached: for tests of the confinement.
///
/// # Errors
/// The kernel's refusal.
#[doc(hidden)]
pub fn attempt_cachestat(file: &std::fs::File) -> io::Result<()> {
    sys::cached_pages(file.as_fd(), 0, 1).map(drop)
}

/// The question if a file may still be changed: another host may have its file system by now.
pub type Gate = Arc<dyn Fn() -> bool + Send + Sync>;

/// The error of a call that a [`Gate`] has refused.
#[derive(Debug)]
pub struct GateClosed;

impl fmt::Display for GateClosed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another host may have the file system by now")
    }
}

impl std::error::Error for GateClosed {}

/// True for the error of a call that a [`Gate`] has refused.
#[must_use]
pub fn is_gate_closed(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<GateClosed>())
}

/// An open regular file, with the facts about its mount.
#[derive(Clone)]
pub struct File {
    fd: FileFd,
    mount: Arc<Mount>,
    caching: Caching,
    gate: Option<Gate>,
}

/// The fate of data in the page cache after it was read or written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Caching {
    /// It stays as long as the kernel has room.
    #[default]
    Kept,
    /// It leaves the cache, unless it was there before or was written over old blocks, where the
    /// kernel (6.14) and the file system can do so. Elsewhere it stays.
    NotKept,
}

/// The result of an attempt that must not wait.
enum Attempt {
    /// The whole request is done, up to the end of the file.
    Done,
    /// The rest of the request would have to wait.
    WouldWait,
}

impl File {
    /// True if waiting operations use the core's ring. If a server or a process serves the file
    /// system they do not: for a descriptor with `O_NONBLOCK` the kernel tries them on the core
    /// first, and FUSE waits there.
    fn takes_ring(&self) -> bool {
        self.mount.medium() != Medium::Remote && takes_ring()
    }

    /// Makes a `File` from an open regular file, and looks its mount up.
    ///
    /// # Errors
    /// `InvalidInput` if it is not a regular file, or the error of `fstat`.
    pub fn new(fd: FileFd) -> io::Result<Self> {
        let mount = Mount::of(fd.as_fd())?;
        Ok(Self { fd, mount, caching: Caching::Kept, gate: None })
    }

    /// Makes a `File` from a descriptor that is known to be a regular file on the device with these
    /// numbers.
    ///
    /// # Errors
    /// The error of `fstatfs`.
    pub fn on(fd: FileFd, major: u32, minor: u32) -> io::Result<Self> {
        let mount = Mount::at(rustix::fs::makedev(major, minor), fd.as_fd())?;
        Ok(Self { fd, mount, caching: Caching::Kept, gate: None })
    }

    /// Sets what becomes of the data in the page cache.
    #[must_use]
    pub fn caching(self, caching: Caching) -> Self {
        Self { caching, ..self }
    }

    /// Asks `gate` right before each write, and before each call on a thread, however long they had to
    /// wait for their turn. Where it says no they fail with [`GateClosed`].
    #[must_use]
    pub fn gated(self, gate: Option<Gate>) -> Self {
        Self { gate, ..self }
    }

    fn check_gate(&self) -> io::Result<()> {
        match &self.gate {
            Some(gate) if !gate() => Err(io::Error::other(GateClosed)),
            _ => Ok(()),
        }
    }

    /// Returns the flag that keeps data out of the page cache, or none.
    fn cache_flag(&self) -> libc::c_int {
        let avoids = self.caching == Caching::NotKept && self.mount.may_dontcache();
        if avoids { sys::RWF_DONTCACHE } else { 0 }
    }

    /// Like [`Self::cache_flag`], for a write at `offset`. A write over old blocks goes without: the
    /// kernel's writeback keeps their pages all the same (ext4, Linux 6.18), and waits for each write.
    fn write_flag(&self, offset: u64) -> libc::c_int {
        let flag = self.cache_flag();
        if flag == 0 {
            return 0;
        }
        match rustix::fs::seek(self.fd.as_fd(), rustix::fs::SeekFrom::Hole(offset)) {
            Ok(hole) if hole != offset => 0,
            // No data follows the offset, so the write extends the file and the flag is useful.
            Ok(_) | Err(rustix::io::Errno::NXIO) => flag,
            Err(_) => 0,
        }
    }

    /// Learns from an outcome of a call with `flag` and `others`. If the kernel refuses the flag, it is
    /// cleared, and true tells that the call is to be tried again. A refusal may be about another flag.
    fn is_refused<T>(
        &self,
        flag: &mut libc::c_int,
        others: libc::c_int,
        outcome: &io::Result<T>,
    ) -> bool {
        if *flag == 0 {
            return false;
        }
        match outcome {
            Ok(_) => self.mount.learn_dontcache(true),
            Err(error) if error.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                if others == 0 {
                    self.mount.learn_dontcache(false);
                }
                *flag = 0;
                return true;
            }
            Err(_) => {}
        }
        false
    }

    /// Returns the file's descriptor.
    #[must_use]
    pub fn fd(&self) -> &FileFd {
        &self.fd
    }

    /// Returns the facts about the file's mount.
    #[must_use]
    pub fn mount(&self) -> &Mount {
        &self.mount
    }

    /// Returns a range of the file as the tail of a frame.
    #[must_use]
    pub fn segment(&self, offset: u64, len: usize) -> Segment {
        Segment::File { file: Arc::clone(&self.fd), offset, len }
    }

    /// True if the range, which must not extend beyond the file's end, lies in the page cache, so
    /// that `sendfile` would not wait for a disk. This is advice: nothing keeps the pages there.
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
                // Old kernels lack cachestat(2), and newer ones allow it only to the file's owner.
                // The mount remembers that.
                Err(_) => self.mount.learn_cachestat(false),
            }
        }
        self.probe_cached(offset, last)
    }

    /// Reads single bytes of the range without waiting.
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

    /// Reads up to `len` bytes at `offset` and appends them to `buf`; fewer only at the end of the
    /// file. If the future is dropped the kernel may continue, into memory that stays owned until
    /// it has finished.
    ///
    /// # Errors
    /// The file system's error; the buffer then returns to its pool.
    ///
    /// # Panics
    /// If `len` is more than a [`Buf`] can hold.
    pub async fn read(&self, offset: u64, mut buf: Buf, len: usize) -> io::Result<Buf> {
        let first = buf.len();
        if self.try_read(offset, &mut buf, len)? {
            return Ok(buf);
        }
        let done = buf.len() - first;
        self.read_rest(offset + done as u64, buf, len - done).await
    }

    /// Reads like [`Self::read`] where [`Self::try_read`] has appended what is available: `offset` and
    /// `len` are those of the rest.
    ///
    /// # Errors
    /// The file system's error; the buffer then returns to its pool.
    pub async fn read_rest(&self, offset: u64, mut buf: Buf, len: usize) -> io::Result<Buf> {
        let len = len.min(usize::try_from(before_last_offset(offset)).unwrap_or(usize::MAX));
        buf.reserve(len);
        let (first, goal) = (buf.len(), buf.len() + len);
        while buf.len() < goal {
            let at = offset + (buf.len() - first) as u64;
            let (before, missing) = (buf.len(), goal - buf.len());
            buf = self.read_off_core(at, buf, missing).await?;
            if buf.len() == before {
                break;
            }
            let at = offset + (buf.len() - first) as u64;
            let missing = goal - buf.len();
            if let Attempt::Done = self.read_inline(at, &mut buf, missing)? {
                break;
            }
        }
        self.mount.count_read(false);
        Ok(buf)
    }

    /// Reads like [`Self::read`] without waiting: appends the available bytes, and returns true if
    /// that was the whole request.
    ///
    /// # Errors
    /// The file system's error.
    ///
    /// # Panics
    /// If `len` is more than a [`Buf`] can hold.
    pub fn try_read(&self, offset: u64, buf: &mut Buf, len: usize) -> io::Result<bool> {
        assert!(len <= BUF_BYTES_MAX, "read beyond every limit");
        // No file has bytes beyond the largest offset, so only bytes before it are requested.
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
        let nowait = if in_memory { 0 } else { libc::RWF_NOWAIT };
        let (mut done, mut flag) = (0, self.cache_flag());
        while done < len {
            let at = offset + done as u64;
            let outcome = sys::read(self.fd.as_fd(), at, buf, len - done, nowait | flag);
            if self.is_refused(&mut flag, nowait, &outcome) {
                continue;
            }
            match outcome {
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
            let permit = self.mount.ring_ops.take().await;
            let mut flag = self.cache_flag();
            let (buf, outcome) = ring::read(&self.fd, offset, buf, len, flag, permit).await;
            let is_refused = self.is_refused(&mut flag, 0, &outcome);
            return match outcome {
                Ok(_) => Ok(buf),
                Err(_) if is_refused => self.read_on_thread(offset, buf, len).await,
                // A kernel worker was interrupted or gave up, as it does when the medium fails.
                // Reading again on a thread returns the real error.
                Err(error) if gave_up(&error) => self.read_on_thread(offset, buf, len).await,
                Err(error) => Err(error),
            };
        }
        self.read_on_thread(offset, buf, len).await
    }

    async fn read_on_thread(&self, offset: u64, mut buf: Buf, len: usize) -> io::Result<Buf> {
        let file = self.clone();
        self.run_blocking(move |fd| {
            let mut flag = file.cache_flag();
            loop {
                let outcome = sys::read(fd, offset, &mut buf, len, flag);
                if file.is_refused(&mut flag, 0, &outcome) {
                    continue;
                }
                match outcome {
                    Ok(_) => return Ok(buf),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(error),
                }
            }
        })
        .await
    }

    /// Writes all of `data` at `offset`: on the core while that need not wait, the rest off it, from
    /// a copy. If the future is dropped part of the data may have been, or may yet be, written.
    ///
    /// # Errors
    /// The file system's error; part of the data may then be written.
    ///
    /// # Panics
    /// If the rest to copy is more than a [`Buf`] can hold.
    pub async fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        if data.len() as u64 > before_last_offset(offset) {
            return Err(io::Error::from_raw_os_error(libc::EFBIG));
        }
        let mut done = 0;
        while let Attempt::Done = self.write_inline(offset, data, &mut done)? {
            if done == data.len() {
                self.mount.count_write(true);
                return Ok(());
            }
            // Between the parts of a long write the other tasks of this core may run.
            tokio::task::yield_now().await;
        }
        self.mount.count_write(false);
        self.write_off_core(offset + done as u64, Buf::copy_of(&data[done..])).await
    }

    /// Writes like [`Self::write`] without waiting. `None` if that is not possible: part of the data
    /// may be written, and [`Self::write`] must write all of it.
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

    /// Writes a piece of `data[done..]` on the core, if that need not wait.
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
        self.check_gate()?;
        let nowait = if plain { 0 } else { libc::RWF_NOWAIT };
        let sleeps = self.mount.is_suspect().then(sys::voluntary_switches);
        let at = offset + *done as u64;
        let mut flag = self.write_flag(at);
        let mut outcome = sys::write(self.fd.as_fd(), at, rest, nowait | flag);
        if self.is_refused(&mut flag, nowait, &outcome) {
            outcome = sys::write(self.fd.as_fd(), at, rest, nowait);
        }
        match outcome {
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

    /// Writes all of `data` at `offset` by the ring, or on a thread if this core has no ring or the
    /// ring gives the write up.
    async fn write_off_core(&self, offset: u64, data: Buf) -> io::Result<()> {
        let (mut data, mut done) = (Box::new(data), 0);
        let mut flag = self.write_flag(offset);
        while done < data.len() {
            if !self.takes_ring() {
                return self.write_on_thread(offset, data, done).await;
            }
            let permit = self.mount.blocking_calls.take().await;
            self.check_gate()?;
            let at = offset + done as u64;
            let (back, outcome) = ring::write(&self.fd, at, data, done, flag, permit).await;
            let is_refused = self.is_refused(&mut flag, 0, &outcome);
            match outcome {
                Err(_) if is_refused => {}
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

    async fn write_on_thread(&self, offset: u64, data: Box<Buf>, done: usize) -> io::Result<()> {
        let file = self.clone();
        self.run_blocking(move |fd| {
            let (mut done, mut flag) = (done, file.write_flag(offset + done as u64));
            while done < data.len() {
                file.check_gate()?;
                let outcome = sys::write(fd, offset + done as u64, &data[done..], flag);
                if file.is_refused(&mut flag, 0, &outcome) {
                    continue;
                }
                match outcome {
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

    /// Makes all writes stable: with `data_only` the data and the metadata needed to find it
    /// (`fdatasync`), else also the times.
    ///
    /// # Errors
    /// The file system's error, which `failure` gets too, also when nobody waits any more. A success
    /// after a failure means nothing: data may have been lost.
    pub async fn sync(&self, data_only: bool, failure: &SyncFailure) -> io::Result<()> {
        if self.takes_ring() {
            let permit = self.mount.blocking_calls.take().await;
            match ring::sync(&self.fd, data_only, failure, permit).await {
                Err(error) if gave_up(&error) => {}
                outcome => return outcome,
            }
        }
        let failure = Arc::clone(failure);
        self.run_blocking(move |fd| {
            let sync = || if data_only { rustix::fs::fdatasync(fd) } else { rustix::fs::fsync(fd) };
            let outcome = rustix::io::retry_on_intr(sync);
            if let Err(errno) = outcome {
                let _ = failure.set(errno.raw_os_error());
            }
            Ok(outcome?)
        })
        .await
    }

    /// Runs a call on this file that may block (`fallocate`, `ftruncate`, `copy_file_range`...) off
    /// the core. The number of such calls is limited for each mount: a stalled disk delays only its
    /// own files.
    ///
    /// # Errors
    /// The error of the call, or the reason why it could not run.
    pub async fn run_blocking<T, F>(&self, call: F) -> io::Result<T>
    where
        F: FnOnce(BorrowedFd<'_>) -> io::Result<T> + Send + 'static,
        T: Send + 'static,
    {
        let permit = self.mount.blocking_calls.take().await;
        let file = self.clone();
        run_blocking(move || {
            let _permit = permit;
            file.check_gate()?;
            call(file.fd.as_fd())
        })
        .await?
    }
}

/// Returns the bytes between `offset` and the kernel's largest offset.
fn before_last_offset(offset: u64) -> u64 {
    (i64::MAX as u64).saturating_sub(offset)
}

/// True if an operation of the ring ended without a meaningful result.
fn gave_up(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock)
}

fn lost() -> io::Error {
    io::Error::other("the ring lost its data")
}

#[cfg(test)]
mod tests;
