//! Nodes that end, that etcd cannot be reached from, or that storage refuses.

use std::sync::atomic::Ordering;
use std::time::Duration;

use frevo_cluster::fence::Fence;
use frevo_cluster::interface::Event;
use frevo_cluster::settings::Timing;
use frevo_cluster_node::{Happening, Unit};
use tokio::time::{Instant, sleep};

use crate::support::{Life, Nodes, units};

fn with_address() -> Unit {
    Unit { addresses: vec!["192.0.2.20".parse().unwrap()], ..units(1).remove(0) }
}

#[tokio::test(start_paused = true)]
async fn a_dead_owner_is_fenced_and_its_records_are_restored() {
    let mut nodes = Nodes::start(2, &units(1)).await;
    let dead = nodes.owner("share0");
    nodes.member(dead).put("share0", 9, b"nine").await.unwrap();
    nodes.members.remove(&dead);
    let (owner, time) = nodes.taken("share0", Some(dead)).await;
    assert!(time < Timing::default().ttl() + Duration::from_millis(100), "{time:?}");
    let Life::Served(loaded, grace) = nodes.member(owner).server.life("share0") else {
        panic!("it is served")
    };
    assert_eq!(loaded.records.len(), 1);
    assert!(grace.is_some());
    assert_eq!(nodes.world.fences.lock().len(), 1);
    assert!(nodes.member(owner).has_noted(|what| matches!(what, Happening::Fenced { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_fence_is_carried_out_once_for_all_units_of_a_node() {
    let mut nodes = Nodes::start(2, &units(20)).await;
    nodes.members.remove(&0);
    for n in 0..20 {
        assert_eq!(nodes.taken(&format!("share{n}"), None).await.0, 1);
    }
    assert_eq!(nodes.world.fences.lock().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn without_a_fence_the_next_owner_waits() {
    let mut nodes = Nodes::start(0, &[]).await;
    nodes.join_with(0, units(1), None, false);
    nodes.join_with(1, units(1), None, false);
    let (dead, _) = nodes.taken("share0", None).await;
    nodes.members.remove(&dead);
    let (owner, time) = nodes.taken("share0", Some(dead)).await;
    let timing = Timing::default();
    assert!(time > timing.wait() && time < timing.ttl() + timing.wait() + timing.ttl() / 10);
    assert!(
        nodes
            .member(owner)
            .has_noted(|what| { matches!(what, Happening::Noted(Event::TakenWithoutFence(..))) })
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_that_follows_another_one_takes_its_shares_at_once() {
    let mut nodes = Nodes::start(1, &units(3)).await;
    let lease = nodes.member(0).node.lease();
    assert!(lease.is_some());
    nodes.members.remove(&0);
    let begin = Instant::now();
    nodes.join(0, units(3), lease);
    for n in 0..3 {
        nodes.taken(&format!("share{n}"), None).await;
    }
    assert!(begin.elapsed() < Duration::from_millis(1_500), "{:?}", begin.elapsed());
    assert!(nodes.world.fences.lock().is_empty());
}

/// A node that does not reach etcd stops serving in time, has its addresses removed, and is fenced. When
/// it reaches etcd again, it has a new identity and takes shares.
#[tokio::test(start_paused = true)]
async fn a_node_without_etcd_stops_and_comes_back() {
    let nodes = Nodes::start(2, &[with_address()]).await;
    let lost = nodes.owner("share0");
    let old = nodes.member(lost).server.owner("share0").unwrap();
    nodes.member(lost).is_cut.store(true, Ordering::Relaxed);
    let begin = Instant::now();
    while nodes.serving("share0").contains(&lost) {
        sleep(Duration::from_millis(5)).await;
    }
    assert!(begin.elapsed() < Timing::default().ttl());
    sleep(Duration::from_millis(20)).await;
    assert_eq!(nodes.addresses("share0"), Vec::<usize>::new());
    let (owner, _) = nodes.taken("share0", Some(lost)).await;
    assert_eq!(nodes.addresses("share0"), [owner]);
    assert_eq!(nodes.world.fences.lock().len(), 1);
    assert!(nodes.member(lost).node.status().is_paused);
    assert!(nodes.member(lost).has_noted(|what| *what == Happening::Paused));
    nodes.member(lost).is_cut.store(false, Ordering::Relaxed);
    sleep(Duration::from_secs(3)).await;
    assert_eq!(nodes.serving("share0"), [owner]);
    assert!(nodes.member(lost).put_as(&old, 1, b"late").await.is_err());
    assert_eq!(nodes.member(lost).server.life("share0"), Life::Elsewhere);
    // It has looked at its storage, which refuses its old identity.
    nodes.member(owner).node.leave().await.unwrap();
    sleep(Duration::from_millis(100)).await;
    assert_eq!(nodes.owner("share0"), lost);
    let identities: Vec<_> = nodes.world.fences.lock().clone();
    assert!(matches!(identities[..], [Fence::Fuse { connection, .. }] if connection < 3));
}

/// etcd has no majority for a minute: nothing is served meanwhile, and all goes on with the same epochs.
#[tokio::test(start_paused = true)]
async fn a_lost_majority_pauses_all_and_needs_nobodys_hand() {
    let nodes = Nodes::start(3, &units(3)).await;
    let before: Vec<_> = (0..3)
        .map(|n| {
            let share = format!("share{n}");
            let owner = nodes.owner(&share);
            (owner, nodes.member(owner).server.owner(&share).unwrap())
        })
        .collect();
    nodes.etcd.change(|etcd| etcd.set_majority(false));
    sleep(Timing::default().ttl()).await;
    for (n, (owner, ownership)) in before.iter().enumerate() {
        let share = format!("share{n}");
        assert!(nodes.serving(&share).is_empty());
        let kept = nodes.member(*owner).server.owner(&share);
        assert_eq!(kept.as_ref(), Some(ownership), "its Opens stay");
    }
    sleep(Duration::from_secs(58)).await;
    assert!(
        nodes
            .member(0)
            .has_noted(|what| { matches!(what, Happening::Noted(Event::EtcdSilent(_))) })
    );
    nodes.etcd.change(|etcd| etcd.set_majority(true));
    sleep(Duration::from_secs(3)).await;
    for (n, (owner, ownership)) in before.iter().enumerate() {
        let share = format!("share{n}");
        assert_eq!(nodes.owner(&share), *owner);
        assert_eq!(nodes.member(*owner).server.owner(&share).as_ref(), Some(ownership));
        nodes.member(*owner).put(&share, 1, b"again").await.unwrap();
        assert!(nodes.member(*owner).has_noted(|what| *what == Happening::Resumed));
    }
    assert!(nodes.world.fences.lock().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_share_whose_storage_is_lost_goes_to_another_node() {
    let nodes = Nodes::start(2, &units(1)).await;
    let lost = nodes.owner("share0");
    (nodes.member(lost).storage_lost)("share0");
    (nodes.member(lost).storage_lost)("a share of nobody");
    let (owner, time) = nodes.taken("share0", Some(lost)).await;
    assert!(owner != lost && time < Duration::from_secs(5), "{time:?}");
    assert!(nodes.member(lost).has_noted(|what| matches!(what, Happening::Stopped { .. })));
}

/// A share is nobody else's before its server has stopped it, although that fails at first.
#[tokio::test(start_paused = true)]
async fn a_share_that_is_not_stopped_has_one_owner() {
    let nodes = Nodes::start(2, &units(1)).await;
    let lost = nodes.owner("share0");
    let member = nodes.member(lost);
    *member.server.stops_that_fail.lock() = 3;
    let is_stopped = |what: &Happening| matches!(what, Happening::Stopped { .. });
    (member.storage_lost)("share0");
    sleep(Duration::from_millis(2_900)).await;
    assert_eq!(nodes.serving("share0"), [lost]);
    assert!(!member.has_noted(is_stopped));
    let (owner, _) = nodes.taken("share0", Some(lost)).await;
    assert!(owner != lost && member.has_noted(is_stopped));
    assert_eq!(*member.server.stops_that_fail.lock(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_share_that_cannot_be_started_goes_to_another_node() {
    let mut nodes = Nodes::start(2, &units(1)).await;
    let dead = nodes.owner("share0");
    nodes.join(2, units(1), None);
    sleep(Duration::from_secs(1)).await;
    for (_, member) in nodes.members.iter().filter(|(node, _)| **node != dead) {
        *member.server.start_fault.lock() = Some("the folder is gone".to_owned());
    }
    nodes.members.remove(&dead);
    let (owner, _) = nodes.taken("share0", Some(dead)).await;
    let failed = nodes.members.iter().find(|(node, _)| **node != owner).unwrap().1;
    let is_not_started = |what: &Happening| matches!(what, Happening::NotStarted { .. });
    assert!(failed.has_noted(is_not_started) || nodes.member(owner).has_noted(is_not_started));
}
