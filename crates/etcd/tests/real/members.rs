//! Three members, of which some are killed or stopped.

use std::time::{Duration, Instant};

use frevo_etcd::client::{Client, Identity, Options};
use frevo_etcd::types::{Fault, Op, OpAnswer, Range, Revision, Txn};

use crate::support::{
    Cluster, PATIENCE, client, grant, keep_alive, made_at, one as one_key, put, range, set, txn,
    watch,
};

/// Makes a key, as a caller does: after a lost answer it compares. Returns the revision of the key.
async fn make(client: &Client, key: &str) -> Revision {
    let begun = Instant::now();
    let make = Txn {
        compares: vec![made_at(key, Revision(0))],
        failure: vec![Op::Range(one_key(key))],
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
    let read = range(&client, one_key("w/a")).await.expect("a range may be sent again");
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

/// Options by which the endpoints must prove that they lead to one etcd.
fn proving(options: Options, value: &str) -> Options {
    let identity = Identity { key: "frevo/nas/etcd".into(), value: value.into() };
    Options { identity: Some(identity), ..options }
}

#[tokio::test]
async fn three_members_prove_that_they_are_one_etcd() {
    let Some(mut cluster) = Cluster::start(3).await else { return };
    let (one, other) = (proving(cluster.options(), "n1"), proving(cluster.options(), "n2"));
    let (one, other) = (client(one), client(other));
    assert_eq!((one.prove().await, other.prove().await), (None, None));
    let first = range(&one, key()).await.unwrap().values;
    assert_eq!(first[0].value, b"n1 1", "the first client has chosen the value");
    assert_eq!(range(&other, key()).await.unwrap().values, first);
    // A member that was away proves it again.
    cluster.kill(0);
    set_up(&one).await;
    cluster.start_member(0);
    cluster.answers(&cluster.client()).await;
    cluster.kill(1);
    set_up(&one).await;
    assert_eq!(one.prove().await, None);
}

fn key() -> Range {
    one_key("frevo/nas/etcd")
}

/// Makes a change, once a member answers.
async fn set_up(client: &Client) {
    let begun = Instant::now();
    while let Err(fault) = txn(client, set("up", "1")).await {
        assert!(matches!(fault, Fault::Unavailable(_)) && begun.elapsed() < PATIENCE, "{fault}");
    }
}

#[tokio::test]
async fn endpoints_of_two_etcds_are_refused() {
    let (Some(mut one), Some(other)) = (Cluster::start(1).await, Cluster::start(1).await) else {
        return;
    };
    let both = |value| {
        let (mut options, others) = (one.options(), other.options());
        options.endpoints.extend(others.endpoints);
        client(proving(options, value))
    };
    let (urls, client_of_both, later) = ([one.url(0), other.url(0)], both("n1"), both("n3"));
    let is_refusal = |fault: &Fault| {
        let Fault::Refused(why) = fault else { return false };
        why.starts_with(&format!("{} and {} are not members of one etcd", urls[1], urls[0]))
    };
    // The first request looks at all endpoints, and nothing has happened at either.
    let refused = txn(&client_of_both, set("a", "1")).await.unwrap_err();
    assert!(is_refusal(&refused), "{refused}");
    let lease = grant(&client_of_both, 10).await.unwrap_err();
    assert!(is_refusal(&lease), "{lease}");
    let (mut told, _watching) = watch(&client_of_both, "w/", Revision(1));
    assert!(is_refusal(&told.next().await.unwrap_err()));
    assert!(client_of_both.prove().await.is_some());
    for cluster in [&one, &other] {
        assert_eq!(range(&cluster.client(), one_key("a")).await.unwrap().values, []);
    }
    // A client that has found one of them alone does not go on at the other.
    one.kill(0);
    assert_eq!(later.prove().await, None, "the other one is an etcd, too");
    one.start_member(0);
    one.answers(&one.client()).await;
    assert!(later.prove().await.is_some());
    assert!(matches!(txn(&later, set("a", "1")).await, Err(Fault::Refused(_))));
    // One of them alone is good, also after its keys were deleted by hand.
    let whole = Duration::from_secs(2);
    let alone = client(proving(Options { whole, ..one.options() }, "n2"));
    assert_eq!(range(&alone, key()).await.unwrap().values[0].value, b"n1 1");
    let delete = Txn { success: vec![Op::Delete(key().keys)], ..Txn::default() };
    txn(&alone, delete).await.unwrap();
    one.kill(0);
    assert!(range(&alone, key()).await.is_err());
    one.start_member(0);
    set_up(&alone).await;
    assert_eq!(range(&alone, key()).await.unwrap().values[0].value, b"n1 1");
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
        let read = range(&client, one_key("w/a")).await;
        assert!(matches!(read, Err(Fault::Unavailable(_))), "{read:?}");
        assert!(begun.elapsed() < whole + Duration::from_secs(5), "{:?}", begun.elapsed());
        let written = txn(&client, set("w/lost", "1")).await;
        assert!(matches!(written, Err(Fault::Unavailable(_))), "{written:?}");
    }
    assert!(
        matches!(told.next().await, Err(Fault::Unavailable(_))),
        "the watch tells of the break"
    );
    // The member without a leader refuses requests at once, so that they take no time of theirs.
    let begun = Instant::now();
    let state = loop {
        match client.status().await.remove(1) {
            Ok(state) => break state,
            // A busy machine can take longer for one answer than a request may.
            Err(fault) => assert!(begun.elapsed() < PATIENCE, "{fault}"),
        }
    };
    assert_eq!(state.leader, 0);
    cluster.start_member(0);
    cluster.answers(&client).await;
    let wanted = make(&client, "w/b").await;
    let lost = range(&client, one_key("w/lost")).await.unwrap().values;
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
        range(&client, one_key("w/b")).await.unwrap();
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
        let values = range(&client, one_key(&key)).await.unwrap().values;
        let count = values.first().map_or(0, |value| value.version);
        assert!(count <= 1, "{count} times");
        assert!(!known || count == 1, "an acknowledged change is lost");
    }
    assert!(unknown > 0, "no answer was lost");
}
