//! Planned moves: shares are given, not taken.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_cluster::interface::{Command, CommandFault};
use frevo_cluster_node::{Happening, Unit};
use tokio::sync::Notify;
use tokio::time::sleep;

use crate::support::{Life, Nodes, node_name, unit_name, units};

#[tokio::test(start_paused = true)]
async fn shares_spread_over_nodes_and_each_has_one_owner() {
    let nodes = Nodes::start(3, &units(6)).await;
    let mut counts = [0; 3];
    for n in 0..6 {
        counts[nodes.owner(&format!("share{n}"))] += 1;
    }
    assert_eq!(counts, [2, 2, 2]);
    let status = nodes.member(1).node.status();
    assert_eq!((status.nodes.len(), status.shares.len()), (3, 6));
    assert!(status.is_registered && status.etcd_answers && !status.is_paused);
    let generations: Vec<_> = (0..3).map(|n| nodes.member(n).ids.take().unwrap() >> 32).collect();
    let mut apart = generations.clone();
    apart.sort_unstable();
    apart.dedup();
    assert_eq!(apart.len(), 3, "{generations:?}");
}

#[tokio::test(start_paused = true)]
async fn a_move_takes_records_and_addresses_along() {
    let unit = Unit { addresses: vec!["192.0.2.20".parse().unwrap()], ..units(1).remove(0) };
    let nodes = Nodes::start(2, std::slice::from_ref(&unit)).await;
    let from = nodes.owner("share0");
    let to = 1 - from;
    assert_eq!(nodes.addresses("share0"), [from]);
    let old = nodes.member(from).server.owner("share0").unwrap();
    nodes.member(from).put("share0", 5, b"five").await.unwrap();
    nodes.member(from).put("share0", 6, b"six").await.unwrap();
    nodes.member(from).remove("share0", 5).await.unwrap();
    // Any node carries out the command.
    let command = Command::Move { share: unit_name("share0"), to: node_name(to) };
    nodes.member(to).node.command(command).await.unwrap();
    nodes.taken("share0", Some(from)).await;
    assert_eq!(nodes.addresses("share0"), [to]);
    let Life::Served(loaded, grace) = nodes.member(to).server.life("share0") else {
        panic!("it is served")
    };
    let records: Vec<_> = loaded.records.iter().map(|(id, bytes)| (id.0, &bytes[..])).collect();
    assert_eq!(records, [(6, &b"six"[..])]);
    assert_eq!(grace, Some(Duration::from_secs(10)));
    assert!(nodes.world.fences.lock().is_empty());
    // The former owner writes nothing more, and its clients find the new one by the address.
    assert!(nodes.member(from).put_as(&old, 7, b"late").await.is_err());
    assert!(nodes.member(from).server.told.lock().is_empty());
    assert!(nodes.member(from).has_noted(|what| matches!(what, Happening::Given { .. })));
    let seen = nodes.member(from).node.units().remove(0);
    assert!(seen.since.is_some_and(|since| nodes.now().0 - since.0 < Duration::from_secs(1)));
    assert_eq!(seen.because, Some(format!("n{from} gave it away")));
}

#[tokio::test(start_paused = true)]
async fn clients_of_a_unit_without_addresses_are_told_the_node() {
    let nodes = Nodes::start(2, &units(1)).await;
    let from = nodes.owner("share0");
    let command = Command::Move { share: unit_name("share0"), to: node_name(1 - from) };
    nodes.member(from).node.command(command).await.unwrap();
    sleep(Duration::from_millis(50)).await;
    let told = nodes.member(from).server.told.lock().clone();
    assert_eq!(
        told.iter().map(|address| usize::from(address.port())).collect::<Vec<_>>(),
        [1 - from]
    );
}

#[tokio::test(start_paused = true)]
async fn a_share_that_cannot_be_drained_is_served_on() {
    let unit = Unit { addresses: vec!["192.0.2.20".parse().unwrap()], ..units(1).remove(0) };
    let nodes = Nodes::start(2, &[unit]).await;
    let from = nodes.owner("share0");
    *nodes.member(from).server.drain_fault.lock() = Some("a request hangs".to_owned());
    let command = Command::Move { share: unit_name("share0"), to: node_name(1 - from) };
    let end = nodes.member(from).node.command(command).await;
    assert_eq!(end, Err(CommandFault::NotGiven));
    sleep(Duration::from_secs(1)).await;
    assert_eq!((nodes.owner("share0"), nodes.addresses("share0")), (from, vec![from]));
    nodes.member(from).put("share0", 1, b"on").await.unwrap();
    assert!(nodes.member(from).has_noted(|what| matches!(what, Happening::NotGiven { .. })));
}

/// A drain fails when its node may not serve any more: another one may have the unit with its addresses.
#[tokio::test(start_paused = true)]
async fn a_paused_node_sets_no_addresses_after_a_drain_that_fails() {
    let unit = Unit { addresses: vec!["192.0.2.20".parse().unwrap()], ..units(1).remove(0) };
    let nodes = Nodes::start(2, &[unit]).await;
    let from = nodes.owner("share0");
    let end = Arc::new(Notify::new());
    *nodes.member(from).server.drain_fault.lock() = Some("a request hangs".to_owned());
    *nodes.member(from).server.drain_end.lock() = Some(Arc::clone(&end));
    tokio::spawn(nodes.member(from).node.command(Command::Drain(node_name(from))));
    sleep(Duration::from_secs(1)).await;
    assert_eq!(nodes.addresses("share0"), [0; 0], "the drain hangs");
    nodes.member(from).is_cut.store(true, Ordering::Relaxed);
    while nodes.member(from).limit.allows(nodes.now().0) {
        sleep(Duration::from_millis(5)).await;
    }
    end.notify_one();
    sleep(Duration::from_millis(20)).await;
    assert_eq!(nodes.addresses("share0"), [0; 0]);
    // The other one takes it.
    nodes.taken("share0", Some(from)).await;
    sleep(Duration::from_secs(1)).await;
    assert_eq!(nodes.addresses("share0"), [1 - from]);
}

#[tokio::test(start_paused = true)]
async fn a_drained_node_has_no_shares_until_it_is_undrained() {
    let nodes = Nodes::start(3, &units(6)).await;
    nodes.member(0).node.command(Command::Drain(node_name(2))).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    for n in 0..6 {
        assert_ne!(nodes.owner(&format!("share{n}")), 2);
    }
    let command = || Command::Move { share: unit_name("share0"), to: node_name(2) };
    let end = nodes.member(1).node.command(command()).await;
    assert_eq!(end, Err(CommandFault::NodeCannot));
    nodes.member(0).node.command(Command::Undrain(node_name(2))).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    nodes.member(1).node.command(command()).await.unwrap();
    assert_eq!(nodes.taken("share0", None).await.0, 2);
}

#[tokio::test(start_paused = true)]
async fn a_node_that_leaves_gives_all_away_and_is_gone() {
    let mut nodes = Nodes::start(2, &units(4)).await;
    nodes.member(0).node.leave().await.unwrap();
    assert_eq!(nodes.member(1).node.status().nodes.len(), 1);
    sleep(Duration::from_millis(100)).await;
    for n in 0..4 {
        assert_eq!(nodes.owner(&format!("share{n}")), 1);
    }
    nodes.members.remove(&0);
    assert!(nodes.world.fences.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_reload_adds_a_share() {
    let nodes = Nodes::start(2, &units(1)).await;
    for member in nodes.members.values() {
        member.node.set_unit(Unit::of_share(unit_name("late")));
    }
    nodes.taken("late", None).await;
    assert_eq!(nodes.member(0).node.status().shares.len(), 2);
    let owner = nodes.member(nodes.owner("late"));
    owner.put("late", 1, b"kept").await.unwrap();
}
