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
use serde::{Serialize, Serializer};

/// Bits of the word for the kind of state; the others are the epoch.
const KIND_BITS: u32 = 3;
const KIND_MASK: u64 = (1 << KIND_BITS) - 1;

/// Declares the states once, so that no list of them can lack one: the type, all its values, and the
/// conversion from the word.
macro_rules! states {
    ($($(#[$about:meta])* $state:ident,)*) => {
        /// A state in the life of a share, without the facts that belong to it.
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
        #[non_exhaustive]
        #[repr(u8)]
        pub enum ShareLife {
            $($(#[$about])* $state,)*
        }

        impl ShareLife {
            /// All states.
            pub const ALL: &[Self] = &[$(Self::$state),*];

            /// The state in the low bits of `word`. All words are made by [`word`].
            const fn of(word: u64) -> Self {
                match word & KIND_MASK {
                    $(kind if kind == Self::$state as u64 => Self::$state,)*
                    _ => unreachable!(),
                }
            }
        }
    };
}

states! {
    /// Its records are being loaded.
    #[default]
    Starting,
    /// This server serves it.
    Owned,
    /// This server still owns it, and ends its use so that another one can take it.
    Draining,
    /// Another server owns it.
    Elsewhere,
    /// Its records could not be loaded.
    Failed,
}

const _: () = assert!(ShareLife::ALL.len() <= 1 << KIND_BITS, "the word has room for all states");

impl ShareLife {
    /// The word for it in status, logs and metrics.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Owned => "owned",
            Self::Draining => "draining",
            Self::Elsewhere => "elsewhere",
            Self::Failed => "failed",
        }
    }

    /// True while this server carries out and answers the requests of those who use the share.
    #[must_use]
    pub const fn is_served(self) -> bool {
        match self {
            Self::Owned | Self::Draining => true,
            Self::Starting | Self::Elsewhere | Self::Failed => false,
        }
    }

    /// True while new uses of the share may begin.
    #[must_use]
    pub const fn takes_new(self) -> bool {
        match self {
            Self::Owned => true,
            Self::Starting | Self::Draining | Self::Elsewhere | Self::Failed => false,
        }
    }
}

impl Serialize for ShareLife {
    /// Writes its [`name`](Self::name).
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// The state of a share, with its facts.
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
    /// The state without its facts.
    pub const fn kind(&self) -> ShareLife {
        match self {
            Self::Starting => ShareLife::Starting,
            Self::Owned(_) => ShareLife::Owned,
            Self::Draining(_) => ShareLife::Draining,
            Self::Elsewhere(_) => ShareLife::Elsewhere,
            Self::Failed(_) => ShareLife::Failed,
        }
    }

    /// The word for it in status, logs and metrics.
    pub const fn name(&self) -> &'static str {
        self.kind().name()
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

const fn word(kind: ShareLife, epoch: Epoch) -> u64 {
    epoch.0 << KIND_BITS | kind as u64
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
        Self::with(share, word(ShareLife::Owned, Epoch(0)))
    }

    /// A share that another server owns.
    pub fn elsewhere(share: &str) -> Self {
        Self::with(share, word(ShareLife::Elsewhere, Epoch(0)))
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
        ShareLife::of(self.present()).is_served() || planted!(OldOwnerAnswers)
    }

    /// True while a use that began under `epoch` may go on: a share that was lost and taken again has
    /// new users. Uses that began before the records were loaded, under epoch zero, go on under any.
    pub fn serves_since(&self, epoch: Epoch) -> bool {
        let word = self.present();
        ShareLife::of(word).is_served() && is_since(word, epoch) || planted!(OldOwnerAnswers)
    }

    /// True while new uses of the share may begin.
    pub fn takes_new(&self) -> bool {
        self.takes_new_since(Epoch(0))
    }

    /// True while new requests may begin of a use that began under `epoch`.
    pub fn takes_new_since(&self, epoch: Epoch) -> bool {
        let word = self.present();
        ShareLife::of(word).takes_new() && is_since(word, epoch) || planted!(OldOwnerAnswers)
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

    /// The status of a TREE_CONNECT to the share while it is not served to new users.
    ///
    /// MS-SMB2 3.3.5.7 names SERVER_UNAVAILABLE among the status codes of TREE_CONNECT: it is for a
    /// share whose records are being loaded, or could not be loaded. BAD_NETWORK_NAME is the status by which a client is sent
    /// to the owner of the share (2.2.2.2.2), where that is known.
    ///
    /// None where the share has just left this server: the connection ends, and the client finds the
    /// owner when it connects again, also behind an address that moves with the share. It would take a
    /// status for the answer of the owner, and give its handles up.
    pub fn refusal(&self) -> Option<Status> {
        let more = self.more.lock();
        let word = self.present();
        match ShareLife::of(word) {
            ShareLife::Draining => None,
            ShareLife::Elsewhere if more.addresses.is_empty() && epoch_of(word) != Epoch(0) => None,
            ShareLife::Elsewhere => Some(Status::BAD_NETWORK_NAME),
            // A share that is owned was taken again since the client was refused: the client may
            // try once more.
            ShareLife::Starting | ShareLife::Failed | ShareLife::Owned => {
                Some(Status::SERVER_UNAVAILABLE)
            }
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
        let state = self.state();
        tracing::debug!(target: "frevo::share", share = &*self.share, state = state.name(), transition);
        Ok(())
    }

    /// Begins to load the records of the share.
    ///
    /// # Errors
    /// If this server owns the share already, or loads it.
    pub fn start(&self) -> Result<(), WrongState> {
        let from = [ShareLife::Elsewhere, ShareLife::Failed];
        self.change("start", &from, |epoch| word(ShareLife::Starting, epoch), More::default())
    }

    /// Serves the share, whose records were loaded under `epoch` and are Opens again. A share without
    /// records may be served already.
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
        self.change(
            "drain",
            &[ShareLife::Owned],
            |epoch| word(ShareLife::Draining, epoch),
            More::default(),
        )
    }

    /// Gives the share up: another server may have it now, at these addresses.
    ///
    /// # Errors
    /// If the share is not draining.
    pub fn leave(&self, addresses: Vec<SocketAddr>) -> Result<(), WrongState> {
        let more = More { addresses, ..More::default() };
        self.change(
            "leave",
            &[ShareLife::Draining],
            |epoch| word(ShareLife::Elsewhere, epoch),
            more,
        )
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
                *kept = More::default();
                self.word.store(word(ShareLife::Elsewhere, epoch), Ordering::Release);
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
    fn a_word_has_a_state_and_an_epoch() {
        for &kind in ShareLife::ALL {
            let word = word(kind, Epoch(9));
            assert_eq!((ShareLife::of(word), epoch_of(word)), (kind, Epoch(9)));
            assert!(!kind.takes_new() || kind.is_served(), "{kind:?}");
        }
    }

    /// Readers of the documents, and the metric of owned shares, know each state.
    #[test]
    fn the_documents_name_all_states() {
        let names: Vec<_> = ShareLife::ALL.iter().map(|kind| kind.name()).collect();
        let list = names.join(", ");
        for page in ["ARCHITECTURE.md", "docs/glossary.md"] {
            let path = format!("{}/../../{page}", env!("CARGO_MANIFEST_DIR"));
            let text = std::fs::read_to_string(path).unwrap();
            assert!(text.contains(&list), "{page} has: {list}");
        }
    }

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
