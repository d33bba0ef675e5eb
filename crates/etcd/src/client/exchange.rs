//! One request at one member, with its answer.

use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;

use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, HeaderValue};
use hyper::{Method, Request, Response, StatusCode};

use super::connection::{Connection, words};
use super::endpoint::Member;
use crate::json::{self, Call, Lines, TOO_LONG, Verdict};
use crate::limits::ANSWER_BYTES;
use crate::types::Fault;

/// Makes a member without a leader refuse a request at once, before it reads it.
const HAS_LEADER: HeaderName = HeaderName::from_static("grpc-metadata-hasleader");

/// The reason why an exchange has no answer.
pub(super) enum Miss {
    /// The request did not leave, or the member refused it without reading it.
    NotHappened(String),
    /// It is not known if the request happened, or if it will.
    Unknown(String),
    /// The token is missing or no longer valid. The request did not happen.
    Token,
    /// The request has this end.
    End(Fault),
}

/// A request for one member.
pub(super) struct Sending<'a> {
    pub(super) call: Call,
    pub(super) body: &'a Bytes,
    pub(super) token: Option<&'a Arc<HeaderValue>>,
    /// Becomes true when the request leaves.
    pub(super) is_sent: &'a core::sync::atomic::AtomicBool,
}

/// An answer whose body is still to be read.
pub(super) struct Begun {
    connection: Connection,
    body: Incoming,
}

/// Sends a request on a connection that waits or on a new one, and reads the whole answer.
pub(super) async fn exchange(member: &Member, sending: &Sending<'_>) -> Result<Vec<u8>, Miss> {
    let mut begun = begin(member, sending).await?;
    let body = collect(&mut begun.body).await.map_err(|fault| match fault {
        Broken::Connection(why) => Miss::Unknown(why),
        Broken::TooLong => Miss::End(TOO_LONG),
    })?;
    member.keep(begun.connection);
    Ok(body)
}

/// Sends a request and reads the first line of the answer, where that is a stream.
pub(super) async fn first_line(member: &Member, sending: &Sending<'_>) -> Result<Vec<u8>, Miss> {
    let body = exchange(member, sending).await?;
    let mut first = None;
    let mut lines = Lines::default();
    let taken = lines.take(&body, |line| {
        first.get_or_insert_with(|| line.to_vec());
        Ok(())
    });
    taken.map_err(Miss::End)?;
    first.ok_or_else(|| Miss::Unknown("the answer is empty".into()))
}

/// Sends a request and returns its answer without the body, if that is no refusal.
pub(super) async fn begin(member: &Member, sending: &Sending<'_>) -> Result<Begun, Miss> {
    let mut connection = match member.idle() {
        Some(connection) => connection,
        None => Connection::open(member).await.map_err(Miss::NotHappened)?,
    };
    let request = request(member, sending)?;
    if let Err(error) = connection.sender.ready().await {
        return Err(Miss::NotHappened(words(&error)));
    }
    sending.is_sent.store(true, core::sync::atomic::Ordering::Relaxed);
    let answered = connection.sender.try_send_request(request).await;
    let mut answer = answered.map_err(|mut error| {
        // The request comes back if no byte of it was written.
        let is_unsent = error.take_message().is_some();
        let why = words(error.error());
        if is_unsent { Miss::NotHappened(why) } else { Miss::Unknown(why) }
    })?;
    if answer.status() == StatusCode::OK {
        return Ok(Begun { connection, body: answer.into_body() });
    }
    let miss = refused(&mut answer).await;
    member.keep(connection);
    Err(miss)
}

fn request(member: &Member, sending: &Sending<'_>) -> Result<Request<Full<Bytes>>, Miss> {
    let mut request = Request::new(Full::new(sending.body.clone()));
    *request.method_mut() = Method::POST;
    *request.uri_mut() = hyper::Uri::from_static(sending.call.path());
    let heads = request.headers_mut();
    heads.insert(HOST, member.host.clone());
    heads.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    // The gateway connects to its member with the member's own certificate. With this header the
    // member recognizes requests from the gateway. Without it, a request without a token would get
    // the account named in that certificate.
    heads.insert(ACCEPT, HeaderValue::from_static("application/json"));
    // A member without a leader answers these two requests, so they do not ask for a leader.
    if !matches!(sending.call, Call::Status | Call::Members) {
        heads.insert(HAS_LEADER, HeaderValue::from_static("true"));
    }
    if let Some(token) = sending.token {
        heads.insert(AUTHORIZATION, HeaderValue::clone(token));
    }
    Ok(request)
}

async fn refused(answer: &mut Response<Incoming>) -> Miss {
    let status = answer.status();
    let Ok(body) = collect(answer.body_mut()).await else {
        return Miss::Unknown(alloc::format!("the answer {status} has no end"));
    };
    match json::refusal(&body) {
        Ok(refusal) => miss_of(refusal),
        // The peer is a proxy, or a program that is not etcd.
        Err(_) if status == StatusCode::NOT_FOUND => {
            Miss::End(Fault::Refused("it has no interface of version 3".into()))
        }
        // etcd's gateway sends some refusals as plain text instead of JSON.
        Err(_) if matches!(status.as_u16(), 400 | 401 | 403) => {
            Miss::End(Fault::Refused(json::plain_reason(&body)))
        }
        Err(_) => Miss::Unknown(alloc::format!("the answer is {status}")),
    }
}

/// Sorts a refusal by its effect.
pub(super) fn miss_of(refusal: json::Refusal) -> Miss {
    let reason = refusal.reason.clone();
    match refusal.verdict() {
        Verdict::End(fault) => Miss::End(fault),
        Verdict::Token => Miss::Token,
        Verdict::NotNow => Miss::NotHappened(reason),
        Verdict::Unknown => Miss::Unknown(reason),
    }
}

enum Broken {
    Connection(String),
    TooLong,
}

async fn collect(body: &mut Incoming) -> Result<Vec<u8>, Broken> {
    let mut out = Vec::new();
    while let Some(frame) = body.frame().await {
        let frame = frame.map_err(|error| Broken::Connection(words(&error)))?;
        let Ok(data) = frame.into_data() else { continue };
        if out.len().saturating_add(data.len()) > ANSWER_BYTES {
            return Err(Broken::TooLong);
        }
        out.extend_from_slice(&data);
    }
    Ok(out)
}

impl Begun {
    /// Reads the next bytes of a stream. None is its end.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, String> {
        loop {
            let Some(frame) = self.body.frame().await else { return Ok(None) };
            if let Ok(data) = frame.map_err(|error| words(&error))?.into_data() {
                return Ok(Some(data));
            }
        }
    }
}
