//! Limits and deadlines of connections, on a clock that moves only while all tasks wait.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use crate::client::files::read_draft;
use crate::client::logon::Exchange;
use crate::client::world::{Users, in_own_world, password};
use crate::client::*;
use frevo_auth::{
    AccountFault, Credentials, DomainLogon, DomainQuestion, Entropy, Initiator, Reason, Secret,
    Target, Zeroizing,
};
use frevo_net::limits::SEND_STALL_TIMEOUT;
use frevo_server::ambient::{Ambient as _, Host};
use frevo_server::domain_logons::DomainLogons;
use frevo_server::internal::limits::{
    AUTHENTICATE_DEADLINE, LOGON_DELAY, LOGON_DELAY_MAX, LOGON_PATIENCE, NEGOTIATE_DEADLINE,
    SESSIONS_BEFORE_AUTHENTICATION, SESSIONS_PER_CONNECTION, TREES_PER_SESSION,
    UNAUTHENTICATED_PER_56, UNAUTHENTICATED_PER_ADDRESS, UNAUTHENTICATED_SPARED,
};
use frevo_server::internal::state::Kind;
use frevo_server::{NotOwn, OwnPassword, Server, Settings};
use frevo_wire::command::create::ShareAccess;
use tokio::time::Instant;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7));

#[test]
fn unauthenticated_connections_are_limited_for_each_address() {
    in_frozen_world(settings(), async |world| {
        let mut peers: Vec<_> = (0..UNAUTHENTICATED_PER_ADDRESS)
            .map(|_| world.connect_from(HERE).expect("admitted"))
            .collect();
        assert!(world.connect_from(HERE).is_none());
        world.connect_from(THERE).expect("another address is not affected");
        // After a logon, the connection no longer counts as unauthenticated, so another one is
        // admitted.
        let peer = &mut peers[0];
        peer.negotiate(&Offer::default()).await;
        assert!(world.connect_from(HERE).is_none(), "NEGOTIATE is not enough");
        peers[0].log_on("ann").await;
        let one = world.connect_from(HERE).expect("admitted again");
        assert!(world.connect_from(HERE).is_none());
        // A closed connection does not count any more, so another one is admitted.
        drop(one);
        tokio::time::sleep(Duration::from_millis(1)).await;
        world.connect_from(HERE).expect("admitted once more");
    });
}

/// Where a step is full, the oldest of its busiest part ends, at whatever stage it is.
#[test]
fn the_oldest_half_open_connection_is_evicted() {
    in_frozen_world(settings(), async |world| {
        let mut known = world.connect_from(HERE).expect("admitted");
        known.negotiate(&Offer::default()).await;
        known.log_on("ann").await;
        let mut silent = world.connect_from(HERE).expect("admitted");
        let mut negotiated = world.connect_from(HERE).expect("admitted");
        negotiated.negotiate(&Offer::default()).await;
        let mut halfway = world.connect_from(HERE).expect("admitted");
        halfway.negotiate(&Offer::default()).await;
        let mut exchange = Exchange::new(&halfway, Setup::of("ann"));
        exchange.round(&mut halfway).await.expect(Status::MORE_PROCESSING_REQUIRED);
        let mut rest: Vec<_> = (3..UNAUTHENTICATED_PER_ADDRESS)
            .map(|_| world.connect_from(HERE).expect("admitted"))
            .collect();
        assert!(world.connect_from(HERE).is_none(), "all are young");
        tokio::time::sleep(UNAUTHENTICATED_SPARED).await;
        let start = Instant::now();
        for evicted in [&mut silent, &mut negotiated, &mut halfway] {
            let mut newcomer = world.connect_from(HERE).expect("another is evicted");
            evicted.expect_disconnect().await;
            newcomer.negotiate(&Offer::default()).await;
            newcomer.log_on("bob").await;
            rest.push(world.connect_from(HERE).expect("its place is free again"));
        }
        assert!(start.elapsed() < Duration::from_millis(10), "{:?}", start.elapsed());
        for peer in rest.iter_mut().skip(1) {
            peer.negotiate(&Offer::default()).await;
        }
        known.expect_alive().await;
    });
}

/// An honest client begins before a flood from one address and logs on after it. Others
/// log on meanwhile, also from the flood's own network and address.
#[test]
fn r1_a_flood_from_one_address_shuts_nobody_out() {
    in_frozen_world(settings(), async |world| {
        let mut flood = Vec::new();
        let mut honest = world.connect_from(THERE).expect("admitted");
        honest.negotiate(&Offer::default()).await;
        let mut exchange = Exchange::new(&honest, Setup::of("ann"));
        exchange.round(&mut honest).await.expect(Status::MORE_PROCESSING_REQUIRED);
        for _ in 0..20 {
            flood.extend((0..1_000).filter_map(|_| world.connect_from(HERE)));
            tokio::time::sleep(UNAUTHENTICATED_SPARED).await;
            for address in [HERE, THERE, IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2))] {
                let mut newcomer = world.connect_from(address).expect("admitted");
                let start = Instant::now();
                newcomer.negotiate(&Offer::default()).await;
                newcomer.log_on("bob").await;
                assert!(start.elapsed() < Duration::from_millis(10));
            }
        }
        exchange.round(&mut honest).await.ok();
        honest.expect_alive().await;
        assert!(flood.len() >= 19 * UNAUTHENTICATED_PER_ADDRESS, "{}", flood.len());
    });
}

/// One customer of IPv6 has 256 networks of 64 bits.
#[test]
fn r1_one_customer_of_ipv6_shuts_nobody_out() {
    in_frozen_world(settings(), async |world| {
        let address = |n: u128| {
            let bits = (0x2001_0DB8 << 96) | ((n / 64) << 64) | n;
            IpAddr::V6(std::net::Ipv6Addr::from_bits(bits))
        };
        let attack: Vec<_> = (0..4_600).filter_map(|n| world.connect_from(address(n))).collect();
        for address in [HERE, IpAddr::V6("2001:db8:1::1".parse().unwrap())] {
            let mut newcomer = world.connect_from(address).expect("a newcomer is admitted");
            newcomer.negotiate(&Offer::default()).await;
            newcomer.log_on("ann").await;
        }
        assert!(attack.len() >= UNAUTHENTICATED_PER_56, "{}", attack.len());
    });
}

/// Memory that an account holds beyond the limit refuses no newcomer.
#[test]
fn r1_an_account_that_fills_memory_shuts_nobody_out() {
    in_frozen_world(settings(), async |world| {
        const LIMIT: usize = 64 << 20;
        let ledger = &world.server.ledger;
        ledger.set_limit(LIMIT);
        let frames = ledger.account("bob").charge(Kind::Frame, 2 * LIMIT).unwrap();
        assert!(ledger.is_overdrawn());
        let mut newcomer = world.connect_from(HERE).expect("admitted");
        newcomer.negotiate(&Offer::default()).await;
        newcomer.log_on("ann").await;
        // The eighth of the memory for connections without a logon is used up, so no further one is
        // admitted until it is free.
        let flood = ledger.network(THERE).charge(Kind::Frame, LIMIT / 8).unwrap();
        assert!(world.connect_from(HERE).is_none());
        drop(flood);
        assert!(world.connect_from(HERE).is_some());
        drop(frames);
        assert!(!ledger.is_overdrawn());
    });
}

/// When the server ends the connection, counted from `since`.
async fn ends_after(peer: &mut Peer, since: Instant) -> Duration {
    peer.expect_disconnect().await;
    since.elapsed()
}

fn about(measured: Duration, expected: Duration) -> bool {
    measured >= expected && measured < expected + Duration::from_millis(100)
}

#[test]
fn negotiate_must_come_in_time() {
    in_frozen_world(settings(), async |world| {
        let start = Instant::now();
        let mut silent = world.connect();
        let took = ends_after(&mut silent, start).await;
        assert!(about(took, NEGOTIATE_DEADLINE), "{took:?}");
        // A client that negotiates just before the deadline is accepted.
        let mut late = world.connect();
        tokio::time::sleep(NEGOTIATE_DEADLINE - Duration::from_millis(10)).await;
        late.negotiate(&Offer::default()).await;
    });
}

#[test]
fn authentication_must_come_in_time() {
    in_frozen_world(settings(), async |world| {
        let start = Instant::now();
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        // ECHO and an unfinished logon must not extend the deadline for the logon.
        tokio::time::sleep(Duration::from_secs(20)).await;
        peer.expect_alive().await;
        let mut exchange = Exchange::new(&peer, Setup::of("ann"));
        exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        let took = ends_after(&mut peer, start).await;
        assert!(about(took, AUTHENTICATE_DEADLINE), "{took:?}");
        let mut peer = world.connect();
        tokio::time::sleep(Duration::from_secs(9)).await;
        peer.negotiate(&Offer::default()).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        let logon = peer.log_on("ann").await;
        // A client that has logged on has no deadline.
        tokio::time::sleep(Duration::from_secs(3600)).await;
        peer.mount(&logon, "data").await;
    });
}

/// A frame that has begun must go on.
#[test]
fn a_frame_that_stalls_disconnects() {
    in_frozen_world(settings(), async |world| {
        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        let start = Instant::now();
        peer.send_bytes(&[0, 0, 0, 200, 0xFE]).await;
        let took = ends_after(&mut peer, start).await;
        assert!(about(took, Duration::from_secs(10)), "{took:?}");
        // The client sends one byte every nine seconds, so no pause is too long. The frame as a
        // whole has a deadline and is cut off.
        let (mut peer, _) = world.session("ann", &Offer::default()).await;
        peer.send_bytes(&[0, 0, 0xFF, 0]).await;
        let start = Instant::now();
        for _ in 0..20 {
            peer.send_bytes(&[0]).await;
            tokio::time::sleep(Duration::from_secs(9)).await;
        }
        peer.expect_disconnect().await;
        assert!(start.elapsed() < Duration::from_secs(200));
    });
}

/// R3: a client that asks for data, takes none of it and goes on sending ECHO.
#[test]
fn r3_a_reader_that_takes_nothing_is_disconnected_whatever_it_sends() {
    in_frozen_world(settings(), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        peer.is_strict = false;
        world.file("large", vec![7; 4 << 20]);
        let file = peer.open_file(&mount, &Want::existing("large")).await;
        let read = || mount.put(read_draft(file, 0, 1 << 20).charge(16));
        for _ in 0..4 {
            peer.send(vec![read()], mount.via()).await;
        }
        let start = Instant::now();
        while start.elapsed() < SEND_STALL_TIMEOUT + Duration::from_secs(10) {
            peer.send(vec![Draft::echo()], Via::Plain).await;
            tokio::time::sleep(Duration::from_secs(5)).await;
        }
        // The client has not noticed the disconnect yet, but the server has already closed its
        // files, so another session can open them.
        let (mut other, theirs) = world.session("ann", &Offer::default()).await;
        let alone = Want { sharing: ShareAccess::EMPTY, ..Want::existing("large") };
        let again = other.open_file(&theirs, &alone).await;
        other.close(&theirs, again).await;
        while peer.frame().await.is_some() {}
    });
}

/// Logs on with a wrong password and says how long the answer took.
async fn guess(peer: &mut Peer) -> Duration {
    let start = Instant::now();
    let setup = Setup { password: "wrong".into(), ..Setup::of("ann") };
    peer.try_log_on(setup).await.err().expect("refused").expect(Status::LOGON_FAILURE);
    start.elapsed()
}

#[test]
fn failed_logons_are_slowed() {
    in_frozen_world(settings(), async |world| {
        let mut peer = world.connect_from(HERE).unwrap();
        peer.negotiate(&Offer::default()).await;
        peer.log_on("bob").await;
        let mut expected = LOGON_DELAY;
        for _ in 0..7 {
            let took = guess(&mut peer).await;
            assert!(about(took, expected.min(LOGON_PATIENCE)), "{took:?}, not {expected:?}");
            expected *= 2;
        }
        tokio::time::sleep(LOGON_DELAY_MAX).await;
        // Guesses for "ann" came from this address. Logons from another address, or of another
        // user, are not delayed.
        let mut other = world.connect_from(THERE).unwrap();
        other.negotiate(&Offer::default()).await;
        let start = Instant::now();
        other.log_on("ann").await;
        peer.log_on("bob").await;
        assert!(start.elapsed() < Duration::from_millis(10));
        // A correct password must not reset the delay for the next guess.
        peer.log_on("ann").await;
        assert!(about(guess(&mut peer).await, LOGON_DELAY));
    });
}

/// CVE-2023-32251: many at once, on one connection or on many, gain nothing.
#[test]
fn guesses_at_once_are_answered_one_after_the_other() {
    in_frozen_world(settings(), async |world| {
        let start = Instant::now();
        let mut peers = Vec::new();
        for _ in 0..40 {
            let mut peer = world.connect_from(HERE).unwrap();
            peer.negotiate(&Offer::default()).await;
            peer.log_on("bob").await;
            let setup = Setup { password: "wrong".into(), ..Setup::of("ann") };
            let mut exchange = Exchange::new(&peer, setup);
            exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
            let draft = exchange.setup.draft(&exchange.token, exchange.session_id);
            peer.send(vec![draft], Via::Plain).await;
            peers.push(peer);
        }
        for mut peer in peers {
            peer.reply().await.expect(Status::LOGON_FAILURE);
            assert!(start.elapsed() <= LOGON_PATIENCE + Duration::from_millis(100));
        }
        let heeded = world.server.throttle.guesses();
        assert!(heeded <= 2, "{heeded} guesses were heeded in {LOGON_PATIENCE:?}");
    });
}

/// A controller that says of each user that the password must be changed.
#[derive(Debug)]
struct MustChange;

impl DomainLogons for MustChange {
    fn check(&self, _: &DomainQuestion) -> Result<DomainLogon, Reason> {
        Err(Reason::DomainAccount(AccountFault::MustChange))
    }
}

/// The status of a controller tells that the password is right, so it goes out for attempts that
/// the throttle has let count, and for no others.
#[test]
fn the_status_of_a_controller_waits_for_its_turn() {
    const ATTEMPTS: usize = 6;
    let settings = Settings { passed_on: vec!["FREVO".into()], ..settings() };
    let parts = Server::builder().settings(settings).accounts(Arc::new(Users));
    let server = parts.domain_logons(Arc::new(MustChange)).cores(2).build().unwrap();
    let world = World::of(server, tempfile::tempdir().unwrap());
    in_own_world(true, &world, async |world| {
        let mut peers = Vec::new();
        for number in 0..ATTEMPTS {
            let mut peer = world.connect_from(HERE).unwrap();
            peer.negotiate(&Offer::default()).await;
            let secret = Secret::Password(Zeroizing::new(String::from("secret")));
            let (user, domain) = ("ann".into(), "FREVO".into());
            let credentials = Credentials { user, domain, secret };
            let challenge = [number as u8; 8];
            let session_key = Zeroizing::new([number as u8; 16]);
            let entropy = Entropy { client_challenge: challenge, session_key };
            let initiator = Initiator::new(credentials, Target::default(), entropy);
            let now = Host.now().0;
            let mut exchange = Exchange::with(&peer, Setup::of("ann"), initiator, now);
            exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
            let draft = exchange.setup.draft(&exchange.token, exchange.session_id);
            peer.send(vec![draft], Via::Plain).await;
            peers.push(peer);
        }
        let mut told = 0;
        for mut peer in peers {
            match peer.reply().await.status() {
                Status::PASSWORD_MUST_CHANGE => told += 1,
                status => assert_eq!(status, Status::LOGON_FAILURE),
            }
        }
        assert!((1..ATTEMPTS).contains(&told), "{told}");
        assert_eq!(world.server.throttle.guesses(), told as u64);
    });
}

/// A user without a session has no quicker guess at a password than by a logon.
#[test]
fn own_passwords_are_guessed_as_slowly_as_by_logons() {
    in_frozen_world(settings(), async |world| {
        let change = async |user: &str, present: String| {
            let text = |text: String| Zeroizing::new(text);
            let (present, new) = (text(present), text(String::from("new")));
            let wanted = OwnPassword { user: user.to_owned(), present, new, address: HERE };
            let start = Instant::now();
            (world.embedded.change_own_password(wanted).await, start.elapsed())
        };
        // These accounts keep no passwords, which only the right one tells.
        let (done, took) = change("Ann", password("ann")).await;
        assert_eq!(done, Err(NotOwn::NotKept));
        assert!(took < LOGON_DELAY);
        for (user, present) in [("ann", "wrong"), ("nobody", "wrong")] {
            let (done, took) = change(user, present.to_owned()).await;
            assert_eq!(done, Err(NotOwn::Wrong), "{user}");
            assert!(about(took, LOGON_DELAY), "{user} {took:?}");
        }
        let (done, took) = change("carol", password("carol")).await;
        assert_eq!(done, Err(NotOwn::Forbidden(AccountFault::Disabled)));
        assert!(about(took, LOGON_DELAY), "{took:?}");
        // The guesses of a page and those of logons are counted together.
        assert_eq!(world.server.throttle.guesses(), 3);
    });
}

#[test]
fn sessions_of_a_connection_are_limited() {
    in_frozen_world(settings(), async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let mut first = None;
        for _ in 0..SESSIONS_PER_CONNECTION {
            first = Some(peer.log_on("ann").await);
        }
        let refused = peer.try_log_on(Setup::of("ann")).await.err().expect("refused");
        refused.expect(Status::INSUFFICIENT_RESOURCES);
        let last = first.unwrap();
        peer.ask(Draft::empty(Command::LOGOFF).session(last.id), last.via()).await.ok();
        peer.log_on("ann").await;
    });
}

#[test]
fn tree_connects_of_a_session_are_limited() {
    in_frozen_world(settings(), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for _ in 1..TREES_PER_SESSION {
            peer.mount(&mount.logon, "data").await;
        }
        let refused = peer.try_mount(&mount.logon, "data").await.err().expect("refused");
        refused.expect(Status::INSUFFICIENT_RESOURCES);
        peer.on(&mount, Draft::empty(Command::TREE_DISCONNECT)).await.ok();
        peer.mount(&mount.logon, "data").await;
    });
}

/// Half a logon, over and over, on a connection that is authenticated.
#[test]
fn unfinished_logons_are_limited() {
    in_frozen_world(settings(), async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        for _ in 1..SESSIONS_PER_CONNECTION {
            let mut exchange = Exchange::new(&peer, Setup::of("ann"));
            exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        }
        let mut exchange = Exchange::new(&peer, Setup::of("ann"));
        exchange.round(&mut peer).await.expect(Status::INSUFFICIENT_RESOURCES);
        peer.open_file(&mount, &Want::file("f")).await;
    });
}

/// A stranger's connection gets few: all that strangers may have together leave
/// room for those who log on.
#[test]
fn a_stranger_begins_few_logons() {
    in_frozen_world(settings(), async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        let mut last = None;
        for _ in 0..SESSIONS_BEFORE_AUTHENTICATION {
            let mut exchange = Exchange::new(&peer, Setup::of("ann"));
            exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
            last = Some(exchange);
        }
        let mut one_more = Exchange::new(&peer, Setup::of("ann"));
        one_more.round(&mut peer).await.expect(Status::INSUFFICIENT_RESOURCES);
        // One logon has succeeded, so the connection has room to begin another one.
        last.unwrap().round(&mut peer).await.ok();
        let mut one_more = Exchange::new(&peer, Setup::of("ann"));
        one_more.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
    });
}

/// MS-SMB2 3.3.6.3: a connection whose last session has ended is a stranger's
/// again, and has as much time as one.
#[test]
fn a_connection_without_a_session_ends() {
    in_frozen_world(settings(), async |world| {
        let mut peer = world.connect();
        peer.negotiate(&Offer::default()).await;
        for _ in 0..2 {
            let logon = peer.log_on("ann").await;
            tokio::time::sleep(AUTHENTICATE_DEADLINE * 2).await;
            peer.ask(Draft::empty(Command::LOGOFF).session(logon.id), logon.via()).await.ok();
            tokio::time::sleep(AUTHENTICATE_DEADLINE / 2).await;
            peer.expect_alive().await;
        }
        // A logon that is begun but never finished must not extend the deadline.
        let mut exchange = Exchange::new(&peer, Setup::of("ann"));
        exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        let began = Instant::now();
        peer.expect_disconnect().await;
        assert!(began.elapsed() <= AUTHENTICATE_DEADLINE / 2 + Duration::from_millis(2));
    });
}
