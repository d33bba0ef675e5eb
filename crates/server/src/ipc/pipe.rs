//! Opens of named pipes, and the data that waits in them.

use std::sync::Arc;

use frevo_rpc::{self as rpc, Endpoint};
use frevo_wire::Status;
use tokio::sync::{Notify, Semaphore};

use crate::base::limits::PIPE_BYTES;
use crate::base::pools::slots::Slot;
use crate::objects::ledger::Charge;

/// The outcome of a write to a pipe.
pub(super) type Written = Result<(), Status>;

/// The client's end of an open pipe.
#[derive(Debug)]
pub struct Pipe {
    pub(super) kind: rpc::Pipe,
    /// None while what was written is answered on another thread.
    pub(super) endpoint: Option<Endpoint>,
    /// Whose WRITE is answered there: one after the other.
    pub(super) turn: Arc<Semaphore>,
    /// FILE_PIPE_MESSAGE_MODE: a READ that takes part of a message says so.
    pub(super) by_message: bool,
    /// FILE_PIPE_COMPLETE_OPERATION: a READ of an empty pipe does not wait.
    pub(super) completes: bool,
    /// Told when there may be something to read.
    pub(super) filled: Arc<Notify>,
    charge: Charge,
    _slot: Slot,
}

impl Pipe {
    pub(super) fn new(kind: rpc::Pipe, association: u32, slot: Slot, charge: Charge) -> Self {
        Self {
            kind,
            endpoint: Some(Endpoint::new(kind, association)),
            turn: Arc::new(Semaphore::new(1)),
            by_message: true,
            completes: false,
            filled: Arc::default(),
            charge,
            _slot: slot,
        }
    }

    /// Its name, without a path.
    pub const fn name(&self) -> &'static str {
        self.kind.name()
    }

    /// Takes what can be read now: the bytes, and whether the message goes on.
    pub(super) fn take(&mut self, max_len: usize) -> Option<(Vec<u8>, bool)> {
        let got = self.endpoint.as_mut()?.read(max_len)?;
        // Less is never refused.
        let _ = self.settle();
        Some((got.data, got.remaining > 0 && self.by_message))
    }

    /// Makes room for `more` bytes that the client writes.
    pub(super) fn reserve(&mut self, more: usize) -> Result<(), Status> {
        self.charge.resize(self.charge.bytes().saturating_add(more))
    }

    /// Charges the bytes that it holds now.
    fn settle(&mut self) -> Result<(), Status> {
        let Some(endpoint) = &self.endpoint else { return Ok(()) };
        self.charge.resize(PIPE_BYTES.saturating_add(endpoint.bytes()))
    }

    /// Puts the endpoint back after a write with the outcome `written`. An endpoint that
    /// holds more than its client may have is closed, with all that it holds.
    pub(super) fn put_back(&mut self, mut endpoint: Endpoint, written: Written) -> Written {
        let bytes = PIPE_BYTES.saturating_add(endpoint.bytes());
        let is_refused = self.charge.resize(bytes).is_err();
        if is_refused {
            endpoint.give_up();
            let _ = self.charge.resize(PIPE_BYTES);
        }
        self.endpoint = Some(endpoint);
        self.filled.notify_waiters();
        if is_refused { Err(Status::INSUFFICIENT_RESOURCES) } else { written }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.endpoint.as_ref().is_some_and(Endpoint::is_closed)
    }

    /// True when answering `data` may take long: the service looks up users of the host, there are
    /// several messages, or earlier messages are being answered.
    pub(super) fn is_work(&self, data: &[u8]) -> bool {
        let is_long = |endpoint: &Endpoint| endpoint.has_several(data);
        self.asks_host() || self.endpoint.as_ref().is_none_or(is_long)
    }

    /// True for a service that looks up users of the host, which may take long.
    pub(super) const fn asks_host(&self) -> bool {
        matches!(self.kind, rpc::Pipe::Lsarpc | rpc::Pipe::Samr)
    }
}
