use super::*;
use crate::interface::{Answer, Request};
use crate::model::Etcd;
use crate::names::ClusterName;
use core::time::Duration;
use proptest::prelude::*;

struct Bench {
    etcd: Etcd,
    layout: Layout,
    share: ShareName,
    queue: RecordQueue,
}

fn txn(etcd: &mut Etcd, txn: Txn) -> TxnAnswer {
    match etcd.call(&Request::Txn(txn)) {
        Ok(Answer::Txn(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

fn bench() -> Bench {
    let layout = Layout::new(&ClusterName::new("c").unwrap());
    let share = ShareName::new("data").unwrap();
    let mut etcd = Etcd::default();
    let ttl = Duration::from_secs(2);
    let Ok(Answer::Confirmed(lease)) = etcd.call(&Request::Grant(ttl)) else { panic!() };
    let (lease, take) = (lease.lease, TakeNumber(1));
    let owner = layout.control(&ControlKey::Owner(share.clone()));
    let stamp = batch_value(lease, take, 0);
    let success = vec![
        Op::Put { key: owner, value: Vec::new(), lease },
        Op::Put { key: layout.batch(&share), value: stamp, lease: LeaseId(0) },
    ];
    let taken = txn(&mut etcd, Txn { success, ..Txn::default() });
    let queue = RecordQueue::new(share.clone(), Epoch(taken.revision.0), lease, take);
    Bench { etcd, layout, share, queue }
}

fn put(id: u64, bytes: &[u8]) -> RecordChange {
    RecordChange::Put(RecordId(id), bytes.to_vec())
}

impl Bench {
    fn push(&mut self, change: RecordChange, ticket: u64) {
        self.queue.push(change, Ticket(ticket)).unwrap();
    }

    fn value(&self, id: u64) -> Option<Vec<u8>> {
        let key = self.layout.record(&self.share, RecordId(id));
        self.etcd.get(&key).map(|key| key.value.clone())
    }
}

#[test]
fn changes_that_wait_leave_together() {
    let mut bench = bench();
    bench.push(put(1, b"a"), 1);
    let first = bench.queue.next(&bench.layout).unwrap();
    assert_eq!(first.success.len(), 2);
    for n in 2..=200 {
        bench.push(put(n, b"b"), n);
    }
    assert_eq!(bench.queue.next(&bench.layout), None, "one is under way");
    let answer = txn(&mut bench.etcd, first);
    assert_eq!(bench.queue.answered(&answer), Verdict::Done(vec![Ticket(1)]));
    let second = bench.queue.next(&bench.layout).unwrap();
    assert_eq!(second.success.len(), TXN_RECORDS + 1);
    let answer = txn(&mut bench.etcd, second);
    let Verdict::Done(tickets) = bench.queue.answered(&answer) else { panic!() };
    assert_eq!(tickets, (2..=121).map(Ticket).collect::<Vec<_>>());
    let third = bench.queue.next(&bench.layout).unwrap();
    let answer = txn(&mut bench.etcd, third);
    assert!(matches!(bench.queue.answered(&answer), Verdict::Done(left) if left.len() == 79));
    assert!(bench.queue.is_empty());
}

#[test]
fn the_last_change_of_a_record_counts() {
    let mut bench = bench();
    bench.push(put(1, b"a"), 1);
    bench.push(RecordChange::Remove(RecordId(1)), 2);
    bench.push(put(1, b"c"), 3);
    bench.push(RecordChange::Remove(RecordId(2)), 4);
    let next = bench.queue.next(&bench.layout).unwrap();
    assert_eq!(next.success.len(), 3);
    let answer = txn(&mut bench.etcd, next);
    let all = (1..=4).map(Ticket).collect();
    assert_eq!(bench.queue.answered(&answer), Verdict::Done(all));
    assert_eq!(bench.value(1).as_deref(), Some(&b"c"[..]));
}

#[test]
fn a_lost_answer_is_decided_by_the_number() {
    let mut bench = bench();
    bench.push(put(1, b"a"), 1);
    let first = bench.queue.next(&bench.layout).unwrap();
    txn(&mut bench.etcd, first.clone());
    // The answer was lost. The repeated transaction finds that its number is already stored.
    let again = bench.queue.repeat().unwrap();
    assert_eq!(again, first);
    let answer = txn(&mut bench.etcd, again);
    assert!(!answer.succeeded);
    assert_eq!(bench.queue.answered(&answer), Verdict::Done(vec![Ticket(1)]));
    bench.push(put(1, b"b"), 2);
    let second = bench.queue.next(&bench.layout).unwrap();
    let answer = txn(&mut bench.etcd, second);
    assert!(answer.succeeded);
    assert_eq!(bench.queue.answered(&answer), Verdict::Done(vec![Ticket(2)]));
    // An attempt that etcd carries out late changes nothing.
    assert!(!txn(&mut bench.etcd, first).succeeded);
    assert_eq!(bench.value(1).as_deref(), Some(&b"b"[..]));
}

#[test]
fn a_former_owner_writes_nothing() {
    let mut bench = bench();
    bench.push(put(1, b"a"), 1);
    let next = bench.queue.next(&bench.layout).unwrap();
    bench.push(put(2, b"a"), 2);
    let owner = bench.layout.control(&ControlKey::Owner(bench.share.clone()));
    let success = vec![Op::Delete(Keys::One(owner))];
    txn(&mut bench.etcd, Txn { success, ..Txn::default() });
    let answer = txn(&mut bench.etcd, next);
    assert_eq!(bench.queue.answered(&answer), Verdict::Fenced);
    assert_eq!(bench.queue.fence(), vec![Ticket(1), Ticket(2)]);
    assert_eq!(bench.value(1), None);
}

#[test]
fn records_and_queues_are_bounded() {
    let mut bench = bench();
    let large = vec![0; RECORD_BYTES];
    bench.push(put(0, &large), 0);
    let larger = RecordChange::Put(RecordId(0), vec![0; RECORD_BYTES + 1]);
    assert_eq!(bench.queue.push(larger, Ticket(1)), Err(Full::Record));
    for n in 1..20 {
        bench.push(put(n, &large), n);
    }
    let next = bench.queue.next(&bench.layout).unwrap();
    assert_eq!(next.success.len(), 16, "15 records and the number are below 1 MiB");
    assert!(bench.etcd.call(&Request::Txn(next)).is_ok());
    let mut many = self::bench();
    for n in 0..RECORDS_WAITING as u64 {
        if many.queue.push(RecordChange::Remove(RecordId(n)), Ticket(n)).is_err() {
            // Removals count with the size of their keys.
            assert!(n as usize * 1_200 + 1_200 > RECORD_BYTES_WAITING);
            return;
        }
    }
    assert_eq!(many.queue.push(put(1, b""), Ticket(0)), Err(Full::Queue));
}

#[test]
fn a_refused_transaction_has_failed_unless_it_may_have_happened() {
    let mut bench = bench();
    bench.push(put(1, b"a"), 1);
    bench.queue.next(&bench.layout).unwrap();
    assert_eq!(bench.queue.refused(), Some(vec![Ticket(1)]));
    bench.push(put(1, b"a"), 2);
    let next = bench.queue.next(&bench.layout).unwrap();
    bench.queue.repeat().unwrap();
    assert_eq!(bench.queue.refused(), None);
    let answer = txn(&mut bench.etcd, next);
    assert_eq!(bench.queue.answered(&answer), Verdict::Done(vec![Ticket(2)]), "the number goes on");
}

/// The transaction that takes the last space of etcd is carried out, and refused.
#[test]
fn a_transaction_that_fills_etcd_is_decided_by_the_number() {
    let mut bench = bench();
    bench.etcd.fill();
    bench.push(put(1, b"a"), 1);
    let first = bench.queue.next(&bench.layout).unwrap();
    for _ in 0..2 {
        let end = bench.etcd.call(&Request::Txn(first.clone()));
        assert!(matches!(end, Err(frevo_etcd::types::Fault::NoSpace(_))), "{end:?}");
    }
    assert_eq!(bench.value(1).as_deref(), Some(&b"a"[..]));
    bench.etcd.make_room();
    let again = bench.queue.repeat().unwrap();
    let answer = txn(&mut bench.etcd, again);
    assert!(!answer.succeeded);
    assert_eq!(bench.queue.answered(&answer), Verdict::Done(vec![Ticket(1)]));
}

#[test]
fn a_load_has_parts_of_one_moment() {
    let mut bench = bench();
    let count = LOAD_PART * 2 + 3;
    for n in 0..count {
        bench.push(put(n, b"old"), n);
    }
    while let Some(next) = bench.queue.next(&bench.layout) {
        let answer = txn(&mut bench.etcd, next);
        bench.queue.answered(&answer);
    }
    let mut load = Load::new(bench.share.clone(), bench.queue.epoch());
    let mut parts = Vec::new();
    loop {
        let answer = txn(&mut bench.etcd, load.next(&bench.layout));
        let (part, loading) = load.answered(&bench.layout, &answer);
        parts.push(part);
        // Changes between the parts are not seen.
        let key = bench.layout.record(&bench.share, RecordId(count - 1));
        let success = vec![Op::Put { key, value: b"new".to_vec(), lease: LeaseId(0) }];
        txn(&mut bench.etcd, Txn { success, ..Txn::default() });
        if loading == Loading::End {
            break;
        }
    }
    assert_eq!(parts.len(), 3);
    let all = joined(parts);
    assert_eq!(all.len() as u64, count);
    assert!(all.iter().all(|(_, bytes)| bytes == b"old"));
    // When another node owns the share, the load ends.
    let owner = bench.layout.control(&ControlKey::Owner(bench.share.clone()));
    let success = vec![Op::Delete(Keys::One(owner))];
    txn(&mut bench.etcd, Txn { success, ..Txn::default() });
    let answer = txn(&mut bench.etcd, load.next(&bench.layout));
    assert_eq!(load.answered(&bench.layout, &answer), (LoadPart::Fenced, Loading::End));
}

proptest! {
    /// Whatever answers are lost and whatever attempts come late, the records are those of the changes
    /// in their order.
    #[test]
    fn the_order_stands(
        changes in proptest::collection::vec((0..4_u64, any::<bool>(), 0..4_u8), 1..40),
    ) {
        let mut bench = bench();
        let mut wanted = alloc::collections::BTreeMap::new();
        let mut late = Vec::new();
        for (n, (id, is_put, fate)) in changes.into_iter().enumerate() {
            let value = n.to_be_bytes();
            if is_put {
                wanted.insert(id, value.to_vec());
                bench.push(put(id, &value), n as u64);
            } else {
                wanted.remove(&id);
                bench.push(RecordChange::Remove(RecordId(id)), n as u64);
            }
            if fate == 0 {
                continue;
            }
            let Some(mut next) = bench.queue.next(&bench.layout) else { continue };
            if fate == 1 {
                // The transaction is carried out, and its answer is lost.
                txn(&mut bench.etcd, next);
                next = bench.queue.repeat().unwrap();
            } else if fate == 2 {
                // The transaction is carried out after its repetition.
                late.push(next);
                next = bench.queue.repeat().unwrap();
            }
            let answer = txn(&mut bench.etcd, next);
            let is_done = matches!(bench.queue.answered(&answer), Verdict::Done(_));
            prop_assert!(is_done);
        }
        while let Some(next) = bench.queue.next(&bench.layout) {
            let answer = txn(&mut bench.etcd, next);
            bench.queue.answered(&answer);
        }
        for txn_late in late {
            prop_assert!(!txn(&mut bench.etcd, txn_late).succeeded);
        }
        for id in 0..4 {
            prop_assert_eq!(bench.value(id), wanted.get(&id).cloned());
        }
    }
}
