//! Two endpoints over a connection in memory, and over a real RDMA device if `FREVO_RDMA_ADDRESS`
//! is its address: soft RDMA in a guest, because most hosts have none.

#![cfg(feature = "rdma")]

#[path = "rdma/credentials.rs"]
mod credentials;
#[path = "rdma/driver.rs"]
mod driver;

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
    // The runtime is dropped, which has ended all connections, so no memory may stay registered.
    assert_eq!(rdma::registered_bytes(), 0, "registered memory is left");
    let counts = rdma::counts();
    assert_eq!((counts.regions, counts.windows), (0, 0), "regions or windows are left");
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
        // The negotiation needs a task that polls each side, so both are polled until `connected`
        // may write.
        tokio::select! {
            ready = connected.writable() => ready.unwrap(),
            _ = accepted.readable() => panic!("nothing was sent"),
        }
        (accepted, connected)
    }

    /// True if the device has windows, which rxe alone has here.
    fn has_windows(&self, client: &Endpoint) -> bool {
        let is_wanted = std::env::var_os("FREVO_RDMA_RXE_WINDOWS").is_some_and(|set| set == "1");
        match self {
            Self::Memory(_) => true,
            Self::Device(_) => {
                let provider = rdma::provider_of(client.local_addr().ip());
                is_wanted && provider == Some(rdma::Provider::InfiniBand)
            }
        }
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
        // The client has ended the connection, which the server's reader reports as an end or an
        // error.
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
        let back = loan.take_back().await.unwrap();
        assert!(back[..len - 1] == pattern(len - 1));
        assert_eq!(client.transfers(), 0);
        // The key of the first loan was taken back, so the peer's read fails.
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
                        // The read is polled once, in which it gets its slot, and is then dropped.
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
                    assert!(*other.take_back().await.unwrap() == vec![byte; size], "{size}");
                }
            }
        }
        // A connection has at most 64 slots of 8 KiB.
        assert!(server.held_bytes() - held <= 64 * 8192, "{} bytes", server.held_bytes() - held);
    });
}

/// Sends a frame as the server does, which invalidates a key of the client, and receives it. Returns
/// the key that the client is told of.
async fn answered(
    server: &Stream,
    client: &Stream,
    reader: &mut FrameReader,
    frame: u64,
    key: Option<u32>,
) -> Option<u32> {
    let queue = SendQueue::default();
    queue.push(OutFrame::new(Buf::copy_of(&pattern(3000))).invalidating(key));
    let (sent, received) = tokio::join!(queue.flush(server), reader.next(client));
    sent.unwrap();
    assert!(*received.unwrap().unwrap() == pattern(3000));
    client.rdma().unwrap().invalidated_with(frame)
}

/// The peer invalidates the key of a window with its answer, or does not: afterwards the key counts
/// no more, the window and the registration serve the next request, and all is counted.
#[test]
fn a_window_is_invalidated_by_the_answer_or_by_its_owner() {
    here(&async |medium| {
        let (server, client) = used_pair(medium).await;
        let (mut reader, mut asked) = (FrameReader::new(100_000), FrameReader::new(100_000));
        let from = server.rdma().unwrap();
        let to = client.rdma().unwrap();
        let len = 100_000;
        let before = rdma::counts();
        let mut stale = Vec::new();
        for frame in 0..20 {
            let buf = Buf::with_capacity(len);
            let loan = to.lend_window(buf, Lending::PeerWrites(len)).await.unwrap();
            let remote = loan.remote();
            assert_eq!(loan.is_window(), medium.has_windows(to));
            if !loan.is_window() {
                return;
            }
            // The loan's window is bound before the request is sent, so the peer may write at once.
            let request = SendQueue::default();
            request.push(OutFrame::new(Buf::copy_of(b"request")));
            let (sent, received) = tokio::join!(request.flush(&client), asked.next(&server));
            sent.and(received.map_err(Into::into)).unwrap();
            both(from.write_to_peer(Buf::copy_of(&pattern(len)), &[remote]), to).await.0.unwrap();
            let key = (frame % 4 != 3).then_some(remote.key);
            assert_eq!(answered(&server, &client, &mut reader, frame, key).await, key);
            assert_eq!(to.invalidated_with(frame), None, "it was told of");
            assert!(*loan.take_back().await.unwrap() == pattern(len));
            assert!(!stale.contains(&remote.key), "a key is used twice");
            stale.push(remote.key);
        }
        assert_eq!(to.transfers(), 0);
        let Medium::Device(_) = medium else { return };
        let counts = rdma::counts();
        let more = |after: u64, before: u64| after - before;
        assert_eq!(more(counts.binds, before.binds), 20);
        assert_eq!(more(counts.invalidations, before.invalidations), 15);
        // The server registers memory for each of 20 transfers; at most three further registrations
        // may be for messages.
        let registrations = more(counts.registrations, before.registrations) - 20;
        assert!(registrations <= 3, "{registrations}");
        // Five of the keys were not invalidated. Their windows are freed, and new ones were made
        // instead.
        assert_eq!(more(counts.windows_made, before.windows_made), 5);
        assert_eq!(counts.windows, 0);
        // The last key is invalid, although the memory that it was for is still registered.
        let remote = [RemoteBuffer { address: 4096, key: stale[19], length: 1 }];
        assert!(both(from.read_from_peer(1, &remote), to).await.0.is_err());
    });
}

/// In a guest with `FREVO_RDMA_ADDRESS` and `FREVO_RDMA_RXE_WINDOWS=1`:
/// `cargo test -p frevo-net --features rdma --test rdma how_long -- --ignored --nocapture`
#[test]
#[ignore = "a measurement"]
#[expect(clippy::print_stdout, reason = "it is for its output")]
fn how_long_lending_takes() {
    here(&async |medium| {
        let Medium::Device(_) = medium else { return };
        let (server, client) = used_pair(medium).await;
        let (mut reader, mut asked) = (FrameReader::new(100_000), FrameReader::new(100_000));
        let to = client.rdma().unwrap();
        let mut frame = 0;
        for (len, is_window) in
            [4096, 65_536, 524_288, 1 << 20].map(|l| [(l, false), (l, true)]).concat()
        {
            let (mut took, before) = (Duration::ZERO, rdma::counts());
            for _ in 0..500 {
                let begun = std::time::Instant::now();
                let (buf, lending) = (Buf::with_capacity(len), Lending::PeerWrites(len));
                let loan = match is_window {
                    true => to.lend_window(buf, lending).await,
                    false => to.lend(buf, lending).await,
                };
                let loan = loan.unwrap();
                took += begun.elapsed();
                let request = SendQueue::default();
                request.push(OutFrame::new(Buf::copy_of(b"request")));
                let (sent, received) = tokio::join!(request.flush(&client), asked.next(&server));
                sent.and(received.map_err(Into::into)).unwrap();
                let key = loan.is_window().then_some(loan.remote().key);
                assert_eq!(answered(&server, &client, &mut reader, frame, key).await, key);
                frame += 1;
                let begun = std::time::Instant::now();
                drop(loan.take_back().await.unwrap());
                took += begun.elapsed();
            }
            let after = rdma::counts();
            println!(
                "{len} bytes, window {is_window}: {:?} to lend and take back; {} registrations, {} binds",
                took / 500,
                after.registrations - before.registrations,
                after.binds - before.binds
            );
        }
    });
}

/// Memory that stays registered for the next request is bounded, and gives way to what is needed.
#[test]
fn kept_registrations_are_bounded() {
    here(&async |medium| {
        let (server, client) = used_pair(medium).await;
        let to = client.rdma().unwrap();
        let idle = rdma::registered_bytes();
        let len = 1 << 20;
        let mut loans = Vec::new();
        for _ in 0..40 {
            let buf = Buf::with_capacity(len);
            let loan = to.lend_window(buf, Lending::PeerWrites(len)).await.unwrap();
            loans.push(loan);
        }
        let Medium::Device(_) = medium else { return };
        if !loans[0].is_window() {
            return;
        }
        assert!(rdma::registered_bytes() > idle + 40 * len);
        let mut buffers = Vec::new();
        for loan in loans {
            buffers.push(loan.take_back().await.unwrap());
        }
        let kept = rdma::registered_bytes() - idle;
        assert!(kept > 30 * len && kept <= frevo_net::limits::RDMA_KEPT_BYTES_MAX, "{kept}");
        // The loans need almost all memory of the connection, so registrations that were kept for
        // later are freed.
        let mut loans = Vec::new();
        for _ in 0..7 {
            let buf = Buf::with_capacity(8 * len);
            loans.push(to.lend(buf, Lending::PeerWrites(8 * len)).await.unwrap());
        }
        assert!(rdma::registered_bytes() <= idle + frevo_net::limits::RDMA_TRANSFER_BYTES_MAX);
        drop((loans, buffers, server));
    });
}

/// More windows than there may be: the next buffers are lent by registering them.
#[test]
fn windows_are_bounded() {
    here(&async |medium| {
        let (_server, client) = used_pair(medium).await;
        let to = client.rdma().unwrap();
        let mut loans = Vec::new();
        for _ in 0..80 {
            let buf = Buf::with_capacity(4096);
            loans.push(to.lend_window(buf, Lending::PeerWrites(4096)).await.unwrap());
            // Polling the client lets the device report the bind.
            let _ = tokio::time::timeout(Duration::from_millis(1), client.readable()).await;
        }
        let windows = loans.iter().filter(|loan| loan.is_window()).count();
        let Medium::Device(_) = medium else { return };
        let most = frevo_net::limits::RDMA_WINDOWS_MAX;
        assert_eq!(windows, if medium.has_windows(to) { most } else { 0 });
        assert_eq!(rdma::counts().windows, windows as u64);
        drop(loans);
        let _ = tokio::time::timeout(Duration::from_millis(20), client.readable()).await;
        assert_eq!((rdma::counts().windows, to.transfers()), (0, 0));
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
