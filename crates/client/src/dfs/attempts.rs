//! Attempts at the targets of a link, the better ones first: MS-DFSC 3.1.5.2.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tokio::time::{Instant, timeout_at};

use super::Way;
use super::dfs_path::DfsPath;
use crate::Status;
use crate::dial::ServerName;
use crate::error::Error;
use crate::limits::{BETTER_TARGET_WITHIN, NEXT_TARGET_AFTER};
use crate::share::Share;
use crate::staggered::Staggered;

/// A turn at connecting to a server: one attempt at a time.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) lock: tokio::sync::Mutex<()>,
    /// True if the server has answered a NEGOTIATE of the attempt under way.
    pub(super) answered: Arc<AtomicBool>,
}

/// A target of a link, and its place in the referral.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) at: usize,
    pub(super) target: DfsPath,
}

/// A target that can be used.
#[derive(Debug)]
pub(super) struct UsableTarget {
    pub(super) at: usize,
    pub(super) target: DfsPath,
    /// The share; `None` if its server has to be asked for a referral first, because the path goes
    /// on in another namespace.
    pub(super) share: Option<Share>,
}

/// An attempt that has ended.
struct Ended {
    /// Its place among the candidates.
    order: usize,
    candidate: Candidate,
    connected: Result<Share, Error>,
}

impl Way {
    /// Returns the first of the targets that can be used. A target whose server has answered, and
    /// that logs the user on for a while, is waited for rather than passed over for one behind it.
    /// The attempts that fail are told to `failed`.
    pub(super) async fn first_usable(
        &self,
        candidates: Vec<Candidate>,
        mut begun: impl FnMut(),
        mut failed: impl FnMut(&ServerName, Error),
    ) -> Option<UsableTarget> {
        let servers: Vec<_> = candidates.iter().map(|one| one.target.server.clone()).collect();
        let mut is_over = vec![false; servers.len()];
        let candidates = candidates.into_iter().enumerate().collect();
        let mut attempts =
            Staggered::new(candidates, NEXT_TARGET_AFTER, |(order, candidate): (_, Candidate)| {
                begun();
                async move {
                    let connected = self.connected(&candidate.target).await;
                    Ended { order, candidate, connected }
                }
            });
        let mut best: Option<(usize, UsableTarget)> = None;
        let mut until = None;
        loop {
            let is_waited_for = |order: usize| {
                let ahead = servers.iter().zip(&is_over).take(order);
                ahead.filter(|(_, is_over)| !**is_over).any(|(server, _)| self.has_answered(server))
            };
            let ended = match &best {
                Some((order, _)) if !is_waited_for(*order) => break,
                Some(_) => {
                    let until = *until.get_or_insert_with(|| Instant::now() + BETTER_TARGET_WITHIN);
                    timeout_at(until, attempts.next_begun()).await.ok().flatten()
                }
                None => attempts.next().await,
            };
            let Some(Ended { order, candidate: Candidate { at, target }, connected }) = ended
            else {
                break;
            };
            if let Some(is_over) = is_over.get_mut(order) {
                *is_over = true;
            }
            let share = match connected {
                Ok(share) => Some(share),
                // The target refuses the path because the path continues in another namespace.
                // Resolving continues with that target.
                Err(error) if error.status() == Some(Status::PATH_NOT_COVERED) => None,
                Err(error) => {
                    tracing::debug!(%error, "a DFS target is passed over");
                    failed(&target.server, error);
                    continue;
                }
            };
            if best.as_ref().is_none_or(|(before, _)| order < *before) {
                best = Some((order, UsableTarget { at, target, share }));
            }
        }
        best.map(|(_, found)| found)
    }

    /// Returns true if an attempt at `server` is under way, and the server has answered it.
    fn has_answered(&self, server: &ServerName) -> bool {
        let turns = self.turns.lock();
        let turn = turns.iter().find(|(of, _)| of == server).and_then(|(_, turn)| turn.upgrade());
        turn.is_some_and(|turn| turn.answered.load(Ordering::Relaxed))
    }
}
