//! A connection that keeps many requests in flight, for persistent handles.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use frevo_crypto::{Sender, SigningKey};
use frevo_proto::protection::signature::{sign, verify};
use frevo_wire::codec::Writer;
use frevo_wire::command::tree_connect;
use frevo_wire::{Command, Header, HeaderFlags, Route, Status, Utf16};

use crate::client::Protection;
use crate::load::logon::{Connected, key_of, let_go};
use crate::server::Target;
use crate::wire::Offer;

const PREFIX_LEN: usize = 4;
const HEADER_LEN: usize = 64;
/// Credits that each request asks for.
const CREDITS: u16 = 128;
/// The longest time without a reply.
const PATIENCE: Duration = Duration::from_secs(60);
/// Signatures of every so many replies are verified.
const SAMPLED: u64 = 61;

/// A request without its header.
pub(super) struct Ask {
    pub(super) command: Command,
    pub(super) body: Vec<u8>,
}

impl Ask {
    pub(super) fn new(command: Command, encode: impl FnOnce(&mut Writer<'_>)) -> Self {
        // Offsets in a body count from the header.
        let mut message = vec![0; HEADER_LEN];
        encode(&mut Writer::from(&mut message, 0));
        Self { command, body: message.split_off(HEADER_LEN) }
    }
}

/// A reply with its header.
pub(super) struct Reply {
    pub(super) status: Status,
    pub(super) tree_id: u32,
    pub(super) message: Vec<u8>,
    pub(super) took: Duration,
}

/// A request without a reply.
struct Waiting {
    nth: usize,
    at: Instant,
}

/// A connection with a session and a tree connect.
pub(super) struct Link {
    socket: TcpStream,
    received: Vec<u8>,
    session_id: u64,
    tree_id: u32,
    key: SigningKey,
    next_message_id: u64,
    credits: u32,
    replies: u64,
}

impl Link {
    /// Logs on as the client with this GUID, and connects to the share.
    pub(super) fn open(target: &Target, client: [u8; 16]) -> Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let link = runtime.block_on(async {
            let offer = Offer { lasting: Some(client), ..Offer::default() };
            let Connected { client, socket } =
                Connected::open(target, Protection::Signed, offer).await?;
            let link = Self {
                socket,
                received: Vec::new(),
                session_id: client.conn.session_id().0,
                tree_id: client.tree_id.0,
                key: key_of(&client)?,
                next_message_id: client.conn.next_message_id(),
                credits: client.conn.credits().into(),
                replies: 0,
            };
            let_go(client).await;
            anyhow::Ok(link)
        })?;
        drop(runtime);
        link.socket.set_nonblocking(false)?;
        link.socket.set_read_timeout(Some(PATIENCE))?;
        Ok(link)
    }

    /// Waits until the share is served, for `patience` at most, and logs on.
    pub(super) fn when_served(
        target: &Target,
        client: [u8; 16],
        patience: Duration,
    ) -> Result<Self> {
        let end = Instant::now() + patience;
        loop {
            match Self::open(target, client) {
                Ok(link) => return Ok(link),
                Err(fault) if Instant::now() > end => return Err(fault),
                Err(_) => std::thread::sleep(Duration::from_millis(20)),
            }
        }
    }

    /// Sends one request, and waits for its reply.
    pub(super) fn call(&mut self, ask: Ask) -> Result<Reply> {
        let mut asked = Some(ask);
        let mut told = None;
        let ask = |_| asked.take().context("a second request");
        self.many(1, 1, ask, |_, reply| {
            told = Some(reply);
            Ok(())
        })?;
        told.context("no reply")
    }

    /// The status of a connect to another share. The tree connect is left.
    pub(super) fn connect_to(&mut self, share: &str) -> Result<Status> {
        let path = Utf16::from_str(&format!(r"\\127.0.0.1\{share}"));
        let request = tree_connect::Request::new(path);
        let ask = Ask::new(Command::TREE_CONNECT, |w| request.encode(w));
        let reply = self.call(ask)?;
        if reply.status == Status::SUCCESS {
            let own = std::mem::replace(&mut self.tree_id, reply.tree_id);
            let left = self.call(Ask::new(Command::TREE_DISCONNECT, |w| _ = w.u16(4).u16(0)));
            self.tree_id = own;
            left?;
        }
        Ok(reply.status)
    }

    /// Sends `count` requests, `depth` at a time.
    pub(super) fn many(
        &mut self,
        count: usize,
        depth: usize,
        mut ask: impl FnMut(usize) -> Result<Ask>,
        mut told: impl FnMut(usize, Reply) -> Result<()>,
    ) -> Result<()> {
        let mut waiting: HashMap<u64, Waiting> = HashMap::new();
        let (mut sent, mut out) = (0, Vec::new());
        loop {
            while sent < count && waiting.len() < depth && self.credits > 0 {
                let ask = ask(sent)?;
                self.encode(&ask, &mut out)?;
                let at = Instant::now();
                waiting.insert(self.next_message_id, Waiting { nth: sent, at });
                self.next_message_id += 1;
                self.credits -= 1;
                sent += 1;
            }
            self.socket.write_all(&out).context("sending")?;
            out.clear();
            if waiting.is_empty() {
                ensure!(sent == count, "the server gives no credits");
                return Ok(());
            }
            self.receive()?;
            while let Some(message) = self.frame() {
                let header = Header::parse(&message)?;
                self.credits += u32::from(header.credits);
                if header.status == Status::PENDING
                    && header.flags.contains(HeaderFlags::ASYNC_COMMAND)
                {
                    continue;
                }
                // A break of a lease answers no request.
                let Some(Waiting { nth, at }) = waiting.remove(&header.message_id) else {
                    continue;
                };
                self.replies += 1;
                if self.replies.is_multiple_of(SAMPLED) {
                    let is_right = verify(&mut message.clone(), &self.key, Sender::Server);
                    ensure!(is_right, "a reply has a wrong signature");
                }
                let tree_id = match header.route {
                    Route::Sync { tree_id, .. } => tree_id,
                    Route::Async { .. } => 0,
                };
                let took = at.elapsed();
                told(nth, Reply { status: header.status, tree_id, message, took })?;
            }
        }
    }

    fn encode(&self, ask: &Ask, out: &mut Vec<u8>) -> Result<()> {
        let header = Header {
            credit_charge: 1,
            status: Status(0),
            command: ask.command,
            credits: CREDITS,
            flags: HeaderFlags::SIGNED,
            next_command: 0,
            message_id: self.next_message_id,
            route: Route::Sync { process_id: 0, tree_id: self.tree_id },
            session_id: self.session_id,
            signature: [0; 16],
        };
        let mut message = header.to_bytes().to_vec();
        message.extend_from_slice(&ask.body);
        sign(&mut message, &self.key, Sender::Client)?;
        out.extend_from_slice(&u32::try_from(message.len())?.to_be_bytes());
        out.append(&mut message);
        Ok(())
    }

    fn receive(&mut self) -> Result<()> {
        let have = self.received.len();
        self.received.resize(have + (64 << 10), 0);
        let room = self.received.get_mut(have..).unwrap_or_default();
        let count = self.socket.read(room).context("receiving")?;
        self.received.truncate(have + count);
        ensure!(count > 0, "the server closed the connection");
        Ok(())
    }

    /// Takes the next frame that is complete.
    fn frame(&mut self) -> Option<Vec<u8>> {
        let (prefix, rest) = self.received.split_first_chunk::<PREFIX_LEN>()?;
        let length = u32::from_be_bytes(*prefix) as usize;
        let frame = rest.get(..length)?.to_vec();
        self.received.drain(..PREFIX_LEN + length);
        Some(frame)
    }
}
