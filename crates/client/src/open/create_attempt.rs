//! A CREATE, sent until the server answers: MS-SMB2 3.2.4.3 and 3.2.5.7.

use std::sync::Arc;

use frevo_wire::HeaderFlags;
use frevo_wire::command::create::CreateDisposition;
use frevo_wire::command::ioctl::operation::{OperationId, Outcome, Progress};
use frevo_wire::create_context::CreateContext;
use frevo_wire::dtyp::{AccessMask, Guid};
use tokio::time::{sleep, timeout};

use super::contexts::{contexts_of, has_guid, has_persistent, oplock_of, parent_context};
use super::was_given_up;
use crate::Status;
use crate::ambient::random;
use crate::connection::{Call, Message};
use crate::error::Cause;
use crate::limits::{BACK_OFF_FIRST, NUMBER_WAIT, REDIRECTS, REPEATS};
use crate::open::create::{Ask, Opened};
use crate::redirect::led;
use crate::session::bound::Bound;
use crate::session::lease::Lease;
use crate::session::{Failure, Live};
use crate::share::{Share, good};

/// The answer to a CREATE.
type Answer = Result<Opened, Failure>;

/// Makes the requests that leave in one compound with a CREATE, about the Open that it makes.
pub(crate) type Followers = Box<dyn Fn() -> Vec<Call<'static>> + Send + Sync>;

/// A CREATE that is being sent.
pub(super) struct CreateAttempt<'a> {
    share: &'a Share,
    ask: &'a Ask,
    path: String,
    create_guid: Guid,
    lease: Arc<Lease>,
    /// The session in which it was sent last; `None` before, and after a fresh start.
    sent_in: Option<u64>,
    /// It was sent in a session that is over.
    outlived_session: bool,
    /// An earlier request may have created the file, and the server will not recognise this
    /// one as its repetition.
    in_doubt: bool,
    /// True if the server numbers operations: it is Frevo, which recognises a CreateGuid.
    is_numbered: bool,
    /// Repetitions of a request that the server still carries out.
    repeats: u32,
    /// Symbolic links that were followed.
    redirects: usize,
    /// Requests that leave with the first CREATE; a repetition goes alone.
    followers: Option<Followers>,
    /// The answers to these requests, whatever their statuses are.
    followed: Vec<Message>,
    /// It counts as an Open of the share as long as the server may have made one that the next session
    /// finds again.
    counted: Option<Arc<()>>,
}

impl<'a> CreateAttempt<'a> {
    /// A CREATE that was not sent yet. `in_doubt`: another server may have carried it out.
    pub(super) fn new(
        share: &'a Share,
        ask: &'a Ask,
        path: &str,
        in_doubt: bool,
    ) -> Result<Self, Cause> {
        let lease = match &ask.shared {
            Some(lease) => Arc::clone(lease),
            None => Lease::new(&share.session().inner)?,
        };
        Ok(Self {
            share,
            ask,
            path: path.into(),
            create_guid: Guid(random(&*share.session().options().ambient)?),
            lease,
            sent_in: None,
            outlived_session: false,
            in_doubt,
            is_numbered: false,
            repeats: 0,
            redirects: 0,
            followers: None,
            followed: Vec::new(),
            counted: None,
        })
    }

    /// Sends these requests with the first CREATE.
    pub(super) fn followed_by(self, followers: Option<Followers>) -> Self {
        Self { followers, ..self }
    }

    /// The path behind the links that were followed, the CreateGuid, and the lease.
    pub(super) fn end(self) -> (String, Guid, Arc<Lease>) {
        (self.path, self.create_guid, self.lease)
    }

    /// Takes the answers to the requests that left with the CREATE.
    pub(super) fn take_followed(&mut self) -> Vec<Message> {
        std::mem::take(&mut self.followed)
    }

    /// Sends it. Returns `None` when it is to be sent again at once.
    pub(super) async fn send(
        &mut self,
        live: &Arc<Live>,
        bound: Bound,
    ) -> Result<Option<Answer>, Cause> {
        let is_repetition = self.enter(live, bound)?;
        let mut number = match live.is_wide {
            true => timeout(NUMBER_WAIT, live.operations.take()).await.ok().flatten(),
            false => None,
        };
        if let Some(number) = &mut number {
            number.id.sequence += 1;
        }
        let id = number.as_ref().map(|number| number.id);
        let call = self.call(live, bound, is_repetition, id);
        let followers = match &self.followers {
            Some(make) if self.sent_in.is_none() && self.redirects == 0 => make(),
            _ => Vec::new(),
        };
        let earlier = self.sent_in.replace(live.generation);
        let was_counted = self.counted.is_some();
        if self.is_kept(live, bound) {
            self.counted.get_or_insert_with(|| Arc::clone(&self.share.inner.opens));
        }
        let answer = match self.ask(live, bound, call, followers).await {
            Err(Failure::Gone) => Err(self.lost(live, bound, id).await),
            answer => answer,
        };
        match answer {
            Ok(message) if message.status() == Status::STOPPED_ON_SYMLINK => {
                Ok(self.follow(&message))
            }
            Ok(message) => Ok(Some(Opened::parse(&message).map_err(Failure::from))),
            Err(Failure::Unsent) => {
                self.sent_in = earlier;
                self.counted.take_if(|_| !was_counted);
                Ok(Some(Err(Failure::Unsent)))
            }
            Err(failure) => {
                // Nothing was made by this request, nor by an earlier one in this session.
                if !is_repetition && was_given_up(&failure) {
                    self.sent_in = earlier;
                }
                self.refused(live, bound, failure, is_repetition).await
            }
        }
    }

    /// Sends the CREATE, alone or as the first request of a compound.
    async fn ask(
        &mut self,
        live: &Arc<Live>,
        bound: Bound,
        call: Call<'static>,
        followers: Vec<Call<'static>>,
    ) -> Result<Message, Failure> {
        let also = [Status::STOPPED_ON_SYMLINK];
        if followers.is_empty() {
            return live.ask(call, bound.seal, &also).await;
        }
        let channel = live.channel().ok_or(Failure::Unsent)?;
        let calls = std::iter::once(call).chain(followers).collect();
        let mut answers = live.chain(&channel, calls, bound.seal).await?.into_iter();
        let first = answers.next().ok_or(Failure::Gone)?;
        self.followed = answers.collect();
        good(first, &also)
    }

    /// The answer was lost. Asks a server that numbers operations on another channel what became of
    /// the CREATE, and waits for its end. One that has not begun never will, even if it arrives late.
    async fn lost(&mut self, live: &Arc<Live>, bound: Bound, id: Option<OperationId>) -> Failure {
        let Some(id) = id else { return Failure::Gone };
        match live.outcome_of(bound, id).await {
            Ok(Outcome { progress: Progress::NOT_BEGUN, .. }) => Failure::Unsent,
            outcome => {
                self.is_numbered = outcome.is_ok();
                Failure::Gone
            }
        }
    }

    /// Returns true if the server recognises a repetition of this CREATE in one session. Frevo
    /// does; another server is expected to if it may make the handle durable.
    fn is_recognised(&self, live: &Live, bound: Bound) -> bool {
        // This list must match the rights that `set_replay_eligible` in Frevo's server checks.
        let works = AccessMask::READ_DATA
            | AccessMask::EXECUTE
            | AccessMask::WRITE_DATA
            | AccessMask::APPEND_DATA
            | AccessMask::DELETE;
        let is_told_apart = self.is_numbered && self.ask.access.intersects(works);
        has_guid(self.ask, live, bound) && (self.ask.keep || is_told_apart)
    }

    /// Goes on in this session. Returns true if the request repeats one that the server may
    /// recognise.
    fn enter(&mut self, live: &Live, bound: Bound) -> Result<bool, Cause> {
        let was_sent = self.sent_in.is_some();
        let is_elsewhere = self.sent_in.is_some_and(|generation| generation != live.generation);
        self.outlived_session |= is_elsewhere;
        self.in_doubt |= is_elsewhere || (was_sent && !self.is_recognised(live, bound));
        // A persistent Open exists on the server even if the client never got the answer, and a
        // replay in any session finds it (MS-SMB2 3.3.5.9.10). A new CREATE would conflict with it.
        // Any other CREATE that was sent in an earlier session gets a new CreateGuid.
        let is_kept = self.is_kept(live, bound);
        if is_elsewhere && !is_kept {
            self.renew()?;
        }
        Ok(was_sent && (is_kept || !is_elsewhere))
    }

    /// Returns true if the server makes a persistent Open.
    fn is_kept(&self, live: &Live, bound: Bound) -> bool {
        self.ask.keep && has_persistent(live, bound)
    }

    /// Becomes another CREATE: a new CreateGuid, and a new lease unless it is shared.
    fn renew(&mut self) -> Result<(), Cause> {
        self.create_guid = Guid(random(&*self.share.session().options().ambient)?);
        if self.ask.shared.is_none() {
            self.lease = Lease::new(&self.share.session().inner)?;
        }
        Ok(())
    }

    fn call(
        &self,
        live: &Live,
        bound: Bound,
        is_repetition: bool,
        id: Option<OperationId>,
    ) -> Call<'static> {
        self.lease.asked(bound);
        let mut contexts = contexts_of(self.ask, live, bound, self.create_guid, &self.lease);
        if let Some(key) = self.share.directory.filter(|_| self.ask.lease.is_empty()) {
            // If no random key can be made, the CREATE has no parent lease key, so it breaks this
            // client's own lease on the directory.
            let parent = parent_context(live, key, &*self.share.session().options().ambient);
            contexts.extend(parent.ok().flatten());
        }
        contexts.extend(id.map(CreateContext::Operation));
        let posix = self.share.is_posix_in(live);
        let name = self.share.named(&self.path, bound, posix);
        let mut call = self.ask.call(live, &name, oplock_of(&contexts), &contexts, posix);
        call.tree_id = bound.tree_id;
        if is_repetition && live.knows_replay() && !live.skips_replay_flag() {
            call.flags |= HeaderFlags::REPLAY_OPERATION;
        }
        call
    }

    /// Follows the symbolic link that stopped the request: MS-SMB2 3.2.5.7.
    fn follow(&mut self, message: &Message) -> Option<Answer> {
        self.redirects += 1;
        let Some(path) = led(message, &self.path).filter(|_| self.redirects <= REDIRECTS) else {
            return Some(Err(Cause::from(Status::STOPPED_ON_SYMLINK).into()));
        };
        self.path = path;
        self.sent_in = None;
        None
    }

    /// Decides on an error of the server.
    async fn refused(
        &mut self,
        live: &Live,
        bound: Bound,
        failure: Failure,
        is_repetition: bool,
    ) -> Result<Option<Answer>, Cause> {
        let Failure::Final(Cause::Status(status)) = failure else { return Ok(Some(Err(failure))) };
        match status {
            // The server is still carrying out the earlier request, or the Open belongs to a
            // session whose end it has not noticed.
            Status::FILE_NOT_AVAILABLE | Status::DUPLICATE_OBJECTID
                if is_repetition && has_guid(self.ask, live, bound) && self.repeats < REPEATS =>
            {
                sleep(BACK_OFF_FIRST * (1 << self.repeats)).await;
                self.repeats += 1;
                Ok(None)
            }
            // The server has restarted and remembers the CreateGuid, but the Open was not
            // persistent and is lost. So the request is sent with a new CreateGuid.
            Status::DUPLICATE_OBJECTID if is_repetition && self.outlived_session => {
                self.outlived_session = false;
                self.renew()?;
                self.sent_in = None;
                Ok(None)
            }
            // A lost attempt of this CREATE may have made the file, so the outcome is unknown.
            Status::OBJECT_NAME_COLLISION
                if self.in_doubt && self.ask.disposition == CreateDisposition::CREATE =>
            {
                Ok(Some(Err(Cause::Unknown.into())))
            }
            _ => Ok(Some(Err(failure))),
        }
    }
}
