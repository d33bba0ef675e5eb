//! Opens: MS-SMB2 3.2.1.6. An Open outlives its session: it is taken up again
//! in the next one, as durable if the server kept it, else by its name when it
//! still is the same file and nothing that only the handle had is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use frevo_wire::command::close::{self, CloseFlags};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::create_context::{CreateContext, DurableHandleFlags, DurableReconnectV2, OnDiskId};
use frevo_wire::dtyp::Guid;
use frevo_wire::file_id::FileId;
use frevo_wire::{Command, HeaderFlags, Status};
use parking_lot::Mutex;
use tokio::time::sleep;

use crate::ambient::random;
use crate::connection::{Call, Message};
use crate::create::{
    Ask, Durability, Granted, Opened, contexts_of, has_persistent, lease_context, led, oplock_of,
};
use crate::dfs::Located;
use crate::error::{Cause, During, Error, Result};
use crate::limits::{BACK_OFF_FIRST, REDIRECTS, REPEATS};
use crate::path::wire_path;
use crate::sequences::Sequences;
use crate::session::lease::Lease;
use crate::session::{Failure, Live};
use crate::share::{Bound, Replay, Share};

/// Where an Open is in the present session.
#[derive(Debug, Clone, Copy)]
struct Binding {
    bound: Bound,
    file_id: FileId,
    durability: Durability,
}

/// One Open.
pub(crate) struct Open {
    pub(crate) share: Share,
    /// As a person calls it.
    pub(crate) url: String,
    path: String,
    ask: Ask,
    create_guid: Guid,
    lease: Arc<Lease>,
    identity: Option<OnDiskId>,
    posix: bool,
    place: Mutex<Binding>,
    placing: tokio::sync::Mutex<()>,
    /// It is of a lease, if only one that allows nothing any more.
    is_leased: AtomicBool,
    /// Byte-range locks held: they go with the handle.
    pub(crate) locks: AtomicUsize,
    pub(crate) sequences: Sequences,
    /// The session in which it was asked to be taken up again.
    taken_up_in: Mutex<Option<u64>>,
    lost: AtomicBool,
    /// Somebody closes it.
    closed: AtomicBool,
    /// That is done.
    ended: AtomicBool,
    /// Its lease has one Open less.
    has_left: AtomicBool,
}

/// Does `work` whether or not anybody goes on waiting for it.
pub(crate) async fn carried_through<T: Send + 'static>(
    operation: &'static str,
    url: &str,
    work: impl Future<Output = Result<T>> + Send + 'static,
) -> Result<T> {
    match tokio::spawn(work).await {
        Ok(outcome) => outcome,
        Err(_) => Err(Error::new(Cause::Usage("the runtime is ending"), operation, url)),
    }
}

impl Open {
    /// Opens `path`. It goes on when the caller gives up waiting, so that no
    /// handle is left behind on the server.
    pub(crate) async fn new(
        share: &Share,
        path: &str,
        ask: Ask,
        operation: &'static str,
    ) -> Result<(Arc<Self>, Opened)> {
        let share = share.clone();
        let url = share.url(path);
        let path = wire_path(path).during(operation, &url)?;
        let called = url.clone();
        carried_through(operation, &called, Self::reach(share, url, path, ask, operation)).await
    }

    /// Opens it wherever links lead.
    async fn reach(
        share: Share,
        url: String,
        path: String,
        ask: Ask,
        operation: &'static str,
    ) -> Result<(Arc<Self>, Opened)> {
        let mut at = share.located(path).await?;
        let mut in_doubt = false;
        loop {
            ask.check(&at, operation, &url)?;
            match Self::create(&at, url.clone(), ask.there(&at), operation, &mut in_doubt).await {
                Err(refusal) => at = at.beyond(refusal).await?,
                opened => return opened,
            }
        }
    }

    /// Opens it where it was found. `was_sent` says that another server may have carried
    /// out the same before, and that this one may have when it cannot be reached any more.
    async fn create(
        at: &Located,
        url: String,
        ask: Ask,
        operation: &'static str,
        was_sent: &mut bool,
    ) -> Result<(Arc<Self>, Opened)> {
        let (share, mut path) = (at.share.clone(), at.path.clone());
        let ambient = Arc::clone(&share.session().options().ambient);
        let mut create_guid = Guid(random(&*ambient).during(operation, &url)?);
        let mut lease = match &ask.shared {
            Some(lease) => Arc::clone(lease),
            None => Lease::new(&share).during(operation, &url)?,
        };
        let attempts = share.attempts(Replay::Idempotent, operation, &url);
        let mut attempts = attempts.or_at(at.others.as_ref());
        let mut before: Option<u64> = None;
        // An earlier attempt may have made it, and this one is not known for its repetition.
        let mut in_doubt = *was_sent;
        let mut before_is_over = false;
        let mut repeats = 0;
        let mut redirects = 0;
        let (bound, opened) = loop {
            let (live, bound) = attempts.next().await?;
            let elsewhere = before.is_some_and(|generation| generation != live.generation);
            before_is_over |= elsewhere;
            in_doubt |= elsewhere || (before.is_some() && !(ask.keep && live.knows_replay()));
            // A server keeps a persistent Open whose client never heard of it, and
            // knows it by a replay in any session (MS-SMB2 3.3.5.9.10). Another
            // Open is not to be had so, and would be in the way of its CreateGuid; with
            // another lease it gives way to this one.
            let is_kept = ask.keep && has_persistent(&live, bound);
            if elsewhere && !is_kept {
                create_guid = Guid(random(&*ambient).during(operation, &url)?);
                if ask.shared.is_none() {
                    lease = Lease::new(&share).during(operation, &url)?;
                }
            }
            lease.asked(bound);
            let contexts = contexts_of(&ask, &live, bound, create_guid, &lease);
            let (name, posix) = (share.named(&path, bound), share.is_posix_in(&live));
            let mut call = ask.call(&name, oplock_of(&contexts), &contexts, posix);
            call.tree_id = bound.tree_id;
            let again = before.is_some() && (is_kept || !elsewhere);
            if again && live.knows_replay() && !planted!(SkippedReplayFlag) {
                call.flags |= HeaderFlags::REPLAY_OPERATION;
            }
            let earlier = before.replace(live.generation);
            let outcome = match live.ask(call, bound.seal, &[Status::STOPPED_ON_SYMLINK]).await {
                Ok(message) if message.header.status == Status::STOPPED_ON_SYMLINK => {
                    redirects += 1;
                    match led(&message, &path).filter(|_| redirects <= REDIRECTS) {
                        Some(on) => {
                            path = on;
                            before = None;
                            continue;
                        }
                        None => Err(Cause::from(Status::STOPPED_ON_SYMLINK).into()),
                    }
                }
                Ok(message) => Opened::parse(&message).map_err(Failure::from),
                Err(Failure::Unsent) => {
                    before = earlier;
                    Err(Failure::Unsent)
                }
                // The server carries it out still, or has the Open in a session that it does
                // not know to be over.
                Err(Failure::Final(Cause::Status(
                    Status::FILE_NOT_AVAILABLE | Status::DUPLICATE_OBJECTID,
                ))) if again && ask.keep && repeats < REPEATS => {
                    sleep(BACK_OFF_FIRST * (1 << repeats)).await;
                    repeats += 1;
                    continue;
                }
                // It could not keep the Open over its own end, and what it has is not to be
                // had: then it is another.
                Err(Failure::Final(Cause::Status(Status::DUPLICATE_OBJECTID)))
                    if again && before_is_over =>
                {
                    before_is_over = false;
                    create_guid = Guid(random(&*ambient).during(operation, &url)?);
                    if ask.shared.is_none() {
                        lease = Lease::new(&share).during(operation, &url)?;
                    }
                    before = None;
                    continue;
                }
                // Perhaps it was this very request that made it.
                Err(Failure::Final(Cause::Status(Status::OBJECT_NAME_COLLISION)))
                    if in_doubt && ask.disposition == CreateDisposition::CREATE =>
                {
                    Err(Cause::Unknown.into())
                }
                Err(failure) => Err(failure),
            };
            *was_sent = matches!(outcome, Err(Failure::Gone));
            if let Some(end) = attempts.judge(outcome, bound) {
                break (bound, end?);
            }
        };
        let place = Binding { bound, file_id: opened.file_id, durability: opened.durability };
        let open = Arc::new(Self {
            share,
            url,
            path,
            ask,
            create_guid,
            lease,
            identity: opened.identity,
            posix: opened.posix.is_some(),
            place: Mutex::new(place),
            placing: tokio::sync::Mutex::new(()),
            is_leased: AtomicBool::new(opened.lease.is_some()),
            locks: AtomicUsize::new(0),
            sequences: Sequences::default(),
            taken_up_in: Mutex::new(None),
            lost: AtomicBool::new(false),
            closed: AtomicBool::new(false),
            ended: AtomicBool::new(false),
            has_left: AtomicBool::new(false),
        });
        open.lease.joined();
        if let Some(granted) = open.told(&opened) {
            open.lease.granted(bound, granted);
        }
        Ok((open, opened))
    }

    /// What it is called in the present session.
    pub(crate) fn file_id(&self) -> FileId {
        self.place.lock().file_id
    }

    /// The session in which it was made or taken up last.
    pub(crate) fn generation(&self) -> u64 {
        self.place.lock().bound.generation
    }

    /// Whether the server keeps it over its own end.
    pub(crate) fn is_persistent(&self) -> bool {
        self.place.lock().durability == Durability::V2 { persistent: true }
    }

    /// Whether the server took it for a POSIX Open.
    pub(crate) const fn is_posix(&self) -> bool {
        self.posix
    }

    /// Its lease.
    pub(crate) const fn lease(&self) -> &Arc<Lease> {
        &self.lease
    }

    /// What an answer says of its lease. One of others' Opens too stays what it is when
    /// nothing is said.
    fn told(&self, opened: &Opened) -> Option<Granted> {
        opened.lease.or_else(|| self.ask.shared.is_none().then_some(Granted::NOTHING))
    }

    /// Takes the Open up in the session that there is now, if that is another
    /// than before: then its lease is known again.
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

    /// Sends a request about this Open and gives its answer, whose status is
    /// SUCCESS or one of `also`. `make` may be called again.
    pub(crate) async fn ask<'p>(
        &self,
        replay: Replay,
        operation: &'static str,
        also: &[Status],
        mut make: impl FnMut(FileId) -> std::result::Result<Call<'p>, Cause> + Send,
    ) -> Result<Message> {
        let mut attempts = self.share.attempts(replay, operation, &self.url);
        let mut before = None;
        let mut repeats = 0;
        loop {
            let (live, bound) = attempts.next().await?;
            let again = before == Some(live.generation) && live.knows_replay();
            let outcome = match self.place(&live, bound).await.and_then(|id| Ok(make(id)?)) {
                Ok(mut call) => {
                    call.tree_id = bound.tree_id;
                    if again && !planted!(SkippedReplayFlag) {
                        call.flags |= HeaderFlags::REPLAY_OPERATION;
                    }
                    before = Some(live.generation);
                    live.ask(call, bound.seal, also).await
                }
                Err(failure) => Err(failure),
            };
            // MS-SMB2 3.3.5.2.10: the server carries out still what came by the lost channel.
            if again
                && repeats < REPEATS
                && let Err(Failure::Final(Cause::Status(Status::FILE_NOT_AVAILABLE))) = &outcome
            {
                sleep(BACK_OFF_FIRST * (1 << repeats)).await;
                repeats += 1;
                continue;
            }
            if let Some(end) = attempts.judge(outcome, bound) {
                return end;
            }
        }
    }

    /// The FileId in `live`, the Open taken up again if it is a new session.
    pub(crate) async fn place(
        &self,
        live: &Arc<Live>,
        bound: Bound,
    ) -> std::result::Result<FileId, Failure> {
        let present = || {
            if self.ended.load(Ordering::Acquire) {
                return Err(Failure::Final(Status::FILE_CLOSED.into()));
            }
            let place = self.place.lock();
            Ok((place.bound.generation == live.generation).then_some(place.file_id))
        };
        if let Some(file_id) = present()? {
            return Ok(file_id);
        }
        let _turn = self.placing.lock().await;
        if let Some(file_id) = present()? {
            return Ok(file_id);
        }
        if self.lost.load(Ordering::Acquire) {
            return Err(Cause::HandleLost.into());
        }
        let opened = match self.reconnect(live, bound).await {
            // It says nothing of the Open.
            Err(gone) if is_of_tree(&gone) => return Err(gone),
            Err(Failure::Final(_)) => {
                let opened = self.reopen(live, bound).await.inspect_err(|why| {
                    if matches!(why, Failure::Final(_)) && !is_of_tree(why) {
                        self.lost.store(true, Ordering::Release);
                    }
                })?;
                // Somebody may have written to it meanwhile.
                self.lease.granted(bound, opened.lease.unwrap_or(Granted::NOTHING));
                opened
            }
            other => {
                let opened = other?;
                if let Some(granted) = self.told(&opened) {
                    self.lease.kept(bound, granted);
                }
                opened
            }
        };
        self.is_leased.store(opened.lease.is_some(), Ordering::Release);
        *self.place.lock() =
            Binding { bound, file_id: opened.file_id, durability: opened.durability };
        Ok(opened.file_id)
    }

    /// MS-SMB2 3.2.4.4: takes a durable Open up again.
    async fn reconnect(
        &self,
        live: &Arc<Live>,
        bound: Bound,
    ) -> std::result::Result<Opened, Failure> {
        let old = *self.place.lock();
        let context = match old.durability {
            Durability::None => return Err(Cause::HandleLost.into()),
            Durability::V1 => CreateContext::DurableReconnect(old.file_id),
            Durability::V2 { persistent } => {
                CreateContext::DurableReconnectV2(DurableReconnectV2 {
                    file_id: old.file_id,
                    create_guid: self.create_guid,
                    flags: if persistent {
                        DurableHandleFlags::PERSISTENT
                    } else {
                        DurableHandleFlags::EMPTY
                    },
                })
            }
        };
        // MS-SMB2 3.3.5.9.12 wants it for as long as the Open has a Lease, which
        // it has when all of it was taken too.
        let is_leased = self.is_leased.load(Ordering::Acquire);
        let lease = is_leased.then(|| lease_context(live, &self.lease, self.lease.state()));
        let contexts: Vec<_> = [context].into_iter().chain(lease.flatten()).collect();
        let ask = Ask { disposition: CreateDisposition::OPEN, ..self.ask.clone() };
        // The answer may have been lost with another channel of the session.
        let generation = live.generation;
        let repeats = self.taken_up_in.lock().replace(generation) == Some(generation);
        let flags = if repeats && live.knows_replay() {
            HeaderFlags::REPLAY_OPERATION
        } else {
            HeaderFlags::EMPTY
        };
        let mut opened = self.again(live, bound, &ask, &contexts, flags).await?;
        // The answer need not repeat what it was.
        opened.durability = old.durability;
        Ok(opened)
    }

    /// Opens it once more by its name, when that is as good.
    async fn reopen(&self, live: &Arc<Live>, bound: Bound) -> std::result::Result<Opened, Failure> {
        let lost = || Failure::Final(Cause::HandleLost);
        let identity = self.identity.ok_or_else(lost)?;
        if (self.locks.load(Ordering::Acquire) > 0 && !planted!(LostLock))
            || self.ask.options.contains(CreateOptions::DELETE_ON_CLOSE)
        {
            return Err(lost());
        }
        let ask = Ask { disposition: CreateDisposition::OPEN, ..self.ask.clone() };
        let contexts = contexts_of(&ask, live, bound, self.create_guid, &self.lease);
        let opened = match self.again(live, bound, &ask, &contexts, HeaderFlags::EMPTY).await {
            Err(Failure::Final(cause)) if !is_of_tree(&Failure::Final(cause.clone())) => {
                return Err(lost());
            }
            other => other?,
        };
        if opened.identity != Some(identity) {
            // Another file of that name.
            let call = Call { tree_id: bound.tree_id, ..close_call(opened.file_id) };
            let _ = live.ask(call, bound.seal, &[]).await;
            return Err(lost());
        }
        Ok(opened)
    }

    async fn again(
        &self,
        live: &Arc<Live>,
        bound: Bound,
        ask: &Ask,
        contexts: &[CreateContext<'_>],
        flags: HeaderFlags,
    ) -> std::result::Result<Opened, Failure> {
        self.lease.asked(bound);
        let oplock = oplock_of(contexts);
        let (name, posix) = (self.share.named(&self.path, bound), self.share.is_posix_in(live));
        let mut call = ask.call(&name, oplock, contexts, posix);
        call.tree_id = bound.tree_id;
        call.flags |= flags;
        let message = live.ask(call, bound.seal, &[]).await?;
        Ok(Opened::parse(&message)?)
    }

    /// Closes it, whether or not anybody waits for that. Later calls fail with FILE_CLOSED.
    pub(crate) async fn close(self: &Arc<Self>) -> Result<()> {
        if self.closed.swap(true, Ordering::AcqRel) {
            return Ok(());
        }
        let mut closing = Closing { open: self, is_done: false };
        let done = self.end().await;
        closing.is_done = true;
        done
    }

    /// What closing is. It may be begun anew.
    async fn end(&self) -> Result<()> {
        // Before: what is granted to others after the CLOSE is another lease.
        self.leave();
        let done = self.tell_closed().await;
        self.ended.store(true, Ordering::Release);
        done
    }

    /// It is no more of its lease, however its closing ends.
    fn leave(&self) {
        if !self.has_left.swap(true, Ordering::AcqRel) {
            self.lease.left();
        }
    }

    async fn tell_closed(&self) -> Result<()> {
        let place = *self.place.lock();
        let session = &self.share.inner.session.inner;
        // A session that is gone has closed it, unless it was kept: then it is
        // taken up again for that.
        let live = session.current();
        if live.is_some_and(|live| live.generation == place.bound.generation)
            || place.durability != Durability::None
        {
            let mut was_sent = false;
            let closed = self.ask(Replay::Idempotent, "close", &[Status::FILE_CLOSED], |id| {
                was_sent = true;
                Ok(close_call(id))
            });
            match closed.await {
                // The answer was lost, and with the handle what was to be done.
                Err(error) if was_sent && matches!(error.cause(), Cause::HandleLost) => {}
                other => _ = other?,
            }
        }
        Ok(())
    }
}

impl Open {
    /// The same Open for who closes it, when all others have let go.
    fn taken_over(&mut self) -> Self {
        Self {
            share: self.share.clone(),
            url: std::mem::take(&mut self.url),
            path: std::mem::take(&mut self.path),
            ask: self.ask.clone(),
            create_guid: self.create_guid,
            lease: Arc::clone(&self.lease),
            identity: self.identity,
            posix: self.posix,
            place: Mutex::new(*self.place.lock()),
            placing: tokio::sync::Mutex::new(()),
            is_leased: AtomicBool::new(self.is_leased.load(Ordering::Acquire)),
            locks: AtomicUsize::new(self.locks.load(Ordering::Acquire)),
            sequences: Sequences::default(),
            taken_up_in: Mutex::new(*self.taken_up_in.lock()),
            lost: AtomicBool::new(false),
            // By its owner: dropping it does nothing more.
            closed: AtomicBool::new(true),
            ended: AtomicBool::new(false),
            has_left: AtomicBool::new(self.has_left.swap(true, Ordering::AcqRel)),
        }
    }
}

impl Drop for Open {
    /// The server is told, without anybody waiting for it.
    fn drop(&mut self) {
        let inner = &self.share.inner.session.inner;
        if self.closed.load(Ordering::Acquire) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return self.leave() };
        let place = *self.place.lock();
        if place.durability != Durability::None
            && !self.lost.load(Ordering::Acquire)
            && !inner.is_closed()
        {
            // The server would keep it for a client that may come back, in everybody's way.
            let left = self.taken_over();
            runtime.spawn(async move { left.end().await });
            return;
        }
        self.leave();
        let Some(live) = inner.current().filter(|l| l.generation == place.bound.generation) else {
            return;
        };
        // The session stays until then.
        let share = self.share.clone();
        runtime.spawn(async move {
            let call = Call { tree_id: place.bound.tree_id, ..close_call(place.file_id) };
            let _ = live.ask(call, place.bound.seal, &[]).await;
            drop(share);
        });
    }
}

/// An Open that is being closed.
struct Closing<'a> {
    open: &'a Arc<Open>,
    is_done: bool,
}

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let open = Arc::clone(self.open);
        runtime.spawn(async move { open.end().await });
    }
}

/// Whether the tree connect has gone, and not what was opened by it.
const fn is_of_tree(failure: &Failure) -> bool {
    matches!(failure, Failure::Final(Cause::Status(Status::NETWORK_NAME_DELETED)))
}

fn close_call(file_id: FileId) -> Call<'static> {
    let request = close::Request { flags: CloseFlags::EMPTY, file_id };
    Call::new(Command::CLOSE, |w| request.encode(w))
}
