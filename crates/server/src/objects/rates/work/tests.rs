use std::net::IpAddr;

use frevo_store::security::Token;

use super::*;
use crate::access::access_rules::Names;
use crate::access::domain_names::DomainSids;
use crate::access::rate_rules::{Each, RateRule};
use crate::base::limits::{
    RATE_BUCKET_BYTES, RATE_BUCKETS, RATE_BUCKETS_PER_USER, RATE_HELD_SHOWN,
};
use crate::objects::ledger::{Kind, Ledger};
use crate::objects::rates::HeldOne;

const BOB: &str = "bob";
const NEAR: &str = "192.0.2.1";

/// Rules in force, and the accounts that are charged for their own limits.
struct Rules {
    limited: Vec<Arc<Limited>>,
    ledger: Ledger,
    /// Lives as long as the sessions.
    lives: Arc<UnderWay>,
}

impl Rules {
    fn of(rules: &[RateRule]) -> Self {
        let clock = Clock::start();
        let put = |rule: &RateRule| Arc::new(Limited::new(rule.clone(), clock));
        let limited = rules.iter().map(put).collect();
        Self { limited, ledger: Ledger::default(), lives: Arc::default() }
    }

    fn few(rule: RateRule, most: usize) -> Self {
        let limited = Limited::with_buckets(rule, Clock::start(), most);
        let limited = vec![Arc::new(limited)];
        Self { limited, ledger: Ledger::default(), lives: Arc::default() }
    }

    fn pick(&self, user: &str, session: u64, share: &str, address: &str) -> RateFlow {
        let caller = Caller {
            user,
            groups: &[String::from("staff")],
            groups_are_known: true,
            token: &Token::nobody(),
            domain_sids: &DomainSids::default(),
            address: address.parse::<IpAddr>().unwrap(),
        };
        let (holder, lives) = (&self.ledger.account(user), &self.lives);
        RateFlow::of(&self.limited, Worker { caller: &caller, session, lives, holder }, share)
    }

    fn session(&self, user: &str, session: u64) -> Work {
        work(self.pick(user, session, "data", NEAR), OPERATION)
    }

    fn buckets(&self) -> usize {
        self.limited[0].held_back().buckets
    }
}

const OPERATION: Demand = Demand { read: 0, write: 0, operations: 1 };

fn work(flow: RateFlow, demand: Demand) -> Work {
    let mut work = Work::default();
    work.add(Arc::new(flow), demand);
    work
}

/// One operation a second, for each on its own.
fn one_a_second(each: Each) -> RateRule {
    let burst = Duration::ZERO;
    RateRule { operations: Some(1), burst, each: Some(each), ..RateRule::new("a") }
}

fn passes(work: &Work, now: Duration) -> bool {
    work.try_pass(At::FIRST, now).is_none()
}

#[test]
fn rules_are_for_shares_users_groups_and_networks() {
    let limit = |rule: RateRule| RateRule { operations: Some(1), ..rule };
    let of_share = limit(RateRule { shares: vec![String::from("Data")], ..RateRule::new("a") });
    let of_user = limit(RateRule { users: Names::of([BOB]), ..RateRule::new("b") });
    let of_group = limit(RateRule { users: Names::of(["@staff"]), ..RateRule::new("c") });
    let networks = vec!["192.0.2.0/24".parse().unwrap()];
    let of_network = limit(RateRule { networks, ..RateRule::new("d") });
    let weighs = RateRule { weight: Some(3), ..RateRule::new("e") };
    let rules = [of_share, of_user, of_group, of_network, weighs];
    let flow = |rules: &[RateRule], user: &str, share: &str, address: &str| {
        Rules::of(rules).pick(user, 7, share, address)
    };
    let names = |flow: RateFlow| -> String {
        flow.rules.iter().map(|picked| picked.limited.rule.name.as_str()).collect()
    };
    assert_eq!(names(flow(&rules, BOB, "data", NEAR)), "abcd");
    assert_eq!(names(flow(&rules, "ann", "other", "192.0.3.1")), "c");
    assert_eq!(flow(&rules, "ann", "data", "192.0.3.1").flow.weight, 3);
    assert_eq!(flow(&rules[..1], "ann", "data", "192.0.3.1").flow.weight, RATE_WEIGHT);
    assert!(flow(&rules[4..], BOB, "data", NEAR).is_free());
}

#[test]
fn all_limits_of_a_rule_count_and_what_was_not_used_is_given_back() {
    let rule = RateRule {
        read: Some(1_000),
        operations: Some(10),
        burst: Duration::from_secs(1),
        ..RateRule::new("a")
    };
    let rules = Rules::of(&[rule]);
    let now = Duration::from_secs(100);
    let asks = |demand| work(rules.pick(BOB, 7, "data", NEAR), demand);
    let read = asks(Demand { read: 1_500, write: 0, operations: 1 });
    assert_eq!(read.try_pass(At::FIRST, now), None);
    assert_eq!(read.try_pass(At::FIRST, now), Some(At(1)), "the bytes of a second");
    let write = asks(Demand { read: 0, write: 9_999, operations: 8 });
    assert_eq!(write.try_pass(At::FIRST, now), None, "writes have no limit");
    let one = asks(Demand { operations: 3, ..Demand::default() });
    assert_eq!(one.try_pass(At::FIRST, now), None);
    assert_eq!(one.try_pass(At::FIRST, now), Some(At(0)), "ten operations, and some");
    read.settle(Demand::default(), 0, now);
    let later = now + Duration::from_millis(500);
    assert_eq!(read.try_pass(At::FIRST, later), None);
}

/// The parts of a copy pass the limits of both shares. What the first has let pass is given back if the second
/// is not passed.
#[test]
fn both_shares_of_a_copy_count() {
    let of_share = |name: &str| RateRule {
        shares: vec![String::from(name)],
        read: Some(1_000),
        write: Some(1_000),
        burst: Duration::ZERO,
        ..RateRule::new(name)
    };
    let rules = Rules::of(&[of_share("from"), of_share("into")]);
    let now = Duration::from_secs(100);
    let mut copy = work(
        rules.pick(BOB, 7, "into", NEAR),
        Demand { write: 1_000, operations: 1, ..Demand::default() },
    );
    copy.add_source(Arc::new(rules.pick(BOB, 7, "from", NEAR)), 1_000);
    assert!(passes(&copy, now));
    assert_eq!(copy.try_pass(At::FIRST, now), Some(At(0)), "the share that is written to");
    let asks = |share: &str, demand| work(rules.pick(BOB, 7, share, NEAR), demand);
    let one_read = Demand { read: 1, ..Demand::default() };
    let one_written = Demand { write: 1, ..Demand::default() };
    assert!(!passes(&asks("from", one_read), now) && passes(&asks("into", one_read), now));
    assert!(passes(&asks("from", one_written), now) && !passes(&asks("into", one_written), now));
    copy.settle(Demand::default(), 0, now);
    assert!(passes(&asks("into", one_written), now));
    // One that has moved more than it asked for is paid for later.
    copy.settle(Demand { write: 3_000, ..Demand::default() }, 2_000, now);
    let later = now + Duration::from_millis(900);
    assert!(!passes(&asks("from", one_read), later) && !passes(&asks("into", one_written), later));
}

/// Work that waits for a limit of its own, or for a lower one, has taken nothing of what others share.
#[test]
fn own_limits_and_lower_ones_are_passed_first() {
    let limit = |name: &str, write: u64| RateRule {
        write: Some(write),
        burst: Duration::ZERO,
        ..RateRule::new(name)
    };
    let own = RateRule { each: Some(Each::User), ..limit("own", 10_000) };
    let rules = Rules::of(&[limit("high", 5_000), limit("low", 1_000), own]);
    let write = Demand { write: 1, ..Demand::default() };
    let mut two = work(rules.pick(BOB, 7, "data", NEAR), write);
    two.add(Arc::new(rules.pick("ann", 8, "data", NEAR)), write);
    let name = |one: Demanded<'_>| match one.of {
        LimitOf::Rule(limited) => limited.rule.name.clone(),
        LimitOf::Flow(..) => String::from("flow"),
    };
    let order: Vec<_> = two.gates().map(name).collect();
    assert_eq!(order, ["own", "own", "low", "high", "low", "high"]);
}

/// The limits of a session end with it, whatever they are owed; not with a tree connect.
#[test]
fn limits_of_a_session_end_with_it() {
    let mut rules = Rules::few(one_a_second(Each::Session), 2);
    let now = Duration::from_secs(3_600);
    let first = rules.session("ann", 1);
    assert!(passes(&first, now));
    drop(first);
    assert!(!passes(&rules.session("ann", 1), now), "it lives, and owes");
    assert_eq!(rules.buckets(), 1);
    rules.lives = Arc::default();
    rules.limited[0].sweep(now);
    assert_eq!(rules.buckets(), 0);
}

#[test]
fn each_user_session_or_address_has_the_limits_on_its_own() {
    let now = Duration::from_secs(1);
    let asks = |rules: &Rules, user, session, address| {
        passes(&work(rules.pick(user, session, "data", address), OPERATION), now)
    };
    let [user, session, address] =
        [Each::User, Each::Session, Each::Address].map(|each| Rules::of(&[one_a_second(each)]));
    for rules in [&user, &session, &address] {
        assert!(asks(rules, "ann", 1, "2001:db8::1"));
        assert!(!asks(rules, "Ann", 1, "2001:db8::2"), "one host may have the whole network");
    }
    assert!(!asks(&user, "ann", 2, NEAR) && asks(&user, BOB, 3, "2001:db8::1"));
    assert!(asks(&session, "ann", 2, "2001:db8::1") && !asks(&session, "ann", 2, NEAR));
    assert!(asks(&address, "ann", 1, NEAR) && !asks(&address, BOB, 3, "2001:db8::9"));
}

/// One that has gone owes what it owed when it comes back; one that owes nothing is forgotten.
#[test]
fn who_comes_back_owes_what_it_owed() {
    let rules = Rules::of(&[RateRule { operations: Some(10), ..one_a_second(Each::User) }]);
    let ann = rules.session("ann", 1);
    assert!(passes(&ann, Duration::from_secs(3_600)));
    drop((ann, rules.session(BOB, 2)));
    assert_eq!(rules.buckets(), 1, "bob owes nothing");
    let again = rules.session("ann", 3);
    assert!(!passes(&again, Duration::from_secs(3_600)));
    rules.limited[0].sweep(Duration::from_secs(3_601));
    assert_eq!(rules.buckets(), 1, "it is used");
    drop(again);
    rules.limited[0].sweep(Duration::from_secs(3_599));
    assert_eq!(rules.buckets(), 1, "it owes something");
    rules.limited[0].sweep(Duration::from_secs(3_601));
    assert_eq!(rules.buckets(), 0);
}

/// n - 1, n and n + 1: those beyond share one, and wait for each other.
#[test]
fn beyond_so_many_all_share_one_bucket() {
    let rules = Rules::few(one_a_second(Each::Session), 3);
    let (now, later) = (Duration::from_secs(3_600), Duration::from_secs(3_605));
    let mut works: Vec<_> = (0..3).map(|id| rules.session("ann", id)).collect();
    assert!(works.iter().all(|one| passes(one, now)));
    let beyond = [rules.session("ann", 3), rules.session(BOB, 4)];
    assert_eq!(rules.buckets(), 3);
    assert!(passes(&beyond[0], now) && !passes(&beyond[1], now));
    // One that nobody uses makes room for another; of two the one that owes nothing first.
    assert!(passes(&works[1], later));
    works.drain(1..);
    assert_eq!(rules.buckets(), 3, "both owe something");
    let newcomer = rules.session(BOB, 5);
    assert!(passes(&newcomer, later));
    assert!(!passes(&rules.session("ann", 1), later), "it owes most");
    assert_eq!(rules.buckets(), 3);
    const { assert!(RATE_BUCKETS > 2 * RATE_BUCKETS_PER_USER, "no account fills all") };
}

#[test]
fn own_limits_are_charged_while_they_are_used() {
    let rules = Rules::of(&[one_a_second(Each::User)]);
    let count = || rules.ledger.count(Kind::RateBucket);
    let sessions = [rules.session("ann", 1), rules.session("ann", 2), rules.session(BOB, 3)];
    assert_eq!((count(), rules.ledger.bytes()), (2, 2 * RATE_BUCKET_BYTES));
    assert!(passes(&sessions[0], Duration::from_secs(3_600)));
    let [first, second, bobs] = sessions;
    drop((first, bobs));
    assert_eq!(count(), 1);
    drop(second);
    assert_eq!((count(), rules.ledger.bytes(), rules.buckets()), (0, 0, 1));
    let again = rules.session("ann", 4);
    assert_eq!(count(), 1);
    drop(again);
    // Where no bucket may be charged, all share one.
    rules.ledger.set_most(Kind::RateBucket, Some(0), Some(0));
    let bobs = rules.session(BOB, 5);
    assert_eq!((count(), rules.buckets()), (0, 1));
    assert!(passes(&bobs, Duration::ZERO) && !passes(&rules.session("carol", 6), Duration::ZERO));
}

/// The end of a rule opens the limits of all, also of those that come later.
#[test]
fn a_rule_that_has_ended_holds_nobody_back() {
    let rules = Rules::of(&[one_a_second(Each::User)]);
    let ann = rules.session("ann", 1);
    let now = Duration::from_secs(1);
    assert!(passes(&ann, now) && !passes(&ann, now));
    rules.limited[0].end();
    let bobs = rules.session(BOB, 2);
    assert!(passes(&ann, now) && passes(&bobs, now) && passes(&bobs, now));
}

/// A bucket that owes something and that nobody uses goes with its rule; one that is used goes with its last use.
#[test]
fn buckets_of_a_rule_that_has_ended_go_with_their_last_use() {
    let rules = Rules::of(&[one_a_second(Each::User)]);
    let (ann, bobs) = (rules.session("ann", 1), rules.session(BOB, 2));
    let now = Duration::from_secs(3_600);
    assert!(passes(&ann, now) && passes(&bobs, now));
    drop(ann);
    assert_eq!(rules.buckets(), 2, "ann owes something");
    rules.limited[0].end();
    assert_eq!(rules.buckets(), 1);
    drop(bobs);
    assert_eq!(rules.buckets(), 0);
}

/// Sessions of one account beyond its number share one bucket; others have buckets of their own.
#[test]
fn no_account_has_all_buckets() {
    let rules = Rules::of(&[one_a_second(Each::Session)]);
    rules.ledger.set_most(Kind::RateBucket, Some(3), Some(3));
    let now = Duration::from_secs(3_600);
    let mut works: Vec<_> = (0..5).map(|id| rules.session("ann", id)).collect();
    assert_eq!((rules.buckets(), rules.ledger.count(Kind::RateBucket)), (3, 3));
    assert!(works.drain(..4).all(|one| passes(&one, now)) && !passes(&works[0], now));
    assert!(passes(&rules.session(BOB, 7), now), "bob has a bucket");
    let per_user = rules.ledger.account("carol");
    let held: Vec<_> = (0..RATE_BUCKETS_PER_USER)
        .filter_map(|_| per_user.charge(Kind::RateBucket, 0).ok())
        .collect();
    assert_eq!(held.len(), 3);
}

/// A copy of macOS that was larger than it said owes all of it to limits of its account, and 256 MiB to those that
/// others share.
#[test]
fn a_copy_larger_than_it_said_owes_little_to_others() {
    let rule = |name: &str, each| RateRule {
        write: Some(1 << 20),
        read: Some(1 << 20),
        burst: Duration::ZERO,
        each,
        ..RateRule::new(name)
    };
    let now = Duration::from_secs(100);
    let terabyte = Demand { write: 1 << 40, ..Demand::default() };
    let one = Demand { write: 1, ..Demand::default() };
    for each in [None, Some(Each::Address), Some(Each::User), Some(Each::Session)] {
        let rules = Rules::of(&[rule("a", each)]);
        let said = Demand { write: 1, operations: 1, ..Demand::default() };
        let mut copy = work(rules.pick(BOB, 7, "data", NEAR), said);
        copy.add_source(Arc::new(rules.pick(BOB, 7, "data", NEAR)), 1);
        assert!(passes(&copy, now));
        copy.settle(terabyte, 1 << 40, now);
        // 256 MiB are 256 seconds.
        let later = now + Duration::from_secs(257);
        let has_ended = passes(&work(rules.pick(BOB, 7, "data", NEAR), one), later);
        assert_eq!(has_ended, matches!(each, None | Some(Each::Address)), "{each:?}");
        let read = Demand { read: 1, ..Demand::default() };
        let has_ended = passes(&work(rules.pick(BOB, 7, "data", NEAR), read), later);
        assert_eq!(has_ended, matches!(each, None | Some(Each::Address)), "{each:?}");
        let year = now + Duration::from_secs(1 << 20);
        assert!(passes(
            &work(rules.pick(BOB, 7, "data", NEAR), one),
            year + Duration::from_secs(2)
        ));
    }
}

/// Those who wait now come first, then those who have waited longest; a status names so many.
#[tokio::test(start_paused = true)]
async fn those_are_shown_that_are_held_back_most() {
    let limit = RateRule { write: Some(1 << 20), ..one_a_second(Each::User) };
    let rules = Rules::of(&[limit]);
    let clock = rules.limited[0].clock;
    assert_eq!(rules.limited[0].most_held(), []);
    let users: Vec<String> = (0..RATE_HELD_SHOWN + 2).map(|at| format!("user{at:02}")).collect();
    for (at, user) in users.iter().enumerate() {
        let own = rules.session(user, at as u64);
        assert!(passes(&own, clock.now()));
        for _ in 0..at {
            own.wait(At::FIRST, clock).await.unwrap();
        }
    }
    let shown = rules.limited[0].most_held();
    let names = |shown: &[HeldOne]| shown.iter().map(|one| one.who.clone()).collect::<Vec<_>>();
    let most: Vec<_> = users[2..].iter().rev().cloned().collect();
    assert_eq!(names(&shown), most);
    let first = &shown[0];
    assert_eq!((first.by, first.waited.waiting, first.waited.count), ("operations", 0, 9));
    // user01 waits for its bytes now.
    let flow = rules.pick("user01", 1, "data", NEAR);
    let write = work(flow, Demand { write: 8 << 20, ..Demand::default() });
    assert!(passes(&write, clock.now()));
    let waits = async { write.wait(At::FIRST, clock).await.unwrap() };
    let looks = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        rules.limited[0].most_held()
    };
    let (_, shown) = tokio::join!(waits, looks);
    assert_eq!(names(&shown)[..2], ["user01".to_owned(), most[0].clone()]);
    assert_eq!((shown[0].by, shown[0].waited.waiting), ("write", 1));
}
