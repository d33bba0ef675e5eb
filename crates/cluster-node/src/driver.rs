//! The driver: gives the machine its inputs, and carries out its outputs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;

use frevo_cluster::fence::Fence;
use frevo_cluster::interface::{
    Answer, CommandId, Input, LoadPart, Order, Output, RecordEnd, Request, RequestId, Statement,
    Ticket,
};
use frevo_cluster::names::{NodeName, ShareName};
use frevo_cluster::values::RecordForm;
use frevo_cluster::view::View;
use frevo_etcd::engine::{Engine, Moment, Watching};
use frevo_etcd::types::LeaseId;
use frevo_store::state::{Done, ServeLimit, StateFault};

use crate::happening::Happening;
use crate::ids::NodeIds;
use crate::inbox::{Change, CommandEnd, Inbox, Loading, Message};
use crate::limits::MESSAGES_AT_ONCE;
use crate::loads::{Gathering, Waiter};
use crate::owners::Owners;
use crate::shared::Shared;
use crate::table::Table;
use crate::telling::Telling;
use crate::unit::Unit;
use crate::work::{Tools, UnitWork, Work};

/// The driver of a node.
pub(crate) struct Driver {
    pub(crate) shared: Arc<Shared>,
    pub(crate) inbox: Arc<Inbox>,
    pub(crate) table: Arc<Table>,
    pub(crate) limit: Arc<ServeLimit>,
    pub(crate) ids: Arc<NodeIds>,
    pub(crate) engine: Arc<dyn Engine>,
    pub(crate) tools: Arc<Tools>,
    pub(crate) telling: Telling,
    pub(crate) state: State,
}

/// The things under way.
#[derive(Default)]
pub(crate) struct State {
    /// The watch, which is told while it is kept.
    watching: Option<Watching>,
    units: BTreeMap<ShareName, UnitWork>,
    /// The number of the last ticket or command.
    last: u64,
    are_owners_known: bool,
    owners: Owners,
    /// The form of records that the server was told.
    record_form: Option<RecordForm>,
    changes: BTreeMap<Ticket, Done>,
    loads: BTreeMap<Ticket, Gathering>,
    commands: BTreeMap<CommandId, CommandEnd>,
}

impl Drop for Driver {
    /// Ends the node at once: nothing more is served, and nothing that waits is answered well.
    fn drop(&mut self) {
        self.limit.set(std::time::Duration::ZERO);
        self.inbox.close();
        for done in std::mem::take(&mut self.state.changes).into_values() {
            done(Err(StateFault::Fenced));
        }
        for load in std::mem::take(&mut self.state.loads).into_values() {
            load.fail(&StateFault::Fenced);
        }
    }
}

/// A fence that is ordered for one unit or several.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Former {
    node: NodeName,
    lease: LeaseId,
    /// Its identity as text, by which identities have an order.
    fence: String,
}

impl Driver {
    /// Runs until it is dropped.
    pub(crate) async fn run(mut self) {
        for unit in self.table.all() {
            self.begin_unit(&unit);
        }
        self.carry_out();
        loop {
            for message in self.inbox.take(MESSAGES_AT_ONCE) {
                self.take_in(message);
            }
            let now = self.shared.now();
            let timer = self.shared.machine.lock().timer();
            match timer {
                Some(timer) if timer <= now => {
                    self.input(Input::Time);
                    tokio::task::yield_now().await;
                }
                _ if self.inbox.has_more() => tokio::task::yield_now().await,
                Some(timer) => {
                    let rest = timer.0.saturating_sub(now.0);
                    // Its end is the same as that of a message: both are looked for.
                    _ = tokio::time::timeout(rest, self.inbox.filled()).await;
                }
                None => self.inbox.filled().await,
            }
        }
    }

    fn number(&mut self) -> u64 {
        self.state.last = self.state.last.wrapping_add(1);
        self.state.last
    }

    fn begin_unit(&mut self, unit: &Arc<Unit>) {
        let work = UnitWork::new(Arc::clone(unit), Arc::clone(&self.tools));
        self.state.units.insert(unit.name.clone(), work);
    }

    fn take_in(&mut self, message: Message) {
        match message {
            Message::Answer(id, answer) => self.input(Input::Answer { id, answer }),
            Message::Watched(id, answer) => self.input(Input::Watched { id, answer }),
            Message::Statement(statement) => self.state_it(statement),
            Message::Command(command, done) => {
                let id = CommandId(self.number());
                self.state.commands.insert(id, done);
                self.input(Input::Command { id, command });
            }
            Message::Change(Change { unit, epoch, change, done }) => {
                let ticket = Ticket(self.number());
                self.state.changes.insert(ticket, done);
                self.input(Input::Record { share: unit, epoch, change, ticket });
            }
            Message::Load(load) => self.load(load),
            Message::StorageLost(unit) => {
                let epoch = self.state.units.get(&unit).and_then(|unit| unit.epoch);
                if let Some(epoch) = epoch {
                    let lost = Statement::StorageLost { share: unit, epoch };
                    self.input(Input::Statement(lost));
                }
            }
            Message::Unit(unit) => self.set_unit(unit),
        }
    }

    fn state_it(&mut self, statement: Statement) {
        match &statement {
            Statement::Restored { share, .. } => {
                if let Some(unit) = self.state.units.get_mut(share) {
                    unit.is_started = true;
                }
            }
            Statement::NotDrained { share, epoch } => {
                // After the limit, or a stop, another node may have the unit with its addresses.
                let may_serve = self.limit.allows(self.shared.now().0);
                let unit = self.state.units.get_mut(share);
                if let Some(unit) = unit.filter(|unit| unit.epoch == Some(*epoch)) {
                    unit.is_serving = true;
                    unit.want_addresses(may_serve);
                }
            }
            _ => {}
        }
        self.input(Input::Statement(statement));
    }

    /// Takes in a unit that a reload has added or changed.
    fn set_unit(&mut self, unit: Unit) {
        let id = CommandId(self.number());
        let settings = unit.settings();
        let unit = self.table.set(unit);
        let command = frevo_cluster::interface::Command::Share(settings);
        self.input(Input::Command { id, command });
        match self.state.units.get_mut(&unit.name) {
            Some(work) => work.set_unit(unit),
            None => self.begin_unit(&unit),
        }
        self.telling.note_change();
    }

    fn load(&mut self, load: Loading) {
        let Loading { unit, share, done } = load;
        let waiter = Waiter { share, done };
        let Some(epoch) = self.state.units.get(&unit).and_then(|unit| unit.epoch) else {
            (waiter.done)(Err(StateFault::Fenced));
            return;
        };
        let mut under_way = self.state.loads.values_mut();
        if let Some(load) = under_way.find(|load| load.unit == unit && load.epoch == epoch) {
            load.waiters.push(waiter);
            return;
        }
        let ticket = Ticket(self.number());
        let (records, waiters) = (Vec::new(), vec![waiter]);
        let gathering = Gathering { unit: unit.clone(), epoch, records, waiters };
        self.state.loads.insert(ticket, gathering);
        self.input(Input::Load { share: unit, epoch, ticket });
    }

    /// Gives the machine an input, and carries out its outputs.
    fn input(&mut self, input: Input) {
        let has_keys = matches!(input, Input::Watched { .. }) || !self.state.are_owners_known;
        let now = self.shared.now();
        self.shared.machine.lock().handle(now, input);
        if has_keys {
            self.state.are_owners_known = self.shared.note_owners(now);
            self.tell_record_form();
            self.telling.note_change();
        }
        self.tell_owners();
        self.carry_out();
    }

    /// Tells the server the owners of units that have changed.
    fn tell_owners(&mut self) {
        let changed = self.state.owners.look(&self.shared.machine.lock(), &self.table);
        for one in changed {
            self.tools.served.set_owner(&one.unit.shares, &one.addresses);
        }
    }

    /// Tells the server the newest form of records that all nodes read, if it has changed. It comes before
    /// the first share is started.
    fn tell_record_form(&mut self) {
        let form = self.shared.machine.lock().view().and_then(View::record_form);
        if form.is_some() && form != self.state.record_form {
            self.state.record_form = form;
            form.into_iter().for_each(|form| self.tools.served.set_record_form(form));
        }
    }

    /// Carries out the outputs of the machine, in their order. Callbacks that they cause come back as
    /// messages.
    fn carry_out(&mut self) {
        let mut fences: BTreeMap<Former, Vec<ShareName>> = BTreeMap::new();
        loop {
            let output = self.shared.machine.lock().poll();
            match output {
                None => break,
                Some(Output::Request(id, request)) => self.request(id, request),
                Some(Output::Order(Order::Fence { share, node, lease, fence })) => {
                    let former = Former { node, lease, fence: fence.to_text() };
                    fences.entry(former).or_default().push(share);
                }
                Some(Output::Order(order)) => self.follow(order),
                Some(Output::RecordDone(ticket, end)) => self.end_change(ticket, end),
                Some(Output::Loaded(ticket, part)) => self.loaded(ticket, part),
                Some(Output::CommandDone(id, end)) => {
                    if let Some(done) = self.state.commands.remove(&id) {
                        // The caller may have gone.
                        _ = done.send(end);
                    }
                }
                Some(Output::Event(event)) => self.tools.notes.note(Happening::Noted(event)),
            }
        }
        for (former, units) in fences {
            self.fence(former, units);
        }
    }

    fn request(&mut self, id: RequestId, request: Request) {
        let inbox = Arc::clone(&self.inbox);
        let answer = move |answer| inbox.push(Message::Answer(id, answer));
        match request {
            Request::Grant(ttl) => {
                let done = Box::new(move |end: Result<_, _>| answer(end.map(Answer::Confirmed)));
                self.engine.grant(ttl, done);
            }
            Request::KeepAlive(lease) => {
                let done = Box::new(move |end: Result<_, _>| answer(end.map(Answer::Confirmed)));
                self.engine.keep_alive(lease, done);
            }
            Request::Revoke(lease) => {
                let done =
                    Box::new(move |end: Result<(), _>| answer(end.map(|()| Answer::Revoked)));
                self.engine.revoke(lease, done);
            }
            Request::Txn(txn) => {
                let done = Box::new(move |end: Result<_, _>| answer(end.map(Answer::Txn)));
                self.engine.txn(txn, done);
            }
            Request::Watch { prefix, after } => {
                let inbox = Arc::clone(&self.inbox);
                let tell = Box::new(move |answer| inbox.push(Message::Watched(id, answer)));
                // The one before ends first: it need not be told any longer.
                self.state.watching = None;
                self.state.watching = Some(self.engine.watch(prefix, after, tell));
            }
        }
    }

    fn follow(&mut self, order: Order) {
        match order {
            Order::ServeUntil(until) => self.set_limit(until),
            Order::Resume(until) => {
                self.set_limit(until);
                self.want_addresses(true);
                self.tools.notes.note(Happening::Resumed);
            }
            Order::Pause => {
                self.want_addresses(false);
                self.tools.notes.note(Happening::Paused);
            }
            Order::Generation(generation) => self.ids.set(generation),
            Order::Dialect(max) => self.tools.served.set_dialect(max),
            // `carry_out` has those of one identity done once.
            Order::Fence { share, node, lease, fence } => {
                self.fence(Former { node, lease, fence: fence.to_text() }, vec![share]);
            }
            Order::Renew { share } => self.begin(&share, Work::Look),
            Order::Start { share, epoch, reason } => {
                let unit = share.clone();
                self.tools.notes.note(Happening::Taken { unit, epoch, reason });
                if let Some(unit) = self.state.units.get_mut(&share) {
                    (unit.epoch, unit.is_started) = (Some(epoch), false);
                    unit.begin(Work::Start(epoch));
                }
            }
            Order::Serve { share, epoch, grace } => {
                let now = self.shared.now();
                let grace = grace.map(|until: Moment| until.0.saturating_sub(now.0));
                if let Some(unit) = self.state.units.get_mut(&share) {
                    unit.is_serving = true;
                    unit.begin(Work::Serve { epoch, grace });
                }
            }
            Order::Drain { share, epoch, .. } => {
                if let Some(unit) = self.state.units.get_mut(&share) {
                    unit.is_serving = false;
                    unit.begin(Work::Drain(epoch));
                }
            }
            Order::Left { share, to, .. } => self.leave(&share, to),
            Order::Stop { share, epoch, why } => {
                if let Some(unit) = self.state.units.get_mut(&share) {
                    (unit.epoch, unit.is_serving) = (None, false);
                    unit.want_addresses(false);
                    unit.begin(Work::Stop { epoch, why });
                }
            }
        }
    }

    fn set_limit(&self, until: Moment) {
        self.limit.set(until.0);
        self.tools.hands.serve_until(until);
    }

    fn begin(&mut self, share: &ShareName, work: Work) {
        if let Some(unit) = self.state.units.get_mut(share) {
            unit.begin(work);
        }
    }

    fn leave(&mut self, share: &ShareName, to: Option<NodeName>) {
        let addresses = self.addresses_of(share, to.as_ref());
        if let Some(unit) = self.state.units.get_mut(share) {
            (unit.epoch, unit.is_serving) = (None, false);
            let was_started = std::mem::take(&mut unit.is_started);
            unit.begin(Work::Leave { to, addresses, was_started });
        }
    }

    /// The addresses that clients of a unit may be told. None for one with addresses of its own: these
    /// move with it.
    fn addresses_of(&self, share: &ShareName, to: Option<&NodeName>) -> Vec<SocketAddr> {
        let has_own = self.state.units.get(share).is_some_and(UnitWork::has_addresses);
        let Some(to) = to.filter(|_| !has_own) else { return Vec::new() };
        let machine = self.shared.machine.lock();
        let entry = machine.view().and_then(|view| view.nodes.get(to));
        let value = entry.and_then(|entry| entry.value.as_ref());
        value.map(|value| value.addresses.clone()).unwrap_or_default()
    }

    /// Sets or removes the addresses of all units that are served.
    fn want_addresses(&self, are_up: bool) {
        for unit in self.state.units.values() {
            unit.want_addresses(are_up && unit.is_serving);
        }
    }

    /// Has the storage refuse an identity, once for all units that it is ordered for.
    fn fence(&self, former: Former, units: Vec<ShareName>) {
        let tools = Arc::clone(&self.tools);
        drop(tokio::spawn(async move {
            let Former { node, lease, fence } = former;
            let fenced = match Fence::from_text(&fence) {
                Ok(fence) => {
                    let kind = fence.kind();
                    tools.hands.fence(&fence).await.map(|()| kind)
                }
                Err(wrong) => Err(wrong.to_string()),
            };
            let is_fenced = fenced.is_ok();
            tools.notes.note(match fenced {
                Ok(kind) => Happening::Fenced { node, kind },
                Err(why) => Happening::NotFenced { node, why },
            });
            for share in units {
                let statement = match is_fenced {
                    true => Statement::Fenced { share, lease },
                    false => Statement::FenceFailed { share, lease },
                };
                tools.inbox.push(Message::Statement(statement));
            }
        }));
    }

    fn end_change(&mut self, ticket: Ticket, end: RecordEnd) {
        let Some(done) = self.state.changes.remove(&ticket) else { return };
        done(match end {
            RecordEnd::Done => Ok(()),
            RecordEnd::Fenced => Err(StateFault::Fenced),
            RecordEnd::Failed(why) => Err(StateFault::Failed(why)),
        });
    }

    fn loaded(&mut self, ticket: Ticket, part: LoadPart) {
        let end = match part {
            LoadPart::Records(records) => {
                if let Some(load) = self.state.loads.get_mut(&ticket) {
                    load.records.extend(records);
                }
                return;
            }
            LoadPart::Again => {
                if let Some(load) = self.state.loads.get_mut(&ticket) {
                    load.records.clear();
                }
                return;
            }
            LoadPart::End => Ok(()),
            LoadPart::Fenced => Err(StateFault::Fenced),
            LoadPart::Failed(why) => Err(StateFault::Failed(why)),
        };
        let Some(load) = self.state.loads.remove(&ticket) else { return };
        match end {
            Ok(()) => load.end(),
            Err(fault) => load.fail(&fault),
        }
    }
}
