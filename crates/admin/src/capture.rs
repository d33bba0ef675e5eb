//! Captures of messages: the body of the answer is a pcapng file, as it comes.

use std::future::Future;
use std::net::IpAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use frevo_server::{CaptureData, CaptureStream, CaptureTarget, NotCaptured, Server};
use hyper::StatusCode;
use hyper::body::Bytes;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::task::AbortHandle;
use tokio::time::{Instant, Sleep, sleep};

use crate::limits::{CAPTURE_LOOK, CAPTURE_TIME};

/// The body of `POST /capture`. At least one of the first four is set, or `all`.
#[derive(Debug, Default, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CaptureBody {
    /// A session, as `frevo status` shows it: hexadecimal.
    #[serde(default)]
    pub session: Option<String>,
    /// An account.
    #[serde(default)]
    pub user: Option<String>,
    /// The address of a client.
    #[serde(default)]
    pub address: Option<IpAddr>,
    /// A share.
    #[serde(default)]
    pub share: Option<String>,
    /// Captures everything.
    #[serde(default)]
    pub all: bool,
    /// Largest size of the file, bytes.
    pub bytes: u64,
    /// Longest time.
    pub seconds: u64,
    /// Keeps what logons send.
    #[serde(default)]
    pub secrets: bool,
    /// Keeps so many bytes of the data of each READ and WRITE; None for 256.
    #[serde(default)]
    pub data_bytes: Option<usize>,
    /// Keeps all data of READ and WRITE.
    #[serde(default)]
    pub all_data: bool,
}

impl CaptureBody {
    /// Begins the capture.
    pub(crate) fn begin(&self, server: &Server, by: &str) -> Result<Blocks, (StatusCode, String)> {
        let target = self.target().map_err(|why| (StatusCode::BAD_REQUEST, why))?;
        let time = Duration::from_secs(self.seconds);
        if time > CAPTURE_TIME || time.is_zero() {
            let why = format!("seconds: 1 to {}", CAPTURE_TIME.as_secs());
            return Err((StatusCode::BAD_REQUEST, why));
        }
        match server.capture(target, self.bytes, self.data(), self.secrets, by) {
            Ok(stream) => Ok(Blocks::new(stream, time)),
            Err(why @ NotCaptured::UnderWay) => Err((StatusCode::CONFLICT, why.to_string())),
            Err(why) => Err((StatusCode::SERVICE_UNAVAILABLE, why.to_string())),
        }
    }

    fn data(&self) -> CaptureData {
        match self.data_bytes {
            _ if self.all_data => CaptureData::Whole,
            None => CaptureData::default(),
            Some(bytes) => CaptureData::First(bytes),
        }
    }

    fn target(&self) -> Result<CaptureTarget, String> {
        let digits = self.session.as_deref().map(|id| id.strip_prefix("0x").unwrap_or(id));
        let session = digits.map(|digits| u64::from_str_radix(digits, 16)).transpose();
        let session = session.map_err(|_| {
            let id = self.session.as_deref().unwrap_or_default();
            format!("\"{id}\" is no id of a session; frevo status shows ids")
        })?;
        let (user, share) = (self.user.clone(), self.share.clone());
        let target = CaptureTarget { session, user, address: self.address, share };
        match (target == CaptureTarget::default(), self.all) {
            (true, false) => {
                Err(String::from("name a session, a user, an address or a share, or all"))
            }
            (false, true) => Err(String::from("all, or a part of all: not both")),
            _ => Ok(target),
        }
    }
}

/// The blocks of a capture, which ends with its time, its size, or when nobody takes them any more.
pub(crate) struct Blocks {
    stream: Arc<Mutex<CaptureStream>>,
    look: Pin<Box<Sleep>>,
    is_over: bool,
    /// Ends the capture at its time, also if nobody asks for blocks then.
    timer: AbortHandle,
}

impl Blocks {
    fn new(stream: CaptureStream, time: Duration) -> Self {
        let stream = Arc::new(Mutex::new(stream));
        let timed = Arc::downgrade(&stream);
        let timer = tokio::spawn(async move {
            sleep(time).await;
            if let Some(stream) = timed.upgrade() {
                stream.lock().end();
            }
        });
        let look = Box::pin(sleep(Duration::ZERO));
        Self { stream, look, is_over: false, timer: timer.abort_handle() }
    }

    /// Returns the next blocks; None after the last ones.
    pub(crate) fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.is_over {
            return Poll::Ready(None);
        }
        let mut blocks = Vec::new();
        let mut stream = self.stream.lock();
        self.is_over = !stream.next(&mut blocks);
        if !blocks.is_empty() {
            return Poll::Ready(Some(blocks.into()));
        }
        if self.is_over {
            return Poll::Ready(None);
        }
        stream.wake_by(cx.waker());
        self.look.as_mut().reset(Instant::now() + CAPTURE_LOOK);
        match self.look.as_mut().poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(()) => {
                cx.waker().wake_by_ref();
                Poll::Pending
            }
        }
    }
}

impl Drop for Blocks {
    fn drop(&mut self) {
        self.timer.abort();
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    fn body(change: impl FnOnce(&mut CaptureBody)) -> CaptureBody {
        let mut body = CaptureBody { bytes: 1 << 20, seconds: 60, ..CaptureBody::default() };
        change(&mut body);
        body
    }

    fn status_of(server: &Server, body: &CaptureBody) -> u16 {
        body.begin(server, "a test").err().map_or(200, |(status, _)| status.as_u16())
    }

    #[tokio::test(start_paused = true)]
    async fn a_capture_needs_a_target_and_a_time() {
        let server = Server::builder().build().unwrap();
        for bad in [
            body(|_| {}),
            body(|body| (body.all, body.share) = (true, Some(String::from("data")))),
            body(|body| body.session = Some(String::from("ann"))),
            body(|body| (body.all, body.seconds) = (true, 0)),
            body(|body| (body.all, body.seconds) = (true, CAPTURE_TIME.as_secs() + 1)),
        ] {
            assert_eq!(status_of(&server, &bad), 400, "{bad:?}");
        }
        let day = body(|body| (body.all, body.seconds) = (true, CAPTURE_TIME.as_secs()));
        assert_eq!(status_of(&server, &day), 200);
        let session = body(|body| body.session = Some(String::from("0x1f")));
        let first = session.begin(&server, "a test").unwrap();
        assert_eq!(status_of(&server, &day), 409, "one at a time");
        drop(first);
        assert_eq!(status_of(&server, &day), 200);
    }

    #[tokio::test(start_paused = true)]
    async fn a_capture_ends_with_its_time() {
        let server = Server::builder().build().unwrap();
        let mut blocks = body(|body| body.all = true).begin(&server, "a test").unwrap();
        let began = Instant::now();
        let mut file = Vec::new();
        while let Some(more) = poll_fn(|cx| blocks.poll_next(cx)).await {
            file.extend_from_slice(&more);
        }
        assert_eq!(began.elapsed().as_secs(), 60);
        assert!(file.starts_with(&[0x0A, 0x0D, 0x0D, 0x0A]));
    }

    /// A reader that stands still takes no blocks: the capture ends all the same, and another may begin.
    #[tokio::test(start_paused = true)]
    async fn a_capture_whose_reader_stands_still_ends_with_its_time() {
        let server = Server::builder().build().unwrap();
        let all = body(|body| body.all = true);
        let mut blocks = all.begin(&server, "a test").unwrap();
        sleep(Duration::from_secs(59)).await;
        assert_eq!(status_of(&server, &all), 409);
        sleep(Duration::from_secs(2)).await;
        assert_eq!(status_of(&server, &all), 200);
        // The reader gets the end of its file when it goes on.
        let mut count = 0;
        while let Some(more) = poll_fn(|cx| blocks.poll_next(cx)).await {
            count += more.len();
        }
        assert!(count > 0);
    }
}
