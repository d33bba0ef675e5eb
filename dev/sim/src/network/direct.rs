//! RDMA: packets move from one end of a wire to the other. The judge hears of each use of memory
//! that is not lent.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_net::rdma::{Packet, Wire};
use frevo_net::transport::{Detached, Stream};
use frevo_wire::smbd::DataTransfer;
use tokio::time::{Instant, sleep_until};

use super::{DIRECTIONS, Link, Network, State, pass, wait_until};
use crate::nonces::Frames;
use crate::{event, violation};

/// Packets that travel together at most.
const PACKETS: u64 = 256;

/// The frames in messages of SMB Direct, as TCP would carry them.
#[derive(Default)]
struct Assembly {
    has_negotiated: bool,
    /// Bytes of the present frame that are still to come.
    rest: u32,
}

impl Assembly {
    /// The next bytes of the stream of frames.
    fn take(&mut self, message: &[u8]) -> Vec<u8> {
        // MS-SMBD 3.1.4.1: the first message of each side is the negotiation, which has no data.
        if !std::mem::replace(&mut self.has_negotiated, true) {
            return Vec::new();
        }
        let Ok(header) = DataTransfer::parse(message) else { return Vec::new() };
        let at = header.data_offset as usize;
        let data = message.get(at..at.saturating_add(header.data_length as usize));
        let Some(data) = data.filter(|data| !data.is_empty()) else { return Vec::new() };
        let total = header.data_length.saturating_add(header.remaining_data_length);
        let mut bytes = if self.rest == 0 { total.to_be_bytes().to_vec() } else { Vec::new() };
        self.rest = header.remaining_data_length;
        bytes.extend_from_slice(data);
        bytes
    }
}

impl Network {
    /// Makes an RDMA connection of a line.
    pub(super) fn connect_rdma(
        self: &Arc<Self>,
        client: usize,
        latency: u64,
    ) -> io::Result<Stream> {
        let ([ours, theirs], wire) = self.fabric.wired(self.addresses(client))?;
        let theirs = Detached::Rdma(Box::new(theirs.detach()?));
        let Some(link) = self.accept(client, theirs, latency, Some(wire)) else {
            event!(self.trace, "net c{client} is refused RDMA");
            return Err(io::ErrorKind::ConnectionRefused.into());
        };
        event!(self.trace, "net c{client} connects: link {} of RDMA", link.id);
        for direction in DIRECTIONS {
            let (network, link) = (Arc::clone(self), Arc::clone(&link));
            tokio::spawn(async move { network.carry_packets(&link, direction).await });
        }
        Ok(Stream::Rdma(Arc::new(ours)))
    }

    /// Carries the packets of one direction until the end of the connection.
    async fn carry_packets(&self, link: &Arc<Link>, direction: usize) {
        let Some(wire) = &link.wire else { return };
        let mut free_at = Instant::now();
        let (mut assembly, mut frames) = (Assembly::default(), Frames::default());
        loop {
            if !pass(link, direction).await {
                break;
            }
            if link.state() == State::Late {
                self.carry_packets_late(link, wire, direction).await;
                break;
            }
            tokio::select! {
                biased;
                () = link.changed[direction].notified() => continue,
                () = wire.ready(direction) => {}
            }
            // Several packets travel together, because otherwise the latency would limit the
            // bandwidth.
            let most = {
                let mut inner = self.inner.lock();
                if inner.dice.percent(10) { 1 + inner.dice.below(3) } else { PACKETS }
            };
            let packets = (0..most).map_while(|_| wire.take(direction));
            let mut packets: Vec<_> = packets.collect();
            for message in packets.iter().filter_map(Packet::message) {
                let bytes = assembly.take(message);
                self.look_at(link, direction, &mut frames, &bytes);
            }
            packets.retain(|packet| !self.loses(link, direction, packet));
            if packets.is_empty() {
                continue;
            }
            free_at = (Instant::now() + self.delay(link.latency)).max(free_at);
            wait_until(link, direction, free_at).await;
            if !pass(link, direction).await {
                break;
            }
            let count: usize = packets.iter().map(Packet::bytes).sum();
            event!(self.trace, "net link {} way {direction}: {count} bytes", link.id);
            let mut is_closed = false;
            for packet in packets {
                if !self.loses(link, direction, &packet) {
                    is_closed |= packet.is_end();
                    self.put_packet(link, wire, direction, packet);
                }
            }
            if is_closed {
                event!(self.trace, "net link {} way {direction}: closed", link.id);
                break;
            }
            link.is_bound.fetch_or(direction == 1 && frames.has_logged_on, Ordering::Relaxed);
        }
        self.change(link, State::Ended);
        DIRECTIONS.into_iter().for_each(|end| wire.fail(end));
    }

    fn put_packet(&self, link: &Link, wire: &Wire, direction: usize, packet: Packet) {
        wire.deliver(direction, packet);
        for why in self.fabric.take_violations() {
            violation!(self.trace, "link {}: {why}", link.id);
        }
    }

    /// Returns true if a packet is lost. The device of the end that waits for it, or for an answer
    /// to it, gives up after a while.
    fn loses(&self, link: &Arc<Link>, direction: usize, packet: &Packet) -> bool {
        if !matches!(link.state(), State::Vanishing(ways) if ways[direction]) {
            return false;
        }
        if !packet.is_end() {
            let waits = if packet.is_request() { direction } else { 1 - direction };
            let at = Instant::now() + self.inner.lock().dice.millis(500, 8_000);
            let link = Arc::clone(link);
            tokio::spawn(async move {
                sleep_until(at).await;
                link.wire.iter().for_each(|wire| wire.fail(waits));
            });
        }
        true
    }

    /// Makes the client's device give up at once, and delivers what it has sent much later.
    async fn carry_packets_late(&self, link: &Link, wire: &Wire, direction: usize) {
        if direction == 1 {
            // The server's answers are dropped until the link has ended.
            while link.state() != State::Ended {
                tokio::select! {
                    biased;
                    () = link.changed[direction].notified() => {}
                    () = wire.ready(direction) => drop(wire.take(direction)),
                }
            }
            return;
        }
        let (hold, after) = {
            let dice = &mut self.inner.lock().dice;
            let after = *dice.pick(&[200, 1_000, 4_000, 20_000]);
            (dice.millis(1, 400), dice.millis(after / 10, after))
        };
        wait_until(link, direction, Instant::now() + hold).await;
        let late: Vec<_> = std::iter::from_fn(|| wire.take(direction)).collect();
        event!(self.trace, "net link {}: {} packets will be late", link.id, late.len());
        wire.fail(0);
        wait_until(link, direction, Instant::now() + after).await;
        if link.state() != State::Ended && !late.is_empty() {
            event!(self.trace, "net link {}: {} late packets", link.id, late.len());
            late.into_iter().for_each(|packet| self.put_packet(link, wire, direction, packet));
            wait_until(link, direction, Instant::now() + Duration::from_secs(1)).await;
        }
    }
}

impl Network {
    /// Takes the RDMA device of a server away, with its connections, or brings it back.
    pub fn set_device(&self, server: usize, is_there: bool) {
        event!(self.trace, "net RDMA device of machine {server} is there: {is_there}");
        self.inner.lock().devices[server] = is_there;
        if !is_there {
            let is_its = |link: &Link| link.server == server && link.wire.is_some();
            for link in self.links(is_its) {
                self.change(&link, State::Ended);
            }
        }
    }
}

/// Memory that is lent, and calls that may use it.
impl Network {
    /// A call begins on a line.
    pub fn call_begins(&self, line: usize) {
        self.calls[line].fetch_add(1, Ordering::Relaxed);
    }

    /// A call has ended on a line. Returns the number of buffers that its client still lends
    /// although no other call is under way, over connections that work.
    pub fn call_ends(&self, line: usize) -> usize {
        if self.calls[line].fetch_sub(1, Ordering::Relaxed) > 1 {
            return 0;
        }
        let links = self.links(|link| link.client == line);
        let wires = links.iter().filter_map(|link| link.wire.as_ref());
        wires.filter(|wire| !wire.is_over(0)).map(|wire| wire.lent(0)).sum()
    }

    /// Returns the bytes that are registered for RDMA.
    pub fn registered_bytes(&self) -> usize {
        self.fabric.registered_bytes()
    }
}

#[cfg(test)]
mod tests {
    use frevo_wire::smbd::{DATA_OFFSET, DataTransferFlags};

    use super::*;

    fn message(data: &[u8], remaining: u32) -> Vec<u8> {
        let header = DataTransfer {
            credits_requested: 10,
            credits_granted: 0,
            flags: DataTransferFlags::EMPTY,
            remaining_data_length: remaining,
            data_offset: if data.is_empty() { 0 } else { DATA_OFFSET as u32 },
            data_length: data.len() as u32,
        };
        [&header.to_bytes()[..], data].concat()
    }

    #[test]
    fn fragments_become_frames_again() {
        let mut assembly = Assembly::default();
        let all = [message(b"negotiation", 0), message(b"one", 0), message(b"", 0)];
        let parts = [message(b"tw", 3), message(b"ot", 1), message(b"w", 0), message(b"x", 0)];
        let bytes = all.iter().chain(&parts).flat_map(|message| assembly.take(message));
        let expected = [&[0, 0, 0, 3][..], b"one", &[0, 0, 0, 5], b"twotw", &[0, 0, 0, 1], b"x"];
        assert_eq!(bytes.collect::<Vec<_>>(), expected.concat());
    }
}
