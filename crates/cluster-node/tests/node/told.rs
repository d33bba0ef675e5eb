//! The states of the cluster that the servers are told, for the clients of their witness.

use std::time::Duration;

use frevo_cluster::interface::Command;
use frevo_cluster_node::limits::TELL_PAUSE;
use frevo_server::ClusterState;
use tokio::time::{Instant, sleep};

use crate::support::{Nodes, node_name, unit_name, units};

/// Time from the moment when a node knows until its server does: a part of the 100 ms in which clients are
/// told.
const AT_ONCE: Duration = Duration::from_millis(50);

/// Waits until a node knows something.
async fn knows(nodes: &Nodes, node: usize, mut is_known: impl FnMut(&Nodes) -> bool) -> Instant {
    let began = Instant::now();
    while !is_known(nodes) {
        sleep(Duration::from_millis(1)).await;
        assert!(began.elapsed() < Duration::from_secs(30), "n{node} does not know it");
    }
    Instant::now()
}

/// The time from `known` until the server of a node was told a state.
async fn told(
    nodes: &Nodes,
    node: usize,
    known: Instant,
    is_it: impl Fn(&ClusterState) -> bool,
) -> Duration {
    sleep(AT_ONCE).await;
    let states = nodes.member(node).server.states.lock();
    let last = states.last().expect("a state");
    assert!(is_it(&last.1), "{:?}", last.1);
    // The first of the states that say so without a break.
    let since = states.iter().rev().take_while(|(_, state)| is_it(state)).last();
    since.map_or(AT_ONCE, |(at, _)| at.saturating_duration_since(known))
}

fn names(state: &ClusterState) -> Vec<&str> {
    state.nodes.iter().map(|node| &*node.name).collect()
}

fn owner<'a>(state: &'a ClusterState, unit: &str) -> Option<&'a str> {
    state.units.iter().find(|known| known.name == unit)?.owner.as_deref()
}

#[tokio::test(start_paused = true)]
async fn the_server_is_told_of_changes_at_once() {
    let mut nodes = Nodes::start(3, &units(2)).await;
    let dead = nodes.owner("share0");
    let witness = (dead + 1) % 3;
    let (dead_name, own_name) = (node_name(dead).to_string(), node_name(witness).to_string());
    let first = nodes.member(witness).server.states.lock().last().cloned().expect("a state").1;
    assert_eq!((&*first.name, &*first.node), ("c", &*own_name));
    assert_eq!(names(&first), ["n0", "n1", "n2"]);
    assert_eq!(owner(&first, "share0"), Some(&*dead_name));
    assert_eq!(first.nodes[0].addresses, ["192.0.2.1".parse::<std::net::IpAddr>().unwrap()]);
    assert_eq!(*first.units[0].shares, ["share0".into()]);
    // A node that dies.
    nodes.members.remove(&dead);
    let status = |nodes: &Nodes| nodes.member(witness).node.status();
    let known = knows(&nodes, witness, |nodes| status(nodes).nodes.len() == 2).await;
    let took = told(&nodes, witness, known, |state| !names(state).contains(&&*dead_name)).await;
    assert!(took <= TELL_PAUSE, "{took:?}");
    let (next, _) = nodes.taken("share0", Some(dead)).await;
    let next_name = node_name(next).to_string();
    let took =
        told(&nodes, witness, Instant::now(), |state| owner(state, "share0") == Some(&*next_name));
    assert!(took.await <= AT_ONCE);
    // A planned move.
    let to = if next == witness {
        (0..3).find(|node| ![dead, next].contains(node)).unwrap()
    } else {
        witness
    };
    let to_name = node_name(to).to_string();
    let command = Command::Move { share: unit_name("share0"), to: node_name(to) };
    nodes.member(witness).node.command(command).await.unwrap();
    let known = knows(&nodes, witness, |nodes| {
        let shares = status(nodes).shares;
        let share = shares.iter().find(|share| share.name.as_str() == "share0");
        share.and_then(|share| share.owner.as_ref()) == Some(&node_name(to))
    });
    let known = known.await;
    let took =
        told(&nodes, witness, known, |state| owner(state, "share0") == Some(&*to_name)).await;
    assert!(took <= TELL_PAUSE, "{took:?}");
    // A node that is drained.
    let is_leaving = |state: &ClusterState| {
        state.nodes.iter().any(|node| node.name == to_name && node.is_leaving)
    };
    nodes.member(witness).node.command(Command::Drain(node_name(to))).await.unwrap();
    let took = told(&nodes, witness, Instant::now(), is_leaving).await;
    assert!(took <= TELL_PAUSE, "{took:?}");
}

/// A node that takes many units makes few states: each is a copy of all units.
#[tokio::test(start_paused = true)]
async fn many_changes_of_a_moment_are_told_together() {
    let mut nodes = Nodes::start(2, &units(300)).await;
    let count = |nodes: &Nodes| nodes.member(1).server.states.lock().len();
    let (before, began) = (count(&nodes), Instant::now());
    nodes.members.remove(&0);
    for n in 0..300 {
        nodes.taken(&format!("share{n}"), Some(0)).await;
    }
    sleep(AT_ONCE).await;
    let rounds = began.elapsed().as_millis() / TELL_PAUSE.as_millis();
    let told = count(&nodes) - before;
    assert!((2..=rounds as usize + 2).contains(&told) && told < 150, "{told} of {rounds}");
    let states = nodes.member(1).server.states.lock();
    let last = &states.last().expect("a state").1;
    assert!(last.units.iter().all(|unit| unit.owner.as_deref() == Some("n1")));
}

/// Nothing is told while nothing changes.
#[tokio::test(start_paused = true)]
async fn a_quiet_cluster_is_told_once() {
    let nodes = Nodes::start(2, &units(2)).await;
    let count = || nodes.member(0).server.states.lock().len();
    let before = count();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(count(), before);
}
