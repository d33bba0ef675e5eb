use std::time::Instant;

use super::*;
use crate::cores::{Cores, CoresConfig};

fn spin(time: Duration) {
    let began = Instant::now();
    while began.elapsed() < time {
        std::hint::spin_loop();
    }
}

#[test]
fn laps_are_parts_of_one_poll() {
    assert_eq!(lap(), Duration::ZERO, "outside of a poll");
    let ((first, second), held) = measured(|| {
        spin(Duration::from_millis(3));
        let first = lap();
        spin(Duration::from_millis(1));
        (first, lap())
    });
    assert!(first >= Duration::from_millis(3) && second >= Duration::from_millis(1));
    assert!(held.wall >= first + second);
    assert_eq!(lap(), Duration::ZERO, "after a poll");
}

#[test]
fn an_inner_measurement_begins_with_the_outer() {
    let (inner, outer) = measured(|| {
        spin(Duration::from_millis(2));
        measured(|| spin(Duration::from_millis(1))).1
    });
    assert!(inner.wall >= Duration::from_millis(3), "{inner:?}");
    assert!(outer.wall >= inner.wall);
    // The next poll is measured from its own beginning.
    let began = Instant::now();
    let (_, next) = measured(|| ());
    assert!(next.wall <= began.elapsed(), "{next:?}");
}

#[test]
fn a_panic_ends_the_measurement() {
    let end = std::panic::catch_unwind(|| measured(|| panic!("planted")).1);
    assert!(end.is_err());
    assert_eq!(lap(), Duration::ZERO);
}

#[test]
fn a_long_poll_is_due_and_still_lets_one_have_its_turn() {
    // Other programs may have the processor for a whole slice before the early questions.
    let attempt = || {
        let began = Instant::now();
        let (answers, _) = measured(|| {
            let early = [is_due(), !has_turn(), !has_turn()];
            let is_early = began.elapsed() < POLL_SLICE;
            spin(POLL_SLICE);
            is_early.then(|| (early, is_due(), has_turn()))
        });
        answers
    };
    let answers = (0..1_000).find_map(|_| attempt());
    assert_eq!(answers, Some(([false; 3], true, false)));
    let (answers, _) = measured(|| {
        spin(POLL_SLICE);
        [is_due(), has_turn(), has_turn()]
    });
    assert_eq!(answers, [true, true, false]);
    assert!(!is_due() && has_turn(), "outside of a poll");
}

#[test]
fn the_limit_is_what_the_variable_says() {
    assert_eq!(limit_of(Some("20")), Some(Duration::from_millis(20)));
    assert_eq!(limit_of(Some("0")), None);
    assert_eq!(limit_of(None).is_some(), cfg!(debug_assertions));
    assert_eq!(limit_of(Some("much")), limit_of(None));
}

/// Tests that sleep does not count: a busy machine raises no alarm.
#[test]
fn processor_time_is_judged() {
    let limit = Duration::from_millis(5);
    let is_long = |held: PollTime| held.cpu.is_some_and(|cpu| cpu > limit);
    let (_, slept) = measured(|| std::thread::sleep(Duration::from_millis(30)));
    assert!(slept.wall >= Duration::from_millis(30) && !is_long(slept), "{slept:?}");
    if held_limit().is_some() {
        let (_, spun) = measured(|| {
            // The loop ends after 10 ms of this thread's processor time, which does not depend on
            // other load.
            let began = processor_time().unwrap();
            while processor_time().unwrap() - began < Duration::from_millis(10) {}
        });
        assert!(is_long(spun), "{spun:?}");
    }
}

#[test]
fn polls_are_counted_by_powers_of_two() {
    let histogram = Histogram::default();
    for micros in [0, 1, 2, 3, 4, 1_000, 1_024, 200_000, u64::MAX / 2] {
        histogram.count(Duration::from_micros(micros));
    }
    let polls = histogram.polls();
    assert_eq!(polls.total(), 9);
    let counted = "<1us 1, <2us 1, <4us 2, <8us 1, <1ms 1, <2ms 1, <256ms 1, longer 1";
    assert_eq!(polls.to_string(), counted);
    assert_eq!(polls.from(Duration::from_millis(100)), 2);
    assert_eq!(polls.and(polls).total(), 18);
}

/// Tests that every poll of every task of a core is counted.
#[test]
fn cores_count_their_polls() {
    let cores = Cores::start(&CoresConfig { count: 1, ..CoresConfig::default() }).unwrap();
    let (done, waited) = std::sync::mpsc::channel();
    cores.handles()[0].spawn(move || async move {
        tokio::task::yield_now().await;
        spin(Duration::from_millis(9));
        done.send(()).unwrap();
    });
    waited.recv().unwrap();
    let polls = Arc::clone(cores.handles()[0].polls());
    cores.stop(Duration::from_secs(5));
    assert_eq!(polls.polls().total(), 2);
    // Other programs may have the processor during the shorter poll, too.
    assert!(polls.polls().from(Duration::from_millis(8)) >= 1);
}
