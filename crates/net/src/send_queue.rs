//! The queue of frames to send on one connection.
//!
//! Frames are pushed whole and leave in order. All frames that are ready leave in one vectored
//! write. A tail that lies in a file goes from the page cache to the socket by `sendfile` or
//! `splice` and never enters user space.
//!
//! A frame's prefix promises its length before its file tail is read. If the file has become
//! shorter meanwhile, zeros replace the missing bytes, as if the file had been cut a moment later.
//!
//! The queue belongs to one core: its calls take `&self` and lock nothing. On the server, handlers
//! push, and the connection's event loop calls [`SendQueue::try_flush`] and [`SendQueue::flush`].
//! On the client, one task for each connection runs [`SendQueue::run`].

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

/// Zeros to send for files that are shorter than promised.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes of a file tail that are copied at a time, if they must be copied.
const COPY_BYTES: usize = 256 << 10;

/// Memory of a waiting frame besides its bytes.
const FRAME_OVERHEAD_BYTES: usize = 768;

/// A piece of a frame.
pub enum Segment {
    /// Owned bytes.
    Buf(Buf),
    /// Shared bytes.
    Bytes(bytes::Bytes),
    /// A range of a file. It should lie in the page cache ([`crate::file_io::File::is_cached`]):
    /// other parts are read on the core, which waits.
    File {
        /// The file, open for reading.
        file: FileFd,
        /// Offset of the range in bytes.
        offset: u64,
        /// Length of the range in bytes; behind the file's end zeros are sent.
        len: usize,
    },
}

impl Segment {
    /// Returns the number of bytes that it adds to the frame.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Self::Buf(buf) => buf.len(),
            Self::Bytes(bytes) => bytes.len(),
            Self::File { len, .. } => *len,
        }
    }

    /// True if it adds no bytes.
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

/// A frame to send: segments that follow each other without a gap. The queue writes the prefix.
#[derive(Debug, Default)]
pub struct OutFrame {
    segments: SmallVec<[Segment; 2]>,
}

impl OutFrame {
    /// Makes a frame of one buffer. Four bytes of headroom save a segment.
    #[must_use]
    pub fn new(head: Buf) -> Self {
        let mut frame = Self::default();
        frame.push(head);
        frame
    }

    /// Makes a frame of a head and a tail.
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

    /// Returns the number of bytes without the prefix.
    #[must_use]
    pub fn len(&self) -> usize {
        self.segments.iter().map(Segment::len).sum()
    }

    /// True if the frame has no bytes.
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

/// An element of the queue: the segments of all frames, one after the other.
enum Waiting {
    Buf(Buf),
    Bytes(bytes::Bytes),
    File {
        file: FileFd,
        offset: u64,
        len: usize,
    },
    Zeros(usize),
    /// The end of a frame, which counts frames.
    End,
}

impl Waiting {
    /// Returns its first bytes if they are in memory.
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

/// The limits of a queue.
#[derive(Clone, Copy, Debug)]
pub struct SendLimits {
    /// Bytes that make the queue full.
    pub bytes: usize,
    /// Frames that make the queue full.
    pub frames: usize,
    /// Time in which the peer must take `rate_min`, or everything that waits.
    pub stall: Duration,
    /// Least rate of the peer, bytes per second.
    pub rate_min: u32,
    /// File tails shorter than this are copied, bytes.
    pub sendfile_from: usize,
    /// File tails of at least this length are spliced, bytes.
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

/// A queue of frames. See the module's text.
#[derive(Default)]
pub struct SendQueue {
    inner: RefCell<Inner>,
    limits: SendLimits,
    /// None while nothing waits for the transport.
    pace: Cell<Option<Pace>>,
    pushed: Notify,
}

/// The measure of a peer that keeps a queue waiting. It belongs to the queue and not to a call of
/// [`SendQueue::flush`], because callers drop those whenever the peer sends something.
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
    /// Bytes of the buffers in the queue.
    memory: usize,
    frames: usize,
    sent_bytes: u64,
    closed: bool,
    pipe: Option<Pipe>,
}

impl SendQueue {
    /// Makes an empty queue.
    #[must_use]
    pub fn new(limits: SendLimits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// Appends a frame. A full queue asks for back-pressure but takes further frames, because the
    /// reply to an accepted request must find room. After [`Self::close`] or a failure the frame is
    /// dropped.
    ///
    /// # Panics
    /// If the frame is longer than a prefix can tell: the negotiated sizes bound replies.
    pub fn push(&self, frame: OutFrame) {
        let mut inner = self.inner.borrow_mut();
        if inner.closed {
            return;
        }
        inner.append(frame);
        drop(inner);
        self.pushed.notify_one();
    }

    /// True if no more requests should be accepted for now.
    #[must_use]
    pub fn is_full(&self) -> bool {
        let inner = self.inner.borrow();
        inner.bytes >= self.limits.bytes || inner.frames >= self.limits.frames
    }

    /// True if nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.inner.borrow().waiting.is_empty()
    }

    /// True if it takes no more frames.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.inner.borrow().closed
    }

    /// Returns the number of waiting bytes, prefixes included.
    #[must_use]
    pub fn queued_bytes(&self) -> usize {
        self.inner.borrow().bytes
    }

    /// Returns an estimate of the memory of waiting frames: parts of files take none.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let inner = self.inner.borrow();
        inner.memory + inner.frames * FRAME_OVERHEAD_BYTES
    }

    /// Returns the number of waiting frames, including one that is partly sent.
    #[must_use]
    pub fn queued_frames(&self) -> usize {
        self.inner.borrow().frames
    }

    /// Returns the number of bytes given to the transport so far, prefixes included.
    #[must_use]
    pub fn sent_bytes(&self) -> u64 {
        self.inner.borrow().sent_bytes
    }

    /// Accepts no more frames; [`Self::run`] returns when the queue is empty.
    pub fn close(&self) {
        self.inner.borrow_mut().closed = true;
        self.pushed.notify_one();
    }

    /// Sends as much as the transport takes now. True if nothing is left.
    ///
    /// # Errors
    /// The transport's failure, or that of a file that cannot be read: the stream cannot continue.
    /// The queue is then closed and empty.
    pub fn try_flush(&self, stream: &Stream) -> io::Result<bool> {
        let mut inner = self.inner.borrow_mut();
        let outcome = inner.send(stream, &self.limits);
        if outcome.is_err() {
            inner.closed = true;
            inner.clear();
        }
        drop(inner);
        if !matches!(outcome, Ok(false)) {
            self.pace.set(None);
        }
        outcome
    }

    /// Sends everything that waits. Dropping the future loses nothing: the next call continues at
    /// the next byte.
    ///
    /// # Errors
    /// The errors of [`Self::try_flush`], and `TimedOut` if the peer takes nothing, or too little,
    /// for too long.
    pub async fn flush(&self, stream: &Stream) -> io::Result<()> {
        loop {
            // A peer that takes everything must not keep the core.
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

    /// Watches a peer that does not take waiting bytes; returns the time of the next look.
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
                return Err(io::Error::new(io::ErrorKind::TimedOut, "the peer reads too slowly"));
            }
        };
        let until = since + self.limits.stall;
        self.pace.set(Some(Pace { since, taken: Some(taken), until }));
        Ok(until)
    }

    /// Sends all pushed frames until the queue is closed and empty.
    ///
    /// # Errors
    /// The errors of [`Self::flush`].
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
            // An idle connection does not keep the memory of a burst.
            self.waiting = VecDeque::new();
        }
        Ok(true)
    }

    /// Makes one vectored write of the bytes in memory at the front.
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

    /// Puts a copy of the first bytes of the file tail at `index` before it, and returns their
    /// number.
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

    /// Makes one round from file to pipe to socket.
    fn splice_file(&mut self, stream: &Stream) -> io::Result<()> {
        let Some(Waiting::File { file, offset, len }) = self.waiting.front_mut() else {
            return Ok(());
        };
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            None => self.pipe.insert(Pipe::borrow()?),
        };
        // The offset counts bytes that the socket took; the pipe is ahead of it.
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

    /// Sends zeros for the promised rest, because the file at the front has ended.
    fn front_ends_in_zeros(&mut self) {
        if let Some(front) = self.waiting.front_mut()
            && let Waiting::File { len, .. } = front
        {
            *front = Waiting::Zeros(*len);
        }
    }

    /// Removes `count` sent bytes from the front, and frame ends behind them.
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

/// True if the error means that this file must be copied.
fn cannot(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EINVAL | libc::ENOSYS | libc::EOPNOTSUPP))
}

#[cfg(test)]
mod tests;
