//! Connections of the interface, from acceptance to end.

use std::rc::Rc;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::access::{Caller, Remote, may_connect};
use crate::answers::Answer;
use crate::connection_slots::{ConnectionSlots, Peer, PeerSlot};
use crate::limits::{HEAD_BYTES, HEAD_TIME, HEADERS, REMOTE_TIME, TLS_TIME};
use crate::{Admin, Listening, routes};

/// Accepts connections for ever.
pub(crate) async fn serve(admin: Arc<Admin>, listening: Listening) {
    let (local, remote) = (Rc::<ConnectionSlots>::default(), Rc::<ConnectionSlots>::default());
    let service = Rc::new(routes::Service::new(admin));
    tokio::task::spawn_local(service.sampling());
    let unix = listening.unix.and_then(|(listener, _)| UnixListener::from_std(listener).ok());
    let tls = listening.tls.map(|tls| tls.acceptor());
    let tcp = listening.tcp.and_then(|listener| TcpListener::from_std(listener).ok());
    let on_unix = async {
        let Some(listener) = unix else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                Ok((stream, _)) => {
                    if let Some(peer) = permitted(&stream) {
                        begin(&service, stream, Caller::Local, local.take(peer));
                    }
                }
                Err(error) => after_failure(&error).await,
            }
            // Yielding lets connections that have lost their slot end before the next connection is
            // accepted.
            tokio::task::yield_now().await;
        }
    };
    let on_tcp = async {
        let Some(listener) = tcp else { return std::future::pending().await };
        loop {
            match listener.accept().await {
                Ok((stream, address)) => {
                    let slot = remote.take(Peer::at(address.ip()));
                    let address = address.ip().to_canonical();
                    let caller = Caller::Remote(Remote { address, is_secure: tls.is_some() });
                    match tls.clone() {
                        Some(tls) => begin_secure(&service, stream, tls, caller, slot),
                        None => begin(&service, stream, caller, slot),
                    }
                }
                Err(error) => after_failure(&error).await,
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::join!(on_unix, on_tcp);
}

/// SO_PEERCRED: the process and the user that connected, whatever they have become since. None for
/// a user that may not connect.
fn permitted(stream: &UnixStream) -> Option<Peer> {
    let credentials = stream.peer_cred().ok();
    let uid = credentials.map(|peer| peer.uid());
    if !uid.is_some_and(may_connect) {
        tracing::warn!(target: "frevo::admin", uid = uid.unwrap_or(u32::MAX),
            "refused a user at the admin socket: it is for root and the user that runs the server");
        return None;
    }
    Some(Peer::Process(credentials.and_then(|peer| peer.pid()).unwrap_or(0)))
}

/// Without descriptors or memory the next connection would fail too.
async fn after_failure(error: &std::io::Error) {
    tracing::warn!(target: "frevo::admin", %error, "cannot accept a connection");
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
}

fn begin<S: AsyncRead + AsyncWrite + Unpin + 'static>(
    service: &Rc<routes::Service>,
    stream: S,
    caller: Caller,
    slot: PeerSlot,
) {
    let service = Rc::clone(service);
    tokio::task::spawn_local(async move {
        let answer = |request| async { service.answer(request, caller, &slot).await };
        tokio::select! {
            biased;
            () = slot.lost() => {
                tracing::debug!(target: "frevo::admin", "an admin connection made room for another");
            }
            () = converse(stream, caller, answer) => {}
        }
    });
}

/// Begins a connection with TLS, whose client has to be known soon.
fn begin_secure(
    service: &Rc<routes::Service>,
    stream: TcpStream,
    tls: TlsAcceptor,
    caller: Caller,
    slot: PeerSlot,
) {
    let service = Rc::clone(service);
    tokio::task::spawn_local(async move {
        let known = tokio::select! {
            biased;
            () = slot.lost() => None,
            known = secured(stream, tls) => known,
        };
        if let Some(stream) = known {
            begin(&service, stream, caller, slot);
        }
    });
}

/// Begins TLS on a stream. None for a client that does not come to it in time.
async fn secured<S: AsyncRead + AsyncWrite + Unpin>(
    stream: S,
    tls: TlsAcceptor,
) -> Option<TlsStream<S>> {
    match tokio::time::timeout(TLS_TIME, tls.accept(stream)).await {
        Ok(Ok(stream)) => Some(stream),
        Ok(Err(error)) => {
            tracing::debug!(target: "frevo::admin", %error, "an admin connection without TLS ended");
            None
        }
        Err(_) => {
            tracing::debug!(target: "frevo::admin", "an admin client did not begin TLS in time");
            None
        }
    }
}

/// Answers requests until the connection ends, or its time.
async fn converse<S, A, F>(stream: S, caller: Caller, answer: A)
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    A: Fn(Request<Incoming>) -> F,
    F: Future<Output = Answer>,
{
    let answer = service_fn(|request| {
        let answered = answer(request);
        async move { Ok::<_, std::convert::Infallible>(answered.await) }
    });
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIME)
        .max_buf_size(HEAD_BYTES)
        .max_headers(HEADERS)
        .serve_connection(TokioIo::new(stream), answer);
    let ended = match caller {
        Caller::Local => Ok(connection.await),
        Caller::Remote(_) => tokio::time::timeout(REMOTE_TIME, connection).await,
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(error)) => {
            tracing::debug!(target: "frevo::admin", %error, "an admin connection ended");
        }
        Err(_) => {
            tracing::debug!(target: "frevo::admin", "closed an admin connection that took too long")
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use hyper::StatusCode;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;
    use crate::access::STRANGER;
    use crate::answers::text;
    use crate::limits::{ANSWER_TIME, SNAPSHOTS_TIME};

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    async fn long_answer(_: Request<Incoming>) -> Answer {
        text(StatusCode::OK, &"x".repeat(1 << 20))
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_no_answer_has_its_time() {
        let (mut peer, stream) = tokio::io::duplex(1_024);
        peer.write_all(REQUEST).await.unwrap();
        let began = Instant::now();
        converse(stream, STRANGER, long_answer).await;
        assert_eq!(began.elapsed().as_secs(), REMOTE_TIME.as_secs());
    }

    /// TLS with a certificate that signs itself, and the certificate.
    fn tls() -> (crate::Tls, Vec<u8>) {
        let wanted = frevo_net::quic::Wanted {
            common_name: String::from("box"),
            hosts: vec![String::from("box")],
            is_authority: false,
            since: std::time::SystemTime::now() - Duration::from_secs(3_600),
            lasts: Duration::from_secs(86_400),
        };
        let issued = frevo_net::quic::issue(&wanted, None).unwrap();
        let tls = crate::Tls::from_pem(issued.certificate.as_bytes(), issued.key.as_bytes());
        (tls.unwrap(), issued.der().to_vec())
    }

    #[tokio::test(start_paused = true)]
    async fn a_client_without_tls_has_its_time() {
        let (tls, _) = tls();
        let (peer, stream) = tokio::io::duplex(1_024);
        let began = Instant::now();
        assert!(secured(stream, tls.acceptor()).await.is_none());
        assert_eq!(began.elapsed(), TLS_TIME);
        drop(peer);
        let (mut peer, stream) = tokio::io::duplex(1_024);
        peer.write_all(REQUEST).await.unwrap();
        assert!(secured(stream, tls.acceptor()).await.is_none(), "HTTP in clear");
    }

    #[tokio::test]
    async fn a_request_is_answered_over_tls() {
        let (tls, certificate) = tls();
        let mut roots = rustls::RootCertStore::empty();
        roots.add(certificate.into()).unwrap();
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ClientConfig::builder_with_provider(provider);
        let config = config.with_safe_default_protocol_versions().unwrap();
        let config = config.with_root_certificates(roots).with_no_client_auth();
        let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
        let (peer, stream) = tokio::io::duplex(1 << 16);
        let answering = async {
            let stream = secured(stream, tls.acceptor()).await.unwrap();
            converse(stream, STRANGER, |_| async { text(StatusCode::OK, "sealed") }).await;
        };
        let asking = async {
            let mut stream = connector.connect("box".try_into().unwrap(), peer).await.unwrap();
            let request = b"GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
            stream.write_all(request).await.unwrap();
            let mut answer = String::new();
            // The end of TLS may be missing, as the end of the connection is enough.
            let _ = stream.read_to_string(&mut answer).await;
            answer
        };
        let ((), answer) = tokio::join!(answering, asking);
        assert!(answer.contains("sealed"), "{answer}");
    }

    /// The levels of no log.
    struct NoLog;

    impl crate::LogLevels for NoLog {
        fn set(&self, _: &str, _: Option<std::net::IpAddr>) -> Result<crate::Levels, String> {
            Ok(crate::Levels::default())
        }

        fn levels(&self) -> crate::Levels {
            crate::Levels::default()
        }
    }

    /// The accounts of no file.
    struct NoAccounts;

    impl crate::AccountFiles for NoAccounts {
        fn read_again(&self, _: std::path::PathBuf) -> crate::ReadAgain<'_> {
            Box::pin(async { Err(crate::NotRead::OtherFile) })
        }
    }

    impl crate::Reloading for NoAccounts {
        fn reload(&self) -> crate::Reloaded<'_> {
            Box::pin(async { Err(String::from("there is no configuration")) })
        }

        fn state(&self) -> crate::ConfigurationState {
            let (share, reason) = (String::from("lost"), String::from("its disk is away"));
            let not_served = vec![crate::UnservedShare { share, reason }];
            crate::ConfigurationState { refused: None, not_served }
        }
    }

    /// A keeper of snapshots that takes its time.
    struct Slow(Duration);

    impl crate::SnapshotKeeper for Slow {
        fn view(&self) -> Vec<crate::ShareSnapshots> {
            Vec::new()
        }

        fn act(&self, _: crate::SnapshotAct, _: &'static str) -> crate::Keeping<'_> {
            let time = self.0;
            Box::pin(async move {
                tokio::time::sleep(time).await;
                Ok(vec![crate::KnownSnapshot::default()])
            })
        }
    }

    /// Returns the answer to `request`, with a keeper that takes `time`, and the seconds that it took.
    async fn answered(request: &[u8], time: Duration) -> (String, u64) {
        let server = frevo_server::Server::builder().build().unwrap();
        let (levels, accounts) = (Arc::new(NoLog), Arc::new(NoAccounts));
        let snapshots = Some(Arc::new(Slow(time)) as Arc<dyn crate::SnapshotKeeper>);
        let (configuration, cluster) = (Arc::new(NoAccounts), None);
        let admin = Admin {
            server,
            levels,
            accounts,
            configuration,
            cluster,
            snapshots,
            quotas: None,
            managing: None,
            changes_passwords: true,
            tokens: crate::Tokens::default(),
        };
        let service = Rc::new(routes::Service::new(Arc::new(admin)));
        let (mut peer, stream) = tokio::io::duplex(1 << 16);
        peer.write_all(request).await.unwrap();
        let began = Instant::now();
        let slot = Rc::<ConnectionSlots>::default().take(Peer::Process(1));
        let answer = |request| async { service.answer(request, Caller::Local, &slot).await };
        let reading = async {
            let mut answer = Vec::new();
            peer.read_to_end(&mut answer).await.unwrap();
            answer
        };
        let ((), answer) = tokio::join!(converse(stream, Caller::Local, answer), reading);
        (String::from_utf8(answer).unwrap(), began.elapsed().as_secs())
    }

    #[tokio::test(start_paused = true)]
    async fn a_body_must_come_in_time() {
        for path in ["/kick", "/snapshots"] {
            let head = format!("POST {path} HTTP/1.1\r\nHost: localhost\r\n");
            let request = head + "Content-Length: 9\r\n\r\n{";
            let (answer, took) = answered(request.as_bytes(), Duration::ZERO).await;
            assert_eq!(took, ANSWER_TIME.as_secs());
            assert!(answer.starts_with("HTTP/1.1 408"), "{answer}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn snapshots_take_their_time() {
        let act = r#"{"act":"prune","share":"a"}"#;
        let head = "POST /snapshots HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n";
        let request = format!("{head}Content-Length: {}\r\n\r\n{act}", act.len());
        let limit = SNAPSHOTS_TIME.as_secs();
        for (time, status, took) in [(limit - 1, "200", limit - 1), (limit + 1, "408", limit)] {
            let answered = answered(request.as_bytes(), Duration::from_secs(time)).await;
            assert_eq!(answered.1, took);
            assert!(answered.0.starts_with(&format!("HTTP/1.1 {status}")), "{}", answered.0);
        }
    }

    #[tokio::test]
    async fn a_share_that_is_not_served_is_shown() {
        let local = tokio::task::LocalSet::new();
        let of = async |path: &str| {
            let head =
                format!("GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
            answered(head.as_bytes(), Duration::ZERO).await.0
        };
        let look = async {
            let shares = of("/shares").await;
            assert!(
                shares.contains("\"state\":\"not_served\",\"reason\":\"its disk is away\""),
                "{shares}"
            );
            let metrics = of("/metrics").await;
            assert!(metrics.contains("frevo_share_usable{share=\"lost\"} 0\n"), "{metrics}");
            let state = of("/configuration").await;
            assert!(state.contains("\"refused\":null"), "{state}");
        };
        local.run_until(look).await;
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_headers_are_read() {
        for (count, status) in [(HEADERS - 1, "200"), (HEADERS, "200"), (HEADERS + 1, "431")] {
            let (mut peer, stream) = tokio::io::duplex(1 << 21);
            let more: String = (1..count).map(|at| format!("X-{at}: y\r\n")).collect();
            let request = format!("GET / HTTP/1.1\r\nHost: x\r\n{more}\r\n");
            peer.write_all(request.as_bytes()).await.unwrap();
            converse(stream, STRANGER, long_answer).await;
            let mut answer = Vec::new();
            peer.read_to_end(&mut answer).await.unwrap();
            let head = String::from_utf8_lossy(&answer[..12]).into_owned();
            assert_eq!(head, format!("HTTP/1.1 {status}"), "{count}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_peer_has_less() {
        let (peer, stream) = tokio::io::duplex(1_024);
        let began = Instant::now();
        converse(stream, STRANGER, long_answer).await;
        assert_eq!(began.elapsed().as_secs(), HEAD_TIME.as_secs());
        drop(peer);
        let (mut peer, stream) = tokio::io::duplex(1 << 21);
        let began = Instant::now();
        peer.write_all(REQUEST).await.unwrap();
        converse(stream, STRANGER, long_answer).await;
        assert_eq!(began.elapsed().as_secs(), HEAD_TIME.as_secs());
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200") && answer.len() > 1 << 20);
    }
}
