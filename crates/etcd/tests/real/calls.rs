//! Transactions, ranges and leases of one member.

use std::time::{Duration, Instant};

use frevo_etcd::client::now;
use frevo_etcd::engine::Engine;
use frevo_etcd::types::{
    Compare, Fact, Fault, Keys, LeaseId, Op, OpAnswer, Range, Relation, Revision, Txn,
};
use tokio::sync::mpsc;

use crate::support::{
    Cluster, PATIENCE, grant, keep_alive, made_at, one, prefix, put, range, revoke, set, txn,
};

#[tokio::test]
async fn a_transaction_happens_whole_or_not_at_all() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    let owner = Txn {
        compares: vec![made_at("owner", Revision(0))],
        success: vec![put("owner", "node1", LeaseId(0)), put("epoch", "", LeaseId(0))],
        failure: vec![Op::Range(one("owner")), Op::Range(prefix("e"))],
    };
    let first = txn(&client, owner.clone()).await.unwrap();
    assert!(first.succeeded);
    assert_eq!(first.answers, [OpAnswer::Put, OpAnswer::Put]);
    let second = txn(&client, owner).await.unwrap();
    assert_eq!((second.succeeded, second.revision), (false, first.revision));
    let [OpAnswer::Range { values, more: false }, OpAnswer::Range { values: epochs, .. }] =
        &second.answers[..]
    else {
        panic!("{second:?}");
    };
    assert_eq!(values[0].value, b"node1");
    assert_eq!((values[0].create_revision, values[0].version), (first.revision, 1));
    assert_eq!(epochs[0].value, b"");
    let delete = Txn { success: vec![Op::Delete(Keys::Prefix(b"o".to_vec()))], ..Txn::default() };
    assert_eq!(txn(&client, delete).await.unwrap().answers, [OpAnswer::Delete(1)]);
    assert_eq!(range(&client, one("owner")).await.unwrap().values, []);
}

/// Each fact with each relation, on a key that exists and on one that does not.
#[tokio::test]
async fn comparisons_mean_what_the_values_say() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    let revision = txn(&client, set("a", "m")).await.unwrap().revision;
    let lease = grant(&client, 60).await.unwrap().lease;
    let with_lease = Txn { success: vec![put("b", "m", lease)], ..Txn::default() };
    txn(&client, with_lease).await.unwrap();
    let holds = async |key: &str, relation, fact| {
        let compares = vec![Compare { key: key.into(), relation, fact }];
        txn(&client, Txn { compares, ..Txn::default() }).await.unwrap().succeeded
    };
    use Relation::{Equal, Greater, Less, NotEqual};
    let later = Revision(revision.0 + 1);
    for fact in [Fact::CreateRevision, Fact::ModRevision] {
        assert!(holds("a", Equal, fact(revision)).await);
        assert!(!holds("a", Equal, fact(later)).await);
        assert!(holds("a", NotEqual, fact(later)).await);
        assert!(holds("a", Less, fact(later)).await);
        assert!(holds("a", Greater, fact(Revision(0))).await);
        assert!(holds("none", Equal, fact(Revision(0))).await);
        assert!(!holds("none", Greater, fact(Revision(0))).await);
    }
    assert!(holds("a", Equal, Fact::Value(b"m".to_vec())).await);
    assert!(holds("a", Greater, Fact::Value(b"l".to_vec())).await);
    assert!(!holds("none", NotEqual, Fact::Value(b"m".to_vec())).await);
    assert!(holds("b", Equal, Fact::Lease(lease)).await);
    assert!(holds("a", Equal, Fact::Lease(LeaseId(0))).await);
    assert!(!holds("b", Equal, Fact::Lease(LeaseId(0))).await);
}

#[tokio::test]
async fn a_long_range_comes_in_parts_of_one_revision() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    for tens in 0..3 {
        let keys = (0..100).map(|at| put(&format!("k{:03}", tens * 100 + at), "v", LeaseId(0)));
        txn(&client, Txn { success: keys.collect(), ..Txn::default() }).await.unwrap();
    }
    let (mut asked, mut found) = (Range { limit: 70, ..prefix("k") }, Vec::new());
    loop {
        let answer = range(&client, asked.clone()).await.unwrap();
        if asked.revision == Revision(0) {
            asked.revision = answer.revision;
            // Later changes are not in the later parts.
            txn(&client, set("k299a", "late")).await.unwrap();
        }
        asked.after = answer.values.last().unwrap().key.clone();
        found.extend(answer.values);
        if !answer.more {
            break;
        }
    }
    let wanted: Vec<Vec<u8>> = (0..300).map(|at| format!("k{at:03}").into_bytes()).collect();
    assert_eq!(found.into_iter().map(|value| value.key).collect::<Vec<_>>(), wanted);
    let future = Range { revision: Revision(1_000), ..one("k") };
    assert!(matches!(range(&client, future).await, Err(Fault::Refused(_))));
}

#[tokio::test]
async fn a_lease_ends_after_its_time_and_a_late_owner_changes_nothing() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    let granted = grant(&client, 2).await.unwrap();
    let own = Txn {
        compares: vec![made_at("owner", Revision(0))],
        success: vec![put("owner", "node1", granted.lease)],
        failure: Vec::new(),
    };
    let epoch = txn(&client, own.clone()).await.unwrap().revision;
    let record = |value: &str| Txn {
        compares: vec![made_at("owner", epoch)],
        success: vec![put("record", value, LeaseId(0))],
        failure: Vec::new(),
    };
    assert!(txn(&client, record("early")).await.unwrap().succeeded);
    // With keep-alives the lease lives longer than its time.
    let mut kept = granted;
    for _ in 0..6 {
        tokio::time::sleep(granted.ttl / 4).await;
        let before = now();
        kept = keep_alive(&client, granted.lease).await.unwrap();
        assert!(kept.sent >= before && kept.sent <= now());
        assert_eq!((kept.lease, kept.ttl), (granted.lease, granted.ttl));
    }
    assert!(txn(&client, record("kept")).await.unwrap().succeeded);
    let end = Instant::now() + PATIENCE;
    while !range(&client, one("owner")).await.unwrap().values.is_empty() {
        assert!(Instant::now() < end, "the lease does not end");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    // The owner's own clock had ended the lease before.
    assert!(now().0 >= kept.sent.0 + kept.ttl, "the lease ended early");
    assert!(!txn(&client, record("late")).await.unwrap().succeeded);
    assert_eq!(range(&client, one("record")).await.unwrap().values[0].value, b"kept");
    assert_eq!(keep_alive(&client, granted.lease).await, Err(Fault::LeaseNotFound));
    assert_eq!(txn(&client, own).await, Err(Fault::LeaseNotFound));
    assert_eq!(revoke(&client, granted.lease).await, Ok(()));
}

#[tokio::test]
async fn a_revoked_lease_takes_its_keys_along() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    let lease = grant(&client, 60).await.unwrap().lease;
    let both = vec![put("a", "", lease), put("b", "", lease)];
    txn(&client, Txn { success: both, ..Txn::default() }).await.unwrap();
    revoke(&client, lease).await.unwrap();
    for key in ["a", "b"] {
        assert_eq!(range(&client, one(key)).await.unwrap().values, [], "{key}");
    }
    for ttl in [Duration::ZERO, Duration::from_millis(1_500)] {
        let (done, end) = crate::support::done();
        client.grant(ttl, done);
        assert!(matches!(end.await.unwrap(), Err(Fault::Refused(_))), "{ttl:?}");
    }
}

#[tokio::test]
async fn a_lease_is_kept_alive_until_it_ends() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    let granted = grant(&client, 2).await.unwrap();
    let (send, mut told) = mpsc::unbounded_channel();
    let tell = Box::new(move |end| drop(send.send(end)));
    let keeping = client.keep(granted.lease, granted.ttl / 4, tell);
    let mut last = granted.sent;
    // One and a half times the time of the lease.
    for _ in 0..6 {
        let kept = told.recv().await.unwrap().unwrap();
        assert!(kept.sent > last, "one request at a time");
        last = kept.sent;
    }
    revoke(&client, granted.lease).await.unwrap();
    let end = loop {
        match told.recv().await.unwrap() {
            Ok(_) => {}
            Err(fault) => break fault,
        }
    };
    assert_eq!(end, Fault::LeaseNotFound);
    assert!(told.recv().await.is_none(), "it goes on");
    drop(keeping);
    // Without further keep-alives a lease ends.
    let granted = grant(&client, 1).await.unwrap();
    drop(client.keep(granted.lease, granted.ttl / 4, Box::new(drop)));
    let end = Instant::now() + PATIENCE;
    loop {
        tokio::time::sleep(granted.ttl * 2).await;
        match keep_alive(&client, granted.lease).await {
            Ok(_) => assert!(Instant::now() < end, "the lease does not end"),
            Err(fault) => break assert_eq!(fault, Fault::LeaseNotFound),
        }
    }
}

#[tokio::test]
async fn members_tell_their_state() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    let states = client.status().await;
    let [Ok(state)] = &states[..] else { panic!("{states:?}") };
    assert!(state.version.starts_with("3."), "{state:?}");
    assert_eq!(state.member, state.leader);
    let members = client.members().await.unwrap();
    assert_eq!((members.len(), &members[0].client_urls[..]), (1, &[cluster.url(0)][..]));
    assert_eq!(members[0].id, state.member);
}

/// More requests than connections: all of them have their answers.
#[tokio::test]
async fn many_requests_have_their_answers() {
    let Some(cluster) = Cluster::start(1).await else { return };
    let client = cluster.client();
    let count = 3 * frevo_etcd::limits::REQUESTS_AT_ONCE;
    let (send, mut ends) = mpsc::unbounded_channel();
    for at in 0..count {
        let send = send.clone();
        client.txn(set(&format!("m{at:04}"), "v"), Box::new(move |end| drop(send.send(end))));
    }
    for _ in 0..count {
        assert!(ends.recv().await.unwrap().unwrap().succeeded);
    }
    assert_eq!(range(&client, prefix("m")).await.unwrap().values.len(), count);
}
