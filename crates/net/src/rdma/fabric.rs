//! RDMA connections in memory, for tests and the simulator.
//!
//! A [`Fabric`] makes pairs of endpoints. All code above their queue pairs is that of a device.
//! Either the fabric delivers packets at once, or the owner of a [`Wire`] does, who may delay and
//! lose them. The fabric notes each use of memory that its owner has not lent, or has taken back.

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use super::endpoint::Endpoint;
use super::memory::{Cable, Common, Content, MemoryLink, Port};
use super::queue_pair::QueuePair;
use super::state::State;

/// A network of RDMA connections in memory.
pub struct Fabric(Arc<Common>);

impl fmt::Debug for Fabric {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Fabric").field("registered", &self.registered_bytes()).finish()
    }
}

impl Fabric {
    /// Makes a fabric whose connections may register `registered_max` bytes together.
    #[must_use]
    pub fn new(registered_max: usize) -> Arc<Self> {
        Arc::new(Self(Common::new(registered_max)))
    }

    /// Makes a connection: the end that connects and the one that accepts, with their addresses.
    /// Both negotiate SMB Direct while somebody waits for them.
    ///
    /// # Errors
    /// No more memory may be registered.
    pub fn pair(&self, addresses: [SocketAddr; 2]) -> io::Result<[Endpoint; 2]> {
        endpoints(&Cable::new(&self.0, true), addresses)
    }

    /// Makes a connection as [`Self::pair`] does, whose packets somebody else carries. The
    /// connecting end has the number 0.
    ///
    /// # Errors
    /// No more memory may be registered.
    pub fn wired(&self, addresses: [SocketAddr; 2]) -> io::Result<([Endpoint; 2], Wire)> {
        let cable = Cable::new(&self.0, false);
        Ok((endpoints(&cable, addresses)?, Wire(cable)))
    }

    /// Makes a connection whose connecting end is a bare queue pair, for a peer that breaks rules.
    #[cfg(test)]
    pub(super) fn bare(
        &self,
        [ours, theirs]: [SocketAddr; 2],
    ) -> io::Result<(QueuePair, Endpoint)> {
        let cable = Cable::new(&self.0, true);
        let [first, second] = [(0, ours, theirs), (1, theirs, ours)]
            .map(|(end, local, peer)| MemoryLink::new(Arc::clone(&cable), end, local, peer));
        let passive = State::passive(QueuePair::Memory(second))?;
        Ok((QueuePair::Memory(first), Endpoint::new(passive, None)?))
    }

    /// Bytes that its connections have registered.
    #[must_use]
    pub fn registered_bytes(&self) -> usize {
        self.0.bound.used()
    }

    /// Takes what peers have done to memory that was not theirs to use.
    #[must_use]
    pub fn take_violations(&self) -> Vec<String> {
        std::mem::take(&mut self.0.violations.lock())
    }
}

fn endpoints(cable: &Arc<Cable>, [ours, theirs]: [SocketAddr; 2]) -> io::Result<[Endpoint; 2]> {
    let link =
        |end, local, peer| QueuePair::Memory(MemoryLink::new(Arc::clone(cable), end, local, peer));
    // The passive side is made first, because it must have posted a receive before the active side
    // sends.
    let passive = State::passive(link(1, theirs, ours))?;
    let mut active = State::active(link(0, ours, theirs))?;
    active.go_on();
    Ok([Endpoint::new(active, None)?, Endpoint::new(passive, None)?])
}

/// A packet on its way from one end of a connection to the other.
#[derive(Debug)]
pub struct Packet(Content);

impl Packet {
    /// Returns the message of SMB Direct, if it is one.
    #[must_use]
    pub fn message(&self) -> Option<&[u8]> {
        match &self.0 {
            Content::Send { bytes, .. } => Some(bytes),
            _ => None,
        }
    }

    /// Returns true if the sender waits for an answer, and its device gives up without one.
    #[must_use]
    pub const fn is_request(&self) -> bool {
        matches!(self.0, Content::Send { .. } | Content::Write { .. } | Content::Read { .. })
    }

    /// Returns true if the sender has left.
    #[must_use]
    pub const fn is_end(&self) -> bool {
        matches!(self.0, Content::End)
    }

    /// Returns its length in bytes, without headers of the network.
    #[must_use]
    pub const fn bytes(&self) -> usize {
        match &self.0 {
            Content::Send { bytes, .. } | Content::Write { bytes, .. } => bytes.len(),
            Content::Read { .. } | Content::Done | Content::Refused(_) | Content::End => 0,
            Content::Data(bytes) => bytes.len(),
        }
    }
}

/// The wire between two ends, for whoever carries the packets.
pub struct Wire(Arc<Cable>);

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Wire").finish()
    }
}

impl Wire {
    /// Waits until the end `from` has sent something. One task may wait for each end.
    pub async fn ready(&self, from: usize) {
        while !self.0.ports.lock()[from].has_packets() {
            self.0.waiting[from].notified().await;
        }
    }

    /// Takes the next packet that the end `from` has sent.
    #[must_use]
    pub fn take(&self, from: usize) -> Option<Packet> {
        self.0.ports.lock()[from].next_packet().map(Packet)
    }

    /// Delivers a packet of the end `from` to the other end. It is lost if that one has ended.
    pub fn deliver(&self, from: usize, packet: Packet) {
        let mut ports = self.0.ports.lock();
        self.0.arrive(&mut ports[1 - from], packet.0);
        self.0.carry(&mut ports);
    }

    /// Makes the device of an end give up: all that it has posted fails.
    pub fn fail(&self, end: usize) {
        self.0.at(end, Port::give_up);
    }

    /// Returns true once an end takes nothing any more.
    #[must_use]
    pub fn is_over(&self, end: usize) -> bool {
        self.0.ports.lock()[end].is_over()
    }

    /// Number of buffers that an end has lent to the other.
    #[must_use]
    pub fn lent(&self, end: usize) -> usize {
        self.0.ports.lock()[end].lent()
    }
}
