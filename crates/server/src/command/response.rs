//! A response that a handler writes: MS-SMB2 3.3.4.

use std::sync::Arc;

use frevo_net::buffer::{Buf, HEADROOM};
use frevo_net::file_io::FileFd;
use frevo_proto::protection::Thrift;
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::operation::OperationId;
use frevo_wire::file_id::FileId;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::smbd::BufferDescriptor;

use crate::base::limits::LONG_REPLY_BYTES;
use crate::base::rates::Moved;
use crate::command::client_memory::DataTransform;
use crate::objects::ledger::Built;
use crate::objects::session::Session;

// The space before a payload must hold all headers of a READ response: the frame's prefix, the
// transform header, the SMB2 header and the fixed part of 16 bytes.
const _: () = assert!(HEADROOM >= frevo_proto::protection::transform::HEADROOM + HEADER_LEN + 16);

/// Room for a response without data: CREATE's with the contexts that clients ask for.
const USUAL_BYTES: usize = 256;

/// Data that follows the body.
pub(crate) enum Payload {
    /// Read into a buffer that has [`HEADROOM`] bytes of headroom.
    Buf(Buf),
    /// Still in the file: it goes to the socket directly. Only when
    /// `Request::response_is_bare`.
    File {
        /// Descriptor of the file to send from.
        file: FileFd,
        /// Offset of the first byte in the file.
        offset: u64,
        /// Number of bytes to send; the file has them now.
        length: u32,
    },
}

impl Payload {
    /// Returns the number of bytes.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Buf(buf) => buf.len(),
            Self::File { length, .. } => *length as usize,
        }
    }
}

/// Data that is put into the client's memory before the response is sent.
pub(crate) struct RemoteData {
    /// The data.
    pub bytes: Buf,
    /// The client's memory.
    pub buffers: Vec<BufferDescriptor>,
    /// The protection that the client wants for it.
    pub(crate) transform: DataTransform,
}

/// A response: 64 bytes that are free for the header, then the body.
#[derive(Default)]
pub(crate) struct Response {
    bytes: Vec<u8>,
    payload: Option<Payload>,
    made: Made,
    binding: Option<Arc<Session>>,
    operation: Option<OperationId>,
    is_unsigned: bool,
    /// The payload is to be compressed; its file gets the result.
    compressed: Option<Arc<Thrift>>,
    /// Boxed: each request of a connection has room for this.
    remote_data: Option<Box<RemoteData>>,
    invalidates: Option<u32>,
    /// The charge of the payload's memory, until it is in the send queue.
    built: Option<Built>,
    /// See [`Self::note_change`].
    has_changed: bool,
    /// Data that a copy on the server has moved.
    moved: Moved,
}

/// Ids that a handler has assigned. The header of the response and related requests use them.
#[derive(Debug, Default)]
struct Made {
    session_id: Option<u64>,
    tree_id: Option<u32>,
    file_id: Option<FileId>,
}

impl Response {
    /// Makes a response without a body in the memory of `bytes`.
    pub(crate) fn reusing(mut bytes: Vec<u8>) -> Self {
        bytes.clear();
        bytes.reserve(USUAL_BYTES);
        bytes.resize(HEADER_LEN, 0);
        Self { bytes, ..Self::default() }
    }

    /// Returns the writer of the body; offsets count from the header.
    pub(crate) fn writer(&mut self) -> Writer<'_> {
        Writer::from(&mut self.bytes, 0)
    }

    /// Notes that the handler has changed what a second run would find: a failure from here on is told
    /// as it is.
    pub(crate) const fn note_change(&mut self) {
        self.has_changed = true;
    }

    /// True if a second run would find a change of the first one.
    pub(crate) const fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Removes the body and the payload.
    pub(crate) fn clear_body(&mut self) {
        self.bytes.truncate(HEADER_LEN);
        self.payload = None;
        self.compressed = None;
        self.remote_data = None;
        self.built = None;
    }

    /// Sets the data that goes into the client's memory.
    pub(crate) fn set_remote_data(&mut self, data: RemoteData) {
        self.remote_data = Some(Box::new(data));
    }

    /// Notes the data that a copy on the server has moved.
    pub(crate) const fn note_moved(&mut self, moved: Moved) {
        self.moved = moved;
    }

    /// Returns the data that a copy on the server has moved.
    pub(crate) const fn moved(&self) -> Moved {
        self.moved
    }

    /// Sets the charge of the memory that the response has.
    pub(crate) fn set_built(&mut self, built: Option<Built>) {
        self.built = built;
    }

    /// Takes the charge of the memory that the response is to have.
    pub(crate) const fn take_built(&mut self) -> Option<Built> {
        self.built.take()
    }

    /// Takes the data that goes into the client's memory.
    pub(crate) const fn take_remote_data(&mut self) -> Option<Box<RemoteData>> {
        self.remote_data.take()
    }

    /// Sets the client's key that the response invalidates, also a response that refuses.
    pub(crate) const fn set_invalidates(&mut self, key: Option<u32>) {
        self.invalidates = key;
    }

    /// Returns the client's key that the response invalidates.
    pub(crate) const fn invalidates(&self) -> Option<u32> {
        self.invalidates
    }

    /// Returns the room for the header with the body behind it.
    pub(crate) fn bytes_mut(&mut self) -> &mut Vec<u8> {
        &mut self.bytes
    }

    /// Sets the data that follows the body.
    pub(crate) fn set_payload(&mut self, payload: Payload) {
        self.payload = Some(payload);
    }

    /// Has the payload compressed on its way, if nothing but this response is in its frame. `thrift` gets
    /// the result.
    pub(crate) fn compress_payload(&mut self, thrift: Arc<Thrift>) {
        self.compressed = Some(thrift);
    }

    /// Takes what gets the result, if the payload is to be compressed.
    pub(crate) const fn take_compressed(&mut self) -> Option<Arc<Thrift>> {
        self.compressed.take()
    }

    /// True for a reply with so much in memory that protecting and sending it takes long.
    pub(crate) fn is_long(&self) -> bool {
        self.payload_bytes().max(self.bytes.len()) >= LONG_REPLY_BYTES
    }

    /// Returns the bytes of the payload that are in memory.
    pub(crate) fn payload_bytes(&self) -> usize {
        match &self.payload {
            Some(Payload::Buf(buf)) => buf.len(),
            Some(Payload::File { .. }) | None => 0,
        }
    }

    /// Returns the bytes of data that a READ returns, wherever they are.
    pub(crate) fn data_bytes(&self) -> usize {
        let remote = self.remote_data.as_ref().map_or(0, |data| data.bytes.len());
        self.payload.as_ref().map_or(remote, Payload::len)
    }

    /// Records the session that SESSION_SETUP has made or continues.
    pub(crate) fn set_session_id(&mut self, id: u64) {
        self.made.session_id = Some(id);
    }

    /// Records the tree connect that TREE_CONNECT has made.
    pub(crate) fn set_tree_id(&mut self, id: u32) {
        self.made.tree_id = Some(id);
    }

    /// Records the Open that CREATE has made.
    pub(crate) fn set_file_id(&mut self, id: FileId) {
        self.made.file_id = Some(id);
    }

    /// Records the numbered operation that CREATE has begun.
    pub(crate) fn set_operation(&mut self, id: OperationId) {
        self.operation = Some(id);
    }

    /// Returns the numbered operation that CREATE has begun.
    pub(crate) const fn operation(&self) -> Option<OperationId> {
        self.operation
    }

    /// Records that the client has the key of `session`, though its connection is no channel of
    /// it yet: until it is one, the session's key signs.
    pub(crate) fn set_binding(&mut self, session: Arc<Session>) {
        self.binding = Some(session);
    }

    /// Returns the session whose key signs in place of a channel's.
    pub(crate) const fn binding(&self) -> Option<&Arc<Session>> {
        self.binding.as_ref()
    }

    /// Makes the response one without a signature, unless it is sealed.
    pub(crate) fn leave_unsigned(&mut self) {
        self.is_unsigned = true;
    }

    /// True for a response that no key signs.
    pub(crate) const fn is_unsigned(&self) -> bool {
        self.is_unsigned
    }

    /// Returns the SessionId of the session that was made.
    pub(crate) const fn session_id(&self) -> Option<u64> {
        self.made.session_id
    }

    /// Returns the TreeId of the tree connect that was made.
    pub(crate) const fn tree_id(&self) -> Option<u32> {
        self.made.tree_id
    }

    /// Returns the FileId of the Open that was made.
    pub(crate) const fn file_id(&self) -> Option<FileId> {
        self.made.file_id
    }

    /// Returns the room for the header with the body, and the payload.
    pub(crate) fn into_parts(self) -> (Vec<u8>, Option<Payload>) {
        (self.bytes, self.payload)
    }
}
