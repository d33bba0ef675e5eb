//! Bounds of the judge, for all sequences of changes.

use proptest::prelude::*;

use super::*;
use crate::base::limits::{BRAKE_CLIENT_BYTES, BRAKE_COUNT_MAX};

pub(super) const LIMITS: BrakeLimits = BrakeLimits {
    files_per_minute: 40,
    files_per_hour: 200,
    renames_per_minute: 100,
    deletions_per_minute: None,
};

/// A change of one of a few files in a few folders.
#[derive(Debug, Clone, Copy)]
enum Change {
    Made(u64, u8),
    Emptied(u64, u8),
    Noisy(u64, bool),
    Renamed(u64, u8, u8, Option<u64>),
    Removed(u64, u8),
    Linked(u64, u8, Option<u64>),
    MovedAway(u64),
    Wiped(u64),
}

fn place(number: u8) -> NameParts {
    NameParts::of(&format!("folder {}\\a.{}", number % 4, number / 4 % 4))
}

fn changes(files: u64) -> impl Strategy<Value = Vec<(Change, u64)>> {
    let one = prop_oneof![
        (0..files, any::<u8>()).prop_map(|(file, at)| Change::Made(file, at)),
        (0..files, any::<u8>()).prop_map(|(file, at)| Change::Emptied(file, at)),
        (0..files, any::<bool>()).prop_map(|(file, is_over)| Change::Noisy(file, is_over)),
        (0..files, any::<u8>(), any::<u8>(), proptest::option::of(0..files))
            .prop_map(|(file, from, to, over)| Change::Renamed(file, from, to, over)),
        (0..files, any::<u8>()).prop_map(|(file, at)| Change::Removed(file, at)),
        (0..files, any::<u8>(), proptest::option::of(0..files))
            .prop_map(|(file, at, over)| Change::Linked(file, at, over)),
        (0..files).prop_map(Change::MovedAway),
        (0..files).prop_map(Change::Wiped),
    ];
    proptest::collection::vec((one, 0..30_000_u64), 0..400)
}

fn apply(
    judge: &mut Judge,
    change: Change,
    limits: &BrakeLimits,
    now: Duration,
) -> Option<Finding> {
    match change {
        Change::Made(file, at) => judge.made(File(file), place(at), now),
        Change::Emptied(file, at) => judge.emptied(File(file), place(at), now),
        Change::Noisy(file, is_over) => return judge.noisy(File(file), is_over, limits, now),
        Change::Renamed(file, from, to, over) => {
            let places = [place(from), place(to)];
            return judge.renamed(File(file), places, over.map(File), limits, now);
        }
        Change::Removed(file, at) => return judge.removed(File(file), place(at), limits, now),
        Change::Linked(file, at, over) => {
            return judge.linked(File(file), place(at), over.map(File), limits, now);
        }
        Change::MovedAway(file) => judge.moved_away(File(file), now),
        Change::Wiped(file) => return judge.wiped(File(file), limits, now),
    }
    None
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Changes of fewer files than the limits never are a finding, whatever happens to them.
    #[test]
    fn few_files_are_never_found(changes in changes(39)) {
        let mut judge = Judge::default();
        let mut now = Duration::ZERO;
        for (change, later) in changes {
            now += Duration::from_millis(later);
            let found = apply(&mut judge, change, &LIMITS, now);
            prop_assert_eq!(found, None);
        }
    }

    /// The memory of the judge is bounded, and a finding says at least its limit, once in its time.
    #[test]
    fn all_is_bounded(changes in changes(10_000), least in 1..20_u16) {
        let limits = BrakeLimits {
            files_per_minute: least,
            files_per_hour: 2 * least,
            renames_per_minute: least,
            deletions_per_minute: Some(least.into()),
        };
        let (mut judge, mut now) = (Judge::default(), Duration::ZERO);
        let mut last = [None; 4];
        for (change, later) in changes {
            now += Duration::from_millis(later);
            if let Some(Finding { pattern, count }) = apply(&mut judge, change, &limits, now) {
                let limit = if pattern == Pattern::FilesInHour { 2 * least } else { least };
                prop_assert!(count >= limit.into());
                let before: Option<Duration> = last[pattern as usize].replace(now);
                prop_assert!(before.is_none_or(|before| now - before >= pattern.within()));
            }
            prop_assert!(judge.fresh.len() <= BRAKE_FRESH_FILES);
            prop_assert!(judge.emptied.len() <= BRAKE_FRESH_FILES);
            prop_assert!(judge.moved.len() <= BRAKE_FRESH_FILES);
            prop_assert!(judge.folders.len() <= BRAKE_FOLDERS);
            prop_assert!(judge.files.0.len() <= usize::from(2 * least));
            prop_assert!(judge.renames.0.len() <= usize::from(2 * least));
            prop_assert_eq!(judge.latest(), now);
        }
    }
}

#[test]
fn the_charge_of_a_client_covers_it() {
    let most = usize::from(BRAKE_COUNT_MAX);
    let counted =
        size_of::<Counted>() * (most.next_power_of_two() + (2 * most).next_power_of_two());
    let of_file = 2 * size_of::<Fresh>() + size_of::<File>();
    let fresh = of_file * BRAKE_FRESH_FILES.next_power_of_two();
    let folders = size_of::<Folder>() * BRAKE_FOLDERS.next_power_of_two();
    let all = counted + fresh + folders + size_of::<Judge>();
    assert!(all <= BRAKE_CLIENT_BYTES, "{all}");
    assert!(all * 10 >= BRAKE_CLIENT_BYTES * 8, "{all}");
}

#[test]
fn a_name_has_a_folder_and_an_extension() {
    let (one, other) = (NameParts::of("a\\b.docx"), NameParts::of("a\\c.DOCX"));
    assert_eq!(one, other);
    assert_ne!(one.extension, NameParts::of("a\\b.docx.locked").extension);
    assert_ne!(one.folder, NameParts::of("b.docx").folder);
    assert_eq!(NameParts::of("a.b\\c").extension, NameParts::of("none").extension);
}

#[test]
fn a_pardon_forgets_all() {
    let mut judge = Judge::default();
    let attack = |judge: &mut Judge, from: u64| {
        let mut found = Vec::new();
        for file in from..from + 39 {
            found.extend(judge.noisy(File(file), true, &LIMITS, Duration::from_secs(file)));
        }
        found
    };
    assert_eq!(attack(&mut judge, 0), []);
    judge.pardon();
    assert_eq!(attack(&mut judge, 39), []);
    let last = judge.noisy(File(99), true, &LIMITS, Duration::from_secs(78));
    assert_eq!(last, Some(Finding { pattern: Pattern::Files, count: 40 }));
}
