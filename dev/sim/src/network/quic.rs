//! QUIC: datagrams move between the socket of a client and the one of a server. Some are lost or overtaken,
//! the address of a client changes, and a connection is reset that its server still knows.
//!
//! Each connection of a client has a socket of its own, and so an address.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_net::quic::{self, Clients, Connector, Datagram, Listener, Port, ServerTls};
use frevo_net::transport::Stream;
use tokio::time::{Instant, sleep};

use super::path::{Fate, Internet, Path, identity};
use super::{DIRECTIONS, Link, Network, SERVER, SERVER_ADDRESS, State, client_address, wait_until};
use crate::dice::Dice;
use crate::{event, violation};

/// The address at which a server listens.
const SERVER_AT: SocketAddr = SocketAddr::new(IpAddr::V4(SERVER_ADDRESS), 443);

/// Datagrams that travel together at most.
const DATAGRAMS: u64 = 256;

/// A dial that is under way. Dropping it ends the connection.
struct Dial<'a> {
    network: &'a Network,
    link: &'a Link,
    is_done: bool,
}

impl Drop for Dial<'_> {
    fn drop(&mut self) {
        if !self.is_done {
            self.network.close(self.link);
        }
    }
}

impl Network {
    /// Has QUIC in the run from now on.
    ///
    /// # Errors
    /// The certificate of the servers cannot be used.
    pub fn begin_quic(&self, dice: Dice) -> io::Result<()> {
        let servers = self.inner.lock().doors.len();
        let internet = Internet::new(dice, servers)?;
        let Internet { lost, late, .. } = &internet;
        event!(self.trace, "net: QUIC, of a thousand {lost} lost and {late} late");
        self.inner.lock().internet = Some(internet);
        Ok(())
    }

    /// Loses and delays datagrams from now on.
    pub fn roughen(&self) {
        if let Some(internet) = &mut self.inner.lock().internet {
            internet.is_rough = true;
        }
    }

    /// Begins to listen for QUIC at a server. `follows` plants a fault: connections go on with clients whose
    /// address changes.
    ///
    /// # Errors
    /// The run has no QUIC.
    pub fn listen_for_quic(self: &Arc<Self>, server: usize, follows: bool) -> io::Result<Listener> {
        let port = {
            let mut inner = self.inner.lock();
            let internet = inner.internet.as_mut().ok_or(io::ErrorKind::Unsupported)?;
            let port = Port::new(SERVER_AT, internet.dice.next()).follow_clients(follows);
            internet.doors[server] = Some(port.clone());
            port
        };
        let tls = ServerTls { identity: identity()?, clients: Clients::Anonymous };
        let listener = Listener::simulated(&port, tls)?;
        let network = Arc::clone(self);
        tokio::spawn(async move {
            while port.sent().await {
                while let Some(datagram) = port.take() {
                    network.send_answer(datagram);
                }
            }
        });
        Ok(listener)
    }

    /// Takes the socket of a server off the network.
    pub(super) fn unplug_quic(&self, server: usize) {
        let internet = &mut self.inner.lock().internet;
        let door = internet.as_mut().and_then(|internet| internet.doors[server].take());
        door.iter().for_each(Port::unplug);
    }

    /// Returns true if the provider of a client blocks TCP now.
    pub(super) fn blocks_tcp(&self) -> bool {
        let internet = &mut self.inner.lock().internet;
        internet.as_mut().is_some_and(|internet| internet.dice.percent(50))
    }

    /// Makes a QUIC connection of a line.
    pub(super) async fn connect_quic(
        self: &Arc<Self>,
        line: usize,
        latency: u64,
    ) -> io::Result<Stream> {
        let (link, connector) = self.begin_path(line, latency)?;
        event!(self.trace, "net c{line} connects: link {} of QUIC", link.id);
        for direction in DIRECTIONS {
            let (network, link) = (Arc::clone(self), Arc::clone(&link));
            tokio::spawn(async move { network.carry_datagrams(&link, direction).await });
        }
        let path = link.path.as_ref().ok_or(io::ErrorKind::NotFound)?;
        let mut dial = Dial { network: self, link: &link, is_done: false };
        let connection = connector.connect_from(&path.near, SERVER_AT, SERVER).await?;
        dial.is_done = true;
        self.watch(&link, &connection);
        drop(dial);
        Ok(Stream::Quic(Box::new(connection)))
    }

    fn begin_path(&self, line: usize, latency: u64) -> io::Result<(Arc<Link>, Connector)> {
        let mut inner = self.inner.lock();
        let server = inner.home(line / self.clients).ok_or(io::ErrorKind::HostUnreachable)?;
        let number = inner.next;
        let internet = inner.internet.as_mut().ok_or(io::ErrorKind::Unsupported)?;
        let (seed, far) = (internet.dice.next(), internet.doors[server].clone());
        let connector = internet.connector.clone();
        // No address comes back in a run.
        let port = u16::try_from(1_024 + number % 60_000).unwrap_or(1_024);
        let home = client_address(line % self.clients);
        let [_, _, third, fourth] = home.octets();
        let near = SocketAddr::new(home.into(), port);
        let next = SocketAddr::new(Ipv4Addr::new(10, 9, third, fourth).into(), port);
        let path = Path::new(Port::new(near, seed), far, next);
        let link = Link { path: Some(path), ..Link::new(line, server, latency) };
        Ok((inner.begin(link), connector))
    }

    /// Notes the end of a connection when its client learns of it.
    fn watch(self: &Arc<Self>, link: &Arc<Link>, connection: &quic::Connection) {
        let (network, link, end) = (Arc::clone(self), Arc::clone(link), connection.end());
        tokio::spawn(async move {
            end.await;
            network.close(&link);
        });
    }

    /// Notes the end of a connection. What its client has sent until then is still carried.
    fn close(&self, link: &Link) {
        event!(self.trace, "net link {} of c{}: closed", link.id, link.client);
        link.is_broken.store(true, Ordering::Relaxed);
        link.closed.store(2, Ordering::Relaxed);
        self.disturbed(link.client);
    }

    /// Puts a datagram of a server on the way to the client at its address, if there is one.
    fn send_answer(&self, datagram: Datagram) {
        let is_its = |link: &Link| {
            link.path.as_ref().is_some_and(|path| *path.outside.lock() == datagram.to)
        };
        let link = self.inner.lock().links.iter().find(|link| is_its(link)).cloned();
        let Some((link, path)) = link.as_ref().and_then(|link| Some((link, link.path.as_ref()?)))
        else {
            return;
        };
        if path.has_moved.load(Ordering::Relaxed) && !datagram.is_reset() {
            violation!(
                self.trace,
                "link {}: the server answers at {}, an address that it has not admitted",
                link.id,
                datagram.to
            );
        }
        path.answers.lock().push_back(datagram);
        path.answered.notify_one();
    }

    /// Carries the datagrams of one direction until the client's socket is closed.
    async fn carry_datagrams(self: &Arc<Self>, link: &Arc<Link>, direction: usize) {
        let Some(path) = &link.path else { return };
        let mut free_at = Instant::now();
        while super::pass(link, direction).await {
            if link.state() == State::Late && direction == 0 {
                self.carry_datagrams_late(link, path).await;
                break;
            }
            let is_open = tokio::select! {
                biased;
                () = link.changed[direction].notified() => continue,
                is_open = path.ready(direction) => is_open,
            };
            if !is_open {
                break;
            }
            let most = {
                let mut inner = self.inner.lock();
                if inner.dice.percent(10) { 1 + inner.dice.below(3) } else { DATAGRAMS }
            };
            let all: Vec<_> = (0..most).map_while(|_| path.take(direction)).collect();
            if loses(link, direction) {
                continue;
            }
            free_at = (Instant::now() + self.delay(link.latency)).max(free_at);
            wait_until(link, direction, free_at).await;
            // Those that were on the way when the connection was reset arrive as well.
            let _ = super::pass(link, direction).await;
            if !loses(link, direction) {
                self.put(link, path, direction, all);
            }
        }
        if direction == 0 {
            // After a reset the rest is lost.
            while path.near.sent().await {
                while path.near.take().is_some() {}
            }
        }
        self.change(link, State::Ended);
    }

    /// Delivers datagrams. By chance some are lost, and others come later.
    fn put(self: &Arc<Self>, link: &Arc<Link>, path: &Path, direction: usize, all: Vec<Datagram>) {
        let bytes: usize = all.iter().map(|datagram| datagram.bytes.len()).sum();
        event!(
            self.trace,
            "net link {} way {direction}: {} datagrams, {bytes} bytes",
            link.id,
            all.len()
        );
        for datagram in all {
            match self.fate() {
                Fate::Lost => {}
                Fate::InTime => self.deliver(link, path, direction, datagram),
                Fate::Late => {
                    let after = self.delay(link.latency);
                    let (network, link) = (Arc::clone(self), Arc::clone(link));
                    tokio::spawn(async move {
                        sleep(after).await;
                        if let Some(path) = &link.path
                            && !loses(&link, direction)
                        {
                            network.deliver(&link, path, direction, datagram);
                        }
                    });
                }
            }
        }
    }

    fn fate(&self) -> Fate {
        let internet = &mut self.inner.lock().internet;
        internet.as_mut().map_or(Fate::InTime, Internet::fate)
    }

    fn deliver(&self, link: &Link, path: &Path, direction: usize, mut datagram: Datagram) {
        if direction == 1 {
            return path.near.deliver(datagram);
        }
        datagram.from = *path.outside.lock();
        let inner = self.inner.lock();
        let door = inner.internet.as_ref().and_then(|internet| internet.doors[link.server].clone());
        drop(inner);
        if let Some(door) = door {
            door.deliver(datagram);
        }
    }

    /// Resets the connection for its client at once, and delivers what it has sent much later.
    async fn carry_datagrams_late(self: &Arc<Self>, link: &Arc<Link>, path: &Path) {
        let (hold, after) = {
            let dice = &mut self.inner.lock().dice;
            let after = *dice.pick(&[200, 1_000, 4_000, 20_000]);
            (dice.millis(1, 400), dice.millis(after / 10, after))
        };
        wait_until(link, 0, Instant::now() + hold).await;
        let late: Vec<_> = std::iter::from_fn(|| path.take(0)).collect();
        event!(self.trace, "net link {}: {} datagrams will be late", link.id, late.len());
        path.reset();
        wait_until(link, 0, Instant::now() + after).await;
        if link.state() != State::Ended && !late.is_empty() {
            self.put(link, path, 0, late);
            wait_until(link, 0, Instant::now() + Duration::from_secs(1)).await;
        }
    }
}

/// Returns true if the datagrams of a direction are lost.
fn loses(link: &Link, direction: usize) -> bool {
    match link.state() {
        State::Vanishing(ways) => ways[direction],
        // Nothing comes back to the address from which the client has gone.
        State::Late => direction == 1,
        _ => false,
    }
}
