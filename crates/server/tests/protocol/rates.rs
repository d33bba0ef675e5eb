//! Limits of rate: requests over a limit wait, and nobody else notices.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::client::draft::pack;
use crate::client::files::{
    close_draft, flush_draft, lock_draft, read_draft, set_draft, write_draft,
};
use crate::client::world::{EXCLUSIVE, Users, in_own_world, serving};
use crate::client::*;
use crate::sessions::become_nobody;
use frevo_auth::{Account, Accounts, Membership};
use frevo_posix::{PosixOptions, PosixVfs};
use frevo_server::access_rules::Names;
use frevo_server::ambient::Host;
use frevo_server::internal::limits::{
    HELD_BACK_BYTES, HELD_BACK_CREDITS, HELD_BACK_PER_CONNECTION, MAX_IO, WAITING_PER_CONNECTION,
};
use frevo_server::internal::state::Kind;
use frevo_server::rate_rules::{Each, RateRule};
use frevo_server::share::Share;
use frevo_server::{RateStatus, Reload};
use frevo_wire::command::lock::LockFlags;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use tokio::time::{Instant, sleep, timeout};

const MIB: u64 = 1 << 20;

/// Bytes of a READ or WRITE.
const PIECE: u32 = 256 << 10;

fn rule(name: &str) -> RateRule {
    let shares = vec![String::from("data")];
    RateRule { shares, burst: Duration::from_millis(10), ..RateRule::new(name) }
}

fn with(rates: impl IntoIterator<Item = RateRule>) -> Settings {
    Settings { rates: rates.into_iter().collect(), ..settings() }
}

fn near(time: Duration, seconds: f64) -> bool {
    (time.as_secs_f64() - seconds).abs() <= seconds * 0.03
}

fn rates(world: &World) -> Vec<RateStatus> {
    world.embedded.rate_status()
}

/// Sends requests, each in a frame of its own.
async fn send_each(peer: &mut Peer, mount: &Mount, draft: &Draft, count: usize) -> Vec<u64> {
    let mut ids = Vec::new();
    for _ in 0..count {
        ids.extend(peer.send(vec![mount.put(draft.clone())], mount.via()).await);
    }
    ids
}

/// A client with a file of a mebibyte, opened before anything is limited by bytes.
async fn arrive(world: &World, user: &str) -> (Peer, Mount, FileId) {
    world.file("f", vec![7; MIB as usize]);
    let (mut peer, mount) = world.session(user, &Offer::default()).await;
    let file = peer.open_file(&mount, &Want::existing("f")).await;
    (peer, mount, file)
}

#[test]
fn reads_writes_and_operations_keep_their_limits() {
    let limits =
        RateRule { read: Some(MIB), write: Some(2 * MIB), operations: Some(20), ..rule("all") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        let began = Instant::now();
        for _ in 0..40 {
            assert_eq!(peer.read(&mount, file, 0, PIECE).await.len(), PIECE as usize);
        }
        assert!(near(began.elapsed(), 10.0), "reads: {:?}", began.elapsed());
        let began = Instant::now();
        for _ in 0..80 {
            peer.write(&mount, file, 0, &[1; PIECE as usize]).await;
        }
        assert!(near(began.elapsed(), 10.0), "writes: {:?}", began.elapsed());
        let began = Instant::now();
        for _ in 0..200 {
            peer.on(&mount, flush_draft(file)).await.ok();
        }
        assert!(near(began.elapsed(), 10.0), "operations: {:?}", began.elapsed());
        let [rate] = &rates(world)[..] else { panic!("one limit") };
        assert_eq!((&*rate.name, rate.read, rate.waiting), ("all", Some(MIB), 0));
        assert!(rate.held > 300 && rate.held_us > 29_000_000, "{rate:?}");
        peer.close(&mount, file).await;
    });
}

/// A READ behind the end of its file counts for what it has read.
#[test]
fn data_that_is_not_there_does_not_count() {
    let limits = RateRule { read: Some(MIB), ..rule("reads") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        let began = Instant::now();
        for _ in 0..20 {
            let read = peer.on(&mount, read_draft(file, 2 * MIB, PIECE)).await;
            read.expect(Status::END_OF_FILE);
        }
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    });
}

/// Nothing is paid for a failure; a READ that withholds data it has read is paid for.
#[test]
fn failures_give_their_bytes_back() {
    let limits = RateRule { read: Some(MIB), write: Some(MIB), ..rule("all") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, _) = arrive(world, "ann").await;
        let want = Want::existing("f").access(AccessMask::READ_DATA);
        let file = peer.open_file(&mount, &want).await;
        let began = Instant::now();
        for _ in 0..20 {
            let write = write_draft(file, 0, &[1; PIECE as usize]);
            peer.on(&mount, write).await.expect(Status::ACCESS_DENIED);
        }
        assert!(began.elapsed() < Duration::from_secs(1), "writes: {:?}", began.elapsed());
        let began = Instant::now();
        // Of 128 KiB at the end it wants 256 KiB at least.
        let offset = MIB - u64::from(PIECE / 2);
        let read = read_draft(file, offset, PIECE).patch(64 + 32, &PIECE.to_le_bytes());
        for _ in 0..20 {
            peer.on(&mount, read.clone()).await.expect(Status::END_OF_FILE);
        }
        assert!(near(began.elapsed(), 4.75), "reads: {:?}", began.elapsed());
    });
}

/// A request that is cancelled before one limit has not used up another.
#[test]
fn a_cancelled_request_gives_everything_back() {
    let limits = RateRule { write: Some(64 << 10), operations: Some(1), ..rule("all") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        sleep(Duration::from_secs(10)).await;
        peer.write(&mount, file, 0, &[1; 1 << 20]).await;
        sleep(Duration::from_secs(2)).await;
        let id = send_each(&mut peer, &mount, &write_draft(file, 0, &[2; 100]), 1).await[0];
        peer.interim().await;
        peer.send_frame(&pack(&[Peer::cancel(id, None, mount.logon.id)], mount.via())).await;
        peer.final_reply(id).await.expect(Status::CANCELLED);
        let began = Instant::now();
        peer.on(&mount, flush_draft(file)).await.ok();
        assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
    });
}

#[test]
fn a_neighbour_notices_nothing() {
    let limits = RateRule { users: Names::users(&["ann"]), read: Some(MIB), ..rule("ann") };
    in_frozen_world(with([limits]), async |world| {
        let (mut ann, mount, file) = arrive(world, "ann").await;
        let (mut bob, bobs, theirs) = arrive(world, "bob").await;
        ann.expect_alive().await;
        let ids = send_each(&mut ann, &mount, &read_draft(file, 0, PIECE), 30).await;
        let began = Instant::now();
        for _ in 0..30 {
            bob.read(&bobs, theirs, 0, PIECE).await;
        }
        assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
        ann.collect(&ids).await.iter().for_each(|reply| _ = reply.ok());
        // The first one passes at once.
        assert!(near(began.elapsed(), 7.25), "{:?}", began.elapsed());
    });
}

/// Each user has the limits on its own, with all its sessions, and still owes when it logs on again.
#[test]
fn each_user_has_the_limits_on_its_own() {
    let limits = RateRule { each: Some(Each::User), read: Some(MIB), ..rule("fair") };
    in_frozen_world(with([limits]), async |world| {
        let (mut ann, first, file) = arrive(world, "ann").await;
        let (mut again, second, same) = arrive(world, "ann").await;
        let (mut bob, bobs, theirs) = arrive(world, "bob").await;
        let reads = async |peer: &mut Peer, mount: &Mount, file| {
            let began = Instant::now();
            for _ in 0..20 {
                peer.read(mount, file, 0, PIECE).await;
            }
            began.elapsed()
        };
        let took = tokio::join!(
            reads(&mut ann, &first, file),
            reads(&mut again, &second, same),
            reads(&mut bob, &bobs, theirs)
        );
        // The first READ of an account passes at once.
        let anns = took.0.max(took.1);
        assert!(near(anns, 9.75) && near(took.2, 4.75), "{took:?}");
        let [rate] = &rates(world)[..] else { panic!("one limit") };
        assert_eq!((rate.each, rate.buckets), (Some("user"), 2));
        assert_eq!(world.server.ledger.count(Kind::RateBucket), 2);
        ann.read(&first, file, 0, MIB as u32).await;
        drop((ann, again));
        while world.server.ledger.count(Kind::RateBucket) > 1 {
            sleep(Duration::from_millis(1)).await;
        }
        let began = Instant::now();
        let (mut ann, third, file) = arrive(world, "ann").await;
        ann.read(&third, file, 0, PIECE).await;
        assert!(began.elapsed() > Duration::from_millis(900), "{:?}", began.elapsed());
    });
}

/// Requests that wait for a limit of their user hold nothing of a limit that all share.
#[test]
fn who_waits_for_an_own_limit_holds_nothing_of_a_common_one() {
    let common = RateRule { write: Some(MIB), ..rule("common") };
    let own = RateRule { each: Some(Each::User), write: Some(64 << 10), ..rule("own") };
    in_frozen_world(with([common, own]), async |world| {
        let (mut ann, anns, file) = arrive(world, "ann").await;
        let (mut bob, bobs, theirs) = arrive(world, "bob").await;
        ann.asks = 1_000;
        ann.write(&anns, file, 0, &[1; MIB as usize]).await;
        sleep(Duration::from_secs(2)).await;
        send_each(&mut ann, &anns, &write_draft(file, 0, &[2; MIB as usize]), 8).await;
        sleep(Duration::from_millis(500)).await;
        assert_eq!(rates(world)[1].waiting, 8);
        let began = Instant::now();
        bob.write(&bobs, theirs, 0, &[3; PIECE as usize]).await;
        assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
        drop(ann);
    });
}

/// An account that goes on as nobody keeps its limits.
#[test]
fn becoming_anonymous_ends_no_limit() {
    let limits = RateRule { users: Names::users(&["ann"]), read: Some(MIB), ..rule("ann") };
    in_frozen_world(Settings { anonymous: true, ..with([limits]) }, async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        become_nobody(&mut peer, mount.logon.id, mount.via()).await.ok();
        let began = Instant::now();
        for _ in 0..40 {
            peer.read(&mount, file, 0, PIECE).await;
        }
        assert!(near(began.elapsed(), 9.75), "{:?}", began.elapsed());
    });
}

/// An account of which a group changes.
#[derive(Debug, Default)]
struct Changing(AtomicBool);

impl Accounts for Changing {
    fn account(&self, user: &str, domain: &str) -> Option<Account> {
        Users.account(user, domain)
    }

    fn membership(&self, user: &str) -> Option<Membership> {
        let is_member = self.0.load(Ordering::Relaxed);
        let groups = if is_member { vec![String::from("staff")] } else { Vec::new() };
        Some(Membership { name: user.to_owned(), groups, ..Membership::default() })
    }
}

/// The groups of an authentication choose the rules from the next request on.
#[test]
fn authentication_anew_chooses_the_rules_again() {
    let dir = tempfile::tempdir().unwrap();
    let vfs = PosixVfs::open_root(dir.path(), PosixOptions::default()).unwrap();
    let accounts = Arc::new(Changing::default());
    let limits = RateRule { users: Names::of(["@staff"]), read: Some(64 << 10), ..rule("staff") };
    let shares = [Share::disk("data", Arc::new(vfs))];
    let server = serving(with([limits]), shares, Arc::<Changing>::clone(&accounts), Arc::new(Host));
    in_own_world(true, &World::of(server, dir), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        let mut reads = async |is_member: bool, seconds: f64| {
            accounts.0.store(is_member, Ordering::Relaxed);
            peer.log_on_again(Setup::again("ann", &mount.logon)).await.ok();
            let began = Instant::now();
            for _ in 0..3 {
                peer.read(&mount, file, 0, MIB as u32).await;
            }
            let took = began.elapsed().as_secs_f64();
            assert!((took - seconds).abs() <= 1.0, "{is_member}: {took}");
        };
        reads(false, 0.0).await;
        reads(true, 32.0).await;
        reads(false, 0.0).await;
    });
}

/// A SET_INFO that waits for a limit is announced, and can be cancelled, as other requests.
#[test]
fn a_wait_of_set_info_is_announced() {
    let limits = RateRule { operations: Some(1), ..rule("operations") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        sleep(Duration::from_secs(2)).await;
        peer.on(&mount, flush_draft(file)).await.ok();
        let end = |bytes: u64| set_draft(FileInfoClass::END_OF_FILE, file, &bytes.to_le_bytes());
        let mut sent = Vec::new();
        for draft in [end(1), end(2)] {
            sent.extend(peer.send(vec![mount.put(draft)], mount.via()).await);
            let interim = peer.interim().await;
            assert_eq!(Some(&interim.header.message_id), sent.last());
        }
        peer.send_frame(&pack(&[Peer::cancel(sent[1], None, mount.logon.id)], mount.via())).await;
        peer.final_reply(sent[1]).await.expect(Status::CANCELLED);
        peer.final_reply(sent[0]).await.ok();
        assert_eq!(world.content("f").len(), 1);
        // One that is answered soon is not announced.
        sleep(Duration::from_millis(920)).await;
        let id = peer.send(vec![mount.put(end(3))], mount.via()).await[0];
        let reply = peer.reply().await;
        assert!(reply.header.message_id == id && !reply.is_interim());
        reply.ok();
    });
}

#[test]
fn sessions_share_a_limit_by_weight() {
    let all = RateRule { read: Some(4 * MIB), ..rule("all") };
    let bobs = RateRule { users: Names::users(&["bob"]), weight: Some(3), ..rule("bobs") };
    in_frozen_world(with([all, bobs]), async |world| {
        let (mut ann, anns, file) = arrive(world, "ann").await;
        let (mut bob, bobs, theirs) = arrive(world, "bob").await;
        let until = Instant::now() + Duration::from_secs(20);
        let reads = async |peer: &mut Peer, mount: &Mount, file| {
            let mut count = 0;
            while Instant::now() < until {
                peer.read(mount, file, 0, PIECE).await;
                count += 1;
            }
            f64::from(count)
        };
        let (light, heavy) =
            tokio::join!(reads(&mut ann, &anns, file), reads(&mut bob, &bobs, theirs));
        assert!((heavy - light * 3.0).abs() <= light * 0.3, "{light} and {heavy}");
        let sum = (light + heavy) * f64::from(PIECE);
        assert!((sum - 80.0 * MIB as f64).abs() <= 0.03 * 80.0 * MIB as f64, "{sum}");
    });
}

/// A request that gives something back, or asks if the server lives, is answered while others wait.
#[test]
fn a_request_that_waits_holds_nothing_else_up() {
    let limits = RateRule { write: Some(64 << 10), ..rule("slow") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        let other = peer.open_file(&mount, &Want::existing("f")).await;
        // The first one passes, and is owed for 16 seconds.
        peer.write(&mount, file, 0, &[1; 1 << 20]).await;
        let began = Instant::now();
        let ids = send_each(&mut peer, &mount, &write_draft(file, 0, &[2; 100]), 3).await;
        for id in &ids {
            let interim = peer.interim().await;
            assert_eq!(interim.header.message_id, *id);
        }
        peer.expect_alive().await;
        peer.on(&mount, close_draft(other)).await.ok();
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        assert_eq!(rates(world)[0].waiting, 3);
        // A WRITE that waits can be cancelled, and has changed nothing.
        let cancel = Peer::cancel(ids[1], None, mount.logon.id);
        peer.send_frame(&pack(&[cancel], mount.via())).await;
        peer.final_reply(ids[1]).await.expect(Status::CANCELLED);
        assert_eq!(rates(world)[0].waiting, 2);
        peer.collect(&[ids[0], ids[2]]).await.iter().for_each(|reply| _ = reply.ok());
        assert!(near(began.elapsed(), 16.0), "{:?}", began.elapsed());
    });
}

#[test]
fn a_reload_changes_limits_for_those_that_wait() {
    let limits = |read| RateRule { read: Some(read), ..rule("reads") };
    in_frozen_world(with([limits(64 << 10)]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        peer.read(&mount, file, 0, 1 << 20).await;
        let began = Instant::now();
        let ids = send_each(&mut peer, &mount, &read_draft(file, 0, PIECE), 8).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(rates(world)[0].waiting, 8);
        world.embedded.reload(Reload::new().settings(with([limits(MIB)])));
        peer.collect(&ids).await.iter().for_each(|reply| _ = reply.ok());
        // The first one passes at once, the others by the new limit.
        assert!(near(began.elapsed(), 1.0 + 1.75), "{:?}", began.elapsed());
        let ids = send_each(&mut peer, &mount, &read_draft(file, 0, PIECE), 8).await;
        sleep(Duration::from_millis(10)).await;
        let began = Instant::now();
        world.embedded.reload(Reload::new().settings(with([])));
        peer.collect(&ids).await.iter().for_each(|reply| _ = reply.ok());
        assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
        assert!(rates(world).is_empty());
    });
}

/// The end of the world looks for what is left of it.
#[test]
fn a_client_that_goes_while_it_waits_leaves_nothing() {
    let limits = RateRule { read: Some(64 << 10), ..rule("reads") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        peer.read(&mount, file, 0, 1 << 20).await;
        send_each(&mut peer, &mount, &read_draft(file, 0, PIECE), 20).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(rates(world)[0].waiting, 20);
        let began = Instant::now();
        drop(peer);
        while rates(world)[0].waiting > 0 {
            sleep(Duration::from_millis(1)).await;
        }
        assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
    });
}

/// A client that goes is noticed also while nothing is read.
async fn leave_held_back(world: &World, peer: Peer) {
    let began = Instant::now();
    drop(peer);
    while rates(world)[0].waiting > 0 {
        sleep(Duration::from_millis(1)).await;
    }
    assert!(began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
}

/// A single WRITE of the greatest length that waits does not keep the connection from being read.
#[test]
fn behind_the_largest_write_that_waits_others_come_through() {
    let limits = RateRule { write: Some(64 << 10), ..rule("writes") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        let other = peer.open_file(&mount, &Want::existing("f")).await;
        peer.asks = 1_000;
        peer.write(&mount, file, 0, &[1; 1 << 20]).await;
        peer.asks = 1;
        let write = write_draft(file, 0, &[2; MAX_IO as usize]);
        let id = send_each(&mut peer, &mount, &write, 1).await[0];
        peer.interim().await;
        let began = Instant::now();
        peer.expect_alive().await;
        peer.on(&mount, close_draft(other)).await.ok();
        peer.send_frame(&pack(&[Peer::cancel(id, None, mount.logon.id)], mount.via())).await;
        peer.final_reply(id).await.expect(Status::CANCELLED);
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    });
}

/// Where no further wait can be announced, a WRITE waits without that, and does not fail.
#[test]
fn a_write_waits_also_where_no_further_wait_is_announced() {
    let limits = RateRule { write: Some(64 << 10), ..rule("writes") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        let other = peer.open_file(&mount, &Want::existing("f")).await;
        peer.on(&mount, lock_draft(file, &[(0, 1, EXCLUSIVE)])).await.ok();
        peer.asks = 2_048;
        let lock = lock_draft(other, &[(0, 1, LockFlags::EXCLUSIVE_LOCK)]);
        for _ in 0..WAITING_PER_CONNECTION {
            send_each(&mut peer, &mount, &lock, 1).await;
            peer.interim().await;
        }
        peer.write(&mount, file, 0, &[1; 1 << 20]).await;
        let began = Instant::now();
        peer.write(&mount, file, 0, &[2; 100]).await;
        assert!(near(began.elapsed(), 16.0), "{:?}", began.elapsed());
        // A READ, too, waits if it is for a limit alone.
        let limits = RateRule { read: Some(64 << 10), ..rule("reads") };
        world.embedded.reload(Reload::new().settings(with([limits])));
        peer.read(&mount, file, 0, 1 << 20).await;
        let began = Instant::now();
        peer.read(&mount, file, 0, 100).await;
        assert!(near(began.elapsed(), 16.0), "{:?}", began.elapsed());
    });
}

/// The end of a file ends a wait in the middle of a compound, too, of which no interim response can be sent.
#[test]
fn a_close_ends_a_wait_within_a_compound() {
    let limits = RateRule { write: Some(64 << 10), ..rule("writes") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        peer.write(&mount, file, 0, &[1; 1 << 20]).await;
        let writes = [2, 3].map(|byte| mount.put(write_draft(file, 0, &[byte; 100])));
        let ids = peer.send(writes.to_vec(), mount.via()).await;
        sleep(Duration::from_secs(1)).await;
        assert_eq!(rates(world)[0].waiting, 1);
        let began = Instant::now();
        let close = peer.send(vec![mount.put(close_draft(file))], mount.via()).await[0];
        let mut ends = vec![ids[0], ids[1], close];
        while !ends.is_empty() {
            for reply in peer.replies().await.expect("replies") {
                ends.retain(|id| *id != reply.header.message_id);
            }
        }
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
    });
}

#[test]
fn so_many_requests_of_a_connection_are_held_back() {
    let limits = RateRule { operations: Some(100), ..rule("operations") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        peer.asks = 4 * HELD_BACK_CREDITS;
        peer.expect_alive().await;
        peer.asks = 1;
        let flushes = 2 * HELD_BACK_PER_CONNECTION;
        send_each(&mut peer, &mount, &flush_draft(file), flushes).await;
        let mut most = 0;
        for _ in 0..50 {
            sleep(Duration::from_millis(1)).await;
            most = rates(world)[0].waiting.max(most);
        }
        // A message that has begun to come is received.
        assert!(
            (HELD_BACK_PER_CONNECTION..=HELD_BACK_PER_CONNECTION + 1).contains(&most),
            "{most}"
        );
        leave_held_back(world, peer).await;
    });
}

#[test]
fn so_many_bytes_of_a_connection_are_held_back() {
    let limits = RateRule { write: Some(64 << 10), ..rule("writes") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        peer.asks = 1_000;
        peer.write(&mount, file, 0, &[1; 1 << 20]).await;
        let write = write_draft(file, 0, &[2; 1 << 20]);
        // Messages that are not read do not leave the client.
        let count = (4 * HELD_BACK_BYTES) >> 20;
        let sent = timeout(Duration::from_secs(1), send_each(&mut peer, &mount, &write, count));
        assert!(sent.await.is_err(), "{:?}", rates(world));
        // Messages that have come, or begun to come, go on: other threads check their signatures.
        let most = HELD_BACK_BYTES >> 20;
        assert!((most..most + 8).contains(&rates(world)[0].waiting), "{:?}", rates(world));
        leave_held_back(world, peer).await;
    });
}

/// A client that asks for many credits has few while it is held back, and many again afterwards.
#[test]
fn credits_are_few_while_requests_wait() {
    let limits = RateRule { operations: Some(100), ..rule("operations") };
    in_frozen_world(with([limits]), async |world| {
        let (mut peer, mount, file) = arrive(world, "ann").await;
        peer.asks = 1_000;
        let ids = send_each(&mut peer, &mount, &flush_draft(file), 50).await;
        let before = peer.credits;
        let echo = peer.send(vec![Draft::echo()], Via::Plain).await[0];
        loop {
            let reply = peer.reply().await;
            if rates(world)[0].waiting > 0 {
                let most = before.max(u64::from(HELD_BACK_CREDITS));
                assert!(peer.credits <= most, "{} and {before}", peer.credits);
                assert!(reply.header.credits <= HELD_BACK_CREDITS);
            }
            if reply.header.message_id == ids[49] && !reply.is_interim() {
                break;
            }
            assert_ne!((reply.header.message_id, reply.header.credits), (echo, 1_000));
        }
        peer.expect_alive().await;
        assert!(peer.credits >= 1_000, "{}", peer.credits);
    });
}
