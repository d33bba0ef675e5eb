//! The states of sets of shadow copies, their timer, and their stored form.

use crate::fsrvp::*;
use crate::limits::*;
use alloc::format;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use core::net::IpAddr;
use core::time::Duration;
use frevo_wire::dtyp::{FileTime, Guid};
use proptest::prelude::*;

const ZERO: Duration = Duration::ZERO;

fn guid(byte: u8) -> Guid {
    Guid([byte; 16])
}

fn client(last: u8) -> IpAddr {
    IpAddr::from([192, 0, 2, last])
}

fn copy(id: u8, share: &str) -> NewCopy {
    NewCopy {
        id: guid(id),
        share_unc: format!(r"\\box\{share}"),
        share: share.to_string(),
        volume: share.to_ascii_lowercase(),
        created: FileTime(1 << 57),
    }
}

/// Sets with one that has gone up to `status`, its id 1 and its copy 2.
fn up_to(status: Status) -> ShadowCopySets {
    let mut sets = ShadowCopySets::default();
    assert_eq!(sets.set_context(Context::EMPTY, client(1), ZERO).result, Ok(()));
    assert_eq!(sets.start(guid(9), guid(1), "ann", ZERO), Ok(Reply::Id(guid(1))));
    advance(&mut sets, status);
    sets
}

fn advance(sets: &mut ShadowCopySets, status: Status) {
    let (set, at) = (guid(1), ZERO);
    if status == Status::Started {
        return;
    }
    assert_eq!(sets.add(set, copy(2, "Files"), at), Ok(Reply::Id(guid(2))));
    assert_eq!(sets.prepare(set, at), Ok(Reply::Done));
    if status == Status::Added {
        return;
    }
    let wanted = vec![Wanted { copy: guid(2), share: "Files".to_string() }];
    assert_eq!(sets.begin_commit(set), Ok(Some(wanted)));
    if status == Status::CreationInProgress {
        return;
    }
    assert!(sets.end_commit(set, Ok(&[77]), at));
    if status == Status::Committed {
        return;
    }
    assert_eq!(sets.begin_expose(set).unwrap().len(), 1);
    assert!(sets.end_expose(set, true, at));
    if status == Status::Recovered {
        assert_eq!(sets.complete_recovery(set), Ok(Reply::Done));
    }
}

const ALL: [Status; 6] = [
    Status::Started,
    Status::Added,
    Status::CreationInProgress,
    Status::Committed,
    Status::Exposed,
    Status::Recovered,
];

#[test]
fn calls_in_another_state_are_refused() {
    for status in ALL {
        let sets = up_to(status);
        assert_eq!(sets.status(guid(1)), Some(status));
        let is = |of: &[Status]| of.contains(&status);
        let judge = |is_right: bool, result: Result<(), HResult>| {
            assert_eq!(
                result,
                if is_right { Ok(()) } else { Err(HResult::BAD_STATE) },
                "{status:?}"
            );
        };
        let on = || sets.clone();
        judge(is(&[Status::Added]), on().prepare(guid(1), ZERO).map(drop));
        let added = on().add(guid(1), copy(3, "other"), ZERO);
        judge(is(&[Status::Started, Status::Added]), added.map(drop));
        let commit = on().begin_commit(guid(1)).map(drop);
        judge(is(&[Status::Added, Status::CreationInProgress]), commit);
        judge(is(&[Status::Committed]), on().begin_expose(guid(1)).map(drop));
        judge(is(&[Status::Exposed]), on().complete_recovery(guid(1)).map(drop));
        judge(!is(&[Status::Recovered]), on().abort(guid(1)).map(drop));
        let has_copy = !is(&[Status::Started]);
        let mapping = on().mapping(guid(1), guid(2), r"\\BOX\files\", 1, ZERO);
        judge(is(&[Status::Exposed, Status::Recovered]), mapping.map(drop));
        let deleted = on().delete(guid(1), guid(2), r"\\box\files");
        judge(is(&[Status::Exposed, Status::Recovered]), deleted.map(drop));
        let is_present = is(&[Status::Committed, Status::Exposed, Status::Recovered]);
        let copied = Reply::ShadowCopied { is_present, compatibility: 0 };
        assert_eq!(sets.is_shadow_copied("files"), copied);
        assert_eq!(sets.snapshots().count(), usize::from(is_present && has_copy));
        let is_exposed = is(&[Status::Exposed, Status::Recovered]);
        assert_eq!(sets.exposures().count(), usize::from(is_exposed));
    }
}

#[test]
fn unknown_sets_and_copies_are_told() {
    let mut sets = up_to(Status::Exposed);
    let mismatch = HResult::SHADOWCOPYSET_ID_MISMATCH;
    assert_eq!(sets.prepare(guid(8), ZERO), Err(mismatch));
    assert_eq!(sets.abort(guid(8)), Err(mismatch));
    assert_eq!(sets.abort(Guid::default()), Err(HResult::INVALID_ARGUMENT));
    let unc = r"\\box\files";
    assert_eq!(sets.delete(guid(8), guid(2), unc), Err(HResult::OBJECT_NOT_FOUND));
    assert_eq!(sets.delete(guid(1), guid(8), unc), Err(HResult::INVALID_ARGUMENT));
    assert_eq!(sets.delete(guid(1), guid(2), r"\\box\x"), Err(HResult::OBJECT_NOT_FOUND));
    assert_eq!(sets.delete(Guid::default(), guid(2), unc), Err(HResult::INVALID_ARGUMENT));
    let mut mapping = |copy, unc, level| sets.mapping(guid(1), copy, unc, level, ZERO);
    assert_eq!(mapping(guid(8), unc, 1), Err(HResult::INVALID_ARGUMENT));
    assert_eq!(mapping(guid(2), r"\\box\x", 1), Err(HResult::INVALID_ARGUMENT));
    assert_eq!(mapping(guid(2), unc, 2), Err(HResult::INVALID_ARGUMENT));
    let Ok(Reply::Mapping(told)) = mapping(guid(2), unc, 1) else { panic!("a mapping") };
    let name = "Files@{02020202-0202-0202-0202-020202020202}";
    assert_eq!(told.shadow_copy_share.as_deref(), Some(name));
    assert_eq!(told.share_unc, r"\\box\Files");
    let removal = sets.delete(guid(1), guid(2), unc).unwrap();
    assert_eq!(removal.shares, [name]);
    assert_eq!(removal.snapshots, [Snapshot { share: "Files".to_string(), taken: 77 }]);
    assert!(sets.is_empty() && sets.due().is_none());
}

#[test]
fn the_share_of_a_hidden_share_is_hidden() {
    let mut sets = up_to(Status::Started);
    sets.add(guid(1), copy(2, "a$"), ZERO).unwrap();
    sets.begin_commit(guid(1)).unwrap();
    sets.end_commit(guid(1), Ok(&[1]), ZERO);
    let exposures = sets.begin_expose(guid(1)).unwrap();
    assert_eq!(exposures[0].name, "a$@{02020202-0202-0202-0202-020202020202}$");
}

#[test]
fn one_set_is_on_its_way() {
    let mut sets = ShadowCopySets::default();
    assert_eq!(sets.start(guid(9), guid(1), "ann", ZERO), Err(HResult::BAD_STATE));
    assert_eq!(
        sets.set_context(Context::PERSISTENT, client(1), ZERO).result,
        Err(HResult::UNSUPPORTED_CONTEXT)
    );
    let busy = HResult::SHADOW_COPY_SET_IN_PROGRESS;
    let mut sets = up_to(Status::Started);
    assert_eq!(sets.start(guid(9), guid(3), "ann", ZERO), Err(busy));
    assert_eq!(sets.start(Guid::default(), guid(3), "ann", ZERO), Err(HResult::INVALID_ARGUMENT));
    assert_eq!(sets.set_context(Context::EMPTY, client(2), ZERO).result, Err(busy));
    assert_eq!(sets.add(guid(1), copy(2, "a"), ZERO), Ok(Reply::Id(guid(2))));
    assert_eq!(sets.add(guid(1), copy(3, "A"), ZERO), Err(HResult::OBJECT_ALREADY_EXISTS));
    sets.begin_commit(guid(1)).unwrap();
    assert_eq!(sets.begin_commit(guid(1)), Ok(None));
    // A fault, after which the set is committed again.
    assert!(sets.end_commit(guid(1), Err(HResult::WAIT_FAILED), ZERO));
    assert!(sets.begin_commit(guid(1)).unwrap().is_some());
    sets.abort(guid(1)).unwrap();
    assert!(!sets.end_commit(guid(1), Ok(&[5]), ZERO), "the snapshot belongs to nobody");
    assert_eq!(sets.set_context(Context::EMPTY, client(2), ZERO).result, Ok(()));
}

#[test]
fn a_client_that_begins_again_leaves_its_set() {
    for status in ALL {
        let mut sets = up_to(status);
        let removal = sets.set_context(Context::EMPTY, client(1), ZERO).removal;
        let is_recovered = status == Status::Recovered;
        assert_eq!(sets.status(guid(1)), is_recovered.then_some(status));
        assert_eq!(removal.snapshots.len(), usize::from(status == Status::Committed), "{status:?}");
        assert_eq!(removal.released.len(), usize::from(status == Status::Exposed), "{status:?}");
        assert_eq!(removal.shares.len(), usize::from(status == Status::Exposed), "{status:?}");
    }
    let mut sets = ShadowCopySets::default();
    let begin =
        |sets: &mut ShadowCopySets| sets.set_context(Context::EMPTY, client(1), ZERO).result;
    for _ in 0..=FSRVP_RETRIES {
        assert_eq!(begin(&mut sets), Ok(()));
    }
    assert_eq!(begin(&mut sets), Err(HResult::SHADOW_COPY_SET_IN_PROGRESS));
    assert_eq!(begin(&mut sets), Ok(()), "the context was forgotten");
}

#[test]
fn a_silent_client_loses_its_set() {
    let long = [Status::Added];
    for status in ALL {
        let mut sets = up_to(status);
        let length = if long.contains(&status) { FSRVP_LONG_TIMER } else { FSRVP_SHORT_TIMER };
        let runs = !matches!(status, Status::CreationInProgress | Status::Recovered);
        assert_eq!(sets.due(), runs.then_some(length), "{status:?}");
        assert_eq!(sets.elapse(length - Duration::from_nanos(1)), None);
        let ended = sets.elapse(length);
        assert_eq!(ended.is_some(), runs, "{status:?}");
        if let Some(removal) = ended {
            let has_snapshot = matches!(status, Status::Committed | Status::Exposed);
            assert_eq!(removal.snapshots.len(), usize::from(has_snapshot));
            assert_eq!(removal.shares.len(), usize::from(status == Status::Exposed));
            assert_eq!(sets.add(guid(1), copy(3, "x"), length), Err(HResult::INVALID_ARGUMENT));
            assert_eq!(sets.start(guid(9), guid(3), "ann", length), Err(HResult::BAD_STATE));
        }
    }
    // The context alone, without a set.
    let mut sets = ShadowCopySets::default();
    sets.set_context(Context::EMPTY, client(1), ZERO);
    assert_eq!(sets.elapse(FSRVP_SHORT_TIMER), Some(Removal::default()));
    assert_eq!(sets.set_context(Context::EMPTY, client(2), ZERO).result, Ok(()));
    let mut sets = up_to(Status::Exposed);
    sets.mapping(guid(1), guid(2), r"\\box\files", 1, ZERO).unwrap();
    assert_eq!(sets.due(), Some(FSRVP_LONG_TIMER));
    let mut sets = up_to(Status::CreationInProgress);
    sets.end_wait(guid(1), ZERO);
    assert_eq!(sets.due(), Some(FSRVP_SHORT_TIMER));
    // A set that is recovered, or gone, has no timer.
    for (status, set) in [(Status::Recovered, guid(1)), (Status::CreationInProgress, guid(9))] {
        let mut sets = up_to(status);
        sets.end_wait(set, ZERO);
        assert_eq!(sets.due(), None);
    }
}

#[test]
fn sets_have_limits() {
    let mut sets = ShadowCopySets::default();
    let mut number = 0_u32;
    let mut next = |sets: &mut ShadowCopySets, owner: &str| {
        number += 1;
        let mut id = [0; 16];
        id[..4].copy_from_slice(&number.to_le_bytes());
        assert_eq!(sets.set_context(Context::EMPTY, client(1), ZERO).result, Ok(()));
        let started = sets.start(guid(9), Guid(id), owner, ZERO).map(drop);
        if started.is_ok() {
            sets.add(Guid(id), copy(2, "x"), ZERO).unwrap();
            sets.begin_commit(Guid(id)).unwrap();
            sets.end_commit(Guid(id), Ok(&[1]), ZERO);
            sets.end_expose(Guid(id), true, ZERO);
            sets.complete_recovery(Guid(id)).unwrap();
        } else {
            sets.elapse(FSRVP_SHORT_TIMER);
        }
        started
    };
    for at in 0..FSRVP_SETS_PER_ACCOUNT + 1 {
        let full = Err(HResult::OUT_OF_MEMORY);
        let expected = if at < FSRVP_SETS_PER_ACCOUNT { Ok(()) } else { full };
        assert_eq!(next(&mut sets, "ann"), expected, "{at}");
        assert_eq!(next(&mut sets, "BOB"), expected, "{at}");
    }
    assert_eq!(next(&mut sets, "carl"), Err(HResult::OUT_OF_MEMORY), "in all");
    assert_eq!(MAX_FSRVP_SETS, 2 * FSRVP_SETS_PER_ACCOUNT);
    let stored = sets.to_bytes();
    assert_eq!(
        ShadowCopySets::from_bytes(&stored, ZERO).unwrap().snapshots().count(),
        MAX_FSRVP_SETS
    );
    let mut sets = up_to(Status::Started);
    for at in 0..MAX_FSRVP_COPIES {
        sets.add(guid(1), copy(2, &format!("s{at}")), ZERO).unwrap();
    }
    assert_eq!(sets.add(guid(1), copy(2, "one more"), ZERO), Err(HResult::OUT_OF_MEMORY));
}

/// Has the account make a copy of `share` for each second, and leave it behind. Returns those that are removed.
fn leave(
    sets: &mut ShadowCopySets,
    owner: &str,
    share: &str,
    seconds: core::ops::Range<u64>,
) -> Vec<u64> {
    let mut removed = Vec::new();
    for taken in seconds {
        // Each client is a new one, so that none has begun again too often.
        sets.elapse(FSRVP_SHORT_TIMER);
        assert_eq!(sets.set_context(Context::EMPTY, client(1), ZERO).result, Ok(()));
        sets.start(guid(9), guid(1), owner, ZERO).unwrap();
        sets.add(guid(1), copy(2, share), ZERO).unwrap();
        sets.begin_commit(guid(1)).unwrap();
        sets.end_commit(guid(1), Ok(&[taken]), ZERO);
        sets.end_expose(guid(1), true, ZERO);
        let removal = sets.set_context(Context::EMPTY, client(1), ZERO).removal;
        assert_eq!(removal.released.len(), 1);
        removal.released.into_iter().for_each(|copy| sets.leave(copy));
        for gone in sets.surplus_left() {
            sets.forget_left(&gone);
            removed.push(gone.taken);
        }
    }
    removed
}

#[test]
fn copies_that_clients_leave_have_limits() {
    let mut sets = ShadowCopySets::default();
    let limit = FSRVP_LEFT_PER_ACCOUNT as u64;
    assert!(leave(&mut sets, "ann", "files", 100..100 + limit).is_empty());
    assert!(leave(&mut sets, "ann", "other", 200..201).is_empty(), "another share");
    assert!(leave(&mut sets, "bob", "files", 300..301).is_empty(), "another account");
    assert_eq!(leave(&mut sets, "ANN", "FILES", 400..402), [100, 101]);
    assert_eq!(sets.left_count(), FSRVP_LEFT_PER_ACCOUNT + 2);
    // All accounts together.
    let mut sets = ShadowCopySets::default();
    for account in 0..MAX_FSRVP_LEFT as u64 {
        assert!(leave(&mut sets, &format!("a{account}"), "x", account..account + 1).is_empty());
    }
    assert_eq!(leave(&mut sets, "b", "x", 9_000..9_002), [0, 1]);
    assert_eq!(sets.left_count(), MAX_FSRVP_LEFT);
}

/// A copy is known until its snapshot is removed, also after a restart.
#[test]
fn copies_that_cannot_be_removed_stay_known() {
    let mut sets = ShadowCopySets::default();
    let more = MAX_FSRVP_COPIES as u64 + 5;
    for taken in 0..MAX_FSRVP_LEFT as u64 + more {
        let snapshot = Snapshot { share: "x".to_string(), taken };
        sets.leave(LeftCopy { owner: "ann".to_string(), snapshot });
    }
    assert_eq!(sets.left_count(), MAX_FSRVP_LEFT + MAX_FSRVP_COPIES, "the first are forgotten");
    let read = ShadowCopySets::from_bytes(&sets.to_bytes(), ZERO).unwrap();
    let surplus = read.surplus_left();
    assert_eq!(surplus.len(), MAX_FSRVP_LEFT + MAX_FSRVP_COPIES - FSRVP_LEFT_PER_ACCOUNT);
    assert_eq!(surplus[0].taken, 5);
}

/// Without copies that were left behind, earlier versions read the state.
#[test]
fn the_stored_form_is_the_earlier_one_if_it_can_be() {
    let mut sets = up_to(Status::Exposed);
    assert!(sets.to_bytes().starts_with(b"FRVOSC01"));
    let released = sets.set_context(Context::EMPTY, client(1), ZERO).removal.released;
    // A schedule has it.
    assert!(sets.to_bytes().starts_with(b"FRVOSC01"));
    released.into_iter().for_each(|copy| sets.leave(copy));
    let stored = sets.to_bytes();
    assert!(stored.starts_with(b"FRVOSC02"));
    assert_eq!(ShadowCopySets::from_bytes(&stored, ZERO).unwrap().left_count(), 1);
    for cut in 0..stored.len() {
        assert!(ShadowCopySets::from_bytes(&stored[..cut], ZERO).is_err(), "{cut}");
    }
}

#[test]
fn sets_outlive_the_server() {
    for status in ALL {
        let sets = up_to(status);
        let later = Duration::from_secs(5);
        let read = ShadowCopySets::from_bytes(&sets.to_bytes(), later).unwrap();
        let expected = if status == Status::CreationInProgress { Status::Added } else { status };
        assert_eq!(read.status(guid(1)), Some(expected));
        assert_eq!(read.snapshots().collect::<Vec<_>>(), sets.snapshots().collect::<Vec<_>>());
        assert_eq!(read.exposures().collect::<Vec<_>>(), sets.exposures().collect::<Vec<_>>());
        let length = if status == Status::Added { FSRVP_LONG_TIMER } else { FSRVP_SHORT_TIMER };
        let runs = status != Status::Recovered;
        assert_eq!(read.due(), runs.then_some(later + length), "{status:?}");
    }
    assert!(ShadowCopySets::from_bytes(b"", ZERO).is_err());
    let mut more = up_to(Status::Exposed).to_bytes();
    more.push(0);
    assert!(ShadowCopySets::from_bytes(&more, ZERO).is_err());
}

proptest! {
    /// Any order of calls: one set at most is on its way, and the stored form is the state.
    #[test]
    fn any_order_of_calls_keeps_one_set_on_its_way(steps in proptest::collection::vec((0..12_u8, 0..6_u8, 0..3_u8), 0..80)) {
        let mut sets = ShadowCopySets::default();
        let mut now = ZERO;
        let mut fresh = 100_u8;
        for (step, one, two) in steps {
            now += Duration::from_secs(u64::from(two) * 60);
            fresh = fresh.wrapping_add(1).max(100);
            let set = if one == 0 { guid(one) } else { guid(fresh.wrapping_sub(one)) };
            let made = [u64::from(two)];
            match step {
                0 => drop(sets.set_context(Context::EMPTY, client(two), now)),
                1 => drop(sets.start(guid(9), guid(fresh), "ann", now)),
                2 => drop(sets.add(set, copy(fresh, ["a", "b", "c"][usize::from(two)]), now)),
                3 => drop(sets.prepare(set, now)),
                4 => drop(sets.begin_commit(set)),
                5 => drop(sets.end_commit(set, Ok(&made), now)),
                6 => drop(sets.begin_expose(set)),
                7 => drop(sets.end_expose(set, two > 0, now)),
                8 => drop(sets.complete_recovery(set)),
                9 => drop(sets.abort(set)),
                10 => drop(sets.delete(set, guid(fresh), r"\\box\a")),
                _ => drop(sets.elapse(now)),
            }
            let read = ShadowCopySets::from_bytes(&sets.to_bytes(), now);
            prop_assert!(read.is_ok(), "two sets on their way, or another fault");
        }
    }

    #[test]
    fn any_bytes_are_sets_or_none(tail in proptest::collection::vec(any::<u8>(), 0..200), cut in 0..200_usize) {
        let mut sets = up_to(Status::Exposed);
        if cut % 2 == 0 {
            let snapshot = Snapshot { share: "x".to_string(), taken: 7 };
            sets.leave(LeftCopy { owner: "ann".to_string(), snapshot });
        }
        let mut bytes = sets.to_bytes();
        bytes.truncate(cut);
        bytes.extend(tail);
        if let Ok(sets) = ShadowCopySets::from_bytes(&bytes, ZERO) {
            let again = ShadowCopySets::from_bytes(&sets.to_bytes(), ZERO).unwrap();
            prop_assert_eq!(again.to_bytes(), sets.to_bytes());
        }
    }
}
