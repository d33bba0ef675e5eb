//! The largest dialect of clients: nodes tell their servers, and one that does not speak it serves nothing.

use std::time::Duration;

use frevo_cluster::ClusterDialect;
use frevo_cluster::interface::{Command, CommandFault, Event};
use frevo_cluster_node::Happening;
use tokio::time::sleep;

use crate::support::{Life, Nodes, node_name, units};

const OLD: ClusterDialect = ClusterDialect::SMB_3_0_2;
const NEW: ClusterDialect = ClusterDialect::SMB_3_1_1;

fn told(nodes: &Nodes, node: usize) -> Option<ClusterDialect> {
    *nodes.member(node).server.dialect.lock()
}

/// Two nodes are upgraded one after the other, and the dialect is raised when both speak it.
#[tokio::test(start_paused = true)]
async fn a_dialect_is_raised_after_the_last_node_is_upgraded() {
    let mut nodes = Nodes::start(0, &[]).await;
    for node in 0..2 {
        nodes.join_speaking(node, units(4), OLD);
    }
    sleep(Duration::from_secs(3)).await;
    let raise = async |nodes: &Nodes, to| nodes.member(0).node.command(Command::Raise(to)).await;
    raise(&nodes, OLD).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    assert_eq!((told(&nodes, 0), told(&nodes, 1)), (Some(OLD), Some(OLD)));
    let mut left = vec![node_name(0), node_name(1)];
    for node in 0..2 {
        let refused = Err(CommandFault::NotSpoken(NEW, left.clone()));
        assert_eq!(raise(&nodes, NEW).await, refused);
        assert_eq!((told(&nodes, 0), told(&nodes, 1)), (Some(OLD), Some(OLD)));
        nodes.member(node).node.leave().await.unwrap();
        nodes.members.remove(&node);
        sleep(Duration::from_millis(100)).await;
        assert_eq!(nodes.owner("share0"), 1 - node, "the other one serves all");
        nodes.join_speaking(node, units(4), NEW);
        sleep(Duration::from_secs(1)).await;
        assert_eq!(told(&nodes, node), Some(OLD), "before it serves anything");
        left.remove(0);
    }
    raise(&nodes, NEW).await.unwrap();
    sleep(Duration::from_millis(100)).await;
    assert_eq!((told(&nodes, 0), told(&nodes, 1)), (Some(NEW), Some(NEW)));
    for n in 0..4 {
        nodes.owner(&format!("share{n}"));
    }
}

/// A node of an earlier version comes back when the dialect was raised without it.
#[tokio::test(start_paused = true)]
async fn a_node_that_does_not_speak_the_dialect_says_so_and_serves_nothing() {
    let mut nodes = Nodes::start(1, &units(3)).await;
    nodes.member(0).node.command(Command::Raise(NEW)).await.unwrap();
    nodes.join_speaking(1, units(3), OLD);
    sleep(Duration::from_secs(3)).await;
    let behind = Happening::Noted(Event::Behind(Some(NEW)));
    assert!(nodes.member(1).has_noted(|what| *what == behind));
    assert!(behind.is_warning());
    let sentence = behind.to_string();
    assert!(sentence.contains("does not speak SMB 3.1.1"), "{sentence}");
    assert!(nodes.member(0).node.status().nodes[1].is_behind);
    nodes.members.remove(&0);
    sleep(Duration::from_secs(30)).await;
    for n in 0..3 {
        assert_eq!(nodes.member(1).server.life(&format!("share{n}")), Life::Elsewhere);
    }
    nodes.join_speaking(2, units(3), NEW);
    for n in 0..3 {
        assert_eq!(nodes.taken(&format!("share{n}"), None).await.0, 2);
    }
}
