//! The network between the clients and the server: bytes move from one pair of memory streams to
//! another, with a delay, or are lost.

use std::fmt;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frevo_client::ServerName;
use frevo_client::internal::Dial;
use frevo_client::internal::Dialing;
use frevo_net::memory::{self, MemoryStream};
use frevo_net::transport::Stream;
use parking_lot::Mutex;
use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, sleep_until};

use crate::dice::Dice;
use crate::event;
use crate::trace::Trace;

/// Size of a socket's buffer, bytes.
const PIPE: usize = 256 << 10;
/// Largest latency.
pub const LATENCY_MAX: Duration = Duration::from_millis(400);

/// The state of one connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// Bytes are delivered.
    Flowing,
    /// Bytes are held back.
    Stalled,
    /// Half-open: bytes in the given directions are lost from now on.
    Vanishing([bool; 2]),
    /// Both ends were reset, or are closed.
    Ended,
}

/// The directions: to the server, and back.
const DIRECTIONS: [usize; 2] = [0, 1];

/// One simulated connection.
struct Link {
    id: u64,
    client: usize,
    state: Mutex<State>,
    /// Notified of changes, for each direction.
    changed: [Notify; 2],
    /// Base of the latency, microseconds.
    latency: u64,
    /// Number of closed directions.
    closed: AtomicU64,
}

impl Link {
    fn state(&self) -> State {
        *self.state.lock()
    }
}

/// The simulated network.
pub struct Network {
    trace: Arc<Trace>,
    inner: Mutex<Inner>,
    /// Number of lost or disturbed connections of each client.
    losses: Vec<AtomicU64>,
}

struct Inner {
    dice: Dice,
    /// The server's listener; None while the server is down.
    door: Option<mpsc::UnboundedSender<MemoryStream>>,
    /// True for each client whose dials hang.
    is_cut_off: Vec<bool>,
    links: Vec<Arc<Link>>,
    next: u64,
    last_loss: Vec<Instant>,
    /// Largest base latency of this run, microseconds.
    slowness: u64,
}

impl fmt::Debug for Network {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Network").field("losses", &self.losses).finish_non_exhaustive()
    }
}

impl Network {
    /// Returns a network of `clients` clients without a listener.
    pub fn new(clients: usize, mut dice: Dice, trace: Arc<Trace>) -> Arc<Self> {
        let slowness = *dice.pick(&[200, 2_000, 20_000, 180_000]);
        let inner = Inner {
            dice,
            door: None,
            is_cut_off: vec![false; clients],
            links: Vec::new(),
            next: 1,
            last_loss: vec![Instant::now(); clients],
            slowness,
        };
        let losses = (0..clients).map(|_| AtomicU64::new(0)).collect();
        Arc::new(Self { trace, inner: Mutex::new(inner), losses })
    }

    /// Begins to listen for a server.
    pub fn listen(&self) -> mpsc::UnboundedReceiver<MemoryStream> {
        let (door, heard) = mpsc::unbounded_channel();
        self.inner.lock().door = Some(door);
        heard
    }

    /// Drops every connection when the server ends.
    pub fn server_is_down(&self) {
        self.inner.lock().door = None;
        for link in self.links(|_| true) {
            self.change(&link, State::Ended);
        }
    }

    /// Returns how often connections of `client` were lost or disturbed.
    pub fn losses(&self, client: usize) -> u64 {
        self.losses[client].load(Ordering::Relaxed)
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

    fn links(&self, which: impl Fn(&Link) -> bool) -> Vec<Arc<Link>> {
        self.inner.lock().links.iter().filter(|link| which(link)).cloned().collect()
    }

    fn disturbed(&self, client: usize) {
        self.losses[client].fetch_add(1, Ordering::Relaxed);
        self.inner.lock().last_loss[client] = Instant::now();
    }

    fn change(&self, link: &Link, to: State) {
        {
            let mut state = link.state.lock();
            let is_over = *state == State::Ended
                || (matches!(*state, State::Vanishing(_)) && to != State::Ended);
            if is_over || *state == to {
                return;
            }
            *state = to;
        }
        event!(self.trace, "net link {} of c{}: {to:?}", link.id, link.client);
        self.disturbed(link.client);
        link.changed.iter().for_each(Notify::notify_one);
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
        self.change(&link, to);
        let after = dice.millis(200, 30_000);
        let network = Arc::clone(self);
        match to {
            State::Stalled => {
                tokio::spawn(async move {
                    sleep(after).await;
                    network.change(&link, State::Flowing);
                });
            }
            State::Vanishing(_) => {
                tokio::spawn(async move {
                    sleep(after * 3).await;
                    network.change(&link, State::Ended);
                });
            }
            State::Flowing | State::Ended => {}
        }
    }

    /// Cuts `client` off, with its connections, or reconnects it.
    pub fn cut_off(&self, client: usize, is_cut_off: bool) {
        event!(self.trace, "net c{client} cut off: {is_cut_off}");
        self.inner.lock().is_cut_off[client] = is_cut_off;
        self.disturbed(client);
        if is_cut_off {
            for link in self.links(|link| link.client == client) {
                self.change(&link, State::Ended);
            }
        }
    }

    /// Ends all network faults.
    pub fn heal(&self) {
        self.inner.lock().is_cut_off.fill(false);
        for link in self.links(|link| link.state() == State::Stalled) {
            self.change(&link, State::Flowing);
        }
        for link in self.links(|link| matches!(link.state(), State::Vanishing(_))) {
            self.change(&link, State::Ended);
        }
    }

    /// Returns the number of open connections.
    pub fn count(&self) -> usize {
        self.inner.lock().links.len()
    }

    fn delay(&self, base: u64) -> Duration {
        self.inner.lock().dice.micros(base, base * 2)
    }

    async fn connect(self: &Arc<Self>, client: usize) -> io::Result<Stream> {
        let base = {
            let mut inner = self.inner.lock();
            let slowness = inner.slowness;
            50 + inner.dice.below(slowness)
        };
        sleep(self.delay(base)).await;
        if self.inner.lock().is_cut_off[client] {
            event!(self.trace, "net c{client} dials into the void");
            self.disturbed(client);
            return std::future::pending().await;
        }
        let at = |a, port| SocketAddr::new(Ipv4Addr::new(10, 0, 0, a).into(), port);
        let here = u8::try_from(client + 2).unwrap_or(255);
        let (ours, near) = memory::pair(PIPE, [at(here, 50_000), at(1, 445)]);
        let (far, theirs) = memory::pair(PIPE, [at(here, 50_000), at(1, 445)]);
        let link = {
            let mut inner = self.inner.lock();
            let accepted = inner.door.as_ref().is_some_and(|door| door.send(theirs).is_ok());
            if !accepted {
                drop(inner);
                event!(self.trace, "net c{client} is refused");
                self.disturbed(client);
                return Err(io::ErrorKind::ConnectionRefused.into());
            }
            let id = inner.next;
            inner.next += 1;
            let link = Arc::new(Link {
                id,
                client,
                state: Mutex::new(State::Flowing),
                changed: [Notify::new(), Notify::new()],
                latency: base,
                closed: AtomicU64::new(0),
            });
            inner.links.push(Arc::clone(&link));
            link
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

    /// Carries one direction until the end of the connection.
    async fn carry(&self, link: &Link, direction: usize, from: &MemoryStream, to: &MemoryStream) {
        let mut buffer = vec![0; PIPE];
        let mut free_at = Instant::now();
        loop {
            if !pass(link, direction).await {
                break;
            }
            tokio::select! {
                biased;
                () = link.changed[direction].notified() => continue,
                _ = from.readable() => {}
            }
            let most = {
                let mut inner = self.inner.lock();
                if inner.dice.percent(10) { 1 + inner.dice.below(200) } else { PIPE as u64 }
            };
            let room = usize::try_from(most).unwrap_or(PIPE);
            let count = match from.try_read_vectored(&mut [IoSliceMut::new(&mut buffer[..room])]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                other => other.unwrap_or(0),
            };
            if matches!(link.state(), State::Vanishing(ways) if ways[direction]) {
                if count == 0 {
                    // The end is not seen either.
                    while link.state() != State::Ended {
                        link.changed[direction].notified().await;
                    }
                }
                continue;
            }
            // Parts arrive in order, each after the latency.
            free_at = (Instant::now() + self.delay(link.latency)).max(free_at);
            wait_until(link, direction, free_at).await;
            if !pass(link, direction).await {
                break;
            }
            if matches!(link.state(), State::Vanishing(ways) if ways[direction]) {
                continue;
            }
            if is_reset(from) {
                // The sender has closed the connection.
                break;
            }
            if count == 0 {
                event!(self.trace, "net link {} way {direction}: closed", link.id);
                self.disturbed(link.client);
                to.shutdown_write();
                if link.closed.fetch_add(1, Ordering::Relaxed) == 1 {
                    break;
                }
                // The other way goes on until its end.
                while link.state() != State::Ended {
                    link.changed[direction].notified().await;
                }
                break;
            }
            event!(self.trace, "net link {} way {direction}: {count} bytes", link.id);
            if !put(link, direction, to, &buffer[..count]).await {
                self.change(link, State::Ended);
                break;
            }
        }
        self.change(link, State::Ended);
        from.reset();
        to.reset();
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
            State::Flowing | State::Vanishing(_) => return true,
        }
    }
}

/// Returns true if an end was reset.
fn is_reset(end: &MemoryStream) -> bool {
    end.try_read_vectored(&mut [])
        .is_err_and(|error| error.kind() == io::ErrorKind::ConnectionReset)
}

async fn put(link: &Link, direction: usize, to: &MemoryStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match to.try_write_vectored(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::select! {
                    biased;
                    () = link.changed[direction].notified() => {
                        if link.state() == State::Ended { return false; }
                    }
                    _ = to.writable() => {}
                }
            }
            Err(_) => return false,
        }
    }
    true
}

/// A client's access to the network.
#[derive(Debug)]
pub struct Road {
    /// The network of the listener or dialer.
    pub network: Arc<Network>,
    /// The number of the client.
    pub client: usize,
}

impl Dial for Road {
    fn dial<'a>(&'a self, _: &'a ServerName) -> Dialing<'a> {
        Box::pin(self.network.connect(self.client))
    }
}
