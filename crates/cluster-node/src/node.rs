//! A node that runs: its state, its happenings, and commands of the administrator.

use std::fmt;
use std::sync::Arc;

use frevo_cluster::interface::{Command, CommandFault};
use frevo_cluster::machine::Status;
use frevo_cluster::names::ShareName;
use frevo_etcd::engine::Moment;
use frevo_etcd::types::LeaseId;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::happening::{Because, Noted};
use crate::inbox::{Inbox, Message};
use crate::notes::Notes;
use crate::shared::Shared;
use crate::table::Table;
use crate::unit::Unit;

/// A unit of this node's configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnitStatus {
    /// Its name.
    pub name: ShareName,
    /// Its shares, in lower case.
    pub shares: Vec<Arc<str>>,
    /// True if it has addresses.
    pub has_addresses: bool,
    /// The moment since when it has its owner, as this node has seen it. None without an owner, and if it
    /// has had that owner since before this node came.
    pub since: Option<Moment>,
    /// The sentence for the reason of the ownership. None without an owner.
    pub because: Option<String>,
}

/// A node that runs. Clones are handles to the same node; it ends at once when the last one is dropped.
#[derive(Clone)]
pub struct Node(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    notes: Arc<Notes>,
    inbox: Arc<Inbox>,
    table: Arc<Table>,
    task: JoinHandle<()>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.task.abort();
        // The driver is dropped when its runtime looks at it; nobody waits for that.
        self.inbox.close();
    }
}

impl fmt::Debug for Node {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

impl Node {
    pub(crate) fn new(
        shared: Arc<Shared>,
        notes: Arc<Notes>,
        inbox: Arc<Inbox>,
        table: Arc<Table>,
        task: JoinHandle<()>,
    ) -> Self {
        Self(Arc::new(Inner { shared, notes, inbox, table, task }))
    }

    /// The state of the cluster, as this node knows it.
    pub fn status(&self) -> Status {
        self.0.shared.machine.lock().status()
    }

    /// The units of this node's configuration.
    pub fn units(&self) -> Vec<UnitStatus> {
        let status = self.status();
        let unit = |unit: Arc<Unit>| {
            let share = status.shares.iter().find(|share| share.name == unit.name);
            let reason = share.and_then(|share| share.reason.as_ref());
            let epoch = share.map(|share| share.epoch);
            UnitStatus {
                name: unit.name.clone(),
                shares: unit.shares.clone(),
                has_addresses: !unit.addresses.is_empty(),
                since: epoch.and_then(|epoch| self.0.shared.since(&unit.name, epoch)),
                because: reason.map(|reason| Because(reason).to_string()),
            }
        };
        self.0.table.all().into_iter().map(unit).collect()
    }

    /// The last happenings, the oldest first.
    pub fn events(&self) -> Vec<Noted> {
        self.0.notes.all()
    }

    /// The present moment, by the clock of the node.
    pub fn now(&self) -> Moment {
        self.0.shared.now()
    }

    /// Carries out a command. The returned future ends when the command has had its effect, or cannot
    /// have any.
    ///
    /// # Errors
    /// [`CommandFault`] says why it had no effect.
    pub fn command(
        &self,
        command: Command,
    ) -> impl Future<Output = Result<(), CommandFault>> + Send + 'static {
        let (done, end) = oneshot::channel();
        self.0.inbox.push(Message::Command(command, done));
        async { end.await.unwrap_or(Err(CommandFault::NotConnected)) }
    }

    /// Gives all units away and ends the registration: the process is to end.
    ///
    /// # Errors
    /// [`CommandFault::TimedOut`] if not all units could be given away in time.
    pub async fn leave(&self) -> Result<(), CommandFault> {
        self.command(Command::Leave).await
    }

    /// Adds a unit, or changes the weight of one.
    pub fn set_unit(&self, unit: Unit) {
        self.0.inbox.push(Message::Unit(unit));
    }

    /// The lease of this node, for [`frevo_cluster::Settings::predecessor`] of the next process. None
    /// without a lease.
    pub fn lease(&self) -> Option<LeaseId> {
        self.0.shared.machine.lock().lease()
    }
}
