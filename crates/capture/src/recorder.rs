//! Makes the blocks of a capture file of messages, in their order.

use core::net::SocketAddr;

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::cut::CaptureData;
use crate::limits::{CONNECTIONS, LAST_BLOCK_BYTES, SEGMENT_BYTES};
use crate::packet::{Ends, SMB_PORT, Sender, Stream};
use crate::pcapng::{self, Direction, Packet, Statistics};
use crate::secrets::Blanker;

/// Bytes of the prefix of a frame, MS-SMB2 2.1: a zero and the length.
const PREFIX_LEN: usize = 4;
/// The longest frame that a prefix can say.
const FRAME_MAX: usize = 0x00FF_FFFF;
/// Bytes that a packet has in the file beside its payload, at most, without its comment.
const PACKET_OVERHEAD: usize = 120;
/// Bytes of the packets that open a stream, and of the comment on it, at most.
const OPENING_BYTES: usize = 4096;

/// The decisions on a capture.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The largest size of the file, bytes. A capture ends before a message that does not fit: the beginning of
    /// a connection explains what follows it.
    pub bytes: u64,
    /// True keeps what logons and changes of passwords send.
    pub keeps_secrets: bool,
    /// The data of files that is kept.
    pub data: CaptureData,
    /// The program that captures, with its version.
    pub application: String,
    /// The reason of the capture, for people.
    pub comment: String,
}

/// A connection whose messages are captured.
#[derive(Debug, Clone)]
pub struct Origin {
    /// Its number, which no other connection of the capture has.
    pub connection: u64,
    /// Both ends.
    pub ends: Ends,
    /// The end that this program is.
    pub is_server: bool,
    /// The connection for people.
    pub comment: String,
}

/// A message that was captured.
#[derive(Debug)]
pub struct Message<'a> {
    /// Its connection.
    pub origin: &'a Origin,
    /// The time at which it was sent or received, nanoseconds since 1970.
    pub time_ns: u64,
    /// Its direction.
    pub direction: Direction,
    /// Messages that were left out before it, because the writer was too slow.
    pub dropped_before: u64,
    /// The frame without its prefix, as far as it is kept. Its secrets are overwritten.
    pub frame: &'a mut [u8],
    /// Bytes behind these that are not kept.
    pub cut: usize,
    /// Bytes of the frame that were replaced by zeros.
    pub zeroed: usize,
}

/// The outcome of a capture so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Outcome {
    /// Frames in the file.
    pub messages: u64,
    /// Frames that were left out because the writer was too slow.
    pub dropped: u64,
    /// Bytes of the file.
    pub bytes: u64,
    /// True if the capture ended at its largest size.
    pub is_full: bool,
}

/// Makes the blocks of one file.
#[derive(Debug)]
pub struct Recorder {
    limit: u64,
    blanker: Option<Blanker>,
    streams: BTreeMap<u64, Stream>,
    /// The clients and servers of the streams, which no two streams share.
    taken: BTreeSet<(SocketAddr, SocketAddr)>,
    outcome: Outcome,
}

impl Recorder {
    /// Begins a file: appends its first blocks.
    pub fn begin(settings: &Settings, out: &mut Vec<u8>) -> Self {
        let before = out.len();
        let secrets = if settings.keeps_secrets {
            "What logons send is in it: whoever has the file can try passwords."
        } else {
            "The answers and tickets of logons, and calls that carry passwords, are overwritten with zeros."
        };
        let data = match settings.data {
            CaptureData::Whole => String::from("The data of files is in it."),
            CaptureData::First(0) => String::from("The data of READ and WRITE is left out."),
            CaptureData::First(bytes) => {
                format!("Of the data of each READ and WRITE the first {bytes} bytes are in it.")
            }
        };
        let comment = format!(
            "{}\nSMB as it is inside of signatures, encryption and compression, in TCP streams that were made \
             again. {data} {secrets}",
            settings.comment
        );
        pcapng::begin(&settings.application, &comment, out);
        let bytes = u64::try_from(out.len().saturating_sub(before)).unwrap_or(u64::MAX);
        Self {
            limit: settings.bytes.saturating_sub(LAST_BLOCK_BYTES),
            blanker: (!settings.keeps_secrets).then(Blanker::default),
            streams: BTreeMap::new(),
            taken: BTreeSet::new(),
            outcome: Outcome { bytes, ..Outcome::default() },
        }
    }

    /// Returns the outcome so far.
    pub const fn outcome(&self) -> Outcome {
        self.outcome
    }

    /// Appends a message. It is left out if the file would become too large; then the file is full, and
    /// nothing more is appended but [the end](Self::end).
    pub fn message(&mut self, message: Message<'_>, out: &mut Vec<u8>) {
        let before = out.len();
        let Message { origin, time_ns, direction, dropped_before, frame, cut, zeroed } = message;
        self.outcome.dropped = self.outcome.dropped.saturating_add(dropped_before);
        let len = frame.len().saturating_add(PREFIX_LEN);
        let packets = len.div_ceil(SEGMENT_BYTES);
        let most = len
            .saturating_add(packets.saturating_mul(PACKET_OVERHEAD))
            .saturating_add(OPENING_BYTES);
        let most = u64::try_from(most).unwrap_or(u64::MAX);
        if self.outcome.bytes.saturating_add(most) > self.limit {
            self.outcome.is_full = true;
        }
        let total = frame.len().saturating_add(cut);
        if self.outcome.is_full || total > FRAME_MAX {
            return;
        }
        if let Some(blanker) = &mut self.blanker {
            blanker.blank(origin, frame);
        }
        if !self.streams.contains_key(&origin.connection) {
            self.open(origin, time_ns, out);
        }
        let Some(stream) = self.streams.get_mut(&origin.connection) else { return };
        let sender = match (direction, origin.is_server) {
            (Direction::Inbound, true) | (Direction::Outbound, false) => Sender::Client,
            _ => Sender::Server,
        };
        let comment = comment(dropped_before, zeroed);
        let comment = comment.as_deref();
        let prefix = u32::try_from(total).unwrap_or(0).to_be_bytes();
        // Readers join segments only if these are whole, so a frame that is cut is one packet of any length.
        let most = if cut > 0 { frame.len() } else { SEGMENT_BYTES.saturating_sub(PREFIX_LEN) };
        let (payload, rest) = frame.split_at(frame.len().min(most));
        let len = payload.len().saturating_add(cut).saturating_add(PREFIX_LEN);
        let mut head = stream.data(sender, len, rest.is_empty());
        head.extend_from_slice(&prefix);
        pcapng::packet(&Packet { time_ns, direction, head: &head, payload, cut, comment }, out);
        let count = rest.len().div_ceil(SEGMENT_BYTES);
        for (number, payload) in (1..).zip(rest.chunks(SEGMENT_BYTES)) {
            let head = &stream.data(sender, payload.len(), number == count);
            let one = Packet { time_ns, direction, head, payload, cut: 0, comment: None };
            pcapng::packet(&one, out);
        }
        self.outcome.messages = self.outcome.messages.saturating_add(1);
        self.count(before, out);
    }

    /// Ends the stream of a connection.
    pub fn close(&mut self, origin: &Origin, time_ns: u64, out: &mut Vec<u8>) {
        let before = out.len();
        if let Some(blanker) = &mut self.blanker {
            blanker.forget(origin.connection);
        }
        let Some(mut stream) = self.streams.remove(&origin.connection) else { return };
        let ends = stream.ends();
        self.taken.remove(&(ends.client, ends.server));
        if self.outcome.is_full {
            return;
        }
        for (sender, head) in &stream.close() {
            let direction = direction_of(*sender, origin.is_server);
            let one = Packet { time_ns, direction, head, payload: &[], cut: 0, comment: None };
            pcapng::packet(&one, out);
        }
        self.count(before, out);
    }

    /// Ends the file: appends the number of messages that it has and lacks.
    pub fn end(&mut self, dropped: u64, time_ns: u64, out: &mut Vec<u8>) {
        let before = out.len();
        self.outcome.dropped = self.outcome.dropped.saturating_add(dropped);
        let Outcome { messages, dropped, is_full, .. } = self.outcome;
        let received = messages.saturating_add(dropped);
        let end = if is_full { "; it ended at its largest size" } else { "" };
        let comment = format!("frames: {messages}, left out: {dropped}{end}");
        pcapng::statistics(&Statistics { time_ns, received, dropped, comment: &comment }, out);
        self.count(before, out);
    }

    fn count(&mut self, before: usize, out: &[u8]) {
        let bytes = u64::try_from(out.len().saturating_sub(before)).unwrap_or(u64::MAX);
        self.outcome.bytes = self.outcome.bytes.saturating_add(bytes);
    }

    /// Opens the stream of a connection. Each server has the port of SMB there, so that Wireshark knows the
    /// protocol, and no two connections have the same ends.
    fn open(&mut self, origin: &Origin, time_ns: u64, out: &mut Vec<u8>) {
        if self.streams.len() >= CONNECTIONS {
            return;
        }
        let Ends { mut client, mut server } = origin.ends;
        let port = server.port();
        server.set_port(SMB_PORT);
        while self.taken.contains(&(client, server)) || client == server {
            client.set_port(client.port().wrapping_add(1).max(1024));
        }
        let mut stream = Stream::new(Ends { client, server });
        let ends = stream.ends();
        self.taken.insert((ends.client, ends.server));
        let mut comment = format!("connection {}: {}", origin.connection, origin.comment);
        if port != SMB_PORT {
            comment.push_str(&format!("; the server's port is {port}"));
        }
        if client.port() != origin.ends.client.port() {
            comment.push_str(&format!("; the client's port is {}", origin.ends.client.port()));
        }
        let comment = shortened(&comment);
        let mut comment = Some(comment);
        for (sender, head) in &stream.open() {
            let direction = direction_of(*sender, origin.is_server);
            let comment = comment.take();
            let one = Packet { time_ns, direction, head, payload: &[], cut: 0, comment };
            pcapng::packet(&one, out);
        }
        self.streams.insert(origin.connection, stream);
    }
}

/// Bytes of the comment on a connection.
const COMMENT_MAX: usize = 2048;

/// Cuts a text at the end of a character.
fn shortened(text: &str) -> &str {
    let mut end = text.len().min(COMMENT_MAX);
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or("")
}

fn direction_of(sender: Sender, is_server: bool) -> Direction {
    match (sender, is_server) {
        (Sender::Client, true) | (Sender::Server, false) => Direction::Inbound,
        _ => Direction::Outbound,
    }
}

/// The words by which a reader finds a comment on frames that were left out.
pub(crate) const LEFT_OUT: &str = "left out before this one";

/// The comment on the first packet of a frame.
fn comment(dropped_before: u64, zeroed: usize) -> Option<String> {
    let mut texts = Vec::new();
    if dropped_before > 0 {
        texts.push(left_out(dropped_before));
    }
    if zeroed > 0 {
        texts.push(format!("data cut: {zeroed} bytes of it are zeros here"));
    }
    (!texts.is_empty()).then(|| texts.join("; "))
}

fn left_out(count: u64) -> String {
    let count =
        if count == 1 { String::from("1 frame was") } else { format!("{count} frames were") };
    format!("{count} {LEFT_OUT}: the capture was too slow")
}

#[cfg(test)]
mod tests;
