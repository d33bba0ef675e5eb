//! Nodes, their clocks and servers, the way to etcd, and storage, in true time.

use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::time::Duration;

use frevo_etcd::engine::Moment;
use frevo_etcd::types::{LeaseId, Revision};

use super::judge::Judge;
use super::server::Server;
use crate::Epoch;
use crate::ids::IdSpace;
use crate::interface::{
    Answer, Command, Event as Note, Input, Output, Request, RequestId, Statement,
};
use crate::keys::Layout;
use crate::machine::Machine;
use crate::model::Etcd;
use crate::names::{ClusterName, NodeName, ShareName};

/// Random numbers of a seed.
#[derive(Debug)]
pub(super) struct Dice(pub(super) u64);

impl Dice {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub(super) fn below(&mut self, end: u64) -> u64 {
        self.next() % end.max(1)
    }

    pub(super) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub(super) fn micros(&mut self, from: u64, to: u64) -> Duration {
        Duration::from_micros(from + self.below(to - from + 1))
    }

    pub(super) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[usize::try_from(self.below(from.len() as u64)).unwrap()].clone()
    }
}

/// The kinds of things that go wrong in a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Trouble {
    Kill,
    Pause,
    CutBoth,
    CutRequests,
    CutAnswers,
    NoMajority,
    Slow,
    Fading,
    Compaction,
    DeletedOwner,
    RevokedLease,
    StorageLost,
    ClockJump,
    Move,
    Drain,
    Restart,
}

impl Trouble {
    pub(super) const ALL: [Self; 16] = [
        Self::Kill,
        Self::Pause,
        Self::CutBoth,
        Self::CutRequests,
        Self::CutAnswers,
        Self::NoMajority,
        Self::Slow,
        Self::Fading,
        Self::Compaction,
        Self::DeletedOwner,
        Self::RevokedLease,
        Self::StorageLost,
        Self::ClockJump,
        Self::Move,
        Self::Drain,
        Self::Restart,
    ];
}

/// A thing that happens later.
#[derive(Debug)]
pub(super) enum Event {
    /// A request reaches etcd.
    Request { from: Process, id: RequestId, request: Request },
    /// Something reaches a process.
    Input { to: Process, input: Input },
    /// The watch of a process is told what has changed.
    Watch { to: Process },
    /// The timer of a machine.
    Timer { to: Process, at: Moment },
    /// A fence has been carried out.
    Fence { by: Process, share: ShareName, lease: LeaseId, connection: u32, is_good: bool },
    /// A server has loaded all records of a share and made Opens of them.
    Restored { by: Process, share: ShareName, epoch: Epoch },
    /// A server looks if a share is drained.
    Drained { by: Process, share: ShareName, epoch: Epoch },
    /// A server looks at its storage anew.
    Ready { by: Process, share: ShareName },
    /// Clients change records.
    Work { by: Process },
    /// A process that was stopped goes on.
    Continue { process: Process },
    /// A node is started.
    Start { node: usize },
    /// Trouble begins.
    Begin(Trouble),
    /// The requests of a node do not come to etcd any more.
    Fade { node: usize },
    /// The way of a node to etcd is whole again.
    Mend { node: usize },
    /// etcd has space for keys from now on, or has none.
    Space(bool),
    /// etcd has a majority again.
    Majority,
    /// etcd has another leader, by which the time of each lease begins anew.
    Leader,
    /// The process of an owner is stopped, and the owner's key is deleted before it hears of that.
    StopOwner,
    /// A drained node may have shares again.
    Undrain { node: usize },
}

/// One process of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Process {
    pub(super) node: usize,
    pub(super) start: u32,
}

/// A write that a stopped process has looked at the clock for, and not issued yet.
#[derive(Debug, Clone)]
pub(super) struct LateWrite {
    pub(super) share: ShareName,
    pub(super) epoch: Epoch,
    pub(super) connection: u32,
}

/// A running process.
#[derive(Debug)]
pub(super) struct Running {
    pub(super) machine: Machine,
    pub(super) server: Server,
    pub(super) ids: Option<IdSpace>,
    pub(super) watch: Option<(RequestId, Revision)>,
    pub(super) is_watch_due: bool,
    pub(super) lease: LeaseId,
    pub(super) is_stopped: bool,
    pub(super) deferred: VecDeque<Event>,
    pub(super) late_writes: Vec<LateWrite>,
    pub(super) is_leaving: bool,
}

/// A node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) name: NodeName,
    pub(super) start: u32,
    pub(super) running: Option<Running>,
    /// The clock: millionths that it is fast, and its time at the beginning.
    pub(super) rate: i64,
    pub(super) offset: Duration,
    pub(super) loses_requests: bool,
    pub(super) loses_answers: bool,
    pub(super) has_slow_answers: bool,
    pub(super) slow_until: Duration,
    /// Its identity at the storage of each share.
    pub(super) connections: BTreeMap<ShareName, u32>,
    pub(super) predecessor: Option<LeaseId>,
}

/// The world of a run.
#[derive(Debug)]
pub(super) struct World {
    pub(super) dice: Dice,
    pub(super) now: Duration,
    pub(super) etcd: Etcd,
    pub(super) etcd_rate: i64,
    pub(super) layout: Layout,
    pub(super) nodes: Vec<Node>,
    pub(super) shares: Vec<ShareName>,
    pub(super) judge: Judge,
    pub(super) has_fence: bool,
    pub(super) events: BTreeMap<(Duration, u64), Event>,
    pub(super) last_event: u64,
    pub(super) refused_connections: BTreeSet<u32>,
    pub(super) last_connection: u32,
    pub(super) last_command: u64,
    /// The end of trouble.
    pub(super) calm: Duration,
    pub(super) trace: Option<Vec<String>>,
    pub(super) reactions: u64,
}

pub(super) fn scaled(time: Duration, rate: i64) -> Duration {
    let nanos = i128::try_from(time.as_nanos()).unwrap();
    let extra = nanos * i128::from(rate) / 1_000_000;
    Duration::from_nanos(u64::try_from(nanos + extra).unwrap())
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        let mut dice = Dice(seed.wrapping_mul(0x1234_5677).wrapping_add(99));
        let count = 2 + dice.below(4);
        let shares = 1 + dice.below(6);
        let share = |n| ShareName::new(&format!("share{n}")).unwrap();
        let cluster = ClusterName::new("sim").unwrap();
        let mut world = Self {
            now: Duration::ZERO,
            etcd: Etcd::default(),
            etcd_rate: dice.below(20_001) as i64 - 10_000,
            layout: Layout::new(&cluster),
            nodes: Vec::new(),
            shares: (0..shares).map(share).collect(),
            judge: Judge::default(),
            has_fence: dice.chance(70),
            events: BTreeMap::new(),
            last_event: 0,
            refused_connections: BTreeSet::new(),
            last_connection: 0,
            last_command: 0,
            calm: Duration::ZERO,
            trace: None,
            reactions: 0,
            dice,
        };
        for n in 0..count {
            let node = Node {
                name: NodeName::new(&format!("n{n}")).unwrap(),
                start: 0,
                running: None,
                rate: world.dice.below(20_001) as i64 - 10_000,
                offset: world.dice.micros(0, 1_000_000_000),
                loses_requests: false,
                loses_answers: false,
                has_slow_answers: false,
                slow_until: Duration::ZERO,
                connections: BTreeMap::new(),
                predecessor: None,
            };
            world.nodes.push(node);
            let at = world.dice.micros(0, 300_000);
            world.at(at, Event::Start { node: n as usize });
        }
        world
    }

    pub(super) fn at(&mut self, time: Duration, event: Event) {
        self.last_event += 1;
        self.events.insert((self.now.max(time), self.last_event), event);
    }

    pub(super) fn later(&mut self, time: Duration, event: Event) {
        self.at(self.now + time, event);
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:?} {}", self.now, text()));
        }
    }

    /// The clock of a node.
    pub(super) fn clock(&self, node: usize) -> Moment {
        let node = &self.nodes[node];
        Moment(node.offset + scaled(self.now, node.rate))
    }

    /// The true time at which the clock of a node shows `moment`, a little earlier at most.
    pub(super) fn true_time(&self, node: usize, moment: Moment) -> Duration {
        let node = &self.nodes[node];
        let shown = moment.0.saturating_sub(node.offset).as_nanos() as i128;
        let nanos = shown * 1_000_000 / i128::from(1_000_000 + node.rate);
        Duration::from_nanos(u64::try_from(nanos).unwrap())
    }

    pub(super) fn running(&mut self, process: Process) -> Option<&mut Running> {
        let node = &mut self.nodes[process.node];
        if node.start == process.start { node.running.as_mut() } else { None }
    }

    /// Lets everything happen until `end`.
    pub(super) fn run(&mut self, end: Duration) {
        while let Some((&(at, number), _)) = self.events.first_key_value() {
            let lease = self.etcd.next_end().map(|end| self.etcd_true_time(end));
            if let Some(lease) = lease
                && lease <= at.min(end)
            {
                self.now = self.now.max(lease);
                self.pass_etcd();
                continue;
            }
            if at > end || !self.judge.violations.is_empty() {
                break;
            }
            self.now = at;
            let event = self.events.remove(&(at, number)).unwrap();
            self.reactions += 1;
            self.happen(event);
        }
        self.now = self.now.max(end);
    }

    pub(super) fn happen(&mut self, event: Event) {
        let event = match self.deferred(event) {
            Some(event) => event,
            None => return,
        };
        match event {
            Event::Request { from, id, request } => self.arrive(from, id, &request),
            Event::Input { to, input } => self.input(to, input),
            Event::Watch { to } => self.tell_watch(to),
            Event::Timer { to, at } => {
                let is_present = |running: &mut Running| running.machine.timer() == Some(at);
                if self.running(to).is_some_and(is_present) {
                    self.input(to, Input::Time);
                }
            }
            Event::Fence { by, share, lease, connection, is_good } => {
                if is_good {
                    self.refuse(connection);
                }
                let statement = if is_good {
                    Statement::Fenced { share, lease }
                } else {
                    Statement::FenceFailed { share, lease }
                };
                self.input(by, Input::Statement(statement));
            }
            Event::Restored { by, share, epoch } => {
                self.input(by, Input::Statement(Statement::Restored { share, epoch }));
            }
            Event::Drained { by, share, epoch } => self.look_if_drained(by, share, epoch),
            Event::Ready { by, share } => self.ready(by, share),
            Event::Work { by } => self.work(by),
            Event::Continue { process } => self.go_on(process),
            Event::Start { node } => self.start(node),
            Event::Begin(trouble) => self.begin(trouble),
            Event::Fade { node } => self.nodes[node].loses_requests = true,
            Event::Mend { node } => {
                self.nodes[node].has_slow_answers = false;
                self.nodes[node].loses_requests = false;
                self.nodes[node].loses_answers = false;
            }
            Event::Space(true) => self.etcd.make_room(),
            Event::Space(false) => self.etcd.fill(),
            Event::Majority => {
                self.etcd.set_majority(true);
                self.pass_etcd();
                self.wake_watches();
            }
            Event::Leader => {
                if self.etcd.has_majority() {
                    self.pass_etcd();
                    self.etcd.set_majority(false);
                    self.etcd.set_majority(true);
                }
            }
            Event::StopOwner => self.stop_owner(),
            Event::Undrain { node } => {
                let name = self.nodes[node].name.clone();
                self.command(Command::Undrain(name));
            }
        }
    }

    /// Keeps what comes to a process that is stopped.
    pub(super) fn deferred(&mut self, event: Event) -> Option<Event> {
        let to = match &event {
            Event::Input { to, .. } | Event::Watch { to } | Event::Timer { to, .. } => *to,
            Event::Fence { by, .. }
            | Event::Restored { by, .. }
            | Event::Drained { by, .. }
            | Event::Ready { by, .. }
            | Event::Work { by } => *by,
            _ => return Some(event),
        };
        match self.running(to) {
            Some(running) if running.is_stopped => {
                running.deferred.push_back(event);
                None
            }
            Some(_) => Some(event),
            None => None,
        }
    }

    /// Brings an input to a machine, and carries out what it returns.
    pub(super) fn input(&mut self, to: Process, input: Input) {
        let clock = self.clock(to.node);
        self.note(|| match &input {
            Input::Answer { .. } | Input::Watched { .. } | Input::Time => String::from("."),
            input => format!("{to:?} < {input:?}"),
        });
        let Some(running) = self.running(to) else { return };
        if let Input::Answer { answer: Ok(Answer::Confirmed(lease)), .. } = &input {
            running.lease = lease.lease;
        }
        if let Input::Statement(Statement::Stopped { share, .. }) = &input {
            running.server.stopped.remove(share);
        }
        running.machine.handle(clock, input);
        self.carry_out(to);
    }

    pub(super) fn carry_out(&mut self, process: Process) {
        while let Some(running) = self.running(process)
            && let Some(output) = running.machine.poll()
        {
            self.note(|| match &output {
                Output::Request(..) => String::from("."),
                output => format!("{process:?} > {output:?}"),
            });
            match output {
                Output::Request(id, Request::Watch { after, .. }) => {
                    running_watch(self.running(process), id, after);
                    self.wake_watch(process, Duration::ZERO);
                }
                Output::Request(id, request) => {
                    if !self.nodes[process.node].loses_requests {
                        let delay = self.delay(process.node);
                        self.later(delay, Event::Request { from: process, id, request });
                    }
                }
                Output::Order(order) => self.follow(process, order),
                Output::RecordDone(ticket, end) => self.record_done(process, ticket, &end),
                Output::Loaded(ticket, part) => self.loaded(process, ticket, part),
                Output::CommandDone(_, end) => {
                    let is_over = |running: &mut Running| {
                        running.is_leaving && !running.machine.status().is_registered
                    };
                    if end.is_ok() && self.running(process).is_some_and(is_over) {
                        self.kill(process.node, false);
                    }
                }
                Output::Event(Note::Unreadable(share)) => {
                    self.judge.violation(format!("{share} is unreadable"));
                }
                Output::Event(_) => {}
            }
        }
        if let Some(running) = self.running(process)
            && let Some(at) = running.machine.timer()
        {
            let time = self.true_time(process.node, at) + Duration::from_nanos(2_000);
            self.at(time, Event::Timer { to: process, at });
        }
    }

    /// True if the share is served at this moment, by a node whose storage does not refuse it.
    pub(super) fn is_served(&self, share: &ShareName) -> bool {
        (0..self.nodes.len()).any(|node| {
            let Some(running) = &self.nodes[node].running else { return false };
            let is_in_time = running.server.until.is_some_and(|until| self.clock(node) < until);
            let connection = self.nodes[node].connections.get(share);
            let is_refused = connection.is_some_and(|c| self.refused_connections.contains(c));
            running.server.used(share).served().is_some() && is_in_time && !is_refused
        })
    }
}

fn running_watch(running: Option<&mut Running>, id: RequestId, after: Revision) {
    if let Some(running) = running {
        running.watch = Some((id, after));
    }
}
