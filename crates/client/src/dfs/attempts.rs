//! Attempts at the targets of a link, the better ones first: MS-DFSC 3.1.5.2.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::time::{Instant, timeout_at};

use super::dfs_path::DfsPath;
use crate::Status;
use crate::dial::ServerName;
use crate::error::{Error, Result};
use crate::limits::{BETTER_TARGET_WITHIN, NEXT_TARGET_AFTER};
use crate::staggered::Staggered;

/// Turns at connecting: one attempt at a time for each server.
#[derive(Debug, Default)]
pub(super) struct Turns(Mutex<Vec<(ServerName, Weak<Turn>)>>);

/// A turn at connecting to a server.
#[derive(Debug, Default)]
pub(super) struct Turn {
    pub(super) lock: tokio::sync::Mutex<()>,
    /// True if the server has answered a NEGOTIATE of the attempt under way.
    pub(super) answered: Arc<AtomicBool>,
}

impl Turns {
    /// Returns the turn at connecting to `server`. Other servers have other turns.
    pub(super) fn at(&self, server: &ServerName) -> Arc<Turn> {
        let mut turns = self.0.lock();
        turns.retain(|(_, turn)| turn.strong_count() > 0);
        let found = turns.iter().find(|(of, _)| of == server);
        if let Some(turn) = found.and_then(|(_, turn)| turn.upgrade()) {
            return turn;
        }
        let turn = Arc::default();
        turns.push((server.clone(), Arc::downgrade(&turn)));
        turn
    }

    /// Returns true if an attempt at `server` is under way, and the server has answered it.
    fn has_answered(&self, server: &ServerName) -> bool {
        let turns = self.0.lock();
        let turn = turns.iter().find(|(of, _)| of == server).and_then(|(_, turn)| turn.upgrade());
        turn.is_some_and(|turn| turn.answered.load(Ordering::Relaxed))
    }
}

/// A target of a link, and its place in the referral.
#[derive(Debug)]
pub(super) struct Candidate {
    pub(super) at: usize,
    pub(super) target: DfsPath,
}

/// A target that can be used.
#[derive(Debug)]
pub(super) struct UsableTarget<S> {
    pub(super) at: usize,
    pub(super) target: DfsPath,
    /// The share; `None` if its server has to be asked for a referral first, because the path goes
    /// on in another namespace.
    pub(super) share: Option<S>,
}

/// An attempt that has ended.
struct Ended<S> {
    /// Its place among the candidates.
    order: usize,
    candidate: Candidate,
    connected: Result<S>,
}

/// Returns the first of the targets that can be used, as `connect` connects to them. A target whose server
/// has answered, and that logs the user on for a while, is waited for rather than passed over for one
/// behind it. The attempts that fail are told to `failed`.
pub(super) async fn first_usable<S, F: Future<Output = Result<S>>>(
    turns: &Turns,
    candidates: Vec<Candidate>,
    mut connect: impl FnMut(DfsPath) -> F,
    mut failed: impl FnMut(&ServerName, Error),
) -> Option<UsableTarget<S>> {
    let servers: Vec<_> = candidates.iter().map(|one| one.target.server.clone()).collect();
    let mut is_over = vec![false; servers.len()];
    let candidates = candidates.into_iter().enumerate().collect();
    let begin = |(order, candidate): (usize, Candidate)| {
        let connecting = connect(candidate.target.clone());
        async move { Ended { order, candidate, connected: connecting.await } }
    };
    let mut attempts = Staggered::new(candidates, NEXT_TARGET_AFTER, begin);
    let mut best: Option<(usize, UsableTarget<S>)> = None;
    let mut until = None;
    loop {
        let is_waited_for = |order: usize| {
            let ahead = servers.iter().zip(&is_over).take(order);
            ahead.filter(|(_, is_over)| !**is_over).any(|(server, _)| turns.has_answered(server))
        };
        let ended = match &best {
            Some((order, _)) if !is_waited_for(*order) => break,
            Some(_) => {
                let until = *until.get_or_insert_with(|| Instant::now() + BETTER_TARGET_WITHIN);
                timeout_at(until, attempts.next_begun()).await.ok().flatten()
            }
            None => attempts.next().await,
        };
        let Some(Ended { order, candidate: Candidate { at, target }, connected }) = ended else {
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
    best.map(|(_, usable)| usable)
}
