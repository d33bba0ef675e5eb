//! The state of an Open that can outlive its connection.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use frevo_store::byte_range::{Mode, Range};
use frevo_store::order::{Ordered, rank};
use frevo_wire::command::create::{CreateAction, CreateOptions, ShareAccess};
use frevo_wire::create_context::AppInstanceVersion;
use frevo_wire::dtyp::{AccessMask, Guid};
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;

use super::Caching;
use crate::base::host::HostUser;

/// The parameters of its CREATE, to be compared with those of a replay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Open.FileName
    pub file_name: String,
    /// Open.DesiredAccess
    pub desired_access: AccessMask,
    /// Open.ShareAccess
    pub share_access: ShareAccess,
    /// Open.CreateOptions
    pub create_options: CreateOptions,
}

/// Open.AppInstanceId with Open.ApplicationInstanceVersion, MS-SMB2 3.3.5.9.13.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AppInstance {
    /// Open.AppInstanceId
    pub id: Guid,
    /// Open.ApplicationInstanceVersionHigh and Low, unless empty.
    pub version: Option<AppInstanceVersion>,
}

/// The requests to the state store about the record of an Open.
#[derive(Debug, Default)]
pub(super) struct RecordTurn {
    /// True while the close of the Open keeps the record, to have it removed at its end.
    pub(super) is_held: bool,
    /// True if the Open has let its record go while that was held.
    pub(super) is_owed: bool,
    /// True when its removal was asked for.
    pub(super) is_removed: bool,
}

/// How long an Open waits for its client.
#[derive(Debug, Clone, Copy, Default)]
struct Terms {
    /// Open.IsDurable with Open.DurableOpenTimeout
    durable: Option<Duration>,
    /// Open.IsResilient with Open.ResiliencyTimeout
    resilient: Option<Duration>,
}

/// The state by which an Open outlives its connection.
#[derive(Debug)]
pub struct Survival {
    /// Open.DurableOwner: the account's name. The only one who may take it up.
    pub owner: String,
    /// Open.ClientGuid
    pub client_guid: Guid,
    /// Open.CreateGuid
    pub create_guid: Option<Guid>,
    /// Open.AppInstanceId
    pub app_instance: Option<AppInstance>,
    /// The parameters of its CREATE.
    pub asked: Asked,
    /// CreateAction, for the answer to a replay.
    pub action: CreateAction,
    /// The user of the host that it acts as, of an Open of an earlier run whose owner has numbers by
    /// arithmetic.
    pub(super) actor: Option<Arc<HostUser>>,
    /// Held while the record of the Open is made and put, or removed: records come in order, and
    /// none comes after the removal. Taken before the File.
    pub(super) recording: Ordered<RecordTurn, { rank::RECORD }>,
    /// Byte ranges of LOCK requests that are not carried out yet: they are left
    /// out of records, since without its sequence number such a request would be
    /// taken for a new one when it comes again. Taken behind the File.
    locking: Mutex<Vec<(Range, Mode)>>,
    terms: Mutex<Terms>,
    is_persistent: AtomicBool,
    is_replay_eligible: AtomicBool,
}

impl Survival {
    /// Survival of an Open that is not durable yet.
    pub fn new(
        owner: &str,
        client_guid: Guid,
        create_guid: Option<Guid>,
        app_instance: Option<AppInstance>,
        asked: Asked,
        action: CreateAction,
    ) -> Self {
        Self {
            owner: fold_name(owner),
            client_guid,
            create_guid,
            app_instance,
            asked,
            action,
            actor: None,
            recording: Ordered::default(),
            locking: Mutex::default(),
            terms: Mutex::default(),
            is_persistent: AtomicBool::new(false),
            is_replay_eligible: AtomicBool::new(false),
        }
    }

    /// Sets the user of the host that an Open of an earlier run acts as.
    pub(super) fn acting_as(self, actor: Option<Arc<HostUser>>) -> Self {
        Self { actor, ..self }
    }

    /// Open.IsDurable becomes TRUE.
    pub fn set_durable(&self, timeout: Duration) {
        self.terms.lock().durable = Some(timeout);
    }

    /// MS-SMB2 3.3.5.15.9: Open.IsResilient becomes TRUE and Open.IsDurable FALSE.
    pub fn set_resilient(&self, timeout: Duration) {
        *self.terms.lock() = Terms { durable: None, resilient: Some(timeout) };
    }

    /// Open.IsPersistent
    pub fn set_persistent(&self, is_persistent: bool) {
        self.is_persistent.store(is_persistent, Ordering::Release);
    }

    /// Open.IsReplayEligible
    pub fn set_replay_eligible(&self, is_eligible: bool) {
        self.is_replay_eligible.store(is_eligible, Ordering::Release);
    }

    /// Open.IsPersistent
    pub fn is_persistent(&self) -> bool {
        self.is_persistent.load(Ordering::Acquire)
    }

    /// Open.IsReplayEligible
    pub fn is_replay_eligible(&self) -> bool {
        self.is_replay_eligible.load(Ordering::Acquire)
    }

    /// Open.IsDurable
    pub fn is_durable(&self) -> bool {
        self.terms.lock().durable.is_some()
    }

    /// Open.IsResilient
    pub fn is_resilient(&self) -> bool {
        self.terms.lock().resilient.is_some()
    }

    /// The word for how the Open survives; None when it does not.
    pub fn kind(&self) -> Option<&'static str> {
        let Terms { durable, resilient } = *self.terms.lock();
        if self.is_persistent() {
            Some("persistent")
        } else if resilient.is_some() {
            Some("resilient")
        } else {
            durable.map(|_| "durable")
        }
    }

    /// Open.DurableOpenTimeout; zero when it is not durable.
    pub fn durable_timeout(&self) -> Duration {
        self.terms.lock().durable.unwrap_or_default()
    }

    /// Open.ResiliencyTimeout; None when it is not resilient.
    pub fn resiliency_timeout(&self) -> Option<Duration> {
        self.terms.lock().resilient
    }

    /// The time in which its client may come after a lost connection; zero when it does not survive one.
    pub fn time_to_come(&self) -> Duration {
        let Terms { durable, resilient } = *self.terms.lock();
        resilient.or(durable).unwrap_or_default()
    }

    /// True when `user` is Open.DurableOwner.
    pub fn is_owned_by(&self, user: &str) -> bool {
        fold_name(&self.owner) == fold_name(user)
    }

    /// MS-SMB2 3.3.7.1: how long the Open is kept for its client now; none: it
    /// is to be closed.
    pub fn kept_for(&self, caching: Caching) -> Option<Duration> {
        let Terms { durable, resilient } = *self.terms.lock();
        let holds = self.is_persistent() || caching.keeps_handle();
        resilient.or(durable.filter(|_| holds))
    }

    /// Notes that a LOCK which has not been carried out yet has taken `range`. The caller holds the
    /// lock of the File, as for the next two functions.
    pub(crate) fn took(&self, range: (Range, Mode)) {
        self.locking.lock().push(range);
    }

    /// Notes that the LOCK has been carried out, or has given the range back.
    pub(crate) fn is_done_with(&self, range: (Range, Mode)) {
        let mut locking = self.locking.lock();
        if let Some(at) = locking.iter().position(|one| *one == range) {
            locking.swap_remove(at);
        }
    }

    /// Returns the ranges among `held` whose LOCK has been carried out.
    pub(super) fn settled(&self, mut held: Vec<(Range, Mode)>) -> Vec<(Range, Mode)> {
        for range in self.locking.lock().iter() {
            if let Some(at) = held.iter().position(|one| one == range) {
                held.remove(at);
            }
        }
        held
    }
}
