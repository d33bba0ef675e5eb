//! The largest dialect of clients, and nodes that do not speak it.

use super::*;
use crate::values::DialectValue;

const OLD: ClusterDialect = ClusterDialect::SMB_3_0_2;
const NEW: ClusterDialect = ClusterDialect::SMB_3_1_1;

fn speaking(node: usize, shares: usize, dialect: ClusterDialect) -> Settings {
    Settings { dialect, ..settings(node, shares) }
}

/// The last dialect that the server of a node was told.
fn told(cluster: &Cluster, node: usize) -> Option<ClusterDialect> {
    let dialect = |order: &Order| match order {
        Order::Dialect(max) => Some(*max),
        _ => None,
    };
    cluster.nodes[node].orders.iter().rev().find_map(dialect).flatten()
}

fn raise(cluster: &mut Cluster, node: usize, to: ClusterDialect) -> Result<(), CommandFault> {
    let id = 1_000 + cluster.nodes[node].ends.len() as u64;
    cluster.command(node, id, Command::Raise(to));
    cluster.pass(Duration::from_millis(50));
    let end = cluster.nodes[node].ends.last().cloned();
    let (ended, end) = end.expect("the command has ended");
    assert_eq!(ended, CommandId(id));
    end
}

/// Sets the key of the dialect by hand.
fn set_by_hand(cluster: &mut Cluster, value: Option<&[u8]>) {
    let key = cluster.nodes[0].machine.layout.control(&ControlKey::Dialect);
    let op = match value {
        Some(value) => Op::Put { key, value: value.to_vec(), lease: LeaseId(0) },
        None => Op::Delete(Keys::One(key)),
    };
    cluster.etcd.call(&Request::Txn(Txn { success: vec![op], ..Txn::default() })).unwrap();
    cluster.settle();
}

fn owned(cluster: &Cluster, node: usize, shares: usize) -> usize {
    (0..shares).filter(|n| cluster.owner(*n) == Some(name(node))).count()
}

#[test]
fn a_dialect_is_raised_when_all_nodes_speak_it() {
    let mut cluster = Cluster::new(2, 2);
    cluster.join(speaking(2, 2, OLD), fuse(2));
    cluster.pass(Duration::from_secs(3));
    assert_eq!(cluster.nodes[0].machine.status().dialect, None);
    assert!((0..3).all(|node| told(&cluster, node).is_none()), "there is no limit");
    // The first one may be any that all speak.
    let refused = Err(CommandFault::NotSpoken(NEW, vec![name(2)]));
    assert_eq!(raise(&mut cluster, 0, NEW), refused);
    assert_eq!(raise(&mut cluster, 0, OLD), Ok(()));
    for node in 0..3 {
        assert_eq!(told(&cluster, node), Some(OLD));
        assert_eq!(cluster.nodes[node].machine.status().dialect, Some(OLD));
        assert!(cluster.nodes[node].events.contains(&Event::DialectSet(OLD)));
    }
    // Later ones are larger.
    assert_eq!(raise(&mut cluster, 1, OLD), Ok(()), "it is so already");
    let lowers = Err(CommandFault::Lowers(OLD));
    assert_eq!(raise(&mut cluster, 1, ClusterDialect::SMB_3_0), lowers);
    assert_eq!(raise(&mut cluster, 1, NEW), Err(CommandFault::NotSpoken(NEW, vec![name(2)])));
    // The node is upgraded.
    cluster.command(2, 1, Command::Leave);
    cluster.pass(Duration::from_millis(100));
    cluster.nodes[2].is_up = false;
    cluster.join(speaking(2, 2, NEW), fuse(3));
    cluster.pass(Duration::from_secs(1));
    assert_eq!(raise(&mut cluster, 1, NEW), Ok(()));
    assert!([0, 1, 3].iter().all(|node| told(&cluster, *node) == Some(NEW)));
}

/// A client that is let in by a dialect, as soon as that was raised, finds a next owner that knows of it.
#[test]
fn a_share_is_served_when_the_demand_from_before_its_taking_is_known() {
    let mut cluster = Cluster::new(2, 1);
    assert_eq!(raise(&mut cluster, 0, OLD), Ok(()));
    let from = cluster.owner_index(0);
    let to = 1 - from;
    cluster.nodes[from].drains = false;
    cluster.command(from, 7, Command::Move { share: share(0), to: name(to) });
    let epoch = cluster.nodes[from].machine.view().unwrap().owners[&share(0)].epoch;
    cluster.say(from, Statement::Drained { share: share(0), epoch });
    while let Some(output) = cluster.nodes[from].machine.poll() {
        cluster.carry_out(from, output);
    }
    // The node hears that the share is free, and then, while it takes it, not yet of the raise.
    cluster.forget_orders();
    assert!(cluster.tell(to));
    let watch = cluster.nodes[to].watch.take();
    set_by_hand(&mut cluster, Some(&DialectValue { max: NEW }.to_bytes()));
    let at =
        |cluster: &Cluster, is: fn(&Order) -> bool| cluster.nodes[to].orders.iter().position(is);
    let serve: fn(&Order) -> bool = |order| matches!(order, Order::Serve { .. });
    assert!(at(&cluster, |order| matches!(order, Order::Start { .. })).is_some());
    assert_eq!(at(&cluster, serve), None, "it is restored, and may not be served yet");
    cluster.nodes[to].watch = watch;
    cluster.settle();
    let told = at(&cluster, |order| *order == Order::Dialect(Some(NEW)));
    assert!(told.is_some() && told < at(&cluster, serve), "{:?}", cluster.nodes[to].orders);
}

#[test]
fn refusals_name_the_nodes() {
    let text = |fault: CommandFault| alloc::string::ToString::to_string(&fault);
    assert_eq!(
        text(CommandFault::NotSpoken(NEW, vec![name(1)])),
        "n1 does not speak SMB 3.1.1; upgrade Frevo there, or raise max_dialect"
    );
    assert_eq!(
        text(CommandFault::NotSpoken(NEW, vec![name(1), name(2)])),
        "n1, n2 do not speak SMB 3.1.1; upgrade Frevo there, or raise max_dialect"
    );
    assert_eq!(
        text(CommandFault::Lowers(OLD)),
        "clients may use SMB 3.0.2 already; a cluster's dialect is never lowered"
    );
}

#[test]
fn a_node_that_does_not_speak_the_demand_has_no_shares() {
    let mut cluster = Cluster::new(1, 4);
    assert_eq!(raise(&mut cluster, 0, NEW), Ok(()));
    cluster.join(speaking(1, 4, OLD), fuse(1));
    cluster.pass(Duration::from_secs(1));
    let status = cluster.nodes[0].machine.status();
    let facts: Vec<_> = status.nodes.iter().map(|node| (node.dialect, node.is_behind)).collect();
    assert_eq!(facts, [(Some(NEW), false), (Some(OLD), true)]);
    assert!(cluster.nodes[1].events.contains(&Event::Behind(Some(NEW))));
    // It is given none, not even by hand, and takes none that has no owner.
    cluster.command(0, 1, Command::Move { share: share(0), to: name(1) });
    assert_eq!(cluster.nodes[0].ends.last().unwrap().1, Err(CommandFault::NodeCannot));
    cluster.nodes[0].is_up = false;
    cluster.pass(Duration::from_secs(20));
    assert!((0..4).all(|n| cluster.owner(n).is_none()));
    assert!(main_orders(&cluster.nodes[1]).iter().all(|o| !matches!(o, Order::Start { .. })));
    // One that speaks it takes them.
    cluster.join(speaking(2, 4, NEW), fuse(2));
    cluster.pass(Duration::from_secs(20));
    assert_eq!(owned(&cluster, 2, 4), 4);
}

#[test]
fn a_node_gives_its_shares_away_when_it_does_not_speak_the_demand() {
    let mut cluster = Cluster::new(0, 4);
    cluster.join(speaking(0, 4, OLD), fuse(0));
    cluster.join(speaking(1, 4, NEW), fuse(1));
    cluster.pass(Duration::from_secs(3));
    assert_eq!((owned(&cluster, 0, 4), owned(&cluster, 1, 4)), (2, 2));
    let demand = DialectValue { max: NEW }.to_bytes();
    set_by_hand(&mut cluster, Some(&demand));
    cluster.pass(Duration::from_millis(100));
    assert_eq!(owned(&cluster, 1, 4), 4);
    // Where nobody speaks it, nobody serves.
    cluster.nodes[1].is_up = false;
    cluster.pass(Duration::from_secs(20));
    assert!((0..4).all(|n| cluster.owner(n).is_none()));
    set_by_hand(&mut cluster, None);
    cluster.pass(Duration::from_secs(20));
    assert_eq!(owned(&cluster, 0, 4), 4, "without a limit it may serve");
    assert_eq!(told(&cluster, 0), None);
    // The last node that has shares serves them no longer, either.
    set_by_hand(&mut cluster, Some(&demand));
    cluster.pass(Duration::from_secs(1));
    assert_eq!(owned(&cluster, 0, 4), 0);
}

/// A value of a later version may demand anything: no node has shares until somebody sets it again.
#[test]
fn a_demand_that_cannot_be_read_stops_the_nodes() {
    let mut cluster = Cluster::new(2, 2);
    assert_eq!(raise(&mut cluster, 0, OLD), Ok(()));
    set_by_hand(&mut cluster, Some(b"frevo-dialect 2\nmax=0x0500\n"));
    cluster.pass(Duration::from_secs(1));
    assert!((0..2).all(|n| cluster.owner(n).is_none()));
    for node in &cluster.nodes {
        assert!(node.events.contains(&Event::Behind(None)));
    }
    assert_eq!(told(&cluster, 0), Some(OLD), "the server keeps the last one");
    assert_eq!(raise(&mut cluster, 0, NEW), Ok(()));
    cluster.pass(Duration::from_secs(10));
    assert!((0..2).all(|n| cluster.owner(n).is_some()));
    assert_eq!(told(&cluster, 1), Some(NEW));
}

/// The requests of a machine after an input, which are not carried out.
fn held(cluster: &mut Cluster, node: usize, input: Input) -> Vec<(RequestId, Request)> {
    cluster.input(node, input);
    let mut requests = Vec::new();
    while let Some(output) = cluster.nodes[node].machine.poll() {
        let Output::Request(id, request) = output else { panic!("{output:?}") };
        requests.push((id, request));
    }
    requests
}

/// A node starts with an earlier version between the look at the registrations and the transaction.
#[test]
fn a_registration_that_changes_meanwhile_is_looked_at_again() {
    let mut cluster = Cluster::new(2, 1);
    let command = Command::Raise(NEW);
    let requests = held(&mut cluster, 0, Input::Command { id: CommandId(9), command });
    let [(id, request)] = <[_; 1]>::try_from(requests).unwrap();
    let key = cluster.nodes[1].machine.layout.control(&ControlKey::Node(name(1)));
    let lease = cluster.nodes[1].machine.lease().unwrap();
    let value = cluster.nodes[0].machine.view().unwrap().nodes[&name(1)].value.clone().unwrap();
    let value = NodeValue { dialect: OLD, ..value }.to_bytes();
    let put = Op::Put { key, value, lease };
    cluster.etcd.call(&Request::Txn(Txn { success: vec![put], ..Txn::default() })).unwrap();
    let answer = cluster.etcd.call(&request);
    cluster.input(0, Input::Answer { id, answer });
    assert!(cluster.nodes[0].ends.is_empty());
    cluster.settle();
    let refused = Err(CommandFault::NotSpoken(NEW, vec![name(1)]));
    assert_eq!(cluster.nodes[0].ends, [(CommandId(9), refused)]);
    assert_eq!(cluster.nodes[0].machine.status().dialect, None);
}

/// A node whose knowledge of the demand is old does not come in, and is not told that its name is taken.
#[test]
fn a_registration_knows_the_demand() {
    let mut cluster = Cluster::new(1, 1);
    let machine = Machine::new(speaking(1, 1, OLD), cluster.now);
    cluster.nodes.push(Node::new(machine, fuse(1)));
    // The node reads the keys, and is kept from its registration.
    let mut registration = None;
    for _ in 0..20 {
        while let Some(output) = cluster.nodes[1].machine.poll() {
            match output {
                Output::Request(id, request) if is_registration(&cluster, &request) => {
                    registration = Some((id, request));
                }
                output => cluster.carry_out(1, output),
            }
        }
    }
    let (id, request) = registration.expect("a registration");
    let value = DialectValue { max: NEW }.to_bytes();
    let key = cluster.nodes[0].machine.layout.control(&ControlKey::Dialect);
    let put = Op::Put { key, value, lease: LeaseId(0) };
    cluster.etcd.call(&Request::Txn(Txn { success: vec![put], ..Txn::default() })).unwrap();
    let answer = cluster.etcd.call(&request);
    assert!(matches!(&answer, Ok(crate::interface::Answer::Txn(txn)) if !txn.succeeded));
    cluster.input(1, Input::Answer { id, answer });
    cluster.settle();
    assert!(!cluster.nodes[1].machine.status().is_registered);
    cluster.pass(Duration::from_secs(2));
    assert!(cluster.nodes[1].machine.status().is_registered);
    assert!(!cluster.nodes[1].events.contains(&Event::NameTaken));
    assert!(cluster.nodes[1].events.contains(&Event::Behind(Some(NEW))));
}

/// True for the transaction that makes the key of the second node.
fn is_registration(cluster: &Cluster, request: &Request) -> bool {
    let key = cluster.nodes[0].machine.layout.control(&ControlKey::Node(name(1)));
    let is_put = |op: &Op| matches!(op, Op::Put { key: of, .. } if *of == key);
    matches!(request, Request::Txn(txn) if txn.success.iter().any(is_put))
}
