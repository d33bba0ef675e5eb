//! Replies to the client: headers, bodies, and data of files as it came from the server.

use std::io;
use std::ops::Range;

use frevo_net::buffer::Buf;
use frevo_wire::codec::Writer;
use frevo_wire::error_response::ErrorResponse;
use frevo_wire::file_id::FileId;
use frevo_wire::header::{HEADER_LEN, Route};
use frevo_wire::{Header, HeaderFlags, Status};

use crate::connection::Answer;
use crate::limits::KEPT_BESIDE_DATA;

/// A part of a message of the server.
pub(super) struct Piece {
    message: Buf,
    range: Range<usize>,
}

impl Piece {
    /// Takes a part of an answer, without the rest of a message that is much longer.
    pub(super) fn of(answer: Answer, range: Range<usize>) -> Self {
        let message = answer.into_message();
        if message.len() <= range.len().saturating_add(KEPT_BESIDE_DATA) {
            return Self { message, range };
        }
        let message = Buf::copy_of(message.get(range).unwrap_or_default());
        Self { range: 0..message.len(), message }
    }

    pub(super) fn len(&self) -> usize {
        self.range.len()
    }

    fn bytes(&self) -> &[u8] {
        self.message.get(self.range.clone()).unwrap_or_default()
    }
}

/// The answer to a request that was carried out.
pub(super) struct Good {
    status: Status,
    /// The body, behind room for the header.
    message: Vec<u8>,
    /// Data behind the body.
    data: Vec<Piece>,
    /// The Open that the request has made.
    pub(super) file: Option<FileId>,
    session: Option<u64>,
    tree: Option<u32>,
}

impl Good {
    /// Returns an answer with this body, whose offsets count from the header.
    pub(super) fn of(fill: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut message = vec![0; HEADER_LEN];
        fill(&mut Writer::from(&mut message, 0));
        Self {
            status: Status::SUCCESS,
            message,
            data: Vec::new(),
            file: None,
            session: None,
            tree: None,
        }
    }

    pub(super) fn with_status(self, status: Status) -> Self {
        Self { status, ..self }
    }

    pub(super) fn with_data(self, data: Vec<Piece>) -> Self {
        Self { data, ..self }
    }

    pub(super) fn with_file(self, file: FileId) -> Self {
        Self { file: Some(file), ..self }
    }

    pub(super) fn with_session(self, session: u64) -> Self {
        Self { session: Some(session), ..self }
    }

    pub(super) fn with_tree(self, tree: u32) -> Self {
        Self { tree: Some(tree), ..self }
    }
}

/// The replies to the requests of a frame.
#[derive(Default)]
pub(super) struct Reply {
    /// All bytes up to the data of the last reply.
    bytes: Vec<u8>,
    /// Where the last reply begins.
    last: usize,
    data: Vec<Piece>,
}

impl Reply {
    pub(super) const fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Appends the answer to the request with this header.
    pub(super) fn push(&mut self, asked: &Header, good: Good) {
        self.end_last();
        let mut header = answer_to(asked, good.status);
        header.session_id = good.session.unwrap_or(asked.session_id);
        let tree_id = good.tree.or(asked.tree_id()).unwrap_or(0);
        header.route = Route::Sync { process_id: 0, tree_id };
        self.bytes.extend_from_slice(&header.to_bytes());
        self.bytes.extend_from_slice(good.message.get(HEADER_LEN..).unwrap_or_default());
        self.data = good.data;
    }

    pub(super) fn push_error(&mut self, asked: &Header, status: Status) {
        self.end_last();
        self.bytes.extend_from_slice(&answer_to(asked, status).to_bytes());
        ErrorResponse::PLAIN.encode(&mut Writer::from(&mut self.bytes, self.last));
    }

    /// Ends the reply before the next one: MS-SMB2 3.3.4.1.3.
    fn end_last(&mut self) {
        if self.bytes.is_empty() {
            return;
        }
        for piece in std::mem::take(&mut self.data) {
            self.bytes.extend_from_slice(piece.bytes());
        }
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        let next = u32::try_from(self.bytes.len() - self.last).unwrap_or(u32::MAX);
        Writer::from(&mut self.bytes, self.last).patch_u32(20, next);
        self.last = self.bytes.len();
    }

    /// Gives the parts of the frame to `write`.
    pub(super) async fn with_parts(
        &self,
        write: impl AsyncFnOnce(&[&[u8]]) -> io::Result<()>,
    ) -> io::Result<()> {
        let data: usize = self.data.iter().map(Piece::len).sum();
        let length = u32::try_from(self.bytes.len() + data).unwrap_or(u32::MAX).to_be_bytes();
        let mut parts: Vec<&[u8]> = vec![&length, &self.bytes];
        parts.extend(self.data.iter().map(Piece::bytes));
        write(&parts).await
    }
}

/// Returns the header of the answer to a request.
fn answer_to(asked: &Header, status: Status) -> Header {
    let related = asked.flags & HeaderFlags::RELATED_OPERATIONS;
    let tree_id = asked.tree_id().unwrap_or(0);
    Header {
        credit_charge: asked.credit_charge,
        status,
        command: asked.command,
        // The client in this process has as many credits as it wants.
        credits: asked.credits.max(1),
        flags: HeaderFlags::SERVER_TO_REDIR | related,
        next_command: 0,
        message_id: asked.message_id,
        route: Route::Sync { process_id: 0, tree_id },
        session_id: asked.session_id,
        signature: [0; 16],
    }
}
