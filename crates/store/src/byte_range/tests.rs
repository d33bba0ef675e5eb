use super::*;
use alloc::vec::Vec;
use proptest::prelude::*;

const A: OpenId = OpenId(1);
const B: OpenId = OpenId(2);

fn range(offset: u64, length: u64) -> Range {
    Range { offset, length }
}

proptest! {
    /// Tests that every request whose range is free gets its lock, though each is looked at
    /// once.
    #[test]
    fn unlocking_many_serves_all_that_can_be(
        held in prop::collection::vec((0u64..40, 0u64..6), 0..24),
        wanted in prop::collection::vec((0u64..40, 0u64..12), 0..24),
        kept in 0usize..8,
    ) {
        let mut r = ByteRanges::default();
        let mut own = Vec::new();
        for (offset, length) in held {
            if r.lock(A, range(offset, length), Mode::Shared).is_ok() {
                own.push(range(offset, length));
            }
        }
        for (offset, length) in wanted {
            let _ = r.lock_or_wait(B, range(offset, length), Mode::Exclusive);
        }
        let freed = own.split_off(kept.min(own.len()));
        let count = freed.len();
        prop_assert_eq!(r.unlock_all(A, freed), (count, Ok(())));
        let Some(state) = &r.state else { return Ok(()) };
        for waiting in state.waiting.iter().filter(|w| w.outcome.is_none()) {
            let verdict = state.verdict(waiting.owner, waiting.range, waiting.mode);
            prop_assert!(matches!(verdict, Verdict::Conflict), "{:?}", waiting.range);
        }
    }
}

#[test]
fn an_unlock_of_many_ends_at_the_first_unlocked_range() {
    let mut r = ByteRanges::default();
    for offset in 0..4 {
        r.lock(A, range(offset, 1), Mode::Exclusive).unwrap();
    }
    let ranges = [range(0, 1), range(1, 1), range(9, 1), range(2, 1)];
    assert_eq!(r.unlock_all(A, ranges), (2, Err(Status::RANGE_NOT_LOCKED)));
    assert_eq!(r.held_by(A), 2);
    assert_eq!(r.unlock_all(A, []), (0, Ok(())));
    assert_eq!(r.unlock_all(A, [range(2, 1), range(3, 1)]), (2, Ok(())));
    assert_eq!(r.unlock_all(A, []), (0, Ok(())));
    assert_eq!(r.unlock_all(A, [range(2, 1)]), (0, Err(Status::RANGE_NOT_LOCKED)));
}

#[test]
fn exclusive_keeps_others_out_and_shared_keeps_writers_out() {
    let mut r = ByteRanges::default();
    r.lock(A, range(10, 10), Mode::Exclusive).unwrap();
    assert!(r.may_read(A, range(10, 1)) && r.may_write(A, range(10, 1)));
    assert!(!r.may_read(B, range(19, 1)) && !r.may_write(B, range(19, 1)));
    assert!(r.may_read(B, range(20, 1)) && r.may_read(B, range(9, 1)));
    r.unlock(A, range(10, 10)).unwrap();
    r.lock(A, range(10, 10), Mode::Shared).unwrap();
    assert!(r.may_read(B, range(10, 1)));
    assert!(!r.may_write(B, range(10, 1)) && !r.may_write(A, range(10, 1)));
    r.lock(B, range(15, 10), Mode::Shared).unwrap();
    assert_eq!(r.lock(A, range(24, 1), Mode::Exclusive), Err(Status::LOCK_NOT_GRANTED));
}

#[test]
fn held_locks_can_be_listed_and_taken_again() {
    let mut r = ByteRanges::default();
    r.lock(A, range(0, 8), Mode::Exclusive).unwrap();
    r.lock(A, range(0, 8), Mode::Shared).unwrap();
    r.lock(A, range(0, 8), Mode::Shared).unwrap();
    r.lock(A, range(20, 8), Mode::Exclusive).unwrap();
    r.lock(B, range(40, 8), Mode::Shared).unwrap();
    let held = r.of(A);
    assert_eq!(held.len(), 4);
    let mut restored = ByteRanges::default();
    held.iter().for_each(|(range, mode)| restored.lock(A, *range, *mode).unwrap());
    assert_eq!(restored.of(A), held);
    assert!(restored.of(B).is_empty());
}

#[test]
fn the_owner_conflicts_with_itself_only_exclusively() {
    let mut r = ByteRanges::default();
    r.lock(A, range(0, 8), Mode::Exclusive).unwrap();
    assert_eq!(r.lock(A, range(4, 8), Mode::Exclusive), Err(Status::LOCK_NOT_GRANTED));
    r.lock(A, range(0, 8), Mode::Shared).unwrap();
    // The first unlock releases the exclusive lock of the range, and the second one the shared
    // lock.
    r.unlock(A, range(0, 8)).unwrap();
    assert!(r.may_read(B, range(0, 8)));
    r.unlock(A, range(0, 8)).unwrap();
    assert_eq!(r.unlock(A, range(0, 8)), Err(Status::RANGE_NOT_LOCKED));
}

#[test]
fn zero_length_and_the_end_of_the_world() {
    let mut r = ByteRanges::default();
    r.lock(A, range(0, 0), Mode::Exclusive).unwrap();
    assert!(r.may_write(B, range(0, 100)));
    r.lock(A, range(10, 0), Mode::Exclusive).unwrap();
    assert!(r.may_write(B, range(10, 5)) && r.may_write(B, range(5, 5)));
    assert!(!r.may_write(B, range(9, 2)), "strictly inside");
    assert_eq!(range(u64::MAX, 2).check(), Err(Status::INVALID_LOCK_RANGE));
    assert!(range(u64::MAX, 1).check().is_ok());
    assert!(range(u64::MAX - 1, 2).check().is_ok());
}

#[test]
fn locks_are_bounded() {
    let mut r = ByteRanges::default();
    for i in 0..LOCKS_PER_OPEN as u64 {
        r.lock(A, range(i, 1), Mode::Shared).unwrap();
    }
    let next = range(LOCKS_PER_OPEN as u64, 1);
    assert_eq!(r.lock(A, next, Mode::Shared), Err(Status::INSUFFICIENT_RESOURCES));
    r.lock(B, next, Mode::Shared).unwrap();
    r.release(A);
    r.lock(A, next, Mode::Shared).unwrap();
}

fn poll(r: &mut ByteRanges, ticket: Ticket) -> Poll<Result<(), Status>> {
    r.poll(ticket, Waker::noop())
}

#[test]
fn waiters_are_granted_in_order_as_soon_as_possible() {
    let mut r = ByteRanges::default();
    let c = OpenId(3);
    r.lock(A, range(0, 10), Mode::Exclusive).unwrap();
    r.lock(A, range(20, 10), Mode::Exclusive).unwrap();
    let wait = |r: &mut ByteRanges, owner, range| {
        r.lock_or_wait(owner, range, Mode::Exclusive).unwrap().unwrap()
    };
    let both = wait(&mut r, B, range(5, 20));
    let first = wait(&mut r, B, range(0, 2));
    let second = wait(&mut r, c, range(0, 2));
    assert!(poll(&mut r, both).is_pending() && poll(&mut r, first).is_pending());
    r.unlock(A, range(0, 10)).unwrap();
    assert_eq!(poll(&mut r, first), Poll::Ready(Ok(())));
    assert!(poll(&mut r, both).is_pending() && poll(&mut r, second).is_pending());
    assert!(!r.may_read(c, range(0, 1)), "it is held at once");
    r.unlock(A, range(20, 10)).unwrap();
    assert_eq!(poll(&mut r, both), Poll::Ready(Ok(())));
    r.unlock(B, range(0, 2)).unwrap();
    // The request's lock was granted, but the request is cancelled. So the lock must be released
    // again.
    r.give_up(second);
    [first, both].into_iter().for_each(|ticket| r.give_up(ticket));
    assert_eq!((r.held_by(c), r.waiting_count()), (0, 0));
    r.lock(A, range(0, 2), Mode::Exclusive).unwrap();
}

#[test]
fn an_open_that_goes_ends_its_waits_and_frees_for_others() {
    let mut r = ByteRanges::default();
    r.lock(A, range(0, 10), Mode::Exclusive).unwrap();
    let b = r.lock_or_wait(B, range(0, 1), Mode::Shared).unwrap().unwrap();
    let c = r.lock_or_wait(OpenId(3), range(0, 1), Mode::Shared).unwrap().unwrap();
    r.release(B);
    assert_eq!(poll(&mut r, b), Poll::Ready(Err(Status::RANGE_NOT_LOCKED)));
    r.release(A);
    let late = r.lock_or_wait(B, range(0, 1), Mode::Exclusive).unwrap().unwrap();
    assert_eq!(poll(&mut r, c), Poll::Ready(Ok(())));
    // The lock of `late` was granted, but its Open is closed before the request learns of it. So
    // the request fails.
    let d = r.lock_or_wait(A, range(9, 1), Mode::Exclusive);
    assert_eq!(d, Ok(None));
    r.release(B);
    r.release(A);
    r.release(OpenId(3));
    assert_eq!(poll(&mut r, late), Poll::Ready(Err(Status::RANGE_NOT_LOCKED)));
    [b, c, late].into_iter().for_each(|ticket| r.give_up(ticket));
    assert!(r.is_empty() && r.waiting_count() == 0);
    assert_eq!(poll(&mut r, c), Poll::Ready(Err(Status::CANCELLED)));
}

/// Ranges go in the order of their offsets, and each is free for others at once.
#[test]
fn locks_go_in_pieces() {
    let mut r = ByteRanges::default();
    for at in 0..10 {
        r.lock(A, range(at, 1), Mode::Shared).unwrap();
        r.lock(A, range(at, 1), Mode::Shared).unwrap();
    }
    let early = r.lock_or_wait(B, range(2, 1), Mode::Exclusive).unwrap().unwrap();
    let late = r.lock_or_wait(B, range(2, 3), Mode::Shared).unwrap();
    assert_eq!(late, None, "a shared lock of the other does not stop it");
    let wide = r.lock_or_wait(OpenId(3), range(0, 8), Mode::Exclusive).unwrap().unwrap();
    r.unlock(B, range(2, 3)).unwrap();
    assert!(r.release_some(A, 2));
    assert_eq!((r.held_by(A), poll(&mut r, early)), (16, Poll::Pending));
    assert!(r.release_some(A, 1));
    assert_eq!((r.held_by(A), poll(&mut r, early)), (14, Poll::Ready(Ok(()))));
    r.unlock(B, range(2, 1)).unwrap();
    assert!(r.release_some(A, 4));
    assert_eq!(poll(&mut r, wide), Poll::Pending);
    assert!(r.release_some(A, 2));
    assert_eq!(poll(&mut r, wide), Poll::Ready(Ok(())));
    assert!(!r.release_some(A, 1), "that was the last");
    assert!(!r.release_some(A, 1));
    assert_eq!((r.held_by(A), r.len()), (0, 1));
}

#[test]
fn the_same_shared_lock_counts() {
    let mut r = ByteRanges::default();
    for _ in 0..2 {
        r.lock(A, range(0, 0), Mode::Shared).unwrap();
        r.lock(A, range(5, 5), Mode::Shared).unwrap();
    }
    assert_eq!((r.len(), r.held_by(A)), (4, 4));
    r.unlock(A, range(5, 5)).unwrap();
    assert!(!r.may_write(B, range(9, 1)));
    r.unlock(A, range(5, 5)).unwrap();
    assert!(r.may_write(B, range(9, 1)));
    assert_eq!(r.unlock(A, range(5, 5)), Err(Status::RANGE_NOT_LOCKED));
}

/// The room of thousands of waits is given back while others still have locks.
#[test]
fn a_crowd_of_waits_leaves_no_room() {
    let mut r = ByteRanges::default();
    r.lock(OpenId(1), range(0, 1), Mode::Exclusive).unwrap();
    let wait = |r: &mut ByteRanges, n| r.lock_or_wait(OpenId(n), range(0, 1), Mode::Exclusive);
    let tickets: Vec<_> = (2..10_000).map(|n| wait(&mut r, n).unwrap().unwrap()).collect();
    tickets.into_iter().for_each(|ticket| r.give_up(ticket));
    for n in 2..10_000 {
        r.lock(OpenId(n), range(n, 1), Mode::Exclusive).unwrap();
    }
    (2..10_000).for_each(|n| r.release(OpenId(n)));
    let state = r.state.as_ref().unwrap();
    assert!(state.waiting.capacity() <= 64, "room for {}", state.waiting.capacity());
    assert!(state.held.capacity() <= 64, "room for {}", state.held.capacity());
    assert_eq!(r.len(), 1);
}

#[test]
fn waits_are_bounded() {
    let mut r = ByteRanges::default();
    r.lock(A, range(0, 1), Mode::Exclusive).unwrap();
    let mut wait = || r.lock_or_wait(B, range(0, 1), Mode::Exclusive);
    let tickets: Vec<_> = (0..LOCK_WAITS_PER_FILE).map(|_| wait().unwrap()).collect();
    assert_eq!(wait(), Err(Status::INSUFFICIENT_RESOURCES));
    r.give_up(tickets[7].unwrap());
    assert!(r.lock_or_wait(B, range(0, 1), Mode::Exclusive).unwrap().is_some());
}

/// Prints the time of each question with many locks.
#[test]
#[ignore = "a measurement"]
#[allow(clippy::disallowed_methods, clippy::print_stdout, reason = "it measures")]
fn bench() {
    for count in [1_000u64, 8_000, 65_000] {
        let mut r = ByteRanges::default();
        let began = std::time::Instant::now();
        for i in 0..count {
            let i = i.wrapping_mul(7919) % count;
            r.lock(OpenId(i % 4), range(i * 8, 4), Mode::Exclusive).unwrap();
        }
        let locked = began.elapsed();
        let began = std::time::Instant::now();
        let free = (0..count).filter(|i| r.may_write(B, range(i * 8 + 4, 4))).count();
        assert_eq!(free as u64, count);
        let asked = began.elapsed();
        let began = std::time::Instant::now();
        for i in 0..count {
            r.unlock(OpenId(i % 4), range(i * 8, 4)).unwrap();
        }
        let per = |time: std::time::Duration| time.as_nanos() as u64 / count;
        let unlocked = began.elapsed();
        std::println!(
            "{count}: lock {} ns, may_write {} ns, unlock {} ns",
            per(locked),
            per(asked),
            per(unlocked)
        );
    }
    // Two Opens get LOCKS_PER_FILE locks, the most that a file may have, in mixed order. Then the
    // time to release them is measured.
    let mut r = ByteRanges::default();
    for i in 0..LOCKS_PER_FILE as u64 {
        let i = i.wrapping_mul(7919) % LOCKS_PER_FILE as u64;
        r.lock(OpenId(1 + i % 2), range(i * 8, 4), Mode::Exclusive).unwrap();
    }
    let on_processor = || {
        let times = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
        times.split(' ').next().unwrap().parse::<u64>().unwrap()
    };
    for owner in [A, B] {
        let held = r.held_by(owner);
        let began = on_processor();
        r.release(owner);
        std::println!("{held} locks of an Open that goes: {} us", (on_processor() - began) / 1_000);
    }
}

proptest! {
    /// Two exclusive locks are never granted over one byte.
    #[test]
    fn no_byte_has_two_exclusive_owners(
        ops in proptest::collection::vec((0u64..2, 0u64..64, 1u64..16, any::<bool>()), 1..64)
    ) {
        let mut r = ByteRanges::default();
        let mut owner = [None::<u64>; 80];
        for (who, offset, length, lock) in ops {
            let range = range(offset, length);
            let bytes = offset as usize..(offset + length) as usize;
            if lock {
                let free = owner[bytes.clone()].iter().all(Option::is_none);
                let got = r.lock(OpenId(who), range, Mode::Exclusive);
                prop_assert_eq!(got.is_ok(), free);
                if free { owner[bytes].fill(Some(who)); }
            } else if r.unlock(OpenId(who), range).is_ok() {
                prop_assert!(owner[bytes.clone()].iter().all(|o| *o == Some(who)));
                owner[bytes].fill(None);
            }
        }
    }
}

/// Tests that a ticket whose end was read, and that is given up after all other locks and waits have gone,
/// is not the ticket of a later request.
#[test]
fn a_ticket_is_no_other_requests_until_it_is_given_up() {
    let c = OpenId(3);
    for is_granted in [true, false] {
        let mut r = ByteRanges::default();
        r.lock(A, range(0, 1), Mode::Exclusive).unwrap();
        let old = r.lock_or_wait(B, range(0, 1), Mode::Exclusive).unwrap().unwrap();
        if is_granted {
            r.unlock(A, range(0, 1)).unwrap();
            assert_eq!(poll(&mut r, old), Poll::Ready(Ok(())));
            r.release(B);
        } else {
            r.release(B);
            r.release(A);
            assert_eq!(poll(&mut r, old), Poll::Ready(Err(Status::RANGE_NOT_LOCKED)));
        }
        assert_eq!(poll(&mut r, old), Poll::Ready(Err(Status::CANCELLED)), "it was read");
        r.lock(A, range(0, 1), Mode::Exclusive).unwrap();
        let new = r.lock_or_wait(c, range(0, 1), Mode::Exclusive).unwrap().unwrap();
        r.give_up(old);
        r.unlock(A, range(0, 1)).unwrap();
        assert_eq!(poll(&mut r, new), Poll::Ready(Ok(())));
        r.give_up(new);
        assert_eq!((r.held_by(c), r.waiting_count()), (1, 0), "a lock that was read stays");
        r.release(c);
        assert!(r.state.is_none());
    }
}
