//! Overwrites what would let the reader of a capture guess passwords or log on as somebody: the answers of
//! NTLM and the tickets of Kerberos in SESSION_SETUP and in remote procedure calls, and the calls that carry
//! passwords. Messages keep their length and their structure. Data of files is not touched.

mod pipes;
mod token;

use alloc::collections::BTreeMap;
use core::net::SocketAddr;
use core::ops::Range;

use frevo_wire::codec::Reader;
use frevo_wire::command::{create, ioctl, session_setup};
use frevo_wire::compound::Compound;
use frevo_wire::{Command, FileId, Header};

use crate::cut::data_range;
use crate::limits::PIPES;
use crate::recorder::Origin;
use pipes::Pipe;
pub(crate) use pipes::is_calls;

/// Overwrites secrets, and remembers the pipes in which there may be some.
#[derive(Debug, Default)]
pub struct Blanker {
    /// Pipes that are being opened: by connection and MessageId.
    asked: BTreeMap<(u64, u64), Pipe>,
    /// Open pipes, with the connections on which they were opened.
    open: BTreeMap<PipeId, (Pipe, u64)>,
}

/// The server, the session and the FileId of a pipe.
type PipeId = (SocketAddr, u64, FileId);

/// Facts of the messages of a frame.
struct Frame<'a> {
    origin: &'a Origin,
    /// The session of the message before it.
    session_id: u64,
    /// The pipe that the message before it has opened.
    made: Option<Pipe>,
}

/// Frames of both ends begin with a message of one of these kinds.
const SMB2: &[u8] = &frevo_wire::header::PROTOCOL_ID;

impl Blanker {
    /// Overwrites the secrets in a frame of a connection. The frame is decrypted and expanded, and has no
    /// prefix.
    pub fn blank(&mut self, origin: &Origin, frame: &mut [u8]) {
        if !frame.starts_with(SMB2) {
            return;
        }
        // Offsets do not move, because no message changes its length.
        let mut at = 0;
        let mut of = Frame { origin, session_id: 0, made: None };
        while let Some(Ok((_, message))) = Compound::new(frame.get(at..).unwrap_or(&[])).next() {
            let len = message.len();
            let is_last = len >= frame.len().saturating_sub(at);
            if let Some(message) = frame.get_mut(at..at.saturating_add(len)) {
                self.message(&mut of, message);
            }
            if is_last || len == 0 {
                break;
            }
            at = at.saturating_add(len);
        }
    }

    fn message(&mut self, of: &mut Frame<'_>, message: &mut [u8]) {
        let Ok(header) = Header::parse(message) else { return };
        // A related message may have the session of the one before it, MS-SMB2 3.3.5.2.7.2.
        if header.session_id != u64::MAX {
            of.session_id = header.session_id;
        }
        match (header.command, header.is_response()) {
            (Command::SESSION_SETUP, is_response) => {
                if let Some(range) = token_range(message, is_response)
                    && let Some(token) = message.get_mut(range)
                {
                    token::blank(token);
                }
            }
            (Command::CREATE, true) => self.opened(of, &header, message),
            (Command::CREATE, false) => of.made = self.asked(of, &header, message),
            (Command::CLOSE, false) => {
                if let Ok(request) = frevo_wire::command::close::Request::parse(message) {
                    self.open.remove(&of.pipe(request.file_id));
                }
            }
            (Command::WRITE, false) => {
                let Some(range) = data_range(message) else { return };
                let field = &mut Reader::new(message.get(80..).unwrap_or(&[]));
                let Ok(id) = FileId::read(field) else { return };
                self.data(of, id, range, message);
            }
            (Command::IOCTL, false) => {
                let Ok(request) = ioctl::Request::parse(message) else { return };
                if request.ctl_code == ioctl::CtlCode::PIPE_TRANSCEIVE {
                    let (id, range) = (request.file_id, range_of(message, 24, 28));
                    self.data(of, id, range, message);
                }
            }
            (Command::READ, true) => {
                let Some(range) = data_range(message) else { return };
                blank_logon(range, message);
            }
            (Command::IOCTL, true) => blank_logon(range_of(message, 32, 36), message),
            _ => {}
        }
    }

    /// Overwrites the data that is written to a pipe.
    fn data(&self, of: &Frame<'_>, id: FileId, range: Range<usize>, message: &mut [u8]) {
        let known = match id {
            FileId::ALL_ONES => of.made,
            id => self.open.get(&of.pipe(id)).map(|(pipe, _)| *pipe),
        };
        if let Some(data) = message.get_mut(in_bounds(range, message.len())) {
            pipes::blank(known, data);
        }
    }

    /// Remembers a pipe that a client opens.
    fn asked(&mut self, of: &Frame<'_>, header: &Header, message: &[u8]) -> Option<Pipe> {
        let request = create::Request::parse(message).ok()?;
        let pipe = Pipe::named(&request.name.to_string_lossy())?;
        if self.asked.len() < PIPES {
            self.asked.insert((of.origin.connection, header.message_id), pipe);
        }
        Some(pipe)
    }

    /// Learns the FileId of a pipe.
    fn opened(&mut self, of: &Frame<'_>, header: &Header, message: &[u8]) {
        if header.status == frevo_wire::Status::PENDING {
            return;
        }
        let connection = of.origin.connection;
        let Some(pipe) = self.asked.remove(&(connection, header.message_id)) else { return };
        let Ok(response) = create::Response::parse(message) else { return };
        if self.open.len() < PIPES {
            self.open.insert(of.pipe(response.file_id), (pipe, connection));
        }
    }

    /// Forgets the requests and the pipes of a connection that has ended. A pipe that another channel goes on
    /// with counts as one of which nothing is known.
    pub fn forget(&mut self, connection: u64) {
        self.asked.retain(|(of, _), _| *of != connection);
        self.open.retain(|_, (_, of)| *of != connection);
    }
}

impl Frame<'_> {
    fn pipe(&self, id: FileId) -> PipeId {
        (self.origin.ends.server, self.session_id, id)
    }
}

/// Overwrites the token of a logon in data that is read from a pipe.
fn blank_logon(range: Range<usize>, message: &mut [u8]) {
    if let Some(data) = message.get_mut(in_bounds(range, message.len())) {
        pipes::blank_logon(data);
    }
}

/// Returns the part of a range that is there: the data at the end of a message may be cut.
fn in_bounds(range: Range<usize>, len: usize) -> Range<usize> {
    range.start.min(len)..range.end.min(len)
}

/// Returns the place of the token in a SESSION_SETUP.
fn token_range(message: &[u8], is_response: bool) -> Option<Range<usize>> {
    let (len, at) = if is_response {
        (session_setup::Response::parse(message).ok()?.security_buffer.len(), 4)
    } else {
        (session_setup::Request::parse(message).ok()?.security_buffer.len(), 12)
    };
    let field = message.get(64_usize.saturating_add(at)..)?.first_chunk::<2>()?;
    let start = usize::from(u16::from_le_bytes(*field));
    Some(start..start.saturating_add(len))
}

/// Returns the range that two fields of the body tell, offset and length.
fn range_of(message: &[u8], offset_at: usize, len_at: usize) -> Range<usize> {
    let field = |at: usize| {
        let field = message.get(at.saturating_add(64)..).and_then(|rest| rest.first_chunk());
        field.map_or(0, |field| usize::try_from(u32::from_le_bytes(*field)).unwrap_or(0))
    };
    let (start, len) = (field(offset_at), field(len_at));
    start..start.saturating_add(len)
}

#[cfg(test)]
mod tests;
