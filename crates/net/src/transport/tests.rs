use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::memory::pair;

pub(crate) fn addresses() -> [SocketAddr; 2] {
    [1, 2].map(|n| SocketAddr::new(IpAddr::V4(Ipv4Addr::new(10, 0, 0, n)), 445))
}

pub(crate) fn memory(capacity: usize) -> (Stream, Stream) {
    let (a, b) = pair(capacity, addresses());
    (a.into(), b.into())
}

/// Makes a connected TCP pair on loopback.
pub(crate) async fn tcp() -> (Stream, Stream) {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let there = listener.local_addr().unwrap();
    let (client, server) = tokio::join!(Stream::connect(there), listener.accept());
    (client.unwrap(), server.unwrap().0.into())
}

pub(crate) async fn write_all(stream: &Stream, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        match stream.try_write_vectored(&[IoSlice::new(bytes)], false) {
            Ok(count) => bytes = &bytes[count..],
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.writable().await.unwrap();
            }
            Err(error) => panic!("write: {error}"),
        }
    }
}

pub(crate) async fn read_exactly(stream: &Stream, count: usize) -> Vec<u8> {
    let mut all = vec![0; count];
    let mut filled = 0;
    while filled < count {
        match stream.try_read_vectored(&mut [IoSliceMut::new(&mut all[filled..])]) {
            Ok(0) => panic!("end after {filled} of {count}"),
            Ok(more) => filled += more,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                stream.readable().await.unwrap();
            }
            Err(error) => panic!("read: {error}"),
        }
    }
    all
}

/// Reads once; the result is 0 at the end of the stream.
async fn read_once(stream: &Stream) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read_vectored(&mut [IoSliceMut::new(&mut [0; 16])]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome,
        }
    }
}

#[tokio::test]
async fn bytes_cross_both_kinds_and_ends_show() {
    for (a, b) in [tcp().await, memory(7)] {
        let sent: Vec<u8> = (0..100_000_u32).map(|n| n as u8).collect();
        let (_, got) = tokio::join!(write_all(&a, &sent), read_exactly(&b, sent.len()));
        assert_eq!(got, sent);
        a.shutdown_write().unwrap();
        assert_eq!(read_once(&b).await.unwrap(), 0);
        let (_, back) = tokio::join!(write_all(&b, b"half-closed"), read_exactly(&a, 11));
        assert_eq!(back, b"half-closed");
    }
}

#[tokio::test]
async fn a_drained_socket_is_asked_no_more_and_misses_nothing() {
    let (a, b) = tcp().await;
    for round in 0..200_u8 {
        // Each read gets less than it asked for, so the socket counts as drained. Later data, and
        // the end, must still be noticed.
        write_all(&a, &[round]).await;
        assert_eq!(read_exactly(&b, 1).await, [round]);
    }
    write_all(&a, b"x").await;
    drop(a);
    tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    assert_eq!(read_once(&b).await.unwrap(), 1);
    assert_eq!(read_once(&b).await.unwrap(), 0);
}

#[tokio::test]
async fn memory_resets_and_breaks_like_a_socket() {
    let (a, b) = memory(64);
    a.abort();
    assert_eq!(read_once(&b).await.unwrap_err().kind(), io::ErrorKind::ConnectionReset);
    let (a, b) = memory(64);
    drop(b);
    let broken = a.try_write_vectored(&[IoSlice::new(b"x")], false).unwrap_err();
    assert_eq!(broken.kind(), io::ErrorKind::BrokenPipe);
    assert_eq!(read_once(&a).await.unwrap(), 0);
}

#[tokio::test]
async fn abort_wakes_a_waiting_reader() {
    for (a, _b) in [tcp().await, memory(64)] {
        let (ended, ()) = tokio::join!(read_once(&a), async {
            tokio::task::yield_now().await;
            a.abort();
        });
        assert!(matches!(ended, Ok(0) | Err(_)));
    }
}

#[tokio::test]
async fn memory_ends_know_their_names() {
    let (a, b) = memory(1);
    let [first, second] = addresses();
    assert_eq!((a.local_addr().unwrap(), a.peer_addr().unwrap()), (first, second));
    assert_eq!((b.local_addr().unwrap(), b.peer_addr().unwrap()), (second, first));
}

#[test]
fn a_connection_moves_to_another_runtime() {
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (here, there) = (runtime(), runtime());
    let (a, moved) = here.block_on(async {
        let (a, b) = tcp().await;
        write_all(&a, b"before").await;
        assert_eq!(read_exactly(&b, 3).await, b"bef");
        (a, b.detach().unwrap())
    });
    let moved = std::thread::spawn(move || {
        there.block_on(async {
            let b = moved.attach().unwrap();
            let got = read_exactly(&b, 3).await;
            write_all(&b, b"after").await;
            (got, b.detach().unwrap())
        })
    });
    let (got, _open) = moved.join().unwrap();
    assert_eq!(got, b"ore");
    assert_eq!(here.block_on(read_exactly(&a, 5)), b"after");
}

/// A network with one listener, on the host "here".
#[derive(Debug)]
struct OneHost(Door);

impl Network for OneHost {
    fn connect<'a>(&'a self, host: &'a str, _: u16) -> Connecting<'a> {
        Box::pin(async move {
            if host != "here" {
                return Err(io::ErrorKind::NotFound.into());
            }
            let (ours, theirs) = pair(64, addresses());
            self.0.send(Detached::Memory(theirs))?;
            Ok(ours.into())
        })
    }
}

#[tokio::test]
async fn each_dialer_reaches_the_listener_of_its_transport() {
    let (memory, door) = MemoryListener::new();
    let tcp = crate::socket::Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let port = tcp.local_addr().unwrap().port();
    let network = Dialer::Memory(Arc::new(OneHost(door)));
    for (listener, dialer, host) in
        [(Listener::from(tcp), Dialer::Tcp, "localhost"), (Listener::from(memory), network, "here")]
    {
        let (dialed, accepted) = tokio::join!(dialer.dial(host, Some(port)), listener.accept());
        let (client, (server, peer)) = (dialed.unwrap(), accepted.unwrap());
        let server = server.attach().unwrap();
        assert_eq!(peer, client.local_addr().unwrap());
        let (_, got) = tokio::join!(write_all(&client, b"first"), read_exactly(&server, 5));
        assert_eq!(got, b"first");
        for stream in [&client, &server] {
            let transport = stream.transport();
            assert_eq!(transport, listener.transport());
            assert_eq!(transport, dialer.transport());
            assert_eq!(stream.socket().is_some(), transport.facts().has_descriptor);
            assert_eq!(stream.rdma().is_some(), transport.facts().moves_data);
        }
    }
    let unbuilt = Dialer::Rdma.dial("127.0.0.1", Some(port)).await.err().unwrap();
    let is_built = crate::rdma::IS_BUILT;
    assert!(is_built || unbuilt.kind() == io::ErrorKind::Unsupported, "{unbuilt}");
}

#[tokio::test]
async fn a_listener_in_memory_refuses_what_it_does_not_accept() {
    let (listener, door) = MemoryListener::new();
    let network = OneHost(door);
    let dial = |host| Network::connect(&network, host, 445);
    assert_eq!(dial("there").await.err().unwrap().kind(), io::ErrorKind::NotFound);
    for waiting in 0..crate::limits::LISTEN_BACKLOG {
        assert!(dial("here").await.is_ok(), "{waiting} wait");
    }
    assert_eq!(dial("here").await.err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
    listener.accept().await.unwrap();
    assert!(dial("here").await.is_ok(), "there is room again");
    drop(listener);
    assert_eq!(dial("here").await.err().unwrap().kind(), io::ErrorKind::ConnectionRefused);
}

/// A network that remembers the port of the last connection.
#[derive(Debug)]
struct Ports(Transport, parking_lot::Mutex<u16>);

impl Network for Ports {
    fn connect<'a>(&'a self, _: &'a str, port: u16) -> Connecting<'a> {
        *self.1.lock() = port;
        Box::pin(async { Err(io::ErrorKind::ConnectionRefused.into()) })
    }

    fn transport(&self) -> Transport {
        self.0
    }
}

#[tokio::test]
async fn without_a_port_the_usual_one_of_the_transport_is_dialled() {
    for (transport, usual) in [(Transport::Memory, 445), (Transport::SecureMemory, 443)] {
        let network = Arc::new(Ports(transport, parking_lot::Mutex::default()));
        let dialer = Dialer::Memory(Arc::clone(&network) as _);
        for (port, dialled) in [(None, usual), (Some(445), 445), (Some(4450), 4450)] {
            assert!(dialer.dial("here", port).await.is_err());
            assert_eq!(*network.1.lock(), dialled, "{transport:?}");
        }
    }
}

#[test]
fn an_end_says_which_transport_it_stands_for() {
    let (plain, secure) = pair(1, addresses());
    let secure = secure.secure_by_itself();
    assert_eq!(Stream::Memory(plain).transport(), Transport::Memory);
    let detached = Stream::Memory(secure).detach().unwrap();
    assert_eq!(detached.transport(), Transport::SecureMemory);
    let facts = detached.attach().unwrap().transport().facts();
    assert_eq!((facts.is_secure, facts.port), (true, 443));
    for transport in [Transport::Tcp, Transport::Rdma, Transport::Memory] {
        assert!(!transport.facts().is_secure, "{transport:?}");
    }
}

/// Bytes that nobody reads hide no end.
#[tokio::test]
async fn an_end_behind_unread_bytes_is_noticed() {
    for (near, far) in [memory(64), tcp().await] {
        write_all(&far, b"unread").await;
        near.readable().await.unwrap();
        assert!(futures_util::poll!(pin!(near.ended())).is_pending());
        drop(far);
        near.ended().await;
        assert!(near.has_ended());
        assert_eq!(read_exactly(&near, 6).await, b"unread");
    }
}
