//! The server of a node: it follows orders, and says when it has.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

use frevo_etcd::engine::Moment;

use super::judge::Sent;
use crate::Epoch;
use crate::interface::{Record, Ticket};
use crate::names::ShareName;

/// The use of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Use {
    None,
    Loading { epoch: Epoch, records: Vec<Record> },
    Serving { epoch: Epoch },
    Draining { epoch: Epoch },
}

impl Use {
    /// The ownership while requests are answered.
    pub(super) fn served(&self) -> Option<Epoch> {
        match self {
            Self::Serving { epoch } | Self::Draining { epoch } => Some(*epoch),
            _ => None,
        }
    }
}

/// A change of a record that was not answered yet.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) share: ShareName,
    pub(super) sent: Sent,
}

/// A share that was stopped at once: answers may still leave.
#[derive(Debug, Clone, Copy)]
pub(super) struct Stopped {
    /// The true time.
    pub(super) at: Duration,
}

/// The server of a node.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) uses: BTreeMap<ShareName, Use>,
    pub(super) until: Option<Moment>,
    pub(super) waiting: BTreeMap<Ticket, Waiting>,
    pub(super) loads: BTreeMap<Ticket, ShareName>,
    pub(super) stopped: BTreeMap<ShareName, Stopped>,
    pub(super) last_ticket: u64,
    /// Records that may be changed and removed again.
    pub(super) records: BTreeMap<ShareName, Vec<u64>>,
}

impl Server {
    pub(super) fn ticket(&mut self) -> Ticket {
        self.last_ticket += 1;
        Ticket(self.last_ticket)
    }

    pub(super) fn used(&self, share: &ShareName) -> &Use {
        self.uses.get(share).unwrap_or(&Use::None)
    }

    pub(super) fn has_waiting(&self, share: &ShareName) -> bool {
        self.waiting.values().any(|waiting| waiting.share == *share)
    }
}
