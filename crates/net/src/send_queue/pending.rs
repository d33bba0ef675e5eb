//! The segments that wait, and the calls that send them.

use std::collections::VecDeque;
use std::io::{self, IoSlice};

use bytes::Bytes;
use smallvec::SmallVec;

use super::SendLimits;
use super::frame::{OutFrame, Segment};
use super::pipe::Pipe;
use crate::buffer::Buf;
use crate::limits::{FRAME_BYTES_MAX, SEND_IOV_MAX, SEND_STEP_BYTES};
use crate::transport::Stream;
use crate::watchdog;

/// Zeros to send for files that are shorter than promised.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// Bytes of a file tail that are copied at a time, if they must be copied.
const COPY_BYTES: usize = 256 << 10;

/// Bytes of the least buffer that is given to a stream which keeps it. Smaller ones are copied.
const GIVEN_BYTES_MIN: usize = 16 << 10;

/// Memory of a waiting frame besides its bytes.
pub(super) const FRAME_OVERHEAD_BYTES: usize = 768;

/// An element of the queue: the segments of all frames, one after the other.
pub(super) enum Waiting {
    Segment(Segment),
    /// The number of zeros to send in place of a file's missing end.
    Zeros(usize),
    /// The end of a frame, which counts frames.
    End,
}

impl Waiting {
    /// Returns its first bytes if they are in memory.
    fn memory(&self) -> Option<&[u8]> {
        match self {
            Self::Segment(Segment::Buf(buf)) => Some(buf),
            Self::Segment(Segment::Bytes(bytes)) => Some(bytes),
            Self::Segment(Segment::File { .. }) => None,
            Self::Zeros(len) => Some(&ZEROS[..(*len).min(ZEROS.len())]),
            Self::End => Some(&[]),
        }
    }
}

/// The end of a call that sends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    /// Nothing is left.
    All,
    /// The transport takes no more for now.
    Some,
    /// Others should have their turn first.
    Step,
}

/// The waiting segments and their sums.
#[derive(Default)]
pub(super) struct Pending {
    pub(super) waiting: VecDeque<Waiting>,
    pub(super) bytes: usize,
    /// Bytes of the buffers in the queue.
    pub(super) memory: usize,
    pub(super) frames: usize,
    pub(super) sent_bytes: u64,
    pub(super) closed: bool,
    pipe: Option<Pipe>,
}

impl Pending {
    pub(super) fn append(&mut self, mut frame: OutFrame) {
        let len = frame.len();
        let prefix = u32::try_from(len).ok().filter(|&len| len <= FRAME_BYTES_MAX);
        let prefix = prefix.expect("frame longer than its prefix can say").to_be_bytes();
        if let Some(key) = frame.invalidates {
            self.append_key(prefix, key);
            return self.append_segments(frame);
        }
        match frame.segments.first_mut() {
            Some(Segment::Buf(head)) if head.headroom() >= prefix.len() => head.push_front(&prefix),
            _ => {
                let head = Segment::Buf(Buf::copy_of(&prefix));
                self.memory += head.memory();
                self.bytes += prefix.len();
                self.waiting.push_back(Waiting::Segment(head));
            }
        }
        self.append_segments(frame);
    }

    /// Appends a prefix with a key that the frame invalidates.
    fn append_key(&mut self, [_, a, b, c]: [u8; 4], key: u32) {
        let mut head = Buf::copy_of(&[crate::rdma::PREFIX_INVALIDATES, a, b, c]);
        head.extend_from_slice(&key.to_be_bytes());
        self.bytes += head.len();
        self.memory += head.capacity();
        self.waiting.push_back(Waiting::Segment(head.into()));
    }

    /// Appends the segments of a frame behind its prefix.
    fn append_segments(&mut self, frame: OutFrame) {
        self.bytes += frame.len();
        self.frames += 1;
        for segment in frame.segments.into_iter().filter(|segment| !segment.is_empty()) {
            self.memory += segment.memory();
            self.waiting.push_back(Waiting::Segment(segment));
        }
        self.waiting.push_back(Waiting::End);
    }

    pub(super) fn clear(&mut self) {
        self.waiting = VecDeque::new();
        self.bytes = 0;
        self.memory = 0;
        self.frames = 0;
        self.pipe = None;
    }

    /// Sends until nothing is left, or the transport is full, or others should have their turn.
    pub(super) fn send(&mut self, stream: &Stream, limits: &SendLimits) -> io::Result<Sent> {
        let step = if watchdog::is_shared() { SEND_STEP_BYTES } else { usize::MAX };
        let copied_below = match stream.socket() {
            Some(_) => limits.sendfile_from,
            None => usize::MAX,
        };
        while !self.waiting.is_empty() {
            let sent = match self.waiting.front() {
                Some(Waiting::Segment(Segment::File { len, .. }))
                    if *len >= copied_below || self.pipe.is_some() =>
                {
                    self.send_file(stream, limits.splice_from, step)
                }
                _ => self.send_memory(stream, copied_below, step),
            };
            match sent {
                Ok(()) if self.bytes > 0 && step < usize::MAX && watchdog::is_due() => {
                    return Ok(Sent::Step);
                }
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(Sent::Some),
                Err(error) => return Err(error),
            }
        }
        if self.waiting.capacity() > 32 {
            // The queue's memory, which a burst may have enlarged, is freed.
            self.waiting = VecDeque::new();
        }
        Ok(Sent::All)
    }

    /// Makes one vectored write of the bytes in memory at the front, `most` of them.
    fn send_memory(&mut self, stream: &Stream, copied_below: usize, most: usize) -> io::Result<()> {
        let mut index = 0;
        let mut copied = 0;
        while index < self.waiting.len().min(SEND_IOV_MAX) && copied < COPY_BYTES {
            if let Waiting::Segment(Segment::File { len, .. }) = &self.waiting[index] {
                if *len >= copied_below {
                    break;
                }
                copied += self.copy_file(index)?;
            }
            index += 1;
        }
        if stream.keeps_chunks() {
            return self.send_chunks(stream, index, most);
        }
        let mut more =
            matches!(self.waiting.get(index), Some(Waiting::Segment(Segment::File { .. })));
        let mut room = most;
        let mut slices: SmallVec<[IoSlice<'_>; 16]> = SmallVec::new();
        for waiting in self.waiting.iter().take(index) {
            match waiting.memory() {
                Some([]) => {}
                Some(bytes) => {
                    let step = bytes.get(..room).unwrap_or(bytes);
                    slices.push(IoSlice::new(step));
                    room -= step.len();
                }
                None => break,
            }
            if room == 0 {
                more = true;
                break;
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

    /// Gives the stream the first `count` elements, whose buffers it keeps: it copies the small ones alone.
    fn send_chunks(&mut self, stream: &Stream, count: usize, most: usize) -> io::Result<()> {
        let mut room = most;
        let mut chunks: SmallVec<[Bytes; 16]> = SmallVec::new();
        for waiting in self.waiting.iter_mut().take(count) {
            if let Waiting::Segment(segment) = waiting
                && let Some(given) = segment.shared(GIVEN_BYTES_MIN)
            {
                self.memory -= given;
            }
            let waiting = &*waiting;
            let Some(bytes) = waiting.memory() else { break };
            let mut chunk = match waiting {
                Waiting::Segment(Segment::Bytes(bytes)) => bytes.clone(),
                _ => Bytes::copy_from_slice(bytes),
            };
            chunk.truncate(room);
            room -= chunk.len();
            let is_part = matches!(waiting, Waiting::Zeros(len) if *len > chunk.len());
            if !chunk.is_empty() {
                chunks.push(chunk);
            }
            if room == 0 || is_part {
                break;
            }
        }
        let count = if chunks.is_empty() { 0 } else { stream.try_write_chunks(&mut chunks)? };
        self.consume(count);
        Ok(())
    }

    /// Puts a copy of the first bytes of the file tail at `index` before it, and returns their
    /// number.
    fn copy_file(&mut self, index: usize) -> io::Result<usize> {
        let Waiting::Segment(Segment::File { file, offset, len }) = &mut self.waiting[index] else {
            return Ok(0);
        };
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
        let copy = Waiting::Segment(Segment::Buf(buf));
        if *len == 0 {
            self.waiting[index] = copy;
        } else {
            self.waiting.insert(index, copy);
        }
        Ok(count)
    }

    /// Moves bytes of the file tail at the front to the socket.
    fn send_file(&mut self, stream: &Stream, splice_from: usize, most: usize) -> io::Result<()> {
        let Some(Waiting::Segment(Segment::File { file, offset, len })) = self.waiting.front_mut()
        else {
            return Ok(());
        };
        if self.pipe.is_some() || *len >= splice_from {
            return self.splice_file(stream);
        }
        let mut at = *offset;
        let asked = (*len).min(most);
        let sent = stream.try_write_with(|socket| {
            Ok(rustix::fs::sendfile(socket, file.as_fd(), Some(&mut at), asked)?)
        });
        match sent {
            Ok(0) => self.front_ends_in_zeros(),
            Ok(count) => self.consume(count),
            // The file system does not support sendfile(2), so the data is copied.
            Err(error) if cannot(&error) => {
                self.copy_file(0)?;
            }
            Err(error) => return Err(error),
        }
        Ok(())
    }

    /// Makes one round from file to pipe to socket.
    fn splice_file(&mut self, stream: &Stream) -> io::Result<()> {
        let Some(Waiting::Segment(Segment::File { file, offset, len })) = self.waiting.front_mut()
        else {
            return Ok(());
        };
        let pipe = match &mut self.pipe {
            Some(pipe) => pipe,
            None => self.pipe.insert(Pipe::borrow()?),
        };
        // `offset` counts the bytes that the socket has accepted; the next bytes of the file are in
        // the pipe already, so filling begins after them.
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
            && let Waiting::Segment(Segment::File { len, .. }) = front
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
                Waiting::Segment(Segment::Buf(buf)) => {
                    let taken = count.min(buf.len());
                    buf.advance(taken);
                    count -= taken;
                    if buf.is_empty() {
                        self.memory -= buf.capacity();
                    }
                    buf.len()
                }
                Waiting::Segment(Segment::Bytes(bytes)) => {
                    let taken = count.min(bytes.len());
                    *bytes = bytes.split_off(taken);
                    self.memory -= taken;
                    count -= taken;
                    bytes.len()
                }
                Waiting::Segment(Segment::File { offset, len, .. }) => {
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
