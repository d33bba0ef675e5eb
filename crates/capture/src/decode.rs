//! The messages of a capture in plain words: one line for each, with the time of its answer, and with leases,
//! credits and replays explained.
//!
//! The file can be hostile. What is remembered of it has limits, and nothing in it makes this code panic.

mod answers;
mod frames;
mod line;
mod requests;
mod state;
mod streams;
mod words;

use alloc::string::String;
use alloc::vec::Vec;

use frevo_wire::transform::TransformHeader;
use frevo_wire::{Header, Route};

use crate::packet::parse::segment;
use crate::pcapng::read::Captured;
use frames::Message;
pub use line::Line;
use state::State;
use streams::{Frame, StreamEvent, Streams};

/// Makes lines of the packets of a capture.
#[derive(Debug, Default)]
pub struct Decoder {
    streams: Streams,
    state: State,
}

impl Decoder {
    /// Makes a decoder that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the messages that end with a packet. Packets that carry no SMB have none.
    pub fn packet(&mut self, packet: &Captured<'_>) -> Vec<Line> {
        let mut lines = Vec::new();
        let Some(segment) = segment(packet.link, packet.data, packet.cut) else { return lines };
        for found in self.streams.segment(&segment, &packet.comment) {
            match found {
                StreamEvent::Frame(frame) => self.frame(&frame, packet.time_ns, &mut lines),
                StreamEvent::Opened(connection) => self.state.begin(connection),
                StreamEvent::LeftOut(connection) => self.state.lose(connection),
                StreamEvent::Ended(connection) => self.state.end(connection),
                StreamEvent::Lost { connection, is_of_server } => {
                    self.state.lose(connection);
                    lines.push(Line {
                        time_ns: packet.time_ns,
                        connection,
                        is_of_server,
                        command: String::from("(lost)"),
                        text: String::from("a part of the connection is not in the file"),
                        ..Line::default()
                    });
                }
            }
        }
        lines
    }

    fn frame(&mut self, frame: &Frame, time_ns: Option<u64>, lines: &mut Vec<Line>) {
        self.state.server = Some(frame.server);
        let before = lines.len();
        self.content(frame, time_ns, lines);
        if let Some(first) = lines.get_mut(before)
            && !frame.comment.is_empty()
        {
            first.notes.push(frame.comment.clone());
        }
    }

    fn content(&mut self, frame: &Frame, time_ns: Option<u64>, lines: &mut Vec<Line>) {
        let Some(first) = frame.messages.first() else { return };
        let line = Line {
            time_ns,
            connection: frame.connection,
            is_of_server: frame.is_of_server,
            bytes: u64::try_from(first.len).unwrap_or(u64::MAX),
            ..Line::default()
        };
        match first.head.as_slice() {
            [0xFE, ..] => self.messages(&frame.messages, &line, lines),
            [0xFD, ..] => lines.push(sealed(&first.head, line)),
            [0xFC, ..] => lines.push(Line {
                command: String::from("(compressed)"),
                text: String::from("a compressed message"),
                ..line
            }),
            _ => lines.push(Line {
                command: String::from("(SMB1)"),
                text: String::from("a message of SMB1, such as a NEGOTIATE that offers SMB2"),
                ..line
            }),
        }
    }

    fn messages(&mut self, messages: &[Message], line: &Line, lines: &mut Vec<Line>) {
        self.state.begin_frame();
        for Message { head, len, missing } in messages {
            let Ok(header) = Header::parse(head) else {
                lines.push(Line {
                    command: String::from("(malformed)"),
                    text: String::from("a message without a whole header"),
                    ..line.clone()
                });
                return;
            };
            let bytes = u64::try_from(*len).unwrap_or(u64::MAX);
            let cut_bytes = u64::try_from(*missing).unwrap_or(u64::MAX);
            let of_message = Line { bytes, cut_bytes, ..line.clone() };
            let mut line = self.message(&header, head, of_message);
            line.note_cut(&header);
            lines.push(line);
        }
    }

    fn message(&mut self, header: &Header, message: &[u8], mut line: Line) -> Line {
        line.is_answer = header.is_response();
        line.command = alloc::format!("{}", header.command);
        line.message_id = (header.message_id != u64::MAX).then_some(header.message_id);
        line.session_id = header.session_id;
        (line.tree_id, line.async_id) = match header.route {
            Route::Sync { tree_id, .. } => (Some(tree_id), None),
            Route::Async { async_id } => (None, Some(async_id)),
        };
        line.credit_charge = header.credit_charge;
        line.credits = header.credits;
        if header.is_response() {
            line.status = Some(header.status);
            answers::answer(&mut self.state, header, message, &mut line);
        } else {
            requests::request(&mut self.state, header, message, &mut line);
        }
        line
    }
}

fn sealed(frame: &[u8], line: Line) -> Line {
    let session_id = TransformHeader::parse(frame).map_or(0, |header| header.session_id);
    Line {
        session_id,
        command: String::from("(encrypted)"),
        text: String::from("an encrypted message, whose key is not in the file"),
        ..line
    }
}

#[cfg(test)]
mod tests;
