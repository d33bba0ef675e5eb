//! The network between the clients and the server: bytes of TCP, packets of RDMA and datagrams of QUIC move
//! from one end to the other with a delay, or are lost.

mod direct;
mod path;
mod places;
mod quic;
mod rpc;
mod streams;

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use frevo_net::memory;
use frevo_net::rdma::{Fabric, Wire};
use frevo_net::transport::{self, Connecting, Detached, MemoryListener, Stream, Transport};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};

use self::path::{Internet, Path};
use self::places::Places;
pub use self::rpc::{RPC_PORT, node_address, unit_address};
use self::rpc::{RpcDoor, RpcLink};
use crate::dice::Dice;
use crate::nonces::{Frames, Nonces};
use crate::trace::Trace;
use crate::{event, violation};

/// Size of a socket's buffer, bytes.
const PIPE: usize = 256 << 10;
/// The name of the servers, before their number.
pub const SERVER: &str = "frevo";
/// The address of every server.
pub const SERVER_ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// Largest latency.
pub const LATENCY_MAX: Duration = Duration::from_millis(400);

/// Longest time in which a server answers a request that waits for nothing, whatever other accounts
/// do: 20 ms twice for threads that check and protect messages, and a slice for each account.
pub const ANSWERED_WITHIN: Duration = Duration::from_millis(100);

/// Bytes that all connections may register: enough, so that no loan waits for another's.
const REGISTERED_MAX: usize = 4 << 30;

/// Returns the number of the client that has an address.
pub fn client_at(address: Ipv4Addr) -> usize {
    usize::from(address.octets()[3]).saturating_sub(FIRST_CLIENT)
}

/// Returns the address of a client.
fn client_address(client: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, u8::try_from(client + FIRST_CLIENT).unwrap_or(255))
}

/// The last part of the first client's address.
const FIRST_CLIENT: usize = 2;

/// The state of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Bytes are delivered.
    Flowing,
    /// Bytes are held back.
    Stalled,
    /// Half-open: bytes in the given directions are lost from now on.
    Vanishing([bool; 2]),
    /// The client's end is reset soon; what it has sent until then reaches the server much later.
    Late,
    /// Of QUIC: the client's datagrams come from another address, and nothing reaches the client.
    Moved,
    /// Of QUIC: the server has fallen, and nobody tells the client.
    Forgotten,
    /// Both ends were reset, or are closed. Of QUIC: the client's end was reset.
    Ended,
}

/// The directions: to the server, and back.
const DIRECTIONS: [usize; 2] = [0, 1];

/// One simulated connection.
struct Link {
    id: u64,
    /// The number of its line: of its client, at its server.
    client: usize,
    /// The number of the server that has accepted it: of a node, where servers have addresses in turn.
    server: usize,
    state: Mutex<State>,
    /// Notified of changes, for each direction.
    changed: [Notify; 2],
    /// Base of the latency, microseconds.
    latency: u64,
    /// Number of closed directions.
    closed: AtomicU64,
    /// True after any fault, when an end has closed the connection, and when its server will do so.
    is_broken: AtomicBool,
    /// True once the client has heard that the connection is a channel of its session.
    is_bound: AtomicBool,
    /// The wire of an RDMA connection, whose first end is the client's.
    wire: Option<Wire>,
    /// The sockets of a QUIC connection.
    path: Option<Path>,
    /// The time at which it was made.
    made: Instant,
    /// The time at which the server got a request that it has not answered.
    asked: Mutex<Option<Instant>>,
}

impl Link {
    fn new(client: usize, server: usize, latency: u64) -> Self {
        Self {
            id: 0,
            client,
            server,
            state: Mutex::new(State::Flowing),
            changed: [Notify::new(), Notify::new()],
            latency,
            closed: AtomicU64::new(0),
            is_broken: AtomicBool::new(false),
            is_bound: AtomicBool::new(false),
            wire: None,
            path: None,
            made: Instant::now(),
            asked: Mutex::default(),
        }
    }

    fn state(&self) -> State {
        *self.state.lock()
    }
}

/// The simulated network.
pub struct Network {
    trace: Arc<Trace>,
    inner: Mutex<Inner>,
    /// Number of clients; line `server * clients + client` leads from a client to a server.
    clients: usize,
    /// Number of lost or disturbed connections of each line.
    losses: Vec<AtomicU64>,
    /// Number of faults that have met connections of each line, which neither end has made.
    faults: Vec<AtomicU64>,
    /// Number of calls under way on each line.
    calls: Vec<AtomicU64>,
    /// The memory of all RDMA connections.
    fabric: Arc<Fabric>,
}

struct Inner {
    dice: Dice,
    /// The listener of each server; None while it is down.
    doors: Vec<Option<Door>>,
    /// Nonces of sealed messages.
    nonces: Nonces,
    /// True for each server whose RDMA device is there.
    devices: Vec<bool>,
    /// True for each line whose dials hang.
    is_cut_off: Vec<bool>,
    links: Vec<Arc<Link>>,
    /// QUIC between clients and servers. None in a run without it.
    internet: Option<Internet>,
    /// The listeners for remote procedure calls, by node.
    rpc_doors: BTreeMap<usize, RpcDoor>,
    rpc_links: Vec<Arc<RpcLink>>,
    next: u64,
    /// The places of addresses in a cluster. None where each server has its own address.
    places: Option<Places>,
    last_loss: Vec<Instant>,
    /// The line whose requests are to be answered in time.
    is_measured: Option<usize>,
    /// Largest base latency of this run, microseconds.
    slowness: u64,
}

impl Inner {
    /// Numbers a new connection, and has it in the list.
    fn begin(&mut self, link: Link) -> Arc<Link> {
        let link = Arc::new(Link { id: self.next, ..link });
        if self.is_stopped(link.server) {
            *link.state.lock() = State::Stalled;
        }
        self.next += 1;
        self.links.push(Arc::clone(&link));
        link
    }
}

/// The listener of a server.
struct Door {
    accepted: transport::Door,
    /// True if it listens for RDMA beside TCP.
    has_rdma: bool,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("losses", &self.losses).finish_non_exhaustive()
    }
}

impl Network {
    /// Returns a network of `clients` clients and `servers` servers without a listener.
    pub fn new(clients: usize, servers: usize, mut dice: Dice, trace: Arc<Trace>) -> Arc<Self> {
        let lines = clients * servers;
        let slowness = *dice.pick(&[200, 2_000, 20_000, 180_000]);
        let inner = Inner {
            dice,
            doors: (0..servers).map(|_| None).collect(),
            devices: vec![true; servers],
            nonces: Nonces::default(),
            is_cut_off: vec![false; lines],
            links: Vec::new(),
            internet: None,
            rpc_doors: BTreeMap::new(),
            rpc_links: Vec::new(),
            next: 1,
            places: None,
            last_loss: vec![Instant::now(); lines],
            is_measured: None,
            slowness,
        };
        let counts = || (0..lines).map(|_| AtomicU64::new(0)).collect();
        let (losses, faults, calls) = (counts(), counts(), counts());
        let fabric = Fabric::new(REGISTERED_MAX);
        Arc::new(Self { trace, inner: Mutex::new(inner), clients, losses, faults, calls, fabric })
    }

    /// Returns the line from a client to a server.
    pub const fn line(&self, client: usize, server: usize) -> usize {
        server * self.clients + client
    }

    /// Begins to listen for a server: for TCP, and perhaps for RDMA.
    pub fn listen(&self, server: usize, has_rdma: bool) -> MemoryListener {
        let (listener, accepted) = MemoryListener::new();
        self.inner.lock().doors[server] = Some(Door { accepted, has_rdma });
        listener
    }

    /// Stops listening for a server. Its connections stay.
    pub fn close_door(&self, server: usize) {
        self.inner.lock().doors[server] = None;
        self.unplug_quic(server);
    }

    /// The connections to a server will end soon. A client that has heard of it by one of them does not go on
    /// by the others, although no fault has met them yet.
    pub fn will_end(&self, server: usize) {
        for link in self.links(|link| link.server == server) {
            link.is_broken.store(true, Ordering::Relaxed);
        }
    }

    /// Drops every connection to a server when it ends.
    pub fn server_is_down(&self, server: usize) {
        {
            let mut inner = self.inner.lock();
            inner.doors[server] = None;
            inner.rpc_doors.remove(&server);
            // The nodes of a cluster never number two sessions alike.
            if inner.places.is_none() {
                inner.nonces.forget(|line| line / self.clients == server);
            }
        }
        self.unplug_quic(server);
        for link in self.links(|link| link.server == server) {
            match &link.path {
                None => self.hit(&link, State::Ended),
                Some(path) if path.is_established() => self.hit(&link, State::Forgotten),
                // The next process may take the handshake up.
                Some(_) => {}
            }
        }
        self.end_rpc(|link| link.node == server);
    }

    /// Returns how often connections of `client` were lost or disturbed.
    pub fn losses(&self, client: usize) -> u64 {
        self.losses[client].load(Ordering::Relaxed)
    }

    /// Returns how often a fault that neither end has made met a connection of `client`.
    pub fn faults(&self, client: usize) -> u64 {
        self.faults[client].load(Ordering::Relaxed)
    }

    /// Returns true if `client` had no network fault for `time`.
    pub fn is_calm_since(&self, client: usize, time: Duration) -> bool {
        let inner = self.inner.lock();
        inner.last_loss[client].elapsed() > time
            && inner
                .links
                .iter()
                .filter(|l| l.client == client)
                .all(|l| l.state() == State::Flowing)
    }

    /// Returns true if a line has connections, all of which were made at least `ago`.
    pub fn is_settled(&self, line: usize, ago: Duration) -> bool {
        let links = self.links(|link| link.client == line);
        !links.is_empty() && links.iter().all(|link| link.made.elapsed() >= ago)
    }

    /// Returns true if a fault or an end has met a connection of a line that is still open: a client
    /// may notice it, and repeat a request on another connection, before the connection ends.
    pub fn is_troubled(&self, line: usize) -> bool {
        let is_whole = |link: &Link| {
            link.state() == State::Flowing && link.closed.load(Ordering::Relaxed) == 0
        };
        !self.links(|link| link.client == line && !is_whole(link)).is_empty()
    }

    /// Returns the channels of a line that no fault has met, if all its connections are the
    /// `channels` channels of a session. One that is being bound may stand in the count for one that
    /// has ended unnoticed, but it is no channel yet.
    pub fn unbroken(&self, line: usize, channels: usize) -> Vec<u64> {
        let links = self.links(|link| link.client == line);
        let is_sound = |link: &&Arc<Link>| {
            link.is_bound.load(Ordering::Relaxed) && !link.is_broken.load(Ordering::Relaxed)
        };
        let sound = links.iter().filter(is_sound).map(|link| link.id).collect();
        if links.len() == channels { sound } else { Vec::new() }
    }

    /// Returns true if no fault has met one of these connections.
    pub fn is_one_unbroken(&self, ids: &[u64]) -> bool {
        let is_sound = |link: &Link| !link.is_broken.load(Ordering::Relaxed);
        !self.links(|link| ids.contains(&link.id) && is_sound(link)).is_empty()
    }

    /// Measures how long the server takes for the requests of a line, whose client has one under way
    /// at a time.
    pub fn watch_waits(&self, line: usize) {
        self.inner.lock().is_measured = Some(line);
    }

    /// Notes a part of a request that the server has got, or of an answer.
    fn was_delivered(&self, link: &Link, direction: usize, has_logged_on: bool) {
        if direction == 1 {
            link.is_bound.fetch_or(has_logged_on, Ordering::Relaxed);
        } else if self.inner.lock().is_measured == Some(link.client) {
            *link.asked.lock() = Some(Instant::now());
        }
    }

    /// Compares the time of an answer. Before the logon the server may wait on purpose.
    fn was_answered(&self, link: &Link) {
        let Some(asked) = link.asked.lock().take() else { return };
        let is_sound = !link.is_broken.load(Ordering::Relaxed);
        let waited = asked.elapsed();
        if is_sound && link.is_bound.load(Ordering::Relaxed) && waited > ANSWERED_WITHIN {
            violation!(
                self.trace,
                "c{} has waited {} ms for a server that works for others, {} are allowed",
                link.client,
                waited.as_millis(),
                ANSWERED_WITHIN.as_millis()
            );
        }
    }

    fn links(&self, which: impl Fn(&Link) -> bool) -> Vec<Arc<Link>> {
        self.inner.lock().links.iter().filter(|link| which(link)).cloned().collect()
    }

    fn disturbed(&self, client: usize) {
        self.losses[client].fetch_add(1, Ordering::Relaxed);
        self.inner.lock().last_loss[client] = Instant::now();
    }

    /// Puts a connection into the state `to`, by no act of its ends.
    fn hit(&self, link: &Link, to: State) {
        self.faults[link.client].fetch_add(1, Ordering::Relaxed);
        self.change(link, to);
    }

    fn change(&self, link: &Link, to: State) {
        {
            let is_stopped = self.is_stopped(link.server);
            let mut state = link.state.lock();
            // Bytes of a stopped process are held until it goes on, whatever happens to others.
            if is_stopped && !matches!(to, State::Stalled | State::Ended) {
                return;
            }
            let is_lost = !matches!(*state, State::Flowing | State::Stalled | State::Ended);
            let is_over = *state == State::Ended || (is_lost && to != State::Ended);
            if is_over || *state == to {
                return;
            }
            *state = to;
        }
        event!(self.trace, "net link {} of c{}: {to:?}", link.id, link.client);
        link.is_broken.store(true, Ordering::Relaxed);
        self.disturbed(link.client);
        link.changed.iter().for_each(Notify::notify_one);
        match (&link.path, to) {
            (Some(path), State::Ended) => path.reset(),
            (Some(path), State::Moved) => path.go_elsewhere(),
            _ => {}
        }
        if to == State::Ended {
            self.inner.lock().links.retain(|other| other.id != link.id);
        }
    }

    /// Puts a random connection into the state `to`. Keep-alive notices lost bytes after a while.
    pub fn disturb(self: &Arc<Self>, dice: &mut Dice, to: State) {
        let links = self.links(|_| true);
        if links.is_empty() {
            return;
        }
        let link = Arc::clone(dice.pick(&links));
        let moves = link.path.is_some() && to == State::Ended && dice.percent(50);
        let to = if moves { State::Moved } else { to };
        self.hit(&link, to);
        let after = dice.millis(200, 30_000);
        let network = Arc::clone(self);
        match to {
            State::Stalled => {
                tokio::spawn(async move {
                    sleep(after).await;
                    network.hit(&link, State::Flowing);
                });
            }
            State::Vanishing(_) => {
                tokio::spawn(async move {
                    sleep(after * 3).await;
                    network.hit(&link, State::Ended);
                });
            }
            // In these states the task `carry` ends the connection itself, or its client does.
            State::Late | State::Flowing | State::Moved | State::Forgotten | State::Ended => {}
        }
    }

    /// Cuts `client` off, with its connections, or reconnects it.
    pub fn cut_off(&self, client: usize, is_cut_off: bool) {
        event!(self.trace, "net c{client} cut off: {is_cut_off}");
        self.inner.lock().is_cut_off[client] = is_cut_off;
        self.disturbed(client);
        if is_cut_off {
            for link in self.links(|link| link.client == client) {
                self.hit(&link, State::Ended);
            }
        }
    }

    /// Ends all network faults.
    pub fn heal(&self) {
        {
            let mut inner = self.inner.lock();
            inner.is_cut_off.fill(false);
            inner.devices.fill(true);
        }
        for link in self.links(|link| link.state() == State::Stalled) {
            self.hit(&link, State::Flowing);
        }
        for link in self.links(|link| matches!(link.state(), State::Vanishing(_))) {
            self.hit(&link, State::Ended);
        }
    }

    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        let inner = self.inner.lock();
        inner.links.len() + inner.rpc_links.len()
    }

    /// Returns the name of a server, or of an address of a cluster.
    pub fn host(&self, server: usize) -> String {
        // A cluster is known by its own name, and by those that begin with it.
        let prefix = if self.inner.lock().places.is_some() { "sim." } else { "" };
        format!("{prefix}{SERVER}{server}")
    }

    fn delay(&self, base: u64) -> Duration {
        self.inner.lock().dice.micros(base, base * 2)
    }

    /// Makes a connection of a line: of RDMA, of QUIC, or of memory, which stands for TCP.
    async fn connect(self: &Arc<Self>, client: usize, transport: Transport) -> io::Result<Stream> {
        let base = {
            let mut inner = self.inner.lock();
            let slowness = inner.slowness;
            50 + inner.dice.below(slowness)
        };
        sleep(self.delay(base)).await;
        self.await_place(client).await?;
        if self.inner.lock().is_cut_off[client] || self.is_isolated(client) {
            event!(self.trace, "net c{client} dials into the void");
            self.disturbed(client);
            return std::future::pending().await;
        }
        if transport == Transport::Rdma {
            return self.connect_rdma(client, base);
        }
        if transport == Transport::Quic {
            return self.connect_quic(client, base).await;
        }
        let (ours, near) = memory::pair(PIPE, self.addresses(client));
        let (far, theirs) = memory::pair(PIPE, self.addresses(client));
        let Some(link) = self.accept(client, Detached::Memory(theirs), base, None) else {
            event!(self.trace, "net c{client} is refused");
            self.disturbed(client);
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        event!(self.trace, "net c{client} connects: link {}", link.id);
        let ends = [Arc::new(near), Arc::new(far)];
        for direction in DIRECTIONS {
            let (from, to) = (Arc::clone(&ends[direction]), Arc::clone(&ends[1 - direction]));
            let (network, link) = (Arc::clone(self), Arc::clone(&link));
            tokio::spawn(async move {
                network.carry(&link, direction, &from, &to).await;
            });
        }
        Ok(Stream::Memory(ours))
    }

    /// The addresses of a client and its server.
    fn addresses(&self, client: usize) -> [SocketAddr; 2] {
        let at = |address: Ipv4Addr, port| SocketAddr::new(address.into(), port);
        let is_cluster = self.inner.lock().places.is_some();
        let there = if is_cluster { unit_address(client / self.clients) } else { SERVER_ADDRESS };
        [at(client_address(client % self.clients), 50_000), at(there, 445)]
    }

    /// Gives the server its end of a connection. None if it does not listen.
    fn accept(
        &self,
        client: usize,
        theirs: Detached,
        latency: u64,
        wire: Option<Wire>,
    ) -> Option<Arc<Link>> {
        let mut inner = self.inner.lock();
        let server = inner.home(client / self.clients)?;
        let has_device = inner.devices[server];
        let door = inner.doors[server].as_ref();
        let door = door.filter(|door| wire.is_none() || (door.has_rdma && has_device))?;
        door.accepted.send(theirs).ok()?;
        Some(inner.begin(Link { wire, ..Link::new(client, server, latency) }))
    }

    /// Looks at bytes that were sent. Reports a nonce that a session has used before in this direction,
    /// and an answer that is late.
    fn look_at(&self, link: &Link, direction: usize, frames: &mut Frames, bytes: &[u8]) {
        if direction == 1 {
            self.was_answered(link);
        }
        frames.take(bytes, |session, nonce| {
            let is_new = self.inner.lock().nonces.is_new(link.client, session, direction, nonce);
            if !is_new {
                violation!(self.trace, "session {session:#x} has sealed twice with one nonce");
            }
        });
    }
}

/// Waits until `at`, or until the connection has ended.
async fn wait_until(link: &Link, direction: usize, at: Instant) {
    while Instant::now() < at {
        tokio::select! {
            biased;
            () = link.changed[direction].notified() => {
                if link.state() == State::Ended { break; }
            }
            () = sleep_until(at) => {}
        }
    }
}

/// Waits while the connection is stalled; returns false at its end.
async fn pass(link: &Link, direction: usize) -> bool {
    loop {
        match link.state() {
            State::Ended => return false,
            State::Stalled => link.changed[direction].notified().await,
            State::Flowing
            | State::Vanishing(_)
            | State::Late
            | State::Moved
            | State::Forgotten => return true,
        }
    }
}

/// A client's access to the network.
#[derive(Debug)]
pub struct Road {
    /// The network of the listener or dialer.
    pub network: Arc<Network>,
    /// The number of the client.
    pub client: usize,
    /// The transport of its connections.
    pub transport: Transport,
    /// True if the client's provider blocks the port of TCP now and then.
    pub is_blocked: bool,
}

impl transport::Network for Road {
    fn connect<'a>(&'a self, host: &'a str, _port: u16) -> Connecting<'a> {
        let number = match host.rsplit_once(SERVER) {
            Some((_, number)) => number.parse().ok(),
            None => host.parse().ok().and_then(rpc::unit_at),
        };
        Box::pin(async move {
            let number = number.ok_or(io::ErrorKind::HostUnreachable)?;
            let line = self.network.line(self.client, number);
            if self.is_blocked && self.transport == Transport::Memory && self.network.blocks_tcp() {
                return std::future::pending().await;
            }
            let stream = self.network.connect(line, self.transport).await?;
            if let Some(endpoint) = stream.rdma() {
                endpoint.established().await?;
            }
            Ok(stream)
        })
    }

    fn transport(&self) -> Transport {
        self.transport
    }
}

#[cfg(test)]
mod tests;
