//! A delayed link for datagrams in this process: a relay to a server that keeps each datagram for a while, and
//! loses some.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::net::{SocketAddr, UdpSocket};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::net::sockopt;

/// The largest datagram that passes: a packet of Ethernet less the headers of IP and UDP. Longer ones are lost, as
/// on a path whose packets end there.
const DATAGRAM: usize = 1_472;
/// Bytes that the kernel keeps for a socket of the relay: a window of the ends.
const SOCKET_BYTES: usize = 4 << 20;

/// The terms of one direction.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) delay: Duration,
    /// Datagrams of a million that are lost.
    pub(crate) lost_of_million: u32,
}

/// A datagram on its way.
struct Parcel {
    due: Instant,
    bytes: Vec<u8>,
}

/// Starts a relay to `server`, which lasts as long as this process. Returns the address for clients.
pub(crate) fn start(server: SocketAddr, terms: Terms) -> Result<SocketAddr> {
    let near = socket()?;
    let address = near.local_addr()?;
    std::thread::spawn(move || forward(&near, server, terms));
    Ok(address)
}

fn socket() -> Result<Arc<UdpSocket>> {
    let socket = UdpSocket::bind("127.0.0.1:0")?;
    // The kernel allows fewer, perhaps.
    let _ = sockopt::set_socket_recv_buffer_size(&socket, SOCKET_BYTES);
    let _ = sockopt::set_socket_send_buffer_size(&socket, SOCKET_BYTES);
    Ok(Arc::new(socket))
}

/// Takes datagrams of clients, each of which gets a socket and two threads of its own.
fn forward(near: &Arc<UdpSocket>, server: SocketAddr, terms: Terms) {
    let mut ways: HashMap<SocketAddr, Sender<Parcel>> = HashMap::new();
    let (mut bytes, mut dice) = (vec![0; DATAGRAM + 1], Dice(1));
    while let Ok((count, from)) = near.recv_from(&mut bytes) {
        if count > DATAGRAM || dice.loses(terms.lost_of_million) {
            continue;
        }
        let Ok(way) = way(&mut ways, from, near, server, terms) else { continue };
        let due = Instant::now() + terms.delay;
        let _ = way.send(Parcel { due, bytes: bytes[..count].to_vec() });
    }
}

/// Returns the way of a client to the server; makes it at its first datagram.
fn way<'a>(
    ways: &'a mut HashMap<SocketAddr, Sender<Parcel>>,
    client: SocketAddr,
    near: &Arc<UdpSocket>,
    server: SocketAddr,
    terms: Terms,
) -> Result<&'a Sender<Parcel>> {
    let vacant = match ways.entry(client) {
        Entry::Occupied(way) => return Ok(way.into_mut()),
        Entry::Vacant(vacant) => vacant,
    };
    let far = socket()?;
    far.connect(server)?;
    let (there, parcels) = channel();
    let to_server = Arc::clone(&far);
    std::thread::spawn(move || deliver(&parcels, |bytes| drop(to_server.send(bytes))));
    let (back, parcels) = channel();
    let to_client = Arc::clone(near);
    std::thread::spawn(move || deliver(&parcels, |bytes| drop(to_client.send_to(bytes, client))));
    std::thread::spawn(move || answer(&far, &back, terms));
    Ok(vacant.insert(there))
}

/// Takes the datagrams of the server for one client.
fn answer(far: &UdpSocket, back: &Sender<Parcel>, terms: Terms) {
    let (mut bytes, mut dice) = (vec![0; DATAGRAM + 1], Dice(2));
    while let Ok(count) = far.recv(&mut bytes) {
        if count > DATAGRAM {
            continue;
        }
        let due = Instant::now() + terms.delay;
        let parcel = Parcel { due, bytes: bytes[..count].to_vec() };
        if !dice.loses(terms.lost_of_million) && back.send(parcel).is_err() {
            return;
        }
    }
}

/// Sends each datagram when its time has come.
fn deliver(parcels: &Receiver<Parcel>, send: impl Fn(&[u8])) {
    while let Ok(parcel) = parcels.recv() {
        let wait = parcel.due.saturating_duration_since(Instant::now());
        if !wait.is_zero() {
            std::thread::sleep(wait);
        }
        send(&parcel.bytes);
    }
}

/// Numbers that look random and are the same in each run.
struct Dice(u64);

impl Dice {
    fn loses(&mut self, of_million: u32) -> bool {
        // Knuth's MMIX; its upper bits are the good ones.
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % 1_000_000 < u64::from(of_million)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn datagrams_are_delayed_and_some_are_lost() {
        let server = UdpSocket::bind("127.0.0.1:0").unwrap();
        let terms = Terms { delay: Duration::from_millis(20), lost_of_million: 0 };
        let at = start(server.local_addr().unwrap(), terms).unwrap();
        let client = UdpSocket::bind("127.0.0.1:0").unwrap();
        let began = Instant::now();
        client.send_to(b"there", at).unwrap();
        let mut bytes = [0; 16];
        let (count, from) = server.recv_from(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"there");
        server.send_to(b"back", from).unwrap();
        let (count, _) = client.recv_from(&mut bytes).unwrap();
        assert_eq!(&bytes[..count], b"back");
        assert!(began.elapsed() >= Duration::from_millis(40));
        let mut dice = Dice(1);
        let lost = (0..1_000_000).filter(|_| dice.loses(10_000)).count();
        assert!((9_000..11_000).contains(&lost), "{lost}");
    }
}
