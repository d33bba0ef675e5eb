//! Channels between the server and the process that asks in its place.
//!
//! A channel carries one question at a time, as a packet with a number, and its answer in packets
//! with that number. Late answers to questions that were given up are passed over.

use std::collections::VecDeque;
use std::io::{self, IoSlice, IoSliceMut};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixDatagram;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex};
use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
    SendAncillaryMessage, SendFlags, SocketFlags, SocketType, recv, recvmsg, send, sendmsg,
    socketpair, sockopt,
};

use super::wire::{Answer, Question};
use crate::limits::{NAME_SERVICE_ANSWER_BYTES, NAME_SERVICE_QUESTION_BYTES};

/// Time after which an answer is abandoned; the server stops waiting much earlier.
const PATIENCE: Duration = Duration::from_secs(60);
/// Bytes of an answer in one packet.
const PIECE: usize = 32 << 10;
/// Bytes of a question's number.
const NUMBER: usize = 8;
/// The number in packets of an answer to no question: the process has crashed.
const CRASH: u64 = u64::MAX;

/// The server's end of a channel.
#[derive(Debug)]
pub(super) struct Channel(OwnedFd);

impl AsFd for Channel {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl Channel {
    /// Makes a channel: the server's end, and that of the process.
    pub(super) fn pair() -> io::Result<(Self, OwnedFd)> {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let (ours, theirs) = socketpair(family, kind, SocketFlags::CLOEXEC, None)?;
        for way in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            sockopt::set_socket_timeout(&ours, way, Some(PATIENCE))?;
        }
        Ok((Self(ours), theirs))
    }

    fn ask(&self, id: u64, question: &Question) -> Result<(Answer, Option<OwnedFd>), Errno> {
        // Late answers to earlier questions and old crash reports are dropped before the next
        // question is sent.
        let mut old = [0_u8; 1];
        while recv(&self.0, &mut old, RecvFlags::DONTWAIT).is_ok_and(|(_, length)| length > 0) {}
        let packet = [&id.to_le_bytes()[..], &question.encode()].concat();
        send(&self.0, &packet, SendFlags::NOSIGNAL).map_err(|error| match error {
            Errno::AGAIN => Errno::TIMEDOUT,
            other => other,
        })?;
        let (mut answer, mut socket) = (Vec::new(), None);
        let mut packet = vec![0; NUMBER + 1 + PIECE];
        loop {
            let (length, passed) = match receive(&self.0, &mut packet) {
                Err(Errno::INTR) => continue,
                Err(Errno::AGAIN) => return Err(Errno::TIMEDOUT),
                received => received?,
            };
            let packet = packet.get(..length).and_then(|packet| packet.split_first_chunk());
            // An empty packet means that the socket was closed, as the helper has ended for good.
            let Some((number, [is_last, piece @ ..])) = packet else { return Err(Errno::PIPE) };
            match u64::from_le_bytes(*number) {
                CRASH => return Err(Errno::PIPE),
                number if number == id => {}
                _ => continue,
            }
            answer.extend_from_slice(piece);
            socket = passed.or(socket);
            if *is_last == 1 {
                return Ok((Answer::decode(&answer).ok_or(Errno::IO)?, socket));
            }
            if answer.len() > NAME_SERVICE_ANSWER_BYTES {
                return Err(Errno::IO);
            }
        }
    }
}

/// The channels of a server.
#[derive(Debug)]
pub(super) struct Channels {
    state: Mutex<State>,
    freed: Condvar,
}

#[derive(Debug)]
struct State {
    /// The channels that carry no question. Those that were silent last are at the end.
    free: VecDeque<Channel>,
    /// The number of the last question.
    last: u64,
}

impl Channels {
    pub(super) fn new(channels: Vec<Channel>) -> Self {
        let state = State { free: channels.into(), last: 0 };
        Self { state: Mutex::new(state), freed: Condvar::new() }
    }

    /// Takes all channels that carry no question.
    pub(super) fn drain(&self) -> Vec<Channel> {
        self.state.lock().free.drain(..).collect()
    }

    /// Asks, when a channel is free. Returns the answer, and a socket if that was the question.
    pub(super) fn ask(&self, question: &Question) -> Result<(Answer, Option<OwnedFd>), Errno> {
        let (channel, id) = self.take().ok_or(Errno::TIMEDOUT)?;
        let answered = channel.ask(id, question);
        let mut state = self.state.lock();
        match &answered {
            Ok(_) => state.free.push_front(channel),
            // The helper's thread behind this channel may hang, so the channel goes to the end of
            // the queue.
            Err(_) => state.free.push_back(channel),
        }
        drop(state);
        self.freed.notify_one();
        answered
    }

    fn take(&self) -> Option<(Channel, u64)> {
        let until = Instant::now() + PATIENCE;
        let mut state = self.state.lock();
        loop {
            if let Some(channel) = state.free.pop_front() {
                state.last += 1;
                return Some((channel, state.last));
            }
            if self.freed.wait_until(&mut state, until).timed_out() {
                return None;
            }
        }
    }
}

/// A question, as the process gets it.
pub(super) struct Asked {
    pub(super) id: u64,
    pub(super) question: Question,
}

/// Waits for a question. None for a packet that is none, or an interrupted wait.
///
/// # Errors
/// If the server has ended.
pub(super) fn question(channel: BorrowedFd<'_>) -> Result<Option<Asked>, Errno> {
    let mut packet = vec![0; NUMBER + NAME_SERVICE_QUESTION_BYTES];
    let length = match recv(channel, &mut packet[..], RecvFlags::empty()) {
        Ok((length, _)) if length > 0 => length,
        Err(Errno::INTR) => return Ok(None),
        _ => return Err(Errno::PIPE),
    };
    let parts = packet.get(..length).and_then(|packet| packet.split_first_chunk());
    Ok(parts.and_then(|(id, question)| {
        Some(Asked { id: u64::from_le_bytes(*id), question: Question::decode(question)? })
    }))
}

/// Sends an answer in pieces, the last one with a socket.
pub(super) fn answer(
    channel: BorrowedFd<'_>,
    id: u64,
    answer: &Answer,
    socket: Option<&UnixDatagram>,
) -> Result<(), Errno> {
    let bytes = answer.encode();
    let mut pieces = bytes.chunks(PIECE).peekable();
    while let Some(piece) = pieces.next() {
        let is_last = pieces.peek().is_none();
        let packet = [&id.to_le_bytes()[..], &[u8::from(is_last)], piece].concat();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        let fds: Vec<BorrowedFd<'_>> = socket.iter().map(AsFd::as_fd).collect();
        if is_last && !fds.is_empty() {
            ancillary.push(SendAncillaryMessage::ScmRights(&fds));
        }
        sendmsg(channel, &[IoSlice::new(&packet)], &mut ancillary, SendFlags::NOSIGNAL)?;
    }
    Ok(())
}

/// Tells that the process has crashed: the question that it was asked here has no answer.
pub(super) fn tell_crash(channel: BorrowedFd<'_>) {
    let packet = [&CRASH.to_le_bytes()[..], &[1]].concat();
    // If the channel is full, it contains only packets that no thread waits for, so the report may
    // be lost.
    let _ = send(channel, &packet, SendFlags::NOSIGNAL | SendFlags::DONTWAIT);
}

/// Receives a packet, and the descriptor with it.
fn receive(channel: &OwnedFd, packet: &mut [u8]) -> Result<(usize, Option<OwnedFd>), Errno> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut slices = [IoSliceMut::new(packet)];
    let received = recvmsg(channel, &mut slices, &mut ancillary, RecvFlags::CMSG_CLOEXEC)?;
    let passed = ancillary.drain().find_map(|message| match message {
        RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
        _ => None,
    });
    Ok((received.bytes, passed))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A process that hangs holds up a question neither before nor after it is sent.
    #[test]
    fn both_ways_of_a_channel_have_a_time_limit() {
        let (channel, _theirs) = Channel::pair().unwrap();
        for way in [sockopt::Timeout::Recv, sockopt::Timeout::Send] {
            assert_eq!(sockopt::socket_timeout(&channel, way).unwrap(), Some(PATIENCE));
        }
        let soon = Some(Duration::from_millis(20));
        sockopt::set_socket_timeout(&channel, sockopt::Timeout::Send, soon).unwrap();
        sockopt::set_socket_timeout(&channel, sockopt::Timeout::Recv, soon).unwrap();
        // The peer never reads, so the socket becomes full, and the question runs into its time
        // limit.
        while send(&channel.0, &[0; 4096], SendFlags::DONTWAIT).is_ok() {}
        let answer = channel.ask(1, &Question::User(String::from("ann")));
        assert_eq!(answer.unwrap_err(), Errno::TIMEDOUT);
    }
}
