//! Failover of an operation under way to another target of a DFS link: MS-DFSC 3.1.5.2.
//!
//! When a server is lost and one attempt to reach it has failed, the link's other targets are
//! tried at the same time as further attempts. The operation goes on at the target that
//! answers first.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use frevo_wire::fscc::fold_name;
use tokio::time::{Instant, sleep};

use super::attempts::{Candidate, first_usable};
use super::cache::Known;
use super::dfs_path::{DfsPath, behind};
use super::{Start, Way};
use crate::dial::ServerName;
use crate::error::Error;
use crate::limits::{BACK_OFF_FIRST, BACK_OFF_MAX, TARGET_SESSIONS};
use crate::session::Session;

/// The other targets of a link that was followed.
#[derive(Clone)]
pub(crate) struct Others {
    way: Arc<Way>,
    known: Known,
    /// Index of the target in use.
    at: usize,
}

/// The future of a search for another target.
type TargetSearch<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Servers that could not be reached: the end of the last attempt and its error.
#[derive(Default)]
pub(super) struct Vain(Vec<(ServerName, Instant, Error)>);

impl Vain {
    pub(super) fn note(&mut self, server: &ServerName, error: &Error) {
        self.0.retain(|(other, ..)| other != server);
        if self.0.len() >= TARGET_SESSIONS {
            self.0.remove(0);
        }
        self.0.push((server.clone(), Instant::now(), error.clone()));
    }

    pub(super) fn known_since(&self, server: &ServerName, since: Instant) -> Option<Error> {
        let found = self.0.iter().find(|(other, at, _)| other == server && *at >= since);
        found.map(|(.., error)| error.clone())
    }
}

impl Others {
    /// Returns the targets other than `at`, if there are any.
    pub(super) fn of(way: &Arc<Way>, known: &Known, at: usize) -> Option<Self> {
        (known.targets.len() > 1).then(|| Self { way: Arc::clone(way), known: known.clone(), at })
    }

    /// Returns when `session`, that of the target in use, cannot be reached and another target
    /// can: that one is tried first from then on.
    ///
    /// Boxed, since its attempts may wait for this future again.
    pub(crate) fn found<'a>(&'a self, session: &'a Session) -> TargetSearch<'a> {
        Box::pin(async {
            session.inner.found_unreachable().await;
            let mut pause = Duration::ZERO;
            while self.try_all(pause).await.is_none() {
                pause = (pause * 2).clamp(BACK_OFF_FIRST, BACK_OFF_MAX);
                sleep(pause).await;
            }
        })
    }

    /// Makes one attempt at each target, except those that another operation tried during most
    /// of the `pause`.
    async fn try_all(&self, pause: Duration) -> Option<()> {
        let now = Instant::now();
        let since = now.checked_sub(pause * 3 / 4).unwrap_or(now);
        let is_due = |(at, target): &(usize, &DfsPath)| {
            *at != self.at && self.way.vain.lock().known_since(&target.server, since).is_none()
        };
        let candidate = |(at, target): (usize, &DfsPath)| Candidate { at, target: target.clone() };
        let due = self.known.tried().filter(is_due).map(candidate).collect();
        let failed = |server: &ServerName, error| self.way.vain.lock().note(server, &error);
        let connect = |target: DfsPath| async move { self.way.connected(&target).await };
        let found = first_usable(&self.way.turns, due, connect, failed).await?;
        self.way.client.referrals.worked(&self.known, found.at);
        Some(())
    }

    /// Returns the place in the namespace of `path` in the target in use; `None` above the link.
    pub(super) fn start(&self, path: &str) -> Option<Start> {
        let there = &self.known.targets.get(self.at)?.place;
        let rest = behind(path, &fold_name(&there.path))?;
        let place = self.known.place()?.below(rest);
        Some(Start { way: Arc::clone(&self.way), place, share: None })
    }

    /// Returns true if another target is in use by now.
    pub(super) fn is_left(&self) -> bool {
        let now = self.known.place().and_then(|place| self.way.client.referrals.find(&place));
        let used = now.as_ref().and_then(|(known, _)| known.tried().next());
        let ours = self.known.targets.get(self.at).map(|target| &target.place);
        used.is_some_and(|(_, place)| Some(place) != ours)
    }
}
