//! Inputs and outputs of the [`Machine`](crate::Machine).

use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;

use frevo_etcd::engine::{Confirmed, Moment};
use frevo_etcd::types::{Fault, LeaseId, Revision, Txn, TxnAnswer, WatchAnswer};

use crate::dialect::ClusterDialect;
use crate::fence::Fence;
use crate::ids::Generation;
use crate::names::{NodeName, ShareName};
use crate::settings::{ShareSettings, Storage};
use crate::values::Reason;
use crate::{Epoch, RecordId};

/// The number of a request to etcd.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct RequestId(pub u64);

/// The number of a command, chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CommandId(pub u64);

/// The number of a change or a load of records, chosen by the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Ticket(pub u64);

/// A request to etcd: a call of [`Engine`](frevo_etcd::engine::Engine).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Makes a lease.
    Grant(Duration),
    /// Keeps a lease alive once.
    KeepAlive(LeaseId),
    /// Ends a lease.
    Revoke(LeaseId),
    /// Carries out a transaction.
    Txn(Txn),
    /// Tells changes. It takes the place of the watch before it, which need not be told any longer.
    Watch {
        /// The beginning of the keys.
        prefix: Vec<u8>,
        /// Changes of larger revisions are told.
        after: Revision,
    },
}

/// The end of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// The lease is made, or kept alive.
    Confirmed(Confirmed),
    /// The lease has ended.
    Revoked,
    /// The transaction has happened.
    Txn(TxnAnswer),
}

/// A thing that happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Time has passed: [`Machine::timer`](crate::Machine::timer).
    Time,
    /// A request other than a watch has ended.
    Answer {
        /// The request.
        id: RequestId,
        /// Its end.
        answer: Result<Answer, Fault>,
    },
    /// A watch has told something. [`Fault::Unavailable`] does not end it; other faults and
    /// [`WatchAnswer::Compacted`] do.
    Watched {
        /// The request.
        id: RequestId,
        /// The changes.
        answer: Result<WatchAnswer, Fault>,
    },
    /// The server says something.
    Statement(Statement),
    /// An administrator wants something: the end is [`Output::CommandDone`].
    Command {
        /// Its number.
        id: CommandId,
        /// The command.
        command: Command,
    },
    /// A record is to be kept or removed: the end is [`Output::RecordDone`].
    Record {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
        /// The change.
        change: RecordChange,
        /// Its number.
        ticket: Ticket,
    },
    /// All records of a share are to be read: the answers are [`Output::Loaded`].
    Load {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
        /// Its number.
        ticket: Ticket,
    },
}

/// A change of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordChange {
    /// Keeps a record, in place of an earlier one.
    Put(RecordId, Vec<u8>),
    /// Removes a record if it exists.
    Remove(RecordId),
}

impl RecordChange {
    /// The record.
    pub const fn id(&self) -> RecordId {
        match self {
            Self::Put(id, _) | Self::Remove(id) => *id,
        }
    }
}

/// A thing that the server says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Statement {
    /// The storage of a share can be used. It is said for each share at the start, and again after each
    /// [`Order::Stop`] and [`Order::Renew`] when the server has looked at the storage anew; after a fence
    /// with a new identity.
    Ready {
        /// The share.
        share: ShareName,
        /// The storage.
        storage: Storage,
    },
    /// The storage of a share that this node does not have cannot be used.
    Unable {
        /// The share.
        share: ShareName,
    },
    /// The storage refuses the node of [`Order::Fence`] from now on.
    Fenced {
        /// The share.
        share: ShareName,
        /// The lease of the order.
        lease: LeaseId,
    },
    /// The fence failed. It is ordered again.
    FenceFailed {
        /// The share.
        share: ShareName,
        /// The lease of the order.
        lease: LeaseId,
    },
    /// The records are Opens again: [`Order::Start`] has ended.
    Restored {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
    },
    /// The share cannot be started: nothing of it is used, and it is free for another node.
    /// [`Order::Left`] follows, and [`Statement::Ready`] is wanted before this node takes it again.
    NotRestored {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
    },
    /// Nothing of the share is under way, and all its records have been answered: [`Order::Drain`] has
    /// ended.
    Drained {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
    },
    /// The share cannot be given away in time; it is served on.
    NotDrained {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
    },
    /// The server answers nothing more of the share and issues no change to its files: [`Order::Stop`]
    /// has ended.
    Stopped {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
    },
    /// The storage refuses this node.
    StorageLost {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
    },
}

/// A thing that an administrator wants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Moves a share to a node. It has its effect when that node owns the share.
    Move {
        /// The share.
        share: ShareName,
        /// The node.
        to: NodeName,
    },
    /// Moves all shares of a node to others, and gives it no new ones. It has its effect when the node
    /// has no shares. The node need not be up.
    Drain(NodeName),
    /// Ends the effect of `Drain`. Shares do not move back.
    Undrain(NodeName),
    /// Sets the largest dialect of clients on shares of the cluster, if all nodes that are up speak it. The
    /// first one may be any; later ones are larger.
    Raise(ClusterDialect),
    /// Gives all shares of this node away, and ends its registration: the server is to end. It has its
    /// effect when etcd knows this node no longer.
    Leave,
    /// Adds a share, or changes its weight.
    Share(ShareSettings),
    /// Gets a new generation: [`IdSpace::take`](crate::ids::IdSpace::take) had no more numbers.
    NewGeneration,
}

/// The reason why a command had no effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommandFault {
    /// This node is not connected with etcd, or has not registered yet.
    NotConnected,
    /// The share has no owner at the moment.
    NoOwner,
    /// The node is not up, is drained, or cannot serve the share.
    NodeCannot,
    /// The owner cannot give the share away.
    NotGiven,
    /// The effect has not come in time. It may come later.
    TimedOut,
    /// Too many commands are under way.
    Busy,
    /// There are as many shares as the limit allows.
    TooManyShares,
    /// These nodes do not speak the dialect.
    NotSpoken(ClusterDialect, Vec<NodeName>),
    /// Clients may use a larger dialect already: this one.
    Lowers(ClusterDialect),
    /// etcd refused the request.
    Refused(String),
}

impl fmt::Display for CommandFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotConnected => "this node is not connected with etcd",
            Self::NoOwner => "the share has no owner at the moment; try again in a few seconds",
            Self::NodeCannot => "the node is not up, is drained, or cannot serve the share",
            Self::NotGiven => "the owner could not give the share away, and serves it on",
            Self::TimedOut => "the effect has not come within a minute; it may come later",
            Self::Busy => "too many commands are under way; try again",
            Self::TooManyShares => "a cluster can have no more shares",
            Self::NotSpoken(dialect, nodes) => return not_spoken(*dialect, nodes, f),
            Self::Lowers(max) => {
                return write!(
                    f,
                    "clients may use SMB {max} already; a cluster's dialect is never lowered"
                );
            }
            Self::Refused(why) => return write!(f, "etcd refused the request: {why}"),
        })
    }
}

fn not_spoken(
    dialect: ClusterDialect,
    nodes: &[NodeName],
    f: &mut fmt::Formatter<'_>,
) -> fmt::Result {
    for (at, node) in nodes.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        write!(f, "{comma}{node}")?;
    }
    let verb = if nodes.len() == 1 { "does" } else { "do" };
    write!(f, " {verb} not speak SMB {dialect}; upgrade Frevo there, or raise max_dialect")
}

impl core::error::Error for CommandFault {}

/// The reason of a [`Order::Stop`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The lease of this node has ended.
    LeaseEnded,
    /// The owner's key has gone.
    KeyGone,
    /// This node has the owner's key.
    Taken(NodeName),
    /// Records could not be written or read: the share has another owner, or its keys were changed by
    /// another hand.
    RecordRefused,
    /// The storage refuses this node.
    StorageLost,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LeaseEnded => f.write_str("the lease of this node in etcd has ended"),
            Self::KeyGone => f.write_str("the owner's key in etcd has gone"),
            Self::Taken(node) => write!(f, "the node {node} owns the share"),
            Self::RecordRefused => {
                f.write_str("the keys of the share in etcd are not as this node left them")
            }
            Self::StorageLost => f.write_str("the storage refuses this node"),
        }
    }
}

/// A thing for the server to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Order {
    /// Serves no share after this moment of CLOCK_BOOTTIME: nothing is answered, and no change to a file
    /// system issued. Each order takes the place of the one before it. The server looks at the clock
    /// itself. Before the first order nothing is served.
    ServeUntil(Moment),
    /// The limit has passed: all shares are paused. Their Opens stay, their connections may end. No
    /// statement is needed.
    Pause,
    /// A confirmation came after the limit, and no share was taken meanwhile: those that were served are
    /// served again, until the limit.
    Resume(Moment),
    /// Has storage refuse a former owner. Ends with [`Statement::Fenced`] or [`Statement::FenceFailed`].
    Fence {
        /// The share.
        share: ShareName,
        /// The former owner.
        node: NodeName,
        /// Its lease, for the statement.
        lease: LeaseId,
        /// Its identity.
        fence: Fence,
    },
    /// Loads the records of a share and makes them Opens again; serves nothing yet. Ends with
    /// [`Statement::Restored`] or [`Statement::NotRestored`].
    Start {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
        /// The reason.
        reason: Reason,
    },
    /// Serves a share that was started.
    Serve {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
        /// The moment until which clients that had handles come first. None for a share that had no
        /// owner before.
        grace: Option<Moment>,
    },
    /// Brings the use of a share to an end, so that another node can take it. Ends with
    /// [`Statement::Drained`] or [`Statement::NotDrained`], within a patience of the server's.
    Drain {
        /// The share.
        share: ShareName,
        /// The ownership.
        epoch: Epoch,
        /// The node that is to have it. None if there is no other one.
        to: Option<NodeName>,
    },
    /// The share was given away: clients may be told the node.
    Left {
        /// The share.
        share: ShareName,
        /// The ownership that has ended.
        epoch: Epoch,
        /// The node that is to have it.
        to: Option<NodeName>,
    },
    /// Stops a share at once: it is lost. Its Opens and connections end, its records are the next
    /// owner's. Ends with [`Statement::Stopped`].
    Stop {
        /// The share.
        share: ShareName,
        /// The ownership that has ended.
        epoch: Epoch,
        /// The reason.
        why: StopReason,
    },
    /// Looks at the storage of a share anew that this node does not have: another node has taken it over,
    /// and storage may refuse this node since then. Ends with [`Statement::Ready`], with a new identity
    /// where the old one is refused, or [`Statement::Unable`].
    Renew {
        /// The share.
        share: ShareName,
    },
    /// Clients use shares of the cluster by a dialect of at most this one from now on. None: by any. It comes
    /// before the first `Start` if there is a limit.
    Dialect(Option<ClusterDialect>),
    /// New FileIds and SessionIds have this generation
    /// ([`IdSpace`](crate::ids::IdSpace)). It comes before the first `Start`.
    Generation(Generation),
}

/// The end of a change of a record.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RecordEnd {
    /// It is in etcd.
    Done,
    /// Another node owns the share, or may own it: nothing that depends on the change may be answered.
    Fenced,
    /// It is not in etcd, for this reason. The client gets INSUFFICIENT_RESOURCES, or an Open that is not
    /// persistent.
    Failed(String),
}

/// A record that was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Its number.
    pub id: RecordId,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// An answer to a load.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LoadPart {
    /// Some records, in the order of their numbers. All parts are of one moment.
    Records(Vec<Record>),
    /// The load begins anew: the parts so far do not count.
    Again,
    /// All records were read.
    End,
    /// Another node owns the share.
    Fenced,
    /// The load cannot go on, for this reason.
    Failed(String),
}

/// A thing for logs, status and the audit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// etcd does not answer, for this reason.
    EtcdSilent(String),
    /// etcd answers again.
    EtcdAnswers,
    /// etcd refuses requests, or has no space left, for this reason. They are repeated.
    EtcdRefuses(String),
    /// This node is registered.
    Registered(Generation),
    /// Another process has registered with the name of this node: this one waits.
    NameTaken,
    /// The lease of this node has ended.
    LeaseEnded,
    /// A share cannot be taken, because the value of its key `last` cannot be read.
    Unreadable(ShareName),
    /// A share's former owner cannot be fenced: it was stopped for longer than its lease, it may still
    /// write.
    TakenWithoutFence(ShareName, NodeName),
    /// A planned move was refused.
    MoveRefused(ShareName, NodeName),
    /// Clients use shares of the cluster by a dialect of at most this one.
    DialectSet(ClusterDialect),
    /// The cluster demands this dialect, which this node does not speak: it has no shares. None: the demand
    /// cannot be read.
    Behind(Option<ClusterDialect>),
}

/// A thing to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Output {
    /// A request to etcd.
    Request(RequestId, Request),
    /// An order to the server.
    Order(Order),
    /// The end of a change of a record.
    RecordDone(Ticket, RecordEnd),
    /// An answer to a load. [`LoadPart::End`], `Fenced` and `Failed` are the last.
    Loaded(Ticket, LoadPart),
    /// The end of a command.
    CommandDone(CommandId, Result<(), CommandFault>),
    /// A thing to note.
    Event(Event),
}
