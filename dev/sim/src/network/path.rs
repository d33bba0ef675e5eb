//! The sockets of QUIC in a run, and what happens to datagrams between them.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_net::quic::{Connector, Datagram, Id, Identity, Port, Trust};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::dice::Dice;

/// The certificate of all servers, and its key. The key is of Ed25519, whose signatures have one length.
const IDENTITY: &[u8] = include_bytes!("quic.pem");

/// QUIC in a run.
pub(super) struct Internet {
    pub(super) dice: Dice,
    pub(super) connector: Connector,
    /// The socket of each server. None while it is down.
    pub(super) doors: Vec<Option<Port>>,
    /// True once clients have begun: until then all datagrams come in time.
    pub(super) is_rough: bool,
    /// Datagrams of a thousand that are lost.
    pub(super) lost: u64,
    /// Datagrams of a thousand that others overtake.
    pub(super) late: u64,
}

impl Internet {
    /// QUIC between clients and `servers` servers that do not listen yet.
    ///
    /// # Errors
    /// The certificate of the servers cannot be used.
    pub(super) fn new(mut dice: Dice, servers: usize) -> io::Result<Self> {
        let trust = Trust::Pinned(vec![identity()?.fingerprint()]);
        let connector = Connector::new(trust, None).map_err(io::Error::other)?;
        let (lost, late) = (*dice.pick(&[0, 0, 5, 20]), *dice.pick(&[0, 10, 50]));
        let doors = (0..servers).map(|_| None).collect();
        Ok(Self { dice, connector, doors, is_rough: false, lost, late })
    }

    /// Draws the fate of a datagram.
    pub(super) fn fate(&mut self) -> Fate {
        let drawn = self.dice.below(1_000);
        if !self.is_rough {
            return Fate::InTime;
        }
        match drawn.checked_sub(self.lost) {
            None => Fate::Lost,
            Some(drawn) if drawn < self.late => Fate::Late,
            Some(_) => Fate::InTime,
        }
    }
}

/// The sockets of a connection, and the way between them.
pub(super) struct Path {
    /// The client's socket.
    pub(super) near: Port,
    /// The socket of the server to which the connection was begun. None if nobody listened.
    far: Option<Port>,
    /// The address from which the client's datagrams come.
    pub(super) outside: Mutex<SocketAddr>,
    /// The address from which they come after it has changed.
    next: SocketAddr,
    /// True once the address has changed after the handshake. The server has not admitted the new one.
    pub(super) has_moved: AtomicBool,
    /// The id that the server has given the connection. None before the handshake is over.
    id: Mutex<Option<Id>>,
    /// Datagrams of the server that have not begun their way.
    pub(super) answers: Mutex<VecDeque<Datagram>>,
    pub(super) answered: Notify,
}

impl Path {
    /// The way from the client's socket `near` to that of a server.
    pub(super) fn new(near: Port, far: Option<Port>, next: SocketAddr) -> Self {
        Self {
            outside: Mutex::new(near.address()),
            near,
            far,
            next,
            has_moved: AtomicBool::new(false),
            id: Mutex::default(),
            answers: Mutex::default(),
            answered: Notify::new(),
        }
    }

    /// Waits until there is a datagram to carry in a direction. False if none comes any more.
    pub(super) async fn ready(&self, direction: usize) -> bool {
        if direction == 0 {
            return self.near.sent().await;
        }
        while self.answers.lock().is_empty() {
            self.answered.notified().await;
        }
        true
    }

    pub(super) fn take(&self, direction: usize) -> Option<Datagram> {
        if direction == 1 {
            return self.answers.lock().pop_front();
        }
        let datagram = self.near.take()?;
        if let Some(id) = datagram.id() {
            *self.id.lock() = Some(id);
        }
        Some(datagram)
    }

    /// Tells the client that its connection is reset. Without an id it has no connection yet.
    pub(super) fn reset(&self) {
        if let (Some(far), Some(id)) = (&self.far, *self.id.lock()) {
            self.near.deliver(far.reset(id, self.near.address()));
        }
    }

    /// True once the handshake is over for the client.
    pub(super) fn is_established(&self) -> bool {
        self.id.lock().is_some()
    }

    /// Has the client's datagrams come from another address.
    pub(super) fn go_elsewhere(&self) {
        *self.outside.lock() = self.next;
        self.has_moved.store(self.is_established(), Ordering::Relaxed);
    }
}

/// The way that a datagram takes.
pub(super) enum Fate {
    InTime,
    Late,
    Lost,
}

/// Returns the certificate of all servers.
///
/// # Errors
/// It cannot be used.
pub(super) fn identity() -> io::Result<Identity> {
    Identity::from_pem(IDENTITY, IDENTITY).map_err(io::Error::other)
}
