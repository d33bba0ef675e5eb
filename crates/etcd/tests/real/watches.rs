//! Watches of one member.

use frevo_etcd::types::{Change, Fault, Keys, LeaseId, Op, Revision, Txn, WatchAnswer};

use crate::support::{Cluster, grant, one, prefix, put, range, set, txn, watch};

#[tokio::test]
async fn a_watch_tells_each_change_once_and_in_order() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    txn(&client, set("w/before", "")).await.unwrap();
    let read = range(&client, prefix("w/")).await.unwrap();
    let first = txn(&client, set("w/a", "1")).await.unwrap().revision;
    txn(&client, set("x", "another prefix")).await.unwrap();
    let (mut told, watching) = watch(&client, "w/", read.revision);
    let both = vec![put("w/b", "2", LeaseId(0)), Op::Delete(Keys::One(b"w/a".to_vec()))];
    let second = txn(&client, Txn { success: both, ..Txn::default() }).await.unwrap().revision;
    let mut all = Vec::new();
    while all.len() < 3 {
        let WatchAnswer::Changes { revision, changes } = told.next().await.unwrap() else {
            panic!()
        };
        // Both changes of a transaction come together; so may earlier ones.
        assert!(
            matches!((revision, changes.len()), (_, 3) | (_, 2)) || revision == first,
            "{changes:?}"
        );
        all.extend(changes);
    }
    assert!(matches!(&all[0], Change::Put(value) if value.key == b"w/a"), "{all:?}");
    let delete = Change::Delete { key: b"w/a".to_vec(), revision: second };
    assert!(all[1..].contains(&delete) && all.len() == 3, "{all:?}");
    drop(watching);
    assert!(told.is_over().await);
}

#[tokio::test]
async fn a_watch_tells_the_end_of_a_lease() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    let lease = grant(&client, 1).await.unwrap().lease;
    let own = Txn { success: vec![put("owner", "", lease)], ..Txn::default() };
    let epoch = txn(&client, own).await.unwrap().revision;
    let (mut told, _watching) = watch(&client, "owner", epoch);
    let WatchAnswer::Changes { changes, .. } = told.next().await.unwrap() else { panic!() };
    assert!(matches!(&changes[..], [Change::Delete { revision, .. }] if *revision > epoch));
}

#[tokio::test]
async fn a_compaction_is_told_and_ends_the_watch() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    let first = txn(&client, set("w/a", "1")).await.unwrap().revision;
    let mut last = first;
    for at in 0..5 {
        last = txn(&client, set("w/a", &at.to_string())).await.unwrap().revision;
    }
    // A watch that has told the changes already is not disturbed.
    let (mut early, _early_watching) = watch(&client, "w/", first);
    assert_eq!(early.revisions(5).await.last(), Some(&last.0));
    cluster.compact(last).await;
    let (mut told, _watching) = watch(&client, "w/", first);
    assert_eq!(told.next().await, Ok(WatchAnswer::Compacted { oldest: last }));
    assert!(told.is_over().await);
    let old = frevo_etcd::types::Range { revision: first, ..one("w/a") };
    assert_eq!(range(&client, old).await, Err(Fault::Compacted));
    // The client reads the keys again, and watches from that revision on.
    let read = range(&client, prefix("w/")).await.unwrap();
    let (mut told, _watching) = watch(&client, "w/", read.revision);
    let next = txn(&client, set("w/a", "again")).await.unwrap().revision;
    assert_eq!(told.revisions(1).await, [next.0]);
    assert_eq!(early.revisions(1).await, [next.0]);
}

#[tokio::test]
async fn so_many_watches_are_open_at_once() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    let mut all = Vec::new();
    for _ in 0..frevo_etcd::limits::WATCHES {
        all.push(watch(&client, "w/", Revision(0)));
    }
    let (mut told, watching) = watch(&client, "w/", Revision(0));
    assert!(matches!(told.next().await, Err(Fault::Refused(_))));
    drop(watching);
    let change = txn(&client, set("w/a", "")).await.unwrap().revision;
    for (told, _) in &mut all {
        assert_eq!(told.revisions(1).await, [change.0]);
    }
}
