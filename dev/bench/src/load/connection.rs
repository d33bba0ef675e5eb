//! One connection of the load: sends while it may, drops the data of replies, keeps samples.

use std::collections::VecDeque;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result, ensure};
use frevo_crypto::Sender;
use frevo_proto::protection::signature::verify;
use frevo_wire::transform::TRANSFORM_HEADER_LEN;
use frevo_wire::{Header, HeaderFlags, Status};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send};

use super::logon::LoggedOn;
use super::requests::{Payload, Requests};
use super::shape::{Shape, Verb};
use super::turn::{Load, Turn};
use crate::client::Protection;
use crate::share;

/// Bytes before the header: the length of the frame.
const PREFIX_LEN: usize = 4;
const HEADER_LEN: usize = 64;
/// Fixed part of the body of both responses, without the header.
const BODY_LEN: usize = 16;
/// A reply of this many is kept whole.
const SAMPLED: u64 = 61;
/// Samples that a connection keeps at most.
const SAMPLES: usize = 4;

/// A reply to verify after the round.
struct Sample {
    /// The frame without its prefix.
    frame: Vec<u8>,
    offset: u64,
}

/// A request in flight.
struct Sent {
    message_id: u64,
    offset: u64,
    at: Instant,
}

pub(super) struct Connection {
    on: LoggedOn,
    row: Shape,
    requests: Requests,
    /// Requests begun so far.
    begun: u64,
    in_flight: VecDeque<Sent>,
    next_message_id: u64,
    credits: u32,
    /// The rest of the request that is being sent.
    head_left: Vec<u8>,
    payload_at: Option<u64>,
    /// The part of a reply that is always looked at: prefix, transform header if sealed, and header.
    head: Vec<u8>,
    head_have: usize,
    /// Bytes of a reply's rest that are to come.
    rest: usize,
    keeping: Option<Sample>,
    samples: Vec<Sample>,
    /// Replies since the counts were reset.
    done: u64,
    is_exhausted: bool,
}

impl Connection {
    pub(super) fn new(
        on: LoggedOn,
        row: &Shape,
        file_bytes: u64,
        payload: &Payload,
    ) -> Result<Self> {
        on.socket.set_nonblocking(true)?;
        let requests = Requests::new(row, &on, file_bytes, payload)?;
        let transform_len = if on.sealing.is_some() { TRANSFORM_HEADER_LEN } else { 0 };
        let head_len = PREFIX_LEN + transform_len + HEADER_LEN;
        Ok(Self {
            row: *row,
            requests,
            begun: 0,
            in_flight: VecDeque::with_capacity(row.depth),
            next_message_id: on.next_message_id,
            credits: on.credits,
            head_left: Vec::new(),
            payload_at: None,
            head: vec![0; head_len],
            head_have: 0,
            rest: 0,
            keeping: None,
            samples: Vec::new(),
            done: 0,
            is_exhausted: false,
            on,
        })
    }

    /// Sends as much as the socket takes. True if a request was begun or went on.
    fn send(&mut self, turn: &mut Turn<'_>) -> Result<bool> {
        let mut any = false;
        loop {
            if self.head_left.is_empty() && self.payload_at.is_none() && !self.begin(turn)? {
                return Ok(any);
            }
            if !self.head_left.is_empty() {
                let more =
                    if self.payload_at.is_some() { SendFlags::MORE } else { SendFlags::empty() };
                match send(&self.on.socket, &self.head_left, more | SendFlags::NOSIGNAL) {
                    Ok(n) => drop(self.head_left.drain(..n)),
                    Err(Errno::AGAIN) => return Ok(any),
                    Err(e) => return Err(e).context("sending"),
                }
            }
            if self.head_left.is_empty()
                && let Some(at) = &mut self.payload_at
            {
                let left = self.row.bytes - usize::try_from(*at)?;
                let file = self.requests.sealed_payload.as_ref().unwrap_or(&turn.payload.file);
                match rustix::fs::sendfile(&self.on.socket, file, Some(at), left) {
                    Ok(n) if n == left => self.payload_at = None,
                    Ok(_) => {}
                    Err(Errno::AGAIN) => return Ok(any),
                    Err(e) => return Err(e).context("sending a payload"),
                }
            }
            any = true;
        }
    }

    /// Begins the next request, if one may begin.
    fn begin(&mut self, turn: &Turn<'_>) -> Result<bool> {
        let charge = self.requests.charge;
        if turn.is_over
            || self.is_exhausted
            || self.in_flight.len() >= self.row.depth
            || self.credits < u32::from(charge)
        {
            return Ok(false);
        }
        let message_id = self.next_message_id;
        if !self.requests.encode(self.begun, message_id, &self.on, &mut self.head_left)? {
            self.is_exhausted = true;
            return Ok(false);
        }
        self.payload_at = (self.row.verb == Verb::Write).then_some(0);
        let offset = self.requests.offset(self.begun);
        self.in_flight.push_back(Sent { message_id, offset, at: Instant::now() });
        self.next_message_id += u64::from(charge);
        self.credits -= u32::from(charge);
        self.begun += 1;
        Ok(true)
    }

    /// Receives what is there. True if a reply came to its end.
    fn receive(&mut self, turn: &mut Turn<'_>) -> Result<bool> {
        let mut any = false;
        loop {
            if self.rest == 0 {
                let Some(room) = self.head.get_mut(self.head_have..) else { return Ok(any) };
                let Some(n) = some(recv(&self.on.socket, room, RecvFlags::empty()))? else {
                    return Ok(any);
                };
                self.head_have += n;
                if self.head_have < self.head.len() {
                    continue;
                }
                self.head_have = 0;
                self.on_head(turn)?;
                continue;
            }
            let n = match &mut self.keeping {
                None => {
                    let void = turn.void.get_mut(..self.rest).context("a reply is too long")?;
                    let how = if turn.is_copied { RecvFlags::empty() } else { RecvFlags::TRUNC };
                    some(recv(&self.on.socket, void, how))?
                }
                Some(sample) => {
                    let at = sample.frame.len() - self.rest;
                    let room = sample.frame.get_mut(at..).unwrap_or_default();
                    some(recv(&self.on.socket, room, RecvFlags::empty()))?
                }
            };
            let Some(n) = n else { return Ok(any) };
            self.rest -= n;
            if self.rest == 0 {
                any = true;
                self.samples.extend(self.keeping.take());
            }
        }
    }

    fn on_head(&mut self, turn: &mut Turn<'_>) -> Result<()> {
        let (prefix, head) = self.head.split_at_checked(PREFIX_LEN).context("a prefix")?;
        let length = u32::from_be_bytes(prefix.try_into()?) as usize;
        let header = match &self.on.sealing {
            Some(sealing) => Header::parse(&sealing.header(head)?)?,
            None => Header::parse(head)?,
        };
        self.rest = length.checked_sub(head.len()).context("a reply without a header")?;
        self.credits += u32::from(header.credits);
        if header.status == Status::PENDING && header.flags.contains(HeaderFlags::ASYNC_COMMAND) {
            return Ok(());
        }
        ensure!(header.status == Status::SUCCESS, "{}: {}", header.command, header.status);
        let is_read = self.row.verb == Verb::Read;
        ensure!(
            !is_read || self.rest == BODY_LEN + self.row.bytes,
            "a READ returned {} bytes",
            self.rest.saturating_sub(BODY_LEN)
        );
        let at = self.in_flight.iter().position(|sent| sent.message_id == header.message_id);
        let sent = at.and_then(|at| self.in_flight.remove(at)).context("an unknown MessageId")?;
        let took = u64::try_from(sent.at.elapsed().as_nanos())?;
        // `record` enlarges the histogram; `saturating_record` would limit the value to its present
        // maximum.
        turn.latency.record(took)?;
        self.done += 1;
        if self.done.is_multiple_of(SAMPLED) && self.samples.len() < SAMPLES {
            let mut frame = self.head.get(PREFIX_LEN..).context("a head")?.to_vec();
            frame.resize(length, 0);
            self.keeping = Some(Sample { frame, offset: sent.offset });
        }
        Ok(())
    }

    /// Verifies signature or seal of the replies that were kept, and their data.
    fn verify_samples(&mut self, file: &File) -> Result<()> {
        for mut sample in self.samples.drain(..) {
            if self.row.protection == Protection::Signed {
                ensure!(
                    verify(&mut sample.frame, &self.on.key, Sender::Server),
                    "a reply has a wrong signature"
                );
            }
            let message = match &self.on.sealing {
                Some(sealing) => sealing.open(&mut sample.frame)?,
                None => &sample.frame,
            };
            if self.row.verb == Verb::Read {
                let data = message.get(HEADER_LEN + BODY_LEN..);
                let expected = content(file, sample.offset, self.row.bytes)?;
                ensure!(data == Some(&expected[..]), "wrong bytes at offset {}", sample.offset);
            }
        }
        Ok(())
    }
}

impl Load for Connection {
    fn reset(&mut self, payload: &Payload) -> Result<()> {
        self.done = 0;
        self.is_exhausted = false;
        self.requests.prepare(self.begun, self.next_message_id, payload, &self.on)
    }

    fn turn(&mut self, turn: &mut Turn<'_>) -> Result<()> {
        loop {
            let received = self.receive(turn)?;
            let sent = self.send(turn)?;
            if !received && !sent {
                return Ok(());
            }
            if !received && self.in_flight.len() >= self.row.depth {
                return Ok(());
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.in_flight.is_empty()
    }

    fn done(&self) -> u64 {
        self.done
    }

    /// Verifies the replies that were kept, and what the last WRITE left in the file.
    fn verify(&mut self, dir: &Path, payload: &Payload) -> Result<()> {
        let is_read = self.row.verb == Verb::Read;
        let file =
            File::open(dir.join(if is_read { share::READ_NAME } else { share::WRITE_NAME }))?;
        self.verify_samples(&file)?;
        if !is_read && let Some(last) = self.begun.checked_sub(1) {
            let offset = self.requests.offset(last);
            let found = content(&file, offset, self.row.bytes)?;
            ensure!(found == payload.bytes, "wrong bytes were written at {offset}");
        }
        Ok(())
    }
}

fn content(file: &File, offset: u64, len: usize) -> Result<Vec<u8>> {
    let mut bytes = vec![0; len];
    file.read_exact_at(&mut bytes, offset)?;
    Ok(bytes)
}

/// Bytes that were received; None where there are none yet.
fn some<T>(received: Result<(T, usize), Errno>) -> Result<Option<usize>> {
    match received.map(|(_, n)| n) {
        Ok(0) => anyhow::bail!("the server closed the connection"),
        Ok(n) => Ok(Some(n)),
        Err(Errno::AGAIN) => Ok(None),
        Err(e) => Err(e).context("receiving"),
    }
}
