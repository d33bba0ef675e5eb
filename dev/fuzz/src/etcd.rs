//! Answers of etcd's gateway, which a client trusts no more than a stranger's.

use std::fmt::Debug;

use frevo_etcd::json::{self, Lines, TOO_LONG, WatchLine};
use frevo_etcd::types::{
    Change, Fault, KeyValue, Keys, LeaseId, Op, OpAnswer, Range, Revision, Txn, WatchAnswer,
};

const PREFIX: &[u8] = b"b";

/// An answer to the request that the first byte names, or a stream of them, which comes in parts of as
/// many bytes as the second byte says.
pub fn etcd_answers(data: &[u8]) {
    let Some((kind, data)) = data.split_first() else { return };
    words(json::cluster_of(data));
    match kind % 10 {
        0 => range(data, &asked(0)),
        1 => range(data, &asked(1)),
        2 => txn(data),
        3 => watch(data),
        4 => {
            if let Ok(answer) = json::lease_answer(data) {
                assert!(answer.lease != LeaseId(0) && !answer.ttl.is_zero());
            }
        }
        5 => kept(data),
        6 => words(json::refusal(data).map(json::Refusal::verdict)),
        7 => words(json::token_answer(data).map(|token| token.len())),
        8 => words(json::status_answer(data)),
        _ => words(json::members_answer(data)),
    }
}

/// The keys that begin with [`PREFIX`].
fn asked(limit: u64) -> Range {
    let (after, revision) = (Vec::new(), Revision(0));
    Range { keys: Keys::Prefix(PREFIX.to_vec()), limit, after, revision }
}

/// Prints an answer or a fault: that must not fail either.
fn words<T: Debug>(read: Result<T, Fault>) {
    match read {
        Ok(answer) => drop(format!("{answer:?}")),
        Err(fault) => drop(fault.to_string()),
    }
}

fn range(data: &[u8], asked: &Range) {
    if let Ok(answer) = json::range_answer(data, asked) {
        are_asked_for(&answer.values, asked, answer.revision);
    }
}

fn are_asked_for(values: &[KeyValue], asked: &Range, newest: Revision) {
    assert!(
        asked.limit == 0 || values.len() <= usize::try_from(asked.limit).expect("a small limit")
    );
    assert!(values.is_sorted_by(|one, next| one.key < next.key));
    for value in values {
        assert!(value.key.starts_with(PREFIX));
        assert!(Revision(0) < value.create_revision && value.create_revision <= value.mod_revision);
        assert!(value.mod_revision <= newest);
    }
}

fn txn(data: &[u8]) {
    let put = Op::Put { key: b"b".to_vec(), value: Vec::new(), lease: LeaseId(0) };
    let delete = Op::Delete(Keys::Prefix(PREFIX.to_vec()));
    let asked = Txn {
        compares: Vec::new(),
        success: vec![put, Op::Range(asked(0))],
        failure: vec![Op::Range(asked(0)), delete],
    };
    let Ok(answer) = json::txn_answer(data, &asked) else { return };
    let ops = if answer.succeeded { &asked.success } else { &asked.failure };
    assert_eq!(answer.answers.len(), ops.len());
    for (answered, op) in answer.answers.iter().zip(ops) {
        match (answered, op) {
            (OpAnswer::Range { values, .. }, Op::Range(asked)) => {
                are_asked_for(values, asked, answer.revision);
            }
            (OpAnswer::Put, Op::Put { .. }) | (OpAnswer::Delete(_), Op::Delete(_)) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// The lines of a stream do not depend on the parts in which it comes.
fn lines(data: &[u8]) -> Vec<Vec<u8>> {
    let Some((size, data)) = data.split_first() else { return Vec::new() };
    let take = |parts: &mut dyn Iterator<Item = &[u8]>| {
        let (mut lines, mut found) = (Lines::default(), Vec::new());
        for part in parts {
            let taken = lines.take(part, |line| {
                found.push(line.to_vec());
                Ok::<_, Fault>(())
            });
            assert!(taken.is_ok() || taken == Err(TOO_LONG));
        }
        found
    };
    let whole = take(&mut std::iter::once(data));
    // Short parts of long streams take too long here, and find nothing more.
    let size = usize::from(*size).max(data.len() / 64).max(1);
    assert_eq!(take(&mut data.chunks(size)), whole);
    whole
}

fn watch(data: &[u8]) {
    let mut after = Revision(3);
    for line in lines(data) {
        let Ok(WatchLine::Answer(answer)) = json::watch_line(&line, PREFIX, after) else {
            continue;
        };
        let WatchAnswer::Changes { revision, changes } = answer else { continue };
        assert!(revision >= after, "a watch never goes back");
        for change in &changes {
            let (key, changed) = match change {
                Change::Put(value) => (&value.key, value.mod_revision),
                Change::Delete { key, revision } => (key, *revision),
            };
            assert!(key.starts_with(PREFIX) && changed > after && changed <= revision);
        }
        after = revision;
    }
}

fn kept(data: &[u8]) {
    for line in lines(data) {
        if let Ok(Ok(answer)) = json::kept_answer(&line, LeaseId(5)) {
            assert!(answer.lease == LeaseId(5) && !answer.ttl.is_zero());
        }
    }
}
