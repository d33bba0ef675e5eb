//! The progress of a node's registration, of its keys and of commands.

use alloc::vec::Vec;

use frevo_etcd::engine::Moment;
use frevo_etcd::types::{Revision, Txn};

use super::requests::Attempt;
use crate::Epoch;
use crate::interface::{Command, RequestId};
use crate::view::View;

/// The relation of the node to the cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Membership {
    /// It has no lease.
    Outside(Attempt),
    /// It has a lease and is not registered.
    Registering(Attempt),
    /// It is registered.
    Inside,
    /// Its lease is to end.
    Leaving(Attempt),
    /// It has left.
    Gone,
}

/// The way in which the keys are known.
#[derive(Debug)]
pub(super) enum Watching {
    /// They are read, in parts of one revision.
    Reading(Reading),
    /// They are watched.
    Told(RequestId),
}

/// A reading of all keys.
#[derive(Debug)]
pub(super) struct Reading {
    pub(super) attempt: Attempt,
    /// The parts so far.
    pub(super) view: View,
    /// The key after which the next part begins.
    pub(super) after: Vec<u8>,
}

impl Watching {
    /// Begins to read all keys.
    pub(super) fn reading(at: Moment) -> Self {
        let attempt = Attempt::Due(at);
        Self::Reading(Reading { attempt, view: View::default(), after: Vec::new() })
    }
}

/// A command under way.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) command: Command,
    /// The ownership that a move ends.
    pub(super) epoch: Epoch,
    pub(super) deadline: Moment,
    /// The transaction that tells it to all nodes. None if it is told, or needs none.
    pub(super) telling: Option<Telling>,
    /// The revision of the view from which on the effect can be seen.
    pub(super) told: Revision,
}

/// The transaction of a command.
#[derive(Debug)]
pub(super) struct Telling {
    pub(super) txn: Txn,
    pub(super) attempt: Attempt,
}
