//! The metadata over HTTP: one kind of request, one answer, then the connection ends.

use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::timeout;

use super::answers;
use super::request::{Action, Request};
use super::shared::{HTTP_PORT, Shared, unmapped};
use crate::limits::{CONNECTIONS, REQUEST_BYTES, REQUEST_TIME};

/// Listens for requests of both families.
pub(super) fn listen() -> io::Result<TcpListener> {
    let open = |family: Domain, address: SocketAddr| -> io::Result<TcpListener> {
        let socket = Socket::new(family, Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        socket.set_nonblocking(true)?;
        if family == Domain::IPV6 {
            socket.set_only_v6(false)?;
        }
        socket.bind(&address.into())?;
        socket.listen(i32::try_from(CONNECTIONS).unwrap_or(i32::MAX))?;
        TcpListener::from_std(socket.into())
    };
    open(Domain::IPV6, (Ipv6Addr::UNSPECIFIED, HTTP_PORT).into())
        .or_else(|_| open(Domain::IPV4, (Ipv4Addr::UNSPECIFIED, HTTP_PORT).into()))
}

/// Serves connections of neighbours, few at once.
pub(super) async fn serve(listener: TcpListener, shared: Arc<Shared>) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        // If all places are taken, a further connection is not accepted and waits in the kernel's
        // queue.
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        let Ok((stream, peer)) = listener.accept().await else {
            // The process may have no free descriptor. Then it waits until other connections have
            // ended.
            tokio::time::sleep(std::time::Duration::from_millis(100)).await;
            continue;
        };
        if !is_welcome(&shared, &stream, &peer) {
            continue;
        }
        let shared = Arc::clone(&shared);
        tokio::spawn(async move {
            let _place = place;
            converse(stream, &shared).await;
        });
    }
}

/// Answers one request, in bounded time.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Shared) {
    if timeout(REQUEST_TIME, exchange(stream, shared)).await.is_err() {
        tracing::debug!("a request for metadata took too long");
    }
}

/// True for a neighbour that came to an address of an interface that is announced.
fn is_welcome(shared: &Shared, stream: &TcpStream, peer: &SocketAddr) -> bool {
    let here = stream.local_addr().map(|address| unmapped(address).ip());
    let is_here = |address| shared.interfaces().iter().any(|one| one.address == address);
    here.is_ok_and(is_here) && shared.interface_of(peer).is_some()
}

async fn exchange(mut stream: impl AsyncRead + AsyncWrite + Unpin, shared: &Shared) {
    let answer = match read_request(&mut stream).await {
        Some((path, body)) => answer_to(shared, &path, &body),
        None => None,
    };
    let (status, text) = match answer {
        Some(text) => ("200 OK", text),
        None => ("400 Bad Request", String::new()),
    };
    let reply = format!(
        "HTTP/1.1 {status}\r\nContent-Type: application/soap+xml\r\nContent-Length: {}\r\n\
         Connection: close\r\n\r\n{text}",
        text.len()
    );
    // The peer may have closed the connection already, so errors are ignored.
    let _ = stream.write_all(reply.as_bytes()).await;
    let _ = stream.shutdown().await;
}

/// The metadata, for a request that is for this server. None for any other.
pub(super) fn answer_to(shared: &Shared, path: &str, body: &[u8]) -> Option<String> {
    if !path.eq_ignore_ascii_case(&format!("/{}", shared.id)) {
        return None;
    }
    Request::read(body)
        .filter(|request| request.action == Action::Get && request.is_for(&shared.id))
        .map(|request| answers::metadata(shared, &request.message_id))
}

/// The path and the body of a POST request. None for any other, and for what is too long.
pub(super) async fn read_request(
    stream: &mut (impl AsyncRead + Unpin),
) -> Option<(String, Vec<u8>)> {
    let mut data = Vec::new();
    let (head, begin) = loop {
        if let Some(at) = data.windows(4).position(|four| four == b"\r\n\r\n") {
            break (String::from_utf8(data.get(..at)?.to_vec()).ok()?, at + 4);
        }
        more(stream, &mut data).await?;
    };
    let mut lines = head.split("\r\n");
    let mut words = lines.next()?.split(' ');
    let path = (words.next()? == "POST").then(|| words.next())??.to_owned();
    let length = lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        let is_length = name.trim().eq_ignore_ascii_case("content-length");
        is_length.then(|| value.trim().parse::<usize>().ok())
    });
    let end = begin.checked_add(length??)?;
    if end > REQUEST_BYTES {
        return None;
    }
    while data.len() < end {
        more(stream, &mut data).await?;
    }
    Some((path, data.get(begin..end)?.to_vec()))
}

/// Reads more of a request. None at the end, or when it is too long.
async fn more(stream: &mut (impl AsyncRead + Unpin), data: &mut Vec<u8>) -> Option<()> {
    let mut piece = [0; 1_024];
    let count = stream.read(&mut piece).await.ok()?;
    data.extend_from_slice(piece.get(..count)?);
    (count > 0 && data.len() <= REQUEST_BYTES).then_some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interfaces::Interface;

    async fn read(text: &str) -> Option<(String, Vec<u8>)> {
        read_request(&mut text.as_bytes()).await
    }

    #[tokio::test]
    async fn one_kind_of_request_is_read() {
        let good = "POST /1-2 HTTP/1.1\r\nHost: x\r\ncontent-length: 4\r\n\r\nbodymore";
        assert_eq!(read(good).await, Some((String::from("/1-2"), b"body".to_vec())));
        let large = REQUEST_BYTES.to_string();
        for wrong in [
            "",
            "POST /1 HTTP/1.1\r\n",
            "GET /1 HTTP/1.1\r\nContent-Length: 0\r\n\r\n",
            "POST /1 HTTP/1.1\r\n\r\n",
            "POST /1 HTTP/1.1\r\nContent-Length: -1\r\n\r\n",
            "POST /1 HTTP/1.1\r\nContent-Length: 5\r\n\r\nbody",
            &good.replace(": 4", &format!(": {large}")),
            &good.replace(": 4", &format!(": {}", usize::MAX)),
            &"x".repeat(2 * REQUEST_BYTES),
        ] {
            assert_eq!(read(wrong).await, None, "{wrong}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_has_its_time() {
        let shared = Shared::new(crate::announcement::example());
        for sent in ["", "POST /1-2 HTTP/1.1\r\nContent-Length: 4\r\n\r\nbod"] {
            let (mut peer, stream) = tokio::io::duplex(1_024);
            peer.write_all(sent.as_bytes()).await.unwrap();
            let began = tokio::time::Instant::now();
            converse(stream, &shared).await;
            assert_eq!(began.elapsed().as_secs(), REQUEST_TIME.as_secs());
        }
    }

    #[tokio::test]
    async fn so_many_are_served_at_once() {
        let shared = Arc::new(Shared::new(crate::announcement::example()));
        let address = "127.0.0.1".parse().unwrap();
        let on = Interface { name: String::from("lo"), index: 1, address, prefix: 8 };
        shared.replace_interfaces(vec![on]);
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let to = listener.local_addr().unwrap();
        let serving = tokio::spawn(serve(listener, Arc::clone(&shared)));
        let ask = async || {
            let mut stream = TcpStream::connect(to).await.unwrap();
            stream.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            stream
        };
        let mut idle = Vec::new();
        for _ in 1..CONNECTIONS {
            idle.push(TcpStream::connect(to).await.unwrap());
        }
        let mut answer = String::new();
        ask().await.read_to_string(&mut answer).await.unwrap();
        assert!(answer.starts_with("HTTP/1.1 400 "), "the last place: {answer}");
        idle.push(TcpStream::connect(to).await.unwrap());
        let mut waiting = ask().await;
        let soon = std::time::Duration::from_millis(200);
        assert!(timeout(soon, waiting.read_u8()).await.is_err(), "there is no place");
        idle.pop();
        assert_eq!(waiting.read_u8().await.unwrap(), b'H');
        serving.abort();
    }
}
