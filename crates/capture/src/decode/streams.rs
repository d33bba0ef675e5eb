//! TCP streams of a file, and the frames in them: MS-SMB2 2.1.

use alloc::string::String;
use alloc::vec::Vec;
use core::net::SocketAddr;

use super::frames::{Frames, Message};
use crate::limits::{COMMENT_BYTES, FLOWS, WAITING_BYTES, WAITING_SEGMENTS};
use crate::packet::parse::Segment;
use crate::packet::{RST, SMB_PORT, SYN};
use crate::recorder::LEFT_OUT;

/// A frame, without its prefix.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Frame {
    /// Number of its connection.
    pub(super) connection: u32,
    /// True if the server sent it.
    pub(super) is_of_server: bool,
    /// Its messages.
    pub(super) messages: Vec<Message>,
    /// The server.
    pub(super) server: SocketAddr,
    /// Comments of the file on the connection since the frame before it; empty for none.
    pub(super) comment: String,
}

/// An event of a stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum StreamEvent {
    /// A frame that is complete.
    Frame(Frame),
    /// A connection was opened.
    Opened(u32),
    /// Bytes of the stream are not in the file.
    Lost { connection: u32, is_of_server: bool },
    /// The program that made the file has left frames of a connection out.
    LeftOut(u32),
    /// A connection has ended, or is forgotten.
    Ended(u32),
}

/// The streams that are followed.
#[derive(Debug, Default)]
pub(super) struct Streams {
    flows: Vec<Flow>,
    connections: u32,
    /// Counts segments: the time by which the oldest flow is known.
    clock: u64,
}

#[derive(Debug)]
struct Flow {
    /// Number of the connection; 0 until it has carried SMB.
    connection: u32,
    ends: [SocketAddr; 2],
    halves: [Half; 2],
    /// The end that is the server.
    server: usize,
    used: u64,
    /// Comments that no frame has taken.
    comment: String,
}

/// One direction of a stream.
#[derive(Debug, Default)]
struct Half {
    /// The number of the next byte; None before the first segment.
    next: Option<u32>,
    waiting: Vec<Waiting>,
    waiting_bytes: usize,
    frames: Frames,
}

/// A segment that came before an earlier one.
#[derive(Debug)]
struct Waiting {
    sequence: u32,
    payload: Vec<u8>,
    len: usize,
}

impl Streams {
    /// Returns what ends with a segment, whose packet has this comment.
    pub(super) fn segment(&mut self, segment: &Segment<'_>, comment: &str) -> Vec<StreamEvent> {
        self.clock = self.clock.saturating_add(1);
        let mut found = Vec::new();
        let Some(at) = self.flow_of(segment, &mut found) else { return found };
        let (clock, connections) = (self.clock, &mut self.connections);
        let Some(flow) = self.flows.get_mut(at) else { return found };
        flow.used = clock;
        flow.note(comment, &mut found);
        let side = usize::from(flow.ends.first() != Some(&segment.from));
        flow.segment(side, segment, connections, &mut found);
        if segment.flags & RST != 0 {
            self.forget(at, &mut found);
        }
        found
    }

    /// Returns the most bytes that wait in one direction of a flow.
    #[cfg(test)]
    pub(super) fn waiting_bytes(&self) -> usize {
        let halves = self.flows.iter().flat_map(|flow| &flow.halves);
        halves.map(|half| half.waiting_bytes).max().unwrap_or(0)
    }

    /// Forgets a flow.
    fn forget(&mut self, at: usize, found: &mut Vec<StreamEvent>) {
        let connection = self.flows.swap_remove(at).connection;
        if connection != 0 {
            found.push(StreamEvent::Ended(connection));
        }
    }

    /// Finds the flow of a segment, or begins it.
    fn flow_of(&mut self, segment: &Segment<'_>, found: &mut Vec<StreamEvent>) -> Option<usize> {
        let is_of = |flow: &Flow| {
            flow.ends == [segment.from, segment.to] || flow.ends == [segment.to, segment.from]
        };
        let known = self.flows.iter().position(is_of);
        let opens = segment.flags & SYN != 0;
        // A SYN of the end that opened the flow before begins a further one.
        let is_reused = |flow: &Flow| {
            opens
                && flow.connection != 0
                && flow.ends.first() == Some(&segment.from)
                && segment.flags & !SYN == 0
        };
        match known {
            Some(at) if self.flows.get(at).is_some_and(is_reused) => self.forget(at, found),
            Some(at) => return Some(at),
            None if segment.len == 0 && !opens => return None,
            None => {}
        }
        if self.flows.len() >= FLOWS {
            let oldest = self.flows.iter().enumerate().min_by_key(|(_, flow)| flow.used);
            let oldest = oldest.map(|(at, _)| at)?;
            self.forget(oldest, found);
        }
        let from_server = match (segment.from.port(), segment.to.port()) {
            (SMB_PORT | 139, _) => true,
            (_, SMB_PORT | 139) => false,
            (from, to) => from < to,
        };
        self.flows.push(Flow {
            connection: 0,
            ends: [segment.from, segment.to],
            halves: [Half::default(), Half::default()],
            server: usize::from(!from_server),
            used: self.clock,
            comment: String::new(),
        });
        self.flows.len().checked_sub(1)
    }
}

impl Flow {
    /// Keeps the comment on a packet for the frame that ends next.
    fn note(&mut self, comment: &str, found: &mut Vec<StreamEvent>) {
        if comment.is_empty() || self.comment.len() > COMMENT_BYTES {
            return;
        }
        if !self.comment.is_empty() {
            self.comment.push_str("; ");
        }
        self.comment.push_str(comment);
        if comment.contains(LEFT_OUT) && self.connection != 0 {
            found.push(StreamEvent::LeftOut(self.connection));
        }
    }

    fn segment(
        &mut self,
        side: usize,
        segment: &Segment<'_>,
        connections: &mut u32,
        found: &mut Vec<StreamEvent>,
    ) {
        let Some(half) = self.halves.get_mut(side) else { return };
        let (mut frames, mut is_lost) = (Vec::new(), false);
        half.segment(segment, &mut frames, &mut is_lost);
        if is_lost && self.connection != 0 {
            let is_of_server = side == self.server;
            found.push(StreamEvent::Lost { connection: self.connection, is_of_server });
        }
        for messages in frames {
            if self.connection == 0 {
                *connections = connections.saturating_add(1);
                self.connection = *connections;
                found.push(StreamEvent::Opened(self.connection));
            }
            // The flags of a message tell its direction, whatever the ports are.
            if let [0xFE, b'S', b'M', b'B', ..] = first_of(&messages)
                && let Some(flags) = first_of(&messages).get(16)
            {
                self.server = if flags & 1 != 0 { side } else { 1_usize.saturating_sub(side) };
            }
            let is_of_server = side == self.server;
            let connection = self.connection;
            let comment = core::mem::take(&mut self.comment);
            let server = self.ends.get(self.server).copied().unwrap_or(segment.to);
            let frame = Frame { connection, is_of_server, messages, server, comment };
            found.push(StreamEvent::Frame(frame));
        }
    }
}

/// Returns the head of the first message of a frame.
fn first_of(messages: &[Message]) -> &[u8] {
    messages.first().map_or(&[], |message| &message.head)
}

impl Half {
    fn segment(&mut self, segment: &Segment<'_>, out: &mut Vec<Vec<Message>>, is_lost: &mut bool) {
        if segment.flags & SYN != 0 {
            self.next = Some(segment.sequence.wrapping_add(1));
            self.frames = Frames::default();
            return;
        }
        if segment.len == 0 {
            return;
        }
        let next = *self.next.get_or_insert_with(|| {
            self.frames = Frames::astray();
            segment.sequence
        });
        let ahead = segment.sequence.wrapping_sub(next);
        if ahead != 0 && ahead < 1 << 31 {
            self.wait(segment);
            *is_lost = self.has_too_much();
            while self.has_too_much() {
                self.give_up_gap(next, out);
            }
            return;
        }
        self.take(segment.sequence, segment.payload, segment.len, out);
        self.take_waiting(out);
    }

    fn has_too_much(&self) -> bool {
        self.waiting.len() > WAITING_SEGMENTS || self.waiting_bytes > WAITING_BYTES
    }

    /// Goes on behind the bytes that are not in the file. Takes at least one segment that waited.
    fn give_up_gap(&mut self, seen: u32, out: &mut Vec<Vec<Message>>) {
        let next = self.next.unwrap_or(seen);
        self.frames = Frames::astray();
        let first = self.waiting.iter().map(|one| one.sequence.wrapping_sub(next)).min();
        self.next = Some(next.wrapping_add(first.unwrap_or(0)));
        self.take_waiting(out);
    }

    fn wait(&mut self, segment: &Segment<'_>) {
        let payload = segment.payload.to_vec();
        self.waiting_bytes = self.waiting_bytes.saturating_add(payload.len());
        self.waiting.push(Waiting { sequence: segment.sequence, payload, len: segment.len });
    }

    /// Takes the segments that waited and whose turn has come.
    fn take_waiting(&mut self, out: &mut Vec<Vec<Message>>) {
        while let Some(next) = self.next {
            let is_due = |one: &Waiting| {
                let ahead = one.sequence.wrapping_sub(next);
                ahead == 0 || ahead >= 1 << 31
            };
            let Some(at) = self.waiting.iter().position(is_due) else { return };
            let one = self.waiting.swap_remove(at);
            self.waiting_bytes = self.waiting_bytes.saturating_sub(one.payload.len());
            self.take(one.sequence, &one.payload, one.len, out);
        }
    }

    /// Takes the bytes of a segment that are new.
    fn take(&mut self, sequence: u32, payload: &[u8], len: usize, out: &mut Vec<Vec<Message>>) {
        let Some(next) = self.next else { return };
        let known = usize::try_from(next.wrapping_sub(sequence)).unwrap_or(usize::MAX);
        if known >= len {
            return;
        }
        let len = len.saturating_sub(known);
        let payload = payload.get(known..).unwrap_or(&[]);
        self.next = Some(next.wrapping_add(u32::try_from(len).unwrap_or(0)));
        self.frames.take(payload, out);
        self.frames.skip(len.saturating_sub(payload.len()), out);
    }
}
