//! Connections for remote procedure calls: over TCP, of clients of a cluster to its units and nodes.

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, Ordering};
use std::time::Duration;

use frevo_net::memory::{self, MemoryStream};
use frevo_net::transport::{self, Detached, MemoryListener, Stream};
use tokio::sync::Notify;
use tokio::time::sleep;

use super::{Network, PIPE};
use crate::event;

/// The port at which the interfaces of a node listen.
pub const RPC_PORT: u16 = 49_152;

/// Time from one look at a node that is stopped to the next one.
const LOOK: Duration = Duration::from_millis(20);

/// The time after which the ends of a connection without an answer notice it.
const NOTICED: Duration = Duration::from_secs(60);

/// Returns the address of a unit of a cluster, which moves with it.
pub fn unit_address(unit: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 1, 0, u8::try_from(unit + 1).unwrap_or(255))
}

/// Returns the address of a node, which stays with it.
pub fn node_address(node: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 2, 0, u8::try_from(node + 1).unwrap_or(255))
}

/// The unit or the node that has an address.
enum At {
    Unit(usize),
    Node(usize),
}

impl At {
    fn of(address: IpAddr) -> Option<Self> {
        let IpAddr::V4(address) = address else { return None };
        let [10, kind, 0, number] = address.octets() else { return None };
        let number = usize::from(number).checked_sub(1)?;
        match kind {
            1 => Some(Self::Unit(number)),
            2 => Some(Self::Node(number)),
            _ => None,
        }
    }
}

/// Returns the unit that has an address.
pub(super) fn unit_at(address: IpAddr) -> Option<usize> {
    match At::of(address)? {
        At::Unit(unit) => Some(unit),
        At::Node(_) => None,
    }
}

/// A connection for remote procedure calls.
#[derive(Debug)]
pub(super) struct RpcLink {
    id: u64,
    client: usize,
    /// The unit whose address the client has used. None for the address of the node.
    pub(super) unit: Option<usize>,
    pub(super) node: usize,
    latency: u64,
    /// Count of directions that are over.
    closed: AtomicU8,
    /// True if bytes are lost from now on.
    pub(super) is_deaf: AtomicBool,
    is_ended: AtomicBool,
    /// Told of the end, for each direction.
    ended: [Notify; 2],
}

impl RpcLink {
    fn end(&self) {
        self.is_ended.store(true, Ordering::Relaxed);
        self.ended.iter().for_each(Notify::notify_one);
    }

    fn is_ended(&self) -> bool {
        self.is_ended.load(Ordering::Relaxed)
    }
}

impl Network {
    /// Begins to listen for remote procedure calls at a node.
    pub fn listen_for_rpc(&self, node: usize) -> MemoryListener {
        let (listener, door) = MemoryListener::new();
        self.inner.lock().rpc_doors.insert(node, door);
        listener
    }

    /// Makes a connection for remote procedure calls.
    ///
    /// # Errors
    /// When nobody listens at the address.
    pub async fn connect_for_rpc(
        self: &Arc<Self>,
        client: usize,
        address: SocketAddr,
    ) -> io::Result<Stream> {
        let latency = {
            let mut inner = self.inner.lock();
            let slowness = inner.slowness;
            50 + inner.dice.below(slowness)
        };
        sleep(self.delay(latency)).await;
        let (unit, node) = match At::of(address.ip()) {
            Some(At::Unit(unit)) => (Some(unit), self.holders(unit).last().copied()),
            Some(At::Node(node)) => (None, Some(node)),
            None => (None, None),
        };
        let node = node.ok_or(io::ErrorKind::HostUnreachable)?;
        if self.is_cut_from_clients(node) {
            return std::future::pending().await;
        }
        let own = SocketAddr::new(super::client_address(client).into(), 50_001);
        let (ours, near) = memory::pair(PIPE, [own, address]);
        let (far, theirs) = memory::pair(PIPE, [own, address]);
        let link = self.begin_rpc(
            RpcLink {
                id: 0,
                client,
                unit,
                node,
                latency,
                closed: AtomicU8::new(0),
                is_deaf: AtomicBool::new(false),
                is_ended: AtomicBool::new(false),
                ended: Default::default(),
            },
            theirs,
        )?;
        event!(self.trace, "net c{client} calls {address}: RPC link {}", link.id);
        let ends = [Arc::new(near), Arc::new(far)];
        for direction in super::DIRECTIONS {
            let (from, to) = (Arc::clone(&ends[direction]), Arc::clone(&ends[1 - direction]));
            let (network, link) = (Arc::clone(self), Arc::clone(&link));
            tokio::spawn(async move {
                network.carry_rpc(&link, direction, &from, &to).await;
                from.reset();
                to.reset();
            });
        }
        Ok(Stream::Memory(ours))
    }

    fn begin_rpc(&self, link: RpcLink, theirs: MemoryStream) -> io::Result<Arc<RpcLink>> {
        let mut inner = self.inner.lock();
        let door = inner.rpc_doors.get(&link.node).ok_or(io::ErrorKind::ConnectionRefused)?;
        let sent = door.send(Detached::Memory(theirs));
        sent.map_err(|_| io::ErrorKind::ConnectionRefused)?;
        let link = Arc::new(RpcLink { id: inner.next, ..link });
        inner.next += 1;
        inner.rpc_links.push(Arc::clone(&link));
        Ok(link)
    }

    /// Carries one direction until its end.
    async fn carry_rpc(
        self: &Arc<Self>,
        link: &Arc<RpcLink>,
        direction: usize,
        from: &MemoryStream,
        to: &MemoryStream,
    ) {
        let mut buffer = vec![0; PIPE];
        while !link.is_ended() {
            tokio::select! {
                biased;
                () = link.ended[direction].notified() => continue,
                _ = from.readable() => {}
            }
            let count = match from.try_read_vectored(&mut [IoSliceMut::new(&mut buffer)]) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => continue,
                other => other.unwrap_or(0),
            };
            sleep(self.delay(link.latency)).await;
            while self.is_stopped(link.node) && !link.is_ended() {
                sleep(LOOK).await;
            }
            if self.is_lost(link) {
                // Nobody hears the end of a connection whose bytes are lost, either.
                while count == 0 && !link.is_ended() {
                    link.ended[direction].notified().await;
                }
                continue;
            }
            if count == 0 || !put(link, direction, to, &buffer[..count]).await {
                break;
            }
        }
        // An association needs both directions.
        if link.closed.fetch_add(1, Ordering::Relaxed) == 0 {
            sleep(self.delay(link.latency)).await;
            link.end();
        } else {
            self.inner.lock().rpc_links.retain(|other| other.id != link.id);
        }
    }

    /// Notes that bytes of a connection are lost, if its node is cut off. Returns true if they are.
    fn is_lost(self: &Arc<Self>, link: &Arc<RpcLink>) -> bool {
        if self.is_cut_from_clients(link.node) && !link.is_deaf.swap(true, Ordering::Relaxed) {
            event!(self.trace, "net RPC link {} of c{} is deaf", link.id, link.client);
            let link = Arc::clone(link);
            tokio::spawn(async move {
                sleep(NOTICED).await;
                link.end();
            });
        }
        link.is_deaf.load(Ordering::Relaxed)
    }

    /// Ends connections for remote procedure calls.
    pub(super) fn end_rpc(&self, is_over: impl Fn(&RpcLink) -> bool) {
        let links = self.inner.lock().rpc_links.clone();
        links.iter().filter(|link| is_over(link)).for_each(|link| link.end());
    }

    /// Returns the connections of a client to a node that no fault has met.
    pub fn sound_rpc(&self, client: usize, node: usize) -> Vec<u64> {
        let inner = self.inner.lock();
        let is_sound = |link: &&Arc<RpcLink>| {
            link.client == client
                && link.node == node
                && !link.is_ended()
                && !link.is_deaf.load(Ordering::Relaxed)
                && link.closed.load(Ordering::Relaxed) == 0
        };
        inner.rpc_links.iter().filter(is_sound).map(|link| link.id).collect()
    }
}

async fn put(link: &RpcLink, direction: usize, to: &MemoryStream, mut bytes: &[u8]) -> bool {
    while !bytes.is_empty() {
        match to.try_write_vectored(&[IoSlice::new(bytes)]) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                tokio::select! {
                    biased;
                    () = link.ended[direction].notified() => return false,
                    _ = to.writable() => {}
                }
            }
            Err(_) => return false,
        }
    }
    true
}

/// The listener of a node.
pub(super) type RpcDoor = transport::Door;
