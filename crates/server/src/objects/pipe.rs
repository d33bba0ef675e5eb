//! Opens of named pipes, and the data that waits in them.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use frevo_rpc::Endpoint;
use frevo_rpc::limits::{MAX_FRAG, MAX_UNREAD};
use frevo_wire::Status;
use frevo_wire::fscc::fsctl::PipePeekHeader;
use frevo_wire::fscc::query::{FilePipeInformation, FilePipeLocalInformation};
use tokio::sync::{Notify, Semaphore};

use crate::base::limits::PIPE_BYTES;
use crate::base::pools::slots::Slot;
use crate::objects::ledger::Charge;

/// FILE_PIPE_MESSAGE_TYPE
const MESSAGE_TYPE: u32 = 1;
/// FILE_PIPE_FULL_DUPLEX
const FULL_DUPLEX: u32 = 2;
/// FILE_PIPE_CONNECTED_STATE
const CONNECTED: u32 = 3;
/// FILE_PIPE_CLOSING_STATE
const CLOSING: u32 = 4;
/// FILE_PIPE_CLIENT_END
const CLIENT_END: u32 = 0;

/// The facts of a pipe's interface that its requests need.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PipeKind {
    /// The name, without a path.
    pub(crate) name: &'static str,
    /// True for calls that look up users of the host, which may take long.
    pub(crate) asks_host: bool,
    /// True if members of Administrators manage the server by it.
    pub(crate) is_managed: bool,
}

/// The server's end of a pipe: the machine of RPC, and the state of the interface behind it, which
/// `ipc` alone knows.
pub(crate) trait PipeEnd: Any + fmt::Debug + Send {
    /// Returns the machine.
    fn endpoint(&self) -> &Endpoint;
    /// Returns the machine, to read from it or to close it.
    fn endpoint_mut(&mut self) -> &mut Endpoint;
    /// Bytes that the end holds.
    fn bytes(&self) -> usize;
}

/// The client's end of an open pipe.
#[derive(Debug)]
pub struct Pipe {
    pub(crate) kind: PipeKind,
    /// The server's end. None while written bytes are answered on another thread.
    pub(crate) end: Option<Box<dyn PipeEnd>>,
    /// Taken by the WRITE that is answered there: one after the other.
    pub(crate) turn: Arc<Semaphore>,
    /// FILE_PIPE_MESSAGE_MODE: a READ that takes part of a message says so.
    pub(crate) by_message: bool,
    /// FILE_PIPE_COMPLETE_OPERATION: a READ of an empty pipe does not wait.
    pub(crate) completes: bool,
    /// Told when there may be something to read.
    pub(crate) filled: Arc<Notify>,
    charge: Charge,
    _slot: Slot,
}

impl Pipe {
    pub(crate) fn new(kind: PipeKind, end: Box<dyn PipeEnd>, slot: Slot, charge: Charge) -> Self {
        Self {
            kind,
            end: Some(end),
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
        self.kind.name
    }

    /// Takes what can be read now: the bytes, and whether the message goes on.
    pub(crate) fn take(&mut self, max_len: usize) -> Option<(Vec<u8>, bool)> {
        let got = self.end.as_mut()?.endpoint_mut().read(max_len)?;
        // Taking data only makes the charge smaller, which is never refused.
        let _ = self.settle();
        Some((got.data, got.remaining > 0 && self.by_message))
    }

    /// Makes room for `more` bytes that the client writes.
    pub(crate) fn reserve(&mut self, more: usize) -> Result<(), Status> {
        self.charge.resize(self.charge.bytes().saturating_add(more))
    }

    /// Charges the bytes that it holds now.
    fn settle(&mut self) -> Result<(), Status> {
        let Some(end) = &self.end else { return Ok(()) };
        self.charge.resize(PIPE_BYTES.saturating_add(end.bytes()))
    }

    /// Puts the end back after a write with the outcome `written`. An end that holds more than its
    /// client may have is closed, with all that it holds.
    pub(crate) fn put_back<T>(
        &mut self,
        mut end: Box<dyn PipeEnd>,
        written: Result<T, Status>,
    ) -> Result<T, Status> {
        let bytes = PIPE_BYTES.saturating_add(end.bytes());
        let is_refused = self.charge.resize(bytes).is_err();
        if is_refused {
            end.endpoint_mut().give_up();
            let _ = self.charge.resize(PIPE_BYTES);
        }
        self.end = Some(end);
        self.filled.notify_waiters();
        if is_refused { Err(Status::INSUFFICIENT_RESOURCES) } else { written }
    }

    /// True while a call waits for its answer.
    pub(crate) fn has_pending(&self) -> bool {
        self.waiting().is_some_and(|end| end.pending().next().is_some())
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.waiting().is_some_and(Endpoint::is_closed)
    }

    /// True when answering `data` may take long: the service looks up users of the host, there are
    /// several messages, or earlier messages are being answered.
    pub(crate) fn is_work(&self, data: &[u8]) -> bool {
        let is_long = |endpoint: &Endpoint| endpoint.has_several(data);
        self.kind.asks_host || self.waiting().is_none_or(is_long)
    }
}

impl Pipe {
    fn state(&self) -> u32 {
        if self.is_closed() { CLOSING } else { CONNECTED }
    }

    pub(crate) fn unread(&self) -> u32 {
        u32::try_from(self.waiting().map_or(0, Endpoint::unread)).unwrap_or(u32::MAX)
    }

    /// Where there is something to read, unless it is being made just now.
    pub(crate) fn waiting(&self) -> Option<&Endpoint> {
        self.end.as_ref().map(|end| end.endpoint())
    }

    pub(crate) const fn mode(&self) -> FilePipeInformation {
        FilePipeInformation {
            read_mode: self.by_message as u32,
            completion_mode: self.completes as u32,
        }
    }

    pub(crate) fn local(&self) -> FilePipeLocalInformation {
        let quota = u32::from(MAX_FRAG);
        let is_full =
            self.waiting().is_none_or(|end| end.is_closed() || end.unread() >= MAX_UNREAD);
        FilePipeLocalInformation {
            named_pipe_type: MESSAGE_TYPE,
            named_pipe_configuration: FULL_DUPLEX,
            maximum_instances: u32::MAX,
            current_instances: 1,
            inbound_quota: quota,
            read_data_available: self.unread(),
            outbound_quota: quota,
            write_quota_available: if is_full { 0 } else { quota },
            named_pipe_state: self.state(),
            named_pipe_end: CLIENT_END,
        }
    }

    pub(crate) fn peek(&self) -> PipePeekHeader {
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        PipePeekHeader {
            named_pipe_state: self.state(),
            read_data_available: self.unread(),
            number_of_messages: count(self.waiting().map_or(0, Endpoint::unread_messages)),
            message_length: count(self.waiting().map_or(0, Endpoint::first_message_len)),
        }
    }
}

/// Pipes for tests that need Opens and no file.
#[cfg(test)]
pub(crate) mod testing {
    use std::sync::Arc;

    use frevo_rpc::{Endpoint, Terms, srvsvc};

    use super::{Pipe, PipeEnd, PipeKind};
    use crate::base::pools::slots::Slots;
    use crate::objects::ledger::{Holder, Kind};

    /// A machine without an interface behind it.
    #[derive(Debug)]
    struct Bare(Endpoint);

    impl PipeEnd for Bare {
        fn endpoint(&self) -> &Endpoint {
            &self.0
        }

        fn endpoint_mut(&mut self) -> &mut Endpoint {
            &mut self.0
        }

        fn bytes(&self) -> usize {
            self.0.bytes()
        }
    }

    /// A pipe that nobody has written to.
    pub(crate) fn pipe(holder: &Arc<Holder>) -> Pipe {
        let slot = Slots::default().take(1).unwrap();
        let kind = PipeKind { name: "srvsvc", asks_host: false, is_managed: true };
        let end = Bare(Endpoint::new(Terms::of_pipe(&srvsvc::INTERFACE, 1)));
        Pipe::new(kind, Box::new(end), slot, holder.charge(Kind::Pipe, 0).unwrap())
    }
}
