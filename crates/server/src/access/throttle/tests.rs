//! The times at which attempts are heeded, on a clock that moves only while all tasks wait.

use std::net::{Ipv4Addr, Ipv6Addr};

use tokio::time::sleep;

use super::*;
use crate::base::limits::{
    LOGON_FAILURES_KEPT, LOGON_FAILURES_REMEMBERED, LOGON_GOOD_ACCOUNTS, LOGON_GOOD_KEPT,
    LOGON_GOOD_PER_ACCOUNT,
};

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const NEIGHBOUR: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 77));
const ELSEWHERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 1));

fn client(number: u8) -> Guid {
    Guid([number; 16])
}

fn attempt(address: IpAddr, account: &str, success: bool) -> Attempt<'_> {
    Attempt { address, client: Guid::default(), account, success }
}

/// How long an attempt waits, and whether it is heeded.
async fn waits(throttle: &LogonThrottle, attempt: Attempt<'_>) -> (Duration, bool) {
    let began = Instant::now();
    let heeded = throttle.heed(attempt).await;
    (began.elapsed(), heeded)
}

fn seconds(count: u64) -> (Duration, bool) {
    (Duration::from_secs(count), true)
}

/// Starts attempts, and waits for the end of none.
fn flood(throttle: &Arc<LogonThrottle>, addresses: impl Iterator<Item = IpAddr>, name: &str) {
    for address in addresses {
        let (throttle, name) = (Arc::clone(throttle), name.to_owned());
        tokio::spawn(async move { throttle.heed(attempt(address, &name, false)).await });
    }
}

#[tokio::test(start_paused = true)]
async fn failures_make_one_account_from_one_network_wait() {
    let throttle = LogonThrottle::default();
    assert_eq!(waits(&throttle, attempt(HERE, "ann", true)).await, seconds(0));
    let (first, second, elsewhere, other, neighbour) = tokio::join!(
        waits(&throttle, attempt(HERE, "ann", false)),
        waits(&throttle, attempt(HERE, "ANN", false)),
        waits(&throttle, attempt(ELSEWHERE, "ann", true)),
        waits(&throttle, attempt(HERE, "bob", true)),
        waits(&throttle, attempt(NEIGHBOUR, "ann", false)),
    );
    // The neighbour's address has no failures yet, so its attempt runs before the second attempt
    // from HERE.
    assert_eq!(first, seconds(2));
    assert_eq!(neighbour, seconds(2 + 2));
    assert_eq!(second, seconds(4));
    assert_eq!((elsewhere, other), (seconds(0), seconds(0)));
    assert_eq!(waits(&throttle, attempt(HERE, "ann", true)).await, seconds(2));
    assert_eq!(waits(&throttle, attempt(HERE, "ann", false)).await, seconds(2));
}

#[tokio::test(start_paused = true)]
async fn long_names_are_not_remembered_whole() {
    let throttle = LogonThrottle::default();
    for length in [LOGON_NAME_BYTES - 1, LOGON_NAME_BYTES, LOGON_NAME_BYTES + 1, 60_000] {
        throttle.heed(attempt(HERE, &"\u{e9}".repeat(length), false)).await;
    }
    let state = throttle.0.lock();
    assert!(state.failures.names().all(|user| user.len() <= LOGON_NAME_BYTES));
    assert!(state.lines.keys().all(|(user, _)| user.len() <= LOGON_NAME_BYTES));
}

/// Counts the attempts that are heeded in five minutes, of a flood of them.
async fn heeded_of_a_flood(addresses: impl Fn(u32) -> IpAddr) -> usize {
    let throttle = Arc::new(LogonThrottle::default());
    let heeded = Arc::new(std::sync::atomic::AtomicUsize::new(0));
    let mut tasks = Vec::new();
    for number in 0..6_000 {
        let (throttle, heeded) = (Arc::clone(&throttle), Arc::clone(&heeded));
        let address = addresses(number);
        tasks.push(tokio::spawn(async move {
            if throttle.heed(attempt(address, "ann", false)).await {
                heeded.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        }));
        sleep(Duration::from_millis(50)).await;
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
    heeded.load(std::sync::atomic::Ordering::Relaxed)
}

#[tokio::test(start_paused = true)]
async fn a_flood_of_sockets_gains_nothing() {
    // With all attempts from one address, the delay doubles up to a minute, so only 5 to 10
    // attempts are checked.
    let one = heeded_of_a_flood(|_| HERE).await;
    assert!((5..=10).contains(&one), "{one}");
    // With attempts from many networks, one attempt is checked in two seconds: about 150 in the 300
    // seconds.
    let network = |number: u32| IpAddr::V4(Ipv4Addr::from_bits(0xC000_0200 + number % 256));
    let many = heeded_of_a_flood(network).await;
    assert!((120..=151).contains(&many), "{many}");
    // A client that owns an IPv6 /48 can use a new /64 network for each guess, and must not get
    // more guesses by that.
    let within = |number: u32| {
        let bits = 0x2001_0DB8 << 96 | u128::from(number) << 64 | u128::from(number);
        IpAddr::V6(Ipv6Addr::from_bits(bits))
    };
    let v6 = heeded_of_a_flood(within).await;
    assert!((120..=151).contains(&v6), "{v6}");
}

#[tokio::test(start_paused = true)]
async fn an_honest_neighbour_waits_two_seconds_at_most() {
    for (guessers, honest) in [
        ([HERE; 200].as_slice(), NEIGHBOUR),
        (&["2001:db8::1".parse().unwrap(); 200], "2001:db8:0:1::2".parse().unwrap()),
        (&["fe80::1".parse().unwrap(); 200], "fe80::2".parse().unwrap()),
        (&["10.0.0.1".parse().unwrap(); 200], "10.0.0.2".parse().unwrap()),
    ] {
        let throttle = Arc::new(LogonThrottle::default());
        flood(&throttle, guessers.iter().copied(), "ann");
        for phase in 0..20 {
            sleep(Duration::from_millis(1_100 + phase)).await;
            flood(&throttle, guessers.iter().copied().take(20), "ann");
            let success = attempt(honest, "ann", true);
            let (wait, heeded) = waits(&throttle, success).await;
            assert!(heeded && wait <= LOGON_DELAY, "{honest}: {wait:?}");
            throttle.0.lock().good = GoodLogons::default();
        }
    }
}

/// In the first minute all addresses of a network guess for the first time, each on several
/// connections and again when it was answered. Whoever comes from an address that has not
/// guessed is heeded next.
#[tokio::test(start_paused = true)]
async fn an_honest_newcomer_is_not_behind_guesses_of_fresh_addresses() {
    const HONEST: u8 = 200;
    let network = |last: u8| IpAddr::V4(Ipv4Addr::new(198, 51, 100, last));
    let guessers = || (0..=255).filter(|last| *last != HONEST).map(network);
    let throttle = Arc::new(LogonThrottle::default());
    for address in guessers() {
        for _ in 0..3 {
            let throttle = Arc::clone(&throttle);
            tokio::spawn(async move {
                loop {
                    throttle.heed(attempt(address, "ann", false)).await;
                    // The client sends its next attempt one round trip (10 ms) after the answer.
                    sleep(Duration::from_millis(10)).await;
                }
            });
        }
    }
    for phase in 0..30 {
        sleep(Duration::from_millis(1_300 + phase * 37)).await;
        let (wait, heeded) = waits(&throttle, attempt(network(HONEST), "ann", true)).await;
        assert!(heeded && wait <= LOGON_DELAY, "{phase}: {wait:?}");
        throttle.0.lock().good = GoodLogons::default();
    }
}

/// Nothing tells an honest newcomer from one that comes behind it and has not failed
/// either: that one goes first, and costs one turn.
#[tokio::test(start_paused = true)]
async fn a_fresh_address_behind_a_newcomer_costs_one_turn() {
    let throttle = LogonThrottle::default();
    let at = async |milliseconds, last, success| {
        sleep(Duration::from_millis(milliseconds)).await;
        let address = IpAddr::V4(Ipv4Addr::new(198, 51, 100, last));
        waits(&throttle, attempt(address, "ann", success)).await
    };
    let (first, honest, _) = tokio::join!(at(0, 1, false), at(500, 2, true), at(1_000, 3, false));
    assert_eq!(first, seconds(2));
    assert_eq!(honest, (Duration::from_millis(3_500), true));
}

/// All addresses of the network guess: only those that have logged on pass.
#[tokio::test(start_paused = true)]
async fn a_recent_good_logon_passes_by() {
    let throttle = Arc::new(LogonThrottle::default());
    let known = Attempt { client: client(7), ..attempt(HERE, "ann", true) };
    assert_eq!(waits(&throttle, known).await, seconds(0));
    let all = || (0..=255).map(|last| IpAddr::V4(Ipv4Addr::new(192, 0, 2, last)));
    flood(&throttle, all().filter(|address| *address != HERE), "ann");
    sleep(Duration::from_millis(1)).await;
    // A client that has logged on before is recognised by its address, or after moving by its
    // ClientGuid, so it need not wait.
    assert_eq!(waits(&throttle, attempt(HERE, "ann", true)).await, seconds(0));
    let moved = Attempt { client: client(7), ..attempt(NEIGHBOUR, "ann", true) };
    assert_eq!(waits(&throttle, moved).await, seconds(0));
    // A client that has logged on to another account, or that sends a ClientGuid of zeros, is not
    // recognised and must wait.
    let other = Attempt { client: client(8), ..attempt(NEIGHBOUR, "bob", true) };
    assert_eq!(waits(&throttle, other).await, seconds(0));
    let stranger = Attempt { client: client(8), ..attempt(all().next().unwrap(), "ann", true) };
    let (wait, heeded) = waits(&throttle, stranger).await;
    assert!(!heeded || wait >= LOGON_DELAY, "{wait:?}");
    // A recognised client need not wait, until one of its logons fails.
    let wrong = waits(&throttle, attempt(HERE, "ann", false));
    let next = async {
        sleep(Duration::from_millis(1)).await;
        waits(&throttle, attempt(HERE, "ann", false)).await
    };
    let (wrong, next) = tokio::join!(wrong, next);
    assert_eq!(wrong, seconds(2));
    assert!(next.0 > LOGON_DELAY, "{next:?}");
}

#[tokio::test(start_paused = true)]
async fn good_logons_and_failures_are_forgotten_in_time() {
    let throttle = LogonThrottle::default();
    let name = remembered("ann");
    throttle.heed(attempt(HERE, "ann", true)).await;
    let is_good = |throttle: &LogonThrottle| {
        throttle.0.lock().good.has(&name, Source::exact(HERE), Instant::now())
    };
    tokio::time::advance(LOGON_GOOD_KEPT - Duration::from_secs(1)).await;
    assert!(is_good(&throttle));
    tokio::time::advance(Duration::from_secs(1)).await;
    assert!(!is_good(&throttle));
    throttle.heed(attempt(HERE, "ann", false)).await;
    assert_eq!(waits(&throttle, attempt(HERE, "ann", false)).await, seconds(4));
    tokio::time::advance(LOGON_FAILURES_KEPT).await;
    assert_eq!(waits(&throttle, attempt(HERE, "ann", false)).await, seconds(2));
}

#[tokio::test(start_paused = true)]
async fn memory_is_bounded() {
    let now = Instant::now();
    let mut failures = Failures::default();
    let guesser = remembered("guesser");
    for _ in 0..6 {
        failures.note(&guesser, Source::exact(HERE), now);
    }
    for number in 0..LOGON_FAILURES_REMEMBERED * 2 {
        failures.note(&remembered(&number.to_string()), Source::exact(HERE), now);
        assert!(failures.len() <= LOGON_FAILURES_REMEMBERED);
    }
    assert_eq!(failures.count(&guesser, Source::exact(HERE), now), 6, "the flood flushed it");

    let mut good = GoodLogons::default();
    let half = LOGON_GOOD_PER_ACCOUNT / 2;
    for number in [half - 1, half, half + 1] {
        for address in 0..number {
            let address = IpAddr::V4(Ipv4Addr::from_bits(address as u32));
            good.note(&guesser, Source::exact(address), now);
        }
        assert_eq!(good.sizes().1, number.min(half));
    }
    // An account remembers a limited number of sources: at most half are addresses, and at most
    // half are client GUIDs. Further client GUIDs must not displace an address.
    for number in 0..=LOGON_GOOD_PER_ACCOUNT {
        good.note(&guesser, Source::Client(client(number as u8)), now);
        assert_eq!(good.sizes().1, half + (number + 1).min(half));
    }
    for number in 0..=LOGON_GOOD_ACCOUNTS {
        good.note(&remembered(&number.to_string()), Source::exact(HERE), now);
    }
    assert_eq!(good.sizes().0, LOGON_GOOD_ACCOUNTS);

    let throttle = Arc::new(LogonThrottle::default());
    for (more, waiting) in
        [(LOGON_WAITING, LOGON_WAITING - 1), (1, LOGON_WAITING), (1, LOGON_WAITING)]
    {
        flood(&throttle, std::iter::repeat_n(HERE, more), "ann");
        sleep(Duration::from_millis(1)).await;
        let line = (remembered("ann"), network(HERE));
        assert_eq!(throttle.0.lock().lines[&line].waiting.len(), waiting);
    }
    // The queue of one network is full, but a client from an address without failures still gets a
    // place.
    assert!(waits(&throttle, attempt(NEIGHBOUR, "ann", true)).await.1);

    let mut state = State::default();
    let line = |number: usize| (remembered(&number.to_string()), network(HERE));
    for number in 0..=LOGON_LINES {
        let name = number.to_string();
        let entered = state.enter(&line(number), attempt(HERE, &name, false));
        assert_eq!(matches!(entered, Entered::Full), number == LOGON_LINES, "{number}");
        std::mem::forget(entered);
    }
}

/// A client that has gone is not waited for, and uses nothing up.
#[tokio::test(start_paused = true)]
async fn whoever_is_gone_leaves_the_line() {
    let throttle = Arc::new(LogonThrottle::default());
    flood(&throttle, std::iter::once(HERE), "ann");
    sleep(Duration::from_millis(1)).await;
    let gone: Vec<_> = (0..10)
        .map(|_| {
            let throttle = Arc::clone(&throttle);
            tokio::spawn(async move { throttle.heed(attempt(NEIGHBOUR, "ann", false)).await })
        })
        .collect();
    sleep(Duration::from_millis(1)).await;
    gone.iter().for_each(tokio::task::JoinHandle::abort);
    let (wait, heeded) = waits(&throttle, attempt(NEIGHBOUR, "ann", true)).await;
    assert!(heeded && wait <= LOGON_DELAY, "{wait:?}");
}

/// Whatever an attempt waits for, it is answered in time: the clients of some frameworks give up after
/// five seconds, and take the late answer for a broken one.
#[tokio::test(start_paused = true)]
async fn no_answer_comes_later_than_clients_wait() {
    let throttle = Arc::new(LogonThrottle::default());
    // A client types wrong passwords one after the other. Its delay grows to 4 seconds at most.
    for expected in [2, 4, 4, 4, 4, 4, 4, 4] {
        let (wait, _) = waits(&throttle, attempt(HERE, "ann", false)).await;
        assert_eq!(wait, Duration::from_secs(expected));
    }
    // More attempts come at once than can wait. All are answered after LOGON_PATIENCE: both the
    // attempts that wait and the attempts that are refused.
    let many = (0..LOGON_WAITING + 10).map(|_| {
        let throttle = Arc::clone(&throttle);
        tokio::spawn(async move { waits(&throttle, attempt(HERE, "ann", false)).await })
    });
    for one in many.collect::<Vec<_>>() {
        assert_eq!(one.await.unwrap().0, LOGON_PATIENCE);
    }
}

/// Guesses on `sockets` connections of one address, each of which tries again when it is answered, as a
/// client of its own if `has_clients`.
fn guess_from(throttle: &Arc<LogonThrottle>, sockets: u8, has_clients: bool) {
    for socket in 0..sockets {
        let throttle = Arc::clone(throttle);
        tokio::spawn(async move {
            sleep(Duration::from_millis(u64::from(socket) * 97)).await;
            for number in 0_u64.. {
                let mut guid = Guid([socket; 16]);
                guid.0[0] = 0xA0;
                if !has_clients {
                    guid.0[1..9].copy_from_slice(&number.to_le_bytes());
                }
                let guess = Attempt { client: guid, ..attempt(HERE, "ann", false) };
                throttle.heed(guess).await;
                sleep(Duration::from_millis(10)).await;
            }
        });
    }
}

/// A terminal server, or a router with many clients behind it: forty connections guess for an account
/// that somebody has logged on to from there.
#[tokio::test(start_paused = true)]
async fn a_right_password_from_the_address_of_guessers_gets_its_turn() {
    for has_clients in [true, false] {
        let throttle = Arc::new(LogonThrottle::default());
        let known = Attempt { client: client(7), ..attempt(HERE, "ann", true) };
        assert_eq!(waits(&throttle, known).await, seconds(0));
        guess_from(&throttle, 40, has_clients);
        for minute in 0..5 {
            sleep(Duration::from_secs(60)).await;
            let before = throttle.guesses();
            sleep(Duration::from_secs(10)).await;
            let heeded = throttle.guesses() - before;
            assert!((4..=6).contains(&heeded), "{heeded} guesses in ten seconds");
            // `known` has logged on from this address before, so it does not wait for the guesses.
            assert_eq!(waits(&throttle, known).await, seconds(0), "{minute}");
            // Another client of this address gets each answer in time, and its password is checked
            // after some attempts.
            let mut attempts = 0;
            loop {
                attempts += 1;
                let other = Attempt { client: client(100 + minute), ..known };
                let (wait, heeded) = waits(&throttle, other).await;
                assert!(wait <= LOGON_PATIENCE, "{wait:?}");
                if heeded {
                    break;
                }
                assert!(attempts < 100, "a right password is never heeded");
            }
            if has_clients {
                assert_eq!(attempts, 1, "each of the guessers was refused before");
            }
        }
    }
}

/// An address from which nobody has logged on to the account gets no more guesses than ever: about one
/// a minute in the long run.
#[tokio::test(start_paused = true)]
async fn a_strange_address_guesses_once_a_minute() {
    let throttle = Arc::new(LogonThrottle::default());
    guess_from(&throttle, 8, false);
    sleep(Duration::from_secs(300)).await;
    assert!((5..=9).contains(&throttle.guesses()), "{}", throttle.guesses());
    sleep(Duration::from_secs(900)).await;
    assert!((18..=24).contains(&throttle.guesses()), "{}", throttle.guesses());
}
