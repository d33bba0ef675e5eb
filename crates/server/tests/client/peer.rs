//! One connection, from the client's side.

use std::io::{IoSlice, IoSliceMut};
use std::rc::Rc;
use std::time::Duration;

use frevo_crypto::Sender;
use frevo_net::transport::Stream;
use frevo_proto::Negotiated as Terms;
use frevo_proto::preauth::ConnectionPreauth;
use frevo_proto::protection::{Expanding, Received, Work, transform};
use frevo_wire::command::negotiate::{GlobalCapabilities, SecurityMode};
use frevo_wire::compound::Compound;
use frevo_wire::dtyp::Guid;
use frevo_wire::transform::TransformHeader;
use frevo_wire::{Command, Header, HeaderFlags, Status};
use tokio::time::timeout;

use super::draft::{Draft, Reply, Via, pack};
use super::logon::Logon;

/// How long a test waits for the server before it fails.
const PATIENCE: Duration = Duration::from_secs(70);

pub struct Peer {
    pub stream: Stream,
    received: Vec<u8>,
    /// ClientGuid.
    pub guid: Guid,
    /// The next MessageId.
    pub next_id: u64,
    /// Credits granted and not used.
    pub credits: u64,
    pub terms: Option<Terms>,
    pub preauth: ConnectionPreauth,
    pub server_capabilities: GlobalCapabilities,
    pub server_guid: Guid,
    pub server_mode: SecurityMode,
    /// The security buffer of the NEGOTIATE response.
    pub hint: Vec<u8>,
    /// Sessions whose replies can be opened and verified.
    pub logons: Vec<Rc<Logon>>,
    /// Credits that stamped requests ask for.
    pub asks: u16,
    /// True when the connection must not end inside a frame.
    pub is_strict: bool,
    /// Bytes of the last frame, if it was compressed.
    pub last_compressed: Option<usize>,
}

impl Peer {
    pub fn new(stream: Stream, guid: Guid) -> Self {
        Self {
            stream,
            received: Vec::new(),
            guid,
            next_id: 0,
            credits: 1,
            terms: None,
            preauth: ConnectionPreauth::new(),
            server_capabilities: GlobalCapabilities::EMPTY,
            server_guid: Guid::default(),
            server_mode: SecurityMode::EMPTY,
            hint: Vec::new(),
            logons: Vec::new(),
            asks: 256,
            is_strict: true,
            last_compressed: None,
        }
    }

    pub fn terms(&self) -> Terms {
        self.terms.expect("negotiated")
    }

    /// Gives a draft its sequence number.
    pub fn stamp(&mut self, draft: &mut Draft) {
        let multi = self.terms.is_some_and(|t| t.is_multi_credit);
        let charge = if multi { u64::from(draft.header.credit_charge.max(1)) } else { 1 };
        draft.header.message_id = self.next_id;
        draft.header.credits = self.asks;
        self.next_id += charge;
        self.credits = self.credits.saturating_sub(charge);
    }

    /// Sends bytes as they are, prefix and all. That the server has gone shows
    /// when reading.
    pub async fn send_bytes(&self, bytes: &[u8]) {
        let mut at = 0;
        while at < bytes.len() {
            match self.stream.try_write_vectored(&[IoSlice::new(&bytes[at..])], false) {
                Ok(count) => at += count,
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    timeout(PATIENCE, self.stream.writable()).await.expect("it reads").unwrap();
                }
                Err(_) => return,
            }
        }
    }

    /// Sends one frame: the prefix and `message`.
    pub async fn send_frame(&self, message: &[u8]) {
        let length = u32::try_from(message.len()).unwrap().to_be_bytes();
        self.send_bytes(&[&length[..], message].concat()).await;
    }

    /// Stamps and sends drafts as one compound.
    pub async fn send(&mut self, mut drafts: Vec<Draft>, via: Via<'_>) -> Vec<u64> {
        drafts.iter_mut().for_each(|draft| self.stamp(draft));
        self.send_frame(&pack(&drafts, via)).await;
        drafts.iter().map(|draft| draft.header.message_id).collect()
    }

    /// The next frame, or none at the end of the connection.
    pub async fn frame(&mut self) -> Option<Vec<u8>> {
        timeout(PATIENCE, self.next_frame()).await.expect("the server answers or disconnects")
    }

    async fn next_frame(&mut self) -> Option<Vec<u8>> {
        loop {
            if let Some(prefix) = self.received.first_chunk::<4>() {
                let length = u32::from_be_bytes(*prefix) as usize;
                assert_eq!(prefix[0], 0, "the first byte of a frame");
                if self.received.len() >= 4 + length {
                    let rest = self.received.split_off(4 + length);
                    let mut frame = std::mem::replace(&mut self.received, rest);
                    return Some(frame.split_off(4));
                }
            }
            let mut buffer = vec![0; 256 * 1024];
            match self.stream.try_read_vectored(&mut [IoSliceMut::new(&mut buffer)]) {
                Ok(0) => {
                    let whole = self.received.is_empty() || !self.is_strict;
                    assert!(whole, "the connection ended inside a frame");
                    return None;
                }
                Ok(count) => self.received.extend_from_slice(&buffer[..count]),
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                    self.stream.readable().await.unwrap();
                }
                Err(_) => return None,
            }
        }
    }

    /// The replies of the next frame; none at the end of the connection.
    pub async fn replies(&mut self) -> Option<Vec<Reply>> {
        let frame = self.frame().await?;
        Some(self.open(frame))
    }

    /// The one reply of the next frame.
    pub async fn reply(&mut self) -> Reply {
        let mut replies = self.replies().await.expect("a reply rather than a disconnect");
        assert_eq!(replies.len(), 1, "{replies:?}");
        replies.remove(0)
    }

    /// The final reply to `message_id`, interim ones passed over.
    pub async fn final_reply(&mut self, message_id: u64) -> Reply {
        loop {
            let reply = self.reply().await;
            if reply.header.message_id == message_id && !reply.is_interim() {
                return reply;
            }
        }
    }

    /// Unseals, splits and verifies.
    pub fn open(&mut self, mut frame: Vec<u8>) -> Vec<Reply> {
        let sealed = transform::is_sealed(&frame);
        if sealed {
            let id = TransformHeader::parse(&frame).unwrap().session_id;
            let logon = self.logon(id).expect("sealed for a session of ours");
            let open =
                |_| logon.keys.opening.as_ref().map(|key| -> &frevo_crypto::OpeningKey { key });
            let unsealed = match self.terms.and_then(|terms| terms.compression) {
                None => transform::unseal_frame(&mut frame, Sender::Server, open),
                Some(_) => {
                    let key = open(id).expect("the session can open");
                    assert_eq!(transform::decrypt_frame(&mut frame, key), Some(true));
                    self.expand(&mut frame);
                    transform::conclude_frame(&mut frame, true, Sender::Server)
                }
            };
            frame = frame[unsealed.expect("a reply that opens").message].to_vec();
        } else {
            self.expand(&mut frame);
        }
        let mut replies = Vec::new();
        for part in Compound::new(&frame) {
            let (_, message) = part.expect("a reply with a whole header");
            let header = Header::parse(message).unwrap();
            assert!(header.is_response(), "{header:?}");
            self.credits += u64::from(header.credits);
            // The session has ended, so the server has no key to sign this answer.
            let keyless = header.signature == [0; 16]
                && matches!(
                    header.status,
                    Status::USER_SESSION_DELETED
                        | Status::INVALID_PARAMETER
                        | Status::INVALID_HANDLE
                );
            // MS-SMB2 3.3.5.5: below SMB 3 a binding is refused before its session is looked up. So
            // the server may have no key to sign with.
            let keyless = keyless
                || (header.signature == [0; 16]
                    && header.status == Status::REQUEST_NOT_ACCEPTED
                    && header.command == Command::SESSION_SETUP
                    && self.terms.is_some_and(|terms| !terms.is_smb3()));
            if header.flags.contains(HeaderFlags::SIGNED)
                && !keyless
                && let Some(logon) = self.logon(header.session_id)
            {
                assert!(
                    frevo_proto::protection::signature::verify(
                        &mut message.to_vec(),
                        &logon.signing,
                        Sender::Server
                    ),
                    "the signature of {header:?}"
                );
            }
            replies.push(Reply { header, message: message.to_vec(), sealed });
        }
        replies
    }

    /// Expands a frame that is compressed.
    fn expand(&mut self, frame: &mut Vec<u8>) {
        let Some(terms) = self.terms else { return };
        let Some(compression) = terms.compression else { return };
        let found = compression.look(frame, terms.max_payload()).expect("it may be expanded");
        self.last_compressed = found.map(|_| frame.len());
        let Some(found) = found else { return };
        let received = Received { frame: std::mem::take(frame), verdict: None };
        let room: fn(usize) -> Vec<u8> = |len| vec![0; len];
        let work: Expanding<Vec<u8>> = Expanding::new(received, found, room, Sender::Server);
        *frame = work.run().expect("it expands").frame;
    }

    pub fn logon(&self, id: u64) -> Option<Rc<Logon>> {
        self.logons.iter().find(|logon| logon.id == id).cloned()
    }

    /// Sends one request and returns its final reply.
    pub async fn ask(&mut self, draft: Draft, via: Via<'_>) -> Reply {
        self.ask_all(vec![draft], via).await.remove(0)
    }

    /// Sends a compound and returns the final replies in its order, however
    /// they were sent.
    pub async fn ask_all(&mut self, drafts: Vec<Draft>, via: Via<'_>) -> Vec<Reply> {
        let ids = self.send(drafts, via).await;
        self.collect(&ids).await
    }

    /// The final replies to `ids`, in that order.
    pub async fn collect(&mut self, ids: &[u64]) -> Vec<Reply> {
        let mut found: Vec<Option<Reply>> = ids.iter().map(|_| None).collect();
        while found.iter().any(Option::is_none) {
            let replies = self.replies().await.expect("replies rather than a disconnect");
            for reply in replies.into_iter().filter(|reply| !reply.is_interim()) {
                let at = ids.iter().position(|id| *id == reply.header.message_id);
                let at = at.unwrap_or_else(|| panic!("a reply to what was not asked: {reply:?}"));
                assert!(found[at].is_none(), "answered twice: {reply:?}");
                found[at] = Some(reply);
            }
        }
        found.into_iter().map(Option::unwrap).collect()
    }

    /// As [`Self::ask`]; none when the server ends the connection instead.
    pub async fn ask_or_lose(&mut self, draft: Draft, via: Via<'_>) -> Option<Reply> {
        let ids = self.send(vec![draft], via).await;
        loop {
            let replies = self.replies().await?;
            let own = |reply: &Reply| ids.contains(&reply.header.message_id);
            if let Some(reply) = replies.into_iter().find(|r| own(r) && !r.is_interim()) {
                return Some(reply);
            }
        }
    }

    /// The server ends the connection, and says nothing before.
    pub async fn expect_disconnect(&mut self) {
        if let Some(frame) = self.frame().await {
            panic!("a reply where a disconnect belongs: {:?}", self.open(frame));
        }
    }

    /// The connection is in order.
    pub async fn expect_alive(&mut self) {
        self.ask(Draft::echo(), Via::Plain).await.ok();
    }

    /// Nothing comes for a while.
    pub async fn expect_silence(&mut self, time: Duration) {
        if let Ok(frame) = timeout(time, self.next_frame()).await {
            panic!("{:?} where nothing should come", frame.map(|f| self.open(f)));
        }
    }

    /// CANCEL of a request that has had an interim response, or of one that
    /// has not.
    pub fn cancel(message_id: u64, async_id: Option<u64>, session_id: u64) -> Draft {
        let mut draft = Draft::empty(Command::CANCEL).session(session_id);
        draft.header.message_id = message_id;
        draft.header.credit_charge = 0;
        draft.header.credits = 0;
        if let Some(async_id) = async_id {
            draft.header.flags |= HeaderFlags::ASYNC_COMMAND;
            draft.header.route = frevo_wire::Route::Async { async_id };
        }
        draft
    }

    /// The interim response that must come next.
    pub async fn interim(&mut self) -> Reply {
        let reply = self.reply().await;
        reply.expect(Status::PENDING);
        assert!(reply.header.flags.contains(HeaderFlags::ASYNC_COMMAND));
        reply
    }
}

/// The AsyncId of a response.
pub fn async_id(reply: &Reply) -> u64 {
    match reply.header.route {
        frevo_wire::Route::Async { async_id } => async_id,
        frevo_wire::Route::Sync { .. } => panic!("no AsyncId in {reply:?}"),
    }
}
