//! Attempts at several addresses of a server, or at several servers, each a while after the one before it.

use std::future::Future;
use std::iter::Peekable;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::sleep;

use crate::limits::ADDRESSES_AT_ONCE;

/// The attempts that wait and those that are under way. The next one begins when an earlier one has
/// ended, and beside the earlier ones after `pause`.
pub(crate) struct Staggered<T, F, B> {
    waiting: Peekable<std::vec::IntoIter<T>>,
    pause: Duration,
    under_way: FuturesUnordered<F>,
    begin: B,
}

impl<T, F: Future, B: FnMut(T) -> F> Staggered<T, F, B> {
    /// Returns attempts at these places that `begin` begins, in this order.
    pub(crate) fn new(places: Vec<T>, pause: Duration, begin: B) -> Self {
        let waiting = places.into_iter().peekable();
        Self { waiting, pause, under_way: FuturesUnordered::new(), begin }
    }

    /// Waits for the next end of an attempt that has begun already; `None` after the last one.
    pub(crate) async fn next_begun(&mut self) -> Option<F::Output> {
        self.under_way.next().await
    }

    /// Waits for the next end of an attempt; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<F::Output> {
        loop {
            if self.under_way.len() < ADDRESSES_AT_ONCE
                && let Some(place) = self.waiting.next()
            {
                self.under_way.push((self.begin)(place));
            }
            let has_room =
                self.under_way.len() < ADDRESSES_AT_ONCE && self.waiting.peek().is_some();
            tokio::select! {
                biased;
                ended = self.under_way.next() => return ended,
                () = sleep(self.pause), if has_room => {}
            }
        }
    }
}
