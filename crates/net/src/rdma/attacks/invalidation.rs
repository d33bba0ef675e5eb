//! Peers that invalidate keys which are not theirs to invalidate, or that are none.

use std::sync::Arc;

use tokio::time::{Duration, timeout};

use super::medium::Medium;
use super::{AttackedServer, Attacker, Bystander, data, here};
use crate::buffer::Buf;
use crate::limits::RDMA_TRANSFERS_MAX;
use crate::rdma::queue_pair::QueuePair;
use crate::rdma::state::State;
use crate::rdma::{Endpoint, Lending, Loan, counts};
use crate::transport::Stream;

const LEN: usize = 5000;

async fn lent(endpoint: &Arc<Endpoint>) -> Loan {
    let room = Buf::with_capacity(LEN);
    let loan = endpoint.lend_window(room, Lending::PeerWrites(LEN)).await.unwrap();
    // The bind of the window is sent now; otherwise it would wait for the next message.
    endpoint.look(State::ring);
    loan
}

/// Lends memory, and waits until the device has bound the window. Until then the window has the key
/// of its last bind: a peer that invalidates that one again crashes rxe (`window::is_safe`).
async fn bound(endpoint: &Arc<Endpoint>) -> Loan {
    let loan = lent(endpoint).await;
    let has_no_requests =
        |state: &mut State| (state.link.room_for_transfers() == RDMA_TRANSFERS_MAX).then_some(());
    endpoint.wait(has_no_requests).await.unwrap();
    loan
}

/// Sends a message that invalidates a key.
fn send(attacker: &mut Attacker, key: u32) {
    attacker.send_and_invalidate(&data(24, 8, 0, 8), Some(key));
}

/// Receives what the attacker has sent, as long as the connection goes on.
async fn received(target: &AttackedServer, endpoint: &Arc<Endpoint>, frames: u64) -> Vec<u32> {
    let stream = Stream::Rdma(Arc::clone(endpoint));
    let mut keys = Vec::new();
    target
        .hear(async {
            let mut reader = crate::frame_reader::FrameReader::new(1 << 20);
            for frame in 0..frames {
                reader.next(&stream).await.unwrap().unwrap();
                keys.extend(endpoint.invalidated_with(frame));
            }
        })
        .await;
    keys
}

/// An attack with the keys of two loans.
type Wrong = fn(&mut Attacker, [u32; 2]);

/// Not for a device: rxe would crash (`window::is_safe`).
const TWICE: &str = "the key twice";

const WRONG: &[(&str, Wrong)] = &[
    ("a key of no window", |a, [key, _]| send(a, key ^ 0x0055_5500)),
    ("an old key of the window", |a, [key, _]| send(a, key ^ 0x80)),
    ("two keys in one message", |a, [key, other]| {
        a.send_and_invalidate(&data(24, 8, 8, 8), Some(key));
        send(a, other);
    }),
    ("the key with a message that is none", |a, [key, _]| {
        a.send_and_invalidate(&[1; 7], Some(key));
    }),
    (TWICE, |a, [key, _]| {
        send(a, key);
        send(a, key);
    }),
    ("the key, and then writes by it", |a, [key, _]| {
        send(a, key);
        a.touch(super::RemoteBuffer { address: 4096, key, length: 1 });
    }),
];

/// Each ends its connection. siw invalidates any key of the connection's regions, the last byte
/// aside, and tells its program nothing of it: the memory then is of no use to its peer.
#[test]
fn wrong_invalidations_end_their_connection() {
    here(async |target| {
        let mut bystander = Bystander::new(&target).await;
        for (name, wrong) in WRONG {
            if *name == TWICE && matches!(target.medium, Medium::Device(_)) {
                continue;
            }
            let (endpoint, mut attacker) = target.negotiated().await;
            let loans = [bound(&endpoint).await, bound(&endpoint).await];
            let is_silent = !loans[0].is_window() && is_siw(&endpoint) && *name != WRONG[0].0;
            wrong(&mut attacker, [loans[0].remote().key, loans[1].remote().key]);
            if is_silent {
                target.endure(endpoint, attacker, loans).await;
            } else {
                target.survive(name, Stream::Rdma(endpoint), attacker).await;
                drop(loans);
            }
            bystander.still_works().await;
        }
        drop(bystander);
        assert_eq!(target.settled().await, 0);
    });
}

fn is_siw(endpoint: &Endpoint) -> bool {
    endpoint
        .look(|state| match &state.link {
            QueuePair::Device(link) => link.id().is_iwarp(),
            QueuePair::Memory(_) => false,
        })
        .unwrap()
}

impl AttackedServer {
    /// Sees that lent memory comes back unharmed, whether the connection goes on or not.
    async fn endure(&self, endpoint: Arc<Endpoint>, attacker: Attacker, loans: [Loan; 2]) {
        let served = self.serve(Stream::Rdma(endpoint));
        let _ = timeout(Duration::from_millis(200), served).await;
        for loan in loans {
            let back = loan.take_back().await;
            assert!(back.is_none_or(|buf| buf.iter().all(|byte| *byte != 7)));
        }
        drop(attacker);
    }
}

/// The key of a region that was registered for its request is none that a peer may invalidate.
#[test]
fn a_registered_region_cannot_be_invalidated() {
    here(async |target| {
        let mut bystander = Bystander::new(&target).await;
        let (endpoint, mut attacker) = target.negotiated().await;
        let room = || Buf::with_capacity(LEN);
        let loans = [
            endpoint.lend(room(), Lending::PeerWrites(LEN)).await.unwrap(),
            endpoint.lend(room(), Lending::PeerWrites(LEN)).await.unwrap(),
        ];
        send(&mut attacker, loans[0].remote().key);
        if is_siw(&endpoint) {
            target.endure(endpoint, attacker, loans).await;
        } else {
            target.survive("a region", Stream::Rdma(endpoint), attacker).await;
            drop(loans);
        }
        bystander.still_works().await;
    });
}

/// After its owner has taken it back, and when the window has the next key.
#[test]
fn a_key_that_was_taken_back_cannot_be_invalidated() {
    here(async |target| {
        for (name, is_invalidated, is_lent_again) in
            [("freed", false, false), ("bound again", true, true)]
        {
            let (endpoint, mut attacker) = target.negotiated().await;
            let loan = bound(&endpoint).await;
            let key = loan.remote().key;
            if !loan.is_window() {
                return;
            }
            if is_invalidated {
                send(&mut attacker, key);
                let keys = received(&target, &endpoint, 1);
                let sent = attacker.until(|attacker| attacker.has_failed);
                let keys = tokio::select! { keys = keys => keys, _ = sent => panic!("{name}") };
                assert_eq!(keys, [key], "{name}");
            }
            let back = target.hear(loan.take_back()).await;
            assert!(back.is_some(), "{name}");
            let again = if is_lent_again { Some(bound(&endpoint).await) } else { None };
            assert!(again.as_ref().is_none_or(|again| again.remote().key != key), "{name}");
            send(&mut attacker, key);
            target.survive(name, Stream::Rdma(endpoint), attacker).await;
            drop(again);
        }
        assert_eq!(target.settled().await, 0);
    });
}

/// A peer that invalidates nothing, and dies: the memory comes back, and windows are not left.
#[test]
fn a_peer_that_invalidates_nothing_leaves_nothing() {
    here(async |target| {
        let (endpoint, attacker) = target.negotiated().await;
        let loans = [lent(&endpoint).await, lent(&endpoint).await, lent(&endpoint).await];
        let [first, second, third] = loans;
        // The first loan is taken back, the second is dropped (perhaps before its bind), and the
        // third is kept until the connection has ended.
        assert!(target.hear(first.take_back()).await.is_some());
        drop(second);
        drop(attacker);
        target.serve(Stream::Rdma(Arc::clone(&endpoint))).await;
        assert!(timeout(Duration::from_secs(1), third.take_back()).await.is_ok());
        drop(endpoint);
        assert_eq!(target.settled().await, 0);
        if let Medium::Device(_) = target.medium {
            assert_eq!(counts().windows, 0);
        }
    });
}

/// The keys of a device are those of all its connections; a peer may name the key of another one's
/// window. It is disconnected, and the memory of the other is not changed.
#[test]
fn the_window_of_another_connection_is_not_the_peers() {
    here(async |target| {
        let mut bystander = Bystander::new(&target).await;
        let client = Arc::clone(bystander.client.rdma().unwrap());
        let loan = bound(&client).await;
        let (endpoint, mut attacker) = target.negotiated().await;
        send(&mut attacker, loan.remote().key);
        target.survive("a foreign window", Stream::Rdma(endpoint), attacker).await;
        bystander.still_works().await;
        let back = loan.take_back().await.unwrap();
        assert!(back.iter().all(|byte| *byte != 7), "the memory was changed");
        bystander.still_works().await;
        drop(client);
    });
}
