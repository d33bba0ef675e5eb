//! Requests that are encoded once: before each is sent, only its numbers and its signature change.

use std::os::fd::OwnedFd;

use anyhow::{Context, Result, ensure};
use frevo_crypto::Sender;
use frevo_proto::signature::sign;
use frevo_wire::codec::Writer;
use frevo_wire::command::{read, write};
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, Header, HeaderFlags, Route, Status};
use rustix::fs::{MemfdFlags, memfd_create};

use super::logon::LoggedOn;
use super::shape::{Shape, Verb};
use crate::client::Protection;

/// Bytes before the header: the length of the frame.
pub(super) const PREFIX_LEN: usize = 4;
/// Header and fixed part of a READ or WRITE.
const FIXED_LEN: usize = 112;
/// Most bytes of payload that are signed before a round.
const SIGNED_AHEAD: usize = 2 << 30;

const MESSAGE_ID: std::ops::Range<usize> = 24..32;
const SIGNATURE: std::ops::Range<usize> = 48..64;
/// Offset of the field Offset, in both requests (MS-SMB2 2.2.19, 2.2.21).
const OFFSET: std::ops::Range<usize> = 72..80;

/// The encoded request of one connection.
pub(super) struct Requests {
    row: Shape,
    file_bytes: u64,
    /// Prefix, header and body, without a payload.
    frame: Vec<u8>,
    pub(super) charge: u16,
    /// Signatures of the next WRITEs, since those of large messages take long.
    signatures: std::collections::VecDeque<[u8; 16]>,
}

/// The payload of all WRITEs: a file in memory, from which the kernel sends without a copy.
pub(super) struct Payload {
    pub(super) file: OwnedFd,
    pub(super) bytes: Vec<u8>,
}

impl Payload {
    pub(super) fn new(len: usize, label: &str) -> Result<Self> {
        let mut bytes = crate::share::written_block(label);
        ensure!(len <= bytes.len(), "a request of {len} bytes is too long");
        bytes.truncate(len);
        let file = memfd_create("frevo-bench-payload", MemfdFlags::CLOEXEC)?;
        let mut written = 0;
        while let Some(rest) = bytes.get(written..).filter(|rest| !rest.is_empty()) {
            written += rustix::io::write(&file, rest)?;
        }
        Ok(Self { file, bytes })
    }
}

impl Requests {
    pub(super) fn new(
        row: &Shape,
        on: &LoggedOn,
        file_bytes: u64,
        payload: &Payload,
    ) -> Result<Self> {
        let charge = u16::try_from(row.bytes.div_ceil(65_536))?;
        let is_signed = row.protection == Protection::Signed;
        let header = Header {
            credit_charge: charge,
            status: Status(0),
            command: match row.verb {
                Verb::Read => Command::READ,
                Verb::Write => Command::WRITE,
            },
            // The window grows until the server's limit.
            credits: charge.saturating_mul(2),
            flags: if is_signed { HeaderFlags::SIGNED } else { HeaderFlags::EMPTY },
            next_command: 0,
            message_id: 0,
            route: Route::Sync { process_id: 0, tree_id: on.tree_id },
            session_id: on.session_id,
            signature: [0; 16],
        };
        let (persistent, volatile) = on.file_id;
        let file_id = FileId { persistent, volatile };
        let mut message = header.to_bytes().to_vec();
        let mut w = Writer::from(&mut message, 0);
        match row.verb {
            Verb::Read => read::Request::new(file_id, 0, u32::try_from(row.bytes)?).encode(&mut w),
            Verb::Write => write::Request::new(file_id, 0, &payload.bytes).encode(&mut w),
        }
        let length = u32::try_from(message.len())?;
        if row.verb == Verb::Write {
            message.truncate(FIXED_LEN);
        }
        let mut frame = length.to_be_bytes().to_vec();
        frame.append(&mut message);
        Ok(Self { row: *row, file_bytes, frame, charge, signatures: [].into() })
    }

    /// The offset of the `n`th request in its file.
    pub(super) fn offset(&self, n: u64) -> u64 {
        self.row.offset(n, self.file_bytes)
    }

    /// Returns the bytes of the `n`th request before its payload; None once no signature is left.
    pub(super) fn encode(
        &mut self,
        n: u64,
        message_id: u64,
        on: &LoggedOn,
    ) -> Result<Option<&[u8]>> {
        let offset = self.offset(n);
        let message = self.frame.get_mut(PREFIX_LEN..).context("a message")?;
        put(message, MESSAGE_ID, &message_id.to_le_bytes());
        put(message, OFFSET, &offset.to_le_bytes());
        if self.row.protection == Protection::Signed {
            if self.row.verb == Verb::Write {
                let Some(signature) = self.signatures.pop_front() else { return Ok(None) };
                put(message, SIGNATURE, &signature);
            } else {
                sign(message, &on.key, Sender::Client)?;
            }
        }
        Ok(Some(&self.frame))
    }

    /// Signs the next WRITEs, from the `n`th on.
    pub(super) fn sign_ahead(
        &mut self,
        mut n: u64,
        mut message_id: u64,
        payload: &Payload,
        on: &LoggedOn,
    ) -> Result<()> {
        if self.row.verb != Verb::Write || self.row.protection != Protection::Signed {
            return Ok(());
        }
        let mut message = self.frame.get(PREFIX_LEN..).context("a message")?.to_vec();
        message.extend_from_slice(&payload.bytes);
        self.signatures.clear();
        for _ in 0..SIGNED_AHEAD / self.row.bytes / self.row.connections {
            put(&mut message, MESSAGE_ID, &message_id.to_le_bytes());
            put(&mut message, OFFSET, &self.offset(n).to_le_bytes());
            sign(&mut message, &on.key, Sender::Client)?;
            let signature = message.get(SIGNATURE).context("a signature")?;
            self.signatures.push_back(signature.try_into()?);
            message_id += u64::from(self.charge);
            n += 1;
        }
        Ok(())
    }
}

fn put(message: &mut [u8], range: std::ops::Range<usize>, bytes: &[u8]) {
    if let Some(field) = message.get_mut(range) {
        field.copy_from_slice(bytes);
    }
}
