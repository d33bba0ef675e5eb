//! The client over QUIC, to a server on UDP: trust, certificates of clients, the fallback, the end.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::world;

use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, SystemTime};

use frevo_client::{
    Certificates, Client, Credentials, Error, Identity, Options, Quic, QuicTrust, ServerAddresses,
    ServerName, Session,
};
use frevo_net::limits::QUIC_IDLE_TIMEOUT;
use frevo_net::quic::{AccessList, Clients, Issued, Listener, ServerTls, Wanted, issue};
use frevo_server::Settings;
use frevo_server::settings::Encryption;

use world::{World, in_world_with, settings};

fn issued(name: &str, is_authority: bool, issuer: Option<&Issued>) -> Issued {
    let wanted = Wanted {
        common_name: name.to_owned(),
        hosts: vec![String::from("localhost"), String::from("127.0.0.1")],
        is_authority,
        since: SystemTime::now() - Duration::from_secs(3_600),
        lasts: Duration::from_secs(86_400),
    };
    issue(&wanted, issuer).unwrap()
}

fn identity(issued: &Issued) -> Identity {
    Identity::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes()).unwrap()
}

fn certificates(issued: &Issued) -> Certificates {
    Certificates::from_pem(issued.certificate.as_bytes()).unwrap()
}

/// Serves `world` on UDP; returns the port.
fn serve(world: &World, tls: ServerTls) -> u16 {
    let socket = Listener::socket(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).unwrap();
    let listener = Listener::new(socket, tls).unwrap();
    let port = listener.local_addr().port();
    let server = world.embedded.clone();
    tokio::task::spawn_local(async move { server.serve(listener).await.unwrap() });
    port
}

async fn connect(options: Options, port: u16) -> Result<Session, Error> {
    let server = ServerName::new("127.0.0.1").at_port(port);
    Client::new(options).connect(server, Credentials::new("ann", "secret")).await
}

fn over_quic(trust: QuicTrust) -> Options {
    Options::new().quic(Quic::Required).quic_trust(trust)
}

/// Runs a test with an own server on UDP.
fn in_far_world(clients: Clients, test: impl AsyncFnOnce(&World, u16, &Issued)) {
    let settings = Settings { encryption: Encryption::Required, ..settings() };
    in_world_with(settings, async move |world| {
        let own = issued("here", false, None);
        let port = serve(world, ServerTls { identity: identity(&own), clients });
        test(world, port, &own).await;
        world.embedded.stop_within(Duration::from_secs(5));
    });
}

#[test]
fn files_go_both_ways_and_are_encrypted_once() {
    in_far_world(Clients::Anonymous, async |world, port, own| {
        let pinned = QuicTrust::Pinned(vec![own.fingerprint]);
        let session = connect(over_quic(pinned), port).await.unwrap();
        assert!(session.requires_quic());
        let url = session.share("data").await.unwrap().url("a");
        assert_eq!(url, format!("smb+quic://127.0.0.1:{port}/data/a"));
        let share = session.share("data").await.unwrap();
        let content: Vec<u8> = (0..9_000_000_u32).map(|n| (n % 251) as u8).collect();
        share.write("file", &content).await.unwrap();
        assert!(share.read("file").await.unwrap() == content);
        let names = share.list_dir("").await.unwrap();
        assert_eq!(names.len(), 1);
        // SMB's own protection is left to QUIC.
        let info = session.info().unwrap();
        assert_eq!((info.encrypted, info.signed), (true, false));
        // Pipes are refused, and with them the list of shares.
        assert!(session.shares().await.is_err());
        let status = world.embedded.status(&frevo_server::StatusQuery::default());
        assert_eq!(status.sessions.rows[0].encryption, Some("transport"));
    });
}

#[test]
fn a_client_that_ends_leaves_no_session() {
    in_far_world(Clients::Anonymous, async |world, port, own| {
        let pinned = QuicTrust::Pinned(vec![own.fingerprint]);
        // The runtime of the client ends, and with it all that could say farewell.
        let client = std::thread::spawn(move || {
            let mut runtime = tokio::runtime::Builder::new_multi_thread();
            let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
            let share = runtime.block_on(async move {
                let session = connect(over_quic(pinned).durable(false), port).await.unwrap();
                session.share("data").await.unwrap()
            });
            drop(runtime);
            drop(share);
        });
        tokio::task::spawn_blocking(move || client.join().unwrap()).await.unwrap();
        let gone = async {
            while !world.server.sessions().is_empty() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        // Much less than the time after which a silent client is lost.
        tokio::time::timeout(QUIC_IDLE_TIMEOUT / 4, gone).await.unwrap();
    });
}

#[test]
fn a_server_that_is_not_trusted_is_told_in_a_sentence() {
    in_far_world(Clients::Anonymous, async |_, port, own| {
        let other = issued("other", true, None);
        let told = connect(over_quic(QuicTrust::Pinned(vec![other.fingerprint])), port).await;
        let text =
            format!("QUIC: the server has another certificate, of fingerprint {}", own.fingerprint);
        let told = told.err().unwrap().to_string();
        assert!(told.contains(&text), "{told}");
        let told = connect(over_quic(QuicTrust::Authorities(certificates(&other))), port).await;
        let told = told.err().unwrap().to_string();
        assert!(told.contains("no authority that this client trusts"), "{told}");
        assert!(told.contains(&own.fingerprint.to_string()), "{told}");
        connect(over_quic(QuicTrust::Authorities(certificates(own))), port).await.unwrap();
    });
}

#[test]
fn the_access_list_decides_on_certificates_of_clients() {
    let authority = issued("authority", true, None);
    let [ann, bob] = ["ann", "bob"].map(|name| issued(name, false, Some(&authority)));
    let access = AccessList { allow: vec![authority.fingerprint], deny: vec![bob.fingerprint] };
    let authorities = certificates(&authority);
    let clients = Clients::Certified { authorities, access: Some(access) };
    in_far_world(clients, async move |_, port, own| {
        let options = || over_quic(QuicTrust::Pinned(vec![own.fingerprint]));
        let with = |issued: &Issued| options().quic_identity(Some(identity(issued)));
        connect(with(&ann), port).await.unwrap();
        for (options, told) in [
            (options(), "the server wants a certificate of this client"),
            (with(&bob), "the server does not let in the certificate of this client"),
            (with(&issued("eve", false, None)), "the server does not trust the certificate"),
        ] {
            let error = connect(options, port).await.err().unwrap().to_string();
            assert!(error.contains(told), "{error}");
        }
    });
}

/// TCP comes first, and QUIC where it does not reach the server.
#[test]
fn quic_takes_over_where_tcp_does_not_reach_the_server() {
    in_far_world(Clients::Anonymous, async |world, port, own| {
        let trust = QuicTrust::Pinned(vec![own.fingerprint]);
        let auto = Options::new().quic(Quic::Auto).quic_trust(trust);
        // Nobody listens on the TCP port of this number, but for a rare chance.
        let session = connect(auto.clone(), port).await.unwrap();
        assert!(!session.info().unwrap().signed, "QUIC protects");
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let tcp = listener.local_addr().unwrap().port();
        let server = world.embedded.clone();
        tokio::task::spawn_local(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let stream = frevo_net::transport::Stream::Tcp(stream);
                tokio::task::spawn_local(server.serve_connection(stream).unwrap());
            }
        });
        let session = connect(auto, tcp).await.unwrap();
        assert!(session.info().unwrap().signed, "SMB protects");
    });
}

/// A client whose options know nothing of QUIC follows the URL.
#[test]
fn a_url_decides_that_quic_is_used() {
    in_far_world(Clients::Anonymous, async |_, port, own| {
        let client =
            Client::new(Options::new().quic_trust(QuicTrust::Pinned(vec![own.fingerprint])));
        let url = format!("smb+quic://127.0.0.1:{port}/data/file").parse().unwrap();
        let (share, path) = client.resolve(&url, &Credentials::new("ann", "secret")).await.unwrap();
        assert!(share.session().requires_quic() && path == "file");
    });
}

/// Addresses in the options say where the server is. Its certificate must have the name of the URL.
#[test]
fn an_address_does_not_replace_the_name() {
    in_far_world(Clients::Anonymous, async |_, port, own| {
        let connect = async |host: &str| {
            let addresses = vec![ServerName::new("127.0.0.1")];
            let options = over_quic(QuicTrust::Authorities(certificates(own)))
                .addresses(vec![ServerAddresses { host: host.to_owned(), addresses }]);
            let server = ServerName::new(host).at_port(port);
            Client::new(options).connect(server, Credentials::new("ann", "secret")).await
        };
        connect("localhost").await.unwrap();
        let told = connect("nas.example").await.err().unwrap().to_string();
        assert!(told.contains("the server's certificate is for another name"), "{told}");
    });
}
