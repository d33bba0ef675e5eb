use alloc::format;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use frevo_etcd::types::{Keys, LeaseId, Op, Revision, Txn, TxnAnswer, WatchAnswer};

mod dialects;

use super::*;
use crate::dialect::ClusterDialect;
use crate::fence::Fence;
use crate::interface::{
    Command, CommandFault, LoadPart, RecordChange, RecordEnd, Request, RequestId, StopReason,
};
use crate::keys::ControlKey;
use crate::limits::{COMMAND_PATIENCE, COMMANDS};
use crate::model::Etcd;
use crate::names::{ClusterName, NodeName};
use crate::settings::{ShareSettings, Storage, Timing};
use crate::values::{Reason, RecordForm};
use crate::{Epoch, RecordId};

const TICK: Duration = Duration::from_millis(10);

/// A machine with a server that does at once what it is told.
struct Node {
    machine: Machine,
    watch: Option<(RequestId, Revision)>,
    fence: Fence,
    orders: Vec<Order>,
    events: Vec<Event>,
    ends: Vec<(CommandId, Result<(), CommandFault>)>,
    records: Vec<(Ticket, RecordEnd)>,
    is_up: bool,
    drains: bool,
    /// True if its storage can be used.
    is_able: bool,
    /// The last request.
    last: Option<Request>,
}

impl Node {
    fn new(machine: Machine, fence: Fence) -> Self {
        Self {
            machine,
            watch: None,
            fence,
            orders: Vec::new(),
            events: Vec::new(),
            ends: Vec::new(),
            records: Vec::new(),
            is_up: true,
            drains: true,
            is_able: true,
            last: None,
        }
    }
}

struct Cluster {
    etcd: Etcd,
    now: Moment,
    nodes: Vec<Node>,
}

fn name(n: usize) -> NodeName {
    NodeName::new(&format!("n{n}")).unwrap()
}

fn share(n: usize) -> ShareName {
    ShareName::new(&format!("share{n}")).unwrap()
}

fn fuse(connection: u32) -> Fence {
    Fence::Fuse { connection, host: "host".into() }
}

fn settings(node: usize, shares: usize) -> Settings {
    let shares = (0..shares).map(|n| ShareSettings { name: share(n), weight: 1 });
    Settings {
        cluster: ClusterName::new("c").unwrap(),
        node: name(node),
        timing: Timing::default(),
        addresses: Vec::new(),
        weight: 1,
        software: "test".into(),
        dialect: ClusterDialect::LARGEST,
        shares: shares.collect(),
        predecessor: None,
        grace: Duration::from_secs(10),
        records: RecordForm::TOLD_BY_NONE,
    }
}

impl Cluster {
    fn new(nodes: usize, shares: usize) -> Self {
        let now = Moment(Duration::from_secs(100));
        let mut etcd = Etcd::default();
        etcd.pass(now);
        let mut cluster = Self { etcd, now, nodes: Vec::new() };
        for node in 0..nodes {
            let connection = u32::try_from(node).unwrap();
            cluster.join(settings(node, shares), fuse(connection));
        }
        cluster.pass(Duration::from_secs(3));
        cluster
    }

    fn join(&mut self, settings: Settings, fence: Fence) {
        let shares: Vec<_> = settings.shares.iter().map(|share| share.name.clone()).collect();
        self.nodes.push(Node::new(Machine::new(settings, self.now), fence));
        for share in shares {
            self.ready(self.nodes.len() - 1, share);
        }
        self.settle();
    }

    fn ready(&mut self, node: usize, share: ShareName) {
        let storage = Storage { fence: self.nodes[node].fence.clone() };
        let is_able = self.nodes[node].is_able;
        let ready = Statement::Ready { share: share.clone(), storage };
        self.say(node, if is_able { ready } else { Statement::Unable { share } });
    }

    fn say(&mut self, node: usize, statement: Statement) {
        self.input(node, Input::Statement(statement));
    }

    fn input(&mut self, node: usize, input: Input) {
        self.nodes[node].machine.handle(self.now, input);
    }

    fn command(&mut self, node: usize, id: u64, command: Command) {
        self.input(node, Input::Command { id: CommandId(id), command });
        self.settle();
    }

    /// Lets time pass.
    fn pass(&mut self, time: Duration) {
        let end = after(self.now, time);
        while self.now < end {
            self.now = after(self.now, TICK);
            self.etcd.pass(self.now);
            for node in 0..self.nodes.len() {
                if self.nodes[node].is_up {
                    self.input(node, Input::Time);
                }
            }
            self.settle();
        }
    }

    /// Carries out all outputs, without time passing.
    fn settle(&mut self) {
        let mut is_quiet = false;
        let mut rounds = 0;
        while !is_quiet {
            is_quiet = true;
            rounds += 1;
            let last = self.nodes.iter().map(|node| (&node.last, node.orders.last()));
            assert!(rounds < 1_000, "no rest: {:?}", last.collect::<Vec<_>>());
            for node in 0..self.nodes.len() {
                if !self.nodes[node].is_up {
                    continue;
                }
                let mut outputs = 0;
                while let Some(output) = self.nodes[node].machine.poll() {
                    is_quiet = false;
                    outputs += 1;
                    assert!(outputs < 2_000, "no rest: {output:?}, {:?}", self.nodes[node].last);
                    self.carry_out(node, output);
                }
                if self.tell(node) {
                    is_quiet = false;
                }
            }
        }
    }

    /// Tells a watch what has changed. Returns false if nothing has.
    fn tell(&mut self, node: usize) -> bool {
        let Some((id, told)) = self.nodes[node].watch else { return false };
        let prefix = self.nodes[node].machine.layout.control_prefix();
        let Ok(answer) = self.etcd.watch(&prefix, told) else { return false };
        if matches!(&answer, WatchAnswer::Changes { changes, .. } if changes.is_empty()) {
            return false;
        }
        self.nodes[node].watch = match &answer {
            WatchAnswer::Changes { revision, .. } => Some((id, *revision)),
            WatchAnswer::Compacted { .. } => None,
        };
        self.input(node, Input::Watched { id, answer: Ok(answer) });
        true
    }

    fn carry_out(&mut self, node: usize, output: Output) {
        match output {
            Output::Request(id, Request::Watch { after, .. }) => {
                self.nodes[node].watch = Some((id, after));
            }
            Output::Request(id, request) => {
                let answer = self.etcd.call(&request);
                self.nodes[node].last = Some(request);
                self.input(node, Input::Answer { id, answer });
            }
            Output::Order(order) => {
                self.nodes[node].orders.push(order.clone());
                self.follow(node, order);
            }
            Output::Loaded(Ticket(ticket), LoadPart::End) => {
                let started = self.nodes[node].orders.iter().rev().find_map(|order| match order {
                    Order::Start { share, epoch, .. } if epoch.0 == ticket => Some(share.clone()),
                    _ => None,
                });
                let (share, epoch) = (started.unwrap(), Epoch(ticket));
                self.say(node, Statement::Restored { share, epoch });
            }
            Output::Event(event) => self.nodes[node].events.push(event),
            Output::CommandDone(id, end) => self.nodes[node].ends.push((id, end)),
            Output::RecordDone(ticket, end) => self.nodes[node].records.push((ticket, end)),
            Output::Loaded(..) => {}
        }
    }

    fn follow(&mut self, node: usize, order: Order) {
        match order {
            Order::Fence { share, lease, .. } => self.say(node, Statement::Fenced { share, lease }),
            Order::Start { share, epoch, .. } => {
                self.input(node, Input::Load { share, epoch, ticket: Ticket(epoch.0) });
            }
            Order::Drain { share, epoch, .. } if self.nodes[node].drains => {
                self.say(node, Statement::Drained { share, epoch });
            }
            Order::Stop { share, epoch, .. } => {
                self.say(node, Statement::Stopped { share: share.clone(), epoch });
                self.ready(node, share);
            }
            Order::Renew { share } => self.ready(node, share),
            _ => {}
        }
    }

    /// The node that owns a share, by the keys.
    fn owner(&self, n: usize) -> Option<NodeName> {
        let view = self.nodes.iter().find(|node| node.is_up).unwrap().machine.view().unwrap();
        view.owner(&share(n)).cloned()
    }

    /// The index of the node that owns a share.
    fn owner_index(&self, n: usize) -> usize {
        let owner = self.owner(n).unwrap();
        (0..self.nodes.len()).find(|node| name(*node) == owner).unwrap()
    }

    /// Deletes the owner's key of a share by hand.
    fn delete_owner(&mut self, n: usize) {
        let key = self.nodes[0].machine.layout.control(&ControlKey::Owner(share(n)));
        let success = vec![Op::Delete(Keys::One(key))];
        self.etcd.call(&Request::Txn(Txn { success, ..Txn::default() })).unwrap();
    }

    /// Changes a record at the node that owns the share.
    fn put_record(&mut self, n: usize, id: u64) {
        let node = self.owner_index(n);
        let epoch = self.nodes[node].machine.view().unwrap().owners[&share(n)].epoch;
        let change = RecordChange::Put(RecordId(id), vec![7]);
        self.input(node, Input::Record { share: share(n), epoch, change, ticket: Ticket(id) });
        self.settle();
    }

    fn forget_orders(&mut self) {
        for node in &mut self.nodes {
            node.orders.clear();
            node.ends.clear();
        }
    }
}

/// Orders other than limits.
fn main_orders(node: &Node) -> Vec<&Order> {
    node.orders.iter().filter(|order| !matches!(order, Order::ServeUntil(_))).collect()
}

#[test]
fn a_planned_move_takes_no_time_of_its_own() {
    let mut cluster = Cluster::new(2, 1);
    let from = cluster.owner_index(0);
    let to = 1 - from;
    cluster.forget_orders();
    cluster.command(to, 7, Command::Move { share: share(0), to: name(to) });
    assert_eq!(cluster.owner(0), Some(name(to)));
    assert_eq!(cluster.nodes[to].ends, [(CommandId(7), Ok(()))]);
    let given = main_orders(&cluster.nodes[from]);
    assert!(matches!(given[..], [Order::Drain { .. }, Order::Left { .. }]), "{given:?}");
    let taken = main_orders(&cluster.nodes[to]);
    let reason = Reason::Given(name(from));
    assert!(
        matches!(&taken[..], [Order::Start { reason: of, .. }, Order::Serve { grace: Some(_), .. }]
            if *of == reason),
        "{taken:?}"
    );
    // A second command ends at once, because the share is at that node already.
    cluster.command(from, 8, Command::Move { share: share(0), to: name(to) });
    assert_eq!(cluster.nodes[from].ends, [(CommandId(8), Ok(()))]);
}

#[test]
fn a_command_waits_for_its_effect() {
    let mut cluster = Cluster::new(2, 1);
    let from = cluster.owner_index(0);
    let to = 1 - from;
    cluster.nodes[from].drains = false;
    cluster.forget_orders();
    let other = Command::Move { share: share(0), to: name(5) };
    cluster.command(from, 1, other);
    let no_owner = Command::Move { share: share(5), to: name(to) };
    cluster.command(from, 2, no_owner);
    let faults =
        [(CommandId(1), Err(CommandFault::NodeCannot)), (CommandId(2), Err(CommandFault::NoOwner))];
    assert_eq!(cluster.nodes[from].ends, faults);
    cluster.forget_orders();
    let order = Command::Move { share: share(0), to: name(to) };
    for id in 0..=COMMANDS as u64 {
        cluster.command(from, id, order.clone());
    }
    let last = CommandId(COMMANDS as u64);
    assert_eq!(cluster.nodes[from].ends, [(last, Err(CommandFault::Busy))]);
    cluster.forget_orders();
    cluster.pass(COMMAND_PATIENCE + TICK);
    assert_eq!(cluster.nodes[from].ends.len(), COMMANDS);
    assert!(cluster.nodes[from].ends.iter().all(|(_, end)| *end == Err(CommandFault::TimedOut)));
    // The server reports that it cannot drain the share. Then the next command ends at once.
    cluster.forget_orders();
    cluster.command(from, 0, order);
    let epoch = cluster.nodes[from].machine.view().unwrap().owners[&share(0)].epoch;
    cluster.say(from, Statement::NotDrained { share: share(0), epoch });
    cluster.settle();
    assert_eq!(cluster.nodes[from].ends, [(CommandId(0), Err(CommandFault::NotGiven))]);
    assert_eq!(cluster.owner(0), Some(name(from)));
    let drains = || cluster.nodes[from].orders.iter().filter(|o| matches!(o, Order::Drain { .. }));
    assert_eq!(drains().count(), 0, "it was drained by the commands before, and is not again");
}

#[test]
fn a_former_owner_is_fenced_before_its_records_are_read() {
    let mut cluster = Cluster::new(2, 1);
    let from = cluster.owner_index(0);
    let to = 1 - from;
    cluster.nodes[from].is_up = false;
    cluster.forget_orders();
    cluster.pass(Duration::from_millis(2_100));
    let orders = main_orders(&cluster.nodes[to]);
    let [Order::Fence { node, fence, .. }, Order::Start { reason, .. }, Order::Serve { .. }] =
        &orders[..]
    else {
        panic!("{orders:?}")
    };
    assert_eq!((node, fence), (&name(from), &cluster.nodes[from].fence));
    assert_eq!(*reason, Reason::Failover(name(from)));
}

#[test]
fn without_a_fence_the_lease_and_its_margin_pass_once_more() {
    let mut cluster = Cluster::new(0, 0);
    for node in 0..2 {
        cluster.join(settings(node, 1), Fence::None);
    }
    cluster.pass(Duration::from_secs(3));
    let from = cluster.owner_index(0);
    let to = 1 - from;
    cluster.nodes[from].is_up = false;
    cluster.forget_orders();
    cluster.pass(Duration::from_millis(1_500) + Timing::default().wait());
    assert!(main_orders(&cluster.nodes[to]).is_empty());
    cluster.pass(Duration::from_millis(600));
    let orders = main_orders(&cluster.nodes[to]);
    assert!(matches!(orders[..], [Order::Start { .. }, Order::Serve { .. }]), "{orders:?}");
    let event = Event::TakenWithoutFence(share(0), name(from));
    assert!(cluster.nodes[to].events.contains(&event));
}

#[test]
fn nodes_pause_without_etcd_and_go_on_by_themselves() {
    let mut cluster = Cluster::new(2, 4);
    cluster.forget_orders();
    cluster.etcd.set_majority(false);
    cluster.pass(Duration::from_millis(1_820));
    for node in &cluster.nodes {
        assert!(matches!(node.orders.last(), Some(Order::Pause)), "{:?}", node.orders);
        assert!(node.machine.status().is_paused);
    }
    cluster.pass(Duration::from_secs(60));
    for node in &cluster.nodes {
        assert!(!node.machine.status().etcd_answers);
    }
    cluster.forget_orders();
    cluster.etcd.set_majority(true);
    cluster.pass(Duration::from_millis(1_500));
    for node in &cluster.nodes {
        let orders = main_orders(node);
        assert!(matches!(orders[..], [Order::Resume(_)]), "the same owners: {orders:?}");
        assert!(node.machine.status().etcd_answers);
    }
}

#[test]
fn an_owner_whose_key_was_deleted_stops_and_may_take_again() {
    let mut cluster = Cluster::new(1, 1);
    cluster.forget_orders();
    cluster.delete_owner(0);
    cluster.settle();
    cluster.pass(TICK);
    let orders = main_orders(&cluster.nodes[0]);
    let [Order::Stop { why, .. }, Order::Start { .. }, Order::Serve { .. }] = &orders[..] else {
        panic!("{orders:?}")
    };
    assert_eq!(*why, StopReason::KeyGone);
}

/// The process of the former owner is stopped, and its lease lives on: it may go on with a change to a file.
#[test]
fn a_former_owner_that_is_up_is_fenced_after_its_limit() {
    let mut cluster = Cluster::new(2, 1);
    let from = cluster.owner_index(0);
    let to = 1 - from;
    let lease = cluster.nodes[from].machine.lease().unwrap();
    let old = cluster.nodes[from].fence.clone();
    cluster.nodes[from].is_up = false;
    cluster.forget_orders();
    cluster.delete_owner(0);
    let deleted = cluster.now;
    let mut taken = deleted;
    while main_orders(&cluster.nodes[to]).is_empty() {
        assert!(after(deleted, Duration::from_secs(10)) > taken, "nobody takes the share");
        cluster.etcd.call(&Request::KeepAlive(lease)).unwrap();
        cluster.pass(TICK);
        taken = cluster.now;
    }
    assert!(taken >= after(deleted, Timing::default().wait()), "it may still answer");
    let orders = main_orders(&cluster.nodes[to]);
    let [Order::Fence { node, fence, .. }, Order::Start { .. }, Order::Serve { .. }] = &orders[..]
    else {
        panic!("{orders:?}")
    };
    assert_eq!((node, fence), (&name(from), &old));
    // The node learns that it was fenced, and returns with another identity.
    cluster.nodes[from].is_up = true;
    cluster.nodes[from].fence = fuse(77);
    cluster.pass(TICK);
    let orders = main_orders(&cluster.nodes[from]);
    let is_renewed = |order: &&Order| matches!(order, Order::Renew { .. });
    assert_eq!(orders.iter().filter(|order| is_renewed(order)).count(), 1, "{orders:?}");
    cluster.command(to, 1, Command::Move { share: share(0), to: name(from) });
    assert_eq!(cluster.nodes[to].ends, [(CommandId(1), Ok(()))]);
    let view = cluster.nodes[from].machine.view().unwrap();
    let last = view.last[&share(0)].value.clone().unwrap();
    assert_eq!((last.node, last.fence), (name(from), cluster.nodes[from].fence.clone()));
}

#[test]
fn a_former_owner_that_says_that_it_has_stopped_is_not_fenced() {
    let mut cluster = Cluster::new(2, 1);
    let from = cluster.owner_index(0);
    let to = 1 - from;
    cluster.nodes[from].is_able = false;
    cluster.forget_orders();
    cluster.delete_owner(0);
    cluster.settle();
    cluster.pass(TICK);
    let orders = main_orders(&cluster.nodes[to]);
    let [Order::Start { reason, .. }, Order::Serve { .. }] = &orders[..] else {
        panic!("{orders:?}")
    };
    assert_eq!(*reason, Reason::Given(name(from)), "without a wait");
    cluster.pass(Duration::from_secs(5));
    assert!(!main_orders(&cluster.nodes[from]).iter().any(|o| matches!(o, Order::Renew { .. })));
}

#[test]
fn a_share_whose_records_were_refused_is_served_again() {
    let mut cluster = Cluster::new(2, 1);
    let key = cluster.nodes[0].machine.layout.batch(&share(0));
    let put = Op::Put { key, value: b"x".to_vec(), lease: LeaseId(0) };
    cluster.etcd.call(&Request::Txn(Txn { success: vec![put], ..Txn::default() })).unwrap();
    cluster.forget_orders();
    let from = cluster.owner_index(0);
    cluster.put_record(0, 1);
    assert_eq!(cluster.nodes[from].records, [(Ticket(1), RecordEnd::Fenced)]);
    let stop = main_orders(&cluster.nodes[from])[0];
    assert!(matches!(stop, Order::Stop { why: StopReason::RecordRefused, .. }), "{stop:?}");
    cluster.pass(Duration::from_secs(5));
    let owner = cluster.owner_index(0);
    let last = main_orders(&cluster.nodes[owner]).last().copied();
    assert!(matches!(last, Some(Order::Serve { .. })), "{last:?}");
    cluster.put_record(0, 2);
    assert_eq!(cluster.nodes[owner].records.last(), Some(&(Ticket(2), RecordEnd::Done)));
}

#[test]
fn records_wait_while_etcd_has_no_space_and_people_are_told_once() {
    let mut cluster = Cluster::new(1, 1);
    cluster.etcd.fill();
    cluster.put_record(0, 1);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(cluster.nodes[0].records, [], "it is in etcd, and refused");
    let told = |event: &&Event| matches!(event, Event::EtcdRefuses(_));
    assert_eq!(cluster.nodes[0].events.iter().filter(told).count(), 1);
    let before = cluster.nodes[0].machine.requests.number();
    cluster.pass(Duration::from_secs(10));
    let requests = cluster.nodes[0].machine.requests.number().0 - before.0;
    // Two requests are sent in each quarter of a lease's time, and one in each second.
    assert!(requests < 60, "{requests}");
    cluster.etcd.make_room();
    cluster.pass(Duration::from_secs(2));
    assert_eq!(cluster.nodes[0].records, [(Ticket(1), RecordEnd::Done)]);
    assert!(!cluster.nodes[0].orders.iter().any(|order| matches!(order, Order::Stop { .. })));
}

#[test]
fn a_node_takes_its_shares_beside_many_of_others() {
    let mut cluster = Cluster::new(0, 0);
    for n in 0..6_000 {
        let key = Layout::new(&ClusterName::new("c").unwrap());
        let key = key.control(&ControlKey::Last(ShareName::new(&format!("retired{n}")).unwrap()));
        let put = Op::Put { key, value: b"x".to_vec(), lease: LeaseId(0) };
        cluster.etcd.call(&Request::Txn(Txn { success: vec![put], ..Txn::default() })).unwrap();
    }
    for node in 0..2 {
        cluster.join(settings(node, 3), Fence::None);
    }
    cluster.pass(Duration::from_secs(3));
    assert!((0..3).all(|n| cluster.owner(n).is_some()));
    let view = cluster.nodes[0].machine.view().unwrap();
    assert!(view.can_take(&name(1), &share(0)));
    assert!(!view.can_take(&name(1), &ShareName::new("retired1").unwrap()));
}

/// The answer to an early question for a share that was just taken comes late, when keep-alives have moved
/// the limit on.
#[test]
fn a_share_is_served_when_its_confirmation_covers_the_limit() {
    let mut cluster = Cluster::new(1, 1);
    let machine = &mut cluster.nodes[0].machine;
    let epoch = machine.shares[&share(0)].stage.epoch().unwrap();
    let reason = Reason::First;
    let own = machine.shares.get_mut(&share(0)).unwrap();
    own.stage = Stage::Starting { epoch, is_restored: true, reason };
    own.verified = None;
    let held = [requests::Holding { share: share(0), epoch }];
    let answer = TxnAnswer { revision: Revision(9), succeeded: true, answers: Vec::new() };
    let covered = machine.alive;
    let early = Moment(covered.0 - Duration::from_millis(1));
    machine.on_verified(&held, early, &answer).unwrap();
    assert_eq!(machine.shares[&share(0)].verified, None);
    assert_eq!(machine.round_at, machine.now, "it asks again at once");
    machine.on_verified(&held, covered, &answer).unwrap();
    assert_eq!(machine.shares[&share(0)].verified, Some(covered));
    // Answers that arrive in another order do not move the confirmed moment back.
    machine.on_verified(&held, early, &answer).unwrap();
    assert_eq!(machine.shares[&share(0)].verified, Some(covered));
}

#[test]
fn a_damaged_key_keeps_a_share_from_being_taken() {
    let mut cluster = Cluster::new(2, 1);
    let from = cluster.owner_index(0);
    let key = cluster.nodes[0].machine.layout.control(&ControlKey::Last(share(0)));
    let put = Op::Put { key, value: b"x".to_vec(), lease: LeaseId(0) };
    cluster.etcd.call(&Request::Txn(Txn { success: vec![put], ..Txn::default() })).unwrap();
    cluster.nodes[from].is_up = false;
    cluster.pass(Duration::from_secs(10));
    assert_eq!(cluster.owner(0), None);
    let events = &cluster.nodes[1 - from].events;
    assert_eq!(events.iter().filter(|e| **e == Event::Unreadable(share(0))).count(), 1);
}

#[test]
fn an_earlier_process_that_has_ended_is_inherited() {
    let mut cluster = Cluster::new(1, 3);
    let lease = cluster.nodes[0].machine.lease().unwrap();
    cluster.nodes.clear();
    let again = Settings { predecessor: Some(lease), ..settings(0, 3) };
    cluster.join(again, fuse(0));
    cluster.pass(TICK);
    assert_eq!(cluster.owner(0), Some(name(0)), "without waiting for the lease");
    assert!(cluster.nodes[0].machine.generation > Generation(1));
    let orders = main_orders(&cluster.nodes[0]);
    assert!(!orders.iter().any(|order| matches!(order, Order::Fence { .. })));
}

#[test]
fn a_name_is_used_once() {
    let mut cluster = Cluster::new(1, 1);
    cluster.join(settings(0, 1), fuse(9));
    cluster.pass(Duration::from_secs(5));
    assert!(cluster.nodes[1].events.contains(&Event::NameTaken));
    assert!(!cluster.nodes[1].machine.status().is_registered);
    cluster.nodes[0].is_up = false;
    cluster.pass(Duration::from_secs(5));
    assert!(cluster.nodes[1].machine.status().is_registered);
}

#[test]
fn the_shares_of_a_node_that_dies_are_spread_over_the_others() {
    let mut cluster = Cluster::new(3, 100);
    let count = |cluster: &Cluster, node: usize| {
        (0..100).filter(|n| cluster.owner(*n) == Some(name(node))).count()
    };
    let before: Vec<_> = (0..3).map(|node| count(&cluster, node)).collect();
    assert!(before.iter().all(|shares| (32..=35).contains(shares)), "{before:?}");
    cluster.nodes[2].is_up = false;
    cluster.forget_orders();
    cluster.pass(Duration::from_secs(3));
    let later: Vec<_> = (0..2).map(|node| count(&cluster, node)).collect();
    assert_eq!(later.iter().sum::<usize>(), 100);
    assert!(later.iter().all(|shares| (49..=51).contains(shares)), "{later:?}");
    for node in &cluster.nodes[..2] {
        let is_move = |order: &&&Order| matches!(order, Order::Drain { .. } | Order::Stop { .. });
        assert_eq!(main_orders(node).iter().filter(is_move).count(), 0, "the others stay");
    }
}

#[test]
fn a_drained_node_has_no_shares_and_gets_none() {
    let mut cluster = Cluster::new(3, 9);
    cluster.command(0, 1, Command::Drain(name(1)));
    cluster.pass(Duration::from_millis(100));
    assert_eq!(cluster.nodes[0].ends, [(CommandId(1), Ok(()))]);
    let has = |cluster: &Cluster| (0..9).filter(|n| cluster.owner(*n) == Some(name(1))).count();
    assert_eq!(has(&cluster), 0);
    cluster.nodes[2].is_up = false;
    cluster.pass(Duration::from_secs(4));
    assert_eq!(has(&cluster), 0);
    assert!((0..9).all(|n| cluster.owner(n) == Some(name(0))));
    cluster.command(0, 2, Command::Undrain(name(1)));
    cluster.pass(Duration::from_secs(4));
    assert_eq!(has(&cluster), 0, "shares do not move back");
}

#[test]
fn a_node_leaves_when_others_have_its_shares() {
    let mut cluster = Cluster::new(2, 5);
    cluster.command(0, 3, Command::Leave);
    cluster.pass(Duration::from_millis(100));
    assert_eq!(cluster.nodes[0].ends, [(CommandId(3), Ok(()))]);
    cluster.nodes[0].is_up = false;
    cluster.settle();
    assert!((0..5).all(|n| cluster.owner(n) == Some(name(1))));
    assert_eq!(cluster.nodes[1].machine.status().nodes.len(), 1);
    // When the last node leaves, its shares have no owner.
    cluster.command(1, 4, Command::Leave);
    cluster.pass(Duration::from_millis(100));
    assert_eq!(cluster.nodes[1].ends.last(), Some(&(CommandId(4), Ok(()))));
}

#[test]
fn a_new_generation_comes_on_command() {
    let mut cluster = Cluster::new(1, 1);
    let before = cluster.nodes[0].machine.generation;
    cluster.forget_orders();
    cluster.command(0, 1, Command::NewGeneration);
    assert_eq!(cluster.nodes[0].ends, [(CommandId(1), Ok(()))]);
    let next = Generation(before.0 + 1);
    assert!(cluster.nodes[0].orders.contains(&Order::Generation(next)));
}

/// A node with one share, and the request by which it says that it can take a second one. etcd has not got
/// it yet.
fn about_to_be_able() -> (Cluster, Request) {
    let mut cluster = Cluster::new(1, 1);
    let added = ShareSettings { name: share(1), weight: 1 };
    cluster.command(0, 1, Command::Share(added));
    assert!(is_unable(&cluster));
    cluster.ready(0, share(1));
    let mut requests = Vec::new();
    while let Some(output) = cluster.nodes[0].machine.poll() {
        let Output::Request(_, request) = output else { panic!("{output:?}") };
        requests.push(request);
    }
    let [request] = <[_; 1]>::try_from(requests).unwrap();
    (cluster, request)
}

fn is_unable(cluster: &Cluster) -> bool {
    let view = cluster.nodes[0].machine.view().unwrap();
    view.nodes[&name(0)].value.as_ref().unwrap().unable.has(&share(1))
}

#[test]
fn a_registration_that_got_lost_is_made_again() {
    let (mut cluster, _lost) = about_to_be_able();
    cluster.pass(Duration::from_secs(10));
    assert!(!is_unable(&cluster));
    let is_served =
        |order: &Order| matches!(order, Order::Serve { share: name, .. } if *name == share(1));
    assert!(cluster.nodes[0].orders.iter().any(is_served));
}

#[test]
fn a_registration_that_comes_late_is_put_right() {
    let (mut cluster, late) = about_to_be_able();
    cluster.say(0, Statement::Unable { share: share(1) });
    cluster.pass(Duration::from_secs(10));
    assert!(is_unable(&cluster));
    assert!(cluster.etcd.call(&late).is_ok());
    cluster.pass(Duration::from_secs(1));
    assert!(is_unable(&cluster));
}
