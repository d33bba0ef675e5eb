//! The part of a connection of SMB Direct that looks at its device for all of its requests.

use std::convert::Infallible;
use std::future::{Future, pending, poll_fn};
use std::pin::Pin;
use std::task::Poll;

use frevo_net::transport::Stream;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;

use crate::objects::connection_info::ConnectionInfo;

/// See the module's text. Boxed: a connection of TCP need not hold its state.
pub(super) struct Driver<'a>(Option<Pin<Box<dyn Future<Output = Infallible> + 'a>>>);

impl<'a> Driver<'a> {
    /// The driver of a connection; it does nothing for one of TCP.
    pub(super) fn of(stream: &'a Stream) -> Self {
        if let Some(endpoint) = stream.rdma() {
            return Self(Some(Box::pin(endpoint.drive())));
        }
        let _ = stream;
        Self(None)
    }

    /// Looks at the device whenever it is polled.
    pub(super) async fn drive(&mut self) -> Infallible {
        match &mut self.0 {
            Some(driver) => driver.await,
            None => pending().await,
        }
    }
}

/// Gives the device what requests have posted in this turn, all of it at once. Ends if there was
/// something.
pub(super) async fn rung(stream: &Stream) {
    poll_fn(|_| if stream.ring() { Poll::Ready(()) } else { Poll::Pending }).await;
}

/// Waits for the end of a request under way. Over SMB Direct it takes the others that end in this turn
/// too, so that all of their answers are posted together. Pending for ever if there is none.
///
/// Requests whose client has gone learn it before they go on: with a thousand such connections the
/// end in the stream would be read only after each had another turn.
pub(super) async fn any_ended<F>(
    in_flight: &mut FuturesUnordered<F>,
    stream: &Stream,
    info: &ConnectionInfo,
) where
    F: Future<Output = ()>,
{
    let ended = poll_fn(|cx| {
        if stream.has_ended() {
            info.leave();
        }
        in_flight.poll_next_unpin(cx)
    });
    if ended.await.is_none() {
        return pending().await;
    }
    while stream.transport().facts().moves_data
        && poll_fn(|cx| Poll::Ready(in_flight.poll_next_unpin(cx))).await == Poll::Ready(Some(()))
    {
    }
}
