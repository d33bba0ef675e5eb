//! Connections of the interface, from acceptance to end.

use std::rc::Rc;
use std::sync::Arc;

use hyper::Request;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener, UnixStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::access::{Caller, may_connect};
use crate::answers::Answer;
use crate::limits::{CONNECTIONS, HEAD_BYTES, HEAD_TIME, HEADERS, REMOTE_TIME};
use crate::{Admin, Listening, routes};

/// Accepts connections for ever.
pub(crate) async fn serve(admin: Arc<Admin>, listening: Listening) {
    let (local, remote) =
        (Arc::new(Semaphore::new(CONNECTIONS)), Arc::new(Semaphore::new(CONNECTIONS)));
    let service = Rc::new(routes::Service::new(admin));
    tokio::task::spawn_local(service.sampling());
    let unix = listening.unix.and_then(|(listener, _)| UnixListener::from_std(listener).ok());
    let tcp = listening.tcp.and_then(|listener| TcpListener::from_std(listener).ok());
    let on_unix = async {
        let Some(listener) = unix else { return std::future::pending().await };
        loop {
            let Ok(place) = Arc::clone(&local).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) if is_permitted(&stream) => {
                    begin(&service, stream, Caller::Local, place);
                }
                Ok(_) => {}
                Err(error) => after_failure(&error).await,
            }
        }
    };
    let on_tcp = async {
        let Some(listener) = tcp else { return std::future::pending().await };
        loop {
            let Ok(place) = Arc::clone(&remote).acquire_owned().await else { return };
            match listener.accept().await {
                Ok((stream, _)) => begin(&service, stream, Caller::Remote, place),
                Err(error) => after_failure(&error).await,
            }
        }
    };
    tokio::join!(on_unix, on_tcp);
}

/// SO_PEERCRED: the user that connected, whatever it has become since.
fn is_permitted(stream: &UnixStream) -> bool {
    let uid = stream.peer_cred().map(|peer| peer.uid());
    let is_permitted = uid.as_ref().is_ok_and(|uid| may_connect(*uid));
    if !is_permitted {
        tracing::warn!(target: "frevo::admin", uid = uid.unwrap_or(u32::MAX),
            "refused a user at the admin socket: it is for root and the user that runs the server");
    }
    is_permitted
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
    place: OwnedSemaphorePermit,
) {
    let service = Rc::clone(service);
    tokio::task::spawn_local(async move {
        let _place = place;
        let answer = move |request| {
            let service = Rc::clone(&service);
            async move { service.answer(request, caller).await }
        };
        converse(stream, caller, answer).await;
    });
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
        Caller::Remote => tokio::time::timeout(REMOTE_TIME, connection).await,
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
    use hyper::StatusCode;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::time::Instant;

    use super::*;
    use crate::answers::text;

    const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n";

    async fn long_answer(_: Request<Incoming>) -> Answer {
        text(StatusCode::OK, &"x".repeat(1 << 20))
    }

    #[tokio::test(start_paused = true)]
    async fn a_peer_that_takes_no_answer_has_its_time() {
        let (mut peer, stream) = tokio::io::duplex(1_024);
        peer.write_all(REQUEST).await.unwrap();
        let began = Instant::now();
        converse(stream, Caller::Remote, long_answer).await;
        assert_eq!(began.elapsed().as_secs(), REMOTE_TIME.as_secs());
    }

    #[tokio::test(start_paused = true)]
    async fn so_many_headers_are_read() {
        for (count, status) in [(HEADERS - 1, "200"), (HEADERS, "200"), (HEADERS + 1, "431")] {
            let (mut peer, stream) = tokio::io::duplex(1 << 21);
            let more: String = (1..count).map(|at| format!("X-{at}: y\r\n")).collect();
            let request = format!("GET / HTTP/1.1\r\nHost: x\r\n{more}\r\n");
            peer.write_all(request.as_bytes()).await.unwrap();
            converse(stream, Caller::Remote, long_answer).await;
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
        converse(stream, Caller::Remote, long_answer).await;
        assert_eq!(began.elapsed().as_secs(), HEAD_TIME.as_secs());
        drop(peer);
        let (mut peer, stream) = tokio::io::duplex(1 << 21);
        let began = Instant::now();
        peer.write_all(REQUEST).await.unwrap();
        converse(stream, Caller::Remote, long_answer).await;
        assert_eq!(began.elapsed().as_secs(), HEAD_TIME.as_secs());
        let mut answer = Vec::new();
        peer.read_to_end(&mut answer).await.unwrap();
        assert!(answer.starts_with(b"HTTP/1.1 200") && answer.len() > 1 << 20);
    }
}
