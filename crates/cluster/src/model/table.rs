//! Cases on which the model and a real etcd agree. Each has keys of its own; they can be run on an etcd
//! that has others, too.
//!
//! A test of a real client has [`EngineSubject`](super::subject::EngineSubject) run all [`CASES`].

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::time::Duration;

use frevo_etcd::types::{
    Change, Compare, Fact, Fault, KeyValue, Keys, LeaseId, Op, OpAnswer, Range, Relation, Revision,
    Txn, TxnAnswer, WatchAnswer,
};

use crate::interface::{Answer, Request};

/// An etcd, real or not.
pub trait Subject {
    /// The beginning of the keys of the case under way.
    fn prefix(&self) -> Vec<u8>;

    /// Carries out a request other than a watch.
    ///
    /// # Errors
    /// As etcd.
    fn call(&mut self, request: Request) -> Result<Answer, Fault>;

    /// Returns the changes that a watch after this revision tells, until `count` changes have come or it is compacted.
    ///
    /// # Errors
    /// If the watch has ended for another reason, or tells nothing.
    fn changes(
        &mut self,
        prefix: &[u8],
        told: Revision,
        count: usize,
    ) -> Result<WatchAnswer, Fault>;

    /// Lets time pass.
    fn wait(&mut self, time: Duration);

    /// Forgets all states of keys before the present one.
    fn compact(&mut self);
}

/// A case.
#[derive(Debug)]
pub struct Case {
    /// Its name, which can be a part of a key.
    pub name: &'static str,
    /// Runs it. The error says what is different.
    pub run: fn(&mut dyn Subject) -> Result<(), String>,
}

/// All cases.
pub const CASES: &[Case] = &[
    Case { name: "a-key-counts-its-changes", run: a_key_counts_its_changes },
    Case { name: "a-comparison-decides", run: a_comparison_decides },
    Case { name: "an-absent-key-has-revision-zero", run: an_absent_key_has_revision_zero },
    Case { name: "one-transaction-has-one-revision", run: one_transaction_has_one_revision },
    Case { name: "a-transaction-reads-its-own-changes", run: a_transaction_reads_its_own_changes },
    Case { name: "a-key-is-changed-once-in-a-transaction", run: a_key_is_changed_once },
    Case { name: "so-many-operations", run: so_many_operations },
    Case { name: "parts-of-a-range", run: parts_of_a_range },
    Case { name: "an-older-revision", run: an_older_revision },
    Case { name: "a-lease-ends-with-its-keys", run: a_lease_ends_with_its_keys },
    Case { name: "a-lease-is-kept-alive", run: a_lease_is_kept_alive },
    Case { name: "a-revoked-lease", run: a_revoked_lease },
    Case { name: "a-key-of-an-ended-lease", run: a_key_of_an_ended_lease },
    Case { name: "a-new-owner-has-a-larger-revision", run: a_new_owner_has_a_larger_revision },
    Case { name: "a-watch-tells-all-changes", run: a_watch_tells_all_changes },
    Case { name: "a-compacted-watch", run: a_compacted_watch },
    Case { name: "a-watch-of-the-compacted-revision", run: a_watch_of_the_compacted_revision },
    Case { name: "a-revision-to-come", run: a_revision_to_come },
    Case { name: "a-transaction-without-a-change", run: a_transaction_without_a_change },
    Case { name: "a-lease-is-changed-with-its-key", run: a_lease_is_changed_with_its_key },
    Case { name: "one-value-and-a-deletion-of-others", run: one_value_and_a_deletion_of_others },
    Case { name: "the-other-branch-is-checked", run: the_other_branch_is_checked },
];

fn next(revision: Revision) -> Revision {
    Revision(revision.0.saturating_add(1))
}

fn expect(holds: bool, what: &str) -> Result<(), String> {
    if holds { Ok(()) } else { Err(String::from(what)) }
}

fn key(etcd: &dyn Subject, name: &str) -> Vec<u8> {
    let mut key = etcd.prefix();
    key.extend_from_slice(name.as_bytes());
    key
}

fn put(key: &[u8], value: &str, lease: LeaseId) -> Op {
    Op::Put { key: key.to_vec(), value: value.as_bytes().to_vec(), lease }
}

fn read(keys: Keys, limit: u64, after: &[u8], revision: Revision) -> Op {
    Op::Range(Range { keys, limit, after: after.to_vec(), revision })
}

fn one(key: &[u8]) -> Op {
    read(Keys::One(key.to_vec()), 0, b"", Revision(0))
}

fn equal(key: &[u8], fact: Fact) -> Compare {
    Compare { key: key.to_vec(), relation: Relation::Equal, fact }
}

fn txn(etcd: &mut dyn Subject, txn: Txn) -> Result<TxnAnswer, String> {
    match etcd.call(Request::Txn(txn)) {
        Ok(Answer::Txn(answer)) => Ok(answer),
        other => Err(format!("a transaction ended with {other:?}")),
    }
}

fn carry_out(etcd: &mut dyn Subject, success: Vec<Op>) -> Result<TxnAnswer, String> {
    txn(etcd, Txn { success, ..Txn::default() })
}

fn get(etcd: &mut dyn Subject, key: &[u8]) -> Result<Option<KeyValue>, String> {
    let answer = carry_out(etcd, vec![one(key)])?;
    match answer.answers.into_iter().next() {
        Some(OpAnswer::Range { values, .. }) => Ok(values.into_iter().next()),
        other => Err(format!("a range has the answer {other:?}")),
    }
}

fn grant(etcd: &mut dyn Subject) -> Result<LeaseId, String> {
    match etcd.call(Request::Grant(Duration::from_secs(2))) {
        Ok(Answer::Confirmed(lease)) if lease.ttl >= Duration::from_secs(2) => Ok(lease.lease),
        other => Err(format!("a grant ended with {other:?}")),
    }
}

fn changes(
    etcd: &mut dyn Subject,
    prefix: &[u8],
    told: Revision,
    count: usize,
) -> Result<WatchAnswer, String> {
    let answer = etcd.changes(prefix, told, count);
    answer.map_err(|fault| format!("a watch ended with {fault:?}"))
}

fn a_key_counts_its_changes(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let first = carry_out(etcd, vec![put(&key, "1", LeaseId(0))])?.revision;
    let second = carry_out(etcd, vec![put(&key, "2", LeaseId(0))])?.revision;
    let entry = get(etcd, &key)?.ok_or("the key is missing")?;
    expect(entry.value == b"2" && entry.version == 2, "value and version")?;
    expect(entry.create_revision == first && entry.mod_revision == second, "revisions")?;
    carry_out(etcd, vec![Op::Delete(Keys::One(key.clone()))])?;
    let third = carry_out(etcd, vec![put(&key, "3", LeaseId(0))])?.revision;
    let entry = get(etcd, &key)?.ok_or("the key is missing")?;
    expect(entry.version == 1 && entry.create_revision == third && third > second, "made anew")
}

fn a_comparison_decides(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let made = carry_out(etcd, vec![put(&key, "b", LeaseId(0))])?.revision;
    let facts = [
        (Relation::Equal, Fact::CreateRevision(made), true),
        (Relation::NotEqual, Fact::CreateRevision(made), false),
        (Relation::Equal, Fact::ModRevision(made), true),
        (Relation::Less, Fact::ModRevision(made), false),
        (Relation::Greater, Fact::ModRevision(Revision(0)), true),
        (Relation::Equal, Fact::Value(b"b".to_vec()), true),
        (Relation::Greater, Fact::Value(b"a".to_vec()), true),
        (Relation::Less, Fact::Value(b"ba".to_vec()), true),
        (Relation::Equal, Fact::Value(b"".to_vec()), false),
        (Relation::Equal, Fact::Lease(LeaseId(0)), true),
        (Relation::Equal, Fact::Lease(LeaseId(1)), false),
    ];
    for (relation, fact, holds) in facts {
        let what = format!("{relation:?} {fact:?}");
        let compares = vec![Compare { key: key.clone(), relation, fact }];
        let wanted = Txn { compares, success: vec![one(&key)], failure: Vec::new() };
        let answer = txn(etcd, wanted)?;
        expect(answer.succeeded == holds, &what)?;
        expect(answer.answers.len() == usize::from(holds), "answers of the other branch")?;
    }
    Ok(())
}

fn an_absent_key_has_revision_zero(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "absent");
    for (fact, holds) in [
        (Fact::CreateRevision(Revision(0)), true),
        (Fact::ModRevision(Revision(0)), true),
        (Fact::CreateRevision(Revision(1)), false),
        (Fact::Value(Vec::new()), false),
    ] {
        let what = format!("{fact:?}");
        let wanted = Txn {
            compares: vec![equal(&key, fact)],
            success: vec![one(&key)],
            failure: vec![one(&key)],
        };
        expect(txn(etcd, wanted)?.succeeded == holds, &what)?;
    }
    Ok(())
}

fn one_transaction_has_one_revision(etcd: &mut dyn Subject) -> Result<(), String> {
    let (a, b) = (key(etcd, "a"), key(etcd, "b"));
    let answer = carry_out(etcd, vec![put(&a, "1", LeaseId(0)), put(&b, "1", LeaseId(0))])?;
    let (a, b) = (get(etcd, &a)?, get(etcd, &b)?);
    let revision = |key: Option<KeyValue>| key.map(|key| key.create_revision);
    expect(revision(a) == Some(answer.revision), "the first key")?;
    expect(revision(b) == Some(answer.revision), "the second key")
}

fn a_transaction_reads_its_own_changes(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    for version in 1..4 {
        let answer = carry_out(etcd, vec![put(&key, "", LeaseId(0)), one(&key)])?;
        let [OpAnswer::Put, OpAnswer::Range { values, .. }] = &*answer.answers else {
            return Err(format!("the answers are {:?}", answer.answers));
        };
        expect(values.first().is_some_and(|key| key.version == version), "the version")?;
    }
    Ok(())
}

fn a_key_is_changed_once(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let twice = vec![put(&key, "1", LeaseId(0)), put(&key, "2", LeaseId(0))];
    let answer = etcd.call(Request::Txn(Txn { success: twice, ..Txn::default() }));
    expect(matches!(answer, Err(Fault::Refused(_))), "two values")?;
    let both = vec![put(&key, "1", LeaseId(0)), Op::Delete(Keys::One(key.clone()))];
    let answer = etcd.call(Request::Txn(Txn { success: both, ..Txn::default() }));
    expect(matches!(answer, Err(Fault::Refused(_))), "a value and a deletion")?;
    expect(get(etcd, &key)?.is_none(), "it did not happen")
}

fn so_many_operations(etcd: &mut dyn Subject) -> Result<(), String> {
    let name = |n: usize| format!("k{n}");
    for (count, is_good) in [(128, true), (129, false)] {
        let keys: Vec<_> = (0..count).map(|n| key(etcd, &name(n))).collect();
        let success = keys.iter().map(|key| put(key, "", LeaseId(0))).collect();
        let answer = etcd.call(Request::Txn(Txn { success, ..Txn::default() }));
        let is_refused = matches!(answer, Err(Fault::Refused(_)));
        expect(if is_good { answer.is_ok() } else { is_refused }, &format!("{count} operations"))?;
    }
    Ok(())
}

fn parts_of_a_range(etcd: &mut dyn Subject) -> Result<(), String> {
    let keys: Vec<_> = ["a", "b", "c", "d", "e"].iter().map(|name| key(etcd, name)).collect();
    for key in &keys {
        carry_out(etcd, vec![put(key, "", LeaseId(0))])?;
    }
    let prefix = etcd.prefix();
    let mut after = Vec::new();
    let mut found = Vec::new();
    for (count, wanted_more) in [(2, true), (2, true), (1, false)] {
        let range = read(Keys::Prefix(prefix.clone()), 2, &after, Revision(0));
        let answer = carry_out(etcd, vec![range])?;
        let Some(OpAnswer::Range { values, more }) = answer.answers.into_iter().next() else {
            return Err(String::from("no range"));
        };
        expect(values.len() == count && more == wanted_more, "the size of a part")?;
        found.extend(values.into_iter().map(|entry| entry.key));
        after = found.last().cloned().unwrap_or_default();
    }
    expect(found == keys, "the keys in their order")
}

fn an_older_revision(etcd: &mut dyn Subject) -> Result<(), String> {
    let (a, b) = (key(etcd, "a"), key(etcd, "b"));
    let old = carry_out(etcd, vec![put(&a, "1", LeaseId(0)), put(&b, "1", LeaseId(0))])?.revision;
    carry_out(etcd, vec![put(&a, "2", LeaseId(0)), Op::Delete(Keys::One(b))])?;
    let range = read(Keys::Prefix(etcd.prefix()), 0, b"", old);
    let answer = carry_out(etcd, vec![range])?;
    let Some(OpAnswer::Range { values, more }) = answer.answers.into_iter().next() else {
        return Err(String::from("no range"));
    };
    expect(!more && values.len() == 2, "both keys")?;
    expect(values.iter().all(|entry| entry.value == b"1" && entry.mod_revision == old), "values")?;
    expect(answer.revision > old, "the revision of the answer is the newest")
}

fn a_lease_ends_with_its_keys(etcd: &mut dyn Subject) -> Result<(), String> {
    let (a, b) = (key(etcd, "a"), key(etcd, "b"));
    let lease = grant(etcd)?;
    carry_out(etcd, vec![put(&a, "", lease), put(&b, "", lease)])?;
    let entry = get(etcd, &a)?.ok_or("the key is missing")?;
    expect(entry.lease == lease, "the lease of the key")?;
    etcd.wait(Duration::from_millis(1_000));
    expect(get(etcd, &a)?.is_some(), "it has not ended early")?;
    // etcd looks for leases that have ended from time to time.
    for _ in 0..40 {
        if get(etcd, &a)?.is_some() {
            etcd.wait(Duration::from_millis(500));
        }
    }
    expect(get(etcd, &a)?.is_none() && get(etcd, &b)?.is_none(), "the keys have gone")?;
    let answer = etcd.call(Request::KeepAlive(lease));
    expect(answer == Err(Fault::LeaseNotFound), "the lease has gone")
}

fn a_lease_is_kept_alive(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let lease = grant(etcd)?;
    carry_out(etcd, vec![put(&key, "", lease)])?;
    for _ in 0..4 {
        etcd.wait(Duration::from_millis(1_000));
        let answer = etcd.call(Request::KeepAlive(lease));
        let is_confirmed = |answer: &Answer| {
            matches!(answer, Answer::Confirmed(confirmed)
                if confirmed.lease == lease && confirmed.ttl >= Duration::from_secs(2))
        };
        expect(answer.as_ref().is_ok_and(is_confirmed), &format!("kept alive: {answer:?}"))?;
    }
    expect(get(etcd, &key)?.is_some(), "the key is there")
}

fn a_revoked_lease(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let lease = grant(etcd)?;
    let made = carry_out(etcd, vec![put(&key, "", lease)])?.revision;
    expect(etcd.call(Request::Revoke(lease)) == Ok(Answer::Revoked), "revoked")?;
    expect(get(etcd, &key)?.is_none(), "the key has gone")?;
    expect(etcd.call(Request::Revoke(lease)) == Ok(Answer::Revoked), "once more")?;
    let told = changes(etcd, &key, made, 1)?;
    let is_deletion =
        |change: &Change| matches!(change, Change::Delete { key: of, .. } if *of == key);
    match told {
        WatchAnswer::Changes { changes, .. } => {
            expect(changes.len() == 1 && changes.iter().all(is_deletion), "the watch tells it")
        }
        WatchAnswer::Compacted { .. } => Err(String::from("compacted")),
    }
}

fn a_key_of_an_ended_lease(etcd: &mut dyn Subject) -> Result<(), String> {
    let (key, other) = (key(etcd, "k"), key(etcd, "other"));
    let lease = grant(etcd)?;
    expect(etcd.call(Request::Revoke(lease)) == Ok(Answer::Revoked), "revoked")?;
    let success = vec![put(&other, "", LeaseId(0)), put(&key, "", lease)];
    let answer = etcd.call(Request::Txn(Txn { success, ..Txn::default() }));
    expect(answer == Err(Fault::LeaseNotFound), &format!("the lease has ended: {answer:?}"))?;
    expect(get(etcd, &key)?.is_none() && get(etcd, &other)?.is_none(), "nothing has happened")
}

fn a_new_owner_has_a_larger_revision(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "owner");
    let take = |lease| Txn {
        compares: vec![equal(&key, Fact::CreateRevision(Revision(0)))],
        success: vec![put(&key, "n", lease)],
        failure: vec![one(&key)],
    };
    let (first, second) = (grant(etcd)?, grant(etcd)?);
    let taken = txn(etcd, take(first))?;
    expect(taken.succeeded, "the first")?;
    let refused = txn(etcd, take(second))?;
    expect(!refused.succeeded, "the second is refused")?;
    expect(etcd.call(Request::Revoke(first)) == Ok(Answer::Revoked), "revoked")?;
    let again = txn(etcd, take(second))?;
    expect(again.succeeded && again.revision > taken.revision, "the second")?;
    let late = Txn {
        compares: vec![equal(&key, Fact::CreateRevision(taken.revision))],
        success: vec![put(&key, "late", LeaseId(0))],
        failure: vec![one(&key)],
    };
    let late = txn(etcd, late)?;
    expect(!late.succeeded, "a late owner")?;
    let entry = get(etcd, &key)?.ok_or("the key is missing")?;
    expect(entry.value == b"n" && entry.create_revision == again.revision, "the owner stands")
}

fn a_watch_tells_all_changes(etcd: &mut dyn Subject) -> Result<(), String> {
    let (a, b) = (key(etcd, "a"), key(etcd, "b"));
    let begin = carry_out(etcd, vec![put(&a, "0", LeaseId(0))])?.revision;
    let first = carry_out(etcd, vec![put(&a, "1", LeaseId(0)), put(&b, "1", LeaseId(0))])?.revision;
    let prefix = etcd.prefix();
    let second = carry_out(etcd, vec![Op::Delete(Keys::Prefix(prefix.clone()))])?.revision;
    let WatchAnswer::Changes { revision, changes } = changes(etcd, &prefix, begin, 4)? else {
        return Err(String::from("compacted"));
    };
    expect(revision == second && changes.len() == 4, "four changes")?;
    let revisions: Vec<_> = changes
        .iter()
        .map(|change| match change {
            Change::Put(entry) => entry.mod_revision,
            Change::Delete { revision, .. } => *revision,
        })
        .collect();
    expect(revisions == [first, first, second, second], "their revisions")
}

fn a_compacted_watch(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let begin = carry_out(etcd, vec![put(&key, "0", LeaseId(0))])?.revision;
    carry_out(etcd, vec![put(&key, "1", LeaseId(0))])?;
    let last = carry_out(etcd, vec![put(&key, "2", LeaseId(0))])?.revision;
    etcd.compact();
    let told = changes(etcd, &key, begin, 2)?;
    expect(matches!(told, WatchAnswer::Compacted { oldest } if oldest >= last), "compacted")?;
    let range = read(Keys::One(key), 0, b"", begin);
    let answer = etcd.call(Request::Txn(Txn { success: vec![range], ..Txn::default() }));
    expect(answer == Err(Fault::Compacted), &format!("an old revision: {answer:?}"))
}

/// A watch that was told all up to the revision before the compacted one: etcd may have forgotten a
/// deletion of the compacted revision.
fn a_watch_of_the_compacted_revision(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let begin = carry_out(etcd, vec![put(&key, "0", LeaseId(0))])?.revision;
    let last = carry_out(etcd, vec![Op::Delete(Keys::One(key.clone()))])?.revision;
    expect(last == next(begin), "nobody else changes anything")?;
    etcd.compact();
    let told = changes(etcd, &key, begin, 1)?;
    let is_told = match &told {
        WatchAnswer::Compacted { oldest } => *oldest == last,
        WatchAnswer::Changes { .. } => false,
    };
    expect(is_told, &format!("compacted: {told:?}"))?;
    let later = carry_out(etcd, vec![put(&key, "1", LeaseId(0))])?.revision;
    let told = changes(etcd, &key, last, 1)?;
    expect(
        matches!(&told, WatchAnswer::Changes { revision, .. } if *revision == later),
        &format!("after the compacted revision: {told:?}"),
    )
}

fn a_revision_to_come(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let now = carry_out(etcd, vec![put(&key, "0", LeaseId(0))])?.revision;
    let range = read(Keys::One(key), 0, b"", next(now));
    let answer = etcd.call(Request::Txn(Txn { success: vec![range], ..Txn::default() }));
    expect(matches!(answer, Err(Fault::Refused(_))), &format!("refused: {answer:?}"))
}

fn a_transaction_without_a_change(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let before = carry_out(etcd, vec![put(&key, "0", LeaseId(0))])?.revision;
    let absent = [etcd.prefix(), b"absent".to_vec()].concat();
    let delete = Op::Delete(Keys::One(absent));
    let answer = carry_out(etcd, vec![delete, one(&key)])?;
    expect(answer.revision == before, "no revision of its own")?;
    expect(answer.answers.first() == Some(&OpAnswer::Delete(0)), "nothing was deleted")
}

fn a_lease_is_changed_with_its_key(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let (first, second) = (grant(etcd)?, grant(etcd)?);
    let made = carry_out(etcd, vec![put(&key, "1", first)])?.revision;
    carry_out(etcd, vec![put(&key, "2", second)])?;
    expect(etcd.call(Request::Revoke(first)) == Ok(Answer::Revoked), "revoked")?;
    let entry = get(etcd, &key)?.ok_or("the key has another lease")?;
    expect(entry.lease == second && entry.create_revision == made, "the later lease")?;
    carry_out(etcd, vec![put(&key, "3", LeaseId(0))])?;
    expect(etcd.call(Request::Revoke(second)) == Ok(Answer::Revoked), "revoked")?;
    expect(get(etcd, &key)?.is_some_and(|entry| entry.value == b"3"), "without a lease")
}

fn one_value_and_a_deletion_of_others(etcd: &mut dyn Subject) -> Result<(), String> {
    let (a, b) = (key(etcd, "a"), key(etcd, "b"));
    carry_out(etcd, vec![put(&a, "", LeaseId(0))])?;
    let other = vec![put(&b, "", LeaseId(0)), Op::Delete(Keys::One(a.clone()))];
    carry_out(etcd, other)?;
    expect(get(etcd, &a)?.is_none() && get(etcd, &b)?.is_some(), "both have happened")?;
    let all = vec![put(&a, "", LeaseId(0)), Op::Delete(Keys::Prefix(etcd.prefix()))];
    let answer = etcd.call(Request::Txn(Txn { success: all, ..Txn::default() }));
    expect(matches!(answer, Err(Fault::Refused(_))), &format!("a prefix: {answer:?}"))
}

fn the_other_branch_is_checked(etcd: &mut dyn Subject) -> Result<(), String> {
    let key = key(etcd, "k");
    let twice = vec![put(&key, "1", LeaseId(0)), put(&key, "2", LeaseId(0))];
    let wanted = Txn { success: vec![one(&key)], failure: twice, ..Txn::default() };
    let answer = etcd.call(Request::Txn(wanted));
    expect(matches!(answer, Err(Fault::Refused(_))), &format!("refused: {answer:?}"))
}
