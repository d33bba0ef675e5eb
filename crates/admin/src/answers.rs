//! Answers: bodies with their headers.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use http_body_util::Full;
use hyper::body::{Body, Bytes, Frame, SizeHint};
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderValue, REFERRER_POLICY,
    X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::{Response, StatusCode};
use serde::Serialize;

use crate::capture::Blocks;

/// An answer of the interface.
pub(crate) type Answer = Response<Content>;

/// The body of an answer.
pub(crate) enum Content {
    /// All of it.
    Whole(Full<Bytes>),
    /// A capture, as it comes.
    Capture(Box<Blocks>),
}

#[cfg(test)]
impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Content(..)")
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match self.get_mut() {
            Self::Whole(whole) => Pin::new(whole).poll_frame(cx),
            Self::Capture(blocks) => {
                blocks.poll_next(cx).map(|next| next.map(|one| Ok(Frame::data(one))))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Whole(whole) => whole.is_end_stream(),
            Self::Capture(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Whole(whole) => whole.size_hint(),
            Self::Capture(_) => SizeHint::default(),
        }
    }
}

/// The page has no inline code, and loads nothing from elsewhere.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; base-uri 'none'; form-action 'none'; \
                      frame-ancestors 'none'";

/// Makes an answer of a status, a type and a body.
pub(crate) fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    with_headers(status, kind, Content::Whole(Full::new(body.into())))
}

/// Makes an answer of a capture that begins.
pub(crate) fn capture(blocks: Blocks) -> Answer {
    with_headers(StatusCode::OK, "application/octet-stream", Content::Capture(Box::new(blocks)))
}

fn with_headers(status: StatusCode, kind: &'static str, content: Content) -> Answer {
    let mut answer = Response::new(content);
    *answer.status_mut() = status;
    let headers = answer.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    answer
}

/// Makes an answer of JSON.
pub(crate) fn json(value: &impl Serialize) -> Answer {
    match serde_json::to_vec(value) {
        Ok(body) => answer(StatusCode::OK, "application/json", body),
        Err(error) => refusal(StatusCode::INTERNAL_SERVER_ERROR, &error.to_string()),
    }
}

/// Makes an answer of a line of text.
pub(crate) fn text(status: StatusCode, line: &str) -> Answer {
    answer(status, "text/plain; charset=utf-8", format!("{line}\n"))
}

/// Makes the answer to a request that is refused, with the reason.
pub(crate) fn refusal(status: StatusCode, why: &str) -> Answer {
    let body = serde_json::json!({ "error": why }).to_string();
    answer(status, "application/json", body)
}
