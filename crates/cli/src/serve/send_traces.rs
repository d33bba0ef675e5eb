//! The process that sends traces to a collector in the server's place: `frevo send-traces`.
//!
//! The server is confined before it serves anybody, and connects to nobody. So this process starts
//! earlier, and shares nothing with the server but a socket: a line with the head of a request and
//! the request's body go one way, a line with the status and the body of the answer the other way.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use opentelemetry_http::{Bytes, HttpError, Request, Response};
use parking_lot::Mutex;
use serde_json::{Value, json};

use super::confine::helpers;
use super::traces::PATIENCE;
use crate::exit::Done;

/// The longest answer of a collector, and the longest line.
const ANSWER_BYTES: usize = 1 << 16;
/// The longest request: as many spans as are sent together.
const REQUEST_BYTES: u64 = 64 << 20;
/// Time beyond that of the collector which the process has to answer.
const MORE_PATIENCE: Duration = Duration::from_secs(2);

/// The process, as the server sees it.
#[derive(Debug)]
pub(super) struct Sender(Mutex<BufReader<UnixStream>>);

impl Sender {
    /// Starts this program again as the process that sends to `address`.
    pub(super) fn start(address: SocketAddr) -> io::Result<Self> {
        let (ours, theirs) = UnixStream::pair()?;
        ours.set_read_timeout(Some(PATIENCE + MORE_PATIENCE))?;
        ours.set_write_timeout(Some(PATIENCE))?;
        let output: OwnedFd = theirs.try_clone()?.into();
        let mut command = Command::new("/proc/self/exe");
        command.arg0("frevo-traces").arg("send-traces").arg(address.to_string()).env_clear();
        command.process_group(0).stdin(Stdio::from(OwnedFd::from(theirs)));
        command.stdout(Stdio::from(output)).stderr(Stdio::null());
        // The process ends by itself when its socket is closed, so the server does not wait for it.
        command.spawn()?;
        Ok(Self(Mutex::new(BufReader::new(ours))))
    }

    /// Sends a request and waits for its answer.
    pub(super) fn exchange(&self, request: &Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let mut socket = self.0.lock();
        let headers: Vec<Value> = request
            .headers()
            .iter()
            .filter_map(|(name, value)| Some(json!([name.as_str(), value.to_str().ok()?])))
            .collect();
        let uri = request.uri().to_string();
        let head = json!({ "uri": uri, "headers": headers, "length": request.body().len() });
        writeln!(socket.get_mut(), "{head}")?;
        socket.get_mut().write_all(request.body())?;
        let answer = line(&mut *socket)?.ok_or("the process that sends traces has ended")?;
        if let Some(error) = answer.get("error").and_then(Value::as_str) {
            return Err(error.into());
        }
        let body = body(&mut *socket, &answer)?;
        let status = answer.get("status").and_then(Value::as_u64).unwrap_or_default();
        Ok(Response::builder().status(u16::try_from(status)?).body(body)?)
    }
}

/// Sends requests until the server has ended.
pub(crate) fn run(address: SocketAddr) -> Done {
    // The name of the thread only helps in process lists, so an error is ignored.
    let _ = rustix::thread::set_name(c"frevo-traces");
    helpers::confine_traces(address.port());
    let mut stdin = io::stdin().lock();
    while let Ok(Some(head)) = line(&mut stdin) {
        let Ok(body) = body(&mut stdin, &head) else { return Ok(()) };
        let (answer, body) = match request(&head, body).and_then(|asked| sent(address, asked)) {
            Ok(response) => {
                let (head, body) = response.into_parts();
                (json!({ "status": head.status.as_u16(), "length": body.len() }), body)
            }
            Err(error) => (json!({ "error": error.to_string() }), Bytes::new()),
        };
        let mut stdout = io::stdout().lock();
        let told = writeln!(stdout, "{answer}").and_then(|()| stdout.write_all(&body));
        if told.and_then(|()| stdout.flush()).is_err() {
            return Ok(());
        }
    }
    Ok(())
}

/// Reads a line. None at the end.
fn line(input: &mut impl BufRead) -> io::Result<Option<Value>> {
    let mut line = String::new();
    let most = u64::try_from(ANSWER_BYTES).unwrap_or(u64::MAX);
    if Read::take(&mut *input, most).read_line(&mut line)? == 0 {
        return Ok(None);
    }
    Ok(Some(serde_json::from_str(&line)?))
}

/// Reads the body behind a line.
fn body(input: &mut impl Read, head: &Value) -> io::Result<Bytes> {
    let length = head.get("length").and_then(Value::as_u64).unwrap_or_default();
    if length > REQUEST_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut body = Vec::new();
    input.take(length).read_to_end(&mut body)?;
    let is_whole = u64::try_from(body.len()).is_ok_and(|read| read == length);
    if is_whole { Ok(body.into()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// The request that a line describes.
fn request(head: &Value, body: Bytes) -> Result<Request<Bytes>, HttpError> {
    let uri = head.get("uri").and_then(Value::as_str).unwrap_or_default();
    let uri: hyper::Uri = uri.parse()?;
    let mut request = Request::builder().method("POST");
    if let Some(authority) = uri.authority() {
        request = request.header(hyper::header::HOST, authority.as_str());
    }
    for header in head.get("headers").and_then(Value::as_array).into_iter().flatten() {
        let text = |at: usize| header.get(at).and_then(Value::as_str).unwrap_or_default();
        request = request.header(text(0), text(1));
    }
    let path = uri.path_and_query().map_or("/", |path| path.as_str());
    Ok(request.uri(path).body(body)?)
}

/// Sends a request and waits for its answer.
fn sent(address: SocketAddr, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let exchanged = async {
        let stream = tokio::net::TcpStream::connect(address).await?;
        let (mut sender, connection) =
            hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(connection);
        let (head, body) = request.into_parts();
        let response = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
        let (head, body) = response.into_parts();
        let body = Limited::new(body, ANSWER_BYTES).collect().await?.to_bytes();
        driver.abort();
        Ok::<_, HttpError>(Response::from_parts(head, body))
    };
    runtime.block_on(async { tokio::time::timeout(PATIENCE, exchanged).await })?
}
