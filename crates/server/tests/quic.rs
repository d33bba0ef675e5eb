//! SMB over QUIC: MS-SMB2 2.1, 2.2.3.1.5, 3.3.5.4, 3.3.5.9. The connections go over UDP on loopback.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, missing_docs, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use client::files::{Mount, Want, tree_connect_draft};
use client::*;
use frevo_net::limits::QUIC_HANDSHAKES_UNPROVEN_MAX;
use frevo_net::quic::{
    AccessList, Certificates, Clients, Connector, Identity, Issued, Listener, ServerTls, Trust,
    Wanted, issue,
};
use frevo_net::transport::{Dialer, Stream};
use frevo_server::audit::{Audit, File};
use frevo_server::settings::{Encryption, Signing};
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
        for _ in 0..QUIC_HANDSHAKES_UNPROVEN_MAX * 2 {
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
