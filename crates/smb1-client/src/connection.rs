//! One connection by SMB1: requests leave before answers are read, by two tasks.

use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

use frevo_net::buffer::Buf;
use frevo_net::frame_reader::{FrameReader, ReceiveError};
use frevo_net::transport::Stream;
use frevo_smb1::limits::FRAME_BYTES_MAX;
use frevo_smb1::{Fault, Machine, Received, Request, Signer, Terms};
use parking_lot::Mutex;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::task::AbortHandle;

use crate::stream::write_all;

/// The whole answer to a request.
pub(crate) type Answer = frevo_smb1::Answer<Buf>;

/// The end of a connection, for requests that were not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Gone;

/// A request that waits for its answer.
struct Waiter {
    answer: oneshot::Sender<Answer>,
    /// Its part of what the server allows. It is given back with the answer, also if nobody waits for
    /// that.
    _room: OwnedSemaphorePermit,
}

/// A request that is to be sent.
struct Outgoing {
    head: Vec<u8>,
    payload: Option<Payload>,
}

/// Bytes of a file that follow the head of a request. They stay where the client has put them.
struct Payload {
    frame: Arc<Buf>,
    range: Range<usize>,
}

impl Payload {
    /// Returns the part of `frame` that `bytes` are; None if they are elsewhere.
    fn within(frame: &Arc<Buf>, bytes: &[u8]) -> Option<Self> {
        let start = bytes.as_ptr().addr().checked_sub(frame.as_ptr().addr())?;
        let range = start..start.checked_add(bytes.len())?;
        frame.get(range.clone())?;
        Some(Self { frame: Arc::clone(frame), range })
    }

    fn bytes(&self) -> &[u8] {
        self.frame.get(self.range.clone()).unwrap_or_default()
    }
}

struct State {
    machine: Machine,
    outbox: Vec<Outgoing>,
    waiters: HashMap<u16, Waiter>,
    is_gone: bool,
}

struct Shared {
    stream: Stream,
    state: Mutex<State>,
    to_send: Notify,
    /// Requests that may begin.
    room: Arc<Semaphore>,
    has_ended: watch::Sender<bool>,
}

/// A connection. Dropping it ends it.
pub(crate) struct Connection {
    shared: Arc<Shared>,
    tasks: [AbortHandle; 2],
}

impl fmt::Debug for Connection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Connection(..)")
    }
}

impl Connection {
    /// Begins a connection over `stream`. `offers_extended` offers tokens of SPNEGO.
    pub(crate) fn new(stream: Stream, offers_extended: bool) -> Self {
        let state = State {
            machine: Machine::new(offers_extended),
            outbox: Vec::new(),
            waiters: HashMap::new(),
            is_gone: false,
        };
        let shared = Arc::new(Shared {
            stream,
            state: Mutex::new(state),
            to_send: Notify::new(),
            room: Arc::new(Semaphore::new(1)),
            has_ended: watch::Sender::new(false),
        });
        let writer = tokio::spawn(write(Arc::clone(&shared))).abort_handle();
        let reader = tokio::spawn(read(Arc::clone(&shared))).abort_handle();
        Self { shared, tasks: [writer, reader] }
    }

    /// Takes the terms of the server.
    pub(crate) fn negotiated(&self, terms: Terms, offers_signing: bool) {
        self.shared.state.lock().machine.negotiated(terms, offers_signing);
        self.shared.room.add_permits(usize::from(terms.requests.saturating_sub(1)));
    }

    /// Returns the terms of the server.
    pub(crate) fn terms(&self) -> Terms {
        self.shared.state.lock().machine.terms()
    }

    /// Returns true if messages are signed.
    pub(crate) fn is_signing(&self) -> bool {
        self.shared.state.lock().machine.is_signing()
    }

    /// Takes the number of the session.
    pub(crate) fn note_user(&self, answer: &Answer) -> Result<(), Fault> {
        Ok(self.shared.state.lock().machine.note_user(answer)?)
    }

    /// Signs from now on.
    pub(crate) fn sign_after(&self, answer: &Answer, signer: Signer) -> Result<(), Fault> {
        self.shared.state.lock().machine.sign_after(answer, signer)
    }

    /// Makes a request in a tree connect, 0 where none applies, and waits for its answer.
    pub(crate) async fn call(&self, tree: u16, request: &Request<'_>) -> Result<Answer, Gone> {
        self.call_from(None, tree, request).await
    }

    /// Makes a request as [`Self::call`] does. A payload that is part of `frame` is not copied.
    pub(crate) async fn call_from(
        &self,
        frame: Option<&Arc<Buf>>,
        tree: u16,
        request: &Request<'_>,
    ) -> Result<Answer, Gone> {
        let shared = &self.shared;
        let room = Arc::clone(&shared.room).acquire_owned().await.map_err(|_| Gone)?;
        let (answer, answered) = oneshot::channel();
        {
            let mut state = shared.state.lock();
            if state.is_gone {
                return Err(Gone);
            }
            let mut sent = state.machine.send(tree, request).map_err(|_| Gone)?;
            let payload = frame.and_then(|frame| Payload::within(frame, request.payload));
            if payload.is_none() {
                sent.head.extend_from_slice(request.payload);
            }
            state.outbox.push(Outgoing { head: sent.head, payload });
            state.waiters.insert(sent.mid, Waiter { answer, _room: room });
        }
        shared.to_send.notify_one();
        answered.await.map_err(|_| Gone)
    }

    /// Waits until the connection has ended.
    pub(crate) async fn ended(&self) {
        // The sender lives as long as this value.
        let _ = self.shared.has_ended.subscribe().wait_for(|has_ended| *has_ended).await;
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        for task in &self.tasks {
            task.abort();
        }
        self.shared.stream.abort();
    }
}

impl Shared {
    /// Ends the connection: nobody waits any longer.
    fn end(&self) {
        let waiters = {
            let mut state = self.state.lock();
            state.is_gone = true;
            state.outbox.clear();
            std::mem::take(&mut state.waiters)
        };
        self.room.close();
        self.stream.abort();
        self.has_ended.send_replace(true);
        drop(waiters);
    }
}

/// Sends what is to be sent, all that waits at once.
async fn write(shared: Arc<Shared>) {
    loop {
        let waiting = std::mem::take(&mut shared.state.lock().outbox);
        if waiting.is_empty() {
            shared.to_send.notified().await;
            continue;
        }
        let payload = |outgoing| Option::map_or(outgoing, &[][..], Payload::bytes);
        let parts: Vec<&[u8]> = waiting
            .iter()
            .flat_map(|outgoing| [outgoing.head.as_slice(), payload(outgoing.payload.as_ref())])
            .collect();
        if write_all(&shared.stream, &parts).await.is_err() {
            return shared.end();
        }
    }
}

/// Reads answers and gives them to those who wait.
async fn read(shared: Arc<Shared>) {
    if let Err(why) = read_all(&shared).await {
        tracing::debug!(%why, "a connection by SMB1 has ended");
    }
    shared.end();
}

async fn read_all(shared: &Shared) -> Result<(), ReadFault> {
    let mut reader = FrameReader::new(u32::try_from(FRAME_BYTES_MAX).unwrap_or(u32::MAX));
    reader.accept_keep_alives();
    // A message has a buffer of its own from a pool: large data is neither cleared nor copied.
    while let Some(message) = reader.next(&shared.stream).await? {
        // A server that sends without end leaves turns to the other tasks of the thread.
        tokio::task::consume_budget().await;
        let mut state = shared.state.lock();
        if let Received::Answer(mid, answer) = state.machine.receive(message)?
            && let Some(waiter) = state.waiters.remove(&mid)
        {
            drop(state);
            // A caller that gave up needs no answer.
            let _ = waiter.answer.send(answer);
        }
    }
    Err(ReadFault::Ended)
}

/// The reason why no more is read.
#[derive(Debug)]
enum ReadFault {
    Ended,
    Lost(ReceiveError),
    Fault(Fault),
}

impl fmt::Display for ReadFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ended => f.write_str("the server has ended it"),
            Self::Lost(error) => write!(f, "{error}"),
            Self::Fault(fault) => write!(f, "the server broke the protocol: {fault}"),
        }
    }
}

impl From<ReceiveError> for ReadFault {
    fn from(error: ReceiveError) -> Self {
        Self::Lost(error)
    }
}

impl From<Fault> for ReadFault {
    fn from(fault: Fault) -> Self {
        Self::Fault(fault)
    }
}
