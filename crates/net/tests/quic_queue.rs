//! The memory of datagrams for a connection whose core is busy. One test alone: the count is of the process.
#![allow(missing_docs, reason = "tests")]

use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::time::{Duration, SystemTime};

use frevo_net::buffer::budget;
use frevo_net::limits::QUIC_QUEUED_BYTES_NEW;
use frevo_net::quic::{Clients, Connector, Identity, Listener, ServerTls, Trust, Wanted, issue};
use frevo_net::transport::Stream;
use tokio::runtime::{Builder, Runtime};

/// Copies of each datagram of the client that arrive while the server's core is busy.
const COPIES: usize = 500;

fn runtime() -> Runtime {
    Builder::new_current_thread().enable_all().build().unwrap()
}

async fn read(stream: &Stream) -> Vec<u8> {
    let mut bytes = vec![0; 64];
    loop {
        match stream.try_read_vectored(&mut [IoSliceMut::new(&mut bytes)]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.readable().await.unwrap();
            }
            outcome => {
                bytes.truncate(outcome.unwrap());
                return bytes;
            }
        }
    }
}

/// A relay that has one client, and returns the address for it.
fn relay(server: SocketAddr, copies: std::sync::mpsc::Receiver<usize>) -> SocketAddr {
    let near = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let far = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    far.connect(server).unwrap();
    let address = near.local_addr().unwrap();
    let (answers, to) = (far.try_clone().unwrap(), near.try_clone().unwrap());
    let client = std::sync::Arc::new(std::sync::OnceLock::new());
    let known = std::sync::Arc::clone(&client);
    std::thread::spawn(move || {
        let mut bytes = [0; 2048];
        while let Ok(count) = answers.recv(&mut bytes) {
            let _ = to.send_to(&bytes[..count], *known.wait());
        }
    });
    std::thread::spawn(move || {
        let (mut bytes, mut times) = ([0; 2048], 1);
        while let Ok((count, from)) = near.recv_from(&mut bytes) {
            let _ = client.set(from);
            times = copies.try_recv().unwrap_or(times);
            for at in 0..times {
                let _ = far.send(&bytes[..count]);
                // The listener has time to take them out of its socket.
                if at % 50 == 49 {
                    std::thread::sleep(Duration::from_millis(2));
                }
            }
        }
    });
    address
}

#[test]
fn a_busy_core_keeps_few_datagrams_and_the_connection_goes_on() {
    let wanted = Wanted {
        common_name: String::from("here"),
        hosts: vec![String::from("localhost")],
        is_authority: false,
        since: SystemTime::now() - Duration::from_secs(60),
        lasts: Duration::from_secs(3_600),
    };
    let own = issue(&wanted, None).unwrap();
    let identity = Identity::from_pem(own.certificate.as_bytes(), own.key.as_bytes()).unwrap();
    // The client and the socket of the server have a thread that always runs, and the core has its turns.
    let [front, core] = [runtime(), runtime()];
    let listener = front.block_on(async {
        let socket = Listener::socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        Listener::new(socket, ServerTls { identity, clients: Clients::Anonymous }).unwrap()
    });
    let (copies, times) = std::sync::mpsc::channel();
    let at = relay(listener.local_addr(), times);
    let connector = Connector::new(Trust::Pinned(vec![own.fingerprint]), None).unwrap();
    let (to_core, from_front) = std::sync::mpsc::channel();
    let turns = std::thread::spawn(move || {
        let detached: frevo_net::quic::Detached = from_front.recv().unwrap();
        let stream = core.block_on(async { Stream::Quic(Box::new(detached.attach().unwrap())) });
        assert_eq!(core.block_on(read(&stream)), b"!");
        (core, stream)
    });
    let client = front.block_on(async {
        let accepting = async { to_core.send(listener.accept().await).unwrap() };
        let (client, ()) = tokio::join!(connector.connect(at, "localhost"), accepting);
        let client = Stream::Quic(Box::new(client.unwrap()));
        client.try_write_vectored(&[IoSlice::new(b"!")], false).unwrap();
        // The packet leaves with the next poll of the connection's task.
        tokio::time::sleep(Duration::from_millis(100)).await;
        client
    });
    while !turns.is_finished() {
        front.block_on(async { tokio::time::sleep(Duration::from_millis(5)).await });
    }
    let (core, server) = turns.join().unwrap();
    let before = budget::in_use();
    copies.send(COPIES).unwrap();
    front.block_on(async {
        let chunk = [7; 1_000];
        for _ in 0..8 {
            client.try_write_vectored(&[IoSlice::new(&chunk)], false).unwrap();
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    let kept = budget::in_use() - before;
    assert!(kept <= QUIC_QUEUED_BYTES_NEW, "{kept}");
    assert!(kept > QUIC_QUEUED_BYTES_NEW / 2, "{kept} of more than a million");
    copies.send(1).unwrap();
    let front = std::thread::spawn(move || {
        front.block_on(async { tokio::time::sleep(Duration::from_secs(2)).await });
        (front, client, listener)
    });
    let mut got = 0;
    while got < 8_000 {
        got += core.block_on(read(&server)).iter().filter(|byte| **byte == 7).count();
    }
    assert_eq!(got, 8_000);
    drop(front.join().unwrap());
}
