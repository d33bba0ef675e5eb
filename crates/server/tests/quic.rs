//! SMB over QUIC: MS-SMB2 2.1, 2.2.3.1.5, 3.3.5.4, 3.3.5.9. The connections go over UDP on loopback.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, missing_docs, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, SystemTime};

use client::files::{Mount, Want, tree_connect_draft};
use client::world::password;
use client::*;
use frevo_auth::smbpasswd::Entry;
use frevo_auth::{AccountFile, NtHash};
use frevo_net::limits::{QUIC_HANDSHAKES_UNPROVEN_MAX, QUIC_WINDOW_MIN};
use frevo_net::quic::{
    AccessList, Certificates, Clients, Connector, Identity, Issued, Listener, ServerTls, Trust,
    Wanted, issue,
};
use frevo_net::transport::{Dialer, Stream};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::access_rules::Rules;
use frevo_server::audit::{Audit, File};
use frevo_server::internal::state::{Kind, Shares};
use frevo_server::settings::{Encryption, Signing};
use frevo_server::share::Share;
use frevo_wire::command::ioctl::{self, CtlCode, network_interface};
use frevo_wire::command::session_setup::SessionFlags;
use frevo_wire::dtyp::Guid;
use frevo_wire::negotiate_context::TransportCapabilityFlags;
use tokio::task::LocalSet;

/// A server that demands encryption and signatures.
fn demanding() -> Settings {
    Settings { encryption: Encryption::Required, signing: Signing::Required, ..settings() }
}

/// A server on UDP, and its certificate.
struct Far {
    world: World,
    port: u16,
    own: Issued,
}

impl Far {
    async fn stream(&self) -> Stream {
        self.stream_with(None).await
    }

    async fn stream_with(&self, identity: Option<Identity>) -> Stream {
        let trust = Trust::Pinned(vec![self.own.fingerprint]);
        let dialer = Dialer::Quic(Connector::new(trust, identity).unwrap());
        dialer.dial("127.0.0.1", Some(self.port)).await.unwrap()
    }

    async fn connect(&self) -> Peer {
        Peer::new(self.stream().await, Guid([7; 16]))
    }
}

/// Runs a test beside a server on UDP.
fn in_far_world(settings: Settings, test: impl AsyncFnOnce(&Far)) {
    in_far_world_for(Clients::Anonymous, settings, test);
}

fn issued(name: &str, is_authority: bool, issuer: Option<&Issued>) -> Issued {
    let wanted = Wanted {
        common_name: name.to_owned(),
        hosts: vec![String::from("127.0.0.1")],
        is_authority,
        since: SystemTime::now() - Duration::from_secs(60),
        lasts: Duration::from_secs(3_600),
    };
    issue(&wanted, issuer).unwrap()
}

fn identity(issued: &Issued) -> Identity {
    Identity::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap()
}

/// Runs a test beside a server that wants certificates of `clients`.
fn in_far_world_for(clients: Clients, settings: Settings, test: impl AsyncFnOnce(&Far)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let world = World::new(settings);
    LocalSet::new().block_on(&runtime, async {
        let own = issued("frevo", false, None);
        let socket = Listener::socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
        let tls = ServerTls { identity: identity(&own), clients };
        let listener = Listener::new(socket, tls).unwrap();
        let port = listener.local_addr().port();
        let serving = world.listen(listener);
        let far = Far { world, port, own };
        test(&far).await;
        far.world.embedded.stop_within(Duration::from_secs(5));
        serving.await.unwrap().unwrap();
    });
}

fn accepting() -> Offer {
    let flags = TransportCapabilityFlags::ACCEPT_TRANSPORT_LEVEL_SECURITY;
    Offer { transport: Some(flags.0), ..Offer::default() }
}

async fn session(far: &Far, offer: &Offer) -> (Peer, Mount, SessionFlags) {
    let mut peer = far.connect().await;
    peer.negotiate(offer).await;
    let logon = peer.log_on("ann").await;
    let mount = peer.mount(&logon, "data").await;
    (peer, mount, logon.flags)
}

#[test]
fn data_is_encrypted_by_quic_alone_where_both_sides_accept_that() {
    in_far_world(demanding(), async |far| {
        let (mut peer, mount, flags) = session(far, &accepting()).await;
        assert_eq!(flags, SessionFlags::EMPTY);
        let content: Vec<u8> = (0..900_000_u32).map(|n| (n % 251) as u8).collect();
        far.world.file("big", &content);
        let file = peer.open_file(&mount, &Want::existing("big")).await;
        for at in [0, 300_000, 600_000] {
            let read = peer.read(&mount, file, at, 60_000).await;
            assert_eq!(read, content[at as usize..][..60_000]);
        }
        peer.write(&mount, file, 0, &content[1..60_000]).await;
        peer.close(&mount, file).await;
        assert_eq!(far.world.content("big")[..59_999], content[1..60_000]);
        // A client that does not accept it gets SMB's own encryption.
        let (_, _, flags) = session(far, &Offer::default()).await;
        assert_eq!(flags, SessionFlags::ENCRYPT_DATA);
    });
}

#[test]
fn only_the_newest_dialect_is_spoken() {
    in_far_world(settings(), async |far| {
        for dialect in [Dialect::SMB_2_0_2, Dialect::SMB_3_0_2] {
            let mut peer = far.connect().await;
            let reply = peer.try_negotiate(&Offer::only(dialect)).await;
            assert_eq!(reply.status(), Status::NOT_SUPPORTED, "{dialect:?}");
        }
    });
}

/// MS-SMB2 3.3.5.9.
#[test]
fn pipes_are_refused_unless_they_are_allowed() {
    for (quic_pipes, status) in [(false, Status::ACCESS_DENIED), (true, Status::SUCCESS)] {
        in_far_world(Settings { quic_pipes, ..settings() }, async |far| {
            let mut peer = far.connect().await;
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on("ann").await;
            let ipc = peer.mount(&logon, "IPC$").await;
            let reply = peer.create(&ipc, &Want::existing("srvsvc")).await;
            assert_eq!(reply.status(), status);
        });
    }
}

#[test]
fn the_addresses_of_the_network_are_not_told() {
    in_far_world(settings(), async |far| {
        let (mut peer, mount, _) = session(far, &Offer::default()).await;
        let code = CtlCode::QUERY_NETWORK_INTERFACE_INFO;
        let request = ioctl::Request::fsctl(code, FileId::ALL_ONES, &[], 65_536);
        let reply = peer.on(&mount, Draft::new(Command::IOCTL).with(|w| request.encode(w))).await;
        let response = ioctl::Response::parse(&reply.ok().message).unwrap();
        assert_eq!(network_interface::parse_list(response.output).unwrap(), []);
    });
}

/// The server learns at once that a client has gone: its session ends, and what it had open.
#[test]
fn a_connection_that_is_closed_ends_its_session_at_once() {
    in_far_world(settings(), async |far| {
        for is_aborted in [true, false] {
            let stream = far.stream().await;
            let mut peer = Peer::new(stream, Guid([9; 16]));
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on("ann").await;
            let mount = peer.mount(&logon, "data").await;
            peer.open_file(&mount, &Want::file("f")).await;
            assert_eq!(far.world.server.sessions().len(), 1);
            if is_aborted {
                peer.stream.abort();
            }
            drop(peer);
            while !far.world.server.sessions().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    });
}

/// A client learns at once that the server has stopped, and does not wait for its idle time.
#[test]
fn a_server_that_stops_ends_its_connections() {
    in_far_world(settings(), async |far| {
        let (mut peer, _, _) = session(far, &Offer::default()).await;
        far.world.embedded.stop_within(Duration::from_secs(5));
        while peer.frame().await.is_some() {}
    });
}

/// Clients that only begin handshakes keep nobody out who goes on.
#[test]
fn a_flood_of_first_packets_does_not_keep_clients_out() {
    in_far_world(settings(), async |far| {
        let at = SocketAddr::from((Ipv4Addr::LOCALHOST, far.port));
        let mut floods = Vec::new();
        // All of them are at one address, which may have some more before their logon.
        for _ in 0..QUIC_HANDSHAKES_UNPROVEN_MAX + 8 {
            // This client trusts nobody, so that its handshakes do not come to their end.
            let connector = Connector::new(Trust::Pinned(Vec::new()), None).unwrap();
            floods.push(tokio::spawn(async move {
                loop {
                    drop(connector.connect(at, "127.0.0.1").await);
                }
            }));
        }
        for _ in 0..5 {
            let (mut peer, mount, _) = session(far, &accepting()).await;
            peer.create(&mount, &Want::file("f")).await.ok();
        }
        floods.iter().for_each(tokio::task::JoinHandle::abort);
    });
}

/// MS-SMB2 3.3.5.7: also over QUIC, the signature of TREE_CONNECT proves that nobody changed the
/// negotiation.
#[test]
fn tree_connect_is_signed() {
    in_far_world(demanding(), async |far| {
        let mut peer = far.connect().await;
        peer.negotiate(&accepting()).await;
        let logon = peer.log_on("ann").await;
        let draft = tree_connect_draft("\\\\frevo\\data").session(logon.id);
        peer.send(vec![draft], Via::Plain).await;
        assert!(peer.frame().await.is_none(), "the connection ends");
    });
}

/// MS-SMB2 3.3.5.1, 3.3.1.18: the audit log has who was let in, and who was not.
#[test]
fn certificates_of_clients_are_recorded() {
    let authority = issued("authority", true, None);
    let [ann, bob] = ["ann", "bob"].map(|name| issued(name, false, Some(&authority)));
    let authorities = Certificates::from_pem(authority.certificate.as_bytes()).unwrap();
    let access = AccessList { allow: vec![ann.fingerprint], deny: Vec::new() };
    let clients = Clients::Certified { authorities, access: Some(access) };
    in_far_world_for(clients, settings(), async |far| {
        let file = far.world.path("audit");
        let audit = Audit::start(vec![Box::new(File::open(&file).unwrap())]).unwrap();
        far.world.server.audit.set(audit.clone());
        let mut peer = Peer::new(far.stream_with(Some(identity(&ann))).await, Guid([7; 16]));
        peer.negotiate(&Offer::default()).await;
        let refused = Peer::new(far.stream_with(Some(identity(&bob))).await, Guid([8; 16]));
        let told = refused.stream.readable().await.unwrap_err().to_string();
        assert_eq!(told, "the server does not let in the certificate of this client");
        let mut lines = String::new();
        while !lines.contains(&bob.fingerprint.to_string()) {
            tokio::time::sleep(Duration::from_millis(5)).await;
            lines = std::fs::read_to_string(&file).unwrap();
        }
        let about = |one: &Issued| -> Vec<&str> {
            let fingerprint = one.fingerprint.to_string();
            lines.lines().filter(|line| line.contains(&fingerprint)).collect()
        };
        let [allowed, refused] = [&ann, &bob].map(about);
        assert!(allowed.len() == 1 && allowed[0].contains("\"outcome\":\"success\""), "{lines}");
        assert!(refused.len() == 1 && refused[0].contains("ACCESS_DENIED"), "{lines}");
        assert!(refused[0].contains("\"subject\":\"bob\""), "{lines}");
    });
}

/// The windows of a connection are charged to its network, to its account from the logon on, and until the last of
/// its memory is freed.
#[test]
fn windows_of_quic_are_charged() {
    in_far_world(settings(), async |far| {
        let ledger = &far.world.server.ledger;
        let (network, ann) = (ledger.network(Ipv4Addr::LOCALHOST.into()), ledger.account("ann"));
        let mut peer = far.connect().await;
        peer.negotiate(&accepting()).await;
        assert_eq!((network.count(Kind::Window), ann.count(Kind::Window)), (1, 0));
        let first = frevo_net::quic::Detached::BYTES;
        assert!((first..QUIC_WINDOW_MIN).contains(&network.bytes()), "{}", network.bytes());
        let logon = peer.log_on("ann").await;
        assert_eq!((network.count(Kind::Window), ann.count(Kind::Window)), (0, 1));
        assert!((first..QUIC_WINDOW_MIN).contains(&ann.bytes()), "{}", ann.bytes());
        let mount = peer.mount(&logon, "data").await;
        let file = peer.open_file(&mount, &Want::file("big")).await;
        peer.write(&mount, file, 0, &[7; 60_000]).await;
        let written = ann.bytes();
        assert!(
            written >= QUIC_WINDOW_MIN,
            "a large request has widened the one window: {written}"
        );
        // The send window is widened once it has held up an answer.
        for _ in 0..100 {
            peer.read(&mount, file, 0, 60_000).await;
        }
        assert!(ann.bytes() >= written + QUIC_WINDOW_MIN / 2, "{} and {written}", ann.bytes());
        drop(peer);
        while ledger.count(Kind::Window) > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
}

/// While a connection asks for nothing it is charged like a new one, and for all of its windows again with the next
/// request. Without memory for them it ends, and a new one is let in.
#[test]
fn an_idle_connection_of_quic_gives_its_windows_back() {
    in_far_world(settings(), async |far| {
        let ann = far.world.server.ledger.account("ann");
        let (mut peer, mount, _) = session(far, &accepting()).await;
        let file = peer.open_file(&mount, &Want::file("big")).await;
        let rest = async || {
            while ann.bytes() >= QUIC_WINDOW_MIN {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        for round in 0..2 {
            peer.write(&mount, file, round * 60_000, &[7; 60_000]).await;
            assert!(ann.bytes() >= QUIC_WINDOW_MIN, "{}", ann.bytes());
            rest().await;
        }
        assert_eq!(peer.read(&mount, file, 60_000, 60_000).await, [7; 60_000]);
        rest().await;
        far.world.server.ledger.set_limit(ann.bytes() + QUIC_WINDOW_MIN / 2);
        peer.send(vec![Draft::echo()], Via::Plain).await;
        while peer.frame().await.is_some() {}
        far.world.server.ledger.set_limit(1 << 30);
        session(far, &accepting()).await;
    });
}

/// A network has half of the memory. Further connections of it are not answered.
#[test]
fn a_network_without_memory_gets_no_connection() {
    in_far_world(settings(), async |far| {
        far.world.server.ledger.set_limit(4 * frevo_net::quic::Detached::BYTES);
        let mut held = Vec::new();
        for count in 0..3 {
            let connected = tokio::time::timeout(Duration::from_secs(2), far.stream()).await;
            assert_eq!(connected.is_ok(), count < 2, "{count}");
            held.extend(connected);
        }
    });
}

/// The way of clients to the server through another address, which changes.
struct Moving {
    far: Arc<Mutex<Arc<UdpSocket>>>,
    near: Arc<UdpSocket>,
    server: SocketAddr,
    client: Arc<OnceLock<SocketAddr>>,
}

impl Moving {
    fn new(server: SocketAddr) -> Self {
        let near = Arc::new(UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap());
        let far = Arc::new(Mutex::new(Arc::clone(&near)));
        let moving = Self { far, near, server, client: Arc::default() };
        moving.move_to(Ipv4Addr::LOCALHOST);
        let (near, far) = (Arc::clone(&moving.near), Arc::clone(&moving.far));
        let client = Arc::clone(&moving.client);
        std::thread::spawn(move || {
            let mut bytes = [0; 2_048];
            while let Ok((count, from)) = near.recv_from(&mut bytes) {
                let _ = client.set(from);
                let far = Arc::clone(&far.lock().unwrap());
                drop(far.send_to(&bytes[..count], server));
            }
        });
        moving
    }

    fn port(&self) -> u16 {
        self.near.local_addr().unwrap().port()
    }

    /// The server sees the client at this address from now on, at another port.
    fn move_to(&self, address: Ipv4Addr) {
        let far = Arc::new(UdpSocket::bind((address, 0)).unwrap());
        *self.far.lock().unwrap() = Arc::clone(&far);
        let (near, client) = (Arc::clone(&self.near), Arc::clone(&self.client));
        std::thread::spawn(move || {
            let mut bytes = [0; 2_048];
            while let Ok((count, _)) = far.recv_from(&mut bytes) {
                drop(near.send_to(&bytes[..count], client.wait()));
            }
        });
    }
}

/// The server shows its folder to clients of one address.
fn allow_alone(world: &World, address: &str) {
    let vfs = PosixVfs::open_root(world.dir.path(), PosixOptions::default()).unwrap();
    let rules = Rules { hosts_allow: vec![address.parse().unwrap()], ..Rules::default() };
    let data = Share::disk("data", Arc::new(vfs)).rules(rules);
    let mut accounts = AccountFile::default();
    let hash = NtHash::from_password(&password("ann"));
    accounts.add(Entry::new("ann", u32::MAX, hash, 0)).unwrap();
    let settings = (*world.server.settings()).clone();
    world.server.reload(settings, &Shares::new([data]), Arc::new(accounts));
}

/// A client was let in with its address. From another one, which `hosts_allow` does not have, the server does
/// not hear it over this connection, and a new one is refused the share.
#[test]
fn a_client_that_moves_out_of_hosts_allow_is_served_no_longer() {
    const ELSEWHERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
    in_far_world(settings(), async |far| {
        allow_alone(&far.world, "127.0.0.1");
        let server = SocketAddr::from((Ipv4Addr::LOCALHOST, far.port));
        let connect = async |way: &Moving| {
            let trust = Trust::Pinned(vec![far.own.fingerprint]);
            let dialer = Dialer::Quic(Connector::new(trust, None).unwrap());
            let stream = dialer.dial("127.0.0.1", Some(way.port())).await.unwrap();
            let mut peer = Peer::new(stream, Guid([8; 16]));
            peer.negotiate(&accepting()).await;
            let logon = peer.log_on("ann").await;
            (peer, logon)
        };
        let way = Moving::new(server);
        let (mut peer, logon) = connect(&way).await;
        let mount = peer.mount(&logon, "data").await;
        peer.create(&mount, &Want::file("first")).await.ok();
        way.move_to(ELSEWHERE);
        let want = Want::file("late");
        let late = peer.create(&mount, &want);
        assert!(tokio::time::timeout(Duration::from_secs(1), late).await.is_err());
        assert!(far.world.path("first").exists() && !far.world.path("late").exists());
        let anew = Moving::new(server);
        anew.move_to(ELSEWHERE);
        let (mut peer, logon) = connect(&anew).await;
        assert!(peer.try_mount(&logon, "data").await.is_err());
    });
}
