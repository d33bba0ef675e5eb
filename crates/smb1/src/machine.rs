//! The requests under way on a connection: their numbers, their signatures, and their answers.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Deref;

use frevo_wire::Status;
use frevo_wire::codec::{Malformed, Parsed};

use crate::charset::{Charset, CodePage};
use crate::header::{Command, Flags2, Header};
use crate::limits::REQUESTS_MAX;
use crate::message::{PREFIX_LEN, Request, Response};
use crate::negotiate::{Capabilities, Negotiated};
use crate::signing::Signer;
use crate::status::status;
use crate::transaction::{Gathering, Results};

/// A violation of the protocol by the server; the connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// A message is malformed.
    Malformed(Malformed),
    /// An answer to a request that is not under way, or that has another command.
    Unasked,
    /// A message is not signed, or not by one who knows the password.
    WrongSignature,
    /// As many requests are under way as the server allows; a caller's error.
    TooMany,
}

impl From<Malformed> for Fault {
    fn from(malformed: Malformed) -> Self {
        Self::Malformed(malformed)
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed(malformed) => write!(f, "{malformed}"),
            Self::Unasked => f.write_str("an answer to no request"),
            Self::WrongSignature => f.write_str("a message without a right signature"),
            Self::TooMany => f.write_str("too many requests under way"),
        }
    }
}

impl core::error::Error for Fault {}

/// The terms of a connection that concern every message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// The form of strings.
    pub charset: Charset,
    /// True if users log on with tokens of SPNEGO.
    pub is_extended: bool,
    /// Requests that may be under way.
    pub requests: u16,
}

impl Terms {
    /// Returns the terms before the server has answered.
    const BEFORE: Self =
        Self { charset: Charset::Oem(CodePage::Cp850), is_extended: false, requests: 1 };

    /// Returns the terms of a server's answer. Without Unicode its strings are of `page`.
    pub fn of(negotiated: &Negotiated, page: CodePage) -> Self {
        let has = |capability| negotiated.capabilities.contains(capability);
        Self {
            charset: if has(Capabilities::UNICODE) { Charset::Unicode } else { Charset::Oem(page) },
            is_extended: has(Capabilities::EXTENDED_SECURITY),
            requests: negotiated.max_mpx.clamp(1, REQUESTS_MAX),
        }
    }
}

/// A request that has not been answered.
#[derive(Debug)]
struct Pending {
    command: Command,
    /// The number of the signature of its answers.
    answer_sequence: u32,
    gathering: Gathering,
}

/// The state of a connection.
#[derive(Debug)]
pub struct Machine {
    terms: Terms,
    /// Features that messages tell besides those of the terms.
    offers: Flags2,
    user: u16,
    signer: Option<Signer>,
    next_sequence: u32,
    next_mid: u16,
    pending: BTreeMap<u16, Pending>,
}

/// A message to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sent {
    /// The number of the request.
    pub mid: u16,
    /// The message behind its length, up to the payload of the request, which follows. Messages must be sent in the
    /// order in which they were made.
    pub head: Vec<u8>,
}

/// The meaning of a received message, whose bytes are a `M`.
#[derive(Debug)]
pub enum Received<M = Vec<u8>> {
    /// The whole answer to the request with this number.
    Answer(u16, Answer<M>),
    /// A part of an answer.
    Part,
    /// A notice that needs no answer, since this client holds no oplocks.
    Notice,
}

/// The whole answer to a request.
#[derive(Debug)]
pub struct Answer<M = Vec<u8>> {
    status: Status,
    message: M,
    results: Results,
}

impl<M: Deref<Target = [u8]>> Answer<M> {
    /// Returns the status.
    pub const fn status(&self) -> Status {
        self.status
    }

    /// Returns the last message of the answer.
    ///
    /// # Errors
    /// None: it was parsed before.
    pub fn response(&self) -> Parsed<Response<'_>> {
        Response::parse(&self.message)
    }

    /// Returns the last message of the answer, from its header.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Returns the last message of the answer, from its header.
    pub fn into_message(self) -> M {
        self.message
    }

    /// Returns the results of a transaction.
    pub const fn results(&self) -> &Results {
        &self.results
    }
}

impl Default for Machine {
    fn default() -> Self {
        Self::new(true)
    }
}

/// Features of all messages of this client.
const USUAL: Flags2 =
    Flags2(Flags2::LONG_NAMES.0 | Flags2::EAS.0 | Flags2::IS_LONG_NAME.0 | Flags2::NT_STATUS.0);

impl Machine {
    /// Returns the state of a new connection. `offers_extended` offers tokens of SPNEGO.
    pub const fn new(offers_extended: bool) -> Self {
        let offers = if offers_extended { Flags2::EXTENDED_SECURITY } else { Flags2::EMPTY };
        Self {
            terms: Terms::BEFORE,
            offers,
            user: 0,
            signer: None,
            next_sequence: 0,
            next_mid: 1,
            pending: BTreeMap::new(),
        }
    }

    /// Returns the terms of the connection.
    pub const fn terms(&self) -> Terms {
        self.terms
    }

    /// Takes the terms of the server's answer to NEGOTIATE. `offers_signing` tells it in SESSION_SETUP that
    /// this client can sign.
    pub fn negotiated(&mut self, terms: Terms, offers_signing: bool) {
        self.terms = terms;
        self.offers = Flags2::EMPTY;
        if terms.is_extended {
            self.offers |= Flags2::EXTENDED_SECURITY;
        }
        if offers_signing {
            self.offers |= Flags2::SECURITY_SIGNATURE;
        }
    }

    /// Takes the number of the session from an answer to SESSION_SETUP.
    ///
    /// # Errors
    /// None: it was parsed before.
    pub fn note_user<M: Deref<Target = [u8]>>(&mut self, answer: &Answer<M>) -> Parsed<()> {
        self.user = answer.response()?.header.user;
        Ok(())
    }

    /// Signs from now on. The answer that ended the logon must be signed already, with the number 1.
    ///
    /// # Errors
    /// If it is not signed by one who knows the password.
    pub fn sign_after<M: Deref<Target = [u8]>>(
        &mut self,
        answer: &Answer<M>,
        signer: Signer,
    ) -> Result<(), Fault> {
        let is_flagged = answer.response()?.header.flags2.contains(Flags2::SECURITY_SIGNATURE);
        if !is_flagged || !signer.is_signed(&answer.message, 1) {
            return Err(Fault::WrongSignature);
        }
        self.signer = Some(signer);
        self.next_sequence = 2;
        Ok(())
    }

    /// Returns true if messages are signed.
    pub const fn is_signing(&self) -> bool {
        self.signer.is_some()
    }

    /// Returns true if another request may begin.
    pub fn has_room(&self) -> bool {
        self.pending.len() < usize::from(self.terms.requests)
    }

    /// Begins a request in a tree connect; 0 where none applies.
    ///
    /// # Errors
    /// If as many are under way as the server allows.
    pub fn send(&mut self, tree: u16, request: &Request<'_>) -> Result<Sent, Fault> {
        if !self.has_room() {
            return Err(Fault::TooMany);
        }
        while self.pending.contains_key(&self.next_mid) {
            self.next_mid = following(self.next_mid);
        }
        let mid = self.next_mid;
        self.next_mid = following(mid);
        let mut flags2 = USUAL | self.offers;
        if self.terms.charset == Charset::Unicode {
            flags2 |= Flags2::UNICODE;
        }
        let (command, user) = (request.command, self.user);
        let header = Header {
            command,
            status: 0,
            is_reply: false,
            flags2,
            signature: [0; 8],
            tree,
            user,
            mid,
        };
        let mut head = request.head(&header);
        let mut answer_sequence = 0;
        if let Some(signer) = &self.signer {
            if let Some(message) = head.get_mut(PREFIX_LEN..) {
                signer.sign(message, request.payload, self.next_sequence);
            }
            // MS-CIFS 3.1.4.1: a request and its answers have two numbers that follow each other.
            answer_sequence = self.next_sequence.wrapping_add(1);
            self.next_sequence = self.next_sequence.wrapping_add(2);
        }
        let gathering = Gathering::default();
        self.pending.insert(mid, Pending { command, answer_sequence, gathering });
        Ok(Sent { mid, head })
    }

    /// Takes a message from its header.
    ///
    /// # Errors
    /// If the server violates the protocol.
    pub fn receive<M: Deref<Target = [u8]>>(&mut self, message: M) -> Result<Received<M>, Fault> {
        let response = Response::parse(&message)?;
        let header = response.header;
        if !header.is_reply {
            // MS-CIFS 3.3.4.2: an oplock break, which is not signed.
            let is_break = header.command == Command::LOCKING_ANDX;
            return if is_break { Ok(Received::Notice) } else { Err(Fault::Unasked) };
        }
        let Some(pending) = self.pending.get_mut(&header.mid) else { return Err(Fault::Unasked) };
        if pending.command != header.command {
            return Err(Fault::Unasked);
        }
        if let Some(signer) = &self.signer
            && !signer.is_signed(&message, pending.answer_sequence)
        {
            return Err(Fault::WrongSignature);
        }
        let status = status(&header);
        let has_results = matches!(status, Status::SUCCESS | Status::BUFFER_OVERFLOW);
        let mut results = Results::default();
        if header.command.is_transaction() && has_results {
            match pending.gathering.take(&response)? {
                Some(whole) => results = whole,
                None => return Ok(Received::Part),
            }
        }
        self.pending.remove(&header.mid);
        Ok(Received::Answer(header.mid, Answer { status, message, results }))
    }
}

/// Returns the number after `mid`. 0xFFFF is that of oplock breaks, MS-CIFS 2.2.1.6.2.
const fn following(mid: u16) -> u16 {
    if mid >= 0xFFFE { 1 } else { mid.saturating_add(1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transaction::tests::part;
    use crate::{open, session};
    use proptest::prelude::*;

    const TERMS: Terms = Terms { charset: Charset::Unicode, is_extended: true, requests: 3 };

    fn machine() -> Machine {
        let mut machine = Machine::new(true);
        machine.negotiated(TERMS, true);
        machine
    }

    /// The answer to a sent request, with this status, signed with this number.
    fn answer(sent: &Sent, status: u32, signer: Option<(&Signer, u32)>) -> Vec<u8> {
        let header = Header::parse(&sent.head[4..]).unwrap();
        let header = Header { is_reply: true, status, user: 77, ..header };
        let request = Request::new(header.command, Vec::new(), Vec::new());
        let mut message = request.frame(&header)[4..].to_vec();
        if let Some((signer, sequence)) = signer {
            signer.sign(&mut message, &[], sequence);
        }
        message
    }

    fn received(machine: &mut Machine, message: Vec<u8>) -> (u16, Answer) {
        match machine.receive(message) {
            Ok(Received::Answer(mid, answer)) => (mid, answer),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn answers_come_in_any_order() {
        let mut machine = machine();
        let sent: Vec<_> = (0..3).map(|_| machine.send(5, &session::echo()).unwrap()).collect();
        assert!(!machine.has_room());
        assert_eq!(machine.send(5, &session::echo()), Err(Fault::TooMany));
        for at in [2, 0, 1] {
            let (mid, found) = received(&mut machine, answer(&sent[at], 0, None));
            assert_eq!((mid, found.status()), (sent[at].mid, Status::SUCCESS));
        }
        assert!(machine.has_room());
        assert_eq!(
            machine.receive(answer(&sent[0], 0, None)).unwrap_err(),
            Fault::Unasked,
            "twice"
        );
    }

    #[test]
    fn the_server_bounds_the_requests_under_way() {
        use crate::negotiate::tests::answer;
        for (told, allowed) in [(0, 1), (1, 1), (50, 50), (127, 127), (128, 128), (129, 128)] {
            let mut message = answer(0x03, 0x8000_0004, 0, &[9; 16]);
            message[36..38].copy_from_slice(&u16::to_le_bytes(told));
            let negotiated = Negotiated::parse(&Response::parse(&message).unwrap()).unwrap();
            let terms = Terms::of(&negotiated, CodePage::Cp850);
            assert_eq!(terms.requests, allowed, "{told}");
            let mut machine = Machine::new(true);
            machine.negotiated(terms, false);
            for _ in 0..allowed {
                machine.send(0, &session::echo()).unwrap();
            }
            assert!(!machine.has_room());
        }
    }

    #[test]
    fn numbers_under_way_are_not_used_again() {
        let mut machine = machine();
        machine.next_mid = 0xFFFE;
        let kept = machine.send(0, &session::echo()).unwrap();
        assert_eq!(kept.mid, 0xFFFE);
        let other = machine.send(0, &session::echo()).unwrap();
        assert_eq!(other.mid, 1, "0xFFFF and 0 are none");
        received(&mut machine, answer(&other, 0, None));
        machine.next_mid = 0xFFFE;
        assert_eq!(machine.send(0, &session::echo()).unwrap().mid, 1);
    }

    #[test]
    fn an_answer_must_have_the_command_of_its_request() {
        let mut machine = machine();
        let sent = machine.send(0, &session::echo()).unwrap();
        let mut other = answer(&sent, 0, None);
        other[4] = Command::CLOSE.0;
        assert_eq!(machine.receive(other).unwrap_err(), Fault::Unasked);
        let mut request = answer(&sent, 0, None);
        request[9] &= 0x7F;
        assert_eq!(machine.receive(request.clone()).unwrap_err(), Fault::Unasked, "a request");
        request[4] = Command::LOCKING_ANDX.0;
        assert!(matches!(machine.receive(request), Ok(Received::Notice)));
    }

    #[test]
    fn from_the_logon_on_every_message_is_signed() {
        let mut machine = machine();
        let signer = Signer::new(&[1; 16], &[]);
        let logon = machine.send(0, &session::echo()).unwrap();
        let (_, end) = received(&mut machine, answer(&logon, 0, Some((&signer, 1))));
        machine.note_user(&end).unwrap();
        machine.sign_after(&end, signer.clone()).unwrap();
        for sequence in [2, 4, 6] {
            let sent = machine.send(5, &open::flush(open::Fid(1))).unwrap();
            assert!(signer.is_signed(&sent.head[4..], sequence));
            assert_eq!(Header::parse(&sent.head[4..]).unwrap().user, 77);
            for wrong in [sequence, sequence + 2] {
                let forged = answer(&sent, 0, Some((&signer, wrong)));
                assert_eq!(machine.receive(forged).unwrap_err(), Fault::WrongSignature);
            }
            assert_eq!(machine.receive(answer(&sent, 0, None)).unwrap_err(), Fault::WrongSignature);
            received(&mut machine, answer(&sent, 0, Some((&signer, sequence + 1))));
        }
    }

    #[test]
    fn a_logon_that_is_not_signed_ends_nothing() {
        let signer = Signer::new(&[1; 16], &[]);
        let other = Signer::new(&[2; 16], &[]);
        for forged in [None, Some((&other, 1)), Some((&signer, 0))] {
            let mut machine = machine();
            let logon = machine.send(0, &session::echo()).unwrap();
            let (_, end) = received(&mut machine, answer(&logon, 0, forged));
            assert_eq!(machine.sign_after(&end, signer.clone()), Err(Fault::WrongSignature));
            assert!(!machine.is_signing());
        }
    }

    #[test]
    fn a_transaction_waits_for_all_of_its_parts() {
        let mut machine = machine();
        let query = crate::info::query_fs(Charset::Unicode, crate::info::FsLevel::SIZE).unwrap();
        let sent = machine.send(5, &query).unwrap();
        let header = Header { is_reply: true, ..Header::parse(&sent.head[4..]).unwrap() };
        let first = part(&header, [0, 3], (0, b""), (0, b"ab"));
        assert!(matches!(machine.receive(first), Ok(Received::Part)));
        let (_, whole) = received(&mut machine, part(&header, [0, 3], (0, b""), (2, b"c")));
        assert_eq!(whole.results().data, b"abc");
        // An error has no results.
        let sent = machine.send(5, &query).unwrap();
        let (_, failed) = received(&mut machine, answer(&sent, 0xC000_0022, None));
        assert_eq!(failed.status(), Status::ACCESS_DENIED);
        // An interim answer is one to a request in several messages, which are never sent.
        let sent = machine.send(5, &query).unwrap();
        assert!(matches!(machine.receive(answer(&sent, 0, None)), Err(Fault::Malformed(_))));
    }

    proptest! {
        #[test]
        fn any_bytes_are_received(bytes in proptest::collection::vec(any::<u8>(), 0..120)) {
            let mut machine = machine();
            let query = crate::info::query_fs(Charset::Unicode, crate::info::FsLevel::SIZE).unwrap();
            let sent = machine.send(5, &query).unwrap();
            let mut message = sent.head[4..36].to_vec();
            message[9] |= 0x80;
            message.extend_from_slice(&bytes);
            let _ = machine.receive(message);
        }
    }
}
