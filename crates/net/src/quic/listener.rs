//! Accepting connections.

use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::Mutex;
use quinn_proto::crypto::HandshakeTokenKey;
use quinn_proto::{Incoming, ServerConfig, TransportConfig};
use rustix::net::{AddressFamily, SocketFlags, SocketType, sockopt};
use tokio::time::timeout;

use super::allowance::Allowance;
use super::certificate::BadCertificate;
use super::connection::{Connection, Open, Opening};
use super::endpoint::Endpoint;
use super::failure::Failure;
use super::settings;
use super::simulated::Port;
use super::socket::Udp;
use super::tls::{Decided, Handshakes, ServerTls};
use super::windows::Windows;
use crate::limits::{
    QUIC_FIRST_PACKETS_BYTES, QUIC_FIRST_PACKETS_BYTES_MAX, QUIC_HANDSHAKE_TIMEOUT,
    QUIC_HANDSHAKES_MAX, QUIC_HANDSHAKES_UNPROVEN_MAX, QUIC_SOCKET_BYTES,
};

/// A UDP socket that accepts connections of QUIC. Its runtime is the one in which it was made.
pub struct Listener {
    endpoint: Endpoint,
    local: SocketAddr,
    renewal: Renewal,
    under_way: Arc<AtomicUsize>,
}

/// Replaces the certificates of a listener. Connections that exist keep theirs.
#[derive(Clone)]
pub struct Renewal(Arc<Certified>);

struct Certified {
    /// None once the listener has gone: then nothing is accepted any more.
    endpoint: Mutex<Option<Endpoint>>,
    handshakes: Mutex<Arc<Handshakes>>,
    /// The key of the tokens with which clients prove their addresses.
    tokens: Arc<dyn HandshakeTokenKey>,
    /// The parameters of connections with other machines, and with this one.
    transport: [Arc<TransportConfig>; 2],
    /// True for a fault that the simulator plants: connections go on with clients whose address changes.
    follows: bool,
}

/// The error of certificates that cannot be used.
fn invalid(error: BadCertificate) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, error)
}

impl Renewal {
    /// Uses other certificates from the next handshake on.
    ///
    /// # Errors
    /// They cannot be used. Those in force stay.
    pub fn renew(&self, tls: ServerTls) -> Result<(), BadCertificate> {
        let handshakes = Arc::new(Handshakes::new(tls)?);
        let config = self.0.config(&handshakes, &Decided::default(), false)?;
        *self.0.handshakes.lock() = handshakes;
        // As at the start: the endpoint reads first packets and makes tokens with a configuration of its own.
        if let Some(endpoint) = &*self.0.endpoint.lock() {
            endpoint.set_server_config(Some(config));
        }
        Ok(())
    }
}

impl Certified {
    fn new(tls: ServerTls, follows: bool) -> io::Result<Self> {
        let handshakes = Mutex::new(Arc::new(Handshakes::new(tls).map_err(invalid)?));
        let mut secret = [0; 64];
        let filled = aws_lc_rs::rand::fill(&mut secret);
        filled.map_err(|_| io::Error::other("the system gives no random bytes"))?;
        let salt = aws_lc_rs::hkdf::Salt::new(aws_lc_rs::hkdf::HKDF_SHA256, &[]);
        let tokens: Arc<dyn HandshakeTokenKey> = Arc::new(salt.extract(&secret));
        let (endpoint, transport) = (Mutex::default(), [false, true].map(settings::of_server));
        Ok(Self { endpoint, handshakes, tokens, transport, follows })
    }

    /// Returns the configuration of one handshake.
    fn begin(&self, decided: &Decided, is_local: bool) -> Result<ServerConfig, BadCertificate> {
        let handshakes = Arc::clone(&self.handshakes.lock());
        self.config(&handshakes, decided, is_local)
    }

    fn config(
        &self,
        handshakes: &Handshakes,
        decided: &Decided,
        is_local: bool,
    ) -> Result<ServerConfig, BadCertificate> {
        let [far, local] = &self.transport;
        let transport = if is_local { local } else { far };
        let crypto = handshakes.begin(decided)?;
        let mut config = ServerConfig::new(crypto, Arc::clone(&self.tokens));
        config
            .transport_config(Arc::clone(transport))
            // A client that comes from another address connects anew: each address is admitted by
            // itself.
            .migration(self.follows)
            .max_incoming(QUIC_HANDSHAKES_MAX)
            .incoming_buffer_size(QUIC_FIRST_PACKETS_BYTES)
            .incoming_buffer_size_total(QUIC_FIRST_PACKETS_BYTES_MAX);
        Ok(config)
    }
}

impl Listener {
    /// Makes the socket for `address`. An IPv6 address means only IPv6, as for TCP. To be called
    /// before a process is confined.
    ///
    /// # Errors
    /// The system's error: the address is in use, not on this machine, or forbidden.
    pub fn socket(address: SocketAddr) -> io::Result<UdpSocket> {
        let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = rustix::net::socket_with(family, SocketType::DGRAM, flags, None)?;
        if address.is_ipv6() {
            sockopt::set_ipv6_v6only(&socket, true)?;
        }
        // The kernel allows fewer, perhaps.
        let _ = sockopt::set_socket_recv_buffer_size(&socket, QUIC_SOCKET_BYTES);
        let _ = sockopt::set_socket_send_buffer_size(&socket, QUIC_SOCKET_BYTES);
        rustix::net::bind(&socket, &address)?;
        Ok(UdpSocket::from(socket))
    }

    /// Listens on a socket.
    ///
    /// # Errors
    /// The certificates cannot be used, or the runtime cannot watch the socket.
    pub fn new(socket: UdpSocket, tls: ServerTls) -> io::Result<Self> {
        let local = socket.local_addr()?;
        let certified = Certified::new(tls, false)?;
        let socket = Arc::new(Udp::new(socket)?);
        let make = |config| Endpoint::new(settings::of_endpoint(), Some(config), socket);
        Self::over(local, certified, make)
    }

    /// Listens on a socket in memory, for a simulator.
    ///
    /// # Errors
    /// The certificates cannot be used.
    pub fn simulated(port: &Port, tls: ServerTls) -> io::Result<Self> {
        let certified = Certified::new(tls, port.follows_clients())?;
        Self::over(port.address(), certified, |config| port.endpoint(Some(config)))
    }

    fn over(
        local: SocketAddr,
        certified: Certified,
        make: impl FnOnce(ServerConfig) -> Endpoint,
    ) -> io::Result<Self> {
        let config = certified.begin(&Decided::default(), false).map_err(invalid)?;
        let endpoint = make(config);
        *certified.endpoint.lock() = Some(endpoint.clone());
        let renewal = Renewal(Arc::new(certified));
        Ok(Self { endpoint, local, renewal, under_way: Arc::default() })
    }

    /// Counts the handshakes of both listeners together from now on, before either accepts.
    pub fn count_with(&mut self, other: &Self) {
        self.under_way = Arc::clone(&other.under_way);
    }

    /// Returns the address on which it listens.
    #[must_use]
    pub const fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// Returns what replaces its certificates.
    #[must_use]
    pub fn renewal(&self) -> Renewal {
        self.renewal.clone()
    }

    /// Accepts the next connection, whose handshake [`Detached::attach`] begins. Dropping the future
    /// loses none. While many handshakes are under way, a client has to prove its address first:
    /// nothing is kept of it until then. Clients that have proved theirs all pass: their owner is to
    /// bound them.
    pub async fn accept(&self) -> Detached {
        loop {
            let incoming = self.endpoint.accept().await;
            let turn = Turn::taken(&self.under_way);
            if turn.number >= QUIC_HANDSHAKES_UNPROVEN_MAX && !incoming.remote_address_validated() {
                // A client without a proof may always be asked for one.
                self.endpoint.retry(incoming);
                continue;
            }
            let local = match incoming.local_ip() {
                Some(address) => SocketAddr::new(address.to_canonical(), self.local.port()),
                None => self.local,
            };
            let peer = incoming.remote_address();
            let (certified, end) = (Arc::clone(&self.renewal.0), self.endpoint.clone());
            let first = First { incoming, turn, certified, end };
            return Detached { first: Some(first), peer, local, allowance: None };
        }
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        // The socket lives as long as connections do, but takes no more of them.
        self.renewal.0.endpoint.lock().take();
        self.endpoint.set_server_config(None);
    }
}

/// A handshake that is under way.
struct Turn {
    all: Arc<AtomicUsize>,
    /// The number of handshakes that were under way before it.
    number: usize,
}

impl Turn {
    fn taken(all: &Arc<AtomicUsize>) -> Self {
        let number = all.fetch_add(1, Ordering::Relaxed);
        Self { all: Arc::clone(all), number }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.all.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A connection whose handshake has not begun. Dropping it answers nothing.
pub struct Detached {
    /// None once the handshake has begun.
    first: Option<First>,
    peer: SocketAddr,
    local: SocketAddr,
    allowance: Option<Arc<dyn Allowance>>,
}

/// The first packet of a client.
struct First {
    incoming: Incoming,
    turn: Turn,
    certified: Arc<Certified>,
    end: Endpoint,
}

impl Detached {
    /// Bytes that a connection may hold from the beginning.
    pub const BYTES: usize = Windows::NEW.bytes();

    /// Counts the memory of the connection in `allowance`, which has [`Self::BYTES`] for it.
    pub fn count_in(&mut self, allowance: Arc<dyn Allowance>) {
        self.allowance = Some(allowance);
    }

    /// Returns the peer's address. The peer may not have proved that it is its own.
    #[must_use]
    pub const fn peer_addr(&self) -> SocketAddr {
        self.peer
    }

    /// True if the peer has proved that the address is its own.
    #[must_use]
    pub fn is_proven(&self) -> bool {
        self.first.as_ref().is_some_and(|first| first.incoming.remote_address_validated())
    }

    /// Asks the peer to prove its address: it comes again, proven. Nothing is kept of it until then. A
    /// peer that has proved it is dropped.
    pub fn ask_for_proof(mut self) {
        if let Some(First { incoming, end, .. }) = self.first.take() {
            end.retry(incoming);
        }
    }

    /// Begins the handshake, in the present runtime.
    ///
    /// # Errors
    /// The first packet was wrong, or the connection has begun already.
    pub fn attach(mut self) -> io::Result<Connection> {
        let (peer, local) = (self.peer, self.local);
        let allowance = self.allowance.take();
        let Some(First { incoming, turn, certified, end }) = self.first.take() else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        let decided = Decided::default();
        let config = certified.begin(&decided, settings::is_local(peer));
        let config = match config {
            Ok(config) => config,
            Err(error) => {
                end.ignore(incoming);
                return Err(invalid(error));
            }
        };
        let link = end.begin(incoming, config);
        let link = link.map_err(|error| Failure::from(error).to_io())?;
        link.keep(allowance.clone());
        let opened = Arc::clone(&link);
        let opening: Opening = Box::pin(async move {
            let handshake = async {
                opened.connected().await?;
                opened.stream().await
            };
            let opened = timeout(QUIC_HANDSHAKE_TIMEOUT, handshake).await;
            drop(turn);
            let decision = decided.lock().take();
            match (opened, decision) {
                (Ok(Ok(())), decision) => Ok(Open::new(decision, Windows::NEW)),
                (Ok(Err(_)), Some(decision)) if decision.verdict != super::Verdict::Allowed => {
                    Err(Failure::Refused(decision))
                }
                (Ok(Err(failure)), _) => Err(failure),
                (Err(_elapsed), _) => Err(Failure::TooSlow),
            }
        });
        Ok(Connection::new(opening, peer, local, link).counted_in(allowance))
    }
}

impl Drop for Detached {
    fn drop(&mut self) {
        if let Some(First { incoming, end, .. }) = self.first.take() {
            end.ignore(incoming);
        }
    }
}
