use super::*;
use proptest::prelude::*;
use std::string::ToString as _;
use std::vec;

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;

fn second(since_1970: u64) -> Second {
    Second::new(since_1970).unwrap()
}

fn named(name: &str) -> Second {
    Second::of_name(name).expect(name)
}

fn schedule(text: &str) -> Schedule {
    text.parse().unwrap()
}

/// A server with a schedule, whose snapshots alone outlive its restarts.
struct Kept {
    schedule: Schedule,
    existing: Vec<Second>,
    removed: Vec<Second>,
}

impl Kept {
    fn new(schedule: Schedule) -> Self {
        Self { schedule, existing: Vec::new(), removed: Vec::new() }
    }

    /// Looks at the clock as the server does. Returns true if it made a snapshot.
    fn tick(&mut self, now: u64) -> bool {
        let now = second(now);
        let is_due = self.schedule.is_due(&self.existing, now);
        if is_due {
            self.existing.push(now);
        }
        let surplus = self.schedule.surplus(&self.existing, now);
        self.existing.retain(|taken| !surplus.contains(taken));
        self.removed.extend(surplus);
        is_due
    }
}

#[test]
fn none_makes_and_removes_nothing() {
    let none: Schedule = " none ".parse().unwrap();
    let second = |at| Second::new(at).unwrap();
    let existing: Vec<Second> = (1..5).map(|at| second(at * 1_000_000)).collect();
    for existing in [&[][..], &existing] {
        assert!(!none.is_due(existing, second(9_000_000)));
        assert_eq!(none.next(existing, second(9_000_000)), None);
        assert!(none.surplus(existing, second(9_000_000)).is_empty());
    }
    assert_eq!((none.to_string().as_str(), none.kept_at_most()), ("none", 0));
    assert!("none, daily keep 3".parse::<Schedule>().is_err());
}

#[test]
fn schedules_have_texts() {
    let all = "hourly keep 24, daily keep 30, weekly keep 12, monthly keep 24";
    assert_eq!(schedule(all).to_string(), all);
    let turned = schedule(" monthly  keep 2 ,hourly keep 1000");
    assert_eq!(turned.to_string(), "hourly keep 1000, monthly keep 2");
    assert_eq!((turned.shortest(), turned.kept_at_most()), (Period::Hourly, 1_002));
    for (text, fault) in [
        ("", ScheduleFault::Form("".into())),
        ("hourly", ScheduleFault::Form("hourly".into())),
        ("hourly keep 24,", ScheduleFault::Form("".into())),
        ("hourly keep 24 daily keep 3", ScheduleFault::Form("hourly keep 24 daily keep 3".into())),
        ("hourly keep x", ScheduleFault::Form("hourly keep x".into())),
        ("hourly keep +3", ScheduleFault::Form("hourly keep +3".into())),
        ("yearly keep 3", ScheduleFault::Word("yearly".into())),
        ("daily keep 3, daily keep 4", ScheduleFault::Twice(Period::Daily)),
        ("daily keep 0", ScheduleFault::Count(Period::Daily)),
        ("daily keep 1001", ScheduleFault::Count(Period::Daily)),
        ("daily keep 99999999999", ScheduleFault::Count(Period::Daily)),
    ] {
        assert_eq!(text.parse::<Schedule>(), Err(fault), "{text}");
    }
}

#[test]
fn a_missed_snapshot_is_made_once() {
    let mut kept = Kept::new(schedule("hourly keep 24"));
    let begun = named("frevo-2026.11.30-01.59.59").since_1970();
    assert!(kept.tick(begun) && kept.tick(begun + 1) && !kept.tick(begun + 2));
    // The machine was off for five hours.
    assert!(kept.tick(begun + 5 * HOUR));
    assert!(!kept.tick(begun + 5 * HOUR), "one for all that were missed");
    assert_eq!(kept.existing.len(), 3);
    let now = second(begun + 5 * HOUR);
    let next = kept.schedule.next(&kept.existing, now).unwrap();
    assert_eq!(next, named("frevo-2026.11.30-07.00.00"));
}

#[test]
fn a_clock_that_jumps_removes_nothing_for_its_age() {
    let mut kept = Kept::new(schedule("hourly keep 3"));
    let begun = named("frevo-2026.11.30-02.00.00").since_1970();
    for hour in 0..3 {
        assert!(kept.tick(begun + hour * HOUR));
    }
    // Seventy years ahead: one new snapshot, so one goes.
    assert!(kept.tick(begun + 70 * 365 * DAY));
    assert_eq!(kept.removed, [second(begun)]);
    // The clock is right again: the snapshot of the future takes no place of the present ones.
    assert!(!kept.tick(begun + 2 * HOUR + 5));
    assert!(kept.tick(begun + 3 * HOUR));
    assert_eq!(kept.removed, [second(begun)]);
    assert_eq!(kept.existing.len(), 4);
    // Set back by an hour, and on: the hours have their snapshots already.
    for back in [2 * HOUR, 2 * HOUR + 1_800, 3 * HOUR + 7] {
        assert!(!kept.tick(begun + back));
    }
    let next = kept.schedule.next(&kept.existing, second(begun + 2 * HOUR + 5)).unwrap();
    assert_eq!(next, second(begun + 4 * HOUR));
}

#[test]
fn two_years_are_thinned() {
    let mut kept =
        Kept::new(schedule("hourly keep 24, daily keep 30, weekly keep 12, monthly keep 24"));
    let begun = named("frevo-2026.01.01-00.00.00").since_1970();
    let hours = 24 * 1_000;
    assert!((0..hours).all(|hour| kept.tick(begun + hour * HOUR)));
    let end = begun + (hours - 1) * HOUR;
    let within = |from: u64, to: u64| {
        let is_within = |taken: &&Second| {
            let age = end - taken.since_1970();
            from <= age && age < to
        };
        kept.existing.iter().filter(is_within).count()
    };
    assert_eq!(within(0, DAY), 24);
    assert_eq!(within(DAY, 30 * DAY), 29);
    let months: BTreeSet<u64> = kept.existing.iter().map(|taken| taken.months()).collect();
    assert_eq!(months.len(), 24);
    let weeks = |taken: &Second| Period::Weekly.number(*taken);
    let last_weeks: BTreeSet<u64> = kept.existing.iter().map(weeks).collect();
    assert!(
        last_weeks
            .iter()
            .rev()
            .take(12)
            .eq((0..12).map(|back| weeks(&second(end)) - back).collect::<Vec<_>>().iter())
    );
    assert!(kept.existing.len() <= kept.schedule.kept_at_most());
}

fn schedules() -> impl Strategy<Value = Schedule> {
    proptest::sample::subsequence(&Period::ALL, 1..=4).prop_flat_map(|periods| {
        let counts = proptest::collection::vec(1..6_u32, periods.len());
        counts.prop_map(move |counts| {
            let rules =
                periods.iter().zip(counts).map(|(period, keep)| Rule { period: *period, keep });
            Schedule { rules: rules.collect() }
        })
    })
}

/// Steps of a clock, in seconds: mostly onwards, sometimes far, sometimes back.
fn steps() -> impl Strategy<Value = Vec<i64>> {
    let step = prop_oneof![
        8 => 1..7_200_i64,
        4 => 3_600..400_000_i64,
        1 => 0..100_000_000_i64,
        1 => -100_000_000..0_i64,
        2 => -7_200..0_i64,
    ];
    proptest::collection::vec(step, 1..200)
}

proptest! {
    #[test]
    fn a_schedule_is_read_as_written(schedule in schedules()) {
        prop_assert_eq!(schedule.to_string().parse::<Schedule>(), Ok(schedule));
    }

    #[test]
    fn any_text_is_a_schedule_or_none(text in "[a-z0-9, ]{0,40}|\\PC{0,30}") {
        if let Ok(schedule) = text.parse::<Schedule>() {
            prop_assert_eq!(schedule.to_string().parse::<Schedule>(), Ok(schedule));
        }
    }

    /// Tests all of it under a clock that goes as it likes.
    #[test]
    fn each_period_has_one_snapshot_whatever_the_clock_does(schedule in schedules(), steps in steps()) {
        let mut kept = Kept::new(schedule.clone());
        let mut now = 1_795_000_000_i64;
        let mut made: Vec<u64> = Vec::new();
        for step in steps {
            now = (now + step).clamp(0, 200_000_000_000);
            let at = second(now.unsigned_abs());
            let before = kept.existing.clone();
            let removed_before = kept.removed.len();
            let next = schedule.next(&before, at).unwrap();
            let is_made = kept.tick(at.since_1970());
            prop_assert_eq!(is_made, next == at);
            prop_assert!(!kept.tick(at.since_1970()), "a restart at the same second makes another one");
            // The present period has a snapshot, and just one.
            let present = schedule.shortest().number(at);
            let of_present = kept.existing.iter().filter(|taken| schedule.shortest().number(**taken) == present);
            prop_assert_eq!(of_present.count(), 1);
            if is_made {
                made.push(at.since_1970());
                prop_assert!(kept.existing.contains(&at));
            } else {
                prop_assert!(next > at && schedule.is_due(&before, next));
            }
            // Snapshots of a time to come stay, and the rest is no more than the schedule keeps.
            let ahead = |list: &[Second]| list.iter().filter(|taken| **taken > at).count();
            prop_assert_eq!(ahead(&before), ahead(&kept.existing));
            prop_assert!(kept.existing.len() - ahead(&kept.existing) <= schedule.kept_at_most());
            // The newest until now stays.
            let newest = before.iter().filter(|taken| **taken <= at).max();
            if let (Some(newest), false) = (newest, is_made) {
                prop_assert!(kept.existing.contains(newest));
            }
            prop_assert!(kept.removed.len() - removed_before <= before.len());
        }
    }

    #[test]
    fn the_order_of_the_list_does_not_matter(
        schedule in schedules(),
        mut list in proptest::collection::vec(0..3_000_000_u64, 0..60),
        now in 0..4_000_000_u64,
    ) {
        let seconds = |list: &[u64]| list.iter().copied().map(second).collect::<Vec<_>>();
        let (now, turned) = (second(now), seconds(&list));
        list.sort_unstable();
        let sorted = seconds(&list);
        let surplus = schedule.surplus(&sorted, now);
        prop_assert_eq!(&schedule.surplus(&turned, now), &surplus);
        prop_assert_eq!(schedule.next(&turned, now), schedule.next(&sorted, now));
        prop_assert!(surplus.is_sorted());
        // The rest needs no second look.
        let rest: Vec<Second> = sorted.into_iter().filter(|taken| !surplus.contains(taken)).collect();
        prop_assert_eq!(schedule.surplus(&rest, now), vec![]);
    }
}
