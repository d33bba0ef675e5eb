//! From a frame to the messages in it: MS-SMB2 3.3.5.2 up to the sequence
//! number.

use std::ops::Range;
use std::rc::Rc;

use frevo_crypto::Sender;
use frevo_net::buffer::Buf;
use frevo_proto::Disconnect;
use frevo_proto::frame::{Stage, check_message_len};
use frevo_proto::protection::{self, Algorithm, Form};
use frevo_wire::compound::Compound;
use frevo_wire::{Command, Header};
use smallvec::SmallVec;

use super::Connection;
use crate::base::limits::COMPOUND_ELEMENTS;
use crate::command::{self, Row};
use crate::objects::channel::Channel;
use crate::objects::refusal::Doom;
use crate::protection::Checked;

/// One message of a frame.
pub(super) struct Element {
    pub(super) range: Range<usize>,
    pub(super) header: Header,
    pub(super) row: &'static Row,
    /// The number of sequence numbers that the message has used up.
    pub(super) charge: u16,
}

/// The messages of a frame: nearly always one to four.
pub(super) type Elements = SmallVec<[Element; 4]>;

/// Messages of a long compound, for which room is made at once.
const COMPOUND_USUAL: usize = 7;

/// A frame that has been opened.
pub(super) struct Opened {
    /// The messages of the frame, decrypted.
    pub(super) frame: Buf,
    /// The channel whose key opened it, if it was sealed.
    pub(super) sealed: Option<Rc<Channel>>,
    /// The results for its messages, if their signatures were verified before their turn. Boxed: most
    /// requests have none, and need no room for them.
    pub(super) verified: Option<Box<Checked>>,
}

impl Connection {
    /// The largest frame accepted now. It grows as the peer shows who it is, so
    /// that a stranger cannot make the server allocate much.
    pub(super) fn frame_limit(&self) -> u32 {
        let stage = match self.info.negotiated() {
            Err(_) => Stage::New,
            Ok(_) if !self.members.is_authenticated() => Stage::Negotiated,
            Ok(n) => Stage::Authenticated { max_payload: n.terms.max_payload() },
        };
        u32::try_from(stage.frame_limit()).unwrap_or(u32::MAX)
    }

    /// Unseals a frame: MS-SMB2 3.3.5.2.1.1. Every fault is a disconnect.
    ///
    /// It is called for each frame, in their order, when its turn has come.
    pub(super) fn open_frame(&self, mut frame: Buf) -> Result<Opened, Doom> {
        let checked = self.incoming.arrivals.take_checked();
        let session_id = match Form::of(&frame) {
            Form::Message => {
                return Ok(Opened { frame, sealed: None, verified: checked.map(Box::new) });
            }
            Form::Sealed(session_id) => session_id,
            Form::Compressed => return Err(Disconnect::Compressed.into()),
            Form::Unknown => return Err(Doom::Rule("no SMB2 message")),
        };
        let channel = self.members.channel(session_id);
        if channel.is_some() && !self.members.is_authenticated() {
            // MS-SMB2 Connection.ConstrainedConnection: an encrypted message is allowed only after
            // a user has logged on.
            return Err(Doom::Rule("a sealed message before a user has logged on"));
        }
        let ended = Doom::Late("a sealed message of a session that has ended");
        let channel = channel.ok_or(ended)?;
        let key = channel.opening_key().ok_or(ended)?;
        let checked = checked.filter(|checked| checked.verdict.seal().is_some());
        if checked.as_ref().is_some_and(|by| !Rc::ptr_eq(&by.channel, &channel)) {
            return Err(ended);
        }
        let verdict = checked.map(|checked| checked.verdict);
        let algorithm = || verdict.is_none().then(|| Algorithm::Sealing(key.cipher()));
        let threads = self.info.server.crypto_threads();
        let opened = threads.measured(frame.len(), algorithm, || {
            protection::open(&mut frame, verdict, Sender::Client, |_| Some(key))
        })?;
        frame.truncate(opened.message.end);
        frame.advance(opened.message.start);
        Ok(Opened { frame, sealed: Some(channel), verified: None })
    }

    /// Splits an opened frame and checks each message as far as a disconnect
    /// can be earned. Sequence numbers are used up here, in the order of arrival.
    pub(super) fn split(&self, opened: &Opened) -> Result<Elements, Doom> {
        let mut elements = Elements::new();
        for part in Compound::new(&opened.frame) {
            let (offset, message) = part?;
            if elements.len() >= COMPOUND_ELEMENTS {
                return Err(Doom::Rule("a compound of too many messages"));
            }
            let header = Header::parse(message)?;
            let row = command::row(header.command).ok_or(Doom::Rule("unknown command"))?;
            let first = elements.is_empty();
            self.check_state(&header, first && header.next_command == 0)?;
            let max_payload = self.info.negotiated().map_or(u32::MAX, |n| n.terms.max_payload());
            let multi_credit = self.info.supports_multi_credit();
            if self.info.is_negotiated() {
                check_message_len(header.command, message.len(), multi_credit, max_payload)?;
            }
            if header.is_response() {
                return Err(Doom::Rule("a response instead of a request"));
            }
            let charge = self
                .incoming
                .window
                .borrow_mut()
                .admit(&header, self.info.supports_multi_credit())?;
            if elements.len() == elements.inline_size() {
                // Reserves room for COMPOUND_USUAL (seven) elements, because the allocator provides
                // a block of this size without a search.
                elements.reserve_exact(COMPOUND_USUAL - elements.len());
            }
            let range = offset..offset + message.len();
            elements.push(Element { range, header, row, charge });
        }
        self.note_credits();
        Ok(elements)
    }

    /// MS-SMB2 3.3.5.2.2, and NEGOTIATE at most once (3.3.5.4).
    fn check_state(&self, header: &Header, alone: bool) -> Result<(), Doom> {
        let negotiating = header.command == Command::NEGOTIATE;
        match self.info.is_negotiated() {
            true if negotiating => Err(Doom::Rule("a second NEGOTIATE")),
            false if !negotiating => Err(Doom::Rule("a command before NEGOTIATE")),
            false if !alone => Err(Doom::Rule("NEGOTIATE in a compound")),
            _ => Ok(()),
        }
    }

    /// Credits that a request took from the window.
    pub(super) fn charge(&self, header: &Header) -> u16 {
        if self.info.supports_multi_credit() { header.credit_charge.max(1) } else { 1 }
    }
}
