//! Nodes without servers, in one order of events.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use frevo_cluster::fence::Fence;
use frevo_cluster::interface::{
    Answer, Input, LoadPart, Order, Output, RecordChange, RecordEnd, Request, RequestId, Statement,
    Ticket,
};
use frevo_cluster::keys::Layout;
use frevo_cluster::model::Etcd;
use frevo_cluster::names::{ClusterName, NodeName, ShareName};
use frevo_cluster::settings::{Settings, ShareSettings, Storage, Timing};
use frevo_cluster::values::RecordForm;
use frevo_cluster::{ClusterDialect, Epoch, Machine, RecordId};
use frevo_etcd::engine::Moment;
use frevo_etcd::types::{Change, Op, OpAnswer, Revision, WatchAnswer};

use super::{ROUND, Size};
use crate::dice::Dice;

/// Bytes of a record, of an Open with a lease and a lock.
const RECORD: usize = 600;

/// Time that a fence takes.
const FENCE: Duration = Duration::from_millis(1);

/// The longest time for which something is waited for.
const PATIENCE: Duration = Duration::from_secs(600);

/// Changes of records after which etcd is compacted: so many are less than those of five minutes.
const COMPACTED_AFTER: u64 = 100_000;

/// Requests and their bytes since the last look.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Counted {
    pub(super) transactions: u64,
    pub(super) changes: u64,
    pub(super) keep_alives: u64,
    pub(super) told: u64,
    /// Bytes of keys and values that were written.
    pub(super) written: usize,
    /// Bytes of keys and values that transactions read.
    pub(super) read: usize,
    /// Bytes of keys and values that watches told.
    pub(super) told_bytes: usize,
    pub(super) loaded: usize,
    pub(super) parts: usize,
}

enum Event {
    /// A request comes to etcd.
    Request { node: usize, id: RequestId, request: Request },
    /// Something comes to a node.
    Input { node: usize, input: Input },
    /// A watch tells what has changed.
    Watch { node: usize },
    /// The timer of a machine.
    Timer { node: usize, at: Moment },
}

struct Node {
    /// None for a node that has died.
    machine: Option<Machine>,
    watch: Option<(RequestId, Revision)>,
    is_watch_due: bool,
    owned: BTreeMap<ShareName, Epoch>,
    loads: BTreeMap<Ticket, (ShareName, Epoch)>,
}

/// The nodes and their etcd.
pub(super) struct Cluster {
    size: Size,
    now: Duration,
    etcd: Etcd,
    layout: Layout,
    shares: Vec<ShareName>,
    nodes: Vec<Node>,
    served: BTreeSet<ShareName>,
    events: BTreeMap<(Duration, u64), Event>,
    last_event: u64,
    last_ticket: u64,
    /// Changes of records that have not ended.
    waiting: u64,
    counted: Counted,
    /// Counts of the model that were told already.
    before: frevo_cluster::model::Counts,
    since_compaction: u64,
    lease_ended: Duration,
    longest_load: Duration,
    failures: Vec<String>,
    dice: Dice,
}

#[allow(clippy::expect_used, reason = "the names are good ones")]
fn share(number: usize) -> ShareName {
    ShareName::new(&format!("share{number}")).expect("a name without control characters")
}

impl Cluster {
    /// Nodes that start now.
    #[allow(clippy::expect_used, reason = "the name is a good one")]
    pub(super) fn new(size: Size) -> Self {
        let name = ClusterName::new("large").expect("a name without other characters");
        let mut cluster = Self {
            size,
            now: Duration::from_secs(1),
            etcd: Etcd::default(),
            layout: Layout::new(&name),
            shares: (0..size.shares).map(share).collect(),
            nodes: Vec::new(),
            served: BTreeSet::new(),
            events: BTreeMap::new(),
            last_event: 0,
            last_ticket: 0,
            waiting: 0,
            counted: Counted::default(),
            before: frevo_cluster::model::Counts::default(),
            since_compaction: 0,
            lease_ended: Duration::ZERO,
            longest_load: Duration::ZERO,
            failures: Vec::new(),
            dice: Dice::new(1, 1),
        };
        for node in 0..size.nodes {
            cluster.nodes.push(Node {
                machine: None,
                watch: None,
                is_watch_due: false,
                owned: BTreeMap::new(),
                loads: BTreeMap::new(),
            });
            cluster.start(node);
        }
        cluster
    }

    #[allow(clippy::expect_used, reason = "the names are good ones")]
    fn start(&mut self, node: usize) {
        let settings = Settings {
            cluster: ClusterName::new("large").expect("a name without other characters"),
            node: NodeName::new(&format!("node{node}")).expect("a name without other characters"),
            timing: Timing::default(),
            addresses: vec![([10, 0, 0, u8::try_from(node).unwrap_or(0)], 445).into()],
            weight: 1,
            software: String::from("frevo"),
            dialect: ClusterDialect::LARGEST,
            shares: self
                .shares
                .iter()
                .map(|name| ShareSettings { name: name.clone(), weight: 1 })
                .collect(),
            predecessor: None,
            grace: Duration::from_secs(15),
            records: RecordForm::TOLD_BY_NONE,
        };
        self.nodes[node].machine = Some(Machine::new(settings, Moment(self.now)));
        for share in self.shares.clone() {
            self.ready(node, share, Duration::ZERO);
        }
        self.carry_out(node);
    }

    fn ready(&mut self, node: usize, share: ShareName, after: Duration) {
        let connection = u32::try_from(node).unwrap_or(0);
        let fence = Fence::Fuse { connection, host: "host".into() };
        let statement = Statement::Ready { share, storage: Storage { fence } };
        self.later(after, Event::Input { node, input: Input::Statement(statement) });
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.last_event += 1;
        self.events.insert((self.now + after, self.last_event), event);
    }

    /// Lets things happen until `end`.
    fn run_to(&mut self, end: Duration) {
        while self.step(end) {}
        self.now = self.now.max(end);
    }

    /// Lets the next thing happen. False if nothing happens before `end`.
    fn step(&mut self, end: Duration) -> bool {
        let next = self.events.first_key_value().map(|(key, _)| *key);
        let at = next.map_or(end, |(at, _)| at);
        if let Some(lease) = self.etcd.next_end().filter(|lease| lease.0 <= at.min(end)) {
            self.now = self.now.max(lease.0);
            self.pass();
            return true;
        }
        let Some(key) = next.filter(|(at, _)| *at <= end) else { return false };
        self.now = key.0;
        if let Some(event) = self.events.remove(&key) {
            self.happen(event);
        }
        true
    }

    fn pass(&mut self) {
        let before = self.etcd.revision();
        self.etcd.pass(Moment(self.now));
        if self.etcd.revision() != before {
            self.lease_ended = self.now;
            self.wake_watches();
        }
    }

    fn wake_watches(&mut self) {
        for node in 0..self.nodes.len() {
            let is_due = self.nodes[node].watch.is_some() && !self.nodes[node].is_watch_due;
            if is_due {
                self.nodes[node].is_watch_due = true;
                self.later(ROUND / 2, Event::Watch { node });
            }
        }
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Request { node, id, request } => self.arrive(node, id, &request),
            Event::Input { node, input } => self.input(node, input),
            Event::Watch { node } => self.tell(node),
            Event::Timer { node, at } => {
                let machine = self.nodes[node].machine.as_ref();
                if machine.is_some_and(|machine| machine.timer() == Some(at)) {
                    self.input(node, Input::Time);
                }
            }
        }
    }

    fn arrive(&mut self, node: usize, id: RequestId, request: &Request) {
        self.pass();
        let before = self.etcd.revision();
        let answer = self.etcd.call(request);
        if let (Request::Txn(txn), Ok(Answer::Txn(answer))) = (request, &answer) {
            let ops = if answer.succeeded { &txn.success } else { &txn.failure };
            let written = |op: &Op| match op {
                Op::Put { key, value, .. } => key.len() + value.len(),
                _ => 0,
            };
            self.counted.written += ops.iter().map(written).sum::<usize>();
            let read = |answer: &OpAnswer| match answer {
                OpAnswer::Range { values, .. } => {
                    values.iter().map(|entry| entry.key.len() + entry.value.len()).sum()
                }
                _ => 0,
            };
            self.counted.read += answer.answers.iter().map(read).sum::<usize>();
        }
        if self.etcd.revision() > before {
            self.since_compaction += self.etcd.revision().0 - before.0;
            // No watch tells records.
            let is_of_records = matches!(request, Request::Txn(txn) if self.is_of_records(txn));
            if !is_of_records {
                self.wake_watches();
            }
        }
        self.later(ROUND / 2, Event::Input { node, input: Input::Answer { id, answer } });
    }

    fn is_of_records(&self, txn: &frevo_etcd::types::Txn) -> bool {
        let prefix = self.layout.control_prefix();
        !txn.success.iter().any(|op| match op {
            Op::Put { key, .. } => key.starts_with(&prefix),
            Op::Delete(keys) => match keys {
                frevo_etcd::types::Keys::One(key) | frevo_etcd::types::Keys::Prefix(key) => {
                    key.starts_with(&prefix)
                }
            },
            Op::Range(_) => false,
        })
    }

    fn tell(&mut self, node: usize) {
        self.nodes[node].is_watch_due = false;
        let Some((id, told)) = self.nodes[node].watch else { return };
        let Ok(answer) = self.etcd.watch(&self.layout.control_prefix(), told) else { return };
        let WatchAnswer::Changes { revision, changes } = &answer else {
            return self.failures.push(String::from("a watch is behind"));
        };
        self.nodes[node].watch = Some((id, *revision));
        if changes.is_empty() {
            return;
        }
        let bytes = |change: &Change| match change {
            Change::Put(entry) => entry.key.len() + entry.value.len(),
            Change::Delete { key, .. } => key.len(),
        };
        self.counted.told_bytes += changes.iter().map(bytes).sum::<usize>();
        self.input(node, Input::Watched { id, answer: Ok(answer) });
    }

    fn input(&mut self, node: usize, input: Input) {
        let Some(machine) = &mut self.nodes[node].machine else { return };
        machine.handle(Moment(self.now), input);
        self.carry_out(node);
    }

    fn carry_out(&mut self, node: usize) {
        while let Some(output) = self.nodes[node].machine.as_mut().and_then(Machine::poll) {
            match output {
                Output::Request(id, Request::Watch { after, .. }) => {
                    self.nodes[node].watch = Some((id, after));
                    self.wake_watches();
                }
                Output::Request(id, request) => {
                    self.later(ROUND / 2, Event::Request { node, id, request });
                }
                Output::Order(order) => self.follow(node, order),
                Output::RecordDone(_, RecordEnd::Done) => self.waiting -= 1,
                Output::RecordDone(_, end) => self.failures.push(format!("a record: {end:?}")),
                Output::Loaded(ticket, part) => self.loaded(node, ticket, part),
                Output::CommandDone(..) | Output::Event(_) => {}
            }
        }
        let Some(at) = self.nodes[node].machine.as_ref().and_then(Machine::timer) else { return };
        let after = at.0.saturating_sub(self.now);
        self.later(after, Event::Timer { node, at });
    }

    fn say(&mut self, node: usize, after: Duration, statement: Statement) {
        self.later(after, Event::Input { node, input: Input::Statement(statement) });
    }

    fn follow(&mut self, node: usize, order: Order) {
        match order {
            Order::Fence { share, lease, .. } => {
                self.say(node, FENCE, Statement::Fenced { share, lease })
            }
            Order::Drain { share, epoch, .. } => {
                self.say(node, ROUND, Statement::Drained { share, epoch })
            }
            Order::Renew { share } => self.ready(node, share, ROUND),
            Order::Start { share, epoch, .. } => {
                self.last_ticket += 1;
                let ticket = Ticket(self.last_ticket);
                self.nodes[node].loads.insert(ticket, (share.clone(), epoch));
                let load = Input::Load { share, epoch, ticket };
                self.later(Duration::ZERO, Event::Input { node, input: load });
            }
            Order::Serve { share, epoch, .. } => {
                self.longest_load = self.now.saturating_sub(self.lease_ended);
                self.nodes[node].owned.insert(share.clone(), epoch);
                self.served.insert(share);
            }
            Order::Stop { share, epoch, .. } => {
                self.nodes[node].owned.remove(&share);
                self.served.remove(&share);
                self.say(node, ROUND, Statement::Stopped { share: share.clone(), epoch });
                self.ready(node, share, ROUND * 2);
            }
            Order::Left { share, .. } => {
                self.nodes[node].owned.remove(&share);
                self.served.remove(&share);
            }
            Order::ServeUntil(_) | Order::Resume(_) | Order::Generation(_) | Order::Dialect(_) => {}
            Order::Pause => self.failures.push(format!("node {node} pauses")),
        }
    }

    fn loaded(&mut self, node: usize, ticket: Ticket, part: LoadPart) {
        match part {
            LoadPart::Records(records) => {
                self.counted.loaded += records.len();
                self.counted.parts += 1;
            }
            LoadPart::End => {
                let Some((share, epoch)) = self.nodes[node].loads.remove(&ticket) else { return };
                let restored = Input::Statement(Statement::Restored { share, epoch });
                self.later(Duration::ZERO, Event::Input { node, input: restored });
            }
            LoadPart::Again | LoadPart::Fenced | LoadPart::Failed(_) => {
                self.failures.push(format!("a load: {part:?}"));
            }
        }
    }
}

/// The parts of the run.
impl Cluster {
    /// Lets things happen until something holds. Returns the time that it took.
    pub(super) fn until(
        &mut self,
        what: &str,
        holds: impl Fn(&Self) -> bool,
    ) -> Result<Duration, String> {
        let begin = self.now;
        while !holds(self) {
            if !self.step(begin + PATIENCE) {
                return Err(format!("{what}: not within {} s", PATIENCE.as_secs()));
            }
            if let Some(failure) = self.failures.first() {
                return Err(format!("{what}: {failure}"));
            }
            self.compact_at_times();
        }
        Ok(self.now - begin)
    }

    /// Forgets old changes, as etcd does each five minutes.
    fn compact_at_times(&mut self) {
        if self.since_compaction >= COMPACTED_AFTER {
            self.since_compaction = 0;
            // All that was changed has been told, or is told now.
            for node in 0..self.nodes.len() {
                self.tell(node);
            }
            self.etcd.compact();
        }
    }

    pub(super) fn are_all_served(&self) -> bool {
        self.served.len() == self.shares.len()
    }

    /// Returns what was counted since the last call.
    pub(super) fn counted(&mut self) -> Counted {
        let counts = self.etcd.counts();
        let before = std::mem::replace(&mut self.before, counts);
        let counted = std::mem::take(&mut self.counted);
        Counted {
            transactions: counts.transactions - before.transactions,
            changes: counts.changes - before.changes,
            keep_alives: counts.keep_alives - before.keep_alives,
            told: counts.told - before.told,
            ..counted
        }
    }

    /// The number of keys in etcd, and their bytes.
    pub(super) fn size(&self) -> (usize, usize) {
        self.etcd.size()
    }

    /// The number of keys that all nodes watch, and their bytes.
    pub(super) fn control_size(&self) -> (usize, usize) {
        let prefix = self.layout.control_prefix();
        let entries = self.etcd.all(&prefix).map(|entry| entry.key.len() + entry.value.len());
        entries.fold((0, 0), |(keys, bytes), more| (keys + 1, bytes + more))
    }

    /// The owner of a share.
    fn owner(&self, share: &ShareName) -> Option<(usize, Epoch)> {
        let mut nodes = self.nodes.iter().enumerate();
        nodes.find_map(|(number, node)| Some((number, *node.owned.get(share)?)))
    }

    fn change(&mut self, owner: (usize, Epoch), share: &ShareName, change: RecordChange) {
        self.last_ticket += 1;
        self.waiting += 1;
        let (node, epoch) = owner;
        let ticket = Ticket(self.last_ticket);
        self.input(node, Input::Record { share: share.clone(), epoch, change, ticket });
    }

    fn put(&mut self, share: &ShareName, id: u64) -> Result<(), String> {
        let owner = self.owner(share).ok_or_else(|| format!("{share} has no owner"))?;
        self.change(owner, share, RecordChange::Put(RecordId(id), vec![0x55; RECORD]));
        Ok(())
    }

    fn all_done(&self) -> bool {
        self.waiting == 0
    }

    /// Makes the records of all handles at once, and waits for them. Returns the time that it took.
    pub(super) fn open_all(&mut self, handles: u64) -> Result<Duration, String> {
        let each = handles / self.size.shares as u64;
        for share in self.shares.clone() {
            for id in 1..=each {
                self.put(&share, id)?;
            }
        }
        self.until("all handles are opened", Self::all_done)
    }

    /// All clients have lost their connections: each handle's record changes once more.
    pub(super) fn return_all(&mut self, handles: u64) -> Result<Duration, String> {
        self.open_all(handles)
    }

    /// Lets time pass without work.
    pub(super) fn rest(&mut self, time: Duration) {
        self.run_to(self.now + time);
    }

    /// Spreads changes of records over a time: of four, three put a record, and one removes it.
    pub(super) fn work(&mut self, changes: u64, time: Duration) -> Result<(), String> {
        let begin = self.now;
        let each = self.size.handles / self.size.shares as u64;
        for number in 0..changes {
            self.run_to(
                begin
                    + time * u32::try_from(number).unwrap_or(0)
                        / u32::try_from(changes).unwrap_or(1),
            );
            let share = self.dice.pick(&self.shares).clone();
            let id = RecordId(1 + self.dice.below(each.max(1)));
            let owner = self.owner(&share).ok_or_else(|| format!("{share} has no owner"))?;
            let change = match number % 4 {
                3 => RecordChange::Remove(id),
                _ => RecordChange::Put(id, vec![0x55; RECORD]),
            };
            self.change(owner, &share, change);
        }
        self.run_to(begin + time);
        self.compact_at_times();
        Ok(())
    }

    /// The first node dies.
    pub(super) fn kill_first(&mut self) {
        self.nodes[0].machine = None;
        self.nodes[0].watch = None;
        for share in std::mem::take(&mut self.nodes[0].owned).into_keys() {
            self.served.remove(&share);
        }
    }

    /// The first node starts again.
    pub(super) fn start_first(&mut self) {
        self.start(0);
    }

    pub(super) fn is_first_registered(&self) -> bool {
        self.nodes[0].machine.as_ref().is_some_and(|machine| machine.status().is_registered)
    }

    /// The time from the end of a lease until the last share was served.
    pub(super) fn take_longest_load(&mut self) -> Duration {
        std::mem::take(&mut self.longest_load)
    }

    #[cfg(test)]
    pub(super) fn lose_majority(&mut self) {
        self.etcd.set_majority(false);
    }
}
