//! What waits to be sent on one connection.
//!
//! Frames are pushed whole and leave in order. What is ready together leaves
//! in one vectored write; a tail that lies in a file goes from the page cache
//! to the socket by `sendfile` or `splice` and never enters user space.
//!
//! A frame's length is promised by its prefix before its file tail is read.
//! Where the file has become shorter meanwhile, zeros take the place of what
//! is missing, as they would had the file been cut a moment later.
//!
//! The queue belongs to one core: its calls take `&self` and lock nothing.
//! Handlers push; one task per connection runs [`SendQueue::run`].

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice};
use std::time::Duration;

use smallvec::SmallVec;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};

use crate::buffer::Buf;
use crate::file_io::FileFd;
use crate::limits::{
    FRAME_BYTES_MAX, SEND_BLOCKED_LOOK, SEND_IOV_MAX, SEND_QUEUE_BYTES_MAX, SEND_QUEUE_FRAMES_MAX,
    SEND_RATE_MIN, SEND_STALL_TIMEOUT, SENDFILE_BYTES_MIN, SPLICE_BYTES_MIN,
};
use crate::send_queue::pipe::Pipe;
use crate::transport::Stream;

mod pipe;

/// Zeros to send from, for files that turn out short.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes of a file tail copied at a time where they have to be copied.
const COPY_BYTES: usize = 256 << 10;

/// Bytes that a waiting frame takes beyond what it says.
const FRAME_OVERHEAD_BYTES: usize = 768;

/// A piece of a frame.
pub enum Segment {
    /// Owned bytes.
    Buf(Buf),
    /// Shared bytes.
    Bytes(bytes::Bytes),
    /// A range of a file. Best when it lies in the page cache
    /// ([`crate::file_io::File::is_cached`]): what does not is waited for on the core.
    File {
        /// The file, open for reading.
        file: FileFd,
        /// Where the range begins, in bytes.
        offset: u64,
        /// Bytes of the range; beyond the file's end zeros are sent.
        len: usize,
    },
}

impl Segment {
    /// Bytes it adds to the frame.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Buf(buf) => buf.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::File { len, .. } => *len,
        }
    }

    /// Whether it adds none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl fmt::Debug for Segment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Buf(buf) => write!(f, "Buf({})", buf.len()),
            Self::Bytes(bytes) => write!(f, "Bytes({})", bytes.len()),
            Self::File { offset, len, .. } => write!(f, "File({offset}, {len})"),
        }
    }
}

impl From<Buf> for Segment {
    fn from(buf: Buf) -> Self {
        Self::Buf(buf)
    }
}

impl From<bytes::Bytes> for Segment {
    fn from(bytes: bytes::Bytes) -> Self {
        Self::Bytes(bytes)
    }
}

/// A frame to be sent: segments that follow each other without a gap. The
/// prefix is the queue's business.
#[derive(Debug, Default)]
pub struct OutFrame {
    segments: SmallVec<[Segment; 2]>,
}

impl OutFrame {
    /// A frame of one buffer. Four bytes of headroom save a segment.
    #[must_use]
    pub fn new(head: Buf) -> Self {
        let mut frame = Self::default();
        frame.push(head);
        frame
    }

    /// A frame of a head and a tail.
    #[must_use]
    pub fn with_tail(head: Buf, tail: impl Into<Segment>) -> Self {
        let mut frame = Self::new(head);
        frame.push(tail);
        frame
    }

    /// Appends a segment.
    pub fn push(&mut self, segment: impl Into<Segment>) {
        self.segments.push(segment.into());
    }

    /// Bytes of the frame, prefix not counted.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    /// Whether the frame has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl From<Buf> for OutFrame {
    fn from(head: Buf) -> Self {
        Self::new(head)
    }
}

/// What stands in the queue: segments of all frames, one after the other.
enum Waiting {
    Buf(Buf),
    Bytes(bytes::Bytes),
    File {
        file: FileFd,
        offset: u64,
        len: usize,
    },
    Zeros(usize),
    /// The end of a frame, to count frames by.
    End,
}

impl Waiting {
    /// The first bytes of it that lie in memory.
    fn memory(&self) -> Option<&[u8]> {
        match self {
            Self::Buf(buf) => Some(buf),
            Self::Bytes(bytes) => Some(bytes),
            Self::Zeros(len) => Some(&ZEROS[..(*len).min(ZEROS.len())]),
            Self::File { .. } => None,
            Self::End => Some(&[]),
        }
    }
}

/// Bounds and patience of a queue.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// Bytes from which on the queue is full.
    pub bytes: usize,
    /// Frames from which on the queue is full.
    pub frames: usize,
    /// The time in which the peer has to take `rate_min`, or all that waits.
    pub stall: Duration,
    /// Bytes per second.
    pub rate_min: u32,
    /// File tails shorter than this are copied.
    pub sendfile_from: usize,
    /// File tails of this length and more are spliced.
    pub splice_from: usize,
}

impl Default for SendLimits {
    fn default() -> Self {
        Self {
            bytes: SEND_QUEUE_BYTES_MAX,
            frames: SEND_QUEUE_FRAMES_MAX,
            stall: SEND_STALL_TIMEOUT,
            rate_min: SEND_RATE_MIN,
            sendfile_from: SENDFILE_BYTES_MIN,
            splice_from: SPLICE_BYTES_MIN,
        }
    }
}

/// Frames on their way out. See the module's text.
#[derive(Default)]
pub struct SendQueue {
    inner: RefCell<Inner>,
    limits: SendLimits,
    /// None while nothing waits for the transport.
    pace: Cell<Option<Pace>>,
    pushed: Notify,
    drained: Notify,
}

/// How a peer that keeps a queue waiting is watched. It belongs to the queue and not to a
/// call of [`SendQueue::flush`], as callers drop those whenever the peer sends something.
#[derive(Clone, Copy, Debug)]
struct Pace {
    /// The beginning of the period.
    since: Instant,
    /// Bytes that the peer had taken at `since`. None until the queue is blocked for long.
    taken: Option<u64>,
    /// The time of the next look.
    until: Instant,
}

#[derive(Default)]
struct Inner {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    /// Bytes of the buffers that hold them.
    memory: usize,
    frames: usize,
    sent_bytes: u64,
    closed: bool,
    pipe: Option<Pipe>,
}

impl SendQueue {
    /// An empty queue.
    #[must_use]
    pub fn new(limits: SendLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Appends a frame. Fullness is a request for back-pressure, not a wall:
    /// the reply to a request already accepted must find room. After
    /// [`Self::close`] or a failure the frame is dropped.
    ///
    /// # Panics
    /// When the frame is longer than a prefix can say: replies are bounded by
    /// what was negotiated.
    pub fn push(&self, frame: OutFrame) {
        let mut inner = self.inner.borrow_mut();
        if inner.closed {
            return;
        }
        inner.append(frame);
        drop(inner);
        self.pushed.notify_one();
    }

    /// Whether no more requests should be accepted for now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let inner = self.inner.borrow();
        inner.bytes >= self.limits.bytes || inner.frames >= self.limits.frames
    }

    /// Whether nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.borrow().waiting.is_empty()
    }

    /// Whether it takes no more frames.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.borrow().closed
    }

    /// Bytes that wait, prefixes included.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.inner.borrow().bytes
    }

    /// An estimate of the memory that what waits takes: parts of files take none.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let inner = self.inner.borrow();
        inner.memory + inner.frames * FRAME_OVERHEAD_BYTES
    }

    /// Frames that wait, one begun to be sent included.
    #[must_use]
    pub fn queued_frames(&self) -> usize {
        self.inner.borrow().frames
    }

    /// All bytes handed to the transport so far, prefixes included.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.inner.borrow().sent_bytes
    }

    /// Waits until the queue is not full, or closed.
    pub async fn room(&self) {
        while self.is_full() && !self.is_closed() {
            self.drained.notified().await;
        }
    }

    /// Waits until nothing waits to be sent, or the queue has failed.
    pub async fn wait_empty(&self) {
        while !self.is_empty() {
            self.drained.notified().await;
        }
    }

    /// Accepts no more frames; [`Self::run`] returns when what waits is sent.
    pub fn close(&self) {
        self.inner.borrow_mut().closed = true;
        self.pushed.notify_one();
        self.drained.notify_waiters();
    }

    /// Sends what the transport takes now. True when nothing is left.
    ///
    /// # Errors
    /// The transport's failure, or a file's that cannot be read: the stream
    /// cannot go on from there. The queue is then closed and empty.
    pub fn try_flush(&self, stream: &Stream) -> io::Result<bool> {
        let mut inner = self.inner.borrow_mut();
        let before = inner.sent_bytes;
        let outcome = inner.send(stream, &self.limits);
        if outcome.is_err() {
            inner.closed = true;
            inner.clear();
        }
        let moved = inner.sent_bytes != before || outcome.is_err();
        drop(inner);
        if !matches!(outcome, Ok(false)) {
            self.pace.set(None);
        }
        if moved {
            self.drained.notify_waiters();
        }
        outcome
    }

    /// Sends all that waits. Dropping the future loses nothing: the next call
    /// goes on at the byte where this one was.
    ///
    /// # Errors
    /// As [`Self::try_flush`], and `TimedOut` when the peer takes nothing, or too
    /// little, for too long.
    pub async fn flush(&self, stream: &Stream) -> io::Result<()> {
        loop {
            // A peer that takes all we have must not keep the core.
            tokio::task::coop::consume_budget().await;
            if self.try_flush(stream)? {
                return Ok(());
            }
            let until = self.watch(stream).inspect_err(|_| self.fail())?;
            if let Ok(ready) = timeout_at(until, stream.writable()).await {
                ready?;
            }
        }
    }

    /// Watches a peer that does not take what waits; returns when to look again.
    fn watch(&self, stream: &Stream) -> io::Result<Instant> {
        let now = Instant::now();
        let Some(pace) = self.pace.get() else {
            let until = now + SEND_BLOCKED_LOOK.min(self.limits.stall / 4);
            self.pace.set(Some(Pace { since: now, taken: None, until }));
            return Ok(until);
        };
        if now < pace.until {
            return Ok(pace.until);
        }
        let taken = self.sent_bytes().saturating_sub(stream.unacknowledged_bytes()? as u64);
        let needed = self.limits.stall.as_millis() as u64 * u64::from(self.limits.rate_min) / 1_000;
        let since = match pace.taken {
            None => pace.since,
            Some(before) if taken.saturating_sub(before) >= needed.max(1) => now,
            Some(_) => {
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer takes too little"));
            }
        };
        let until = since + self.limits.stall;
        self.pace.set(Some(Pace { since, taken: Some(taken), until }));
        Ok(until)
    }

    /// Sends whatever is pushed until the queue is closed and empty.
    ///
    /// # Errors
    /// As [`Self::flush`].
    pub async fn run(&self, stream: &Stream) -> io::Result<()> {
        loop {
            self.flush(stream).await?;
            if self.is_closed() {
                return Ok(());
            }
            self.pushed.notified().await;
        }
    }

    fn fail(&self) {
        let mut inner = self.inner.borrow_mut();
        inner.closed = true;
        inner.clear();
        drop(inner);
        self.drained.notify_waiters();
    }
}

impl Inner {
    fn append(&mut self, mut frame: OutFrame) {
        let len = frame.len();
        let prefix = u32::try_from(len).ok().filter(|&len| len <= FRAME_BYTES_MAX);
        let prefix = prefix.expect("frame longer than its prefix can say").to_be_bytes();
        match frame.segments.first_mut() {
            Some(Segment::Buf(head)) if head.headroom() >= prefix.len() => head.push_front(&prefix),
            _ => {
                let head = Buf::copy_of(&prefix);
                self.memory += head.capacity();
                self.waiting.push_back(Waiting::Buf(head));
            }
        }
        self.bytes += prefix.len() + len;
        self.frames += 1;
        for segment in frame.segments {
            match segment {
                empty if empty.is_empty() => {}
                Segment::Buf(buf) => {
                    self.memory += buf.capacity();
                    self.waiting.push_back(Waiting::Buf(buf));
                }
                Segment::Bytes(bytes) => {
                    self.memory += bytes.len();
                    self.waiting.push_back(Waiting::Bytes(bytes));
                }
                Segment::File { file, offset, len } => {
                    self.waiting.push_back(Waiting::File { file, offset, len });
                }
            }
        }
        self.waiting.push_back(Waiting::End);
    }

    fn clear(&mut self) {
        self.waiting = VecDeque::new();
        self.bytes = 0;
        self.memory = 0;
        self.frames = 0;
        self.pipe = None;
    }

    /// Sends until nothing is left (true) or the transport is full (false).
    fn send(&mut self, stream: &Stream, limits: &SendLimits) -> io::Result<bool> {
        let copied_below = match stream.socket() {
            Some(_) => limits.sendfile_from,
            None => usize::MAX,
        };
        while !self.waiting.is_empty() {
            let sent = match self.waiting.front() {
                Some(Waiting::File { len, .. }) if *len >= copied_below || self.pipe.is_some() => {
                    self.send_file(stream, limits.splice_from)
                }
                _ => self.send_memory(stream, copied_below),
            };
            match sent {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        if self.waiting.capacity() > 32 {
            // A burst's memory is not kept by an idle connection.
            self.waiting = VecDeque::new();
        }
        Ok(true)
    }

    /// One vectored write of what lies in memory at the front.
    fn send_memory(&mut self, stream: &Stream, copied_below: usize) -> io::Result<()> {
        let mut index = 0;
        let mut copied = 0;
        while index < self.waiting.len().min(SEND_IOV_MAX) && copied < COPY_BYTES {
            if let Waiting::File { len, .. } = &self.waiting[index] {
                if *len >= copied_below {
                    break;
                }
                copied += self.copy_file(index)?;
            }
            index += 1;
        }
        let more = matches!(self.waiting.get(index), Some(Waiting::File { .. }));
        let mut slices: SmallVec<[IoSlice<'_>; 16]> = SmallVec::new();
        for waiting in self.waiting.iter().take(index) {
            match waiting.memory() {
                Some([]) => {}
                Some(bytes) => slices.push(IoSlice::new(bytes)),
                None => break,
            }
            if matches!(waiting, Waiting::Zeros(len) if *len > ZEROS.len()) {
                break;
            }
        }
        let count = if slices.is_empty() { 0 } else { stream.try_write_vectored(&slices, more)? };
        drop(slices);
        self.consume(count);
        Ok(())
    }

    /// Puts a copy of the beginning of the file tail at `index` in front of
    /// it, and returns how many bytes that are.
    fn copy_file(&mut self, index: usize) -> io::Result<usize> {
        let Waiting::File { file, offset, len } = &mut self.waiting[index] else { return Ok(0) };
        let count = (*len).min(COPY_BYTES);
        let mut buf = Buf::with_capacity(count);
        while buf.len() < count {
            let room = count - buf.len();
            let at = *offset + buf.len() as u64;
            match rustix::io::pread(file.as_fd(), &mut buf.memory_mut()[..room], at) {
                Ok(0) => break,
                Ok(read) => buf.set_filled(read),
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        buf.resize(count, 0);
        *offset += count as u64;
        *len -= count;
        self.memory += buf.capacity();
        if *len == 0 {
            self.waiting[index] = Waiting::Buf(buf);
        } else {
            self.waiting.insert(index, Waiting::Buf(buf));
        }
        Ok(count)
    }

    /// Moves bytes of the file tail at the front to the socket.
    fn send_file(&mut self, stream: &Stream, splice_from: usize) -> io::Result<()> {
        let Some(Waiting::File { file, offset, len }) = self.waiting.front_mut() else {
            return Ok(());
        };
        if self.pipe.is_some() || *len >= splice_from {
            return self.splice_file(stream);
        }
        let mut at = *offset;
        let asked = *len;
        let sent = stream.try_write_with(|socket| {
            Ok(rustix::fs::sendfile(socket, file.as_fd(), Some(&mut at), asked)?)
        });
        match sent {
            Ok(0) => self.front_ends_in_zeros(),
            Ok(count) => self.consume(count),
            // This file system cannot do it: copy.
            Err(error) if cannot(&error) => {
                self.copy_file(0)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// One round of file to pipe to socket.
    fn splice_file(&mut self, stream: &Stream) -> io::Result<()> {
        let Some(Waiting::File { file, offset, len }) = self.waiting.front_mut() else {
            return Ok(());
        };
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            None => self.pipe.insert(Pipe::borrow()?),
        };
        // The offset counts what the socket took; the pipe is ahead of it.
        let (at, wanted) = (*offset + pipe.held() as u64, *len - pipe.held());
        if wanted > 0 && pipe.room() > 0 {
            match pipe.fill(file.as_fd(), at, wanted) {
                Ok(0) if pipe.held() == 0 => {
                    self.pipe = None;
                    self.front_ends_in_zeros();
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) if cannot(&error) && pipe.held() == 0 => {
                    self.pipe = None;
                    return self.copy_file(0).map(drop);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && pipe.held() > 0 => {}
                Err(error) => return Err(error),
            }
        }
        let count = pipe.drain(stream, pipe.held() < *len)?;
        let empty = pipe.held() == 0;
        if empty && count == *len {
            self.pipe = None;
        }
        self.consume(count);
        Ok(())
    }

    /// The file at the front has ended: zeros for what was promised.
    fn front_ends_in_zeros(&mut self) {
        if let Some(front) = self.waiting.front_mut()
            && let Waiting::File { len, .. } = front
        {
            *front = Waiting::Zeros(*len);
        }
    }

    /// Takes `count` sent bytes off the front, and the ends behind them.
    fn consume(&mut self, mut count: usize) {
        self.bytes -= count;
        self.sent_bytes += count as u64;
        while let Some(front) = self.waiting.front_mut() {
            let left = match front {
                Waiting::End => {
                    self.frames -= 1;
                    0
                }
                _ if count == 0 => return,
                Waiting::Buf(buf) => {
                    let taken = count.min(buf.len());
                    buf.advance(taken);
                    count -= taken;
                    if buf.is_empty() {
                        self.memory -= buf.capacity();
                    }
                    buf.len()
                }
                Waiting::Bytes(bytes) => {
                    let taken = count.min(bytes.len());
                    *bytes = bytes.split_off(taken);
                    self.memory -= taken;
                    count -= taken;
                    bytes.len()
                }
                Waiting::File { offset, len, .. } => {
                    let taken = count.min(*len);
                    *offset += taken as u64;
                    *len -= taken;
                    count -= taken;
                    *len
                }
                Waiting::Zeros(len) => {
                    let taken = count.min(*len);
                    *len -= taken;
                    count -= taken;
                    *len
                }
            };
            if left == 0 {
                self.waiting.pop_front();
            }
        }
    }
}

/// Whether the error says that this file cannot be sent without copying.
fn cannot(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests;
