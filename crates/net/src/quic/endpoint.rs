//! The end of a socket: hands each datagram to its connection, and out the connections that clients begin.

use std::collections::VecDeque;
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll, Waker};
use std::time::Instant;

use parking_lot::Mutex;
use quinn_proto::{
    ClientConfig, ConnectError, ConnectionError, ConnectionEvent, ConnectionHandle, DatagramEvent,
    EcnCodepoint, EndpointConfig, EndpointEvent, Incoming, ServerConfig, Transmit,
};
use tokio::sync::Notify;

use super::inbox::Inbox;
use super::link::Link;
use super::socket::{Received, Socket};

/// The end of a socket. It lasts as long as one of its users, or a connection.
#[derive(Clone)]
pub(super) struct Endpoint(Arc<Shared>);

/// The parts that the task of the socket and the connections share.
pub(super) struct Shared {
    socket: Arc<dyn Socket>,
    held: Mutex<Router>,
    /// Notified of clients.
    incoming: Notify,
}

struct Router {
    protocol: quinn_proto::Endpoint,
    /// The queues of the connections, at the numbers of their handles.
    inboxes: Vec<Option<Arc<Inbox>>>,
    incoming: VecDeque<Incoming>,
    /// An answer that belongs to no connection.
    answer: Vec<u8>,
    /// True for an end that takes clients: they are not trusted with its memory.
    is_server: bool,
    /// The task of the socket.
    task: Option<Waker>,
}

/// The present moment, in a simulator that of its clock.
pub(super) fn now() -> Instant {
    tokio::time::Instant::now().into_std()
}

impl Endpoint {
    /// Begins to read a socket in the present runtime.
    pub(super) fn new(
        config: EndpointConfig,
        server: Option<ServerConfig>,
        socket: Arc<dyn Socket>,
    ) -> Self {
        let (is_server, allow_discovery) = (server.is_some(), !socket.may_fragment());
        let (config, server) = (Arc::new(config), server.map(Arc::new));
        let protocol = quinn_proto::Endpoint::new(config, server, allow_discovery, None);
        let (inboxes, incoming) = (Vec::new(), VecDeque::new());
        let held =
            Router { protocol, inboxes, incoming, answer: Vec::new(), is_server, task: None };
        let shared = Arc::new(Shared { socket, held: Mutex::new(held), incoming: Notify::new() });
        tokio::spawn(read(Arc::downgrade(&shared)));
        Self(shared)
    }

    /// Returns the address of its socket.
    ///
    /// # Errors
    /// The system's error.
    pub(super) fn local_addr(&self) -> io::Result<SocketAddr> {
        self.0.socket.local_addr()
    }

    /// Uses another configuration for clients that come from now on. None takes no more of them.
    pub(super) fn set_server_config(&self, config: Option<ServerConfig>) {
        let mut held = self.0.held.lock();
        let is_closed = config.is_none();
        held.protocol.set_server_config(config.map(Arc::new));
        if is_closed {
            held.ignore_waiting();
        }
    }

    /// Waits for a client. Dropping the future loses none.
    pub(super) async fn accept(&self) -> Incoming {
        loop {
            let notified = self.0.incoming.notified();
            let waiting = self.0.held.lock().incoming.pop_front();
            if let Some(incoming) = waiting {
                return incoming;
            }
            notified.await;
        }
    }

    /// Begins the connection of a client in the present runtime.
    ///
    /// # Errors
    /// The first packet was wrong.
    pub(super) fn begin(
        &self,
        incoming: Incoming,
        config: ServerConfig,
    ) -> Result<Arc<Link>, ConnectionError> {
        let mut held = self.0.held.lock();
        let Router { protocol, answer, .. } = &mut *held;
        answer.clear();
        match protocol.accept(incoming, now(), answer, Some(Arc::new(config))) {
            Ok((handle, connection)) => Ok(held.connect(&self.0, handle, connection)),
            Err(error) => {
                if let Some(answer) = error.response {
                    self.0.answer(&answer, &held.answer);
                }
                Err(error.cause)
            }
        }
    }

    /// Refuses a client, and tells it.
    pub(super) fn refuse(&self, incoming: Incoming) {
        let mut held = self.0.held.lock();
        let Router { protocol, answer, .. } = &mut *held;
        answer.clear();
        let transmit = protocol.refuse(incoming, answer);
        self.0.answer(&transmit, answer);
    }

    /// Asks a client to prove its address. One that has proved it is refused.
    pub(super) fn retry(&self, incoming: Incoming) {
        let mut held = self.0.held.lock();
        let Router { protocol, answer, .. } = &mut *held;
        answer.clear();
        match protocol.retry(incoming, answer) {
            Ok(transmit) => self.0.answer(&transmit, answer),
            Err(error) => {
                drop(held);
                self.refuse(error.into_incoming());
            }
        }
    }

    /// Forgets a client.
    pub(super) fn ignore(&self, incoming: Incoming) {
        self.0.held.lock().protocol.ignore(incoming);
    }

    /// Begins a connection with a server in the present runtime.
    ///
    /// # Errors
    /// The address or the name cannot be used.
    pub(super) fn connect(
        &self,
        config: ClientConfig,
        address: SocketAddr,
        name: &str,
    ) -> Result<Arc<Link>, ConnectError> {
        let mut held = self.0.held.lock();
        let (handle, connection) = held.protocol.connect(now(), config, address, name)?;
        Ok(held.connect(&self.0, handle, connection))
    }
}

impl Router {
    fn connect(
        &mut self,
        shared: &Arc<Shared>,
        handle: ConnectionHandle,
        connection: quinn_proto::Connection,
    ) -> Arc<Link> {
        let inbox = Arc::new(Inbox::new(self.is_server));
        if self.inboxes.len() <= handle.0 {
            self.inboxes.resize(handle.0 + 1, None);
        }
        if let Some(place) = self.inboxes.get_mut(handle.0) {
            *place = Some(Arc::clone(&inbox));
        }
        Link::begin(connection, handle, inbox, Arc::clone(shared))
    }

    /// Takes one datagram. True if it is of a new client.
    fn handle(&mut self, received: Received, now: Instant, shared: &Shared) -> bool {
        let Received { meta, bytes } = received;
        let memory = bytes.len();
        self.answer.clear();
        let mark = meta.ecn.and_then(|mark| EcnCodepoint::from_bits(mark as u8));
        let Self { protocol, answer, .. } = self;
        match protocol.handle(now, meta.addr, meta.dst_ip, mark, bytes, answer) {
            Some(DatagramEvent::ConnectionEvent(handle, event)) => {
                if let Some(Some(inbox)) = self.inboxes.get(handle.0) {
                    inbox.push(event, memory);
                }
            }
            Some(DatagramEvent::NewConnection(incoming)) => {
                self.incoming.push_back(incoming);
                return true;
            }
            Some(DatagramEvent::Response(transmit)) => shared.answer(&transmit, &self.answer),
            None => {}
        }
        false
    }

    fn ignore_waiting(&mut self) {
        for incoming in self.incoming.drain(..) {
            self.protocol.ignore(incoming);
        }
    }
}

impl Shared {
    /// Returns the socket.
    pub(super) fn socket(&self) -> &Arc<dyn Socket> {
        &self.socket
    }

    /// Tells the end what one of its connections does. Returns what the connection is to know then.
    pub(super) fn tell(
        &self,
        handle: ConnectionHandle,
        event: EndpointEvent,
    ) -> Option<ConnectionEvent> {
        let mut held = self.held.lock();
        if event.is_drained()
            && let Some(place) = held.inboxes.get_mut(handle.0)
        {
            *place = None;
        }
        held.protocol.handle_event(handle, event)
    }

    /// Sends an answer to an address without a connection. It is lost if there is no room: who it is for
    /// asks again.
    fn answer(&self, transmit: &Transmit, bytes: &[u8]) {
        drop(self.socket.try_send(transmit, bytes.get(..transmit.size).unwrap_or_default()));
    }

    fn poll(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut held = self.held.lock();
        if !held.task.as_ref().is_some_and(|kept| kept.will_wake(cx.waker())) {
            held.task = Some(cx.waker().clone());
        }
        let (now, mut has_clients) = (now(), false);
        let polled = self.socket.poll_receive(cx, &mut |received| {
            has_clients |= held.handle(received, now, self);
        });
        drop(held);
        if has_clients {
            self.incoming.notify_waiters();
        }
        polled
    }
}

/// Reads the socket of an end while that exists.
async fn read(shared: Weak<Shared>) {
    poll_fn(|cx| {
        let Some(shared) = shared.upgrade() else { return Poll::Ready(()) };
        if shared.poll(cx).is_ready() {
            // There may be more, after the turns of others.
            cx.waker().wake_by_ref();
        }
        Poll::Pending
    })
    .await;
}

impl Drop for Shared {
    fn drop(&mut self) {
        let held = self.held.get_mut();
        held.ignore_waiting();
        // Its task ends.
        if let Some(task) = held.task.take() {
            task.wake();
        }
    }
}

impl fmt::Debug for Shared {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Endpoint").field("socket", &self.socket).finish_non_exhaustive()
    }
}
