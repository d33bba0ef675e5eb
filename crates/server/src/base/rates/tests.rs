use std::cell::Cell;
use std::rc::Rc;

use proptest::collection::vec;
use proptest::prelude::*;
use tokio::task::LocalSet;
use tokio::time::sleep;

use super::*;

const SECOND: u128 = 1_000_000_000;

const fn flow(id: u64, weight: u32) -> Flow {
    Flow { id, weight }
}

proptest! {
    /// In each span of time pass at most what the rate fills in, the burst and one operation, however the clock
    /// jumps; and a full bucket lets one pass.
    #[test]
    fn a_bucket_never_exceeds_its_rate(
        rate in 1_u64..10_000_000,
        burst_ms in 0_u64..2_000,
        steps in vec((0_u64..50_000, prop_oneof![
            Just(0_u64), 0_u64..2_000_000, 0_u64..5_000_000_000, Just(3_600_000_000_000),
        ]), 1..150),
    ) {
        let burst = Duration::from_millis(burst_ms);
        let bucket = Bucket::new(rate, burst);
        let mut now = Duration::from_secs(1);
        let mut passed: Vec<(Duration, u64)> = Vec::new();
        for (units, step) in steps {
            now += Duration::from_nanos(step);
            match bucket.take(units, now) {
                Ok(()) => passed.push((now, units)),
                Err(at) => {
                    prop_assert!(at > now);
                    prop_assert!(bucket.take(units, at).is_ok(), "it has room when it says so");
                    now = at;
                    passed.push((at, units));
                }
            }
        }
        let largest = passed.iter().map(|(_, units)| *units).max().unwrap_or(0);
        for (first, (from, _)) in passed.iter().enumerate() {
            let mut sum = 0;
            for (count, (until, units)) in passed.iter().skip(first).enumerate() {
                sum += u128::from(*units);
                let time = (*until - *from + burst).as_nanos();
                // Each operation may be half a nanosecond too cheap.
                let rounding = u128::from(rate) * (count as u128 + 1);
                let most = u128::from(rate) * time + u128::from(largest) * SECOND + rounding;
                prop_assert!(sum * SECOND <= most, "{sum} in {time} ns");
            }
        }
    }

    /// A line shares by weight, whatever the sizes: while all wait, no flow is further behind its
    /// part than two operations of each.
    #[test]
    fn a_line_shares_by_weight(
        flows in vec((1_u32..20, 1_u64..100), 2..6),
        rounds in 50_usize..400,
    ) {
        let mut line = Line::default();
        let enter = |line: &mut Line, at: usize| {
            let (weight, cost) = flows[at];
            line.enter(flow(at as u64, weight), Duration::from_nanos(cost))
        };
        let mut places: Vec<Position> = (0..flows.len()).map(|at| enter(&mut line, at)).collect();
        let mut served = vec![0_u64; flows.len()];
        for _ in 0..rounds {
            let at = places.iter().position(|place| line.is_first(*place)).unwrap();
            line.admit(places[at]);
            line.leave(places[at]);
            served[at] += flows[at].1;
            places[at] = enter(&mut line, at);
        }
        let parts: Vec<f64> =
            served.iter().zip(&flows).map(|(n, (weight, _))| *n as f64 / f64::from(*weight)).collect();
        let largest = flows.iter().map(|(weight, cost)| *cost as f64 / f64::from(*weight));
        let largest = largest.fold(0.0, f64::max);
        let (least, most) = parts.iter().fold((f64::MAX, 0.0_f64), |(a, b), n| (a.min(*n), b.max(*n)));
        prop_assert!(most - least <= 2.0 * largest + 0.001, "{parts:?} of {flows:?}");
    }
}

#[test]
fn a_clock_that_goes_back_opens_no_bucket() {
    let bucket = Bucket::new(1_000, Duration::ZERO);
    let second = Duration::from_secs(1);
    assert_eq!(bucket.take(500, second * 10), Ok(()));
    assert!(bucket.take(1, second * 9).is_err());
    assert_eq!(bucket.take(1, second * 11), Ok(()));
    bucket.give_back(u64::MAX);
    assert!(bucket.is_rested(Duration::ZERO));
}

/// Tasks that pass a gate again and again.
struct Crowd {
    gate: Rc<Gate>,
    clock: Clock,
    passed: Vec<Rc<Cell<u64>>>,
}

impl Crowd {
    fn new(rate: u64, burst_ms: u64) -> Self {
        let gate = Rc::new(Gate::new(rate, Duration::from_millis(burst_ms)));
        Self { gate, clock: Clock::start(), passed: Vec::new() }
    }

    /// Adds `tasks` of one flow, with operations of `units`, each of which begins `pause_ms` after the last one.
    fn add(&mut self, flow: Flow, tasks: usize, units: u64, pause_ms: u64) -> usize {
        let passed = Rc::new(Cell::new(0));
        for _ in 0..tasks {
            let (gate, clock, passed) = (Rc::clone(&self.gate), self.clock, Rc::clone(&passed));
            tokio::task::spawn_local(async move {
                loop {
                    if !gate.try_pass(units, clock.now()) {
                        gate.pass(flow, units, clock).await.unwrap();
                    }
                    passed.set(passed.get() + units);
                    sleep(Duration::from_millis(pause_ms)).await;
                }
            });
        }
        self.passed.push(passed);
        self.passed.len() - 1
    }

    fn passed(&self, at: usize) -> f64 {
        self.passed[at].get() as f64
    }
}

fn near(number: f64, wanted: f64, part: f64) -> bool {
    (number - wanted).abs() <= wanted * part
}

#[tokio::test(start_paused = true)]
async fn a_rate_is_kept_within_three_percent() {
    for (rate, units, tasks) in [(100 << 20, 1 << 20, 8), (2_000, 1, 32), (1 << 20, 4_096, 3)] {
        LocalSet::new()
            .run_until(async {
                let mut crowd = Crowd::new(rate, 100);
                let all = crowd.add(flow(1, 1), tasks, units, 1);
                sleep(Duration::from_secs(10)).await;
                let (passed, wanted) = (crowd.passed(all), rate as f64 * 10.0);
                assert!(near(passed, wanted, 0.03), "{passed} of {wanted}");
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn weights_hold_within_ten_percent() {
    // The numbers of operations at a time do not count, nor do their sizes.
    for (tasks, units) in
        [([1, 1], [65_536, 65_536]), ([16, 1], [65_536, 65_536]), ([8, 8], [1 << 20, 4_096])]
    {
        LocalSet::new()
            .run_until(async {
                let mut crowd = Crowd::new(10 << 20, 100);
                let light = crowd.add(flow(1, 1), tasks[0], units[0], 0);
                let heavy = crowd.add(flow(2, 3), tasks[1], units[1], 0);
                sleep(Duration::from_secs(60)).await;
                let (light, heavy) = (crowd.passed(light), crowd.passed(heavy));
                assert!(near(heavy, light * 3.0, 0.1), "{light} and {heavy} with {tasks:?}");
            })
            .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_waits_behind_no_backlog() {
    LocalSet::new()
        .run_until(async {
            let mut crowd = Crowd::new(1_000, 10);
            // A backlog of a second, of the greatest weight.
            crowd.add(flow(1, 1_000), 100, 10, 0);
            sleep(Duration::from_secs(5)).await;
            let began = crowd.clock.now();
            crowd.gate.pass(flow(2, 1), 1, crowd.clock).await.unwrap();
            assert!(crowd.clock.now() - began < Duration::from_millis(100));
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn one_that_gives_up_leaves_the_line_to_others() {
    let (gate, clock) = (Gate::new(10, Duration::ZERO), Clock::start());
    assert!(gate.try_pass(10, clock.now()) && !gate.try_pass(1, clock.now()));
    let mut first = Box::pin(gate.pass(flow(1, 1), 1_000, clock));
    assert!(futures_util::poll!(&mut first).is_pending());
    assert_eq!(gate.flows(), BTreeSet::from([1]));
    let second = gate.pass(flow(2, 1), 1, clock);
    tokio::pin!(second);
    assert!(futures_util::poll!(&mut second).is_pending());
    drop(first);
    assert_eq!(gate.flows(), BTreeSet::from([2]));
    second.await.unwrap();
    assert!(clock.now() <= Duration::from_millis(1_002), "{:?}", clock.now());
    assert_eq!(gate.crowd.load(Ordering::Relaxed), 0);
}

#[tokio::test(start_paused = true)]
async fn a_closed_gate_lets_nobody_wait() {
    let (gate, clock) = (Gate::new(1, Duration::ZERO), Clock::start());
    assert!(gate.try_pass(1_000, clock.now()));
    let waiting = async {
        let all = [gate.pass(flow(1, 1), 1, clock), gate.pass(flow(2, 1), 1, clock)];
        futures_util::future::join_all(all).await
    };
    let closed = async {
        sleep(Duration::from_secs(1)).await;
        gate.close();
    };
    let (waited, ()) = tokio::join!(waiting, closed);
    assert_eq!(waited, [Err(Closed), Err(Closed)]);
    assert!(clock.now() < Duration::from_secs(2));
    assert!(gate.try_pass(1, clock.now()), "nobody waits for a limit that is not in force");
}

#[tokio::test(start_paused = true)]
async fn what_is_given_back_goes_to_those_in_line() {
    let (gate, clock) = (Gate::new(10, Duration::ZERO), Clock::start());
    assert!(gate.try_pass(10_000, clock.now()));
    let waiting = gate.pass(flow(1, 1), 1, clock);
    let given_back = async {
        sleep(Duration::from_secs(1)).await;
        gate.give_back(10_000);
    };
    let (waited, ()) = tokio::join!(waiting, given_back);
    assert_eq!(waited, Ok(()));
    assert!(clock.now() < Duration::from_secs(2), "{:?}", clock.now());
}
