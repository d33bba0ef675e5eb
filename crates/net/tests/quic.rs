//! Connections of QUIC over loopback.
#![allow(missing_docs, reason = "tests")]

use std::any::Any;
use std::io::{self, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use frevo_net::buffer::Buf;
use frevo_net::cores::{Cores, CoresConfig};
use frevo_net::limits::{
    QUIC_CHAIN_CERTIFICATES_MAX, QUIC_HANDSHAKES_MAX, QUIC_HANDSHAKES_UNPROVEN_MAX,
    QUIC_LOCAL_DATAGRAM, QUIC_RECEIVE_WINDOW_NEW, QUIC_SEND_WINDOW, QUIC_SEND_WINDOW_NEW,
    QUIC_WINDOW_SCARCE,
};
use frevo_net::quic::{
    AccessList, Allowance, Certificates, Clients, Connector, Decision, Fingerprint, Identity,
    Issued, Listener, Port, ServerTls, Trust, Verdict, Wanted, issue,
};
use frevo_net::send_queue::{OutFrame, SendLimits, SendQueue};
use frevo_net::transport::{self, Dialer, Stream, Transport};
use tokio::net::UdpSocket;

async fn write_all(stream: &Stream, mut bytes: &[u8]) {
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

async fn read_exactly(stream: &Stream, count: usize) -> Vec<u8> {
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

fn wanted(common_name: &str, is_authority: bool) -> Wanted {
    Wanted {
        common_name: common_name.to_owned(),
        hosts: vec![String::from("127.0.0.1"), String::from("localhost")],
        is_authority,
        since: SystemTime::now() - Duration::from_secs(3_600),
        lasts: Duration::from_secs(86_400),
    }
}

/// An authority, and a certificate below it.
fn chain(name: &str) -> (Issued, Issued) {
    let authority = issue(&wanted(&format!("authority of {name}"), true), None).unwrap();
    let leaf = issue(&wanted(name, false), Some(&authority)).unwrap();
    (authority, leaf)
}

fn identity(issued: &Issued) -> Identity {
    Identity::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap()
}

fn certificates(issued: &[&Issued]) -> Certificates {
    let all: String = issued.iter().map(|one| one.certificate.as_str()).collect();
    Certificates::from_pem(all.as_bytes()).unwrap()
}

fn listen(tls: ServerTls) -> transport::Listener {
    let socket = Listener::socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    Listener::new(socket, tls).unwrap().into()
}

fn port(listener: &transport::Listener) -> u16 {
    let transport::Listener::Quic(listener) = listener else { panic!("no QUIC") };
    listener.local_addr().port()
}

fn anonymous(identity: Identity) -> ServerTls {
    ServerTls { identity, clients: Clients::Anonymous }
}

async fn accept(listener: &transport::Listener) -> Stream {
    listener.accept().await.unwrap().0.attach().unwrap()
}

/// Connects, and lets the server know of it by a first byte.
async fn connect(trust: Trust, identity: Option<Identity>, port: u16) -> io::Result<Stream> {
    let dialer = Dialer::Quic(Connector::new(trust, identity).unwrap());
    let stream = dialer.dial("127.0.0.1", Some(port)).await?;
    write_all(&stream, b"!").await;
    Ok(stream)
}

/// A connected pair.
async fn pair() -> (Stream, Stream) {
    let own = issue(&wanted("here", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let trust = Trust::Pinned(vec![own.fingerprint]);
    let (client, server) = tokio::join!(connect(trust, None, port(&listener)), async {
        let server = accept(&listener).await;
        assert_eq!(read_exactly(&server, 1).await, b"!");
        server
    });
    // The listener's task goes on while connections exist.
    (client.unwrap(), server)
}

async fn read_end(stream: &Stream) -> io::Result<usize> {
    loop {
        stream.readable().await?;
        match stream.try_read_vectored(&mut [IoSliceMut::new(&mut [0; 16])]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            outcome => return outcome,
        }
    }
}

#[tokio::test]
async fn bytes_cross_and_the_end_shows() {
    let (client, server) = pair().await;
    assert_eq!(client.transport(), Transport::Quic);
    assert_eq!(client.peer_addr().unwrap(), server.local_addr().unwrap());
    let sent: Vec<u8> = (0..3_000_000_u32).map(|n| (n % 251) as u8).collect();
    let (_, got) = tokio::join!(write_all(&client, &sent), read_exactly(&server, sent.len()));
    assert_eq!(got, sent);
    let (_, got) = tokio::join!(write_all(&server, &sent), read_exactly(&client, sent.len()));
    assert_eq!(got, sent);
    client.shutdown_write().unwrap();
    assert_eq!(read_end(&server).await.unwrap(), 0);
    write_all(&server, b"half-closed").await;
    assert_eq!(read_exactly(&client, 11).await, b"half-closed");
}

/// The loopback takes long datagrams. A path that drops them, here a relay with short buffers, has short ones.
#[tokio::test]
async fn datagrams_of_the_loopback_become_long() {
    let (client, server) = pair().await;
    while [&client, &server].iter().any(|it| datagram_bytes(it) < QUIC_LOCAL_DATAGRAM.into()) {
        let sent = [7; 100_000];
        let (_, got) = tokio::join!(write_all(&client, &sent), read_exactly(&server, sent.len()));
        assert_eq!(got, sent);
        let (_, got) = tokio::join!(write_all(&server, &sent), read_exactly(&client, sent.len()));
        assert_eq!(got, sent);
    }
    let (client, server, _allowed) = allowed_pair(usize::MAX, Arc::default()).await;
    for _ in 0..20 {
        write_all(&client, &[7; 20_000]).await;
        read_exactly(&server, 20_000).await;
    }
    assert!(datagram_bytes(&client) <= RELAYED_BYTES && datagram_bytes(&server) <= RELAYED_BYTES);
}

fn datagram_bytes(stream: &Stream) -> usize {
    stream.quic().unwrap().datagram_bytes()
}

/// The connection keeps the buffers of a queue until the peer has them, and the queue counts them no more.
#[tokio::test]
async fn buffers_of_a_queue_are_given_and_not_copied() {
    let (client, server) = pair().await;
    let queue = SendQueue::new(SendLimits::default());
    let mut wanted = Vec::new();
    for (at, len) in (1_u8..).zip([10, 200_000, 3, 16 << 10, 70_000]) {
        let [head, tail] = [vec![at; 7], vec![!at; len]];
        wanted.extend_from_slice(&u32::try_from(7 + len).unwrap().to_be_bytes());
        wanted.extend_from_slice(&[&*head, &*tail].concat());
        queue.push(OutFrame::with_tail(Buf::copy_of(&head), Buf::copy_of(&tail)));
    }
    let (sent, got) = tokio::join!(queue.flush(&server), read_exactly(&client, wanted.len()));
    sent.unwrap();
    assert_eq!(got, wanted);
    assert_eq!(queue.held_bytes(), 0);
}

#[tokio::test]
async fn the_last_bytes_arrive_before_the_end() {
    let (client, server) = pair().await;
    write_all(&client, &[7; 30_000]).await;
    drop(client);
    assert_eq!(read_exactly(&server, 30_000).await, [7; 30_000]);
    assert_eq!(read_end(&server).await.unwrap(), 0);
    server.ended().await;
    assert!(server.has_ended());
}

/// A client whose runtime ends tells the server before its packets would have nobody to send them.
#[tokio::test]
async fn a_client_that_ends_tells_at_once() {
    let own = issue(&wanted("here", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let (trust, port) = (Trust::Pinned(vec![own.fingerprint]), port(&listener));
    let client = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stream = runtime.block_on(connect(trust, None, port)).unwrap();
        drop(runtime);
        drop(stream);
    });
    let server = accept(&listener).await;
    assert_eq!(read_exactly(&server, 1).await, b"!");
    assert_eq!(read_end(&server).await.unwrap(), 0);
    server.ended().await;
    client.join().unwrap();
}

/// A stop of a core waits within its grace until the peers have the last bytes, though their tasks have
/// ended.
#[tokio::test]
async fn a_stop_of_a_core_waits_for_the_last_bytes() {
    const LEN: usize = 2_000_000;
    let own = issue(&wanted("here", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let trust = Trust::Pinned(vec![own.fingerprint]);
    let config = CoresConfig { count: 1, ..CoresConfig::default() };
    let cores = Cores::start(&config).unwrap();
    let (client, ()) = tokio::join!(connect(trust, None, port(&listener)), async {
        let detached = listener.accept().await.unwrap().0;
        let served = cores.handles()[0].run(move || async move {
            let stream = detached.attach().unwrap();
            assert_eq!(read_exactly(&stream, 1).await, b"!");
            write_all(&stream, &vec![7; LEN]).await;
        });
        served.await.unwrap();
        // Only the task that awaits this one goes on, which reads.
        std::thread::spawn(move || cores.stop(Duration::from_secs(60)));
    });
    assert!(read_exactly(&client.unwrap(), LEN).await.iter().all(|byte| *byte == 7));
}

/// Bytes of the longest datagram that a relay hands on whole.
const RELAYED_BYTES: usize = 2_048;

/// A relay of datagrams to a port on loopback, which stops once `is_dead`. Returns its own port.
async fn relay(port: u16, is_dead: Arc<AtomicBool>) -> u16 {
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let [near, far] = [UdpSocket::bind(at).await.unwrap(), UdpSocket::bind(at).await.unwrap()];
    far.connect((Ipv4Addr::LOCALHOST, port)).await.unwrap();
    let own = near.local_addr().unwrap().port();
    tokio::spawn(async move {
        let (mut client, mut there, mut back) = (None, [0; RELAYED_BYTES], [0; RELAYED_BYTES]);
        loop {
            tokio::select! {
                came = near.recv_from(&mut there) => {
                    let (count, from) = came.unwrap();
                    client = Some(from);
                    if !is_dead.load(Ordering::Relaxed) {
                        far.send(&there[..count]).await.unwrap();
                    }
                }
                came = far.recv(&mut back) => {
                    let Some(client) = client.filter(|_| !is_dead.load(Ordering::Relaxed)) else {
                        continue;
                    };
                    near.send_to(&back[..came.unwrap()], client).await.unwrap();
                }
            }
        }
    });
    own
}

/// A server learns that a break of a lease has not arrived: it tells its client over another channel.
#[tokio::test]
async fn bytes_for_a_dead_peer_stay_unacknowledged() {
    let own = issue(&wanted("here", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let is_dead = Arc::new(AtomicBool::new(false));
    let port = relay(port(&listener), Arc::clone(&is_dead)).await;
    let trust = Trust::Pinned(vec![own.fingerprint]);
    let (client, server) = tokio::join!(connect(trust, None, port), async {
        let server = accept(&listener).await;
        assert_eq!(read_exactly(&server, 1).await, b"!");
        server
    });
    let client = client.unwrap();
    write_all(&server, b"arrives").await;
    assert_eq!(read_exactly(&client, 7).await, b"arrives");
    while server.unacknowledged_bytes().unwrap() > 0 {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    is_dead.store(true, Ordering::Relaxed);
    tokio::time::sleep(Duration::from_millis(100)).await;
    write_all(&server, b"lost").await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert_eq!(server.unacknowledged_bytes().unwrap(), 4);
}

/// An abort wakes the task that waits for the handshake.
#[tokio::test]
async fn an_abort_ends_a_handshake() {
    let own = issue(&wanted("localhost", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let endpoint = quinn::Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port(&listener)));
    let _connecting = endpoint.connect_with(client_of(&own, b"smb"), at, "localhost").unwrap();
    // This client opens no stream.
    let server = Arc::new(accept(&listener).await);
    let waiting = Arc::clone(&server);
    let waiting = tokio::spawn(async move { waiting.readable().await });
    tokio::time::sleep(Duration::from_millis(20)).await;
    server.abort();
    let ended = tokio::time::timeout(Duration::from_secs(5), waiting).await;
    assert!(ended.expect("it is woken").unwrap().is_err());
}

/// The first address of a name answers nothing, and the second is reached.
#[tokio::test]
async fn a_dead_address_does_not_hide_the_next() {
    let own = issue(&wanted("here", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let silent = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let live = SocketAddr::from((Ipv4Addr::LOCALHOST, port(&listener)));
    let connector = Connector::new(Trust::Pinned(vec![own.fingerprint]), None).unwrap();
    let addresses = [silent.local_addr().unwrap(), live];
    let connecting = async {
        let connection = connector.connect_any(&addresses, "localhost").await.unwrap();
        assert_eq!(connection.peer_addr(), live);
        let stream = Stream::Quic(Box::new(connection));
        write_all(&stream, b"!").await;
        stream
    };
    let (_client, ()) = tokio::join!(connecting, async {
        assert_eq!(read_exactly(&accept(&listener).await, 1).await, b"!");
    });
    let none = connector.connect_any(&[], "localhost").await.err().unwrap();
    assert_eq!(none.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_long_name_is_cut_and_printable() {
    let name = format!("a\n\u{202e}\u{1b}'{}", "b".repeat(1_000));
    let own = issue(&wanted(&name, false), None).unwrap();
    let decision = Decision::on(own.der(), Verdict::Allowed);
    assert_eq!(decision.name, format!("a'{}", "b".repeat(62)));
}

#[tokio::test]
async fn an_abort_ends_both_sides() {
    let (client, server) = pair().await;
    server.abort();
    assert!(matches!(read_end(&client).await, Ok(0) | Err(_)));
    client.ended().await;
    assert!(server.try_write_vectored(&[IoSlice::new(b"x")], false).is_err());
}

#[tokio::test]
async fn a_new_client_has_little_under_way_until_it_is_widened() {
    let (client, server) = pair().await;
    let mut sent = 0;
    let chunk = [1; 4096];
    let filled = async |sent: &mut usize| {
        while tokio::time::timeout(Duration::from_millis(500), client.writable()).await.is_ok() {
            match client.try_write_vectored(&[IoSlice::new(&chunk)], false) {
                Ok(count) => *sent += count,
                Err(error) => assert_eq!(error.kind(), io::ErrorKind::WouldBlock),
            }
        }
    };
    filled(&mut sent).await;
    assert!(sent <= QUIC_RECEIVE_WINDOW_NEW, "{sent}");
    assert!(server.quic().unwrap().widen_receiving(usize::MAX));
    // Without a wider window this would not end.
    while sent <= 2 * QUIC_RECEIVE_WINDOW_NEW {
        client.writable().await.unwrap();
        sent += client.try_write_vectored(&[IoSlice::new(&chunk)], false).unwrap_or(0);
    }
}

/// Memory of one connection, up to a limit.
#[derive(Debug)]
struct Allowed {
    bytes: AtomicUsize,
    most: usize,
}

impl Allowance for Allowed {
    fn resize(&self, bytes: usize) -> bool {
        let is_allowed = bytes <= self.most;
        if is_allowed {
            self.bytes.store(bytes, Ordering::Relaxed);
        }
        is_allowed
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// A pair whose server may hold up to `most` bytes, over a relay.
async fn allowed_pair(most: usize, is_dead: Arc<AtomicBool>) -> (Stream, Stream, Arc<Allowed>) {
    let own = issue(&wanted("here", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let port = relay(port(&listener), is_dead).await;
    let allowed = Arc::new(Allowed { bytes: AtomicUsize::new(0), most });
    let trust = Trust::Pinned(vec![own.fingerprint]);
    let (client, server) = tokio::join!(connect(trust, None, port), async {
        let mut detached = listener.accept().await.unwrap().0;
        detached.quic().unwrap().count_in(Arc::clone(&allowed) as Arc<dyn Allowance>);
        let server = detached.attach().unwrap();
        assert_eq!(read_exactly(&server, 1).await, b"!");
        server
    });
    (client.unwrap(), server, allowed)
}

/// Writes until no more is taken, and returns the bytes.
async fn fill(stream: &Stream) -> usize {
    let (mut sent, chunk) = (0, [1; 4096]);
    while tokio::time::timeout(Duration::from_millis(500), stream.writable()).await.is_ok() {
        sent += stream.try_write_vectored(&[IoSlice::new(&chunk)], false).unwrap_or(0);
    }
    sent
}

/// Carries datagrams with a delay, which no clock of the system measures.
fn carry(from: Port, to: Port, delay: Duration) {
    tokio::spawn(async move {
        while from.sent().await {
            while let Some(datagram) = from.take() {
                let to = to.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(delay).await;
                    to.deliver(datagram);
                });
            }
        }
    });
}

/// With three requests of a logon, four round trips in all.
#[tokio::test(start_paused = true)]
async fn a_handshake_takes_one_round_trip() {
    const DELAY: Duration = Duration::from_millis(50);
    let own = issue(&wanted("localhost", false), None).unwrap();
    let [near, far] = [2, 1].map(|host| SocketAddr::from(([10, 0, 0, host], 443)));
    let (client, server) = (Port::new(near, 1), Port::new(far, 2));
    carry(client.clone(), server.clone(), DELAY);
    carry(server.clone(), client.clone(), DELAY);
    let listener = Listener::simulated(&server, anonymous(identity(&own))).unwrap();
    tokio::spawn(async move {
        let stream = Stream::Quic(Box::new(listener.accept().await.attach().unwrap()));
        loop {
            let request = read_exactly(&stream, 300).await;
            write_all(&stream, &request).await;
        }
    });
    let connector = Connector::new(Trust::Pinned(vec![own.fingerprint]), None).unwrap();
    let start = tokio::time::Instant::now();
    let connected = connector.connect_from(&client, far, "localhost").await.unwrap();
    assert_eq!(start.elapsed(), DELAY * 2);
    let stream = Stream::Quic(Box::new(connected));
    for trips in 2..=4 {
        write_all(&stream, &[7; 300]).await;
        assert_eq!(read_exactly(&stream, 300).await, [7; 300]);
        assert_eq!(start.elapsed(), DELAY * 2 * trips);
    }
}

/// A connection is widened as far as its owner has memory for it.
#[tokio::test]
async fn windows_are_widened_within_their_allowance() {
    const MOST: usize = 500_000;
    let (client, server, allowed) = allowed_pair(MOST, Arc::default()).await;
    let quic = server.quic().unwrap();
    assert!(!quic.widen_receiving(usize::MAX) && !quic.widen_sending(usize::MAX));
    let some = allowed.bytes.load(Ordering::Relaxed);
    assert_eq!(some, QUIC_WINDOW_SCARCE + QUIC_SEND_WINDOW_NEW, "as much as there is memory for");
    let sent = fill(&client).await;
    assert!((200_000..=QUIC_WINDOW_SCARCE).contains(&sent), "{sent}");
    assert!(quic.widen_receiving(300_000));
    assert_eq!(allowed.bytes.load(Ordering::Relaxed), 300_000 + QUIC_SEND_WINDOW_NEW);
    let more = fill(&client).await;
    assert!((250_000..=300_000).contains(&(sent + more)), "{sent} {more}");
    assert!(!quic.widen_sending(300_000), "both windows count");
    assert!(quic.widen_sending(150_000));
    assert!(allowed.bytes.load(Ordering::Relaxed) <= MOST);
    assert!(!quic.widen_sending(150_000), "it is so wide already");
}

/// The bytes for a peer that takes none are kept for a while after the end, and the allowance with them.
#[tokio::test]
async fn an_allowance_lasts_as_long_as_the_memory() {
    let is_dead = Arc::new(AtomicBool::new(false));
    let (_client, server, allowed) = allowed_pair(usize::MAX, Arc::clone(&is_dead)).await;
    is_dead.store(true, Ordering::Relaxed);
    assert!(server.quic().unwrap().widen_sending(usize::MAX));
    let sent = fill(&server).await;
    assert!(sent > QUIC_SEND_WINDOW_NEW && sent <= QUIC_SEND_WINDOW, "{sent}");
    drop(server);
    assert!(Arc::strong_count(&allowed) > 1, "the bytes are not gone");
    while Arc::strong_count(&allowed) > 1 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Listeners on several addresses have one count of clients that have not proved theirs.
#[tokio::test]
async fn listeners_count_handshakes_together() {
    let own = issue(&wanted("localhost", false), None).unwrap();
    let local = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let listening = || Listener::new(Listener::socket(local).unwrap(), anonymous(identity(&own)));
    let (first, mut second) = (listening().unwrap(), listening().unwrap());
    second.count_with(&first);
    let endpoint = quinn::Endpoint::client(local).unwrap();
    let mut held = Vec::new();
    for count in 0..QUIC_HANDSHAKES_UNPROVEN_MAX + 4 {
        let listener = if count % 2 == 0 { &first } else { &second };
        let at = listener.local_addr();
        let connecting = endpoint.connect_with(client_of(&own, b"smb"), at, "localhost").unwrap();
        let accepted = listener.accept().await;
        assert_eq!(accepted.is_proven(), count >= QUIC_HANDSHAKES_UNPROVEN_MAX, "{count}");
        held.push((connecting, accepted));
    }
}

/// A client was admitted with its address: what comes from another one is not heard, whatever it is, and the
/// connection goes on from its own.
#[tokio::test]
async fn a_connection_stays_with_the_address_that_was_admitted() {
    let own = issue(&wanted("localhost", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let bind = |host: [u8; 4]| std::net::UdpSocket::bind(SocketAddr::from((host, 0))).unwrap();
    let (home, elsewhere) = (bind([127, 0, 0, 1]), bind([127, 0, 0, 2]));
    let (config, socket) = (quinn::EndpointConfig::default(), home.try_clone().unwrap());
    let runtime = Arc::new(quinn::TokioRuntime);
    let endpoint = quinn::Endpoint::new(config, None, socket, runtime).unwrap();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port(&listener)));
    let connecting = endpoint.connect_with(client_of(&own, b"smb"), at, "localhost").unwrap();
    let client = async {
        let connection = connecting.await.unwrap();
        let (mut send, _) = connection.open_bi().await.unwrap();
        send.write_all(b"!").await.unwrap();
        (connection, send)
    };
    let ((connection, mut send), server) = tokio::join!(client, async {
        let server = accept(&listener).await;
        assert_eq!(read_exactly(&server, 1).await, b"!");
        server
    });
    endpoint.rebind(elsewhere).unwrap();
    send.write_all(b"from elsewhere").await.unwrap();
    let heard = tokio::time::timeout(Duration::from_secs(1), server.readable()).await;
    assert!(heard.is_err(), "nothing is heard");
    assert_eq!(server.peer_addr().unwrap(), home.local_addr().unwrap());
    endpoint.rebind(home).unwrap();
    assert_eq!(read_exactly(&server, 14).await, b"from elsewhere");
    drop(connection);
}

#[tokio::test]
async fn servers_are_trusted_by_pin_or_by_authority() {
    let (authority, leaf) = chain("here");
    let other = issue(&wanted("other", true), None).unwrap();
    let listener = listen(anonymous(identity(&leaf)));
    let port = port(&listener);
    let serving = async {
        loop {
            let stream = accept(&listener).await;
            tokio::spawn(async move { drop(read_end(&stream).await) });
        }
    };
    let connecting = async {
        let by = |trust| connect(trust, None, port);
        by(Trust::Authorities(certificates(&[&authority]))).await.unwrap();
        by(Trust::Pinned(vec![leaf.fingerprint])).await.unwrap();
        let told = by(Trust::Pinned(vec![other.fingerprint])).await.err().unwrap();
        let text =
            format!("the server has another certificate, of fingerprint {}", leaf.fingerprint);
        assert_eq!(told.to_string(), text);
        let told = by(Trust::Authorities(certificates(&[&other]))).await.err().unwrap();
        assert!(told.to_string().contains("no authority that this client trusts"), "{told}");
        let dialer = Connector::new(Trust::Authorities(certificates(&[&authority])), None).unwrap();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let told = dialer.connect(at, "elsewhere.example").await.err().unwrap();
        assert_eq!(told.to_string(), "the server's certificate is for another name");
    };
    tokio::select! { _ = serving => {}, () = connecting => {} }
}

/// The outcome of one client at a server that wants certificates.
async fn certified(
    clients: Clients,
    client: Option<Identity>,
) -> (io::Result<Option<Decision>>, String) {
    let own = issue(&wanted("here", false), None).unwrap();
    let listener = listen(ServerTls { identity: identity(&own), clients });
    let trust = Trust::Pinned(vec![own.fingerprint]);
    let port = port(&listener);
    let serving = async {
        let stream = accept(&listener).await;
        stream.readable().await?;
        read_exactly(&stream, 1).await;
        let decision = stream.quic().unwrap().decision();
        stream.abort();
        Ok(decision)
    };
    let connecting = async {
        let stream = connect(trust, client, port).await;
        let outcome = match stream {
            Ok(stream) => read_end(&stream).await.map(drop),
            Err(error) => Err(error),
        };
        outcome.map_or_else(|error| error.to_string(), |()| String::new())
    };
    tokio::join!(serving, connecting)
}

#[tokio::test]
async fn a_client_without_a_good_certificate_is_kept_out() {
    let (authority, leaf) = chain("ann");
    let (_, stranger) = chain("stranger");
    let clients = |access| Clients::Certified { authorities: certificates(&[&authority]), access };
    let (decided, told) = certified(clients(None), None).await;
    assert!(decided.is_err() && told.contains("wants a certificate"), "{told}");
    let (decided, told) = certified(clients(None), Some(identity(&stranger))).await;
    let decided = decided.unwrap_err().downcast::<Decision>().unwrap();
    assert_eq!((decided.verdict, &*decided.name), (Verdict::Untrusted, "stranger"));
    assert!(told.contains("does not trust"), "{told}");
    let (decided, told) = certified(clients(None), Some(identity(&leaf))).await;
    assert_eq!(decided.unwrap().unwrap().certificate, leaf.fingerprint);
    assert_eq!(told, "");
}

/// Each case of MS-SMB2 3.3.1.18: entries of the leaf, of the one between, and of the root.
#[tokio::test]
async fn one_certificate_of_the_chain_must_be_allowed_and_none_denied() {
    let root = issue(&wanted("root", true), None).unwrap();
    let between = issue(&wanted("between", true), Some(&root)).unwrap();
    let leaf = issue(&wanted("ann", false), Some(&between)).unwrap();
    let chain = [&leaf, &between].map(|one| one.certificate.as_str()).concat();
    let ann = Identity::from_pem(chain.as_bytes(), leaf.key.as_bytes()).unwrap();
    let all = [leaf.fingerprint, between.fingerprint, root.fingerprint];
    let unrelated = Fingerprint::of(b"other");
    let mut cases = vec![(vec![], vec![], Verdict::NotAllowed)];
    cases.push((vec![unrelated], vec![unrelated], Verdict::NotAllowed));
    for one in all {
        cases.push((vec![one], vec![], Verdict::Allowed));
        cases.push((vec![unrelated, one], vec![unrelated], Verdict::Allowed));
        cases.push((all.to_vec(), vec![one], Verdict::Denied(one)));
        cases.push((vec![], vec![one], Verdict::Denied(one)));
    }
    for (allow, deny, verdict) in cases {
        let authorities = certificates(&[&root]);
        let access = Some(AccessList { allow: allow.clone(), deny: deny.clone() });
        let clients = Clients::Certified { authorities, access };
        let (decided, told) = certified(clients, Some(ann.clone())).await;
        let decided = match decided {
            Ok(decision) => decision.unwrap(),
            Err(error) => error.downcast::<Decision>().unwrap(),
        };
        assert_eq!(decided.verdict, verdict, "{allow:?} {deny:?}");
        let is_told = told == "the server does not let in the certificate of this client";
        assert_eq!(is_told, verdict != Verdict::Allowed, "{told}");
    }
}

/// A client cannot make its chain an allowed one by certificates of others.
#[tokio::test]
async fn certificates_that_have_nothing_to_do_with_the_client_let_nobody_in() {
    let (root, leaf) = chain("eve");
    let allowed = issue(&wanted("allowed", true), Some(&root)).unwrap();
    let namesake = issue(&wanted("authority of eve", true), None).unwrap();
    for extra in [&allowed, &namesake] {
        let chain = [&leaf, extra].map(|one| one.certificate.as_str()).concat();
        let eve = Identity::from_pem(chain.as_bytes(), leaf.key.as_bytes()).unwrap();
        let access = Some(AccessList { allow: vec![extra.fingerprint], deny: vec![] });
        let clients = Clients::Certified { authorities: certificates(&[&root]), access };
        let (decided, _) = certified(clients, Some(eve)).await;
        let decided = decided.unwrap_err().downcast::<Decision>().unwrap();
        assert_eq!(decided.verdict, Verdict::NotAllowed);
    }
}

/// The verdict on a client that sends these certificates, its own first.
async fn verdict(sent: &[&Issued], authorities: &[&Issued], access: AccessList) -> Verdict {
    let chain: String = sent.iter().map(|one| one.certificate.as_str()).collect();
    let client = Identity::from_pem(chain.as_bytes(), sent[0].key.as_bytes()).unwrap();
    let authorities = certificates(authorities);
    let clients = Clients::Certified { authorities, access: Some(access) };
    match certified(clients, Some(client)).await.0 {
        Ok(decision) => decision.unwrap().verdict,
        Err(error) => error.downcast::<Decision>().unwrap().verdict,
    }
}

/// A forged certificate with the names of two authorities does not lead from the one to the other, which
/// is allowed.
#[tokio::test]
async fn names_lead_to_no_authority_that_has_not_signed() {
    let [root, allowed] = ["root", "allowed"].map(|name| issue(&wanted(name, true), None).unwrap());
    let eve = issue(&wanted("eve", false), Some(&root)).unwrap();
    let namesake = issue(&wanted("allowed", true), None).unwrap();
    let forged = issue(&wanted("root", true), Some(&namesake)).unwrap();
    let access = AccessList { allow: vec![allowed.fingerprint], deny: vec![] };
    let verdict = verdict(&[&eve, &forged], &[&root, &allowed], access).await;
    assert_eq!(verdict, Verdict::NotAllowed);
}

/// A forged certificate before the real one hides no certificate that is denied.
#[tokio::test]
async fn a_forged_certificate_hides_no_denied_one() {
    let root = issue(&wanted("root", true), None).unwrap();
    let upper = issue(&wanted("upper", true), Some(&root)).unwrap();
    let lower = issue(&wanted("lower", true), Some(&upper)).unwrap();
    let eve = issue(&wanted("eve", false), Some(&lower)).unwrap();
    let nobody = issue(&wanted("nobody", true), None).unwrap();
    let forged = issue(&wanted("lower", true), Some(&nobody)).unwrap();
    for sent in [[&eve, &forged, &lower, &upper], [&eve, &lower, &forged, &upper]] {
        let (allow, deny) = (vec![eve.fingerprint], vec![upper.fingerprint]);
        let verdict = verdict(&sent, &[&root], AccessList { allow, deny }).await;
        assert_eq!(verdict, Verdict::Denied(upper.fingerprint));
    }
}

/// Two authorities have one name while an old one is replaced. The entry of the one that has signed
/// counts, and that of the other does not.
#[tokio::test]
async fn an_authority_may_have_a_namesake() {
    let [old, new] = ["root", "root"].map(|name| issue(&wanted(name, true), None).unwrap());
    let ann = issue(&wanted("ann", false), Some(&new)).unwrap();
    for authorities in [[&old, &new], [&new, &old]] {
        let access = AccessList { allow: vec![new.fingerprint], deny: vec![old.fingerprint] };
        assert_eq!(verdict(&[&ann], &authorities, access).await, Verdict::Allowed);
        let access = AccessList { allow: vec![old.fingerprint], deny: vec![] };
        assert_eq!(verdict(&[&ann], &authorities, access).await, Verdict::NotAllowed);
    }
}

#[tokio::test]
async fn a_long_chain_is_refused() {
    let (root, ann) = chain("ann");
    let others = [&root; QUIC_CHAIN_CERTIFICATES_MAX + 1];
    for (count, wanted) in [(0, Verdict::Untrusted), (1, Verdict::Allowed)] {
        let sent = [&[&ann][..], &others[count..]].concat();
        let access = AccessList { allow: vec![ann.fingerprint], deny: vec![] };
        assert_eq!(verdict(&sent, &[&root], access).await, wanted);
    }
}

#[tokio::test]
async fn certificates_are_renewed_while_connections_exist() {
    let [old, new] = ["old", "new"].map(|name| issue(&wanted(name, false), None).unwrap());
    let socket = Listener::socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let listener = Listener::new(socket, anonymous(identity(&old))).unwrap();
    let renewal = listener.renewal();
    let listener = transport::Listener::from(listener);
    let reach = async |issued: &Issued| {
        let trust = Trust::Pinned(vec![issued.fingerprint]);
        let (client, server) = tokio::join!(connect(trust, None, port(&listener)), async {
            let server = accept(&listener).await;
            let greeted = server.readable().await;
            (server, greeted)
        });
        client.map(|client| (client, server.0))
    };
    let (before, far) = reach(&old).await.unwrap();
    renewal.renew(anonymous(identity(&new))).unwrap();
    assert!(reach(&old).await.is_err());
    reach(&new).await.unwrap();
    assert_eq!(read_exactly(&far, 1).await, b"!");
    write_all(&before, b"still").await;
    assert_eq!(read_exactly(&far, 5).await, b"still");
}

/// A client of quinn that trusts one certificate.
fn client_of(own: &Issued, protocol: &[u8]) -> quinn::ClientConfig {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(own.der().to_vec().into()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut tls = rustls::ClientConfig::builder_with_provider(provider)
        .with_protocol_versions(&[&rustls::version::TLS13])
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    tls.alpn_protocols = vec![protocol.to_vec()];
    let crypto = quinn::crypto::rustls::QuicClientConfig::try_from(tls).unwrap();
    quinn::ClientConfig::new(Arc::new(crypto))
}

/// First packets of other protocols than SMB, and of nobody, leave nothing behind.
#[tokio::test]
async fn a_client_of_another_protocol_is_refused() {
    let own = issue(&wanted("here", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let config = client_of(&own, b"h3");
    let endpoint = quinn::Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port(&listener)));
    let connecting = endpoint.connect_with(config, at, "localhost").unwrap();
    let (lost, served) =
        tokio::join!(connecting, async { listener.accept().await.unwrap().0.attach() });
    // RFC 7301 3.2: no_application_protocol.
    let Err(quinn::ConnectionError::ConnectionClosed(close)) = lost else { panic!("no alert") };
    assert_eq!(u64::from(close.error_code), 0x100 + 120);
    assert!(served.is_err());
}

/// Clients whose addresses are not proved fill only a part of the handshakes, and a client that proves
/// its own is served beside them.
#[tokio::test]
async fn a_flood_of_handshakes_is_bounded() {
    let own = issue(&wanted("here", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let mut floods = Vec::new();
    for _ in 0..QUIC_HANDSHAKES_UNPROVEN_MAX + 20 {
        let trust = Trust::Pinned(vec![own.fingerprint]);
        let connector = Connector::new(trust, None).unwrap();
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port(&listener)));
        floods.push(tokio::spawn(async move { drop(connector.connect(at, "127.0.0.1").await) }));
    }
    let mut waiting = Vec::new();
    let mut proven = 0;
    while waiting.len() < QUIC_HANDSHAKES_UNPROVEN_MAX + 20 {
        let transport::Listener::Quic(quic) = &listener else { panic!("no QUIC") };
        let detached = quic.accept().await;
        proven += usize::from(detached.is_proven());
        waiting.push(detached);
    }
    assert_eq!(proven, 20);
    floods.iter().for_each(tokio::task::JoinHandle::abort);
}

/// Clients that have proved their addresses and then go on with nothing keep no newcomer off: their owner
/// bounds them as all connections without a logon.
#[tokio::test]
async fn stalled_handshakes_keep_no_newcomer_off() {
    let own = issue(&wanted("localhost", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let transport::Listener::Quic(quic) = &listener else { panic!("no QUIC") };
    let config = client_of(&own, b"smb");
    let endpoint = quinn::Endpoint::client(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let at = SocketAddr::from((Ipv4Addr::LOCALHOST, port(&listener)));
    let mut stalled = Vec::new();
    for count in 0..QUIC_HANDSHAKES_MAX + 20 {
        let mut accepted = None;
        // A packet may be lost. A client that is kept off is kept off each time.
        for _ in 0..3 {
            let connecting = endpoint.connect_with(config.clone(), at, "localhost").unwrap();
            let wait = tokio::time::timeout(Duration::from_secs(5), quic.accept());
            accepted = wait.await.ok().map(|accepted| (connecting, accepted));
            if accepted.is_some() {
                break;
            }
        }
        let (connecting, accepted) = accepted.unwrap_or_else(|| panic!("{count} keep others off"));
        assert_eq!(accepted.is_proven(), count >= QUIC_HANDSHAKES_UNPROVEN_MAX);
        stalled.push((connecting, accepted.attach().unwrap()));
    }
}

/// A client that is asked for a proof of its address comes again with one.
#[tokio::test]
async fn a_client_proves_its_address_if_it_is_asked() {
    let own = issue(&wanted("here", false), None).unwrap();
    let listener = listen(anonymous(identity(&own)));
    let transport::Listener::Quic(quic) = &listener else { panic!("no QUIC") };
    let trust = Trust::Pinned(vec![own.fingerprint]);
    let (client, server) = tokio::join!(connect(trust, None, port(&listener)), async {
        let first = quic.accept().await;
        assert!(!first.is_proven());
        first.ask_for_proof();
        let second = quic.accept().await;
        assert!(second.is_proven());
        let server = Stream::Quic(Box::new(second.attach().unwrap()));
        assert_eq!(read_exactly(&server, 1).await, b"!");
        server
    });
    client.unwrap();
    drop(server);
}

#[test]
fn texts_of_certificates_are_read() {
    let (authority, leaf) = chain("here");
    let text = leaf.fingerprint.to_string();
    assert_eq!(text.parse(), Ok(leaf.fingerprint));
    let colons: Vec<String> = text
        .as_bytes()
        .chunks(2)
        .map(|pair| String::from_utf8_lossy(pair).to_uppercase())
        .collect();
    assert_eq!(colons.join(":").parse(), Ok(leaf.fingerprint));
    for wrong in ["", "00", &text[1..], &format!("{text}0"), &text.replace(&text[..1], "g")] {
        assert!(wrong.parse::<Fingerprint>().is_err(), "{wrong}");
    }
    assert_eq!(identity(&leaf).fingerprint(), leaf.fingerprint);
    let wrong = Identity::from_pem(leaf.certificate.as_bytes(), authority.key.as_bytes());
    assert_eq!(wrong.unwrap_err().to_string(), "the key is not that of the certificate");
    assert!(Certificates::from_pem(b"").is_err());
}

#[test]
fn the_end_of_a_certificate_is_read() {
    let day = Duration::from_secs(86_400);
    for days in [0, 58, 59, 60, 10_956, 11_016, 18_321, 20_000, 29_218, 29_219, 40_000, 700_000] {
        let since = SystemTime::UNIX_EPOCH + Duration::from_secs(3_723);
        let lasts = day * days;
        let own = issue(&Wanted { since, lasts, ..wanted("here", false) }, None).unwrap();
        assert_eq!(identity(&own).ends(), Some(since + lasts), "{days}");
    }
}
