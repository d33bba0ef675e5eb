//! Requests before they are sent, and replies as they came.

use frevo_crypto::{Sender, SignatureNonce};
use frevo_proto::frame::PREFIX_LEN;
use frevo_proto::protection::transform::HEADROOM;
use frevo_wire::codec::Writer;
use frevo_wire::header::HEADER_LEN;
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};

use super::logon::Logon;

/// How messages are protected on their way.
#[derive(Clone, Copy)]
pub enum Via<'a> {
    Plain,
    Signed(&'a Logon),
    Sealed(&'a Logon),
}

/// One request: header and body, both for the test to change.
#[derive(Clone, Debug)]
pub struct Draft {
    pub header: Header,
    pub body: Vec<u8>,
}

impl Draft {
    pub fn new(command: Command) -> Self {
        Self {
            header: Header {
                credit_charge: 1,
                status: Status::SUCCESS,
                command,
                credits: 64,
                flags: HeaderFlags::EMPTY,
                next_command: 0,
                message_id: 0,
                route: Route::Sync { process_id: 0xFEFF, tree_id: 0 },
                session_id: 0,
                signature: [0; 16],
            },
            body: Vec::new(),
        }
    }

    /// The body that is the StructureSize 4 and nothing else.
    pub fn empty(command: Command) -> Self {
        Self::new(command).body(&[4, 0, 0, 0])
    }

    pub fn echo() -> Self {
        Self::empty(Command::ECHO)
    }

    pub fn session(mut self, id: u64) -> Self {
        self.header.session_id = id;
        self
    }

    pub fn tree(mut self, tree_id: u32) -> Self {
        self.header.route = Route::Sync { process_id: 0xFEFF, tree_id };
        self
    }

    pub fn flags(mut self, flags: HeaderFlags) -> Self {
        self.header.flags |= flags;
        self
    }

    /// Goes on from the request before it in the compound; its own ids say so.
    pub fn related(self) -> Self {
        self.flags(HeaderFlags::RELATED_OPERATIONS).session(u64::MAX).tree(u32::MAX)
    }

    pub fn charge(mut self, charge: u16) -> Self {
        self.header.credit_charge = charge;
        self
    }

    pub fn body(mut self, body: &[u8]) -> Self {
        self.body = body.to_vec();
        self
    }

    /// Writes the body with an encoder, whose offsets count from the header.
    pub fn with(mut self, encode: impl FnOnce(&mut Writer<'_>)) -> Self {
        let mut bytes = vec![0; HEADER_LEN];
        encode(&mut Writer::from(&mut bytes, 0));
        self.body = bytes.split_off(HEADER_LEN);
        self
    }

    /// Overwrites bytes of the body, counted from the header as the
    /// specification counts.
    pub fn patch(mut self, at: usize, bytes: &[u8]) -> Self {
        let at = at - HEADER_LEN;
        self.body[at..at + bytes.len()].copy_from_slice(bytes);
        self
    }

    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = self.header.to_bytes().to_vec();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// Chains drafts into one message, signed or sealed; without the transport's
/// prefix.
pub fn pack(drafts: &[Draft], via: Via<'_>) -> Vec<u8> {
    let mut chain = Vec::new();
    for (at, draft) in drafts.iter().enumerate() {
        let mut message = draft.bytes();
        if at + 1 < drafts.len() {
            message.resize(message.len().next_multiple_of(8), 0);
            let next = u32::try_from(message.len()).unwrap();
            message[20..24].copy_from_slice(&next.to_le_bytes());
        }
        if let Via::Signed(logon) = via {
            sign_anything(&mut message, logon);
        }
        chain.extend_from_slice(&message);
    }
    match via {
        Via::Sealed(logon) => seal(&chain, logon, logon.id),
        _ => chain,
    }
}

/// Signs whatever is as long as a header.
pub fn sign_anything(message: &mut [u8], logon: &Logon) {
    if message.len() < HEADER_LEN {
        return;
    }
    message[16] |= HeaderFlags::SIGNED.0 as u8;
    let nonce = SignatureNonce {
        message_id: u64::from_le_bytes(message[24..32].try_into().unwrap()),
        sender: Sender::Client,
        is_cancel: message[12..14] == Command::CANCEL.0.to_le_bytes(),
    };
    logon.signing.sign(message, nonce).unwrap();
}

/// Seals any bytes under any SessionId.
pub fn seal(message: &[u8], logon: &Logon, session_id: u64) -> Vec<u8> {
    let mut frame = vec![0; HEADROOM];
    frame.extend_from_slice(message);
    let key = logon.keys.sealing.as_ref().expect("the session can seal");
    frevo_proto::protection::transform::seal_frame(&mut frame, key, session_id).unwrap();
    frame.split_off(PREFIX_LEN)
}

/// One response.
#[derive(Clone, Debug)]
pub struct Reply {
    pub header: Header,
    /// From its header to its end.
    pub message: Vec<u8>,
    pub sealed: bool,
}

impl Reply {
    pub fn status(&self) -> Status {
        self.header.status
    }

    #[track_caller]
    pub fn expect(&self, status: Status) -> &Self {
        assert_eq!(self.header.status, status, "the answer to {}", self.header.command);
        self
    }

    #[track_caller]
    pub fn ok(&self) -> &Self {
        self.expect(Status::SUCCESS)
    }

    pub fn is_signed(&self) -> bool {
        self.header.flags.contains(HeaderFlags::SIGNED)
    }

    pub fn is_interim(&self) -> bool {
        self.status() == Status::PENDING
    }
}
