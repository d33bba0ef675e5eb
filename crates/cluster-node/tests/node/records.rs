//! Records of persistent handles.

use std::sync::Arc;
use std::time::Duration;

use frevo_cluster::values::RecordForm;
use frevo_cluster_node::{Happening, Unit};
use frevo_store::state::{Epoch, Ownership, RecordId, StateFault};
use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::support::{Life, Nodes, unit_name, units};

/// Callbacks run without a lock: they may use the node and its store.
#[tokio::test(start_paused = true)]
async fn a_callback_may_use_the_node() {
    let nodes = Nodes::start(1, &units(1)).await;
    let member = nodes.member(0);
    let owner = member.server.owner("share0").unwrap();
    let (node, store) = (member.node.clone(), Arc::clone(&member.store));
    let (done, end) = oneshot::channel();
    let inner = owner.clone();
    let callback = Box::new(move |put: Result<(), StateFault>| {
        put.unwrap();
        assert!(node.status().is_registered);
        assert_eq!(node.units().len(), 1);
        store.put(&inner, RecordId(2), b"two".to_vec(), Box::new(|end| _ = done.send(end)));
    });
    member.store.put(&owner, RecordId(1), b"one".to_vec(), callback);
    end.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn records_of_another_epoch_are_refused() {
    let nodes = Nodes::start(1, &units(1)).await;
    let member = nodes.member(0);
    let owner = member.server.owner("share0").unwrap();
    let other = Ownership { epoch: Epoch(owner.epoch.0 + 1), ..owner.clone() };
    assert_eq!(member.put_as(&other, 1, b"x").await, Err(StateFault::Fenced));
    let earlier = Ownership { epoch: Epoch(owner.epoch.0 - 1), ..owner.clone() };
    assert_eq!(member.put_as(&earlier, 1, b"x").await, Err(StateFault::Fenced));
    assert_eq!(member.put_as(&owner, 1, b"x").await, Ok(()));
    let foreign = Ownership { share: Arc::from("local"), epoch: Epoch(1) };
    assert!(matches!(member.put_as(&foreign, 1, b"x").await, Err(StateFault::Failed(_))));
}

/// A load outside of a start is not an ownership.
#[tokio::test(start_paused = true)]
async fn a_share_of_another_node_cannot_be_loaded() {
    let nodes = Nodes::start(2, &units(1)).await;
    let other = nodes.member(1 - nodes.owner("share0"));
    let (done, end) = oneshot::channel();
    other.store.load("share0", Box::new(|end| _ = done.send(end)));
    assert_eq!(end.await.unwrap(), Err(StateFault::Fenced));
}

#[tokio::test(start_paused = true)]
async fn shares_of_a_unit_have_their_own_records() {
    let shares = vec![Arc::from("docs"), Arc::from("docs-old")];
    let unit = Unit { shares, ..Unit::of_share(unit_name("group")) };
    let mut nodes = Nodes::start(2, &[unit]).await;
    let from = nodes.owner("docs");
    assert_eq!(nodes.owner("docs-old"), from);
    for id in 0..300 {
        let share = if id % 3 == 0 { "docs-old" } else { "docs" };
        nodes.member(from).put(share, id, &id.to_be_bytes()).await.unwrap();
    }
    nodes.members.remove(&from);
    let (owner, _) = nodes.taken("docs", Some(from)).await;
    nodes.taken("docs-old", Some(from)).await;
    for (share, count, rest) in [("docs", 200, false), ("docs-old", 100, true)] {
        let Life::Served(loaded, _) = nodes.member(owner).server.life(share) else {
            panic!("{share} is served")
        };
        assert_eq!(loaded.records.len(), count);
        for (id, bytes) in &loaded.records {
            assert_eq!((&bytes[..], id.0 % 3 == 0), (&id.0.to_be_bytes()[..], rest));
        }
    }
    let restored = |what: &Happening| matches!(what, Happening::Restored { opens: 300, .. });
    assert!(nodes.member(owner).has_noted(restored));
}

#[tokio::test(start_paused = true)]
async fn a_node_that_has_ended_answers_no_change_well() {
    let mut nodes = Nodes::start(1, &units(1)).await;
    let member = nodes.members.remove(&0).unwrap();
    let owner = member.server.owner("share0").unwrap();
    let (store, limit) = (Arc::clone(&member.store), Arc::clone(&member.limit));
    drop(member);
    tokio::task::yield_now().await;
    let (done, end) = oneshot::channel();
    store.put(&owner, RecordId(1), Vec::new(), Box::new(|end| _ = done.send(end)));
    assert_eq!(end.await.unwrap(), Err(StateFault::Fenced));
    assert!(!limit.allows(nodes.now().0));
}

/// A node of an earlier version that comes into a cluster reads what the others write from then on. When the
/// last one has gone, they write the newest form.
#[tokio::test(start_paused = true)]
async fn all_nodes_write_a_form_of_records_that_each_of_them_reads() {
    let mut nodes = Nodes::start(0, &[]).await;
    let told = |nodes: &Nodes, node| nodes.member(node).server.forms.lock().clone();
    let (earlier, later) = (RecordForm(5), RecordForm(6));
    nodes.records = later;
    for node in 0..2 {
        nodes.join(node, units(1), None);
        sleep(Duration::from_secs(3)).await;
        assert_eq!(told(&nodes, node), [later]);
    }
    nodes.records = earlier;
    nodes.join(2, units(1), None);
    sleep(Duration::from_secs(3)).await;
    // The third one learns what the others read before it is there itself.
    assert_eq!(told(&nodes, 2), [later, earlier]);
    for node in 0..2 {
        assert_eq!(told(&nodes, node), [later, earlier]);
    }
    nodes.member(2).node.leave().await.unwrap();
    sleep(Duration::from_secs(3)).await;
    for node in 0..2 {
        assert_eq!(told(&nodes, node), [later, earlier, later]);
    }
}
