//! Requests under way.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::mem::{Discriminant, discriminant};
use core::time::Duration;

use frevo_etcd::engine::Moment;

use crate::Epoch;
use crate::interface::{CommandId, RequestId, Ticket};
use crate::limits::{RETRY_FIRST, RETRY_MAX};
use crate::names::ShareName;
use crate::time::after;

/// Requests without an answer, one after the other, from which on etcd is called silent.
pub(super) const SILENCE: u32 = 3;

/// A thing that is tried until it has an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt {
    /// It is to be tried at this moment.
    Due(Moment),
    /// A request is under way.
    Pending,
}

/// An ownership.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Holding {
    pub(super) share: ShareName,
    pub(super) epoch: Epoch,
}

/// The reason of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Purpose {
    Grant,
    Number,
    Register,
    Advertise,
    KeepAlive,
    Verify(Vec<Holding>),
    Revoke,
    RevokePredecessor,
    Inherit(Holding),
    ReadView,
    Take(ShareName),
    Release(Holding),
    Resign(ShareName),
    DropMove(ShareName),
    Batch(Holding),
    Load(Ticket),
    Command(CommandId),
}

impl Purpose {
    /// True if it means nothing any more when the lease has ended.
    pub(super) const fn is_of_lease(&self) -> bool {
        !matches!(
            self,
            Self::ReadView
                | Self::Command(_)
                | Self::Load(_)
                | Self::RevokePredecessor
                | Self::Inherit(_)
        )
    }
}

/// A request under way.
#[derive(Debug)]
pub(super) struct Pending {
    pub(super) purpose: Purpose,
    /// The moment before it was sent.
    pub(super) sent: Moment,
}

/// Requests under way. Their number is bounded by that of the shares, loads and commands: each of them has
/// one at most, and a keep-alive and its checks are made a few times during their patience.
#[derive(Debug, Default)]
pub(super) struct Requests {
    last: u64,
    pub(super) pending: BTreeMap<RequestId, Pending>,
    /// Requests without an answer since the last answer.
    pub(super) failures: u32,
    /// Refusals of requests of one kind since the last of that kind that was carried out.
    refusals: Vec<Refusals>,
}

/// Refusals of requests of one kind.
#[derive(Debug)]
struct Refusals {
    kind: Discriminant<Purpose>,
    count: u32,
}

impl Requests {
    /// The moment at which the oldest one is given up.
    pub(super) fn deadline(&self, patience: Duration) -> Option<Moment> {
        self.pending.values().next().map(|pending| after(pending.sent, patience))
    }

    /// Counts a refusal of a request of this kind. Returns the number of refusals.
    pub(super) fn refuse(&mut self, purpose: &Purpose) -> u32 {
        let kind = discriminant(purpose);
        if let Some(refusals) = self.refusals.iter_mut().find(|refusals| refusals.kind == kind) {
            refusals.count = refusals.count.saturating_add(1);
            return refusals.count;
        }
        self.refusals.push(Refusals { kind, count: 1 });
        1
    }

    /// Notes that a request of this kind was carried out.
    pub(super) fn end_refusals(&mut self, purpose: &Purpose) {
        let kind = discriminant(purpose);
        self.refusals.retain(|refusals| refusals.kind != kind);
    }

    /// The time before something is tried again that was refused so often.
    pub(super) fn pause(&self, refusals: u32) -> Duration {
        let doubled = 1_u32.checked_shl(self.failures.max(refusals).min(10)).unwrap_or(1);
        RETRY_FIRST.saturating_mul(doubled).min(RETRY_MAX)
    }

    /// A number for a request.
    pub(super) fn number(&mut self) -> RequestId {
        self.last = self.last.saturating_add(1);
        RequestId(self.last)
    }

    /// Forgets the requests that mean nothing without the lease.
    pub(super) fn forget_lease(&mut self) {
        self.pending.retain(|_, pending| !pending.purpose.is_of_lease());
    }

    /// True if etcd does not answer.
    pub(super) const fn is_silent(&self) -> bool {
        self.failures >= SILENCE
    }
}
