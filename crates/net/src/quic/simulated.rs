//! QUIC for a simulator: UDP sockets in memory, whose datagrams the simulator carries.
//!
//! The random numbers of an end come from a seed, and its time is that of the runtime. The keys of TLS
//! still come from the system. They change neither how many datagrams there are nor their lengths, as long
//! as the key of the server is one of Ed25519: signatures of ECDSA have several lengths.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::BytesMut;
use parking_lot::Mutex;
use quinn_proto::crypto::{CryptoError, HmacKey};
use quinn_proto::{ConnectionId, ConnectionIdGenerator, EndpointConfig, ServerConfig, Transmit};
use quinn_udp::RecvMeta;
use tokio::sync::Notify;

use super::endpoint::Endpoint;
use super::settings;
use super::socket::{self, Received, Writable};

/// Bytes of the id of a connection.
const ID_BYTES: usize = 8;

/// The bit of the first byte that packets with a short header do not have: RFC 9000 17.3.
const LONG_HEADER: u8 = 0x80;

/// The first byte of a stateless reset: RFC 9000 10.3.
const SHORT_HEADER: u8 = 0x40;

/// Bytes of the token at the end of a stateless reset: RFC 9000 10.3.
const TOKEN_BYTES: usize = 16;

/// The beginning of all tokens of ends in the simulator, by which it knows them.
const TOKEN_MARK: [u8; 8] = *b"reset by";

/// A datagram on its way.
#[derive(Debug, Clone)]
pub struct Datagram {
    /// The address of the sender, as the receiver is to see it.
    pub from: SocketAddr,
    /// The address of the receiver, as the sender sees it.
    pub to: SocketAddr,
    /// The content.
    pub bytes: Vec<u8>,
}

/// The id that the receiver has given a connection.
pub type Id = [u8; ID_BYTES];

impl Datagram {
    /// Returns the id that the receiver has given the connection. None before the handshake is over.
    #[must_use]
    pub fn id(&self) -> Option<Id> {
        let (first, rest) = self.bytes.split_first()?;
        rest.first_chunk().copied().filter(|_| first & LONG_HEADER == 0)
    }

    /// True for a stateless reset.
    #[must_use]
    pub fn is_reset(&self) -> bool {
        let token = self.bytes.last_chunk::<TOKEN_BYTES>();
        token.is_some_and(|token| token.starts_with(&TOKEN_MARK))
    }
}

/// The network's side of a socket.
#[derive(Debug, Clone)]
pub struct Port {
    shared: Arc<Shared>,
    follows: bool,
}

#[derive(Debug)]
struct Shared {
    address: SocketAddr,
    seed: u64,
    held: Mutex<Queued>,
    /// Notified of datagrams that were sent, and of the end.
    sent: Notify,
}

#[derive(Debug, Default)]
struct Queued {
    sent: VecDeque<Datagram>,
    received: VecDeque<Datagram>,
    reader: Option<Waker>,
    /// True once nothing is sent any more.
    is_closed: bool,
}

impl Port {
    /// Makes a socket with an address, for an end whose random numbers come from `seed`.
    #[must_use]
    pub fn new(address: SocketAddr, seed: u64) -> Self {
        let (held, sent) = (Mutex::default(), Notify::new());
        let shared = Arc::new(Shared { address, seed, held, sent });
        Self { shared, follows: false }
    }

    /// Has a server go on with clients whose address changes: a fault, which the simulator plants.
    #[must_use]
    pub fn follow_clients(self, follows: bool) -> Self {
        Self { follows, ..self }
    }

    /// True for a server that goes on with clients whose address changes.
    pub(super) const fn follows_clients(&self) -> bool {
        self.follows
    }

    /// Returns the address.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.shared.address
    }

    /// Waits until there is a datagram to take. False if none comes any more. One task may wait.
    pub async fn sent(&self) -> bool {
        loop {
            {
                let held = self.shared.held.lock();
                if !held.sent.is_empty() || held.is_closed {
                    return !held.sent.is_empty();
                }
            }
            self.shared.sent.notified().await;
        }
    }

    /// Takes the next datagram that was sent.
    #[must_use]
    pub fn take(&self) -> Option<Datagram> {
        self.shared.held.lock().sent.pop_front()
    }

    /// Delivers a datagram.
    pub fn deliver(&self, datagram: Datagram) {
        let reader = {
            let mut held = self.shared.held.lock();
            if held.is_closed {
                return;
            }
            held.received.push_back(datagram);
            held.reader.take()
        };
        if let Some(reader) = reader {
            reader.wake();
        }
    }

    /// Takes the socket off the network: nothing leaves it and nothing arrives any more.
    pub fn unplug(&self) {
        let mut held = self.shared.held.lock();
        (held.is_closed, held.sent) = (true, VecDeque::new());
        drop(held);
        self.shared.sent.notify_one();
    }

    /// Returns the datagram by which this end tells a peer that it has forgotten the connection to which it
    /// gave an id: RFC 9000 10.3.
    #[must_use]
    pub fn reset(&self, id: Id, to: SocketAddr) -> Datagram {
        let mut token = [0; TOKEN_BYTES];
        ResetKey(self.shared.seed).sign(&id, &mut token);
        let mut bytes = vec![0x55; 4 * TOKEN_BYTES];
        if let Some(first) = bytes.first_mut() {
            *first = SHORT_HEADER;
        }
        bytes.extend_from_slice(&token);
        Datagram { from: self.shared.address, to, bytes }
    }

    /// Makes the end of the socket.
    pub(super) fn endpoint(&self, server: Option<ServerConfig>) -> Endpoint {
        let socket = Arc::new(Socket { shared: Arc::clone(&self.shared) });
        Endpoint::new(self.config(), server, socket)
    }

    /// Returns the id by which a client calls a server first.
    pub(super) fn first_id(&self) -> ConnectionId {
        Ids { seed: !self.shared.seed, next: 0 }.generate_cid()
    }

    fn config(&self) -> EndpointConfig {
        let seed = self.shared.seed;
        let mut config = settings::of_endpoint();
        let mut random = [0; 32];
        for (at, chunk) in (1..).zip(random.chunks_exact_mut(8)) {
            chunk.copy_from_slice(&mixed(seed ^ at).to_le_bytes());
        }
        config
            .rng_seed(Some(random))
            .reset_key(Arc::new(ResetKey(seed)))
            .cid_generator(move || Box::new(Ids { seed, next: 0 }));
        config
    }
}

/// Returns the output of SplitMix64 for a state. Two states never have one output.
const fn mixed(state: u64) -> u64 {
    let mut z = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
    z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

/// Makes the ids of connections.
struct Ids {
    seed: u64,
    next: u64,
}

impl ConnectionIdGenerator for Ids {
    fn generate_cid(&mut self) -> ConnectionId {
        self.next += 1;
        ConnectionId::new(&mixed(mixed(self.seed).wrapping_add(self.next)).to_le_bytes())
    }

    fn cid_len(&self) -> usize {
        ID_BYTES
    }

    fn cid_lifetime(&self) -> Option<Duration> {
        None
    }
}

/// Makes the tokens of stateless resets, which the simulator can tell from other bytes.
struct ResetKey(u64);

impl HmacKey for ResetKey {
    fn sign(&self, id: &[u8], token: &mut [u8]) {
        let mut state = self.0;
        for byte in id {
            state = mixed(state ^ u64::from(*byte));
        }
        let made = TOKEN_MARK.into_iter().chain(state.to_le_bytes());
        token.iter_mut().zip(made).for_each(|(byte, made)| *byte = made);
    }

    fn signature_len(&self) -> usize {
        TOKEN_BYTES
    }

    fn verify(&self, id: &[u8], token: &[u8]) -> Result<(), CryptoError> {
        let mut made = [0; TOKEN_BYTES];
        self.sign(id, &mut made);
        if token == made { Ok(()) } else { Err(CryptoError) }
    }
}

/// The side of the end to which a socket belongs.
#[derive(Debug)]
struct Socket {
    shared: Arc<Shared>,
}

/// Datagrams that one call hands on.
const RECEIVES_AT_ONCE: usize = 32;

impl socket::Socket for Socket {
    fn try_send(&self, transmit: &Transmit, bytes: &[u8]) -> io::Result<()> {
        let mut held = self.shared.held.lock();
        if held.is_closed {
            return Ok(());
        }
        let len = transmit.segment_size.unwrap_or(bytes.len()).max(1);
        for bytes in bytes.chunks(len) {
            let (from, to) = (self.shared.address, transmit.destination);
            held.sent.push_back(Datagram { from, to, bytes: bytes.to_vec() });
        }
        drop(held);
        self.shared.sent.notify_one();
        Ok(())
    }

    fn writable(&self) -> Writable {
        Box::pin(std::future::ready(()))
    }

    fn poll_receive(&self, cx: &mut Context<'_>, each: &mut dyn FnMut(Received)) -> Poll<()> {
        for _ in 0..RECEIVES_AT_ONCE {
            let mut held = self.shared.held.lock();
            let Some(Datagram { from, bytes, .. }) = held.received.pop_front() else {
                held.reader = Some(cx.waker().clone());
                return Poll::Pending;
            };
            drop(held);
            let (len, stride) = (bytes.len(), bytes.len());
            let meta = RecvMeta { addr: from, len, stride, ..RecvMeta::default() };
            each(Received { meta, bytes: BytesMut::from(&*bytes) });
        }
        Poll::Ready(())
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        Ok(self.shared.address)
    }

    fn train(&self) -> usize {
        1
    }

    fn may_fragment(&self) -> bool {
        false
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        self.shared.held.lock().is_closed = true;
        self.shared.sent.notify_one();
    }
}
