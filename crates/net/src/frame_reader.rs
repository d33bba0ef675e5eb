//! Cuts a stream into frames.
//!
//! An idle connection holds no buffer. Bytes are received into a scratch buffer that all
//! connections of the core share. Whole small frames are copied out of it. An incomplete frame gets
//! a [`Buf`] of its length, into which the rest is received directly, with the scratch buffer
//! behind it for later bytes. So a pipelining client costs few system calls, and most of a large
//! frame is never copied.
//!
//! A large frame arrives in many pieces, and each would wake the core up. So the kernel is asked to
//! wait for [`FRAME_WAKE_BYTES`] of it, or for its end. A frame that comes slowly is read as it comes.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout_at};

use crate::buffer::{Buf, HEADROOM};
use crate::limits::{
    FRAME_BYTES_MAX, FRAME_PROGRESS_TIMEOUT, FRAME_RATE_MIN, FRAME_WAKE_BYTES, FRAME_WAKE_PATIENCE,
    GATE_PAUSE, RECEIVE_SCRATCH_BYTES, SESSION_REQUEST_BYTES_MAX,
};
use crate::transport::Stream;

/// Bytes before every frame: zero, and a 24-bit big-endian length.
pub const PREFIX_BYTES: usize = 4;

/// Type of a NetBIOS session request, RFC 1002 4.3.2.
const SESSION_REQUEST: u8 = 0x81;

/// Type of a NetBIOS session keep-alive, RFC 1002 4.3.7.
const KEEP_ALIVE: u8 = 0x85;

/// A positive session response, RFC 1002 4.3.3.
const POSITIVE_SESSION_RESPONSE: [u8; PREFIX_BYTES] = [0x82, 0, 0, 0];

/// The reason why a connection gives no further frame. All are final.
#[derive(Debug)]
pub enum ReceiveError {
    /// The first byte of a prefix is not zero, so this is no frame.
    NotAFrame {
        /// Value of the first byte.
        first: u8,
    },
    /// A frame announces more than the present limit. Nothing was allocated for it.
    TooLong {
        /// Length that the prefix announces, bytes.
        len: u32,
        /// Greatest length that is accepted now, bytes.
        limit: u32,
    },
    /// A frame made no progress, or too little, for too long.
    Stalled,
    /// The stream ended inside a frame.
    Truncated,
    /// Reading from the transport failed.
    Io(io::Error),
}

impl fmt::Display for ReceiveError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotAFrame { first } => write!(f, "not a frame (first byte {first:#04x})"),
            Self::TooLong { len, limit } => write!(f, "frame of {len} bytes, limit {limit}"),
            Self::Stalled => write!(f, "frame made no progress"),
            Self::Truncated => write!(f, "stream ended inside a frame"),
            Self::Io(error) => write!(f, "receive: {error}"),
        }
    }
}

impl std::error::Error for ReceiveError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        if let Self::Io(error) = self { Some(error) } else { None }
    }
}

impl From<ReceiveError> for io::Error {
    fn from(error: ReceiveError) -> Self {
        let kind = match error {
            ReceiveError::Io(error) => return error,
            ReceiveError::NotAFrame { .. } | ReceiveError::TooLong { .. } => {
                io::ErrorKind::InvalidData
            }
            ReceiveError::Stalled => io::ErrorKind::TimedOut,
            ReceiveError::Truncated => io::ErrorKind::UnexpectedEof,
        };
        Self::new(kind, error)
    }
}

thread_local! {
    static SCRATCH: RefCell<Box<[u8]>> =
        RefCell::new(vec![0; RECEIVE_SCRATCH_BYTES].into_boxed_slice());
}

/// A bad prefix. It is stored, so that every later call returns this error.
#[derive(Clone, Copy)]
enum Fault {
    NotAFrame { first: u8 },
    TooLong { len: u32, limit: u32 },
}

/// The part of the next frame that has arrived.
enum Partial {
    Nothing,
    Prefix { bytes: [u8; PREFIX_BYTES], have: usize },
    Body { buf: Buf, len: usize },
}

/// The part of a NetBIOS session request that has arrived. It may come once, before all frames.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SessionRequest {
    /// It is no longer accepted, or never was.
    Refused,
    /// It may come next.
    Accepted,
    /// Its body is being received, to be dropped.
    Begun,
    /// It is complete, and the response is still to be sent.
    Complete,
}

/// The frames with which [`FrameReader::gather`] stops: so many, or so many bytes.
#[derive(Debug, Clone, Copy)]
pub struct Enough {
    /// Count of frames.
    pub frames: usize,
    /// Bytes of all frames.
    pub bytes: usize,
}

/// The frames that may be received now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// Nothing may be received.
    Nothing,
    /// Frames of up to so many bytes. A longer one waits behind its prefix and has no memory. Each frame
    /// is received by itself, so that nothing behind it needs memory either. A frame that has begun is
    /// received to its end.
    UpTo(u32),
    /// All frames.
    All,
}

impl From<bool> for Allowed {
    fn from(may: bool) -> Self {
        if may { Self::All } else { Self::Nothing }
    }
}

/// Cuts one connection's stream into frames. It is `Send`: it moves with its connection to another
/// core, with all bytes that it holds.
pub struct FrameReader {
    limit: u32,
    /// The longest frame for which memory is made now.
    longest: u32,
    session_request: SessionRequest,
    keep_alives: bool,
    progress_timeout: Duration,
    partial: Partial,
    /// The next complete frame. Most come alone, and need no queue.
    next: Option<Buf>,
    /// Complete frames behind `next`.
    ready: VecDeque<Buf>,
    /// Capacity of the buffers in `next` and `ready`.
    ready_bytes: usize,
    fault: Option<Fault>,
    ended: bool,
    /// The failure of a receive whose caller did not want to know it yet.
    failure: Option<io::Error>,
    waiting_since: Option<Instant>,
    waited: Duration,
    received_bytes: u64,
    /// Bytes that must be there before the stream is readable.
    low_water_mark: u32,
    /// True if the frame that has begun comes slowly.
    is_slow: bool,
    /// True if bytes below the mark may be there, of which the runtime has not heard.
    is_untold: bool,
    /// See [`Self::allow_room`].
    has_room: bool,
}

impl FrameReader {
    /// Makes a reader for frames of up to `limit` bytes, without the prefix.
    #[must_use]
    pub fn new(limit: u32) -> Self {
        Self {
            limit: limit.min(FRAME_BYTES_MAX),
            longest: u32::MAX,
            session_request: SessionRequest::Refused,
            keep_alives: false,
            progress_timeout: FRAME_PROGRESS_TIMEOUT,
            partial: Partial::Nothing,
            next: None,
            ready: VecDeque::new(),
            ready_bytes: 0,
            fault: None,
            ended: false,
            failure: None,
            waiting_since: None,
            waited: Duration::ZERO,
            received_bytes: 0,
            low_water_mark: 1,
            is_slow: false,
            is_untold: false,
            has_room: true,
        }
    }

    /// Sets whether the kernel may make room for [`FRAME_WAKE_BYTES`] of a connection, which stays. It
    /// may until this is called.
    pub fn allow_room(&mut self, may: bool) {
        self.has_room = may;
    }

    /// Accepts a NetBIOS session request before the first frame, and answers it positively, whatever
    /// names it has (RFC 1002 4.3). Clients that know only port 139 send one on port 445, too.
    pub fn accept_session_request(&mut self) {
        self.session_request = SessionRequest::Accepted;
    }

    /// Skips NetBIOS keep-alives, which servers of SMB1 send between frames.
    pub fn accept_keep_alives(&mut self) {
        self.keep_alives = true;
    }

    /// Sets the limit for frames whose prefix has not arrived yet. It is raised after the logon.
    pub fn set_limit(&mut self, limit: u32) {
        self.limit = limit.min(FRAME_BYTES_MAX);
    }

    /// Returns the number of bytes received so far, prefixes included.
    #[must_use]
    pub fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// True if a frame has begun and is not complete.
    #[must_use]
    pub fn is_inside_frame(&self) -> bool {
        !matches!(self.partial, Partial::Nothing)
    }

    /// Returns the bytes of the buffers that hold frames which were not taken yet.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let partial = match &self.partial {
            Partial::Body { buf, .. } => buf.capacity(),
            _ => 0,
        };
        self.ready_bytes + partial
    }

    /// True if [`Self::try_next`] has a frame.
    #[must_use]
    pub fn has_more(&self) -> bool {
        self.next.is_some()
    }

    /// Returns a frame that has arrived already, without a system call.
    pub fn try_next(&mut self) -> Option<Buf> {
        let frame = self.next.take()?;
        self.ready_bytes -= frame.capacity();
        self.next = self.ready.pop_front();
        if self.next.is_none() && self.ready.capacity() > 0 {
            // The queue's memory is freed, because the connection may now be idle for long.
            self.ready = VecDeque::new();
        }
        Some(frame)
    }

    /// Receives what has arrived, without waiting, until `enough` frames are ready. `may_receive` is as
    /// for [`Self::next_if`], but nothing is received after it has allowed nothing.
    ///
    /// Faults and failures are kept for the next call of [`Self::next`].
    pub fn gather<A: Into<Allowed>>(
        &mut self,
        stream: &Stream,
        enough: Enough,
        may_receive: impl Fn(usize, bool) -> A,
    ) {
        while self.ready_count() < enough.frames
            && self.ready_bytes < enough.bytes
            && !self.ended
            && self.fault.is_none()
            && self.failure.is_none()
            && self.allow(may_receive(self.held_bytes(), self.has_begun_body()).into())
        {
            match self.receive(|slices| stream.try_read_anew(slices)) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) => self.failure = Some(error),
            }
        }
    }

    /// Returns the frames that [`Self::try_next`] has, in their order.
    pub fn ready_frames(&mut self) -> impl Iterator<Item = &mut Buf> {
        self.next.iter_mut().chain(&mut self.ready)
    }

    fn ready_count(&self) -> usize {
        self.ready.len() + usize::from(self.next.is_some())
    }

    /// Returns the next frame without its prefix, or `None` at an orderly end.
    ///
    /// Dropping the future loses nothing: the next call continues.
    ///
    /// # Errors
    /// Any [`ReceiveError`], after all frames that were complete before it.
    pub async fn next(&mut self, stream: &Stream) -> Result<Option<Buf>, ReceiveError> {
        self.next_if(stream, |_, _| Allowed::All).await
    }

    /// Returns the next frame like [`Self::next`], but receives only what `may_receive` allows. It is
    /// called before each receive, and again each [`GATE_PAUSE`], with [`Self::held_bytes`], and with
    /// true if a frame has begun, unless that frame waits for memory.
    ///
    /// # Errors
    /// Any [`ReceiveError`], after all frames that were complete before it.
    pub async fn next_if<A: Into<Allowed>>(
        &mut self,
        stream: &Stream,
        may_receive: impl Fn(usize, bool) -> A,
    ) -> Result<Option<Buf>, ReceiveError> {
        loop {
            if self.session_request == SessionRequest::Complete {
                self.session_request = SessionRequest::Refused;
                send_session_response(stream)?;
            }
            if let Some(frame) = self.try_next() {
                return Ok(Some(frame));
            }
            match self.fault {
                Some(Fault::NotAFrame { first }) => return Err(ReceiveError::NotAFrame { first }),
                Some(Fault::TooLong { len, limit }) => {
                    return Err(ReceiveError::TooLong { len, limit });
                }
                None => {}
            }
            if let Some(error) = self.failure.take() {
                return Err(ReceiveError::Io(error));
            }
            if self.ended {
                let whole = !self.is_inside_frame();
                return if whole { Ok(None) } else { Err(ReceiveError::Truncated) };
            }
            // A peer may send without end, so other tasks get a turn.
            tokio::task::coop::consume_budget().await;
            if !self.allow(may_receive(self.held_bytes(), self.has_begun_body()).into()) {
                sleep(GATE_PAUSE).await;
                continue;
            }
            if self.next.is_some() {
                // A frame without a body had waited behind its prefix.
                continue;
            }
            match self.receive_from(stream) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.wait(stream).await?;
                }
                Err(error) => return Err(ReceiveError::Io(error)),
            }
        }
    }

    /// True if a frame has begun and does not wait for memory.
    #[must_use]
    pub fn has_begun_body(&self) -> bool {
        self.is_inside_frame() && self.waiting_prefix().is_none()
    }

    /// The complete prefix of a frame that waits for memory.
    const fn waiting_prefix(&self) -> Option<[u8; PREFIX_BYTES]> {
        match self.partial {
            Partial::Prefix { bytes, have: PREFIX_BYTES } => Some(bytes),
            _ => None,
        }
    }

    /// Takes note of what may be received. Returns true if something may.
    fn allow(&mut self, allowed: Allowed) -> bool {
        self.longest = match allowed {
            Allowed::Nothing => return false,
            Allowed::UpTo(bytes) => bytes,
            Allowed::All => u32::MAX,
        };
        if let Some(prefix) = self.waiting_prefix() {
            self.begin_body(prefix);
        }
        self.waiting_prefix().is_none()
    }

    /// Returns how many bytes behind the body of the present frame may be received: without memory for
    /// longer frames, no more than the next prefix.
    const fn readable_behind(&self) -> usize {
        match &self.partial {
            _ if self.longest == u32::MAX => RECEIVE_SCRATCH_BYTES,
            Partial::Nothing => PREFIX_BYTES,
            Partial::Prefix { have, .. } => PREFIX_BYTES - *have,
            Partial::Body { .. } => 0,
        }
    }

    /// Waits for more bytes, within the deadlines if a frame has begun.
    async fn wait(&mut self, stream: &Stream) -> Result<(), ReceiveError> {
        self.set_low_water_mark(stream, self.wanted_bytes(stream));
        let len = match &self.partial {
            Partial::Nothing => return stream.readable().await.map_err(ReceiveError::Io),
            Partial::Prefix { .. } => 0,
            Partial::Body { len, .. } => *len,
        };
        let since = *self.waiting_since.get_or_insert_with(Instant::now);
        let arrival = Duration::from_secs(len as u64 / u64::from(FRAME_RATE_MIN));
        let left = (self.progress_timeout + arrival).saturating_sub(self.waited);
        let deadline = since + left.min(self.progress_timeout);
        let patience =
            if self.low_water_mark > 1 { FRAME_WAKE_PATIENCE } else { self.progress_timeout };
        match timeout_at(deadline.min(since + patience), stream.readable()).await {
            Ok(ready) => ready.map_err(ReceiveError::Io),
            // Below its low-water mark the socket looks empty to the runtime, and a deadline could
            // end the connection although data has arrived. The mark is reset, so the next byte
            // ends the wait.
            Err(_elapsed) if self.low_water_mark > 1 => {
                self.is_slow = true;
                self.is_untold = true;
                Ok(())
            }
            Err(_elapsed) => Err(ReceiveError::Stalled),
        }
    }

    /// Returns the bytes to wait for.
    fn wanted_bytes(&self, stream: &Stream) -> u32 {
        match (&self.partial, stream) {
            (Partial::Body { buf, len }, Stream::Tcp(_))
                if *len >= FRAME_WAKE_BYTES as usize && !self.is_slow && self.has_room =>
            {
                FRAME_WAKE_BYTES.min((*len - buf.len()) as u32)
            }
            _ => 1,
        }
    }

    fn set_low_water_mark(&mut self, stream: &Stream, bytes: u32) {
        if bytes != self.low_water_mark {
            self.low_water_mark = bytes;
            // The call fails only if the socket is closed, which the next receive reports.
            drop(stream.set_low_water_mark(bytes as usize));
        }
    }

    /// Receives what the runtime, or in its place the kernel, says is there.
    fn receive_from(&mut self, stream: &Stream) -> io::Result<()> {
        if std::mem::take(&mut self.is_untold) {
            return self.receive(|slices| stream.try_read_anew(slices));
        }
        self.receive(|slices| stream.try_read_vectored(slices))
    }

    /// Makes one vectored read, and hands out the frames that it completes.
    fn receive(
        &mut self,
        read: impl FnOnce(&mut [IoSliceMut<'_>]) -> io::Result<usize>,
    ) -> io::Result<()> {
        let behind = self.readable_behind();
        SCRATCH.with_borrow_mut(|scratch| {
            let scratch = &mut scratch[..behind];
            let count;
            let mut in_body = 0;
            if let Partial::Body { buf, len } = &mut self.partial {
                let missing = *len - buf.len();
                let slices = &mut [
                    IoSliceMut::new(&mut buf.memory_mut()[..missing]),
                    IoSliceMut::new(scratch),
                ];
                count = read(slices)?;
                in_body = count.min(missing);
                buf.set_filled(in_body);
            } else {
                count = read(&mut [IoSliceMut::new(scratch)])?;
            }
            self.received_bytes += count as u64;
            if let Some(since) = self.waiting_since.take() {
                self.waited += since.elapsed();
            }
            self.ended = count == 0;
            self.finish_body();
            self.cut(&scratch[..count - in_body]);
            Ok(())
        })
    }

    /// Hands out the frame if it is complete.
    fn finish_body(&mut self) {
        if self.session_request == SessionRequest::Begun {
            if matches!(&self.partial, Partial::Body { buf, len } if buf.len() == *len) {
                self.partial = Partial::Nothing;
                self.waited = Duration::ZERO;
                self.session_request = SessionRequest::Complete;
            }
            return;
        }
        match std::mem::replace(&mut self.partial, Partial::Nothing) {
            Partial::Body { buf, len } if buf.len() == len => {
                self.waited = Duration::ZERO;
                self.is_slow = false;
                self.ready_bytes += buf.capacity();
                match self.next {
                    None => self.next = Some(buf),
                    Some(_) => self.ready.push_back(buf),
                }
            }
            unfinished => self.partial = unfinished,
        }
    }

    /// Cuts received bytes into frames, the last of which may be incomplete.
    fn cut(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() && self.fault.is_none() {
            match &mut self.partial {
                Partial::Nothing => {
                    self.partial = Partial::Prefix { bytes: [0; PREFIX_BYTES], have: 0 };
                }
                Partial::Prefix { bytes: prefix, have } => {
                    let (taken, rest) = bytes.split_at((PREFIX_BYTES - *have).min(bytes.len()));
                    prefix[*have..*have + taken.len()].copy_from_slice(taken);
                    *have += taken.len();
                    bytes = rest;
                    if *have == PREFIX_BYTES {
                        let prefix = *prefix;
                        self.begin_body(prefix);
                    }
                }
                Partial::Body { buf, len } => {
                    let (taken, rest) = bytes.split_at((*len - buf.len()).min(bytes.len()));
                    buf.extend_from_slice(taken);
                    bytes = rest;
                    self.finish_body();
                }
            }
        }
    }

    /// Checks a complete prefix and then gets a buffer for its frame.
    fn begin_body(&mut self, prefix: [u8; PREFIX_BYTES]) {
        let [first, high, middle, low] = prefix;
        let len = u32::from_be_bytes([0, high, middle, low]);
        let is_session_request = first == SESSION_REQUEST
            && len <= SESSION_REQUEST_BYTES_MAX
            && self.session_request == SessionRequest::Accepted;
        match self.session_request {
            SessionRequest::Accepted if is_session_request => {
                self.session_request = SessionRequest::Begun;
            }
            SessionRequest::Accepted => self.session_request = SessionRequest::Refused,
            // A complete session request stays in this state until its answer was sent.
            SessionRequest::Complete | SessionRequest::Begun | SessionRequest::Refused => {}
        }
        if first == KEEP_ALIVE && len == 0 && self.keep_alives {
            self.partial = Partial::Nothing;
        } else if first != 0 && !is_session_request {
            self.fault = Some(Fault::NotAFrame { first });
        } else if len > self.limit {
            self.fault = Some(Fault::TooLong { len, limit: self.limit });
        } else if len > self.longest && !is_session_request {
            self.partial = Partial::Prefix { bytes: prefix, have: PREFIX_BYTES };
        } else {
            let buf = Buf::with_headroom(HEADROOM, len as usize);
            self.partial = Partial::Body { buf, len: len as usize };
            self.finish_body();
        }
    }
}

/// Sends the answer to a session request. Nothing was sent before it, so that it fits into the send
/// buffer, or the connection is lost.
fn send_session_response(stream: &Stream) -> Result<(), ReceiveError> {
    let response = IoSlice::new(&POSITIVE_SESSION_RESPONSE);
    let sent = stream.try_write_vectored(&[response], false).map_err(ReceiveError::Io)?;
    if sent == PREFIX_BYTES { Ok(()) } else { Err(ReceiveError::Truncated) }
}

#[cfg(test)]
mod tests;
