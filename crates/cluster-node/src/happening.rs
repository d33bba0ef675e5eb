//! Happenings of a node, for logs, the page and the audit log.

use std::fmt;
use std::sync::Arc;

use frevo_cluster::Epoch;
use frevo_cluster::interface::{Event, StopReason};
use frevo_cluster::names::{NodeName, ShareName};
use frevo_cluster::values::Reason;
use frevo_etcd::engine::Moment;

/// A thing that has happened at this node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Happening {
    /// A thing that the machine has noted.
    Noted(Event),
    /// This node owns a unit, and loads its records.
    Taken {
        /// The unit.
        unit: ShareName,
        /// The ownership.
        epoch: Epoch,
        /// The reason.
        reason: Reason,
    },
    /// The handles of a unit were made anew.
    Restored {
        /// The unit.
        unit: ShareName,
        /// Their number.
        opens: usize,
    },
    /// A unit is served.
    Serving {
        /// The unit.
        unit: ShareName,
    },
    /// A unit could not be started or served.
    NotStarted {
        /// The unit.
        unit: ShareName,
        /// The reason.
        why: String,
    },
    /// A unit was given away.
    Given {
        /// The unit.
        unit: ShareName,
        /// The node that is to have it.
        to: Option<NodeName>,
    },
    /// A unit could not be given away, and is served on.
    NotGiven {
        /// The unit.
        unit: ShareName,
        /// The reason.
        why: String,
    },
    /// A unit was lost, and was stopped.
    Stopped {
        /// The unit.
        unit: ShareName,
        /// The reason.
        why: StopReason,
    },
    /// Nothing is served: etcd has not confirmed this node in time.
    Paused,
    /// The units are served again.
    Resumed,
    /// Storage refuses a former owner.
    Fenced {
        /// The former owner.
        node: NodeName,
        /// The kind of the fence.
        kind: &'static str,
    },
    /// Storage does not refuse a former owner. It is tried again.
    NotFenced {
        /// The former owner.
        node: NodeName,
        /// The reason.
        why: String,
    },
    /// The storage of a unit cannot be used here. It is looked at again.
    NoStorage {
        /// The unit.
        unit: ShareName,
        /// The reason.
        why: String,
    },
    /// Addresses could not be set or removed. It is tried again.
    Addresses {
        /// The unit.
        unit: ShareName,
        /// The reason.
        why: String,
    },
}

impl Happening {
    /// The unit that it is about.
    pub const fn unit(&self) -> Option<&ShareName> {
        match self {
            Self::Taken { unit, .. }
            | Self::Restored { unit, .. }
            | Self::Serving { unit }
            | Self::NotStarted { unit, .. }
            | Self::Given { unit, .. }
            | Self::NotGiven { unit, .. }
            | Self::Stopped { unit, .. }
            | Self::NoStorage { unit, .. }
            | Self::Addresses { unit, .. } => Some(unit),
            Self::Noted(
                Event::Unreadable(unit)
                | Event::TakenWithoutFence(unit, _)
                | Event::MoveRefused(unit, _),
            ) => Some(unit),
            Self::Noted(_)
            | Self::Paused
            | Self::Resumed
            | Self::Fenced { .. }
            | Self::NotFenced { .. } => None,
        }
    }

    /// True for a thing that an administrator should know of.
    pub const fn is_warning(&self) -> bool {
        match self {
            Self::Noted(event) => {
                !matches!(event, Event::EtcdAnswers | Event::Registered(_) | Event::DialectSet(_))
            }
            Self::NotStarted { .. }
            | Self::NotGiven { .. }
            | Self::Stopped { .. }
            | Self::Paused
            | Self::NotFenced { .. }
            | Self::NoStorage { .. }
            | Self::Addresses { .. } => true,
            Self::Taken { .. }
            | Self::Restored { .. }
            | Self::Serving { .. }
            | Self::Given { .. }
            | Self::Resumed
            | Self::Fenced { .. } => false,
        }
    }
}

impl fmt::Display for Happening {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Noted(event) => noted(event, f),
            Self::Taken { unit, epoch, reason } => {
                write!(f, "this node owns {unit} with epoch {epoch}: {}", Because(reason))
            }
            Self::Restored { unit, opens } => {
                let plural = if *opens == 1 { "handle" } else { "handles" };
                write!(f, "restored {opens} {plural} of {unit}")
            }
            Self::Serving { unit } => write!(f, "this node serves {unit}"),
            Self::NotStarted { unit, why } => write!(f, "cannot serve {unit}: {why}"),
            Self::Given { unit, to: Some(to) } => write!(f, "gave {unit} to {to}"),
            Self::Given { unit, to: None } => write!(f, "gave {unit} away"),
            Self::NotGiven { unit, why } => {
                write!(f, "could not give {unit} away, and serve it on: {why}")
            }
            Self::Stopped { unit, why } => write!(f, "stopped {unit}: {why}"),
            Self::Paused => f.write_str(
                "nothing is served: etcd has not confirmed this node in time; it goes on by itself",
            ),
            Self::Resumed => {
                f.write_str("etcd has confirmed this node; its shares are served again")
            }
            Self::Fenced { node, kind } => {
                write!(f, "storage refuses the former owner {node} now (fence {kind})")
            }
            Self::NotFenced { node, why } => {
                write!(f, "cannot fence the former owner {node}; trying again: {why}")
            }
            Self::NoStorage { unit, why } => {
                write!(f, "cannot use the storage of {unit}; trying again: {why}")
            }
            Self::Addresses { unit, why } => {
                write!(f, "cannot change the addresses of {unit}; trying again: {why}")
            }
        }
    }
}

fn noted(event: &Event, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    match event {
        Event::EtcdSilent(why) => {
            write!(f, "etcd does not answer, or has no majority; trying again: {why}")
        }
        Event::EtcdAnswers => f.write_str("etcd answers again"),
        Event::EtcdRefuses(why) => write!(f, "etcd refuses requests; trying again: {why}"),
        Event::Registered(generation) => {
            write!(f, "this node is registered with the cluster (start {generation})")
        }
        Event::NameTaken => f.write_str(
            "another server is registered with this node's name; waiting until it has ended",
        ),
        Event::LeaseEnded => f.write_str("the lease of this node in etcd has ended"),
        Event::Unreadable(unit) => {
            write!(f, "cannot take {unit}: its key `last` in etcd cannot be read")
        }
        Event::TakenWithoutFence(unit, node) => {
            write!(f, "took {unit} without a fence: if {node} was only stopped, it may still write")
        }
        Event::MoveRefused(unit, to) => write!(f, "could not move {unit} to {to}"),
        Event::DialectSet(max) => {
            write!(f, "clients use shares of the cluster by SMB {max} at most")
        }
        Event::Behind(Some(max)) => write!(
            f,
            "this node does not speak SMB {max}, which the cluster demands: it serves no share of the \
             cluster; upgrade Frevo, or raise max_dialect"
        ),
        Event::Behind(None) => f.write_str(
            "this node cannot read the dialect that the cluster demands: it serves no share of the \
             cluster; upgrade Frevo, or set the dialect again (frevo cluster raise)",
        ),
    }
}

/// The sentence for the reason of an ownership.
pub(crate) struct Because<'a>(pub(crate) &'a Reason);

impl fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Reason::First => f.write_str("it had no owner before"),
            Reason::Given(node) => write!(f, "{node} gave it away"),
            Reason::Failover(node) => write!(f, "{node} did not answer any more"),
        }
    }
}

/// A happening with its moment, by the clock of the node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Noted {
    /// The moment.
    pub at: Moment,
    /// The thing that has happened.
    pub what: Happening,
}

/// A callback for happenings. It is called by the driver and must be short.
pub type Observer = Arc<dyn Fn(&Noted) + Send + Sync>;
