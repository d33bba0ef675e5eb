//! A connection that follows a script: one frame at a time, each reply whole.

use std::collections::VecDeque;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use frevo_crypto::Sender;
use frevo_proto::protection::signature::{sign, verify};
use frevo_wire::compound::Compound;
use frevo_wire::{Command, Header, HeaderFlags, Status};
use rustix::buffer::spare_capacity;
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::logon::LoggedOn;
use super::requests::{Payload, header};
use super::script::Script;
use super::shape::Shape;
use super::turn::{Load, Turn};
use crate::client::Protection;

const PREFIX_LEN: usize = 4;
const HEADER_LEN: usize = 64;
/// Signatures of the replies to every so many frames are verified.
const SAMPLED: u64 = 61;
/// Room for a reply: the answers of a listing have 64 KiB.
const ROOM: usize = 128 << 10;

/// A request without a reply.
struct Waiting {
    message_id: u64,
    /// A CHANGE_NOTIFY is answered when something happens, and nothing waits for it.
    is_watch: bool,
}

pub(super) struct Talk {
    on: LoggedOn,
    script: Box<dyn Script>,
    is_signed: bool,
    waiting: VecDeque<Waiting>,
    sent_at: Instant,
    next_message_id: u64,
    frames: u64,
    out: Vec<u8>,
    received: Vec<u8>,
    done: u64,
}

impl Talk {
    pub(super) fn new(on: LoggedOn, row: &Shape, script: Box<dyn Script>) -> Result<Self> {
        on.socket.set_nonblocking(true)?;
        let next_message_id = on.next_message_id;
        Ok(Self {
            on,
            script,
            is_signed: row.protection == Protection::Signed,
            waiting: VecDeque::new(),
            sent_at: Instant::now(),
            next_message_id,
            frames: 0,
            out: Vec::new(),
            received: Vec::with_capacity(ROOM),
            done: 0,
        })
    }

    /// Encodes the script's next frame.
    fn begin(&mut self) -> Result<()> {
        let asks = self.script.next();
        let mut chain = Vec::new();
        let last = asks.len().saturating_sub(1);
        for (n, ask) in asks.into_iter().enumerate() {
            let mut header =
                Header { message_id: self.next_message_id, ..header(&self.on, ask.command, 1, 8) };
            if n > 0 {
                header.flags |= HeaderFlags::RELATED_OPERATIONS;
            }
            if self.is_signed {
                header.flags |= HeaderFlags::SIGNED;
            }
            let mut length = HEADER_LEN + ask.body.len();
            if n < last {
                length = length.next_multiple_of(8);
                header.next_command = u32::try_from(length)?;
            }
            let mut message = header.to_bytes().to_vec();
            message.extend_from_slice(&ask.body);
            message.resize(length, 0);
            if self.is_signed {
                sign(&mut message, &self.on.key, Sender::Client)?;
            }
            chain.append(&mut message);
            let is_watch = ask.command == Command::CHANGE_NOTIFY;
            self.waiting.push_back(Waiting { message_id: self.next_message_id, is_watch });
            self.next_message_id += 1;
        }
        self.out.extend_from_slice(&u32::try_from(chain.len())?.to_be_bytes());
        self.out.append(&mut chain);
        self.frames += 1;
        self.sent_at = Instant::now();
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        while !self.out.is_empty() {
            match send(&self.on.socket, &self.out, SendFlags::NOSIGNAL) {
                Ok(n) => drop(self.out.drain(..n)),
                Err(Errno::AGAIN) => break,
                Err(e) => return Err(e).context("sending"),
            }
        }
        Ok(())
    }

    /// Receives once. False if there is nothing.
    fn receive(&mut self) -> Result<bool> {
        self.received.reserve(ROOM);
        match recv(&self.on.socket, spare_capacity(&mut self.received), RecvFlags::empty()) {
            Ok((_, 0)) => anyhow::bail!("the server closed the connection"),
            Ok(_) => Ok(true),
            Err(Errno::AGAIN) => Ok(false),
            Err(e) => Err(e).context("receiving"),
        }
    }

    /// Takes all frames that are complete.
    fn take_frames(&mut self, turn: &mut Turn<'_>) -> Result<()> {
        while let Some((prefix, rest)) = self.received.split_first_chunk::<PREFIX_LEN>() {
            let length = u32::from_be_bytes(*prefix) as usize;
            let Some(frame) = rest.get(..length) else { break };
            let frame = frame.to_vec();
            self.received.drain(..PREFIX_LEN + length);
            self.on_frame(&frame)?;
            if self.is_idle() {
                turn.latency.record(u64::try_from(self.sent_at.elapsed().as_nanos())?)?;
            }
        }
        Ok(())
    }

    fn on_frame(&mut self, frame: &[u8]) -> Result<()> {
        for message in Compound::new(frame) {
            let (_, message) = message?;
            let header = Header::parse(message)?;
            if header.status == Status::PENDING && header.flags.contains(HeaderFlags::ASYNC_COMMAND)
            {
                continue;
            }
            let at = self.waiting.iter().position(|w| w.message_id == header.message_id);
            at.and_then(|at| self.waiting.remove(at)).context("an unknown MessageId")?;
            if self.is_signed && self.frames.is_multiple_of(SAMPLED) {
                let is_right = verify(&mut message.to_vec(), &self.on.key, Sender::Server);
                ensure!(is_right, "a reply has a wrong signature");
            }
            self.done += self.script.reply(header.command, header.status, message)?;
        }
        Ok(())
    }
}

impl Load for Talk {
    fn reset(&mut self, _payload: &Payload) -> Result<()> {
        self.done = 0;
        Ok(())
    }

    fn turn(&mut self, turn: &mut Turn<'_>) -> Result<()> {
        loop {
            while self.is_idle() && !turn.is_over {
                self.begin()?;
            }
            self.flush()?;
            if !self.receive()? {
                return Ok(());
            }
            self.take_frames(turn)?;
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.iter().all(|w| w.is_watch)
    }

    fn done(&self) -> u64 {
        self.done
    }

    fn verify(&mut self, _dir: &Path, _payload: &Payload) -> Result<()> {
        Ok(())
    }
}
