//! Opens: MS-SMB2 3.2.1.6.
//!
//! An Open outlives its session: it is reconnected in the next one, as a durable handle if
//! the server kept it, else by its name if it is still the same file and nothing is lost
//! that only the handle had.

mod carried;
mod closing;
mod contexts;
pub(crate) mod create;
mod create_attempt;
pub(crate) mod fsctl;
pub(crate) mod info;
pub(crate) mod kept;
mod reconnect;
mod resiliency;

use std::sync::{Arc, Weak};

use frevo_proto::protection::Thrift;
use frevo_wire::HeaderFlags;
use frevo_wire::create_context::OnDiskId;
use frevo_wire::dtyp::Guid;
use frevo_wire::file_id::FileId;
use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::Status;
use crate::connection::{Call, Message};
use crate::dfs::Located;
use crate::error::{Cause, During, Result};
use crate::limits::{BACK_OFF_FIRST, REPEAT_FOR, REPEAT_PAUSE_MAX};
use crate::open::create::{Ask, Durability, Opened};
use crate::open::kept::Persistent;
use crate::path::wire_path;
use crate::sequences::Sequences;
use crate::session::bound::Bound;
use crate::session::lease::{Granted, Lease};
use crate::session::{Failure, Live};
use crate::share::{Replay, Share};
pub use carried::{CarriedThrough, carried_through};
pub(crate) use closing::Haste;
pub(crate) use contexts::{lease_context, oplock_of, parent_context};
use create_attempt::CreateAttempt;
pub(crate) use create_attempt::Followers;

/// The server's handle in one session.
#[derive(Debug, Clone, Copy)]
struct Binding {
    bound: Bound,
    file_id: FileId,
    durability: Durability,
}

/// The life of an Open. It only moves on, from one phase to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    /// Requests can use it.
    InUse,
    /// A caller closes it; requests about it still work.
    Closing,
    /// Its CLOSE is done: requests about it fail with FILE_CLOSED.
    Closed,
}

/// The state of an Open, under one mutex.
#[derive(Debug)]
struct State {
    phase: Phase,
    binding: Binding,
    /// It could not be reconnected, and is not tried again.
    is_lost: bool,
    /// The server counts it in a lease, which may allow nothing any more.
    is_leased: bool,
    /// [`Lease`] counts it: closing takes it out.
    is_in_lease: bool,
    /// True once the server was asked to make this handle resilient.
    asked_resiliency: bool,
    /// Byte-range locks held. They go with the handle.
    locks: usize,
    /// The session in which a reconnect was sent last.
    reconnect_sent_in: Option<u64>,
}

/// A file or directory that is open on the server.
pub(crate) struct Open {
    pub(crate) share: Share,
    /// The URL, for messages.
    pub(crate) url: String,
    path: String,
    ask: Ask,
    create_guid: Guid,
    lease: Arc<Lease>,
    identity: Option<OnDiskId>,
    is_posix: bool,
    state: Mutex<State>,
    /// Held while the Open is reconnected.
    reconnecting: tokio::sync::Mutex<()>,
    pub(crate) sequences: Sequences,
    /// [`Thrift`] of the data that WRITEs carry.
    thrift: Arc<Thrift>,
    /// It counts as an Open of the share.
    counted: Arc<()>,
}

/// A CREATE and the requests that leave in one compound with it.
struct First {
    ask: Ask,
    followers: Option<Followers>,
}

impl Open {
    /// Returns the thrift that gets the result if `data` of a WRITE is worth compressing.
    pub(crate) fn compresses(&self, data: &[u8]) -> Option<Arc<Thrift>> {
        let is_tried = !self.thrift.leaves_out(data.len()) && self.thrift.tries(data);
        is_tried.then(|| Arc::clone(&self.thrift))
    }

    /// Opens `path`. It goes on when the caller gives up waiting, so that no handle is left
    /// behind on the server.
    pub(crate) async fn new(
        share: &Share,
        path: &str,
        ask: Ask,
        operation: &'static str,
    ) -> Result<(Arc<Self>, Opened)> {
        let (open, opened, _) = Self::with_followers(share, path, ask, operation, None).await?;
        Ok((open, opened))
    }

    /// As [`Self::new`]; `followers` leave in one compound with the CREATE. Their answers are
    /// returned with whatever statuses they have; there are none if the CREATE was repeated.
    pub(crate) async fn with_followers(
        share: &Share,
        path: &str,
        ask: Ask,
        operation: &'static str,
        followers: Option<Followers>,
    ) -> Result<(Arc<Self>, Opened, Vec<Message>)> {
        let share = share.clone();
        let url = share.url(path);
        let path = wire_path(path).during(operation, &url)?;
        let ask = share.at_its_time(ask, operation).during(operation, &url)?;
        carried_through(Self::reach(share, url, path, ask, operation, followers)).await
    }

    /// Opens a path, on whatever server DFS links lead to.
    async fn reach(
        share: Share,
        url: String,
        path: String,
        ask: Ask,
        operation: &'static str,
        mut followers: Option<Followers>,
    ) -> Result<(Arc<Self>, Opened, Vec<Message>)> {
        let mut at = share.located(path).await?;
        // True if the server may have carried out a CREATE whose answer was lost.
        let mut in_doubt = false;
        loop {
            at.check(&ask, operation, &url)?;
            let first = First { ask: at.adapt(&ask), followers: followers.take() };
            match Self::create(&at, url.clone(), first, operation, &mut in_doubt).await {
                Err(refusal) => at = at.beyond(refusal).await?,
                opened => return opened,
            }
        }
    }

    /// Opens a path on the server where it was found. On return `in_doubt` says that this
    /// server may have carried the CREATE out without an answer.
    async fn create(
        at: &Located,
        url: String,
        First { ask, followers }: First,
        operation: &'static str,
        in_doubt: &mut bool,
    ) -> Result<(Arc<Self>, Opened, Vec<Message>)> {
        let share = at.share.clone();
        let attempt = CreateAttempt::new(&share, &ask, &at.path, *in_doubt);
        let mut attempt = attempt.during(operation, &url)?.followed_by(followers);
        let attempts = share.attempts(Replay::Idempotent, operation, &url);
        let mut attempts = attempts.or_at(at.others.as_ref());
        let (bound, opened) = loop {
            let (live, bound) = attempts.next().await?;
            let sent = attempt.send(&live, bound).await.during(operation, &url)?;
            let Some(outcome) = sent else { continue };
            *in_doubt = matches!(outcome, Err(Failure::Gone));
            if let Some(end) = attempts.judge(outcome, bound) {
                let is_change = bound.is_read_only() && ask.access.intersects(Bound::WRITES);
                break (
                    bound,
                    end.map_err(
                        |error| if is_change { error.in_read_only_share() } else { error },
                    )?,
                );
            }
        };
        // The attempt counts as an Open until its end.
        let counted = Arc::clone(&share.inner.opens);
        let followed = attempt.take_followed();
        let (path, create_guid, lease) = attempt.end();
        let state = State {
            phase: Phase::InUse,
            binding: Binding { bound, file_id: opened.file_id, durability: opened.durability },
            is_lost: false,
            is_leased: opened.lease.is_some(),
            is_in_lease: true,
            asked_resiliency: false,
            locks: 0,
            reconnect_sent_in: None,
        };
        let open = Arc::new(Self {
            share,
            url,
            path,
            ask,
            create_guid,
            lease,
            identity: opened.identity,
            is_posix: opened.posix.is_some(),
            state: Mutex::new(state),
            reconnecting: tokio::sync::Mutex::new(()),
            sequences: Sequences::default(),
            thrift: Arc::default(),
            counted,
        });
        open.lease.joined();
        if let Some(granted) = open.granted(&opened) {
            open.lease.granted(bound, granted);
        }
        if open.is_persistent() {
            let kept: Weak<dyn Persistent> = Arc::downgrade(&open) as _;
            open.share.kept().add(kept);
        }
        Ok((open, opened, followed))
    }

    /// The FileId in the session in which it was opened or reconnected last.
    pub(crate) fn file_id(&self) -> FileId {
        self.state.lock().binding.file_id
    }

    /// The session in which it was opened or reconnected last.
    pub(crate) fn generation(&self) -> u64 {
        self.state.lock().binding.bound.generation
    }

    /// Returns true if the server keeps it over its own restart.
    pub(crate) fn is_persistent(&self) -> bool {
        self.state.lock().binding.durability == Durability::V2 { persistent: true }
    }

    /// Returns true if the server made it a POSIX Open.
    pub(crate) const fn is_posix(&self) -> bool {
        self.is_posix
    }

    /// Counts a byte-range lock that was granted.
    pub(crate) fn lock_taken(&self) {
        self.state.lock().locks += 1;
    }

    /// Counts a byte-range lock that was released.
    pub(crate) fn lock_released(&self) {
        let mut state = self.state.lock();
        state.locks = state.locks.saturating_sub(1);
    }

    /// Returns the lease that the Open belongs to.
    pub(crate) const fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// The lease in an answer to CREATE. A shared lease stays when the answer has none.
    fn granted(&self, opened: &Opened) -> Option<Granted> {
        opened.lease.or_else(|| self.ask.shared.is_none().then_some(Granted::NOTHING))
    }

    /// Reconnects the Open if the session is another one than before: its lease is then
    /// known again.
    pub(crate) async fn confirm(&self, operation: &'static str) -> Result<()> {
        let mut attempts = self.share.attempts(Replay::Idempotent, operation, &self.url);
        loop {
            let (live, bound) = attempts.next().await?;
            let placed = self.place(&live, bound).await.map(drop);
            if let Some(end) = attempts.judge(placed, bound) {
                return end;
            }
        }
    }

    /// Sends a request about this Open and returns its answer, whose status is SUCCESS or
    /// one of `also`. `make` may be called several times.
    pub(crate) async fn ask<'p>(
        &self,
        replay: Replay,
        operation: &'static str,
        also: &[Status],
        mut make: impl FnMut(FileId) -> std::result::Result<Call<'p>, Cause> + Send,
    ) -> Result<Message> {
        let mut attempts = self.share.attempts(replay, operation, &self.url);
        let mut sent_in = None;
        let mut pause = BACK_OFF_FIRST;
        let begun = Instant::now();
        loop {
            let (live, bound) = attempts.next().await?;
            let earlier = sent_in;
            let again = earlier == Some(live.generation) && live.knows_replay();
            let losses = live.losses();
            let file_id = match self.place(&live, bound).await {
                Ok(file_id) => file_id,
                Err(failure) => match attempts.judge_reconnect(failure, bound) {
                    Some(end) => return end,
                    None => continue,
                },
            };
            let outcome = match make(file_id) {
                Ok(mut call) => {
                    call.tree_id = bound.tree_id;
                    if again && !live.skips_replay_flag() {
                        call.flags |= HeaderFlags::REPLAY_OPERATION;
                    }
                    sent_in = Some(live.generation);
                    live.ask(call, bound.seal, also).await
                }
                Err(cause) => Err(cause.into()),
            };
            if let Err(Failure::Final(Cause::Status(Status::FILE_NOT_AVAILABLE))) = &outcome
                && live.knows_replay()
                && begun.elapsed() < REPEAT_FOR
            {
                // MS-SMB2 3.3.5.2.10: a channel was lost meanwhile, and a request with the new
                // ChannelSequence overtook this request. So the server refused this request; it is
                // sent again.
                if live.losses() != losses {
                    sent_in = earlier;
                    continue;
                }
                // The server is still carrying out the copy of this request that it received over
                // the lost channel, so the client waits and tries again.
                if again {
                    sleep(pause).await;
                    pause = (pause * 2).min(REPEAT_PAUSE_MAX);
                    attempts.waited();
                    continue;
                }
            }
            // The next request repeats none if this one did not.
            if outcome.as_ref().is_err_and(was_given_up) {
                sent_in = earlier;
            }
            if let Some(end) = attempts.judge(outcome, bound) {
                return end;
            }
        }
    }
}

impl Persistent for Open {
    fn is_in_use(&self) -> bool {
        let state = self.state.lock();
        let is_open = state.phase == Phase::InUse && !state.is_lost;
        drop(state);
        is_open && !self.share.session().inner.is_closed()
    }

    fn is_placed(&self) -> bool {
        let live = self.share.session().inner.current();
        live.is_some_and(|live| live.generation == self.generation())
    }

    fn has_session(&self) -> bool {
        self.share.session().is_alive()
    }

    fn reconnect(&self) -> BoxFuture<'_, Result<()>> {
        Box::pin(self.confirm("reconnect"))
    }

    fn ask_for_life(&self) {
        let live = self.share.session().inner.current();
        let channel = live.and_then(|live| live.channels.read().first().cloned());
        if let Some(channel) = channel {
            drop(tokio::spawn(async move { channel.connection.echo().await }));
        }
    }
}

impl Open {
    /// Sends related requests about this Open as one compound and returns their answers. The status
    /// of the first one is SUCCESS or one of `also`; those of the others are for the caller. `make`
    /// gets the FileId for the first request, and may be called several times.
    pub(crate) async fn ask_all<'p>(
        &self,
        replay: Replay,
        operation: &'static str,
        also: &[Status],
        mut make: impl FnMut(FileId) -> Vec<Call<'p>> + Send,
    ) -> Result<Vec<Message>> {
        let mut attempts = self.share.attempts(replay, operation, &self.url);
        loop {
            let (live, bound) = attempts.next().await?;
            let file_id = match self.place(&live, bound).await {
                Ok(file_id) => file_id,
                Err(failure) => match attempts.judge_reconnect(failure, bound) {
                    Some(end) => return end,
                    None => continue,
                },
            };
            let mut calls = make(file_id);
            calls.iter_mut().take(1).for_each(|first| first.tree_id = bound.tree_id);
            let outcome = Self::chain(&live, calls, bound.seal, also).await;
            if let Some(end) = attempts.judge(outcome, bound) {
                return end;
            }
        }
    }

    async fn chain(
        live: &Arc<Live>,
        calls: Vec<Call<'_>>,
        seal: bool,
        also: &[Status],
    ) -> std::result::Result<Vec<Message>, Failure> {
        let channel = live.channel().ok_or(Failure::Unsent)?;
        let answers = live.chain(&channel, calls, seal).await?;
        let status = answers.first().ok_or(Failure::Gone)?.status();
        if status == Status::SUCCESS || also.contains(&status) {
            return Ok(answers);
        }
        Err(Failure::Final(status.into()))
    }
}

/// Returns true if the server has not carried out the request, and says nothing against another one: it was
/// not sent, or the server gave it up (the share moves), or the file is kept for an absent client.
const fn was_given_up(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Unsent
            | Failure::Final(Cause::Status(Status::CANCELLED | Status::FILE_NOT_AVAILABLE))
    )
}

/// Returns true if the tree connect is gone or about to go, which says nothing of the Open.
const fn is_of_tree(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::Final(Cause::Status(Status::NETWORK_NAME_DELETED | Status::CANCELLED))
    )
}
