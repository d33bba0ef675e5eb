//! The other end of the interface: requests to the server of this machine.

use std::io;
use std::path::Path;
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use tokio::net::UnixStream;

use crate::limits::ANSWER_BYTES;

/// The time within which a server must answer.
const PATIENCE: Duration = Duration::from_secs(60);

/// The failure of a request.
#[derive(Debug)]
pub enum Failure {
    /// No server listens on the socket, or the user may not connect to it.
    Unreachable(io::Error),
    /// The server refused the request, for this reason.
    Refused {
        /// The status code of HTTP, such as 200 or 404.
        status: u16,
        /// The reason, for people.
        why: String,
    },
    /// The connection broke, or what came is no answer.
    Broken(String),
}

#[derive(Deserialize)]
struct Refusal {
    error: String,
}

/// Asks the server that listens at `socket`, and returns the body of its answer. With `body` the
/// request is a POST.
///
/// # Errors
/// See [`Failure`].
pub async fn ask(socket: &Path, path: &str, body: Option<&str>) -> Result<Bytes, Failure> {
    let stream = UnixStream::connect(socket).await.map_err(Failure::Unreachable)?;
    match tokio::time::timeout(PATIENCE, exchange(stream, path, body)).await {
        Ok(answer) => answer,
        Err(_) => Err(Failure::Broken(format!("no answer within {} s", PATIENCE.as_secs()))),
    }
}

/// Asks the server that listens at `socket` by a POST, and gives each part of the answer to `take`, until
/// the answer ends or `take` returns false.
///
/// # Errors
/// See [`Failure`].
pub async fn follow(
    socket: &Path,
    path: &str,
    body: &str,
    mut take: impl FnMut(&[u8]) -> bool,
) -> Result<(), Failure> {
    let broken = |error: hyper::Error| Failure::Broken(error.to_string());
    let stream = UnixStream::connect(socket).await.map_err(Failure::Unreachable)?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let content = Full::new(Bytes::from(body.to_owned()));
    let request = Request::builder().method("POST").uri(path).header("host", "localhost");
    let request = request.body(content).map_err(|error| Failure::Broken(error.to_string()))?;
    let asked = async move {
        let answer = sender.send_request(request).await.map_err(broken)?;
        if answer.status() != StatusCode::OK {
            return Err(refused(answer).await);
        }
        let mut body = answer.into_body();
        while let Some(frame) = body.frame().await {
            let frame = frame.map_err(broken)?;
            if frame.data_ref().is_some_and(|part| !take(part)) {
                return Ok(());
            }
        }
        Ok(())
    };
    tokio::select! {
        biased;
        answer = asked => answer,
        ended = connection => Err(over(ended)),
    }
}

/// The refusal that an answer tells.
async fn refused(answer: hyper::Response<Incoming>) -> Failure {
    let status = answer.status();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
    let refusal = body.ok().and_then(|body| serde_json::from_slice(&body.to_bytes()).ok());
    let why = refusal.map_or_else(|| status.to_string(), |refusal: Refusal| refusal.error);
    Failure::Refused { status: status.as_u16(), why }
}

/// The end of a connection that has not answered.
fn over(ended: Result<(), hyper::Error>) -> Failure {
    Failure::Broken(match ended {
        Ok(()) => String::from("the server closed the connection"),
        Err(error) => error.to_string(),
    })
}

async fn exchange(stream: UnixStream, path: &str, body: Option<&str>) -> Result<Bytes, Failure> {
    let broken = |error: hyper::Error| Failure::Broken(error.to_string());
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(broken)?;
    let method = if body.is_some() { "POST" } else { "GET" };
    let content = Full::new(Bytes::from(body.unwrap_or_default().to_owned()));
    let request = Request::builder().method(method).uri(path).header("host", "localhost");
    let request = request.body(content).map_err(|error| Failure::Broken(error.to_string()))?;
    let asked = async move {
        let answer = sender.send_request(request).await.map_err(broken)?;
        let status = answer.status();
        let body = Limited::new(answer.into_body(), ANSWER_BYTES).collect().await;
        let body = body.map_err(|error| Failure::Broken(error.to_string()))?.to_bytes();
        if status == StatusCode::OK {
            return Ok(body);
        }
        let refusal: Option<Refusal> = serde_json::from_slice(&body).ok();
        let why = refusal.map_or_else(|| status.to_string(), |refusal| refusal.error);
        Err(Failure::Refused { status: status.as_u16(), why })
    };
    tokio::select! {
        biased;
        answer = asked => answer,
        // Without an answer the connection's future ends only if the connection breaks, so that is
        // the error.
        ended = connection => Err(over(ended)),
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    #[tokio::test]
    async fn an_answer_has_so_many_bytes() {
        for bytes in [ANSWER_BYTES - 1, ANSWER_BYTES, ANSWER_BYTES + 1] {
            let (ours, mut theirs) = UnixStream::pair().unwrap();
            let answering = async {
                let mut request = [0; 16];
                theirs.read_exact(&mut request).await.unwrap();
                let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n");
                theirs.write_all(head.as_bytes()).await.unwrap();
                // The client closes the connection when the answer gets too long, so this write may
                // fail.
                let _ = theirs.write_all(&vec![b'x'; bytes]).await;
            };
            let (answer, ()) = tokio::join!(exchange(ours, "/status", None), answering);
            match answer {
                Ok(body) => assert_eq!((body.len(), true), (bytes, bytes <= ANSWER_BYTES)),
                Err(Failure::Broken(_)) => assert!(bytes > ANSWER_BYTES, "{bytes}"),
                Err(other) => panic!("{bytes}: {other:?}"),
            }
        }
    }
}
