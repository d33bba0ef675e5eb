//! One task looks at the device for all others of its connection.
//!
//! A connection has many tasks: one for each request whose data moves, and the one that reads
//! messages. If each of them watched the device, each event would wake all of them, and each would
//! take its own look.

use std::convert::Infallible;
use std::future::{pending, poll_fn};
use std::io;
use std::pin::pin;
use std::task::{Poll, Waker};

use tokio::time::sleep_until;

use super::endpoint::Endpoint;
use super::link::TransferKey;
use super::state::State;

/// The tasks that a driver wakes.
#[derive(Default)]
pub(super) struct Driven {
    is_driven: bool,
    /// Those that wait for RDMA reads: few, as reads are.
    readers: Vec<(TransferKey, Waker)>,
}

impl Driven {
    /// True if a driver looks at the device: others only wait for what it finds.
    pub(super) const fn is_so(&self) -> bool {
        self.is_driven
    }

    /// Has a task woken when this read is done, or when there is no driver any more.
    pub(super) fn wait(&mut self, key: TransferKey, waker: &Waker) {
        match self.readers.iter_mut().find(|(of, _)| *of == key) {
            Some((_, old)) => old.clone_from(waker),
            None => self.readers.push((key, waker.clone())),
        }
    }

    /// Wakes nobody for this read any more.
    pub(super) fn forget(&mut self, key: TransferKey) {
        self.readers.retain(|(of, _)| *of != key);
    }

    /// Wakes the tasks whose reads are done.
    pub(super) fn wake(&mut self, is_done: impl Fn(TransferKey) -> bool) {
        let done = self.readers.extract_if(.., |(key, _)| is_done(*key));
        done.for_each(|(_, waker)| waker.wake());
    }

    const fn begin(&mut self) {
        self.is_driven = true;
    }

    fn end(&mut self) {
        self.is_driven = false;
        self.let_go();
    }

    /// Wakes all tasks: nothing will complete their reads.
    pub(super) fn let_go(&mut self) {
        self.wake(|_| true);
    }
}

impl Endpoint {
    /// Looks at the device for all tasks of the connection, until it is dropped: meanwhile they wait
    /// for what it finds, and none of them looks itself. Whoever polls it calls [`Self::ring`] after
    /// the other tasks had their turn, because none of them gives the device what it posts.
    pub async fn drive(&self) -> Infallible {
        let _driving = Driving::begin(self);
        loop {
            let mut fate = pin!(self.fate.changed.notified());
            fate.as_mut().enable();
            self.pump();
            let looked = self.look(|state| (state.end(), state.deadline(), state.has_more()));
            let Some((None, until, has_more)) = looked else {
                // The connection has ended. Readers and writers report that, so the driver only
                // waits for ever.
                return pending().await;
            };
            if has_more {
                tokio::task::yield_now().await;
                continue;
            }
            let told = tokio::select! {
                biased;
                told = self.told() => told,
                noted = self.own_event() => noted,
                // An operation that completes during the call that posts it causes no event. So the
                // driver also wakes when requests were given to the device (`rung`).
                () = self.rung() => Ok(()),
                () = fate => Ok(()),
                () = sleep_until(until) => Ok(()),
            };
            if told.is_err() {
                self.abort();
            }
        }
    }

    /// Gives the device what was posted; true if there was something.
    pub fn ring(&self) -> bool {
        self.look(State::ring).unwrap_or(false)
    }

    /// Ends when the device has been given requests.
    async fn rung(&self) {
        // The task that gives requests to the device polls the driver itself afterwards, so no
        // waker is needed.
        poll_fn(|_| match self.look(|state| state.has_rung()) {
            Some(true) => Poll::Ready(()),
            _ => Poll::Pending,
        })
        .await;
    }

    /// Has a driver look at the device. None without one, and `Some(None)` while nothing is ready.
    #[expect(clippy::option_option, reason = "two answers that are not there yet")]
    pub(super) fn look_driven<T>(
        &self,
        ready: &mut impl FnMut(&mut State) -> Option<T>,
    ) -> Option<Option<io::Result<T>>> {
        self.look(|state| {
            state.driven.is_so().then(|| {
                let end = |state: &State| state.end().map(|end| Err(end.into()));
                ready(state).map(Ok).or_else(|| end(state))
            })
        })
        .flatten()
    }
}

/// The time for which a task looks at the device for all others.
struct Driving<'a>(&'a Endpoint);

impl<'a> Driving<'a> {
    fn begin(endpoint: &'a Endpoint) -> Self {
        endpoint.look(|state| state.driven.begin());
        Self(endpoint)
    }
}

impl Drop for Driving<'_> {
    fn drop(&mut self) {
        self.0.look(|state| state.driven.end());
        self.0.changed.notify_waiters();
    }
}
