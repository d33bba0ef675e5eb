use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::atomic::AtomicUsize;
use std::time::{Duration, Instant};

use super::*;
use crate::cores::{Cores, CoresConfig};
use crate::limits::POLL_SLICE;

fn one_core() -> Cores {
    Cores::start(&CoresConfig { count: 1, ..CoresConfig::default() }).unwrap()
}

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// Carries out `work` in the name of `account`.
async fn seated<F: Future>(account: Arc<Account>, work: F) -> F::Output {
    let seat = Seat::of(&account);
    let mut work = pin!(work);
    poll_fn(|cx| seat.poll(cx, |cx| work.as_mut().poll(cx))).await
}

/// Work of `steps` milliseconds that yields after each.
async fn work(steps: u32) {
    for _ in 0..steps {
        spin(Duration::from_millis(1));
        tokio::task::yield_now().await;
    }
}

/// Steps of other accounts while a task of another account waits for its turn, in the median, while
/// `busy` accounts have 40 tasks each. Each step of a task takes a millisecond, or longer where other
/// programs have the processor, and a slice ends after it.
async fn steps_before_a_turn(busy: usize) -> usize {
    let (cores, done) = (one_core(), Arc::new(AtomicUsize::new(0)));
    let core = &cores.handles()[0];
    for _ in 0..busy {
        let account = Arc::<Account>::default();
        for _ in 0..40 {
            let (account, done) = (Arc::clone(&account), Arc::clone(&done));
            let steps = async move {
                for _ in 0..u32::MAX {
                    work(1).await;
                    done.fetch_add(1, Ordering::Relaxed);
                }
            };
            core.spawn(move || seated(account, steps));
        }
    }
    let bob = Arc::<Account>::default();
    let counts = core.run(move || {
        seated(bob, async move {
            let mut counts = Vec::new();
            // In the first rounds the core does not know yet that it is shared, so the first five
            // are left out.
            for at in 0..25 {
                let before = done.load(Ordering::Relaxed);
                tokio::task::yield_now().await;
                if at >= 5 {
                    counts.push(done.load(Ordering::Relaxed) - before);
                }
            }
            counts.sort_unstable();
            counts[counts.len() / 2]
        })
    });
    counts.await.unwrap()
}

#[tokio::test]
async fn others_wait_for_a_slice_and_not_for_all_tasks_of_an_account() {
    let steps = steps_before_a_turn(1).await;
    assert!(steps < 10, "{steps} instead of 40");
}

#[tokio::test]
async fn with_several_accounts_each_waits_for_as_many_slices_at_most() {
    let steps = steps_before_a_turn(3).await;
    assert!(steps < 15, "{steps} instead of 120");
}

/// A task that ends while it waits, or when its turn has come, keeps no turn.
#[tokio::test]
async fn tasks_that_end_pass_the_turn_on() {
    let cores = one_core();
    let done = cores.handles()[0].run(|| async {
        let account = Arc::<Account>::default();
        let mut tasks = tokio::task::JoinSet::new();
        for at in 0..30_u32 {
            let account = Arc::clone(&account);
            tasks.spawn_local(async move {
                let work = seated(account, work(20));
                let patience = Duration::from_millis(u64::from(at) * 3);
                at.is_multiple_of(3) || tokio::time::timeout(patience, work).await.is_ok()
            });
        }
        tasks.join_all().await.len()
    });
    assert_eq!(done.await, Some(30));
}

/// The time that the core's thread has run, or has waited for a processor that other programs had, by
/// the kernel's count. The rest of a thread's time it sleeps. Zero where the kernel does not count.
async fn awake(core: &crate::cores::CoreHandle) -> Duration {
    let read = core.run(|| async { std::fs::read_to_string("/proc/thread-self/schedstat") });
    let text = read.await.unwrap().unwrap_or_default();
    let [run, waited] = [0, 1].map(|field| text.split(' ').nth(field)?.parse().ok());
    Duration::from_nanos(run.unwrap_or(0) + waited.unwrap_or(0))
}

/// The core does not sleep while one account has work and no other account has any. Other programs may
/// take the processor away between two polls, which the kernel's count tells from sleep.
#[tokio::test]
async fn an_account_alone_has_the_whole_core() {
    let cores = one_core();
    let core = &cores.handles()[0];
    let mut attempts = Vec::new();
    for _ in 0..10 {
        let account = Arc::<Account>::default();
        let (awake_before, began) = (awake(core).await, Instant::now());
        let task = || {
            let account = Arc::clone(&account);
            core.run(move || seated(account, work(20)))
        };
        futures_util::future::join_all((0..10).map(|_| task())).await;
        let took = began.elapsed();
        let used = Duration::from_nanos(account.used.load(Ordering::Relaxed));
        assert!(used >= Duration::from_millis(199), "{used:?} of 200 ms are counted");
        let was_awake = awake(core).await - awake_before;
        attempts.push((took, used, was_awake));
        if took < used.max(was_awake) * 5 / 4 {
            return;
        }
    }
    panic!("the core sleeps: {attempts:?}");
}

#[test]
fn an_account_that_is_busy_elsewhere_lets_a_few_pass() {
    let account = Arc::<Account>::default();
    let lane = Lane::of(&account);
    assert!(!lane.lets_pass());
    account.used.fetch_add(nanoseconds(TURN_SLICE), Ordering::Relaxed);
    let passed = (0..10).take_while(|_| lane.lets_pass()).count();
    assert_eq!(passed, usize::try_from(TURNS_PASSED_MAX).unwrap());
    assert!(!lane.lets_pass(), "it has been idle elsewhere since");
    // Time that the account uses on this core itself does not count as busy elsewhere.
    lane.unreported.set(nanoseconds(TURN_SLICE) * 2);
    lane.report();
    assert!(!lane.lets_pass());
}

#[test]
fn a_lane_is_one_for_each_account_and_ends_with_its_seats() {
    let (ann, bob) = (Arc::<Account>::default(), Arc::<Account>::default());
    let lanes = || CORE.with(|core| core.lanes.borrow().len());
    let seats = [Seat::of(&ann), Seat::of(&ann), Seat::of(&bob)];
    assert_eq!(lanes(), 2);
    seats[2].move_to(&ann);
    assert_eq!(lanes(), 1);
    drop(seats);
    assert_eq!(lanes(), 0);
}

#[test]
fn outside_of_cores_nothing_waits() {
    let seat = Seat::of(&Arc::default());
    let cx = &mut Context::from_waker(Waker::noop());
    for _ in 0..3 {
        let polled = seat.poll(cx, |_| {
            spin(POLL_SLICE);
            Poll::Ready(())
        });
        assert_eq!(polled, Poll::Ready(()));
    }
}
