use super::*;
use crate::base::limits::LOGICAL_FLOWS_PER_USER;
use crate::objects::ledger::Ledger;
use crate::objects::rates::Rates;
use crate::objects::rates::work::{At, Demand, Work};

const SILVER: Guid = Guid([7; 16]);
const SECOND: Duration = Duration::from_secs(1);

fn silver(iops: Option<u64>, bandwidth: Option<u64>) -> StoragePolicy {
    StoragePolicy { name: String::from("silver"), id: SILVER, iops, bandwidth }
}

fn rates(policies: &[StoragePolicy]) -> Rates {
    Rates::new(&[], policies)
}

fn id(number: u32) -> Guid {
    let mut id = [1; 16];
    id[..4].copy_from_slice(&number.to_le_bytes());
    Guid(id)
}

/// The work of a READ of `bytes` in a flow.
fn read(flow: &Arc<LogicalFlow>, bytes: u64) -> Work {
    let mut work = Work::default();
    work.add_flow(Arc::clone(flow), 1, Demand { read: bytes, ..Demand::default() });
    work
}

fn passes(work: &Work, now: Duration) -> bool {
    work.try_pass(At::FIRST, now).is_none()
}

fn asked(policy: Guid, limit: u64, bandwidth: u64) -> AskedPolicy {
    AskedPolicy { policy, limit, bandwidth, ..AskedPolicy::default() }
}

/// A flow that owes 100 operations of 8 KiB, for ten seconds from `now` on.
fn in_debt(rates: &Rates, ledger: &Ledger) -> Arc<LogicalFlow> {
    let flow = rates.storage_qos.flow(&ledger.account("ann"), id(1)).unwrap();
    rates.storage_qos.set_policy(&flow, asked(SILVER, 0, 0));
    assert!(passes(&read(&flow, 100 << 13), rates.clock.now()));
    flow
}

/// A flow owes operations, which another rate pays sooner or later.
#[tokio::test(start_paused = true)]
async fn another_policy_ends_no_debt() {
    let ledger = Ledger::default();
    let rates = rates(&[silver(Some(10), None)]);
    let flow = in_debt(&rates, &ledger);
    let now = rates.clock.now();
    for asks in [asked(Guid::default(), 20, 0), asked(Guid::default(), 0, 0), asked(SILVER, 0, 0)] {
        rates.storage_qos.set_policy(&flow, asks);
    }
    assert!(!passes(&read(&flow, 1), now + SECOND * 9));
    assert!(passes(&read(&flow, 1), now + SECOND * 10));
    // With twice the rate it takes half of the time.
    drop(flow);
    let flow = in_debt(&rates, &ledger);
    rates.set(&[], &[silver(Some(20), None)]);
    assert!(!passes(&read(&flow, 1), now + SECOND * 4));
    assert!(passes(&read(&flow, 1), now + SECOND * 5));
}

/// A limit that is taken away and comes back is owed to meanwhile, and not to another one.
#[tokio::test(start_paused = true)]
async fn each_limit_has_its_own_debt() {
    let ledger = Ledger::default();
    let rates = rates(&[silver(Some(10), None)]);
    let flow = in_debt(&rates, &ledger);
    let now = rates.clock.now();
    rates.storage_qos.set_policy(&flow, asked(Guid::default(), 0, 8));
    assert!(passes(&read(&flow, 40 << 10), now), "no bytes were limited before");
    assert!(!passes(&read(&flow, 1), now + SECOND * 4), "8 KiB a second");
    rates.storage_qos.set_policy(&flow, asked(SILVER, 0, 0));
    assert!(!passes(&read(&flow, 1), now + SECOND * 9));
}

/// Tokens that a request gives back after a change go to the policy of now.
#[tokio::test(start_paused = true)]
async fn what_is_given_back_later_counts_for_the_new_policy() {
    let ledger = Ledger::default();
    let rates = rates(&[silver(Some(10), None)]);
    let flow = rates.storage_qos.flow(&ledger.account("ann"), id(1)).unwrap();
    rates.storage_qos.set_policy(&flow, asked(SILVER, 0, 0));
    let (first, second) = (read(&flow, 50 << 13), read(&flow, 50 << 13));
    let now = rates.clock.now();
    assert!(passes(&first, now) && !passes(&second, now));
    rates.set(&[], &[silver(Some(20), None)]);
    first.settle(Demand::default(), 0, now);
    assert!(passes(&read(&flow, 1), now + SECOND / 10), "one operation is owed of 50");
}

/// n - 1, n and n + 1, and a place for another one when a flow has ended, also where none is made.
#[tokio::test]
async fn an_account_has_so_many_flows_and_ended_ones_go() {
    let ledger = Ledger::default();
    let rates = rates(&[silver(Some(10), None)]);
    let holder = ledger.account("ann");
    let flow = |number| rates.storage_qos.flow(&holder, id(number));
    let most = u32::try_from(LOGICAL_FLOWS_PER_USER).unwrap();
    let mut flows: Vec<_> = (0..most).map(|number| flow(number).unwrap()).collect();
    let refused = flow(most).map(drop);
    assert_eq!(refused, Err(Status::INSUFFICIENT_RESOURCES));
    let bytes = LOGICAL_FLOWS_PER_USER * LOGICAL_FLOW_BYTES;
    assert_eq!((ledger.count(Kind::LogicalFlow), ledger.bytes()), (LOGICAL_FLOWS_PER_USER, bytes));
    assert_eq!(ledger.count(Kind::RateBucket), 0);
    flows.pop();
    flows.push(flow(most).unwrap());
    assert!(flow(0).is_ok(), "it is there already");
    assert_eq!(rates.storage_qos.numbers().flows, LOGICAL_FLOWS_PER_USER);
    flows.clear();
    assert_eq!((ledger.count(Kind::LogicalFlow), rates.storage_qos.numbers().flows), (0, 0));
    assert!(rates.storage_qos.flows.lock().flows.len() >= LOGICAL_FLOWS_PER_USER);
    rates.sweep().await;
    assert!(rates.storage_qos.flows.lock().flows.is_empty());
}

/// The last policy of the configuration goes, and with it the limits of all flows, also those of clients.
#[tokio::test(start_paused = true)]
async fn limits_of_flows_end_with_the_last_policy() {
    let ledger = Ledger::default();
    let rates = rates(&[silver(Some(10), None)]);
    let flow = in_debt(&rates, &ledger);
    let own = rates.storage_qos.flow(&ledger.account("ann"), id(2)).unwrap();
    rates.storage_qos.set_policy(&own, asked(Guid::default(), 10, 0));
    let now = rates.clock.now();
    assert!(passes(&read(&own, 100 << 13), now));
    let [waits, waits_too] = [read(&flow, 1), read(&own, 1)];
    let held = async {
        (waits.wait(At::FIRST, rates.clock).await, waits_too.wait(At::FIRST, rates.clock).await)
    };
    let ends = async {
        tokio::time::sleep(SECOND).await;
        assert_eq!(rates.storage_qos.sessions(), BTreeSet::from([1]));
        rates.set(&[], &[]);
    };
    let ((first, second), ()) = tokio::join!(held, ends);
    assert!(first.is_err() && second.is_err(), "they look for the rules of now");
    assert_eq!(rates.clock.now(), now + SECOND);
    assert!(read(&flow, 1).is_free() && read(&own, 1).is_free());
    let waited = rates.storage_qos.numbers().waited;
    assert_eq!((waited.waiting, waited.count, waited.micros >= 1_000_000), (0, 2, true));
}
