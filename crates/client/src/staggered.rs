//! Attempts at several addresses of a server, each a while after the one before it.

use std::future::Future;
use std::iter::Peekable;

use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::time::sleep;

use crate::dial::ServerName;
use crate::limits::{ADDRESSES_AT_ONCE, NEXT_ADDRESS_AFTER};

/// The attempts that wait and those that are under way. The next one begins when an earlier one has
/// ended, and beside the earlier ones after [`NEXT_ADDRESS_AFTER`].
pub(crate) struct Staggered<F, B> {
    waiting: Peekable<std::vec::IntoIter<ServerName>>,
    under_way: FuturesUnordered<F>,
    begin: B,
}

impl<F: Future, B: FnMut(ServerName) -> F> Staggered<F, B> {
    /// Returns attempts at these addresses that `begin` begins, in this order.
    pub(crate) fn new(addresses: Vec<ServerName>, begin: B) -> Self {
        let waiting = addresses.into_iter().peekable();
        Self { waiting, under_way: FuturesUnordered::new(), begin }
    }

    /// Waits for the next end of an attempt; `None` after the last one.
    pub(crate) async fn next(&mut self) -> Option<F::Output> {
        loop {
            if self.under_way.len() < ADDRESSES_AT_ONCE
                && let Some(address) = self.waiting.next()
            {
                self.under_way.push((self.begin)(address));
            }
            let has_room =
                self.under_way.len() < ADDRESSES_AT_ONCE && self.waiting.peek().is_some();
            tokio::select! {
                biased;
                ended = self.under_way.next() => return ended,
                () = sleep(NEXT_ADDRESS_AFTER), if has_room => {}
            }
        }
    }
}
