use super::tab::Tab;
use super::*;
use crate::base::limits::TAB_STEP_BYTES;
use std::net::Ipv4Addr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

fn most(kind: Kind) -> (usize, usize) {
    let (_, account, network) = LIMITS[kind as usize];
    (account, network)
}

#[test]
fn accounts_are_one_whatever_their_case_and_forgotten_when_nothing_is_charged() {
    let ledger = Ledger::default();
    let ann = ledger.account("Ann");
    assert!(Arc::ptr_eq(&ann, &ledger.account("aNN")));
    assert!(!Arc::ptr_eq(&ann, &ledger.account("bob")));
    let charge = ann.charge(Kind::Open, 10).unwrap();
    drop(ann);
    assert_eq!(ledger.account("ann").count(Kind::Open), 1, "a charge keeps its holder");
    assert_eq!(ledger.holders().len(), 1);
    drop(charge);
    assert!(ledger.holders().is_empty());
    assert_eq!(ledger.0.holders.lock().len(), 0);
}

#[test]
fn a_network_is_no_account() {
    let ledger = Ledger::default();
    let one = ledger.network("192.0.2.1".parse().unwrap());
    assert!(Arc::ptr_eq(&one, &ledger.network("::ffff:192.0.2.1".parse().unwrap())));
    assert!(!Arc::ptr_eq(&one, &ledger.network("192.0.2.2".parse().unwrap())));
    assert!(!Arc::ptr_eq(&one, &ledger.account("192.0.2.1")));
}

#[test]
fn counts_and_bytes_are_of_the_holder_and_of_all() {
    let ledger = Ledger::default();
    let (ann, bob) = (ledger.account("ann"), ledger.account("bob"));
    let one = ann.charge(Kind::Open, 100).unwrap();
    let mut two = bob.charge(Kind::Open, 1_000).unwrap();
    let three = bob.charge(Kind::Listing, 10_000).unwrap();
    assert_eq!((ann.count(Kind::Open), ann.bytes()), (1, 100));
    assert_eq!((bob.count(Kind::Open), bob.bytes()), (1, 11_000));
    assert_eq!((ledger.count(Kind::Open), ledger.bytes()), (2, 11_100));
    two.resize(2_000).unwrap();
    assert_eq!(bob.bytes(), 12_000);
    two.resize(0).unwrap();
    assert_eq!(bob.bytes(), 10_000);
    drop((one, two, three));
    assert_eq!((ledger.count(Kind::Open), ledger.count(Kind::Listing), ledger.bytes()), (0, 0, 0));
}

#[test]
fn every_kind_has_a_cap_for_each_holder() {
    let ledger = Ledger::default();
    for kind in Kind::ALL {
        let (per_account, per_network) = most(kind);
        for (holder, most) in [
            (ledger.account("ann"), per_account),
            (ledger.network("192.0.2.1".parse().unwrap()), per_network),
        ] {
            if most > 1 << 20 {
                continue;
            }
            let mut held: Vec<_> = (0..most).map(|_| holder.charge(kind, 0).unwrap()).collect();
            assert_eq!(holder.charge(kind, 0).unwrap_err(), Status::INSUFFICIENT_RESOURCES);
            assert_eq!(holder.count(kind), most, "a refusal leaves nothing behind");
            // For some kinds a network may hold no object at all.
            if held.pop().is_some() {
                held.push(holder.charge(kind, 0).unwrap());
            }
            // Captures are those of the host, so an account may hold none.
            let other = match per_account {
                0 => ledger.network("198.51.100.1".parse().unwrap()),
                _ => ledger.account("bob"),
            };
            let other = other.charge(kind, 0);
            assert!(other.is_ok(), "{kind:?}: another holder has its own");
        }
        assert_eq!(ledger.count(kind), 0);
    }
}

#[test]
fn one_holder_keeps_half_the_budget_and_all_three_quarters() {
    const LIMIT: usize = 64 << 10;
    let ledger = Ledger::default();
    ledger.set_limit(LIMIT);
    let (ann, bob, eve) = (ledger.account("ann"), ledger.account("bob"), ledger.account("eve"));
    let mut charge = ann.charge(Kind::Listing, LIMIT / 2).unwrap();
    assert_eq!(charge.resize(LIMIT / 2 + 1), Err(Status::INSUFFICIENT_RESOURCES));
    assert_eq!((charge.bytes(), ann.bytes()), (LIMIT / 2, LIMIT / 2));
    assert!(ann.charge(Kind::Open, 1).is_err());
    let other = bob.charge(Kind::Listing, LIMIT / 4).unwrap();
    assert!(bob.charge(Kind::Open, 1).is_err());
    assert_eq!((ledger.count(Kind::Open), ledger.bytes()), (0, LIMIT / 4 * 3));
    // While a large holder is refused, a holder with little memory may still use the last quarter.
    let small = eve.charge(Kind::Open, LIMIT / 64).unwrap();
    assert!(eve.charge(Kind::Open, 1).is_err());
    // A charge for a buffer is never refused. Instead, full memory slows the client down.
    let frame = ann.charge(Kind::Frame, LIMIT).unwrap();
    assert_eq!(ledger.fullness(), Fullness::Full);
    drop((charge, other, small, frame));
    assert_eq!(ledger.bytes(), 0);
    assert_eq!(ledger.fullness(), Fullness::Ample);
}

#[test]
fn a_cache_is_counted_and_goes_first() {
    const LIMIT: usize = 64 << 10;
    static BYTES: AtomicUsize = AtomicUsize::new(0);
    let ledger = Ledger::default();
    ledger.set_limit(LIMIT);
    let cache = Cache {
        bytes: || BYTES.load(Ordering::Relaxed),
        forget: || BYTES.store(0, Ordering::Relaxed),
        watched: || 0,
    };
    ledger.set_cache(cache);
    let frame = ledger.account("ann").charge(Kind::Frame, LIMIT / 2 - 1).unwrap();
    assert_eq!(ledger.fullness(), Fullness::Ample);
    BYTES.store(1, Ordering::Relaxed);
    assert_eq!((ledger.fullness(), ledger.cached_bytes()), (Fullness::Scarce, 1));
    BYTES.store(LIMIT, Ordering::Relaxed);
    assert!(ledger.is_overdrawn() && !ledger.has_room_for_newcomers());
    assert_eq!(ledger.fullness(), Fullness::Full);
    assert_eq!(ledger.relieve(), Fullness::Ample);
    assert_eq!((ledger.cached_bytes(), ledger.bytes()), (0, LIMIT / 2 - 1));
    drop(frame);
}

/// Directories that are watched for an account are a part of what it may keep, and are not given up.
#[test]
fn watched_directories_are_of_their_account() {
    const LIMIT: usize = 64 << 10;
    static WATCHED: AtomicUsize = AtomicUsize::new(0);
    let ledger = Ledger::default();
    ledger.set_limit(LIMIT);
    let watched = || WATCHED.load(Ordering::Relaxed);
    ledger.set_cache(Cache { bytes: || 0, forget: || panic!("nothing is remembered"), watched });
    let (ann, bob) = (ledger.account("ann"), ledger.account("bob"));
    let paths = ann.host_places.take_bytes(LIMIT / 4, 0, LIMIT).unwrap();
    WATCHED.store(LIMIT / 4, Ordering::Relaxed);
    assert_eq!((ann.bytes(), bob.bytes(), ledger.bytes()), (LIMIT / 4, 0, 0));
    assert!(ann.charge(Kind::Open, LIMIT / 4 + 1).is_err(), "half of the memory");
    let open = ann.charge(Kind::Open, LIMIT / 4).unwrap();
    assert_eq!(ledger.relieve(), Fullness::Scarce);
    assert!(bob.charge(Kind::Open, LIMIT / 4 + 1).is_err(), "three quarters for all");
    let _of_bob = bob.charge(Kind::Open, LIMIT / 4).unwrap();
    drop((paths, open));
    WATCHED.store(0, Ordering::Relaxed);
    assert_eq!((ann.bytes(), ledger.fullness()), (0, Fullness::Ample));
}

/// Directories that are watched for accounts do not use up the eighth that is for newcomers.
#[test]
fn watched_directories_leave_room_for_newcomers() {
    const LIMIT: usize = 8 << 20;
    let ledger = Ledger::default();
    ledger.set_limit(LIMIT);
    ledger.set_cache(Cache { bytes: || 0, forget: || (), watched: || LIMIT / 8 });
    let (ann, network) = (ledger.account("ann"), ledger.network(Ipv4Addr::LOCALHOST.into()));
    let _of_ann = ann.charge(Kind::Frame, LIMIT).unwrap();
    assert!(ledger.is_overdrawn() && ledger.has_room_for_newcomers());
    let _of_newcomers = network.charge(Kind::Frame, LIMIT / 8).unwrap();
    assert!(!ledger.has_room_for_newcomers());
}

#[test]
fn a_tab_charges_in_steps_and_gives_all_back() {
    let ledger = Ledger::default();
    let ann = ledger.account("ann");
    let tab = Tab::new(Arc::clone(&ann), Kind::Frame);
    assert!(!tab.set(TAB_STEP_BYTES - 1));
    assert_eq!((tab.bytes(), ann.bytes()), (TAB_STEP_BYTES - 1, 0));
    assert!(tab.set(TAB_STEP_BYTES));
    assert_eq!(ann.bytes(), TAB_STEP_BYTES);
    let _ = tab.set(2 * TAB_STEP_BYTES - 1);
    assert_eq!(ann.bytes(), TAB_STEP_BYTES);
    let _ = tab.set(5 * TAB_STEP_BYTES);
    assert_eq!(ledger.bytes(), 5 * TAB_STEP_BYTES);
    let _ = tab.set(0);
    assert_eq!(ledger.bytes(), 0);
    let _ = tab.set(TAB_STEP_BYTES);
    drop(tab);
    assert_eq!(ledger.bytes(), 0);
}

#[test]
fn holders_of_many_threads_meet() {
    let ledger = Ledger::default();
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..10_000 {
                    let ann = ledger.account("ann");
                    let charge = ann.charge(Kind::Open, 3).unwrap();
                    assert!(ledger.account("ann").count(Kind::Open) >= 1);
                    drop((ann, charge));
                }
            });
        }
    });
    assert_eq!((ledger.bytes(), ledger.count(Kind::Open)), (0, 0));
    assert!(ledger.holders().is_empty());
}

#[test]
fn a_connection_moves_to_its_account_with_all_it_has() {
    let ledger = Ledger::default();
    let (network, ann) = (ledger.network("192.0.2.1".parse().unwrap()), ledger.account("ann"));
    let (handle, _notices) = crate::objects::notice::notices();
    let tabs = Tabs::new(1, Some(handle), Arc::clone(&network), Arc::default());
    tabs.set(TAB_STEP_BYTES, 2 * TAB_STEP_BYTES);
    assert_eq!((network.bytes(), ann.bytes()), (3 * TAB_STEP_BYTES, 0));
    tabs.move_to(&ann);
    tabs.move_to(&ann);
    assert_eq!((network.bytes(), ann.bytes()), (0, 3 * TAB_STEP_BYTES));
    assert_eq!((network.members.lock().len(), ann.members.lock().len()), (0, 1));
    drop(tabs);
    assert_eq!((ledger.bytes(), ann.members.lock().len()), (0, 0));
}

/// Full for less than the patience: nobody loses. After it the biggest holder does, first
/// what waits, then connections, the biggest first.
#[tokio::test(start_paused = true)]
async fn the_biggest_holder_loses_step_by_step() {
    const LIMIT: usize = 10 << 20;
    let ledger = Ledger::default();
    ledger.set_limit(LIMIT);
    let (ann, bob) = (ledger.account("ann"), ledger.account("bob"));
    let connection = |id, holder: &Arc<Holder>| {
        let (handle, notices) = crate::objects::notice::notices();
        (Tabs::new(id, Some(handle), Arc::clone(holder), Arc::default()), notices)
    };
    let (small, small_notices) = connection(1, &ann);
    let (large, large_notices) = connection(2, &ann);
    let (other, other_notices) = connection(3, &bob);
    small.set(1 << 20, 0);
    large.set(0, 7 << 20);
    other.set(2 << 20, 0);
    let waiting = ann.charge(Kind::Waiting, 1_000).unwrap();
    assert_eq!(ledger.relieve(), Fullness::Full);
    tokio::time::advance(RELIEF_PATIENCE / 2).await;
    ledger.relieve();
    assert!(large_notices.try_next().is_none());
    // There was free memory for a moment, so the server waits for RELIEF_PATIENCE again before it
    // ends connections.
    other.set(0, 0);
    assert_ne!(ledger.relieve(), Fullness::Full);
    other.set(2 << 20, 0);
    ledger.relieve();
    tokio::time::advance(RELIEF_PATIENCE - Duration::from_millis(1)).await;
    ledger.relieve();
    assert!(large_notices.try_next().is_none());
    tokio::time::advance(Duration::from_millis(1)).await;
    ledger.relieve();
    assert!(matches!(large_notices.try_next(), Some(Notice::GiveUpWaiting)));
    assert!(matches!(small_notices.try_next(), Some(Notice::GiveUpWaiting)));
    drop(waiting);
    ledger.relieve();
    assert!(large_notices.try_next().is_none(), "not twice in a row");
    tokio::time::advance(RELIEF_PAUSE).await;
    ledger.relieve();
    assert!(matches!(large_notices.try_next(), Some(Notice::Disconnect(_))));
    assert!(small_notices.try_next().is_none());
    drop(large);
    assert_ne!(ledger.relieve(), Fullness::Full);
    assert!(other_notices.try_next().is_none());
    drop((small, other));
    assert_eq!(ledger.bytes(), 0);
}

#[test]
fn an_eighth_beyond_the_limit_is_for_newcomers() {
    const LIMIT: usize = 8 << 20;
    let ledger = Ledger::default();
    ledger.set_limit(LIMIT);
    let (ann, network) = (ledger.account("ann"), ledger.network(Ipv4Addr::LOCALHOST.into()));
    // However much accounts use, the eighth that is reserved for newcomers stays free.
    for bytes in [LIMIT / 8 * 9, LIMIT * 9] {
        let ann = ann.charge(Kind::Frame, bytes).unwrap();
        assert!(ledger.has_room_for_newcomers(), "{bytes}");
        // Only newcomers can use up the eighth that is reserved for them.
        for (bytes, has_room) in [(LIMIT / 8 - 1, true), (LIMIT / 8, false), (LIMIT / 8 + 1, false)]
        {
            let newcomers = network.charge(Kind::Frame, bytes).unwrap();
            assert_eq!(ledger.has_room_for_newcomers(), has_room, "{bytes}");
            drop(newcomers);
        }
        drop(ann);
    }
    for (bytes, is_overdrawn) in [(LIMIT, false), (LIMIT / 8 * 9 - 1, false), (LIMIT / 8 * 9, true)]
    {
        let charge = ann.charge(Kind::Frame, bytes).unwrap();
        assert_eq!(ledger.fullness(), Fullness::Full);
        assert_eq!(ledger.is_overdrawn(), is_overdrawn, "{bytes}");
        drop(charge);
    }
}

/// At n and n + 1 replies of an account, and of another one that has little.
#[tokio::test(start_paused = true)]
async fn replies_of_one_account_leave_the_last_quarter_to_others() {
    const REPLY: usize = 8 << 20;
    const LIMIT: usize = 32 * REPLY;
    let ledger = Ledger::default();
    ledger.set_limit(LIMIT);
    let (ann, bob) = (ledger.account("ann"), ledger.account("bob"));
    let mut of_ann: Vec<_> =
        (0..24).map(|_| ann.try_build(&Arc::default(), REPLY).unwrap()).collect();
    assert!(ann.try_build(&Arc::default(), REPLY).is_none());
    assert_eq!(ann.bytes(), 24 * REPLY, "a refusal leaves nothing behind");
    let of_bob: Vec<_> = (0..8).map(|_| bob.try_build(&Arc::default(), REPLY).unwrap()).collect();
    assert!(bob.try_build(&Arc::default(), REPLY).is_none());
    // The waiting replies get their memory in order, and later replies do not overtake them.
    let order = Arc::new(Mutex::new(Vec::new()));
    let waiting: Vec<_> = (0..3)
        .map(|number| {
            let (ann, order) = (Arc::clone(&ann), Arc::clone(&order));
            tokio::spawn(async move {
                let built = ann.build(&Arc::default(), REPLY).await;
                order.lock().push(number);
                built
            })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(order.lock().is_empty());
    drop(of_bob);
    assert!(ann.try_build(&Arc::default(), REPLY).is_none(), "others are in line");
    of_ann.truncate(21);
    for one in waiting {
        of_ann.push(one.await.unwrap());
    }
    assert_eq!(*order.lock(), [0, 1, 2]);
    assert_eq!(ledger.bytes(), 24 * REPLY);
    // When a waiting reply gives up, the next one in line takes its turn.
    let backlog = Arc::default();
    let soon = tokio::time::timeout(Duration::from_secs(1), ann.build(&backlog, REPLY));
    assert!(soon.await.is_err());
    of_ann.pop();
    of_ann.push(ann.build(&Arc::default(), REPLY).await);
    drop(of_ann);
    assert_eq!(ledger.bytes(), 0);
}

/// An account has one large reply that is sent and one that is built, however little memory there is.
#[tokio::test(start_paused = true)]
async fn a_reply_is_built_where_memory_is_small_too() {
    use crate::base::limits::PASSING_BYTES_MIN;
    let ledger = Ledger::default();
    ledger.set_limit(PASSING_BYTES_MIN);
    let ann = ledger.account("ann");
    let first = ann.build(&Arc::default(), PASSING_BYTES_MIN / 2).await;
    let second = ann.build(&Arc::default(), PASSING_BYTES_MIN / 2).await;
    assert!(ann.try_build(&Arc::default(), 1).is_none());
    drop((first, second));
    assert!(ann.try_build(&Arc::default(), 1).is_some());
}

/// Tests that a connection whose client takes nothing has its part of the memory, and that others of its
/// account do not wait for it; and that it goes on when the client has taken answers.
#[tokio::test(start_paused = true)]
async fn a_connection_has_its_part_of_its_account() {
    use crate::base::limits::{MEMORY_CONNECTION_PART, PASSING_BYTES_MIN};
    const REPLY: usize = PASSING_BYTES_MIN / 2;
    const PART: usize = 2 * PASSING_BYTES_MIN;
    let ledger = Ledger::default();
    ledger.set_limit(PART * MEMORY_CONNECTION_PART);
    let ann = ledger.account("ann");
    let (stuck, other) = (Arc::<Backlog>::default(), Arc::<Backlog>::default());
    let tabs = Tabs::new(1, None, Arc::clone(&ann), Arc::clone(&stuck));
    tabs.set(0, PART - REPLY);
    let last = ann.try_build(&stuck, REPLY).unwrap();
    assert!(ann.try_build(&stuck, 1).is_none());
    let waits: Vec<_> = (0..2)
        .map(|_| {
            let (ann, stuck) = (Arc::clone(&ann), Arc::clone(&stuck));
            tokio::spawn(async move { ann.build(&stuck, REPLY).await })
        })
        .collect();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let soon = tokio::time::timeout(Duration::from_secs(1), ann.build(&other, 2 * REPLY));
    drop(soon.await.expect("another connection waits for nothing"));
    assert!(waits.iter().all(|wait| !wait.is_finished()));
    drop(last);
    tabs.set(0, 0);
    let mut built = Vec::new();
    for wait in waits {
        built.push(wait.await.unwrap());
    }
    // An account that holds more than its part gets only a small amount for each connection.
    let much = ann.charge(Kind::Reply, PART * MEMORY_CONNECTION_PART / 4).unwrap();
    assert!(ann.try_build(&stuck, REPLY).is_none());
    assert!(ann.try_build(&other, REPLY).is_some());
    built.clear();
    assert!(ann.try_build(&stuck, 2 * REPLY).is_some());
    drop((much, tabs));
    // A reply that is larger than the part of a connection is built by itself.
    assert!(ann.try_build(&stuck, PART + 1).is_some());
    assert_eq!(ledger.bytes(), 0);
}

/// Tests that a reply waits no longer for the client of a connection that has ended.
#[tokio::test(start_paused = true)]
async fn a_connection_that_has_ended_keeps_no_reply_waiting() {
    use crate::base::limits::PASSING_BYTES_MIN;
    let ledger = Ledger::default();
    ledger.set_limit(256 << 20);
    let (ann, backlog) = (ledger.account("ann"), Arc::<Backlog>::default());
    let tabs = Tabs::new(1, None, Arc::clone(&ann), Arc::clone(&backlog));
    tabs.set(0, PASSING_BYTES_MIN);
    let waits = tokio::spawn({
        let (ann, backlog) = (Arc::clone(&ann), Arc::clone(&backlog));
        async move { ann.build(&backlog, 1 << 20).await }
    });
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(!waits.is_finished());
    drop(tabs);
    let soon = tokio::time::timeout(Duration::from_secs(1), waits);
    drop(soon.await.expect("there is no client to wait for").unwrap());
    assert_eq!(ledger.bytes(), 0);
}

/// Tests that a compressed request that waits for memory ends with its connection, and takes none of what
/// comes free then.
#[tokio::test(start_paused = true)]
async fn a_connection_that_has_ended_expands_nothing() {
    const LIMIT: usize = 256 << 20;
    let ledger = Ledger::default();
    ledger.set_limit(LIMIT);
    let (ann, backlog) = (ledger.account("ann"), Arc::<Backlog>::default());
    let much = ann.charge(Kind::Frame, LIMIT - (1 << 20)).unwrap();
    let expand = {
        let (ann, backlog) = (Arc::clone(&ann), Arc::clone(&backlog));
        async move { ann.expand(&backlog, 1 << 20).await.is_some() }
    };
    let waits = tokio::spawn(expand);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(!waits.is_finished() && backlog.has_compressed());
    backlog.end_waits();
    drop(much);
    let soon = tokio::time::timeout(Duration::from_millis(100), waits);
    assert!(!soon.await.expect("it waits no longer").unwrap(), "it was given up");
    assert!(!backlog.has_compressed());
    assert_eq!(ledger.bytes(), 0);
}

/// Tests that small requests of an account that has more than its part go on while an eighth of the
/// memory is left, and one at a time on each connection when it is not.
#[test]
fn small_requests_go_on_while_an_eighth_is_left() {
    const LIMIT: usize = 256 << 20;
    let ledger = Ledger::default();
    ledger.set_limit(LIMIT);
    let (ann, bob) = (ledger.account("ann"), ledger.account("bob"));
    let quarter = LIMIT / 4;
    let of_ann = ann.charge(Kind::Reply, quarter + 1).unwrap();
    let _of_bob = bob.charge(Kind::Reply, quarter).unwrap();
    assert_eq!((ann.room(false), bob.room(false)), (Room::All, Room::All));
    let mut more = ann.charge(Kind::Frame, quarter - 1).unwrap();
    assert_eq!((ann.room(false), bob.room(false)), (Room::All, Room::All), "a quarter is left");
    more.resize(quarter).unwrap();
    assert_eq!((ann.room(false), bob.room(false)), (Room::Small, Room::All));
    more.resize(quarter + LIMIT / 8 - 1).unwrap();
    assert_eq!(ann.room(false), Room::Small, "an eighth is left");
    more.resize(quarter + LIMIT / 8).unwrap();
    assert_eq!((ann.room(false), bob.room(false)), (Room::None, Room::All));
    more.resize(LIMIT).unwrap();
    assert_eq!(ann.room(false), Room::None);
    // A client that has nothing under way can free something all the same.
    assert_eq!(ann.room(true), Room::Small);
    drop((of_ann, more));
    assert_eq!(ann.room(false), Room::All);
}
