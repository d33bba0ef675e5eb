//! Connections that one side ends before it has heard that they are established.

use std::sync::Arc;

use tokio::time::{Duration, Instant, sleep, timeout};

use super::medium::Medium;
use super::{AttackedServer, Attacker, here, link_towards};
use crate::rdma::connect;
use crate::rdma::listener::Listener;
use crate::rdma::queue_pair::QueuePair;
use crate::rdma::values::RemoteBuffer;
use crate::transport::{Detached, Stream};

/// The time in which the other side hears of it.
const SOON: Duration = Duration::from_secs(1);

async fn accepted(listener: &Listener) -> Stream {
    let (detached, _) = listener.accept().await.unwrap();
    Detached::Rdma(Box::new(detached)).attach().unwrap()
}

/// Returns what is left of a connection.
type Ending = fn(Stream) -> Option<Stream>;

/// The kernel has not heard from the peer when the server ends the connection.
const AT_ONCE: &[(&str, Ending)] = &[
    ("dropped", |_| None),
    ("ended and dropped", |stream| {
        stream.abort();
        None
    }),
    ("ended and kept", |stream| {
        stream.abort();
        Some(stream)
    }),
];

/// A peer that has begun to connect, and what the server has accepted.
async fn begun(target: &AttackedServer, listener: &Listener) -> (Attacker, Stream) {
    let (link, begun) = link_towards(target.server).await.unwrap();
    let mut peer = Attacker::new(QueuePair::Device(link));
    peer.begun = Some(begun);
    peer.link.connect(16).unwrap();
    (peer, accepted(listener).await)
}

#[test]
fn a_peer_hears_of_an_end_before_it_is_established() {
    here(async |target| {
        let Medium::Device(listener) = &target.medium else { return };
        for (name, end) in AT_ONCE {
            for _ in 0..5 {
                let (mut peer, stream) = begun(&target, listener).await;
                let left = end(stream);
                let ended = Instant::now();
                let is_told = target.hear(peer.until(Attacker::is_over)).await;
                assert!(is_told && ended.elapsed() < SOON, "{name}: {:?}", ended.elapsed());
                drop((left, peer));
            }
        }
        assert_eq!(target.settled().await, 0);
    });
}

/// Tasks that wait for the connection hear of its end, too; with a driver also those that read, which
/// it wakes itself.
#[test]
fn those_who_wait_hear_of_an_end_before_it_is_established() {
    here(async |target| {
        let Medium::Device(listener) = &target.medium else { return };
        let (peer, stream) = begun(&target, listener).await;
        let endpoint = Arc::clone(stream.rdma().unwrap());
        // Nothing polls the peer, so the read stays pending.
        let reading = Arc::clone(&endpoint);
        let read = async move {
            let remote = [RemoteBuffer { address: 4096, key: 1, length: 9000 }];
            tokio::spawn(async move { reading.read_from_peer(9000, &remote).await }).await.unwrap()
        };
        let all = async {
            tokio::join!(
                endpoint.established(),
                read,
                stream.readable(),
                stream.writable(),
                async {
                    sleep(Duration::from_millis(50)).await;
                    stream.abort();
                }
            )
        };
        let all = timeout(SOON, all);
        let (established, read, ..) = tokio::select! {
            biased;
            never = endpoint.drive() => match never {},
            all = all => all.expect("somebody waits on"),
        };
        assert!(established.is_err() && read.is_err());
        assert!(matches!(stream.try_read_vectored(&mut []), Ok(0) | Err(_)));
        drop(peer);
    });
}

/// A client gives up after the server has accepted it, and before it has heard of that; or it ends
/// the connection as soon as it is established, and keeps it.
#[test]
fn a_server_hears_that_its_client_gives_up() {
    here(async |target| {
        let Medium::Device(listener) = &target.medium else { return };
        for round in 0..10 {
            let gives_up = round % 2 == 0;
            let (stream, kept) = if gives_up {
                tokio::select! {
                    biased;
                    stream = accepted(listener) => (stream, None),
                    _ = connect(target.server) => panic!("it is connected"),
                }
            } else {
                let (stream, client) = tokio::join!(accepted(listener), connect(target.server));
                let client = client.unwrap();
                client.abort();
                (stream, Some(client))
            };
            let served = timeout(SOON, target.serve(stream));
            assert!(served.await.is_ok(), "the client gives up early: {gives_up}");
            drop(kept);
        }
        assert_eq!(target.settled().await, 0);
    });
}
