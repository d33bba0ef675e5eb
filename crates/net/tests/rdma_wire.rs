//! Two endpoints over a wire in memory whose packets the test carries: late, lost, or to an end that
//! has gone. The fabric notes each use of memory that is not lent.

#![cfg(feature = "rdma")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_net::rdma::{Endpoint, Fabric, Lending, RemoteBuffer, Wire};
use frevo_net::{Buf, FrameReader, OutFrame, SendQueue, Stream};
use tokio::time::{sleep, timeout};

const AT: SocketAddr = SocketAddr::new(std::net::IpAddr::V4(Ipv4Addr::LOCALHOST), 445);

/// The client's end and the server's.
struct Pair {
    fabric: Arc<Fabric>,
    client: Arc<Endpoint>,
    server: Arc<Endpoint>,
    wire: Arc<Wire>,
    /// True while packets to the server, and to the client, are lost.
    loses: Arc<[AtomicBool; 2]>,
}

impl Pair {
    /// Makes a connection whose packets take a millisecond each way, and negotiates.
    async fn new() -> Self {
        let fabric = Fabric::new(1 << 30);
        let ([client, server], wire) = fabric.wired([AT; 2]).unwrap();
        let wire = Arc::new(wire);
        let loses = Arc::<[AtomicBool; 2]>::default();
        for from in [0, 1] {
            let (wire, loses) = (Arc::clone(&wire), Arc::clone(&loses));
            tokio::spawn(async move {
                loop {
                    wire.ready(from).await;
                    sleep(Duration::from_millis(1)).await;
                    let Some(packet) = wire.take(from) else { continue };
                    let is_end = packet.is_end();
                    if !loses[from].load(Ordering::SeqCst) {
                        wire.deliver(from, packet);
                    }
                    if is_end {
                        return;
                    }
                }
            });
        }
        let (client, server) = (Arc::new(client), Arc::new(server));
        let (one, other) = tokio::join!(client.established(), server.established());
        one.unwrap();
        other.unwrap();
        Self { fabric, client, server, wire, loses }
    }

    fn streams(&self) -> (Stream, Stream) {
        (Stream::Rdma(Arc::clone(&self.client)), Stream::Rdma(Arc::clone(&self.server)))
    }
}

async fn send(to: &Stream, bytes: &[u8]) -> std::io::Result<()> {
    let queue = SendQueue::default();
    queue.push(OutFrame::new(Buf::copy_of(bytes)));
    queue.flush(to).await.map(drop)
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

/// Lets timers and packets run, while both ends look after their queue pairs.
async fn pass(pair: &Pair, millis: u64) {
    let looking = async { tokio::join!(pair.client.readable(), pair.server.readable()) };
    let _ = timeout(Duration::from_millis(millis), looking).await;
}

#[tokio::test(start_paused = true)]
async fn long_frames_cross_a_slow_wire_and_wait_for_their_reader() {
    let pair = Pair::new().await;
    let (client, server) = pair.streams();
    // The frame needs more credits than a peer without a logon gets in one round trip, so sending
    // the frame takes several round trips.
    let frame = pattern(1 << 20);
    let mut reader = FrameReader::new(2 << 20);
    let (sent, got) = tokio::join!(send(&client, &frame), async {
        // The server does not read, so it grants no credits. The client must stop sending.
        sleep(Duration::from_secs(1)).await;
        let unread = pair.server.held_bytes();
        assert!(unread < 1 << 20, "{unread} bytes wait");
        reader.next(&server).await
    });
    sent.unwrap();
    assert!(*got.unwrap().unwrap() == frame);
    assert_eq!(pair.fabric.take_violations(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)]
async fn what_was_sent_last_arrives_before_the_end() {
    let pair = Pair::new().await;
    let (client, server) = pair.streams();
    send(&client, b"last words").await.unwrap();
    let Pair { client: end, .. } = pair;
    drop((client, end));
    let mut reader = FrameReader::new(100);
    assert_eq!(reader.next(&server).await.unwrap().as_deref(), Some(&b"last words"[..]));
    assert!(matches!(reader.next(&server).await, Ok(None) | Err(_)));
}

#[tokio::test(start_paused = true)]
async fn data_moves_both_ways_and_in_parts() {
    let pair = Pair::new().await;
    let len = 100_000;
    let loan = pair.client.lend(Buf::copy_of(&pattern(len)), Lending::PeerReads).await.unwrap();
    let RemoteBuffer { address, key, .. } = loan.remote();
    let part = |at: u32, length| RemoteBuffer { address: address + u64::from(at), key, length };
    let parts = [part(50_000, 50_000), part(0, 50_000)];
    let read = pair.server.read_from_peer(len, &parts).await.unwrap();
    let whole = pattern(len);
    assert!(read[..50_000] == whole[50_000..] && read[50_000..] == whole[..50_000]);
    drop(loan);
    let room = Buf::with_capacity(len);
    let loan = pair.client.lend(room, Lending::PeerWrites(len)).await.unwrap();
    pair.server.write_to_peer(Buf::copy_of(&pattern(len)), &[loan.remote()]).await.unwrap();
    let (_, server) = pair.streams();
    // The message was sent after the data, so when the message has arrived, the data has arrived,
    // too.
    send(&server, b"written").await.unwrap();
    pair.client.readable().await.unwrap();
    assert!(*loan.take_back().await.unwrap() == pattern(len));
    pass(&pair, 10).await;
    assert_eq!((pair.client.transfers(), pair.server.transfers()), (0, 0));
    assert_eq!(pair.fabric.take_violations(), Vec::<String>::new());
}

/// Each use of memory that is not the peer's ends the connection of that peer, and is noted.
#[tokio::test(start_paused = true)]
async fn the_use_of_foreign_memory_is_noted() {
    let len = 8192;
    for (name, said) in [
        ("taken back", "the key does not count"),
        ("another connection's", "the key does not count"),
        ("beyond its length", "it is not inside the memory"),
        ("before its beginning", "it is not inside the memory"),
        ("in the wrong direction", "the memory is not lent for that"),
    ] {
        for reads in [true, false] {
            let (pair, other) = (Pair::new().await, Pair::new().await);
            let owner = if name.starts_with("another") { &other } else { &pair };
            let is_lent_for_reads = reads != name.contains("direction");
            let (buf, lending) = if is_lent_for_reads {
                (Buf::copy_of(&vec![1; len]), Lending::PeerReads)
            } else {
                (Buf::with_capacity(len), Lending::PeerWrites(len))
            };
            let loan = owner.client.lend(buf, lending).await.unwrap();
            let mut remote = loan.remote();
            remote.address += u64::from(name.starts_with("beyond"));
            remote.address -= u64::from(name.starts_with("before"));
            let loan = (!name.starts_with("taken")).then_some(loan);
            if reads {
                assert!(pair.server.read_from_peer(len, &[remote]).await.is_err(), "{name}");
            } else {
                let data = Buf::copy_of(&vec![7; len]);
                pair.server.write_to_peer(data, &[remote]).await.unwrap();
                pass(&pair, 20).await;
            }
            let (_, server) = pair.streams();
            assert!(send(&server, b"more").await.is_err(), "{name}: the connection goes on");
            let noted = pair.fabric.take_violations();
            assert_eq!(noted.len(), 1, "{name}: {noted:?}");
            assert!(noted[0].ends_with(said), "{name}: {noted:?}");
            let Some(loan) = loan else { continue };
            if let Some(back) = loan.take_back().await {
                assert!(back.iter().all(|byte| *byte != 7), "{name}: the memory was changed");
            }
        }
    }
}

/// A response may invalidate the key of its request: the peer's last use of the memory.
#[tokio::test(start_paused = true)]
async fn an_invalidated_key_counts_no_more() {
    let pair = Pair::new().await;
    let loan = pair.client.lend_window(Buf::copy_of(&[1; 4096]), Lending::PeerReads).await.unwrap();
    let (_, server) = pair.streams();
    let queue = SendQueue::default();
    let key = Some(loan.remote().key);
    queue.push(OutFrame::new(Buf::copy_of(b"done")).invalidating(key));
    queue.flush(&server).await.unwrap();
    pass(&pair, 10).await;
    assert_eq!(pair.fabric.take_violations(), Vec::<String>::new());
    assert_eq!((pair.client.invalidated_with(0), pair.client.invalidated_with(0)), (key, None));
    assert!(pair.server.read_from_peer(4096, &[loan.remote()]).await.is_err());
    assert_eq!(pair.fabric.take_violations().len(), 1);
    assert_eq!(loan.take_back().await.map(|buf| buf.len()), Some(4096));
}

/// A connection that is lost in the middle of a transfer: the memory is the client's again, and late
/// packets reach nothing.
#[tokio::test(start_paused = true)]
async fn late_packets_reach_no_memory() {
    let pair = Pair::new().await;
    let room = Buf::with_capacity(4096);
    let loan = pair.client.lend(room, Lending::PeerWrites(4096)).await.unwrap();
    pair.loses[1].store(true, Ordering::SeqCst);
    pair.server.write_to_peer(Buf::copy_of(&[7; 4096]), &[loan.remote()]).await.unwrap();
    let remote = [loan.remote()];
    let read = pair.server.read_from_peer(4096, &remote);
    let lost = async {
        sleep(Duration::from_millis(50)).await;
        assert_eq!(pair.wire.lent(0), 1);
        pair.client.abort();
        assert!(pair.wire.is_over(0) && !pair.wire.is_over(1));
        let back = loan.take_back().await.unwrap();
        assert!(back.iter().all(|byte| *byte != 7));
        pair.loses[1].store(false, Ordering::SeqCst);
        // The server's device now reports that the transfer has failed, so the read ends with an
        // error.
        pair.wire.fail(1);
    };
    let (read, ()) = tokio::join!(read, lost);
    assert!(read.is_err());
    assert_eq!(pair.wire.lent(0), 0);
    assert_eq!(pair.fabric.take_violations(), Vec::<String>::new());
    let Pair { fabric, client, server, .. } = pair;
    drop((client, server));
    assert_eq!(fabric.registered_bytes(), 0);
}

/// MS-SMBD 3.1.6: a peer that does not answer is not waited for without end.
#[tokio::test(start_paused = true)]
async fn a_half_open_connection_ends() {
    let pair = Pair::new().await;
    pair.loses.iter().for_each(|way| way.store(true, Ordering::SeqCst));
    let ended = async { tokio::join!(pair.client.readable(), pair.server.readable()) };
    let ended = timeout(Duration::from_secs(300), ended).await;
    assert!(ended.is_ok(), "an end waits for ever");
}

#[tokio::test(start_paused = true)]
async fn a_loan_waits_for_memory_that_may_be_registered() {
    let fabric = Fabric::new(4 << 20);
    let [client, server] = fabric.pair([AT; 2]).unwrap();
    let client = Arc::new(client);
    let (one, other) = tokio::join!(client.established(), server.established());
    one.unwrap();
    other.unwrap();
    let lend = |len| client.lend(Buf::with_capacity(len), Lending::PeerWrites(len));
    assert!(lend(2_200_000).await.is_err(), "more than one may ever have");
    let first = lend(1_200_000).await.unwrap();
    let (second, ()) = tokio::join!(timeout(Duration::from_secs(1), lend(1_200_000)), async {
        sleep(Duration::from_millis(100)).await;
        drop(first);
    });
    drop(second.unwrap().unwrap());
    drop((client, server));
    assert_eq!(fabric.registered_bytes(), 0);
}
