//! Three members, of which some are killed or stopped.

use std::time::{Duration, Instant};

use frevo_etcd::client::{Client, Options};
use frevo_etcd::types::{Fault, Op, OpAnswer, Revision, Txn};

use crate::support::{
    Cluster, PATIENCE, client, grant, keep_alive, made_at, one, put, range, set, txn, watch,
};

/// Makes a key, as a caller does: after a lost answer it compares. Returns the revision of the key.
async fn make(client: &Client, key: &str) -> Revision {
    let begun = Instant::now();
    let make = Txn {
        compares: vec![made_at(key, Revision(0))],
        failure: vec![Op::Range(one(key))],
        ..set(key, "v")
    };
    loop {
        match txn(client, make.clone()).await {
            Ok(answer) => match &answer.answers[..] {
                [OpAnswer::Range { values, .. }] => return values[0].create_revision,
                _ => return answer.revision,
            },
            Err(Fault::Unavailable(why)) => assert!(begun.elapsed() < PATIENCE, "{why}"),
            Err(fault) => panic!("{fault}"),
        }
    }
}

#[tokio::test]
async fn requests_go_on_when_one_of_three_is_killed() {
    let Some(mut cluster) = Cluster::start(3).await else { return };
    let client = cluster.client();
    let first = make(&client, "w/a").await;
    let (mut told, _watching) = watch(&client, "w/", first);
    let lease = grant(&client, 10).await.unwrap().lease;
    // The client and its watch are at the first member.
    cluster.kill(0);
    let read = range(&client, one("w/a")).await.expect("a range may be sent again");
    assert_eq!(read.values[0].value, b"v");
    keep_alive(&client, lease).await.expect("a lease may be kept alive again");
    let wanted = make(&client, "w/b").await;
    assert_eq!(told.revisions(1).await, [wanted.0], "the watch goes on at another member");
    // The first member returns, and the other members are killed one after the other.
    cluster.start_member(0);
    cluster.answers(&cluster.client()).await;
    cluster.kill(1);
    cluster.answers(&client).await;
    let wanted = make(&client, "w/c").await;
    assert_eq!(told.revisions(1).await, [wanted.0]);
}

#[tokio::test]
async fn without_a_majority_requests_fail_in_time_and_go_on_by_themselves() {
    let Some(mut cluster) = Cluster::start(3).await else { return };
    let whole = Duration::from_secs(3);
    let client = client(Options { whole, ..cluster.options() });
    let first = make(&client, "w/a").await;
    let (mut told, _watching) = watch(&client, "w/", first);
    cluster.kill(0);
    cluster.kill(2);
    for _ in 0..2 {
        let begun = Instant::now();
        let read = range(&client, one("w/a")).await;
        assert!(matches!(read, Err(Fault::Unavailable(_))), "{read:?}");
        assert!(begun.elapsed() < whole + Duration::from_secs(1), "{:?}", begun.elapsed());
        let written = txn(&client, set("w/lost", "1")).await;
        assert!(matches!(written, Err(Fault::Unavailable(_))), "{written:?}");
    }
    assert!(
        matches!(told.next().await, Err(Fault::Unavailable(_))),
        "the watch tells of the break"
    );
    // The member without a leader refuses requests at once, so that they take no time of theirs.
    let state = client.status().await.remove(1).unwrap();
    assert_eq!(state.leader, 0);
    cluster.start_member(0);
    cluster.answers(&client).await;
    let wanted = make(&client, "w/b").await;
    let lost = range(&client, one("w/lost")).await.unwrap().values;
    // A lost change may have happened: then the watch tells it as well.
    let count = 1 + lost.first().map_or(0, |value| usize::try_from(value.version).unwrap());
    assert_eq!(told.revisions(count).await.last(), Some(&wanted.0));
}

#[tokio::test]
async fn a_stopped_member_is_left_after_one_attempt() {
    let Some(cluster) = Cluster::start(3).await else { return };
    let client = cluster.client();
    let first = make(&client, "w/a").await;
    let (mut told, _watching) = watch(&client, "w/", first);
    let lease = grant(&client, 10).await.unwrap();
    // The connections of the stopped member stay open, and it sends nothing.
    cluster.signal(0, "STOP");
    let begun = Instant::now();
    // If the stopped member was the leader, requests succeed only after an election.
    let kept = loop {
        match keep_alive(&client, lease.lease).await {
            Ok(kept) => break kept,
            Err(fault) => assert!(begun.elapsed() < PATIENCE, "{fault}"),
        }
    };
    assert!(kept.sent > lease.sent);
    let wanted = make(&client, "w/b").await;
    assert_eq!(told.revisions(1).await, [wanted.0], "the watch leaves the silent member");
    // The client does not return to it: each request is quick.
    let begun = Instant::now();
    for _ in 0..5 {
        range(&client, one("w/b")).await.unwrap();
    }
    assert!(begun.elapsed() < PATIENCE / 2);
    cluster.signal(0, "CONT");
    let wanted = make(&client, "w/c").await;
    assert_eq!(told.revisions(1).await, [wanted.0], "each change once");
}

/// A change whose answer is lost is not sent again: it happens once or not at all.
#[tokio::test]
async fn a_change_is_never_made_twice() {
    let Some(cluster) = Cluster::start(3).await else { return };
    let client = cluster.client();
    let mut unknown = 0;
    for round in 0..6_usize {
        cluster.signal(round % 3, "STOP");
        let key = format!("once/{round}");
        let own = Txn { success: vec![put(&key, "v", Default::default())], ..Txn::default() };
        let end = txn(&client, own).await;
        cluster.signal(round % 3, "CONT");
        let known = match end {
            Ok(answer) => answer.succeeded,
            Err(Fault::Unavailable(_)) => {
                unknown += 1;
                false
            }
            Err(fault) => panic!("{fault}"),
        };
        tokio::time::sleep(Duration::from_millis(300)).await;
        cluster.answers(&client).await;
        let values = range(&client, one(&key)).await.unwrap().values;
        let count = values.first().map_or(0, |value| value.version);
        assert!(count <= 1, "{count} times");
        assert!(!known || count == 1, "an acknowledged change is lost");
    }
    assert!(unknown > 0, "no answer was lost");
}
