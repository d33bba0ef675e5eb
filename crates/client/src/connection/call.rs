//! Requests before they are sent, and their protection.

use std::sync::Arc;

use frevo_crypto::{SealingKey, Sender, SigningKey};
use frevo_net::buffer::Buf;
use frevo_proto::protection::transform::HEADROOM;
use frevo_proto::protection::{
    self, Framed, Outgoing, ProtectError, Protection, Signature, Signatures, Thrift, ToCompress,
    Work,
};
use frevo_wire::codec::Writer;
use frevo_wire::command::{read, write};
use frevo_wire::compound::Compound;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::{Command, HeaderFlags};
use tokio::sync::watch;

use super::loan::Loan;

/// The connection has ended: no answer comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// The longest header and fixed part of a request with a payload, rounded up.
const HEAD_MAX: usize = HEADER_LEN + 64;

/// Headroom of a payload that is sent without a copy, bytes.
pub(crate) const PAYLOAD_HEADROOM: usize = HEADROOM + HEAD_MAX;

/// The payload of a request, behind its fixed part.
pub(crate) enum Payload<'a> {
    /// None, or it is in the body already.
    None,
    /// Bytes that are copied behind the fixed part.
    Copied(&'a [u8]),
    /// A buffer with [`PAYLOAD_HEADROOM`] before the bytes.
    Placed(Buf),
}

/// Data that may move by RDMA in place of the message.
#[derive(Default)]
pub(crate) enum Movable {
    /// None.
    #[default]
    No,
    /// The answer's data.
    Read(read::Request<'static>),
    /// The payload.
    Write(write::Request<'static>),
}

/// A request before it has a number.
pub(crate) struct Call<'a> {
    pub(crate) command: Command,
    pub(crate) session_id: u64,
    pub(crate) tree_id: u32,
    pub(crate) flags: HeaderFlags,
    /// Signs the request even if the session signs no others.
    pub(crate) sign: bool,
    /// ChannelSequence, which takes the place of the status.
    pub(crate) channel_sequence: u16,
    /// Bytes of the request's or the answer's payload: they decide on the credits.
    pub(crate) cost: u32,
    /// True if the answer may take any time: it waits for other clients.
    pub(crate) waits: bool,
    /// True if no caller waits for the answer: the request may leave together with the next one.
    pub(crate) is_unhurried: bool,
    /// The caller's patience: at its end the request is cancelled, and its answer awaited.
    pub(crate) patience: Option<Arc<Patience>>,
    /// Space for the header, and the body.
    pub(crate) message: Vec<u8>,
    pub(crate) payload: Payload<'a>,
    pub(crate) movable: Movable,
    pub(crate) compressible: Compressible,
    /// The memory that is lent to the server until the answer.
    pub(crate) loan: Option<Loan>,
}

/// The data that is compressed where the connection does that.
pub(crate) enum Compressible {
    /// None.
    No,
    /// The data of the answer to a READ.
    Answer,
    /// The data of a WRITE. Its file gets the result.
    Payload(Arc<Thrift>),
}

/// The patience of a caller: it ends when the caller gives up.
#[derive(Debug, Default)]
pub(crate) struct Patience(watch::Sender<bool>);

impl Patience {
    /// Makes the caller give up.
    pub(crate) fn end(&self) {
        self.0.send_replace(true);
    }

    pub(crate) fn has_ended(&self) -> bool {
        *self.0.borrow()
    }

    /// Returns when it has ended.
    pub(crate) async fn ended(&self) {
        // The wait cannot fail, because `self` owns the sender of this channel.
        let _ = self.0.subscribe().wait_for(|has_ended| *has_ended).await;
    }
}

impl<'a> Call<'a> {
    /// Makes a request whose body `encode` writes.
    pub(crate) fn new(command: Command, encode: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut message = vec![0; HEADER_LEN];
        encode(&mut Writer::from(&mut message, 0));
        Self {
            command,
            session_id: 0,
            tree_id: 0,
            flags: HeaderFlags::EMPTY,
            sign: false,
            channel_sequence: 0,
            cost: 0,
            waits: false,
            is_unhurried: false,
            patience: None,
            message,
            payload: Payload::None,
            movable: Movable::No,
            compressible: Compressible::No,
            loan: None,
        }
    }

    /// Lets the data move by RDMA where the connection has it.
    pub(crate) fn movable(self, movable: Movable) -> Self {
        Self { movable, ..self }
    }

    /// Has data compressed where the connection does that.
    pub(crate) fn compressible(self, compressible: Compressible) -> Self {
        Self { compressible, ..self }
    }

    /// Signs the request in any case: MS-SMB2 3.2.5.5 and 3.3.5.7 require it of the requests that
    /// protect the negotiation.
    pub(crate) fn signed(self) -> Self {
        Self { sign: true, ..self }
    }

    /// Returns the length of the payload, bytes.
    pub(crate) fn payload_len(&self) -> usize {
        match &self.payload {
            Payload::None => 0,
            Payload::Copied(bytes) => bytes.len(),
            Payload::Placed(buf) => buf.len(),
        }
    }

    pub(crate) fn cost(self, cost: u32) -> Self {
        Self { cost, ..self }
    }

    pub(crate) fn payload(self, payload: Payload<'a>) -> Self {
        Self { payload, ..self }
    }
}

/// The protection of a message, with the key.
#[derive(Clone, Copy)]
pub(crate) enum Guard<'a> {
    /// Neither signed nor encrypted.
    None,
    /// Signed with this key.
    Signed(&'a Arc<SigningKey>),
    /// Encrypted with this key.
    Sealed(&'a Arc<SealingKey>),
}

/// A frame with keys of its session.
pub(super) type OutgoingFrame<'a> = Outgoing<Buf, &'a Arc<SigningKey>, &'a Arc<SealingKey>>;

impl<'a> Guard<'a> {
    /// Returns the kind of protection.
    pub(crate) const fn protection(&self) -> Protection {
        match self {
            Self::None => Protection::None,
            Self::Signed(_) => Protection::Signed,
            Self::Sealed(_) => Protection::Sealed,
        }
    }

    /// Begins the protection of a frame, each message of which is signed if it is.
    pub(super) fn begin(
        self,
        mut frame: Buf,
        session_id: u64,
        to_compress: Option<ToCompress<Buf>>,
    ) -> Result<OutgoingFrame<'a>, Gone> {
        let guard = match self {
            Self::None => protection::Guard::None,
            Self::Sealed(key) => protection::Guard::Sealed { key, session_id },
            Self::Signed(key) => {
                let mut signatures = Signatures::new();
                for part in Compound::new(&frame) {
                    let (start, message) = part.map_err(|_| Gone)?;
                    signatures.push(Signature { range: start..start + message.len(), key });
                }
                protection::Guard::Signed(signatures)
            }
        };
        frame.grow_front(HEADROOM);
        Outgoing::new(frame, guard, Sender::Client, to_compress).map_err(|_| Gone)
    }

    /// Protects a short message and prepends its frame prefix.
    pub(super) fn protect(self, message: Buf, session_id: u64) -> Result<Buf, Gone> {
        framed(self.begin(message, session_id, None)?.run())
    }
}

/// Takes a frame that is ready out of its buffer.
pub(super) fn framed(done: Result<Framed<Buf>, ProtectError>) -> Result<Buf, Gone> {
    let Framed { mut buffer, range } = done.map_err(|_| Gone)?;
    buffer.truncate(range.end);
    buffer.advance(range.start);
    Ok(buffer)
}
