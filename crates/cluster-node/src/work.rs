//! The work of a unit: each order of the machine is a task, which makes a statement at its end.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::Epoch;
use frevo_cluster::interface::{Statement, StopReason};
use frevo_cluster::names::{NodeName, ShareName};
use frevo_cluster::settings::Storage;
use tokio::task::JoinHandle;

use crate::addresses::Addresses;
use crate::hands::Hands;
use crate::happening::Happening;
use crate::inbox::{Inbox, Message};
use crate::limits::{LOOK_AGAIN, STOP_AGAIN};
use crate::notes::Notes;
use crate::served::Served;
use crate::unit::Unit;

/// The parts that all work needs.
pub(crate) struct Tools {
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) served: Arc<dyn Served>,
    pub(crate) hands: Arc<dyn Hands>,
    pub(crate) notes: Arc<Notes>,
    /// The time for which requests may go on when a unit is given away.
    pub(crate) drain_patience: Duration,
}

impl Tools {
    fn say(&self, statement: Statement) {
        self.inbox.push(Message::Statement(statement));
    }
}

/// Work to be done for a unit.
pub(crate) enum Work {
    /// Looks at the storage until it can be used.
    Look,
    /// Loads records.
    Start(Epoch),
    /// Serves.
    Serve { epoch: Epoch, grace: Option<Duration> },
    /// Ends the use.
    Drain(Epoch),
    /// Gives up after a drain, or after a start that failed.
    Leave { to: Option<NodeName>, addresses: Vec<SocketAddr>, was_started: bool },
    /// Stops at once.
    Stop { epoch: Epoch, why: StopReason },
}

/// A unit at this node.
pub(crate) struct UnitWork {
    unit: Arc<Unit>,
    tools: Arc<Tools>,
    /// None for a unit without addresses.
    addresses: Option<Arc<Addresses>>,
    task: Option<Task>,
    /// True if the last work was a look.
    is_looking: bool,
    /// The ownership of the last order to start. None when the unit was given up or lost.
    pub(crate) epoch: Option<Epoch>,
    /// True from the order to serve until that to drain or to stop.
    pub(crate) is_serving: bool,
    /// True if the last start has succeeded.
    pub(crate) is_started: bool,
}

/// The task of a work. It ends when this is dropped, with the tasks that it waits for.
struct Task(JoinHandle<()>);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}

impl UnitWork {
    /// A unit whose storage is looked at.
    pub(crate) fn new(unit: Arc<Unit>, tools: Arc<Tools>) -> Self {
        let keeper = || {
            let (hands, notes) = (Arc::clone(&tools.hands), Arc::clone(&tools.notes));
            Arc::new(Addresses::new(unit.name.clone(), hands, notes))
        };
        let addresses = (!unit.addresses.is_empty()).then(keeper);
        let (task, epoch) = (None, None);
        let mut new = Self {
            unit,
            tools,
            addresses,
            task,
            is_looking: false,
            epoch,
            is_serving: false,
            is_started: false,
        };
        new.begin(Work::Look);
        new
    }

    /// Takes over the unit as a reload has it.
    pub(crate) fn set_unit(&mut self, unit: Arc<Unit>) {
        self.unit = unit;
    }

    /// True if the unit has addresses of its own, at which clients find its owner.
    pub(crate) const fn has_addresses(&self) -> bool {
        self.addresses.is_some()
    }

    /// Sets or removes the addresses.
    pub(crate) fn want_addresses(&self, are_up: bool) {
        if let Some(addresses) = &self.addresses {
            addresses.want(are_up);
        }
    }

    /// Begins work after the one under way. An order to stop ends that one first, and a look one that
    /// repeats itself.
    pub(crate) fn begin(&mut self, work: Work) {
        let before = self.task.take();
        let is_look = matches!(work, Work::Look);
        let was_look = std::mem::replace(&mut self.is_looking, is_look);
        let ends_other = matches!(work, Work::Stop { .. }) || is_look && was_look;
        if let Some(before) = before.as_ref().filter(|_| ends_other) {
            before.0.abort();
        }
        let worker = Worker {
            unit: Arc::clone(&self.unit),
            tools: Arc::clone(&self.tools),
            addresses: self.addresses.clone(),
        };
        self.task = Some(Task(tokio::spawn(async move {
            if let Some(mut before) = before {
                _ = (&mut before.0).await;
            }
            worker.carry_out(work).await;
        })));
    }
}

struct Worker {
    unit: Arc<Unit>,
    tools: Arc<Tools>,
    addresses: Option<Arc<Addresses>>,
}

impl Worker {
    async fn carry_out(self, work: Work) {
        match work {
            Work::Look => self.look().await,
            Work::Start(epoch) => self.start(epoch).await,
            Work::Serve { epoch, grace } => self.serve(epoch, grace).await,
            Work::Drain(epoch) => self.drain(epoch).await,
            Work::Leave { to, addresses, was_started } => {
                self.leave(addresses).await;
                if was_started {
                    self.note(Happening::Given { unit: self.name(), to });
                } else {
                    // Another node may be able to start it.
                    tokio::time::sleep(LOOK_AGAIN).await;
                    self.look().await;
                }
            }
            Work::Stop { epoch, why } => self.stop(epoch, why).await,
        }
    }

    fn name(&self) -> ShareName {
        self.unit.name.clone()
    }

    fn shares(&self) -> Arc<[Arc<str>]> {
        self.unit.shares.clone().into()
    }

    fn note(&self, what: Happening) {
        self.tools.notes.note(what);
    }

    async fn look(&self) {
        let mut told = None;
        loop {
            match self.tools.hands.look(&self.unit.name).await {
                Ok(fence) => {
                    let storage = Storage { fence };
                    self.tools.say(Statement::Ready { share: self.name(), storage });
                    return;
                }
                Err(why) => {
                    self.tools.say(Statement::Unable { share: self.name() });
                    if told.as_ref() != Some(&why) {
                        let what = Happening::NoStorage { unit: self.name(), why: why.clone() };
                        self.note(what);
                        told = Some(why);
                    }
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
            }
        }
    }

    async fn start(&self, epoch: Epoch) {
        let share = self.name();
        let started = match self.unit.shares.is_empty() {
            true => Ok(0),
            false => self.tools.served.start(self.shares()).await,
        };
        match started {
            Ok(opens) => {
                self.note(Happening::Restored { unit: self.name(), opens });
                self.tools.say(Statement::Restored { share, epoch });
            }
            Err(why) => {
                self.note(Happening::NotStarted { unit: self.name(), why });
                self.tools.say(Statement::NotRestored { share, epoch });
            }
        }
    }

    async fn serve(&self, epoch: Epoch, grace: Option<Duration>) {
        let served = match self.unit.shares.is_empty() {
            true => Ok(()),
            false => self.tools.served.serve(self.shares(), grace).await,
        };
        match served {
            Ok(()) => {
                if let Some(addresses) = &self.addresses {
                    addresses.want(true);
                }
                self.note(Happening::Serving { unit: self.name() });
            }
            Err(why) => {
                self.note(Happening::NotStarted { unit: self.name(), why });
                // Nobody would serve it: it is stopped, and free for another node.
                self.tools.say(Statement::StorageLost { share: self.name(), epoch });
            }
        }
    }

    async fn drain(&self, epoch: Epoch) {
        let share = self.name();
        let patience = self.tools.drain_patience;
        let addresses = self.addresses.clone();
        let leave = async move {
            if let Some(addresses) = addresses {
                addresses.lowered().await;
            }
        };
        let drained = if self.unit.shares.is_empty() {
            leave.await;
            Ok(())
        } else {
            self.tools.served.drain(self.shares(), patience, Box::pin(leave)).await
        };
        match drained {
            Ok(()) => self.tools.say(Statement::Drained { share, epoch }),
            Err(why) => {
                self.note(Happening::NotGiven { unit: self.name(), why });
                self.tools.say(Statement::NotDrained { share, epoch });
            }
        }
    }

    async fn leave(&self, addresses: Vec<SocketAddr>) {
        let left = match self.unit.shares.is_empty() {
            true => Ok(()),
            false => self.tools.served.leave(self.shares(), addresses).await,
        };
        if let Err(why) = left {
            tracing::error!(target: "frevo::cluster", unit = %self.unit.name,
                "the server did not leave a unit that was given away: {why}");
        }
    }

    async fn stop_shares(&self) -> Result<(), String> {
        match self.unit.shares.is_empty() {
            true => Ok(()),
            false => self.tools.served.stop(self.shares()).await,
        }
    }

    async fn stop(&self, epoch: Epoch, why: StopReason) {
        // Another node serves the unit when this one has said that it is stopped, so a fault is never
        // said to be that.
        while let Err(why) = self.stop_shares().await {
            tracing::error!(target: "frevo::cluster", unit = %self.unit.name,
                "the server did not stop a unit, and is told so again: {why}");
            tokio::time::sleep(STOP_AGAIN).await;
        }
        self.note(Happening::Stopped { unit: self.name(), why });
        self.tools.say(Statement::Stopped { share: self.name(), epoch });
        self.look().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    use frevo_cluster::fence::Fence;
    use frevo_etcd::engine::Moment;
    use frevo_server::Server;
    use tokio::time::sleep;

    use crate::hands::Call;

    /// Storage that cannot be used.
    struct NoStorage;

    fn refused<T: Send + 'static>() -> Call<'static, Result<T, String>> {
        Box::pin(std::future::ready(Err("it does not answer".to_owned())))
    }

    impl Hands for NoStorage {
        fn look<'a>(&'a self, _: &'a ShareName) -> Call<'a, Result<Fence, String>> {
            refused()
        }

        fn fence<'a>(&'a self, _: &'a Fence) -> Call<'a, Result<(), String>> {
            refused()
        }

        fn raise<'a>(&'a self, _: &'a ShareName) -> Call<'a, Result<(), String>> {
            refused()
        }

        fn lower<'a>(&'a self, _: &'a ShareName) -> Call<'a, Result<(), String>> {
            refused()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn no_work_outlives_its_unit() {
        let hands = Arc::new(NoStorage);
        let still_used = Arc::downgrade(&hands);
        let tools = Arc::new(Tools {
            inbox: Arc::default(),
            served: Arc::new(Server::builder().build().unwrap()),
            hands,
            notes: Arc::new(Notes::new(Arc::new(Moment::default), None)),
            drain_patience: Duration::from_secs(1),
        });
        let unit = Unit::of_share(ShareName::new("share").unwrap());
        let mut work = UnitWork::new(Arc::new(unit), tools);
        work.begin(Work::Stop { epoch: Epoch(1), why: StopReason::StorageLost });
        sleep(LOOK_AGAIN).await;
        // The stop ends with a look that goes on without end. This one waits for it.
        work.begin(Work::Look);
        sleep(LOOK_AGAIN).await;
        assert!(still_used.upgrade().is_some());
        drop(work);
        sleep(LOOK_AGAIN).await;
        assert!(still_used.upgrade().is_none(), "the look goes on");
    }
}
