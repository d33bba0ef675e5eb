//! The state of one share at this node.

use frevo_etcd::engine::Moment;
use frevo_etcd::types::{LeaseId, Revision};

use super::requests::Attempt;
use crate::Epoch;
use crate::names::NodeName;
use crate::records::RecordQueue;
use crate::settings::Storage;
use crate::values::{Reason, TakeNumber};

/// The stage of a share at this node.
///
/// ```text
/// Away --> Fencing --> Taking --> Starting --> Serving --> Draining --> Releasing --> Away
///   |                    ^           |            |            |             |
///   +--------------------+           +------------+--- lost ---+-------------+--> Stopping --> Away
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stage {
    /// This node does not have it.
    Away,
    /// Storage is to refuse the former owner.
    Fencing(Fencing),
    /// The owner's key is to be made.
    Taking(Taking),
    /// The server loads its records.
    Starting { epoch: Epoch, is_restored: bool, reason: Reason },
    /// The server serves it.
    Serving { epoch: Epoch },
    /// The server brings its use to an end.
    Draining { epoch: Epoch, to: Option<NodeName> },
    /// The owner's key is to be deleted.
    Releasing { epoch: Epoch, to: Option<NodeName>, attempt: Attempt },
    /// The server is to stop it: it is lost. With `has_key` the owner's key may still be this node's, and
    /// is to be deleted afterwards.
    Stopping { epoch: Epoch, has_key: bool },
}

/// A fence that was ordered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Fencing {
    /// The former owner.
    pub(super) node: NodeName,
    /// Its lease.
    pub(super) lease: LeaseId,
    /// The state of the share when it was ordered.
    pub(super) free: Free,
    pub(super) attempt: Attempt,
}

/// An attempt to take a share. It goes on until etcd has answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Taking {
    pub(super) take: TakeNumber,
    /// The state of the share when this began: its key `last` must still be as it was.
    pub(super) free: Free,
    pub(super) reason: Reason,
    /// This node's identity that is written with it.
    pub(super) storage: Storage,
    pub(super) attempt: Attempt,
}

impl Stage {
    /// The ownership while the owner's key should exist and nothing else is under way with it.
    pub(super) const fn owned(&self) -> Option<Epoch> {
        match self {
            Self::Starting { epoch, .. }
            | Self::Serving { epoch }
            | Self::Draining { epoch, .. } => Some(*epoch),
            _ => None,
        }
    }

    /// The ownership until it was given away or is lost.
    pub(super) const fn epoch(&self) -> Option<Epoch> {
        match self {
            Self::Releasing { epoch, .. } | Self::Stopping { epoch, .. } => Some(*epoch),
            _ => self.owned(),
        }
    }

    /// True unless this node has nothing to do with the share.
    pub(super) const fn is_held(&self) -> bool {
        !matches!(self, Self::Away | Self::Fencing(_))
    }

    /// The word for it in status.
    pub(super) const fn name(&self) -> &'static str {
        match self {
            Self::Away => "elsewhere",
            Self::Fencing(_) => "fencing",
            Self::Taking(_) => "taking",
            Self::Starting { .. } => "starting",
            Self::Serving { .. } => "owned",
            Self::Draining { .. } => "draining",
            Self::Releasing { .. } => "releasing",
            Self::Stopping { .. } => "stopping",
        }
    }
}

/// A share without an owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Free {
    /// The moment since when this node knows it.
    pub(super) since: Moment,
    /// The revision of the key `last` then.
    pub(super) last: Revision,
}

/// A share of this node's configuration.
#[derive(Debug)]
pub(super) struct Share {
    pub(super) weight: u32,
    /// Its storage, if the server can use it.
    pub(super) storage: Option<Storage>,
    pub(super) stage: Stage,
    /// The moment before a request was sent that found the owner's key. None if the key must be looked
    /// for before the share is served.
    pub(super) verified: Option<Moment>,
    /// None while it has an owner, and before the keys were read.
    pub(super) free: Option<Free>,
    /// The state in which etcd refused to let it be taken: somebody else was first, and the watch will say
    /// so.
    pub(super) refused: Option<Free>,
    pub(super) queue: Option<RecordQueue>,
    /// The repetition of a transaction with records.
    pub(super) batch: Attempt,
    /// The deletion of a planned move that cannot be.
    pub(super) move_drop: Attempt,
    /// The note in the key `last` that this node has stopped the share.
    pub(super) resigning: Attempt,
    /// The latest ownership of another node because of which the server was to look at the storage anew.
    pub(super) renewed: Epoch,
    /// It is not given away again before this moment.
    pub(super) calm_until: Moment,
    /// True if it was said that its key `last` cannot be read.
    pub(super) is_unreadable: bool,
}

impl Share {
    pub(super) const fn new(weight: u32) -> Self {
        let start = Moment(core::time::Duration::ZERO);
        Self {
            weight,
            storage: None,
            stage: Stage::Away,
            verified: None,
            free: None,
            refused: None,
            queue: None,
            batch: Attempt::Due(start),
            move_drop: Attempt::Due(start),
            resigning: Attempt::Due(start),
            renewed: Epoch(0),
            calm_until: start,
            is_unreadable: false,
        }
    }

    /// The state of a share that has no owner, while this node does not take it yet.
    pub(super) fn waits_for_owner(&self) -> Option<Free> {
        let is_away = matches!(self.stage, Stage::Away | Stage::Fencing(_));
        self.free.filter(|_| is_away)
    }
}
