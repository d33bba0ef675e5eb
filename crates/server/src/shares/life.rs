//! The life of a share: the server that owns it, and the moves between owners.
//!
//! ```text
//! Starting --own--> Owned --drain--> Draining --leave--> Elsewhere
//!    |                |                  |                  |
//!    +--fail-> Failed +------fence-------+---> Elsewhere    |
//!    ^            |                                         |
//!    +----start---+-----------------start-------------------+
//! ```
//!
//! A server on its own owns all its shares from their first moment on; by the epoch of their load,
//! those whose records it keeps. A share that
//! several servers have in turn begins elsewhere ([`Share::begins_elsewhere`]), until this server is
//! told to take it.
//!
//! The disk of a share is another matter: a share that is owned can have a folder that cannot be
//! opened (`shares::host::share_folder`).
//!
//! [`Share::begins_elsewhere`]: super::share::Share::begins_elsewhere

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use frevo_store::state::{Epoch, Ownership};
use frevo_wire::Status;
use parking_lot::Mutex;

/// Bits of the word for the kind of state; the others are the epoch.
const KIND_BITS: u32 = 3;

/// The kinds of states, in the low bits of the word.
mod kind {
    pub(super) const STARTING: u64 = 0;
    pub(super) const OWNED: u64 = 1;
    pub(super) const DRAINING: u64 = 2;
    pub(super) const ELSEWHERE: u64 = 3;
    pub(super) const FAILED: u64 = 4;
}

/// The state of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LifeState {
    /// Its records are being loaded.
    Starting,
    /// This server serves it.
    Owned(Epoch),
    /// This server still owns it, and ends its use so that another one can take it.
    Draining(Epoch),
    /// Another server owns it. The addresses of that server are empty if they are not known.
    Elsewhere(Vec<SocketAddr>),
    /// Its records could not be loaded, for this reason.
    Failed(String),
}

impl LifeState {
    /// The word for it in status, logs and metrics.
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Owned(_) => "owned",
            Self::Draining(_) => "draining",
            Self::Elsewhere(_) => "elsewhere",
            Self::Failed(_) => "failed",
        }
    }
}

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
    /// The action when the share is lost to another server.
    lost: OnceLock<Box<dyn Fn() + Send + Sync>>,
}

/// The parts of a state that no request asks for.
#[derive(Default)]
struct More {
    addresses: Vec<SocketAddr>,
    reason: String,
}

const fn word(kind: u64, epoch: Epoch) -> u64 {
    epoch.0 << KIND_BITS | kind
}

const fn kind_of(word: u64) -> u64 {
    word & ((1 << KIND_BITS) - 1)
}

const fn epoch_of(word: u64) -> Epoch {
    Epoch(word >> KIND_BITS)
}

fn is_since(word: u64, epoch: Epoch) -> bool {
    epoch == Epoch(0) || epoch_of(word) == epoch
}

impl Life {
    /// A share that this server owns without records: epoch zero.
    pub fn owned(share: &str) -> Self {
        Self::with(share, word(kind::OWNED, Epoch(0)))
    }

    /// A share that another server owns.
    pub fn elsewhere(share: &str) -> Self {
        Self::with(share, word(kind::ELSEWHERE, Epoch(0)))
    }

    fn with(share: &str, word: u64) -> Self {
        let (word, more) = (AtomicU64::new(word), Mutex::default());
        Self { share: Arc::from(share), word, more, lost: OnceLock::new() }
    }

    /// The name of the share in lower case.
    pub const fn share(&self) -> &Arc<str> {
        &self.share
    }

    fn present(&self) -> u64 {
        self.word.load(Ordering::Acquire)
    }

    /// True while requests to the share may be carried out and answered.
    pub fn serves(&self) -> bool {
        matches!(kind_of(self.present()), kind::OWNED | kind::DRAINING) || planted!(OldOwnerAnswers)
    }

    /// True while a use that began under `epoch` may go on: a share that was lost and taken again has
    /// new users. Uses that began before the records were loaded, under epoch zero, go on under any.
    pub fn serves_since(&self, epoch: Epoch) -> bool {
        let word = self.present();
        let is_served = matches!(kind_of(word), kind::OWNED | kind::DRAINING);
        is_served && is_since(word, epoch) || planted!(OldOwnerAnswers)
    }

    /// True while new uses of the share may begin.
    pub fn takes_new(&self) -> bool {
        self.takes_new_since(Epoch(0))
    }

    /// True while new requests may begin of a use that began under `epoch`.
    pub fn takes_new_since(&self, epoch: Epoch) -> bool {
        let word = self.present();
        kind_of(word) == kind::OWNED && is_since(word, epoch) || planted!(OldOwnerAnswers)
    }

    /// The epoch of the last load.
    pub fn epoch(&self) -> Epoch {
        epoch_of(self.present())
    }

    /// True if the records of the share were not loaded yet.
    pub fn is_without_records(&self) -> bool {
        self.present() == word(kind::OWNED, Epoch(0))
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
        match kind_of(word) {
            kind::STARTING => LifeState::Starting,
            kind::OWNED => LifeState::Owned(epoch_of(word)),
            kind::DRAINING => LifeState::Draining(epoch_of(word)),
            kind::ELSEWHERE => LifeState::Elsewhere(more.addresses.clone()),
            _ => LifeState::Failed(more.reason.clone()),
        }
    }

    /// The status of a TREE_CONNECT to the share while it is not served to new users.
    ///
    /// MS-SMB2 3.3.5.7 names SERVER_UNAVAILABLE among the status codes of TREE_CONNECT: it is for a
    /// share whose records are being loaded. BAD_NETWORK_NAME is the status by which a client is sent
    /// to the owner of the share (2.2.2.2.2), where that is known.
    ///
    /// None where the share has just left this server: the connection ends, and the client finds the
    /// owner when it connects again, also behind an address that moves with the share. It would take a
    /// status for the answer of the owner, and give its handles up.
    pub fn refusal(&self) -> Option<Status> {
        let more = self.more.lock();
        let word = self.present();
        match kind_of(word) {
            kind::DRAINING => None,
            kind::ELSEWHERE if more.addresses.is_empty() && epoch_of(word) != Epoch(0) => None,
            kind::ELSEWHERE => Some(Status::BAD_NETWORK_NAME),
            _ => Some(Status::SERVER_UNAVAILABLE),
        }
    }

    /// Makes a transition to `kind`, if the present state is one of `from`.
    fn change(
        &self,
        transition: &'static str,
        from: &[u64],
        to: impl FnOnce(Epoch) -> u64,
        more: More,
    ) -> Result<(), WrongState> {
        {
            let mut kept = self.more.lock();
            let before = self.present();
            if !from.contains(&kind_of(before)) {
                drop(kept);
                return Err(WrongState { transition, state: self.state() });
            }
            *kept = more;
            self.word.store(to(epoch_of(before)), Ordering::Release);
        }
        let state = self.state();
        tracing::debug!(target: "frevo::share", share = &*self.share, state = state.name(), transition);
        Ok(())
    }

    /// Begins to load the records of the share.
    ///
    /// # Errors
    /// If this server owns the share already, or loads it.
    pub fn start(&self) -> Result<(), WrongState> {
        let from = [kind::ELSEWHERE, kind::FAILED];
        self.change("start", &from, |epoch| word(kind::STARTING, epoch), More::default())
    }

    /// Serves the share, whose records were loaded under `epoch` and are Opens again. A share without
    /// records may be served already.
    ///
    /// # Errors
    /// If its records are not being loaded.
    pub fn own(&self, epoch: Epoch) -> Result<(), WrongState> {
        let served = self.is_without_records().then_some(kind::OWNED);
        let from = [kind::STARTING, served.unwrap_or(kind::STARTING)];
        self.change("own", &from, |_| word(kind::OWNED, epoch), More::default())
    }

    /// Notes that the records could not be loaded.
    ///
    /// # Errors
    /// If its records are not being loaded.
    pub fn fail(&self, reason: String) -> Result<(), WrongState> {
        let more = More { reason, ..More::default() };
        self.change("fail", &[kind::STARTING], |epoch| word(kind::FAILED, epoch), more)
    }

    /// Takes no new users: another server is to have the share.
    ///
    /// # Errors
    /// If this server does not own the share.
    pub fn drain(&self) -> Result<(), WrongState> {
        self.change("drain", &[kind::OWNED], |epoch| word(kind::DRAINING, epoch), More::default())
    }

    /// Gives the share up: another server may have it now, at these addresses.
    ///
    /// # Errors
    /// If the share is not draining.
    pub fn leave(&self, addresses: Vec<SocketAddr>) -> Result<(), WrongState> {
        let more = More { addresses, ..More::default() };
        self.change("leave", &[kind::DRAINING], |epoch| word(kind::ELSEWHERE, epoch), more)
    }

    /// Notes that another server owns the share since the one owned it that had `epoch`. Returns true
    /// if that was this server's present epoch: it stops serving the share, before anything else is
    /// acknowledged.
    pub fn fence(&self, epoch: Epoch) -> bool {
        let is_fenced = {
            let mut kept = self.more.lock();
            let before = self.present();
            let is_served = matches!(kind_of(before), kind::OWNED | kind::DRAINING);
            let is_present = is_served && epoch_of(before) == epoch;
            if is_present {
                *kept = More::default();
                self.word.store(word(kind::ELSEWHERE, epoch), Ordering::Release);
            }
            is_present
        };
        if is_fenced {
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
mod tests {
    use super::*;

    #[test]
    fn a_share_goes_from_owner_to_owner() {
        let life = Life::elsewhere("data");
        assert!(!life.serves() && life.own(Epoch(1)).is_err());
        assert_eq!(life.refusal(), Some(Status::BAD_NETWORK_NAME));
        life.start().unwrap();
        assert_eq!(life.refusal(), Some(Status::SERVER_UNAVAILABLE));
        assert!(life.start().is_err() && !life.serves());
        life.own(Epoch(4)).unwrap();
        assert!(life.serves() && life.takes_new());
        assert_eq!(life.ownership().epoch, Epoch(4));
        let wrong = life.leave(Vec::new()).unwrap_err();
        assert_eq!(wrong.to_string(), "a share that is owned cannot leave");
        life.drain().unwrap();
        assert!(life.serves() && !life.takes_new());
        assert_eq!(life.refusal(), None);
        let there: SocketAddr = "192.0.2.1:445".parse().unwrap();
        life.leave(vec![there]).unwrap();
        assert_eq!(life.state(), LifeState::Elsewhere(vec![there]));
        assert!(!life.serves());
        assert_eq!(life.refusal(), Some(Status::BAD_NETWORK_NAME), "there it is");
        life.start().unwrap();
        life.fail("the disk is gone".into()).unwrap();
        assert_eq!(life.state(), LifeState::Failed("the disk is gone".into()));
        life.start().unwrap();
        life.own(Epoch(6)).unwrap();
        assert!(life.serves_since(Epoch(6)) && life.takes_new_since(Epoch(0)));
        assert!(!life.serves_since(Epoch(4)) && !life.takes_new_since(Epoch(4)), "of an old user");
        assert_eq!(life.state(), LifeState::Owned(Epoch(6)));
    }

    #[test]
    fn only_the_present_epoch_is_fenced() {
        let life = Life::owned("data");
        assert!(life.is_without_records());
        assert!(life.start().is_err(), "it is served already");
        life.own(Epoch(3)).unwrap();
        assert!(life.own(Epoch(4)).is_err());
        assert!(!life.fence(Epoch(2)) && life.serves());
        assert!(life.fence(Epoch(3)) && !life.serves());
        assert_eq!(life.refusal(), None, "nobody knows where");
        assert!(!life.fence(Epoch(3)), "once");
        assert_eq!(life.ownership().epoch, Epoch(3), "the store refuses what comes late");
    }
}
