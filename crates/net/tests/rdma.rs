//! Two endpoints over a connection in memory, and over a real RDMA device if `FREVO_RDMA_ADDRESS`
//! is its address: soft RDMA in a guest, because most hosts have none.

#![cfg(feature = "rdma")]

use std::io::{IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use frevo_net::rdma::{self, Endpoint, Fabric, Lending, Listener, RemoteBuffer};
use frevo_net::{Buf, FrameReader, OutFrame, SendQueue, Stream};

/// The place where connections are made.
enum Medium {
    Device(Listener),
    Memory(Arc<Fabric>),
}

fn here(test: &impl AsyncFn(&Medium)) {
    let fabric = Fabric::new(1 << 30);
    run(async || test(&Medium::Memory(Arc::clone(&fabric))).await);
    assert_eq!(fabric.registered_bytes(), 0, "registered memory is left");
    let Ok(text) = std::env::var("FREVO_RDMA_ADDRESS") else { return };
    let address: IpAddr = text.parse().unwrap();
    run(async || {
        let listener = Listener::bind(&[SocketAddr::new(address, 0)]);
        test(&Medium::Device(listener.map_err(|(_, error)| error).unwrap())).await;
    });
    // Connections end on other threads.
    assert_eq!(rdma::registered_bytes(), 0, "registered memory is left");
}

fn run(test: impl AsyncFnOnce()) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let test = async { tokio::time::timeout(Duration::from_secs(15), test()).await };
    runtime.block_on(test).expect("the test takes too long");
}

impl Medium {
    /// Makes a connection: the server's end and the client's.
    async fn pair(&self) -> (Stream, Stream) {
        let (accepted, connected) = match self {
            Self::Device(listener) => {
                let accepting = async {
                    let (detached, _) = listener.accept().await.unwrap();
                    frevo_net::transport::Detached::Rdma(Box::new(detached)).attach().unwrap()
                };
                let connecting = rdma::connect(listener.addresses()[0]);
                let (accepted, connected) = tokio::join!(accepting, connecting);
                (accepted, connected.unwrap())
            }
            Self::Memory(fabric) => {
                let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
                let [client, server] = fabric.pair([at(50_000), at(445)]).unwrap();
                (Stream::Rdma(Arc::new(server)), client)
            }
        };
        let connected = Stream::Rdma(Arc::new(connected));
        // Both sides negotiate while somebody waits for them.
        tokio::select! {
            ready = connected.writable() => ready.unwrap(),
            _ = accepted.readable() => panic!("nothing was sent"),
        }
        (accepted, connected)
    }

    /// Waits for `done` while the events of connections are taken.
    async fn hear<T>(&self, done: impl Future<Output = T>) -> T {
        let Self::Device(listener) = self else { return done.await };
        tokio::select! {
            biased;
            done = done => done,
            _ = listener.accept() => panic!("nobody connects"),
        }
    }
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8).collect()
}

#[test]
fn frames_travel_both_ways() {
    here(&async |medium| {
        let (server, client) = medium.pair().await;
        for (from, to) in [(&client, &server), (&server, &client), (&client, &server)] {
            let queue = SendQueue::default();
            let lengths = [1, 100, 1340, 1341, 5000, 100_000, 1 << 20, 7];
            for len in lengths {
                queue.push(OutFrame::new(Buf::copy_of(&pattern(len))));
            }
            let reading = async {
                let mut reader = FrameReader::new(2 << 20);
                for len in lengths {
                    let frame = reader.next(to).await.unwrap().unwrap();
                    assert!(*frame == pattern(len), "{len}");
                }
            };
            let (sent, ()) = tokio::join!(queue.flush(from), reading);
            sent.unwrap();
        }
    });
}

#[test]
fn a_peer_that_leaves_ends_the_stream() {
    here(&async |medium| {
        let (server, client) = medium.pair().await;
        let queue = SendQueue::default();
        queue.push(OutFrame::new(Buf::copy_of(b"last words")));
        queue.flush(&client).await.unwrap();
        let mut reader = FrameReader::new(100);
        assert_eq!(reader.next(&server).await.unwrap().as_deref(), Some(&b"last words"[..]));
        drop(client);
        // The listener is told of the end.
        let end = medium.hear(reader.next(&server)).await;
        assert!(matches!(end, Ok(None) | Err(_)));
    });
}

#[test]
fn a_connection_moves_to_another_core() {
    here(&async |medium| {
        let (server, client) = medium.pair().await;
        let detached = server.detach().unwrap();
        let there = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let server = detached.attach().unwrap();
                let mut reader = FrameReader::new(100_000);
                reader.next(&server).await.unwrap().unwrap().to_vec()
            })
        });
        let queue = SendQueue::default();
        queue.push(OutFrame::new(Buf::copy_of(&pattern(50_000))));
        queue.flush(&client).await.unwrap();
        let arrived = async {
            while !there.is_finished() {
                let _ = tokio::time::timeout(Duration::from_millis(10), client.readable()).await;
            }
        };
        arrived.await;
        assert!(there.join().unwrap() == pattern(50_000));
    });
}

/// A pair over which a frame has travelled.
async fn used_pair(medium: &Medium) -> (Stream, Stream) {
    let (server, client) = medium.pair().await;
    let queue = SendQueue::default();
    queue.push(OutFrame::new(Buf::copy_of(b"hello")));
    queue.flush(&client).await.unwrap();
    let mut reader = FrameReader::new(100);
    reader.next(&server).await.unwrap();
    (server, client)
}

/// A key that was never given out ends the connection, and the transfer with it.
#[test]
fn an_unknown_key_ends_the_connection() {
    here(&async |medium| {
        let (server, client) = used_pair(medium).await;
        let endpoint: &Endpoint = server.rdma().unwrap();
        let nowhere = [RemoteBuffer { address: 4096, key: 0x1234, length: 4096 }];
        let read = endpoint.read_from_peer(4096, &nowhere);
        let (read, _) = tokio::join!(read, client.readable());
        assert!(read.is_err());
        let mut byte = [0];
        assert!(server.try_read_vectored(&mut [IoSliceMut::new(&mut byte)]).is_err());
        assert!(server.try_write_vectored(&[IoSlice::new(&[0, 0, 0, 1, 7])], false).is_err());
        assert!(endpoint.read_from_peer(4097, &nowhere).await.is_err(), "longer than its buffer");
    });
}

/// A client's memory, which the server uses by its key until it is taken back.
#[test]
fn a_peer_uses_what_is_lent_to_it_and_no_more() {
    here(&async |medium| {
        let (server, client) = used_pair(medium).await;
        let (server, client) = (server.rdma().unwrap(), client.rdma().unwrap());
        let len = 300_000;
        let data = Buf::copy_of(&pattern(len));
        let loan = client.lend(data, Lending::PeerReads).await.unwrap();
        let remote = [loan.remote()];
        let (read, _) = both(server.read_from_peer(len, &remote), client).await;
        assert!(*read.unwrap() == pattern(len));
        assert!(client.held_bytes() > len);
        drop(loan);
        let room = Buf::with_capacity(len);
        let loan = client.lend(room, Lending::PeerWrites(len)).await.unwrap();
        let remote_room = [loan.remote()];
        let written = server.write_to_peer(Buf::copy_of(&pattern(len - 1)), &remote_room);
        both(written, client).await.0.unwrap();
        while server.transfers() > 0 {
            let _ = tokio::time::timeout(Duration::from_millis(10), server.readable()).await;
        }
        let back = loan.take_back().unwrap();
        assert!(back[..len - 1] == pattern(len - 1));
        assert_eq!(client.transfers(), 0);
        // The key of the first loan counts no more.
        let (read, _) = both(server.read_from_peer(len, &remote), client).await;
        assert!(read.is_err());
    });
}

/// Small data is copied through memory that stays registered. More transfers at a time than that has
/// slots, each with bytes of its own, and some of them abandoned.
#[test]
fn small_transfers_carry_their_own_bytes() {
    here(&async |medium| {
        let (server, client) = used_pair(medium).await;
        let (server, client) = (server.rdma().unwrap(), client.rdma().unwrap());
        let held = server.held_bytes();
        for round in 0..3_usize {
            for size in [1, 4095, 4096, 8192, 8193] {
                let tasks = (0..70_usize).map(|number| async move {
                    let byte = u8::try_from((round * 70 + number) % 251).unwrap();
                    let loan = client.lend(Buf::copy_of(&vec![byte; size]), Lending::PeerReads);
                    let loan = loan.await.unwrap();
                    let remote = [loan.remote()];
                    let read = server.read_from_peer(size, &remote);
                    if number % 10 == 9 {
                        // It has its slot, and nobody waits for it.
                        drop(tokio::time::timeout(Duration::ZERO, read).await);
                    } else {
                        assert!(*read.await.unwrap() == vec![byte; size], "{size}");
                    }
                    let room = Buf::with_capacity(size);
                    let other = client.lend(room, Lending::PeerWrites(size)).await.unwrap();
                    let remote = [other.remote()];
                    server.write_to_peer(Buf::copy_of(&vec![!byte; size]), &remote).await.unwrap();
                    (loan, other, !byte)
                });
                let (lent, ()) = both(futures_util::future::join_all(tasks), client).await;
                while server.transfers() > 0 {
                    let _ =
                        tokio::time::timeout(Duration::from_millis(10), server.readable()).await;
                }
                for (loan, other, byte) in lent {
                    drop(loan);
                    assert!(*other.take_back().unwrap() == vec![byte; size], "{size}");
                }
            }
        }
        // 64 slots of 8 KiB at most.
        assert!(server.held_bytes() - held <= 64 * 8192, "{} bytes", server.held_bytes() - held);
    });
}

/// Waits for `done` while the other side looks after its device.
async fn both<T>(done: impl Future<Output = T>, other: &Endpoint) -> (T, ()) {
    tokio::select! {
        done = done => (done, ()),
        () = async {
            loop {
                let _ = other.readable().await;
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        } => unreachable!("it waits for ever"),
    }
}

#[test]
fn connections_that_come_and_go_leave_nothing() {
    here(&async |medium| {
        for _ in 0..20 {
            let (server, client) = medium.pair().await;
            let queue = SendQueue::default();
            queue.push(OutFrame::new(Buf::copy_of(b"hello")));
            queue.flush(&client).await.unwrap();
            let mut reader = FrameReader::new(100);
            reader.next(&server).await.unwrap();
            client.abort();
        }
    });
}
