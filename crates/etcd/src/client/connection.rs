//! One connection to a member.

use alloc::boxed::Box;
use alloc::string::String;
use core::pin::Pin;

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::AbortHandle;

use super::endpoint::Member;
use crate::limits::HEAD_BYTES;

/// The bytes of a connection.
trait Stream: AsyncRead + AsyncWrite + Send {}

impl<T: AsyncRead + AsyncWrite + Send> Stream for T {}

/// A connection that sends one request at a time. It is closed when it is dropped.
pub(super) struct Connection {
    pub(super) sender: SendRequest<Full<Bytes>>,
    driver: AbortHandle,
}

impl Connection {
    /// Connects. The error is for people.
    pub(super) async fn open(member: &Member) -> Result<Self, String> {
        let dialing = member.dialer.dial(member.at, &member.endpoint);
        let stream = dialing.await.map_err(|error| words(&error))?;
        // The option sends a request at once. If it cannot be set, the request is only delayed.
        let _ = stream.set_nodelay(true);
        let stream: Pin<Box<dyn Stream>> = match &member.security {
            None => Box::pin(stream),
            Some(security) => {
                let name = security.name.clone();
                let secure = security.connector.connect(name, stream).await;
                Box::pin(secure.map_err(|error| words(&error))?)
            }
        };
        let (sender, driver) = http1::Builder::new()
            .max_buf_size(HEAD_BYTES)
            .handshake(TokioIo::new(stream))
            .await
            .map_err(|error| words(&error))?;
        // The driver's error is ignored, because the request on the connection fails with the same
        // error.
        let driver = tokio::spawn(async move { drop(driver.await) }).abort_handle();
        Ok(Self { sender, driver })
    }

    pub(super) fn is_closed(&self) -> bool {
        self.sender.is_closed() || self.driver.is_finished()
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// The words of an error and of its causes.
pub(super) fn words(error: &dyn core::error::Error) -> String {
    let mut text = alloc::format!("{error}");
    let mut cause = error.source();
    while let Some(next) = cause {
        text = alloc::format!("{text}: {next}");
        cause = next.source();
    }
    text
}
