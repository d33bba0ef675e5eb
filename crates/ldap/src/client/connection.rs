//! One connection with a server: RFC 4511 5, 4513 3 and 5.1.3.

use alloc::boxed::Box;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;

use frevo_auth::Zeroizing;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};

use super::options::{Options, Server, ServerPlace, TlsUse};
use super::{Entries, Fault};
use crate::limits::{ANSWER_BYTES, REFERENCES};
use crate::message::{self, Answer, LdapResult, Message, ResultCode, Search};

/// Bytes that are read at a time.
const READ_BYTES: usize = 16 << 10;

/// A way of bytes.
pub(super) trait Bytes: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Bytes for T {}

/// A connection that has authenticated itself.
pub(super) type Connection = Exchange<Box<dyn Bytes>>;

/// Requests and their answers.
pub(super) struct Exchange<S> {
    stream: S,
    /// Bytes that have come and are of no message yet.
    received: Zeroizing<Vec<u8>>,
    /// messageID of the latest request.
    last_id: u32,
}

impl Connection {
    /// Connects, begins TLS and binds.
    pub(super) async fn open(server: &Server, options: &Options) -> Result<Self, Fault> {
        let mut connection = Exchange::over(connected(server, options).await?);
        connection.bind(options).await?;
        Ok(connection)
    }
}

async fn connected(server: &Server, options: &Options) -> Result<Box<dyn Bytes>, Fault> {
    let unreachable = |error: std::io::Error| Fault::Unreachable(error.to_string());
    let (host, port) = match &server.place {
        ServerPlace::Unix(path) => {
            return Ok(Box::new(UnixStream::connect(path).await.map_err(unreachable)?));
        }
        ServerPlace::Tcp { host, port } => (host, *port),
    };
    let mut stream = TcpStream::connect((&**host, port)).await.map_err(unreachable)?;
    // A request is one small packet, and its answer is waited for.
    let _ = stream.set_nodelay(true);
    match server.tls {
        TlsUse::None => return Ok(Box::new(stream)),
        TlsUse::StartTls => Exchange::over(&mut stream).start_tls().await?,
        TlsUse::FromStart => {}
    }
    let wrong = |why: &str| Fault::Tls(String::from(why));
    let tls = options.tls.as_ref().ok_or_else(|| wrong("no authority is trusted"))?;
    let name = ServerName::try_from(host.clone())
        .map_err(|_| wrong("the host is not a name of a certificate"))?;
    let stream = tls.connect(name, stream).await;
    Ok(Box::new(stream.map_err(|error| Fault::Tls(error.to_string()))?))
}

impl<S: Bytes> Exchange<S> {
    fn over(stream: S) -> Self {
        let received = Zeroizing::new(Vec::with_capacity(READ_BYTES));
        Self { stream, received, last_id: 0 }
    }

    /// Has the server begin TLS. RFC 4511 4.14.1: nothing may follow its answer before TLS, and bytes that
    /// somebody on the way has sent then must not be taken for the server's.
    async fn start_tls(&mut self) -> Result<(), Fault> {
        let id = self.next_id();
        self.send(&message::start_tls(id)).await?;
        let Answer::Extended(result) = self.answer(id).await? else {
            return Err(Fault::Malformed("an answer to StartTLS of another kind"));
        };
        if result.code != ResultCode::SUCCESS {
            return Err(Fault::StartTls(result));
        }
        if self.received.is_empty() {
            Ok(())
        } else {
            Err(Fault::Malformed("bytes between StartTLS and TLS"))
        }
    }

    async fn bind(&mut self, options: &Options) -> Result<(), Fault> {
        // A connection without a bind asks as nobody, RFC 4513 5.1.1.
        let Some(bind) = &options.bind else { return Ok(()) };
        let id = self.next_id();
        self.send(&message::bind(id, &bind.dn, &bind.password)).await?;
        match self.answer(id).await? {
            Answer::Bound(LdapResult { code: ResultCode::SUCCESS, .. }) => Ok(()),
            Answer::Bound(result) => Err(Fault::Bind(result)),
            _ => Err(Fault::Malformed("an answer to a bind of another kind")),
        }
    }

    /// Asks for entries. With more than `most` of them the answer is cut.
    pub(super) async fn search(
        &mut self,
        search: &Search<'_>,
        most: usize,
    ) -> Result<Entries, Fault> {
        let id = self.next_id();
        self.send(&message::search(id, search)).await?;
        let mut found = Entries { entries: Vec::new(), cookie: None, is_cut: false };
        let (mut bytes, mut references) = (0_usize, 0_usize);
        loop {
            let (answer, length) = self.answer_and_length(id).await?;
            bytes = bytes.saturating_add(length);
            if bytes > ANSWER_BYTES {
                return Err(Fault::Malformed("too long"));
            }
            match answer {
                Answer::Entry(entry) if found.entries.len() < most => found.entries.push(entry),
                Answer::Entry(_) => found.is_cut = true,
                Answer::Reference if references < REFERENCES => {
                    references = references.saturating_add(1);
                }
                Answer::Done(result, cookie) => {
                    found.cookie = cookie;
                    return match result.code {
                        ResultCode::SUCCESS => Ok(found),
                        ResultCode::SIZE_LIMIT_EXCEEDED if !found.entries.is_empty() => {
                            found.is_cut = true;
                            Ok(found)
                        }
                        _ => Err(Fault::Search(result)),
                    };
                }
                _ => return Err(Fault::Malformed("an answer to a search of another kind")),
            }
        }
    }

    fn next_id(&mut self) -> u32 {
        // RFC 4511 4.1.1.1: from 1 to maxInt.
        self.last_id = (self.last_id & 0x3FFF_FFFF).saturating_add(1);
        self.last_id
    }

    async fn send(&mut self, bytes: &[u8]) -> Result<(), Fault> {
        self.stream.write_all(bytes).await.map_err(|_| Fault::Ended)?;
        self.stream.flush().await.map_err(|_| Fault::Ended)
    }

    async fn answer(&mut self, id: u32) -> Result<Answer, Fault> {
        self.answer_and_length(id).await.map(|(answer, _)| answer)
    }

    /// The next answer to the request `id`, and its length. A message to nobody tells that the server goes:
    /// RFC 4511 4.4.1.
    async fn answer_and_length(&mut self, id: u32) -> Result<(Answer, usize), Fault> {
        let malformed = |fault: frevo_wire::Malformed| Fault::Malformed(fault.what);
        let length = loop {
            let length = message::length(&self.received).map_err(malformed)?;
            if let Some(length) = length.filter(|length| *length <= self.received.len()) {
                break length;
            }
            let read = self.stream.read_buf(&mut *self.received).await.map_err(|_| Fault::Ended)?;
            if read == 0 {
                return Err(Fault::Ended);
            }
        };
        let message = self.received.get(..length).unwrap_or_default();
        let message = Message::parse(message).map_err(malformed)?;
        self.received.drain(..length);
        match message {
            Message { id: 0, .. } => Err(Fault::Ended),
            Message { id: of, answer } if of == id => Ok((answer, length)),
            _ => Err(Fault::Malformed("an answer to another request")),
        }
    }
}
