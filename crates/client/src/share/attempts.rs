//! Attempts at an operation: each in the present session and tree connect. MS-SMB2 3.2.4.1.7.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, timeout};

use crate::Status;
use crate::dfs::Others;
use crate::error::{Cause, Error, Result};
use crate::limits::{
    ATTEMPTS, BACK_OFF_FIRST, BROKEN_MAX, CANCELLED_MAX, CANCELLED_PAUSE, FIND_SHARE_FOR,
    REDIRECTIONS, REPEATS,
};
use crate::session::bound::Bound;
use crate::session::{Failure, Live};
use crate::share::Share;
use crate::share::owner::Refusal;
use crate::share::tree_connect::NotBound;

/// The reaction to a request whose answer was lost.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Replay {
    /// Send it again: twice has the effect of once.
    Idempotent,
    /// As [`Self::Idempotent`], for a compound that changes a file: it is sent again only when the
    /// first one cannot arrive late, after further changes.
    Settled,
    /// Report [`Cause::Unknown`] to the caller.
    Never,
    /// Ask the server for the outcome on another channel; without one as [`Self::Never`].
    Once,
}

/// Operations that change a share. An "open" may do so too.
pub(crate) const CHANGES: [&str; 11] = [
    "write",
    "remove",
    "rename",
    "replace",
    "link",
    "make directory",
    "make the link",
    "set an attribute of",
    "set the attributes of",
    "set the times of",
    "set the access list of",
];

/// An operation that may take several attempts.
pub(crate) struct Attempts<'a> {
    share: &'a Share,
    replay: Replay,
    operation: &'static str,
    path: &'a str,
    /// The other targets of a DFS link.
    others: Option<&'a Others>,
    left: u32,
    /// Count of connections that ended because the server broke the protocol.
    broken: u32,
    /// Count of refusals of a file that is kept for an absent client, and the pause before the next attempt.
    unavailable: u32,
    rest: Option<Duration>,
    /// Time of the first of these refusals.
    unavailable_since: Option<Instant>,
    /// The search for the share's owner.
    search: Option<OwnerSearch>,
    /// Count of requests that the server gave up.
    cancelled: u32,
}

/// A search for the node that serves a share, after another one has refused it.
#[derive(Debug, Clone, Copy)]
struct OwnerSearch {
    since: Instant,
    /// The status of the last refusal that had one.
    status: Option<Status>,
    /// Count of owners that were named.
    redirections: u32,
}

impl<'a> Attempts<'a> {
    pub(super) const fn new(
        share: &'a Share,
        replay: Replay,
        operation: &'static str,
        path: &'a str,
    ) -> Self {
        Self {
            share,
            replay,
            operation,
            path,
            others: None,
            left: ATTEMPTS,
            broken: 0,
            unavailable: 0,
            rest: None,
            unavailable_since: None,
            search: None,
            cancelled: 0,
        }
    }

    /// Ends the attempts early when the server is lost and one of `others` can be reached.
    pub(crate) const fn or_at(self, others: Option<&'a Others>) -> Self {
        Self { others, ..self }
    }

    /// Returns session and tree connect for the next attempt, recovered if needed.
    pub(crate) async fn next(&mut self) -> Result<(Arc<Live>, Bound)> {
        let (operation, path) = (self.operation, self.path);
        let error = |cause| Error::new(cause, operation, path);
        if let Some(rest) = self.rest.take() {
            sleep(rest).await;
        }
        loop {
            self.left = self.left.checked_sub(1).ok_or_else(|| {
                error(std::io::Error::from(std::io::ErrorKind::ConnectionReset).into())
            })?;
            let live = self.found().await;
            let user = self.share.session().user();
            let live = live.map_err(|cause| error(cause).of_user(user))?;
            let not_bound = match self.share.bind(&live).await {
                Ok(bound) => {
                    self.search = None;
                    return Ok((live, bound));
                }
                Err(not_bound) => not_bound,
            };
            match not_bound {
                NotBound::Apart(only) => self.share.part(&live, only).map_err(error)?,
                NotBound::Older(dialect) => self.share.speak(&live, dialect).map_err(error)?,
                NotBound::Failed(_) | NotBound::Redirected(_) | NotBound::Outdated => {}
            }
            if matches!(not_bound, NotBound::Failed(Failure::Gone | Failure::Unsent))
                && let Some(cause) = self.share.session().inner.broken(live.generation)
            {
                self.broken += 1;
                if self.broken >= BROKEN_MAX {
                    return Err(error(cause));
                }
            }
            if let Some(refusal) = self.refusal(&live, &not_bound)
                && self.share.may_be_elsewhere(&live, &refusal)
            {
                if !self.has_time(&refusal) {
                    return Err(error(self.found_nowhere(&live)));
                }
                // The node may have fallen silent, while it is asked for the session's other shares.
                let looked = self.share.look_elsewhere(&live, &refusal);
                if timeout(self.search_left(), looked).await.is_err() {
                    return Err(error(self.found_nowhere(&live)));
                }
                // A node that is paused ends each connection. The search for a share that is about to be
                // somewhere ends by its time alone.
                if refusal.status().is_some() || self.share.is_awaited() {
                    self.waited();
                }
                continue;
            }
            match not_bound {
                NotBound::Failed(Failure::Final(cause)) => return Err(error(cause)),
                NotBound::Redirected(_) => return Err(error(Status::BAD_NETWORK_NAME.into())),
                NotBound::Failed(_)
                | NotBound::Apart(_)
                | NotBound::Older(_)
                | NotBound::Outdated => {}
            }
        }
    }

    /// Returns the error of a search whose time is over: the last refusal with a status, else the end
    /// of the connection `live`.
    fn found_nowhere(&self, live: &Live) -> Cause {
        let status = self.search.and_then(|search| search.status).map(Cause::from);
        let broken = || self.share.session().inner.broken(live.generation);
        let reset = || std::io::Error::from(std::io::ErrorKind::ConnectionReset).into();
        status.or_else(broken).unwrap_or_else(reset)
    }

    /// Returns the refusal that a failed TREE_CONNECT is. Nodes that name one owner after the other are
    /// not followed for ever, and not all addresses are followed: then they only refuse.
    fn refusal(&self, live: &Live, not_bound: &NotBound) -> Option<Refusal> {
        let refusal = Refusal::of(not_bound)?;
        if let Refusal::Redirected(named) = &refusal {
            let count = self.search.map_or(0, |search| search.redirections);
            if count >= REDIRECTIONS || self.share.owners_at(live, named).is_empty() {
                return Some(Refusal::Status(Status::BAD_NETWORK_NAME));
            }
        }
        Some(refusal)
    }

    /// Counts a refusal of the share. Returns true if the search may go on.
    fn has_time(&mut self, refusal: &Refusal) -> bool {
        let search = OwnerSearch { since: Instant::now(), status: None, redirections: 0 };
        let search = self.search.get_or_insert(search);
        search.status = refusal.status().or(search.status);
        search.redirections += u32::from(matches!(refusal, Refusal::Redirected(_)));
        search.since.elapsed() < self.search_limit()
    }

    /// Returns the longest time for which the share is looked for.
    fn search_limit(&self) -> Duration {
        let patience = self.share.session().inner.patience();
        if self.share.was_connected() { patience } else { FIND_SHARE_FOR.min(patience) }
    }

    /// Returns the time that is left of the search.
    fn search_left(&self) -> Duration {
        let elapsed = self.search.map(|search| search.since.elapsed());
        self.search_limit().saturating_sub(elapsed.unwrap_or_default())
    }

    /// Returns the session, which may be at another node than before. A search ends with the refusal
    /// if no further node is reached in time.
    async fn found(&self) -> std::result::Result<Arc<Live>, Cause> {
        let Some(OwnerSearch { status: Some(status), .. }) = self.search else {
            return self.live().await;
        };
        match timeout(self.search_left(), self.live()).await {
            Ok(Err(Cause::Status(Status::SERVER_UNAVAILABLE) | Cause::Transport(_))) | Err(_) => {
                Err(status.into())
            }
            Ok(live) => live,
        }
    }

    /// Gives the last attempt back: the server has only asked to wait.
    pub(crate) const fn waited(&mut self) {
        self.left += 1;
    }

    /// Returns the session, recovered unless another target is found first.
    async fn live(&self) -> std::result::Result<Arc<Live>, Cause> {
        let session = self.share.session();
        let Some(others) = self.others.filter(|_| session.inner.current().is_none()) else {
            return session.inner.live().await;
        };
        tokio::select! {
            biased;
            live = session.inner.live() => live,
            () = others.found(session) => Err(std::io::Error::from(std::io::ErrorKind::HostUnreachable).into()),
        }
    }

    /// True if the server is to be asked for the outcome when the answer is lost.
    pub(crate) const fn is_numbered(&self) -> bool {
        matches!(self.replay, Replay::Once | Replay::Settled)
    }

    /// True if the operation must not be carried out twice.
    pub(crate) const fn is_once(&self) -> bool {
        matches!(self.replay, Replay::Once)
    }

    /// Returns the result of the operation; `None` to try it again.
    pub(crate) fn judge<T>(
        &mut self,
        outcome: std::result::Result<T, Failure>,
        bound: Bound,
    ) -> Option<Result<T>> {
        self.judge_as(self.replay, outcome, bound)
    }

    /// As [`Self::judge`], for a reconnect that failed before the request of the operation was sent: it
    /// may be repeated, whatever the operation is.
    pub(crate) fn judge_reconnect<T>(
        &mut self,
        failure: Failure,
        bound: Bound,
    ) -> Option<Result<T>> {
        self.judge_as(Replay::Idempotent, Err(failure), bound)
    }

    fn judge_as<T>(
        &mut self,
        replay: Replay,
        outcome: std::result::Result<T, Failure>,
        bound: Bound,
    ) -> Option<Result<T>> {
        let (operation, path) = (self.operation, self.path);
        let error = |cause| Some(Err(Error::new(cause, operation, path)));
        match outcome {
            Ok(value) => Some(Ok(value)),
            Err(Failure::Gone) if matches!(replay, Replay::Once | Replay::Never) => {
                error(Cause::Unknown)
            }
            // The server may have begun it and moved a position that only the server knows.
            Err(Failure::Final(Cause::Status(Status::CANCELLED))) if replay == Replay::Never => {
                error(Cause::Unknown)
            }
            Err(Failure::Gone | Failure::Unsent) => {
                let cause = self.share.session().inner.broken(bound.generation)?;
                self.broken += 1;
                if self.broken >= BROKEN_MAX { error(cause) } else { None }
            }
            // The server gives a share away, and gives up the requests that wait for other clients. This
            // client cancels only requests whose answer nobody wants.
            Err(Failure::Final(Cause::Status(Status::CANCELLED)))
                if self.cancelled < CANCELLED_MAX =>
            {
                self.cancelled += 1;
                self.rest = Some(CANCELLED_PAUSE);
                None
            }
            // The server has reloaded the share and ended the tree connect. So the share is
            // connected again.
            Err(Failure::Final(Cause::Status(Status::NETWORK_NAME_DELETED))) => {
                self.share.unbind(bound);
                None
            }
            // MS-SMB2 3.3.5.9: the file is kept for a client that has not come back yet, after a move of
            // the share. It may be this one.
            Err(Failure::Final(Cause::Status(Status::FILE_NOT_AVAILABLE)))
                if self.share.is_continuous() && self.waits_for_client() =>
            {
                None
            }
            Err(Failure::Final(cause)) => {
                let error = Error::new(cause, operation, path);
                let is_change = CHANGES.contains(&operation) && bound.is_read_only();
                Some(Err(if is_change { error.in_read_only_share() } else { error }))
            }
        }
    }

    /// Counts a refusal of a file that is kept for an absent client. Returns true if the operation is
    /// tried again: for some seconds, and no longer than a lost server is waited for.
    fn waits_for_client(&mut self) -> bool {
        let since = *self.unavailable_since.get_or_insert_with(Instant::now);
        let left = self.share.session().inner.patience().saturating_sub(since.elapsed());
        if left.is_zero() || self.unavailable >= REPEATS {
            return false;
        }
        self.rest = Some(left.min(BACK_OFF_FIRST * (1 << self.unavailable)));
        self.unavailable += 1;
        self.share.kept().hurry();
        true
    }
}
