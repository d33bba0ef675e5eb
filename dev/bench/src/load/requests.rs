//! Requests that are encoded once: before each is sent, only its numbers and its signature change.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;

use anyhow::{Context, Result};
use frevo_crypto::Sender;
use frevo_proto::protection::signature::sign;
use frevo_proto::protection::transform::HEADROOM;
use frevo_wire::codec::Writer;
use frevo_wire::command::{read, write};
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
use rustix::fs::{MemfdFlags, memfd_create};

use super::logon::LoggedOn;
use super::sealing::Sealing;
use super::shape::{Shape, Verb};
use crate::client::Protection;

/// Header and fixed part of a READ or WRITE.
const FIXED_LEN: usize = 112;
/// Most bytes of payload that are signed or sealed before a round, and with the older algorithms, which
/// take servers and this program longer.
const PREPARED_BYTES: usize = 2 << 30;
const PREPARED_BYTES_OLDER: usize = 1 << 30;

const MESSAGE_ID: std::ops::Range<usize> = 24..32;
/// Offset of the field Offset, in both requests (MS-SMB2 2.2.19, 2.2.21).
const OFFSET: std::ops::Range<usize> = 72..80;

/// The encoded request of one connection.
pub(super) struct Requests {
    row: Shape,
    file_bytes: u64,
    /// Header and body, without a payload.
    message: Vec<u8>,
    pub(super) charge: u16,
    /// The bytes before the payloads of the next WRITEs, since signing and sealing large messages takes
    /// long.
    ahead: VecDeque<Vec<u8>>,
    /// The sealed payload of all WRITEs.
    pub(super) sealed_payload: Option<OwnedFd>,
}

/// The payload of all WRITEs: a file in memory, from which the kernel sends without a copy.
pub(super) struct Payload {
    pub(super) file: OwnedFd,
    pub(super) bytes: Vec<u8>,
}

impl Payload {
    pub(super) fn new(len: usize, label: &str) -> Result<Self> {
        let block = crate::share::written_block(label);
        let mut bytes = block.repeat(len.div_ceil(block.len()));
        bytes.truncate(len);
        Ok(Self { file: in_memory(&bytes)?, bytes })
    }
}

fn in_memory(bytes: &[u8]) -> Result<OwnedFd> {
    let file = memfd_create("frevo-bench-payload", MemfdFlags::CLOEXEC)?;
    let mut written = 0;
    while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
        written += rustix::io::write(&file, rest)?;
    }
    Ok(file)
}

impl Requests {
    pub(super) fn new(
        row: &Shape,
        on: &LoggedOn,
        file_bytes: u64,
        payload: &Payload,
    ) -> Result<Self> {
        let charge = u16::try_from(row.bytes.div_ceil(65_536))?;
        let (command, length) = match row.verb {
            Verb::Read => (Command::READ, None),
            _ => (Command::WRITE, Some(FIXED_LEN)),
        };
        // Each request asks for twice the credits that it uses; the server limits them.
        let header = header(on, command, charge, charge.saturating_mul(2));
        let header = Header {
            flags: match row.protection {
                Protection::Signed => HeaderFlags::SIGNED,
                Protection::Unsigned | Protection::Sealed => HeaderFlags::EMPTY,
            },
            ..header
        };
        let file_id = on.file_id;
        let mut message = header.to_bytes().to_vec();
        let mut w = Writer::from(&mut message, 0);
        match row.verb {
            Verb::Read => read::Request::new(file_id, 0, u32::try_from(row.bytes)?).encode(&mut w),
            _ => write::Request::new(file_id, 0, &payload.bytes).encode(&mut w),
        }
        message.truncate(length.unwrap_or(message.len()));
        let ahead = VecDeque::new();
        Ok(Self { row: *row, file_bytes, message, charge, ahead, sealed_payload: None })
    }

    /// The offset of the `n`th request in its file.
    pub(super) fn offset(&self, n: u64) -> u64 {
        self.row.offset(n, self.file_bytes)
    }

    /// Appends the bytes of the `n`th request before its payload to `out`; false once no WRITE is
    /// prepared any more.
    pub(super) fn encode(
        &mut self,
        n: u64,
        message_id: u64,
        on: &LoggedOn,
        out: &mut Vec<u8>,
    ) -> Result<bool> {
        if self.is_prepared() {
            let Some(head) = self.ahead.pop_front() else { return Ok(false) };
            out.extend_from_slice(&head);
            return Ok(true);
        }
        let offset = self.offset(n);
        put(&mut self.message, MESSAGE_ID, &message_id.to_le_bytes());
        put(&mut self.message, OFFSET, &offset.to_le_bytes());
        match &on.sealing {
            Some(sealing) => out.extend_from_slice(&sealing.seal(&self.message)?),
            None => {
                if self.row.protection == Protection::Signed {
                    sign(&mut self.message, &on.key, Sender::Client)?;
                }
                let payload = if self.row.verb == Verb::Write { self.row.bytes } else { 0 };
                let length = u32::try_from(self.message.len() + payload)?;
                out.extend_from_slice(&length.to_be_bytes());
                out.extend_from_slice(&self.message);
            }
        }
        Ok(true)
    }

    /// True if requests are signed or sealed before a round.
    fn is_prepared(&self) -> bool {
        self.row.verb == Verb::Write && self.row.protection != Protection::Unsigned
    }

    /// Signs or seals the next WRITEs, from the `n`th on.
    pub(super) fn prepare(
        &mut self,
        mut n: u64,
        mut message_id: u64,
        payload: &Payload,
        on: &LoggedOn,
    ) -> Result<()> {
        if !self.is_prepared() {
            return Ok(());
        }
        let mut message = self.message.clone();
        message.extend_from_slice(&payload.bytes);
        self.ahead.clear();
        let bytes = if self.row.is_older { PREPARED_BYTES_OLDER } else { PREPARED_BYTES };
        for _ in 0..bytes / self.row.bytes / self.row.connections {
            put(&mut message, MESSAGE_ID, &message_id.to_le_bytes());
            put(&mut message, OFFSET, &self.offset(n).to_le_bytes());
            let head = match &on.sealing {
                Some(sealing) => self.seal(&message, sealing)?,
                None => {
                    sign(&mut message, &on.key, Sender::Client)?;
                    let length = u32::try_from(message.len())?.to_be_bytes();
                    let fixed = message.get(..FIXED_LEN).context("a fixed part")?;
                    [&length, fixed].concat()
                }
            };
            self.ahead.push_back(head);
            message_id += u64::from(self.charge);
            n += 1;
        }
        Ok(())
    }

    /// Seals a WRITE; returns its bytes before the payload. The first one's payload is kept for all.
    fn seal(&mut self, message: &[u8], sealing: &Sealing) -> Result<Vec<u8>> {
        let mut frame = vec![0; HEADROOM];
        frame.extend_from_slice(message);
        sealing.seal_alike(&mut frame)?;
        let (head, payload) =
            frame.split_at_checked(HEADROOM + FIXED_LEN).context("a sealed request")?;
        if self.sealed_payload.is_none() {
            self.sealed_payload = Some(in_memory(payload)?);
        }
        Ok(head.to_vec())
    }
}

/// Returns the header of a request; MessageId and signature are filled in later.
pub(super) fn header(on: &LoggedOn, command: Command, charge: u16, credits: u16) -> Header {
    Header {
        credit_charge: charge,
        status: Status(0),
        command,
        credits,
        flags: HeaderFlags::EMPTY,
        next_command: 0,
        message_id: 0,
        route: Route::Sync { process_id: 0, tree_id: on.tree_id },
        session_id: on.session_id,
        signature: [0; 16],
    }
}

fn put(message: &mut [u8], range: std::ops::Range<usize>, bytes: &[u8]) {
    if let Some(field) = message.get_mut(range) {
        field.copy_from_slice(bytes);
    }
}
