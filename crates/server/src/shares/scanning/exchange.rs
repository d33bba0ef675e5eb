//! One exchange with a service over a socket, on a thread that may wait.

use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Instant;

use frevo_store::{Fault, Node};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use crate::base::limits::SCAN_LOOK;
use crate::base::scanners::{Machine, Output, Refusal};

/// Bytes that are received at once.
const RECEIVED_BYTES: usize = 4096;

/// The reason for which an exchange has no result.
#[derive(Debug)]
pub(super) enum Failure {
    /// No connection was made, or nothing could be sent in time.
    Unreachable(String),
    /// The service gives no verdict.
    Refused(Refusal),
    /// The time is over.
    TimedOut,
    /// Nobody waits for the result any more.
    GivenUp,
    /// The file cannot be read.
    Unreadable(Fault),
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "it cannot be reached: {why}"),
            Self::Refused(refusal) => write!(f, "{refusal}"),
            Self::TimedOut => f.write_str("it does not answer in time"),
            Self::GivenUp => f.write_str("nobody waits for the scan any more"),
            Self::Unreadable(fault) => write!(f, "the file cannot be read: {fault}"),
        }
    }
}

/// The data of a file that is scanned.
#[derive(Debug)]
pub(super) struct Source<'a> {
    node: &'a dyn Node,
    at: u64,
    /// The end of the file at the beginning.
    end: u64,
    block: Vec<u8>,
}

impl<'a> Source<'a> {
    pub(super) fn new(node: &'a dyn Node, end: u64) -> Self {
        Self { node, at: 0, end, block: Vec::new() }
    }

    /// Reads at most `most` bytes. The second value is true at the end of the file.
    fn read(&mut self, most: usize) -> Result<(&[u8], bool), Failure> {
        let left = usize::try_from(self.end.saturating_sub(self.at)).unwrap_or(usize::MAX);
        let wanted = most.min(left);
        self.block.resize(wanted, 0);
        let read = self.node.read_at(self.at, &mut self.block).map_err(Failure::Unreadable)?;
        self.at = self.at.saturating_add(u64::try_from(read).unwrap_or(u64::MAX));
        let is_last = read < wanted || self.at >= self.end;
        Ok((self.block.get(..read).unwrap_or_default(), is_last))
    }
}

/// The limits of an exchange.
pub(super) struct Patience<'a> {
    pub(super) until: Instant,
    /// True once nobody waits for the result.
    pub(super) is_given_up: &'a dyn Fn() -> bool,
}

impl Patience<'_> {
    /// The time to wait now.
    fn slice(&self) -> Result<Timespec, Failure> {
        if (self.is_given_up)() {
            return Err(Failure::GivenUp);
        }
        let left = self.until.checked_duration_since(Instant::now()).ok_or(Failure::TimedOut)?;
        let slice = left.min(SCAN_LOOK);
        let nanoseconds = i64::from(slice.subsec_nanos());
        Ok(Timespec { tv_sec: 0, tv_nsec: nanoseconds })
    }
}

/// Carries out an exchange. `source` is the file, if one is sent.
pub(super) fn carry_out<R>(
    socket: &OwnedFd,
    machine: &mut dyn Machine<Result = R>,
    mut source: Option<Source<'_>>,
    patience: &Patience<'_>,
) -> Result<R, Failure> {
    let (mut out, mut has_sent, mut is_deaf) = (Vec::new(), false, false);
    loop {
        if out.is_empty() && !is_deaf {
            out = next(machine, source.as_mut())?;
        }
        let mut events = PollFlags::IN;
        events.set(PollFlags::OUT, !out.is_empty() && !is_deaf);
        let mut ready = [PollFd::new(socket, events)];
        match poll(&mut ready, Some(&patience.slice().map_err(|why| before(why, has_sent))?)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(Failure::Unreachable(errno.to_string())),
        }
        let [ready] = ready;
        let happened = ready.revents();
        if happened.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR)
            && let Some(result) = received(socket, machine, has_sent)?
        {
            return Ok(result);
        }
        if happened.contains(PollFlags::OUT) {
            match send(socket.as_fd(), &out, SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(sent) => {
                    has_sent = true;
                    out.drain(..sent.min(out.len()));
                }
                Err(Errno::AGAIN | Errno::INTR) => {}
                // The answer may be there although the service takes no more.
                Err(Errno::PIPE | Errno::CONNRESET) if has_sent => is_deaf = true,
                Err(errno) => return Err(Failure::Unreachable(errno.to_string())),
            }
        }
    }
}

/// A time that is over before anything was sent is the connection's.
fn before(why: Failure, has_sent: bool) -> Failure {
    match why {
        Failure::TimedOut if !has_sent => {
            Failure::Unreachable(io::Error::from(io::ErrorKind::TimedOut).to_string())
        }
        why => why,
    }
}

/// The next bytes to send.
fn next<R>(
    machine: &mut dyn Machine<Result = R>,
    source: Option<&mut Source<'_>>,
) -> Result<Vec<u8>, Failure> {
    match machine.next_output() {
        Output::Bytes(bytes) => Ok(bytes),
        Output::Nothing => Ok(Vec::new()),
        Output::Data(most) => {
            let Some(source) = source else { return Ok(Vec::new()) };
            let (block, is_last) = source.read(most)?;
            Ok(machine.frame(block, is_last))
        }
    }
}

/// Gives the machine what is there. None while it has no result.
fn received<R>(
    socket: &OwnedFd,
    machine: &mut dyn Machine<Result = R>,
    has_sent: bool,
) -> Result<Option<R>, Failure> {
    let mut block = [0; RECEIVED_BYTES];
    match recv(socket.as_fd(), &mut block[..], RecvFlags::DONTWAIT) {
        Ok((0, _)) => machine.handle_end().map(Some).map_err(Failure::Refused),
        Ok((count, _)) => {
            let bytes = block.get(..count).unwrap_or_default();
            machine.handle_input(bytes).map_err(Failure::Refused)
        }
        Err(Errno::AGAIN | Errno::INTR) => Ok(None),
        Err(Errno::CONNRESET | Errno::PIPE) if has_sent => {
            machine.handle_end().map(Some).map_err(Failure::Refused)
        }
        Err(errno) => Err(Failure::Unreachable(errno.to_string())),
    }
}
