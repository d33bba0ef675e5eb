//! The health of shares: whether their folders answer, and their space.
//!
//! Shares are looked at when somebody asks, on threads of their own, since a file system may keep
//! its caller waiting for ever. A look that has not ended is itself an answer.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_server::{Rows, Server, ShareSpace};
use parking_lot::Mutex;
use serde::Serialize;
use tokio::sync::Semaphore;
use tokio::time::{sleep, timeout};

use crate::configuration::UnservedShare;
use crate::limits::{PROBE_INTERVAL, PROBE_PATIENCE, PROBE_SLOW, PROBE_THREADS, PROBED_SHARES};

/// The latest looks at all shares.
#[derive(Debug)]
pub(crate) struct Health {
    shares: Mutex<Table>,
    threads: Arc<Semaphore>,
}

#[derive(Debug, Default)]
struct Table {
    looks: BTreeMap<String, Look>,
    /// The begin of the latest round over all shares.
    round: Option<Instant>,
    /// Shares beyond those that are looked at.
    more: usize,
}

/// The looks at one share.
#[derive(Debug, Default)]
struct Look {
    /// True from the wish for a look to its end.
    is_wanted: bool,
    /// The begin of a look that has not ended.
    since: Option<Instant>,
    /// The latest outcome, with its time and its length.
    outcome: Option<(Result<ShareSpace, String>, Instant, Duration)>,
}

/// A share as `/shares` shows it.
#[derive(Debug, Clone, Serialize, PartialEq)]
pub(crate) struct ShareHealth {
    pub(crate) name: String,
    pub(crate) state: State,
    /// The reason of a state that is not good, for people.
    reason: Option<String>,
    /// The size of its file system and the free part of it, bytes.
    total: Option<u64>,
    pub(crate) available: Option<u64>,
    /// The length of the latest look, and the time since its end.
    took_ms: Option<u64>,
    age_ms: Option<u64>,
}

/// The state of a share.
#[derive(Debug, Clone, Copy, Serialize, PartialEq, Eq)]
#[serde(rename_all = "snake_case")]
pub(crate) enum State {
    /// The share's folder can be read.
    Ok,
    /// Its folder cannot be used.
    Failed,
    /// The configuration has it, and it could not be served.
    NotServed,
    /// Its folder has not answered for [`PROBE_SLOW`].
    NoAnswer,
    /// It was not looked at yet.
    Unknown,
}

impl Default for Health {
    fn default() -> Self {
        Self { shares: Mutex::default(), threads: Arc::new(Semaphore::new(PROBE_THREADS)) }
    }
}

impl Health {
    /// Looks at all shares again, unless that was done just now.
    pub(crate) fn look(self: &Arc<Self>, server: &Server) {
        let now = Instant::now();
        let mut names = server.disk_shares();
        let mut table = self.shares.lock();
        if table.round.is_some_and(|round| now.duration_since(round) < PROBE_INTERVAL) {
            return;
        }
        table.round = Some(now);
        table.more = names.len().saturating_sub(PROBED_SHARES);
        names.truncate(PROBED_SHARES);
        table.looks.retain(|name, _| names.binary_search(name).is_ok());
        for name in names {
            let look = table.looks.entry(name.clone()).or_default();
            // A folder may hang. Its next probe waits until the running probe has ended, so one
            // folder takes only one thread.
            if !look.is_wanted {
                look.is_wanted = true;
                tokio::task::spawn_local(Arc::clone(self).probe(server.clone(), name));
            }
        }
    }

    async fn probe(self: Arc<Self>, server: Server, name: String) {
        let Ok(_thread) = self.threads.acquire().await else { return };
        if let Some(look) = self.shares.lock().looks.get_mut(&name) {
            look.since = Some(Instant::now());
        }
        let began = Instant::now();
        let asked = name.clone();
        let probed = tokio::task::spawn_blocking(move || server.probe_share(&asked)).await;
        let mut table = self.shares.lock();
        let Some(look) = table.looks.get_mut(&name) else { return };
        (look.is_wanted, look.since) = (false, None);
        look.outcome = match probed {
            Ok(outcome) => outcome.map(|outcome| (outcome, Instant::now(), began.elapsed())),
            Err(error) => Some((Err(error.to_string()), Instant::now(), began.elapsed())),
        };
    }

    /// Waits for the looks that are under way, but not for long.
    pub(crate) async fn settle(&self) {
        let is_busy = || self.shares.lock().looks.values().any(|look| look.is_wanted);
        let settled = async {
            while is_busy() {
                sleep(Duration::from_millis(5)).await;
            }
        };
        // A share whose probe takes longer is reported as pending, so the wait ends after
        // PROBE_PATIENCE.
        let _ = timeout(PROBE_PATIENCE, settled).await;
    }

    /// The shares, by name.
    pub(crate) fn rows(&self) -> Rows<ShareHealth> {
        let now = Instant::now();
        let table = self.shares.lock();
        let rows = table.looks.iter().map(|(name, look)| look.health_of(name, now)).collect();
        Rows { rows, more: table.more }
    }
}

impl ShareHealth {
    /// Returns the state of a share that is not served.
    pub(crate) fn not_served(share: UnservedShare) -> Self {
        Self {
            name: share.share,
            state: State::NotServed,
            reason: Some(share.reason),
            total: None,
            available: None,
            took_ms: None,
            age_ms: None,
        }
    }
}

impl Look {
    fn health_of(&self, name: &str, now: Instant) -> ShareHealth {
        let millis = |time: Duration| u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        let waits = self.since.map(|since| now.saturating_duration_since(since));
        let space = match &self.outcome {
            Some((Ok(space), ..)) => Some(*space),
            _ => None,
        };
        let (state, reason) = match (waits, &self.outcome) {
            (Some(waits), _) if waits >= PROBE_SLOW => {
                let seconds = waits.as_secs();
                (State::NoAnswer, Some(format!("its folder has not answered for {seconds} s")))
            }
            (_, Some((Err(reason), ..))) => (State::Failed, Some(reason.clone())),
            (_, Some((Ok(_), ..))) => (State::Ok, None),
            (_, None) => (State::Unknown, None),
        };
        let times = self.outcome.as_ref().map(|(_, at, took)| (at, took));
        ShareHealth {
            name: name.to_owned(),
            state,
            reason,
            total: space.map(|space| space.total),
            available: space.map(|space| space.available),
            took_ms: times.map(|(_, took)| millis(*took)),
            age_ms: times.map(|(at, _)| millis(now.saturating_duration_since(*at))),
        }
    }
}

#[cfg(test)]
mod tests {
    use frevo_server::vfs;
    use tokio::task::{LocalSet, yield_now};

    use super::*;

    fn server(shares: usize) -> Server {
        let named = |number| format!("share{number:04}");
        let builder = (0..shares).fold(Server::builder(), |builder, number| {
            builder.share(&named(number), vfs::memory(1 << 20))
        });
        builder.build().unwrap()
    }

    fn states(health: &Health) -> Vec<State> {
        health.rows().rows.iter().map(|row| row.state).collect()
    }

    #[tokio::test]
    async fn so_many_shares_are_looked_at() {
        for (shares, more) in [(PROBED_SHARES - 1, 0), (PROBED_SHARES, 0), (PROBED_SHARES + 1, 1)] {
            let (health, server) = (Arc::<Health>::default(), server(shares));
            let look = async {
                health.look(&server);
                assert_eq!((health.rows().rows.len(), health.rows().more), (shares - more, more));
            };
            LocalSet::new().run_until(look).await;
        }
    }

    #[tokio::test]
    async fn so_many_threads_look_and_none_more() {
        let (health, server) = (Arc::<Health>::default(), server(1));
        let look = async {
            // The test takes all threads, as probes of hanging folders would do.
            let mut held = Vec::new();
            for _ in 0..PROBE_THREADS {
                held.push(Arc::clone(&health.threads).try_acquire_owned().unwrap());
            }
            health.look(&server);
            for _ in 0..100 {
                yield_now().await;
            }
            assert_eq!(states(&health), [State::Unknown]);
            held.pop();
            while states(&health) != [State::Ok] {
                yield_now().await;
            }
        };
        LocalSet::new().run_until(look).await;
    }

    #[tokio::test]
    async fn shares_are_looked_at_so_often() {
        let (health, server) = (Arc::<Health>::default(), server(1));
        let look = async {
            health.look(&server);
            let first = health.shares.lock().round.unwrap();
            health.look(&server);
            assert_eq!(health.shares.lock().round, Some(first));
            health.shares.lock().round = first.checked_sub(PROBE_INTERVAL);
            health.look(&server);
            assert!(health.shares.lock().round.is_some_and(|round| round >= first));
        };
        LocalSet::new().run_until(look).await;
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_waits_so_long_for_a_look() {
        let health = Health::default();
        let look = Look { is_wanted: true, ..Look::default() };
        health.shares.lock().looks.insert(String::from("data"), look);
        let began = tokio::time::Instant::now();
        health.settle().await;
        assert_eq!(began.elapsed(), PROBE_PATIENCE);
    }

    #[test]
    fn a_pending_probe_is_shown_with_the_latest_outcome() {
        let now = Instant::now() + PROBE_SLOW;
        let mut look = Look::default();
        assert_eq!(look.health_of("data", now).state, State::Unknown);
        look.outcome = Some((Ok(ShareSpace::default()), now, Duration::from_millis(3)));
        let health = look.health_of("data", now);
        assert_eq!((health.state, health.total, health.took_ms), (State::Ok, Some(0), Some(3)));
        look.since = Some(now);
        assert_eq!(look.health_of("data", now).state, State::Ok);
        let later = look.health_of("data", now + PROBE_SLOW);
        assert_eq!(later.state, State::NoAnswer);
        assert!(later.reason.is_some_and(|reason| reason.contains("not answered for 5 s")));
        look.outcome = Some((Err("gone".into()), now, Duration::ZERO));
        let failed = look.health_of("data", now);
        // The first probe of a share still waits for a thread, so the state of the share is
        // unknown.
        look = Look { is_wanted: true, ..Look::default() };
        assert_eq!(look.health_of("data", now + PROBE_SLOW).state, State::Unknown);
        assert_eq!((failed.state, failed.reason), (State::Failed, Some("gone".into())));
    }
}
