//! The life of a share: the server that owns it, and the moves between owners.
//!
//! ```text
//!    +---------------- start -----------------+
//!    v                                        |
//! Starting --serve--> Owned --drain--> Draining --leave--> Elsewhere --start--> Starting
//!    |                  ^                |
//!    |                  +----- keep -----+
//!    +--fail--> Failed --start--> Starting, or --leave--> Elsewhere
//!
//! Draining --drained--> Draining, without uses
//! Starting, Owned, Draining, Failed --stop--> Elsewhere
//! Owned, Draining --fence--> Elsewhere: another server has it
//! ```
//!
//! A server on its own owns all its shares from their first moment on; by the epoch of their load,
//! those whose records it keeps. A share that
//! several servers have in turn begins elsewhere ([`Share::clustered`]), until this server is
//! told to take it.
//!
//! A share of a cluster is *paused* while it is owned and the limit of the server's [`Seat`] has passed:
//! another server may have it by now, or this one may go on when the limit is moved. Nothing is
//! answered and no file is changed meanwhile; Opens, locks and records stay.
//!
//! The disk of a share is another matter: a share that is owned can have a folder that cannot be
//! opened (`shares::host::share_folder`).
//!
//! [`Share::clustered`]: super::share::Share::clustered

mod states;

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use frevo_net::file_io::Gate;
use frevo_store::state::{Epoch, Ownership};
use frevo_wire::Status;
use parking_lot::Mutex;
use tokio::sync::{Mutex as TurnLock, Notify};
use tokio::time::Instant;

pub use states::{LifeState, ShareLife};
use states::{drained_word, epoch_of, is_drained, word};

use crate::base::limits::LEFT_SHARE_PATIENCE;
use crate::base::under_way::UnderWay;
use crate::shares::seat::Seat;

/// A transition that the present state does not have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WrongState {
    /// The transition.
    pub transition: &'static str,
    /// The present state.
    pub state: LifeState,
}

impl fmt::Display for WrongState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a share that is {} cannot {}", self.state.name(), self.transition)
    }
}

impl std::error::Error for WrongState {}

/// The life of a share, which all tree connects to it and all reloads have in common.
pub struct Life {
    /// The name of the share in lower case.
    share: Arc<str>,
    /// The kind of state and the epoch. Changed under `more`.
    word: AtomicU64,
    more: Mutex<More>,
    /// The addresses of the other server that owns the share, as the one who decides about it last said.
    owner: Mutex<Vec<IpAddr>>,
    /// The shares that were started together the last time, with this one: they show the same files.
    started: Mutex<Arc<[Weak<Self>]>>,
    /// The action when the share is lost to another server.
    lost: OnceLock<Box<dyn Fn() + Send + Sync>>,
    /// The server's place in a cluster, for a share of the cluster.
    seat: OnceLock<Arc<Seat>>,
    /// The last question of [`Self::gate`], with its epoch.
    gate: Mutex<Option<(Epoch, Gate)>>,
    /// Told of each change of the state.
    changed: Notify,
    /// Held from the beginning of a move to its end.
    moving: TurnLock<()>,
    /// Changes of files that are under way and that no request waits for.
    changes: AtomicUsize,
    /// Those of Opens that a pause has kept from being closed.
    late_changes: AtomicUsize,
    /// The requests to a share of a cluster, also those whose connections have ended.
    requests: Arc<UnderWay>,
    /// The turn to look at the storage, with the beginning of the last look that found it well.
    storage_look: Arc<TurnLock<Option<Instant>>>,
}

/// A change of files that no request waits for, until it is dropped.
#[derive(Debug)]
pub(crate) struct Change {
    life: Arc<Life>,
    /// True for that of an Open that a pause has kept from being closed.
    is_late: bool,
}

impl Drop for Change {
    fn drop(&mut self) {
        if self.is_late {
            self.life.late_changes.fetch_sub(1, Ordering::AcqRel);
        }
        self.life.changes.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The parts of a state that no request asks for.
#[derive(Default)]
struct More {
    addresses: Vec<SocketAddr>,
    reason: String,
    /// True for a share that is starting and whose Opens are restored.
    is_restored: bool,
    /// The time until which clients that had handles come first.
    grace: Option<Instant>,
    /// The time when the share left.
    left: Option<Instant>,
}

impl More {
    /// Those of a share that leaves now for the server at `addresses`, if they are known.
    fn of_leaving(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses, left: Some(Instant::now()), ..Self::default() }
    }
}

fn is_since(word: u64, epoch: Epoch) -> bool {
    epoch == Epoch(0) || epoch_of(word) == epoch
}

impl Life {
    /// A share that this server owns without records: epoch zero.
    pub fn owned(share: &str) -> Self {
        Self::with(share, word(ShareLife::Owned, Epoch(0)))
    }

    /// A share that another server owns.
    pub fn elsewhere(share: &str) -> Self {
        Self::with(share, word(ShareLife::Elsewhere, Epoch(0)))
    }

    fn with(share: &str, word: u64) -> Self {
        Self {
            share: Arc::from(share),
            word: AtomicU64::new(word),
            more: Mutex::default(),
            owner: Mutex::default(),
            started: Mutex::default(),
            lost: OnceLock::new(),
            seat: OnceLock::new(),
            gate: Mutex::default(),
            changed: Notify::new(),
            moving: TurnLock::default(),
            changes: AtomicUsize::new(0),
            late_changes: AtomicUsize::new(0),
            requests: Arc::default(),
            storage_look: Arc::default(),
        }
    }

    /// The name of the share in lower case.
    pub const fn share(&self) -> &Arc<str> {
        &self.share
    }

    /// True while this server serves the users of a share that it owns.
    fn is_served(word: u64) -> bool {
        ShareLife::of(word).is_served() && !is_drained(word)
    }

    /// True while this server owns the share and its uses have not ended, also while it is paused.
    pub(crate) fn is_in_use(&self) -> bool {
        Self::is_served(self.present())
    }

    fn present(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// Puts the share under the limit of `seat`, once.
    pub(crate) fn limit_by(&self, seat: &Arc<Seat>) {
        let _ = self.seat.set(Arc::clone(seat));
    }

    /// True for a share under a limit.
    pub(crate) fn is_limited(&self) -> bool {
        self.seat.get().is_some()
    }

    /// Returns the question if files of the share may be changed in a use that began under `epoch`, for
    /// a share under a limit: those who wait for a disk ask it once more.
    pub(crate) fn gate(self: &Arc<Self>, epoch: Epoch) -> Option<Gate> {
        self.seat.get()?;
        let mut kept = self.gate.lock();
        if let Some((_, gate)) = kept.as_ref().filter(|(since, _)| *since == epoch) {
            return Some(Arc::clone(gate));
        }
        // The life keeps what keeps a reference to it, so that reference is a weak one.
        let life = Arc::downgrade(self);
        let is_open = move || life.upgrade().is_some_and(|life| life.serves_since(epoch));
        let gate: Gate = Arc::new(is_open);
        *kept = Some((epoch, Arc::clone(&gate)));
        Some(gate)
    }

    /// True unless the limit of the share has passed.
    fn is_allowed(&self) -> bool {
        self.seat.get().is_none_or(|seat| seat.allows())
    }

    /// True while the records of the share are being loaded.
    pub(crate) fn is_starting(&self) -> bool {
        ShareLife::of(self.present()) == ShareLife::Starting
    }

    /// True while this server owns the share, also while it is paused.
    pub fn is_owned(&self) -> bool {
        ShareLife::of(self.present()).is_served()
    }

    /// True while this server owns the share, and the limit has passed: nothing is answered and no file
    /// is changed.
    pub fn is_paused(&self) -> bool {
        self.is_owned() && !self.is_allowed()
    }

    /// True while requests to the share may be carried out and answered.
    pub fn serves(&self) -> bool {
        Self::is_served(self.present()) && self.is_allowed() || planted!(OldOwnerAnswers)
    }

    /// True while a use that began under `epoch` may go on: a share that was lost and taken again has
    /// new users. Uses that began before the records were loaded, under epoch zero, go on under any.
    pub fn serves_since(&self, epoch: Epoch) -> bool {
        let word = self.present();
        Self::is_served(word) && is_since(word, epoch) && self.is_allowed()
            || planted!(OldOwnerAnswers)
    }

    /// True while the share is being given to another server, for a use that began under `epoch`: its
    /// connections end when that is done, and also if it fails.
    pub(crate) fn is_given_away_since(&self, epoch: Epoch) -> bool {
        let word = self.present();
        ShareLife::of(word) == ShareLife::Draining && is_since(word, epoch)
    }

    /// True while new uses of the share may begin.
    pub fn takes_new(&self) -> bool {
        self.takes_new_since(Epoch(0))
    }

    /// True while new requests may begin of a use that began under `epoch`.
    pub fn takes_new_since(&self, epoch: Epoch) -> bool {
        let word = self.present();
        ShareLife::of(word).takes_new() && is_since(word, epoch) && self.is_allowed()
            || planted!(OldOwnerAnswers)
    }

    /// The epoch of the last load.
    pub fn epoch(&self) -> Epoch {
        epoch_of(self.present())
    }

    /// True if the records of the share were not loaded yet.
    pub fn is_without_records(&self) -> bool {
        self.present() == word(ShareLife::Owned, Epoch(0))
    }

    /// The right to change its records, with the epoch of the last load, also of a share that was
    /// lost meanwhile: the store knows the latest owner.
    pub fn ownership(&self) -> Ownership {
        let epoch = self.epoch();
        let epoch = if planted!(EpochIgnored) { Epoch(u64::MAX) } else { epoch };
        Ownership { share: Arc::clone(&self.share), epoch }
    }

    /// The present state.
    pub fn state(&self) -> LifeState {
        let more = self.more.lock();
        let word = self.present();
        match ShareLife::of(word) {
            ShareLife::Starting => LifeState::Starting,
            ShareLife::Owned => LifeState::Owned(epoch_of(word)),
            ShareLife::Draining => LifeState::Draining(epoch_of(word)),
            ShareLife::Elsewhere => LifeState::Elsewhere(more.addresses.clone()),
            ShareLife::Failed => LifeState::Failed(more.reason.clone()),
        }
    }

    /// Sets the addresses of the other server that owns the share. Empty if it is not known, or this one.
    pub(crate) fn set_owner(&self, addresses: Vec<IpAddr>) {
        *self.owner.lock() = addresses;
    }

    /// The addresses of the server that owns the share, if that is another one and known.
    pub(crate) fn owner_elsewhere(&self) -> Vec<IpAddr> {
        let owner = self.owner.lock();
        if ShareLife::of(self.present()) == ShareLife::Elsewhere {
            owner.clone()
        } else {
            Vec::new()
        }
    }

    /// Notes that these shares are started together.
    pub(crate) fn start_together(lives: &[Arc<Self>]) {
        let started: Arc<[Weak<Self>]> = lives.iter().map(Arc::downgrade).collect();
        for life in lives {
            *life.started.lock() = Arc::clone(&started);
        }
    }

    /// The other shares that were started together with this one, and not without it since then.
    pub(crate) fn started_with(self: &Arc<Self>) -> Vec<Arc<Self>> {
        let started = Arc::clone(&self.started.lock());
        let others = started.iter().filter_map(Weak::upgrade);
        let others = others.filter(|other| !Arc::ptr_eq(other, self));
        others.filter(|other| Arc::ptr_eq(&other.started.lock(), &started)).collect()
    }

    /// The time that is left of the grace, in which clients that had handles come first. None when
    /// there is none.
    pub fn grace(&self) -> Option<Instant> {
        let grace = self.more.lock().grace;
        grace.filter(|until| *until > Instant::now() && !planted!(GraceSkipped))
    }

    /// The status of a TREE_CONNECT to the share while it is not served to new users.
    ///
    /// MS-SMB2 3.3.5.7 names SERVER_UNAVAILABLE among the status codes of TREE_CONNECT: it is for a
    /// share whose records are being loaded, or could not be loaded, and for one that has left for a server
    /// that is not known. BAD_NETWORK_NAME is the status by which a client is sent to the owner of the share
    /// (2.2.2.2.2), where that is known, and that of a share which was never here.
    ///
    /// None where the share has just left this server, or is paused: the connection ends, and the client finds the
    /// owner when it connects again, also behind an address that moves with the share, or where the witness sends
    /// it. It would take a status for the answer of the owner, and give its handles up. After
    /// [`LEFT_SHARE_PATIENCE`] that address has left, too, and the client is refused: its other shares keep the
    /// connection. Where the owner is known a client looks elsewhere at once, unless it `is_stranded`: it can
    /// neither be sent there, nor is the owner behind an address that moves.
    pub fn refusal(&self, is_stranded: bool) -> Option<Status> {
        let more = self.more.lock();
        let word = self.present();
        let is_unknown = more.addresses.is_empty();
        match ShareLife::of(word) {
            ShareLife::Draining => None,
            ShareLife::Owned if !self.is_allowed() => None,
            ShareLife::Elsewhere => match more.left {
                Some(left)
                    if (is_unknown || is_stranded) && left.elapsed() < LEFT_SHARE_PATIENCE =>
                {
                    None
                }
                Some(_) if is_unknown => Some(Status::SERVER_UNAVAILABLE),
                Some(_) | None => Some(Status::BAD_NETWORK_NAME),
            },
            // A share that is owned was taken again since the client was refused: the client may
            // try once more.
            ShareLife::Starting | ShareLife::Failed | ShareLife::Owned => {
                Some(Status::SERVER_UNAVAILABLE)
            }
        }
    }

    /// True while nothing is answered and no file is changed, but may be later: the records are being
    /// loaded, or the share is paused.
    pub fn is_suspended(&self) -> bool {
        match ShareLife::of(self.present()) {
            ShareLife::Starting => true,
            ShareLife::Owned | ShareLife::Draining => !self.is_allowed(),
            ShareLife::Elsewhere | ShareLife::Failed => false,
        }
    }

    /// Counts a change of files that no request waits for, such as the close of an Open whose client
    /// has gone: a share is stopped when all have ended.
    pub(crate) fn begin_change(self: &Arc<Self>) -> Change {
        self.changes.fetch_add(1, Ordering::AcqRel);
        Change { life: Arc::clone(self), is_late: false }
    }

    /// Counts the close of an Open that a pause has kept from it: a CREATE after the pause waits for it.
    pub(crate) fn begin_late_change(self: &Arc<Self>) -> Change {
        self.late_changes.fetch_add(1, Ordering::AcqRel);
        let mut change = self.begin_change();
        change.is_late = true;
        change
    }

    /// True while an Open is being closed that a pause has kept from it.
    pub(crate) fn has_late_changes(&self) -> bool {
        self.late_changes.load(Ordering::Acquire) > 0
    }

    /// The turn to look at the storage, with the beginning of the last look that found it well.
    pub(crate) const fn storage_look(&self) -> &Arc<TurnLock<Option<Instant>>> {
        &self.storage_look
    }

    /// The requests to the share that are under way, if it is one of a cluster.
    pub(crate) const fn requests(&self) -> &Arc<UnderWay> {
        &self.requests
    }

    /// True while a change is under way that no request waits for.
    pub(crate) fn has_changes(&self) -> bool {
        self.changes.fetch_or(0, Ordering::AcqRel) > 0
    }

    /// True while a request to a share of a cluster is under way, or a change that no request waits for.
    pub(crate) fn has_work(&self) -> bool {
        self.requests.has_any() || self.has_changes()
    }

    /// The turn of the next move. Moves of one share follow each other.
    pub(crate) const fn moving(&self) -> &TurnLock<()> {
        &self.moving
    }

    /// Returns when the state is another one than `kind`.
    pub(crate) async fn has_left(&self, kind: ShareLife) {
        loop {
            let mut changed = std::pin::pin!(self.changed.notified());
            // The notification is registered before the state is read, so that no change is missed.
            changed.as_mut().enable();
            if ShareLife::of(self.present()) != kind {
                return;
            }
            changed.await;
        }
    }

    /// Makes a transition to `kind`, if the present state is one of `from`.
    fn change(
        &self,
        transition: &'static str,
        from: &[ShareLife],
        to: impl FnOnce(Epoch) -> u64,
        more: More,
    ) -> Result<(), WrongState> {
        {
            let mut kept = self.more.lock();
            let before = self.present();
            if !from.contains(&ShareLife::of(before)) {
                drop(kept);
                return Err(WrongState { transition, state: self.state() });
            }
            *kept = more;
            self.word.store(to(epoch_of(before)), Ordering::Release);
        }
        self.changed.notify_waiters();
        let state = self.state();
        tracing::debug!(target: "frevo::share", share = &*self.share, state = state.name(), transition);
        Ok(())
    }

    /// The grace alone, which goes on if the share is not given away after all: its clients had to go, and may come
    /// back.
    fn same_grace(&self) -> More {
        More { grace: self.more.lock().grace, ..More::default() }
    }

    /// Begins to load the records of the share.
    ///
    /// # Errors
    /// If this server owns the share already, or loads it.
    pub fn start(&self) -> Result<(), WrongState> {
        let from = [ShareLife::Elsewhere, ShareLife::Failed];
        self.change("start", &from, |epoch| word(ShareLife::Starting, epoch), More::default())
    }

    /// Notes that the records were loaded under `epoch` and are Opens again. Nothing is served yet.
    ///
    /// # Errors
    /// If its records are not being loaded.
    pub fn restored(&self, epoch: Epoch) -> Result<(), WrongState> {
        let more = More { is_restored: true, ..More::default() };
        self.change("start", &[ShareLife::Starting], |_| word(ShareLife::Starting, epoch), more)
    }

    /// Serves the share, whose records are Opens again. Until `grace` clients that had handles come
    /// first.
    ///
    /// # Errors
    /// If its records were not loaded.
    pub fn serve(&self, grace: Option<Instant>) -> Result<(), WrongState> {
        let is_restored = self.more.lock().is_restored;
        let from = [ShareLife::Starting];
        let from = if is_restored { &from[..] } else { &[] };
        let more = More { grace, ..More::default() };
        self.change("be served", from, |epoch| word(ShareLife::Owned, epoch), more)
    }

    /// Serves a share that had no records by those that were loaded under `epoch` and are Opens again.
    /// It may be served already.
    ///
    /// # Errors
    /// If its records are not being loaded.
    pub fn own(&self, epoch: Epoch) -> Result<(), WrongState> {
        let served = self.is_without_records().then_some(ShareLife::Owned);
        let from = [ShareLife::Starting, served.unwrap_or(ShareLife::Starting)];
        self.change("own", &from, |_| word(ShareLife::Owned, epoch), More::default())
    }

    /// Notes that the records could not be loaded.
    ///
    /// # Errors
    /// If its records are not being loaded.
    pub fn fail(&self, reason: String) -> Result<(), WrongState> {
        let more = More { reason, ..More::default() };
        self.change("fail", &[ShareLife::Starting], |epoch| word(ShareLife::Failed, epoch), more)
    }

    /// Takes no new users: another server is to have the share.
    ///
    /// # Errors
    /// If this server does not own the share.
    pub fn drain(&self) -> Result<(), WrongState> {
        let from = [ShareLife::Owned];
        self.change("drain", &from, |epoch| word(ShareLife::Draining, epoch), self.same_grace())
    }

    /// Notes that the uses of the share have ended: from now on no file is changed, and another server
    /// may begin to serve it.
    ///
    /// # Errors
    /// If the share is not draining.
    pub fn drained(&self) -> Result<(), WrongState> {
        let from = [ShareLife::Draining];
        self.change("be drained", &from, drained_word, self.same_grace())
    }

    /// Takes new users again: the share cannot be given away now.
    ///
    /// # Errors
    /// If the share is not draining.
    pub fn keep(&self) -> Result<(), WrongState> {
        let from = [ShareLife::Draining];
        self.change("be kept", &from, |epoch| word(ShareLife::Owned, epoch), self.same_grace())
    }

    /// Gives the share up: another server may have it now, at these addresses.
    ///
    /// # Errors
    /// If the share is neither draining nor failed.
    pub fn leave(&self, addresses: Vec<SocketAddr>) -> Result<(), WrongState> {
        let from = [ShareLife::Draining, ShareLife::Failed];
        let to = |epoch| word(ShareLife::Elsewhere, epoch);
        self.change("leave", &from, to, More::of_leaving(addresses))
    }

    /// Stops serving the share, or starting it, at once: another server may own it. Returns false if
    /// this server had nothing of it.
    pub fn stop(&self) -> bool {
        let from = [ShareLife::Starting, ShareLife::Owned, ShareLife::Draining, ShareLife::Failed];
        let to = |epoch| word(ShareLife::Elsewhere, epoch);
        self.change("stop", &from, to, More::of_leaving(Vec::new())).is_ok()
    }

    /// Notes that another server owns the share since the one owned it that had `epoch`. Returns true
    /// if that was this server's present epoch: it stops serving the share, before anything else is
    /// acknowledged.
    pub fn fence(&self, epoch: Epoch) -> bool {
        let is_fenced = {
            let mut kept = self.more.lock();
            let before = self.present();
            let is_present = ShareLife::of(before).is_served() && epoch_of(before) == epoch;
            if is_present {
                *kept = More::of_leaving(Vec::new());
                self.word.store(word(ShareLife::Elsewhere, epoch), Ordering::Release);
            }
            is_present
        };
        if is_fenced {
            self.changed.notify_waiters();
            tracing::warn!(target: "frevo::share", share = &*self.share, epoch = epoch.0,
                "another server owns the share now; this one serves it no longer");
            if let Some(act) = self.lost.get() {
                act();
            }
        }
        is_fenced
    }

    /// Sets the action when the share is lost to another server, once. It runs on any thread and
    /// must be short.
    pub fn when_lost(&self, act: impl Fn() + Send + Sync + 'static) {
        let _ = self.lost.set(Box::new(act));
    }
}

impl Default for Life {
    /// A share that is served, and has no name yet.
    fn default() -> Self {
        Self::owned("")
    }
}

impl fmt::Debug for Life {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Life").field("share", &self.share).field("state", &self.state()).finish()
    }
}

#[cfg(test)]
mod tests;
