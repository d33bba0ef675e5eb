//! The table of all causes and holders, and rules that follow from it.

use std::fmt::Write;
use std::string::String;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Wake;

use super::*;

const ROUTE: Route = Route { session: 1, persistent: 2, sealed: false };
const FREE: Room = Room {
    is_shared: false,
    is_locked: false,
    is_going: false,
    is_directory: false,
    awaited: NONE,
};
const SHARED: Room = Room { is_shared: true, ..FREE };

fn owner(key: u8) -> LeaseOwner {
    LeaseOwner { client: Guid([9; 16]), key: LeaseKey([key; 16]) }
}

fn actor(open: u64, lease: Option<u8>) -> Actor {
    Actor { open: OpenId(open), lease: lease.map(owner) }
}

fn wish(key: u8, state: LeaseState) -> Wish {
    let v2 = Some(V2 { epoch: 0, parent: None });
    Wish::Lease(LeaseWish { owner: owner(key), state, v2 })
}

fn letters(state: LeaseState) -> String {
    let all = [(R, 'R'), (W, 'W'), (H, 'H')];
    let text: String = all.iter().filter(|(bit, _)| state.contains(*bit)).map(|b| b.1).collect();
    if text.is_empty() { String::from("-") } else { text }
}

fn state(granted: Granted) -> String {
    match granted {
        Granted::Nothing => String::from("nothing"),
        Granted::Oplock(OplockLevel::II) => String::from("II"),
        Granted::Oplock(OplockLevel::EXCLUSIVE) => String::from("exclusive"),
        Granted::Oplock(OplockLevel::BATCH) => String::from("batch"),
        Granted::Oplock(_) => String::from("none"),
        Granted::Lease { state, .. } => letters(state),
    }
}

/// Tests that nobody gets or keeps level II on a file whose oplocks are exclusive or none.
#[test]
fn without_level_two_an_oplock_is_exclusive_or_nothing() {
    let mut oplocks = Oplocks::default();
    oplocks.forbid_level_two();
    let batch = Wish::Oplock(OplockLevel::BATCH);
    let got = oplocks.request(OpenId(1), ROUTE, batch, FREE);
    assert_eq!(got, Granted::Oplock(OplockLevel::BATCH));
    let reads = Cause::Open(AccessMask::READ_DATA);
    let contention = oplocks.contend(actor(2, None), reads);
    assert_eq!(contention.breaks.iter().map(|b| b.to).collect::<Vec<_>>(), [NONE]);
    assert!(contention.waits());
    oplocks.acknowledge(Owner::Open(OpenId(1)), NONE).unwrap();
    let level_two = Wish::Oplock(OplockLevel::II);
    for wish in [batch, level_two] {
        assert_eq!(oplocks.request(OpenId(2), ROUTE, wish, SHARED), Granted::Nothing);
    }
    let lease = oplocks.request(OpenId(3), ROUTE, wish(1, R), SHARED);
    assert_eq!(state(lease), "R", "a lease is another matter");
}

/// Tests each cause against each holder: the state after the break, whether it needs an
/// acknowledgment (!), and whether the cause waits for it (w).
#[test]
fn the_table() {
    let stat = AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
    let causes = [
        ("stat", Cause::Open(stat)),
        ("control", Cause::Open(stat | AccessMask::READ_CONTROL)),
        ("open", Cause::Open(AccessMask::READ_DATA)),
        ("overwrite", Cause::Overwrite),
        ("violation", Cause::Violation { overwrites: false }),
        ("violation+", Cause::Violation { overwrites: true }),
        ("write", Cause::Write),
        ("rename", Cause::Rename),
        ("delete", Cause::Delete),
        ("entry", Cause::Entry),
    ];
    let holders = [
        ("II", Wish::Oplock(OplockLevel::II)),
        ("exclusive", Wish::Oplock(OplockLevel::EXCLUSIVE)),
        ("batch", Wish::Oplock(OplockLevel::BATCH)),
        ("R", wish(1, R)),
        ("RH", wish(1, R | H)),
        ("RW", wish(1, R | W)),
        ("RWH", wish(1, ALL)),
    ];
    let mut table = String::from("\n");
    for (name, cause) in causes {
        write!(table, "{name:<11}").unwrap();
        for (held, wish) in holders {
            let mut oplocks = Oplocks::default();
            let got = oplocks.request(OpenId(1), ROUTE, wish, FREE);
            assert_eq!(state(got), held);
            let contention = oplocks.contend(actor(2, Some(2)), cause);
            let broken = match contention.breaks.as_slice() {
                [] => String::from("."),
                [broken] => {
                    let ack = if broken.number.is_some() { "!" } else { "" };
                    std::format!("{}{ack}", letters(broken.to))
                }
                more => panic!("{more:?}"),
            };
            let waits = if contention.waits() { "w" } else { "" };
            write!(table, "{:<7}", std::format!("{broken}{waits}")).unwrap();
            // An Open's own action breaks its own oplock only if the oplock has level II and the
            // action is a write.
            let mut own = Oplocks::default();
            own.request(OpenId(1), ROUTE, wish, FREE);
            let contention = own.contend(actor(1, Some(1)), cause);
            let breaks = usize::from(held == "II" && cause == Cause::Write);
            assert_eq!((contention.breaks.len(), contention.waits()), (breaks, false), "{name}");
        }
        table.truncate(table.trim_end().len());
        table.push('\n');
    }
    let expected = "
stat       .      .      .      .      .      .      .
control    .      R!w    R!w    .      .      .      .
open       .      R!w    R!w    .      .      R!w    RH!w
overwrite  -      -!w    -!w    -      -!     -!w    -!w
violation  .      .      R!w    .      R!w    .      RW!w
violation+ .      .      -!w    .      R!w    .      RW!w
write      -      -!w    -!w    -      -!     -!w    -!w
rename     .      .      -!w    .      R!w    .      RW!w
delete     .      .      .      .      R!w    .      RW!w
entry      -      -!     -!     -      -!     -!     -!
";
    assert_eq!(table, expected, "{table}");
}

/// Tests which wish is granted beside which holder.
#[test]
fn grants() {
    let beside = [
        ("nothing", None),
        ("II", Some(Wish::Oplock(OplockLevel::II))),
        ("R", Some(wish(1, R))),
        ("RH", Some(wish(1, R | H))),
        ("RWH", Some(wish(1, ALL))),
    ];
    let wishes = [
        Wish::Oplock(OplockLevel::II),
        Wish::Oplock(OplockLevel::EXCLUSIVE),
        Wish::Oplock(OplockLevel::BATCH),
        wish(2, R),
        wish(2, R | H),
        wish(2, R | W),
        wish(2, ALL),
        wish(2, H),
        wish(2, W | H),
    ];
    let mut table = String::from("\n");
    for (name, first) in beside {
        write!(table, "{name:<8}").unwrap();
        for wanted in wishes {
            let mut oplocks = Oplocks::default();
            if let Some(first) = first {
                oplocks.request(OpenId(1), ROUTE, first, FREE);
            }
            let room = if first.is_some() { SHARED } else { FREE };
            let got = oplocks.request(OpenId(2), ROUTE, wanted, room);
            write!(table, "{:<10}", state(got)).unwrap();
        }
        table.truncate(table.trim_end().len());
        table.push('\n');
    }
    let expected = "
nothing II        exclusive batch     R         RH        RW        RWH       -         -
II      II        II        II        R         R         R         R         -         -
R       II        II        II        R         RH        R         RH        -         -
RH      nothing   nothing   nothing   R         RH        R         RH        -         -
RWH     nothing   nothing   nothing   -         -         -         -         -         -
";
    assert_eq!(table, expected, "{table}");
    let mut oplocks = Oplocks::default();
    let locked = Room { is_locked: true, ..FREE };
    assert_eq!(state(oplocks.request(OpenId(1), ROUTE, wish(1, R | H), locked)), "-");
    assert_eq!(state(oplocks.request(OpenId(2), ROUTE, wish(2, ALL), locked)), "RWH");
    let directory = Room { is_directory: true, ..FREE };
    let mut oplocks = Oplocks::default();
    assert_eq!(state(oplocks.request(OpenId(1), ROUTE, wish(1, ALL), directory)), "RH");
    let batch = Wish::Oplock(OplockLevel::BATCH);
    assert_eq!(state(oplocks.request(OpenId(2), ROUTE, batch, directory)), "nothing");
}

#[test]
fn a_lease_grows_or_stays() {
    let mut oplocks = Oplocks::default();
    let epoch = |granted| match granted {
        Granted::Lease { v2: Some(v2), state, .. } => (letters(state), v2.epoch),
        other => panic!("{other:?}"),
    };
    let mut ask =
        |open, state, room| epoch(oplocks.request(OpenId(open), ROUTE, wish(1, state), room));
    assert_eq!(ask(1, R, FREE), (String::from("R"), 1));
    assert_eq!(ask(2, R | H, FREE), (String::from("RH"), 2));
    assert_eq!(ask(3, R | W, FREE), (String::from("RH"), 2), "no superset");
    assert_eq!(ask(4, ALL, SHARED), (String::from("RH"), 2), "not to be had");
    assert_eq!(ask(5, ALL, FREE), (String::from("RWH"), 3));
    assert_eq!(ask(6, R, FREE), (String::from("RWH"), 3));
}

/// Tests that breaks go one at a time: a break that becomes necessary meanwhile follows in a later
/// step.
#[test]
fn breaks_go_on_in_steps() {
    let mut oplocks = Oplocks::default();
    oplocks.request(OpenId(1), ROUTE, wish(1, ALL), FREE);
    let him = Owner::Lease(owner(1));
    let opened = Cause::Open(AccessMask::READ_DATA);
    let first = oplocks.contend(actor(2, None), opened);
    assert_eq!(first.breaks[0].to, R | H);
    assert!(oplocks.contend(actor(3, None), Cause::Overwrite).breaks.is_empty());
    assert_eq!(oplocks.acknowledge(him, ALL), Err(Status::REQUEST_NOT_ACCEPTED));
    let other = Owner::Lease(owner(2));
    assert_eq!(oplocks.acknowledge(other, R), Err(Status::OBJECT_NAME_NOT_FOUND));
    let second = oplocks.acknowledge(him, R | H).unwrap().next.unwrap();
    assert_eq!((second.from, second.to, second.epoch), (R | H, R, first.breaks[0].epoch));
    assert!(oplocks.would_wait(actor(2, None)), "the first one waits on");
    let third = oplocks.acknowledge(him, R).unwrap().next.unwrap();
    assert_eq!((third.from, third.to, third.number), (R, NONE, None));
    assert!(!oplocks.would_wait(actor(3, None)));
    assert_eq!(oplocks.acknowledge(him, NONE), Err(Status::UNSUCCESSFUL));
}

/// Tests a wait whose lease is granted anew between the end of the break and the next look. Nobody
/// was told of a break of the new grant, so the wait must end.
#[test]
fn a_waiter_checks_all_leases_again_after_a_break() {
    let mut oplocks = Oplocks::default();
    oplocks.request(OpenId(1), ROUTE, wish(1, R | H), FREE);
    let him = Owner::Lease(owner(1));
    let deletes = || actor(2, None);
    assert_eq!(oplocks.contend(deletes(), Cause::Delete).breaks[0].to, R);
    assert!(oplocks.would_wait(deletes()));
    oplocks.acknowledge(him, R).unwrap();
    oplocks.request(OpenId(3), ROUTE, wish(1, R | H), FREE);
    assert!(!oplocks.would_wait(deletes()));
    let again = oplocks.contend(deletes(), Cause::Delete);
    assert_eq!((again.breaks[0].from, again.breaks[0].to, again.waits()), (R | H, R, true));
}

#[test]
fn a_break_expires_by_its_number_alone() {
    let mut oplocks = Oplocks::default();
    let batch = Wish::Oplock(OplockLevel::BATCH);
    oplocks.request(OpenId(1), ROUTE, batch, FREE);
    let him = Owner::Open(OpenId(1));
    let opened = Cause::Open(AccessMask::READ_DATA);
    let broken = oplocks.contend(actor(2, None), opened).breaks.remove(0);
    let number = broken.number.unwrap();
    oplocks.expire(him, number.wrapping_add(1));
    assert!(oplocks.is_breaking(him, number));
    oplocks.expire(him, number);
    assert!(!oplocks.would_wait(actor(2, None)));
    assert!(oplocks.is_empty(), "an oplock that is broken to nothing is no more");
    // Two Opens share the lease, so it stays when the first one closes and ends with the last one.
    oplocks.request(OpenId(3), ROUTE, wish(1, ALL), FREE);
    oplocks.request(OpenId(4), ROUTE, wish(1, ALL), FREE);
    let broken = oplocks.contend(actor(2, None), opened).breaks.remove(0);
    assert_eq!(broken.routes.len(), 2);
    oplocks.leave(OpenId(3), Some(owner(1)));
    assert!(oplocks.would_wait(actor(2, None)));
    oplocks.leave(OpenId(4), Some(owner(1)));
    assert!(!oplocks.would_wait(actor(2, None)) && oplocks.is_empty());
}

/// Tests that nobody is granted what a request waits for, while other rights are granted as ever.
#[test]
fn what_others_wait_for_is_not_granted() {
    let batch = Wish::Oplock(OplockLevel::BATCH);
    for (awaited, lease, oplock) in [
        (NONE, ALL, Granted::Oplock(OplockLevel::BATCH)),
        (W, R | H, Granted::Oplock(OplockLevel::II)),
        (H, R | W, Granted::Oplock(OplockLevel::EXCLUSIVE)),
        (W | H, R, Granted::Oplock(OplockLevel::II)),
    ] {
        let mut oplocks = Oplocks::default();
        let room = Room { awaited, ..FREE };
        let got = oplocks.request(OpenId(1), ROUTE, wish(1, ALL), room);
        assert_eq!(state(got), letters(lease), "{awaited:?}");
        oplocks.leave(OpenId(1), Some(owner(1)));
        assert_eq!(oplocks.request(OpenId(2), ROUTE, batch, room), oplock, "{awaited:?}");
        oplocks.leave(OpenId(2), None);
    }
}

/// Tests that an actor whose patience ends takes what others were told to give back, and nothing of
/// its own lease.
#[test]
fn an_actor_ends_the_breaks_that_it_waits_for() {
    let mut oplocks = Oplocks::default();
    oplocks.request(OpenId(1), ROUTE, wish(1, ALL), FREE);
    let opened = Cause::Open(AccessMask::READ_DATA);
    assert_eq!(oplocks.contend(actor(2, Some(2)), opened).awaited, W);
    assert_eq!(oplocks.expire_for(actor(3, Some(1))), []);
    assert_eq!(oplocks.expire_for(actor(2, Some(2))), [Owner::Lease(owner(1))]);
    assert!(!oplocks.would_wait(actor(2, Some(2))));
    assert_eq!(state(oplocks.held(OpenId(1), Some(owner(1)))), "-");
    assert!(oplocks.expire_for(actor(2, Some(2))).is_empty());
}

/// Tests that a file has one timer for all of its breaks, which ends those whose time is over, and ends
/// itself when no break is left.
#[test]
fn one_timer_serves_all_breaks_of_a_file() {
    let (now, later) = (Duration::from_secs(1), Duration::from_secs(2));
    let count = u8::try_from(3 * crate::limits::INDEXED_FROM).unwrap();
    let mut oplocks = Oplocks::default();
    let mut told = 0;
    for key in 0..count {
        oplocks.request(OpenId(key.into()), ROUTE, wish(key, R | H), FREE);
        let contention = oplocks.contend(actor(1_000, None), Cause::Delete);
        assert_eq!(contention.breaks.len(), 1, "the others have been told");
        let end = if key % 2 == 0 { now } else { later };
        told += u32::from(oplocks.tell_until(end));
        assert!(!oplocks.tell_until(later), "nobody is left to be told");
    }
    assert_eq!(told, 1, "the caller begins one timer");
    assert_eq!(oplocks.expire_by(Duration::ZERO), Overdue { owners: Vec::new(), next: Some(now) });
    let overdue = oplocks.expire_by(now);
    let even = (0..count).filter(|key| key % 2 == 0).map(|key| Owner::Lease(owner(key)));
    assert_eq!(overdue, Overdue { owners: even.collect(), next: Some(later) });
    let woken = Arc::new(Woken::default());
    let waker = Waker::from(Arc::clone(&woken));
    assert!(!oplocks.has_no_break(&waker));
    for key in (0..count).rev().filter(|key| key % 2 == 1) {
        assert!(!woken.is_called(), "lease {key} has not answered");
        assert_eq!(oplocks.acknowledge(Owner::Lease(owner(key)), R).unwrap().next, None);
    }
    assert!(woken.is_called() && oplocks.has_no_break(&waker));
    assert_eq!(oplocks.expire_by(later), Overdue::default());
    // The timer has ended, so the next break needs another one.
    oplocks.request(OpenId(0), ROUTE, wish(0, R | H), FREE);
    assert_eq!(oplocks.contend(actor(1_000, None), Cause::Delete).breaks.len(), 1);
    assert!(oplocks.tell_until(later));
    assert!(!oplocks.has_no_break(&waker));
    oplocks.leave(OpenId(0), Some(owner(0)));
    assert!(woken.is_called(), "the Open that was asked has closed");
}

/// Counts the calls of a waker.
#[derive(Default)]
struct Woken(AtomicUsize);

impl Woken {
    /// True if it was called since the last question.
    fn is_called(&self) -> bool {
        self.0.swap(0, Ordering::Relaxed) > 0
    }
}

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}
