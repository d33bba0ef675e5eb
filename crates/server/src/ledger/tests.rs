use super::*;

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
            held.pop();
            held.push(holder.charge(kind, 0).unwrap());
            let other = ledger.account("bob").charge(kind, 0);
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
    // Whoever has little is served from what is kept back.
    let small = eve.charge(Kind::Open, LIMIT / 64).unwrap();
    assert!(eve.charge(Kind::Open, 1).is_err());
    // Buffers are slowed down by others, not refused.
    let frame = ann.charge(Kind::Frame, LIMIT).unwrap();
    assert_eq!(ledger.fullness(), Fullness::Full);
    drop((charge, other, small, frame));
    assert_eq!(ledger.bytes(), 0);
    assert_eq!(ledger.fullness(), Fullness::Ample);
}

#[test]
fn a_tab_charges_in_steps_and_gives_all_back() {
    let ledger = Ledger::default();
    let ann = ledger.account("ann");
    let tab = Tab::new(Arc::clone(&ann), Kind::Frame);
    tab.set(TAB_STEP_BYTES - 1);
    assert_eq!((tab.bytes(), ann.bytes()), (TAB_STEP_BYTES - 1, 0));
    tab.set(TAB_STEP_BYTES);
    assert_eq!(ann.bytes(), TAB_STEP_BYTES);
    tab.set(2 * TAB_STEP_BYTES - 1);
    assert_eq!(ann.bytes(), TAB_STEP_BYTES);
    tab.set(5 * TAB_STEP_BYTES);
    assert_eq!(ledger.bytes(), 5 * TAB_STEP_BYTES);
    tab.set(0);
    assert_eq!(ledger.bytes(), 0);
    tab.set(TAB_STEP_BYTES);
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
