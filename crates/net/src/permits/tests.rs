use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use tokio::time::advance;

use super::*;
use crate::accounts::for_account;

type Call = Pin<Box<dyn Future<Output = Permit>>>;

/// Asks in the name of `account`.
fn ask(permits: &Permits, account: &Arc<Account>) -> Call {
    let permits = permits.clone();
    let mut call: Call = Box::pin(async move { permits.take().await });
    let first = for_account(Some(Arc::clone(account)), || look(&mut call));
    match first {
        Some(permit) => Box::pin(std::future::ready(permit)),
        None => call,
    }
}

fn look(call: &mut Call) -> Option<Permit> {
    match call.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(permit) => Some(permit),
        Poll::Pending => None,
    }
}

/// Takes the permits of the calls that have one.
fn granted(calls: &mut Vec<Call>) -> Vec<Permit> {
    let mut permits = Vec::new();
    calls.retain_mut(|call| look(call).map(|permit| permits.push(permit)).is_none());
    permits
}

fn accounts(count: usize) -> Vec<Arc<Account>> {
    std::iter::repeat_with(Arc::default).take(count).collect()
}

#[tokio::test(start_paused = true)]
async fn an_account_alone_has_all_permits() {
    let (permits, ann) = (Permits::new(8), Arc::<Account>::default());
    let mut calls: Vec<_> = (0..20).map(|_| ask(&permits, &ann)).collect();
    let mut held = granted(&mut calls);
    assert_eq!((held.len(), permits.free()), (8, 0));
    for _ in 0..12 {
        held.pop();
        held.extend(granted(&mut calls));
        assert_eq!(permits.free(), 0);
    }
    assert!(calls.is_empty());
    drop(held);
    assert_eq!(permits.free(), 8);
    assert!(permits.0.state.lock().entries.is_empty(), "nothing is left of the account");
}

/// Tests that a call of another account has the next permit, however many of the first one wait.
#[tokio::test(start_paused = true)]
async fn others_wait_for_the_end_of_one_call() {
    let (permits, who) = (Permits::new(8), accounts(2));
    let mut of_ann: Vec<_> = (0..1000).map(|_| ask(&permits, &who[0])).collect();
    let mut held = granted(&mut of_ann);
    assert_eq!(held.len(), 8);
    for _ in 0..5 {
        let mut of_bob = vec![ask(&permits, &who[1])];
        if permits.free() == 0 {
            held.pop();
        }
        let got = granted(&mut of_bob);
        assert_eq!(got.len(), 1, "the next permit is bob's");
    }
    // Meanwhile ann's calls end, until she holds only her part of the permits.
    for _ in 0..20 {
        held.pop();
        held.extend(granted(&mut of_ann));
        let one = ask(&permits, &who[1]);
        drop(granted(&mut vec![one]));
    }
    assert_eq!(held.len(), 8 / SHARED_PERMITS_PART);
    assert_eq!(permits.free(), 8 - held.len(), "kept for others");
    // When the account is alone again, it may have all permits.
    advance(SHARED_PERMITS).await;
    held.pop();
    held.extend(granted(&mut of_ann));
    assert_eq!(held.len(), 8);
}

/// Tests that accounts which all have much to do get their permits one after the other.
#[tokio::test(start_paused = true)]
async fn busy_accounts_have_equal_parts() {
    let (permits, who) = (Permits::new(4), accounts(6));
    let mut calls: Vec<Vec<_>> =
        who.iter().map(|account| (0..50).map(|_| ask(&permits, account)).collect()).collect();
    let mut held: VecDeque<(usize, Permit)> = VecDeque::new();
    let mut counts = [0; 6];
    let mut take = |held: &mut VecDeque<_>, counts: &mut [usize; 6]| {
        for (at, calls) in calls.iter_mut().enumerate() {
            for permit in granted(calls) {
                counts[at] += 1;
                held.push_back((at, permit));
            }
        }
    };
    take(&mut held, &mut counts);
    assert_eq!(counts, [4, 0, 0, 0, 0, 0], "the first one was alone");
    for _ in 0..56 {
        held.pop_front();
        take(&mut held, &mut counts);
        assert_eq!(held.len(), 4);
    }
    let (least, most) = (counts.iter().min(), counts.iter().max());
    assert_eq!(counts.iter().sum::<usize>(), 60);
    assert!(least >= Some(&9) && most <= Some(&13), "{counts:?}");
}

/// Tests that calls whose callers have gone take no permits and no memory, before and after their turn.
#[tokio::test(start_paused = true)]
async fn callers_that_have_gone_get_nothing() {
    let (permits, who) = (Permits::new(1), accounts(2));
    let mut first = granted(&mut vec![ask(&permits, &who[0])]);
    let mut last = vec![ask(&permits, &who[1])];
    for _ in 0..10 * LOOK_FROM {
        drop(ask(&permits, &who[0]));
    }
    let state = permits.0.state.lock();
    let waiting = state.entries.values().map(|entry| entry.waiting.len()).max();
    drop(state);
    assert!(waiting <= Some(LOOK_FROM), "{waiting:?}");
    first.clear();
    assert_eq!(granted(&mut last).len(), 1);
    assert_eq!(permits.free(), 1);
    // A permit is returned if it was sent to a caller that has been dropped.
    let held = granted(&mut vec![ask(&permits, &who[1])]);
    let sent = ask(&permits, &who[0]);
    drop(held);
    assert_eq!(permits.free(), 0);
    drop(sent);
    assert_eq!(permits.free(), 1);
    assert!(permits.0.state.lock().entries.is_empty());
}

#[tokio::test(start_paused = true)]
async fn work_of_no_account_is_one_account() {
    let permits = Permits::new(2);
    let one = permits.try_take();
    assert!(one.is_some());
    let ann = Arc::<Account>::default();
    let two = for_account(Some(ann), || permits.try_take());
    assert!(two.is_some() && permits.try_take().is_none());
    drop(one);
    assert_eq!(permits.free(), 1);
}

/// Tests that calls of an account which hang hold up no others of it while there are free permits,
/// where something else bounds them.
#[tokio::test(start_paused = true)]
async fn without_parts_free_permits_are_for_everybody() {
    let (permits, who) = (Permits::without_parts(8), accounts(2));
    let hang: Vec<_> = (0..4).flat_map(|_| granted(&mut vec![ask(&permits, &who[0])])).collect();
    let of_bob = granted(&mut vec![ask(&permits, &who[1])]);
    let of_ann = granted(&mut vec![ask(&permits, &who[0])]);
    assert_eq!((hang.len(), of_bob.len(), of_ann.len()), (4, 1, 1));
    drop((hang, of_bob, of_ann));
    assert_eq!(permits.free(), 8);
}
