use std::io::IoSlice;

use super::*;
use crate::transport::tests::{memory, read_exactly, write_all};

fn local(port: u16) -> SocketAddr {
    SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port)
}

#[tokio::test]
async fn accepted_and_connected_streams_are_prepared() {
    let listener = Listener::bind(local(0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (client, accepted) = tokio::join!(connect(address, None), listener.accept());
    let (server, peer) = accepted.unwrap();
    let (client, server) = (client.unwrap(), server.attach().unwrap());
    assert_eq!(client.local_addr().unwrap(), peer);
    assert_eq!(server.peer_addr().unwrap(), peer);
    for stream in [&client, &server] {
        let socket = stream.socket().unwrap();
        assert!(sockopt::tcp_nodelay(socket).unwrap());
        assert!(sockopt::socket_keepalive(socket).unwrap());
        assert_eq!(sockopt::tcp_keepidle(socket).unwrap(), KEEPALIVE_IDLE);
        let flags = rustix::io::fcntl_getfd(socket).unwrap();
        assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
    }
    let patience = sockopt::tcp_user_timeout(server.socket().unwrap()).unwrap();
    assert_eq!(Duration::from_millis(patience.into()), SEND_UNACKNOWLEDGED_TIMEOUT);
    write_all(&client, b"hello").await;
    assert_eq!(read_exactly(&server, 5).await, b"hello");
}

#[tokio::test]
async fn a_channel_leaves_from_the_address_it_is_told() {
    let listener = Listener::bind(local(0)).unwrap();
    let address = listener.local_addr().unwrap();
    let from = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 9));
    let (client, accepted) = tokio::join!(connect(address, Some(from)), listener.accept());
    client.unwrap();
    assert_eq!(accepted.unwrap().1.ip(), from);
}

#[tokio::test]
async fn both_families_listen_side_by_side() {
    let six = match Listener::bind(SocketAddr::new(Ipv6Addr::LOCALHOST.into(), 0)) {
        Ok(listener) => listener,
        Err(error) if error.kind() == io::ErrorKind::AddrNotAvailable => return,
        Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => return,
        Err(error) => panic!("{error}"),
    };
    let port = six.local_addr().unwrap().port();
    let any = SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), port);
    let _four = Listener::bind(any).unwrap();
    assert_eq!(Listener::bind(any).err().unwrap().kind(), io::ErrorKind::AddrInUse);
}

#[tokio::test]
async fn a_dropped_accept_loses_no_connection() {
    let listener = Listener::bind(local(0)).unwrap();
    let address = listener.local_addr().unwrap();
    for _ in 0..10 {
        tokio::select! {
            biased;
            _ = listener.accept() => panic!("nobody has connected"),
            () = tokio::task::yield_now() => {}
        }
        let (client, accepted) = tokio::join!(connect(address, None), listener.accept());
        client.unwrap();
        accepted.unwrap();
    }
}

#[tokio::test]
async fn facts_show_what_the_peer_has_not_taken() {
    let listener = Listener::bind(local(0)).unwrap();
    let address = listener.local_addr().unwrap();
    let (client, accepted) = tokio::join!(connect(address, None), listener.accept());
    let (client, server) = (client.unwrap(), accepted.unwrap().0.attach().unwrap());
    // Nobody reads, so the peer's kernel acknowledges data only until its receive buffer is full.
    let block = [0; 65_536];
    while client.try_write_vectored(&[IoSlice::new(&block)], false).is_ok() {}
    let facts = client.facts().unwrap();
    assert!(facts.unacknowledged_bytes > 0);
    assert!(facts.rto >= Duration::from_millis(1) && facts.rto < Duration::from_secs(120));
    assert!(facts.rtt > Duration::ZERO);
    assert_eq!(server.facts().unwrap().unacknowledged_bytes, 0);
    assert!(server.unread_bytes() > 0 && client.unread_bytes() == 0);
    let (a, b) = memory(100);
    write_all(&a, &[0; 30]).await;
    assert_eq!(a.unacknowledged_bytes().unwrap(), 30);
    assert_eq!((a.unread_bytes(), b.unread_bytes()), (0, 30));
    read_exactly(&b, 30).await;
    assert_eq!(a.facts().unwrap().unacknowledged_bytes, 0);
}

#[tokio::test]
async fn a_widened_window_holds_more_and_one_byte_wakes_a_reader() {
    let listener = Listener::bind(local(0)).unwrap();
    let address = listener.local_addr().unwrap();
    let mut held = Vec::new();
    for wanted in [None, Some(2 << 20)] {
        let (client, accepted) = tokio::join!(connect(address, None), listener.accept());
        let (client, server) = (client.unwrap(), accepted.unwrap().0.attach().unwrap());
        if let Some(bytes) = wanted {
            server.widen_receive_window(bytes).unwrap();
            write_all(&client, b"x").await;
            tokio::time::timeout(Duration::from_secs(10), read_exactly(&server, 1)).await.unwrap();
        }
        let block = [0; 65_536];
        while client.try_write_vectored(&[IoSlice::new(&block)], false).is_ok() {}
        held.push(server.unread_bytes());
    }
    assert!(held[0] < 1 << 20 && held[1] >= 3 << 19, "{held:?}");
}

#[test]
fn mapped_addresses_are_what_they_map() {
    let four = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
    assert_eq!(unmapped("::ffff:192.0.2.1".parse().unwrap()), four);
    assert_eq!(unmapped(four), four);
    let six: IpAddr = "2001:db8::1".parse().unwrap();
    assert_eq!(unmapped(six), six);
    assert!(is_reachable(six) && is_reachable(four));
    assert!(!is_reachable("0.0.0.0".parse().unwrap()));
    assert!(!is_reachable("ff02::1".parse().unwrap()));
}
