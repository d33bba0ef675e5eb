//! Hostile peers with queue pairs of their own: each ends its own connection, and nothing else.
//!
//! They attack connections in memory, and those of an RDMA device if `FREVO_RDMA_ADDRESS` is its
//! address: soft RDMA in a guest.

mod endings;
mod invalidation;
mod medium;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_proto::limits::SMBD_FRAGMENTED_SIZE;
use frevo_wire::smbd::{
    DATA_OFFSET, DATA_TRANSFER_LEN, DataTransfer, DataTransferFlags, NegotiateRequest, SmbdVersion,
};
use tokio::time::{Instant, sleep, timeout};

use super::Lending;
use super::connect::{Begun, link_towards};
use super::link::{Completion, Slot};
use super::queue_pair::QueuePair;
use super::values::RemoteBuffer;
use crate::buffer::Buf;
use crate::frame_reader::FrameReader;
use crate::send_queue::{OutFrame, SendQueue};
use crate::transport::{Detached, Stream};
use medium::{AttackedServer, Medium, here};

/// Bytes of a slot of the attacker.
const SLOT: usize = 8192;

/// A peer that sends what it likes.
struct Attacker {
    link: QueuePair,
    /// The events of its device.
    begun: Option<Begun>,
    slots: Vec<Slot>,
    received: usize,
    has_failed: bool,
}

impl Attacker {
    /// Connects through a device.
    async fn connect(server: SocketAddr) -> Self {
        let (link, begun) = link_towards(server).await.unwrap();
        let mut attacker = Self::new(QueuePair::Device(link));
        attacker.link.connect(16).unwrap();
        let fate = Arc::clone(attacker.link.fate());
        begun.established(&fate).await.unwrap();
        attacker.begun = Some(begun);
        attacker
    }

    /// Posts receives.
    fn new(mut link: QueuePair) -> Self {
        for slot in link.add_slots(32, SLOT).unwrap() {
            link.post_receive(slot).unwrap();
        }
        let slots = link.add_slots(64, SLOT).unwrap();
        Self { link, begun: None, slots, received: 0, has_failed: false }
    }

    fn send(&mut self, message: &[u8]) {
        self.send_and_invalidate(message, None);
    }

    fn send_and_invalidate(&mut self, message: &[u8], key: Option<u32>) {
        let Some(slot) = self.slots.pop() else { return };
        self.link.slot_mut(slot).unwrap()[..message.len()].copy_from_slice(message);
        // The queue pair may have failed already, and then it accepts no requests. So the error is
        // ignored.
        let _ = self.link.post_send(slot, message.len(), key).and_then(|()| self.link.ring());
    }

    /// Writes to memory of the server, by any key. It cannot read: the server's queue pair serves no
    /// reads, so that the device sends none.
    fn touch(&mut self, remote: RemoteBuffer) {
        let len = remote.length as usize;
        let counted = self.link.bound().take(&Arc::default(), len).unwrap();
        let key = self.link.begin_write(Buf::copy_of(&vec![7; len]), counted).unwrap();
        let _ = self.link.post_transfer(key, 0, remote).and_then(|()| self.link.ring());
        self.link.end_posting(key, true);
    }

    fn look(&mut self) {
        self.begun.iter().for_each(Begun::take_events);
        for completion in self.link.poll() {
            match completion {
                Completion::Received { .. } => self.received += 1,
                Completion::Failed(_) => self.has_failed = true,
                Completion::Sent(_) | Completion::Moved => {}
            }
        }
    }

    fn is_over(&self) -> bool {
        self.has_failed || self.link.fate().is_over()
    }

    async fn until(&mut self, is_so: impl Fn(&Self) -> bool) -> bool {
        let end = Instant::now() + Duration::from_secs(8);
        while Instant::now() < end {
            self.look();
            if is_so(self) {
                return true;
            }
            sleep(Duration::from_millis(2)).await;
        }
        false
    }
}

fn request() -> NegotiateRequest {
    NegotiateRequest {
        min_version: SmbdVersion::V1,
        max_version: SmbdVersion::V1,
        credits_requested: 255,
        preferred_send_size: 1364,
        max_receive_size: 8192,
        max_fragmented_size: 1 << 20,
    }
}

/// A data transfer message with `len` bytes, whose header says what it likes.
fn data(data_offset: u32, data_length: u32, remaining: u32, len: usize) -> Vec<u8> {
    let header = DataTransfer {
        credits_requested: 255,
        credits_granted: 10,
        flags: DataTransferFlags::EMPTY,
        remaining_data_length: remaining,
        data_offset,
        data_length,
    };
    let mut message = header.to_bytes().to_vec();
    message.resize(DATA_OFFSET + len, 7);
    message
}

/// A message without data that grants nothing.
fn control(credits_requested: u16) -> Vec<u8> {
    let header = DataTransfer {
        credits_requested,
        credits_granted: 0,
        flags: DataTransferFlags::EMPTY,
        remaining_data_length: 0,
        data_offset: 0,
        data_length: 0,
    };
    header.to_bytes()[..DATA_TRANSFER_LEN].to_vec()
}

/// A connection that has nothing to do with the attacks.
struct Bystander {
    server: Stream,
    client: Stream,
    reader: FrameReader,
}

impl Bystander {
    async fn new(target: &AttackedServer) -> Self {
        let (server, client) = target.joined().await;
        tokio::select! {
            ready = client.writable() => ready.unwrap(),
            _ = server.readable() => panic!("nothing was sent"),
        }
        let mut bystander = Self { server, client, reader: FrameReader::new(100_000) };
        // This round trip makes the connection allocate all of its memory, so later allocations are
        // due to the attacker.
        bystander.still_works().await;
        bystander
    }

    async fn still_works(&mut self) {
        let queue = SendQueue::default();
        queue.push(OutFrame::new(Buf::copy_of(&[9; 20_000])));
        let (sent, frame) = tokio::join!(queue.flush(&self.client), self.reader.next(&self.server));
        sent.unwrap();
        assert!(*frame.unwrap().unwrap() == [9; 20_000]);
    }
}

type Attack = fn(&mut Attacker);

/// Attacks before the negotiation.
const FIRST: &[(&str, Attack)] = &[
    ("a message without bytes", |a| a.send(&[])),
    ("one byte", |a| a.send(&[1])),
    ("a cut request", |a| a.send(&request().to_bytes()[..19])),
    ("garbage", |a| a.send(&[0xEE; 512])),
    ("more than the receive holds", |a| a.send(&[1; 4000])),
    ("data", |a| a.send(&data(24, 8, 0, 8))),
    ("no credits", |a| a.send(&NegotiateRequest { credits_requested: 0, ..request() }.to_bytes())),
    ("no room", |a| a.send(&NegotiateRequest { max_receive_size: 0, ..request() }.to_bytes())),
    ("short fragments", |a| {
        a.send(&NegotiateRequest { max_fragmented_size: 131_071, ..request() }.to_bytes());
    }),
    ("another version", |a| {
        let other = SmbdVersion(0x0200);
        let request = NegotiateRequest { min_version: other, max_version: other, ..request() };
        a.send(&request.to_bytes());
    }),
    ("two messages, and credit for one", |a| {
        a.send(&request().to_bytes());
        (0..40).for_each(|_| a.send(&request().to_bytes()));
    }),
    ("a write to no memory", |a| {
        a.touch(RemoteBuffer { address: 4096, key: 1, length: 4096 });
    }),
];

/// Attacks after the negotiation.
const LATER: &[(&str, Attack)] = &[
    ("a cut header", |a| a.send(&data(24, 8, 0, 8)[..19])),
    ("data beyond the message", |a| a.send(&data(24, 9, 0, 8))),
    ("data that wraps around", |a| a.send(&data(u32::MAX - 7, 16, 0, 16))),
    ("data in the header", |a| a.send(&data(16, 8, 0, 8))),
    ("data between two words", |a| a.send(&data(28, 4, 0, 8))),
    ("a message that is too long", |a| a.send(&data(24, 8, SMBD_FRAGMENTED_SIZE - 7, 8))),
    ("a message of 4 GiB", |a| a.send(&data(24, 8, u32::MAX, 8))),
    ("fragments that do not fit together", |a| {
        a.send(&data(24, 8, 100, 8));
        a.send(&data(24, 8, 100, 8));
    }),
    ("a last fragment that is too short", |a| {
        a.send(&data(24, 8, 100, 8));
        a.send(&data(24, 8, 0, 8));
    }),
    ("no credits", |a| a.send(&control(0))),
    ("more than the receive holds", |a| a.send(&data(24, 8000, 0, 8000))),
    // In these attacks no message grants credits, so the server cannot send to the attacker.
    ("more messages than credits", |a| {
        (0..60).for_each(|_| a.send(&control(255)));
    }),
    ("a key that is not the server's, to invalidate", |a| {
        a.send_and_invalidate(&data(24, 8, 0, 8), Some(0x1234));
    }),
    ("a write to no memory", |a| {
        a.touch(RemoteBuffer { address: 4096, key: 1, length: 4096 });
    }),
];

#[test]
fn attacks_before_the_negotiation_end_their_connection() {
    here(async |target| {
        let mut bystander = Bystander::new(&target).await;
        for (name, attack) in FIRST {
            let (stream, mut attacker) = target.attacked().await;
            attack(&mut attacker);
            target.survive(name, stream, attacker).await;
            bystander.still_works().await;
        }
        drop(bystander);
        assert_eq!(target.settled().await, 0);
    });
}

#[test]
fn attacks_after_the_negotiation_end_their_connection() {
    here(async |target| {
        let mut bystander = Bystander::new(&target).await;
        for (name, attack) in LATER {
            let (endpoint, mut attacker) = target.negotiated().await;
            attack(&mut attacker);
            target.survive(name, Stream::Rdma(endpoint), attacker).await;
            bystander.still_works().await;
        }
        drop(bystander);
        assert_eq!(target.settled().await, 0);
    });
}

/// A key counts in its own connection only, whoever knows it.
#[test]
fn the_key_of_another_connection_is_of_no_use() {
    here(async |target| {
        let mut bystander = Bystander::new(&target).await;
        let client = Arc::clone(bystander.client.rdma().unwrap());
        let room = Buf::with_capacity(4096);
        let loan = client.lend(room, Lending::PeerWrites(4096)).await.unwrap();
        let (endpoint, mut attacker) = target.negotiated().await;
        attacker.touch(loan.remote());
        target.survive("a foreign key", Stream::Rdma(endpoint), attacker).await;
        let back = loan.take_back().await.unwrap();
        assert!(back.iter().all(|byte| *byte != 7), "the memory was changed");
        bystander.still_works().await;
        drop(client);
    });
}

/// Descriptors that name too much, or memory that was taken back.
#[test]
fn descriptors_that_lie_end_their_connection() {
    here(async |target| {
        let mut bystander = Bystander::new(&target).await;
        for (name, is_stale, length) in
            [("beyond its length", false, 8192), ("taken back", true, 4096)]
        {
            let mut lying = Bystander::new(&target).await;
            let client = Arc::clone(lying.client.rdma().unwrap());
            lying.still_works().await;
            let room = Buf::with_capacity(4096);
            let loan = client.lend(room, Lending::PeerWrites(4096)).await.unwrap();
            let remote = [RemoteBuffer { length, ..loan.remote() }];
            let loan = (!is_stale).then_some(loan);
            let server = Arc::clone(lying.server.rdma().unwrap());
            let bytes = Buf::copy_of(&vec![7; length as usize]);
            let Bystander { server: stream, client: other, .. } = lying;
            let ended = async {
                let _ = target.hear(server.write_to_peer(bytes, &remote)).await;
                target.serve(stream).await;
            };
            assert!(timeout(Duration::from_secs(8), ended).await.is_ok(), "{name}: it goes on");
            drop((loan, client, server, other));
            bystander.still_works().await;
        }
    });
}

/// The queue pair for a connection whose peer has gone cannot be made.
#[test]
fn a_peer_that_gives_up_while_it_waits_does_not_hold_up_the_core() {
    here(async |target| {
        let Medium::Device(listener) = &target.medium else { return };
        let mut refused = 0;
        for _ in 0..20 {
            let (link, begun) = link_towards(target.server).await.unwrap();
            link.id().connect(16).unwrap();
            let (detached, _) = listener.accept().await.unwrap();
            drop((link, begun));
            sleep(Duration::from_millis(50)).await;
            // Attaching may block for ever, so it runs on a thread of its own.
            let (done, outcome) = std::sync::mpsc::channel();
            let runtime = tokio::runtime::Handle::current();
            std::thread::spawn(move || {
                let _entered = runtime.enter();
                let attached = Detached::Rdma(Box::new(detached)).attach();
                let _ = done.send(attached.is_err());
            });
            let outcome = outcome.recv_timeout(Duration::from_secs(5));
            refused += usize::from(outcome.expect("the core waits for ever"));
            // Three refusals are enough. Over siw each takes 10 s, because the kernel waits for an
            // answer that never comes.
            if refused == 3 {
                return;
            }
        }
        assert!(refused > 0, "each peer was still there");
    });
}

#[test]
fn peers_that_die_at_any_step_leave_nothing() {
    here(async |target| {
        let mut bystander = Bystander::new(&target).await;
        for round in 0..100 {
            match round % 6 {
                0 if matches!(target.medium, Medium::Device(_)) => {
                    drop(link_towards(target.server).await.unwrap());
                }
                0 => drop(target.attacked().await),
                1 => {
                    let (stream, attacker) = target.attacked().await;
                    drop(attacker);
                    target.serve(stream).await;
                }
                2 => {
                    let (endpoint, attacker) = target.negotiated().await;
                    drop(attacker);
                    target.serve(Stream::Rdma(endpoint)).await;
                }
                3 => {
                    let (endpoint, mut attacker) = target.negotiated().await;
                    attacker.send(&data(24, 8, 100_000, 8));
                    attacker.until(|attacker| attacker.link.transfers() == 0).await;
                    drop(attacker);
                    target.serve(Stream::Rdma(endpoint)).await;
                }
                step => {
                    let (endpoint, mut attacker) = target.negotiated().await;
                    let (buf, access) = if step == 4 {
                        (Buf::copy_of(&vec![1; 1 << 20]), super::region::Access::PeerReads)
                    } else {
                        (Buf::with_capacity(1 << 20), super::region::Access::PeerWrites(1 << 20))
                    };
                    let lent = attacker.link.lend(&mut Some(buf), access, round % 4 == 0);
                    let (_, remote, _) = lent.unwrap().unwrap();
                    let moving = async {
                        if step == 4 {
                            let _ = endpoint.read_from_peer(1 << 20, &[remote]).await;
                        } else {
                            let bytes = Buf::copy_of(&vec![1; 1 << 20]);
                            let _ = endpoint.write_to_peer(bytes, &[remote]).await;
                        }
                    };
                    let dying = async {
                        sleep(Duration::from_millis(round % 7)).await;
                        drop(attacker);
                    };
                    target.hear(async { tokio::join!(moving, dying) }).await;
                    target.serve(Stream::Rdma(endpoint)).await;
                }
            }
            if round % 10 == 0 {
                bystander.still_works().await;
            }
        }
        bystander.still_works().await;
        drop(bystander);
        assert_eq!(target.settled().await, 0);
    });
}
