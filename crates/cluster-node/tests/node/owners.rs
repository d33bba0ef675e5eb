//! The owners of shares, which nodes tell their servers, so that these send clients there.

use std::net::SocketAddr;
use std::time::Duration;

use frevo_cluster::interface::Command;
use frevo_cluster_node::Unit;
use tokio::time::sleep;

use crate::support::{Nodes, node_name, unit_name, units};

/// The addresses that the server of a node sends clients of a share to.
fn sent(nodes: &Nodes, node: usize, share: &str) -> Vec<SocketAddr> {
    nodes.member(node).server.owners.lock().get(share).cloned().unwrap_or_default()
}

/// The addresses of a node of the tests.
fn addresses(node: usize) -> Vec<SocketAddr> {
    vec![SocketAddr::from(([192, 0, 2, 1], u16::try_from(node).unwrap()))]
}

#[tokio::test(start_paused = true)]
async fn a_server_knows_the_other_owner() {
    let mut nodes = Nodes::start(2, &units(2)).await;
    for share in ["share0", "share1"] {
        let owner = nodes.owner(share);
        assert_eq!(sent(&nodes, 1 - owner, share), addresses(owner));
        assert!(sent(&nodes, owner, share).is_empty(), "it is here");
    }
    // A move changes both.
    let (from, to) = (nodes.owner("share0"), 1 - nodes.owner("share0"));
    let command = Command::Move { share: unit_name("share0"), to: node_name(to) };
    nodes.member(from).node.command(command).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    assert_eq!(sent(&nodes, from, "share0"), addresses(to));
    assert!(sent(&nodes, to, "share0").is_empty());
    // A node that dies has no shares any more.
    nodes.members.remove(&to);
    nodes.taken("share0", Some(to)).await;
    sleep(Duration::from_millis(100)).await;
    assert!(sent(&nodes, from, "share0").is_empty(), "it is here");
}

/// Clients of a unit with addresses find its owner behind these.
#[tokio::test(start_paused = true)]
async fn nobody_is_sent_to_the_owner_of_addresses() {
    let unit = Unit {
        addresses: vec!["192.0.2.20".parse().unwrap()],
        ..Unit::of_share(unit_name("moving"))
    };
    let nodes = Nodes::start(2, &[unit]).await;
    let owner = nodes.owner("moving");
    assert!(nodes.member(1 - owner).server.owners.lock().is_empty());
}
