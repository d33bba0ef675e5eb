//! R4: what one account and one address may have, at n - 1, n and n + 1, and idle
//! sessions. Others are not touched by it.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use frevo_server::internal::limits::{IDLE_LOOK, IDLE_SESSION_MINUTES};
use frevo_server::internal::state::{Kind, watch_idle_sessions};
use frevo_server::settings::Settings;
use frevo_wire::command::create::ShareAccess;
use tokio::time::sleep;

use crate::client::files::{close_draft, file_id, lock_draft, tree_connect_draft};
use crate::client::logon::Exchange;
use crate::client::world::EXCLUSIVE;
use crate::client::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1));

#[test]
fn r4_an_account_has_so_many_opens() {
    in_world(async |world| {
        let ledger = &world.server.ledger;
        ledger.set_most(Kind::Open, Some(3), None);
        let (mut one, first) = world.session("ann", &Offer::default()).await;
        let (mut two, second) = world.session("ANN", &Offer::default()).await;
        let mut files = Vec::new();
        for name in ["a", "b", "c"] {
            files.push(one.open_file(&first, &Want::file(name)).await);
        }
        // The account's limit is reached, so one more CREATE in each session is refused and makes
        // nothing.
        for (peer, mount) in [(&mut one, &first), (&mut two, &second)] {
            peer.create(mount, &Want::file("d")).await.expect(Status::INSUFFICIENT_RESOURCES);
            assert!(!world.path("d").exists());
            let pipe = peer.mount(&mount.logon, "IPC$").await;
            let reply = peer.create(&pipe, &Want::existing("srvsvc")).await;
            reply.expect(Status::INSUFFICIENT_RESOURCES);
        }
        let (mut bob, theirs) = world.session("bob", &Offer::default()).await;
        let own = bob.open_file(&theirs, &Want::file("bobs")).await;
        bob.close(&theirs, own).await;
        one.close(&first, files.remove(0)).await;
        let again = two.open_file(&second, &Want::file("d")).await;
        two.create(&second, &Want::file("e")).await.expect(Status::INSUFFICIENT_RESOURCES);
        // The Opens of a connection end with it, so the account may open as many files again.
        drop(one);
        while ledger.account("ann").count(Kind::Open) > 1 {
            tokio::task::yield_now().await;
        }
        two.open_file(&second, &Want::file("e")).await;
        two.close(&second, again).await;
    });
}

#[test]
fn r4_an_account_has_so_many_tree_connects_and_locks() {
    in_world(async |world| {
        let ledger = &world.server.ledger;
        let (mut one, first) = world.session("ann", &Offer::default()).await;
        let (mut two, second) = world.session("ann", &Offer::default()).await;
        ledger.set_most(Kind::TreeConnect, Some(4), None);
        one.mount(&first.logon, "data").await;
        two.mount(&second.logon, "data").await;
        for (peer, mount) in [(&mut one, &first), (&mut two, &second)] {
            let draft = tree_connect_draft("\\\\host\\data");
            let reply = peer.ask(draft.session(mount.logon.id), mount.via()).await;
            reply.expect(Status::INSUFFICIENT_RESOURCES);
        }
        ledger.set_most(Kind::TreeConnect, None, None);
        ledger.set_most(Kind::Lock, Some(3), None);
        let file = one.open_file(&first, &Want::file("f")).await;
        let other = two.open_file(&second, &Want::file("f")).await;
        let at = |offset| lock_draft(file, &[(offset, 1, EXCLUSIVE)]);
        for offset in 0..3 {
            one.on(&first, at(offset)).await.ok();
        }
        one.on(&first, at(3)).await.expect(Status::INSUFFICIENT_RESOURCES);
        let theirs = lock_draft(other, &[(9, 1, EXCLUSIVE)]);
        two.on(&second, theirs).await.expect(Status::INSUFFICIENT_RESOURCES);
        one.close(&first, file).await;
        let theirs = lock_draft(other, &[(9, 1, EXCLUSIVE)]);
        two.on(&second, theirs).await.ok();
    });
}

#[test]
fn r4_an_account_has_so_many_sessions_and_connections() {
    in_world(async |world| {
        let ledger = &world.server.ledger;
        for kind in [Kind::Session, Kind::Connection] {
            ledger.set_most(kind, Some(3), None);
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(world.session("ann", &Offer::default()).await);
            }
            let mut late = world.connect();
            late.negotiate(&Offer::default()).await;
            let refused = late.try_log_on(Setup::of("ann")).await.err().expect("refused");
            refused.expect(Status::REQUEST_NOT_ACCEPTED);
            world.session("bob", &Offer::default()).await;
            drop(held.pop());
            while ledger.account("ann").count(kind) > 2 {
                tokio::task::yield_now().await;
            }
            late.log_on("ann").await;
            drop((late, held));
            while ledger.account("ann").count(kind) > 0 {
                tokio::task::yield_now().await;
            }
            ledger.set_most(kind, None, None);
        }
    });
}

#[test]
fn r4_an_address_has_so_many_connections_and_sessions() {
    in_world(async |world| {
        let ledger = &world.server.ledger;
        ledger.set_most(Kind::Connection, None, Some(3));
        let mut held = Vec::new();
        for _ in 0..3 {
            let mut peer = world.connect_from(HERE).unwrap();
            peer.negotiate(&Offer::default()).await;
            peer.log_on("ann").await;
            held.push(peer);
        }
        let mut late = world.connect_from(HERE).unwrap();
        late.expect_disconnect().await;
        world.connect_from(IpAddr::V4(Ipv4Addr::new(198, 51, 100, 7))).unwrap();
        ledger.set_most(Kind::Connection, None, None);
        ledger.set_most(Kind::Session, None, Some(3));
        let mut late = world.connect_from(HERE).unwrap();
        late.negotiate(&Offer::default()).await;
        let refused = late.try_log_on(Setup::of("bob")).await.err().expect("refused");
        refused.expect(Status::INSUFFICIENT_RESOURCES);
        held.pop();
        while ledger.network(HERE).count(Kind::Session) > 2 {
            tokio::task::yield_now().await;
        }
        late.log_on("bob").await;
    });
}

/// Logons on connections of one account that are never finished took all places of its network.
#[test]
fn r4_unfinished_logons_count_for_the_account_of_their_connection() {
    in_world(async |world| {
        let ledger = &world.server.ledger;
        ledger.set_most(Kind::Session, Some(4), None);
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let mut begun = Vec::new();
        for _ in 1..4 {
            let mut exchange = Exchange::new(&peer, Setup::of("bob"));
            exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
            begun.push(exchange);
        }
        let mut exchange = Exchange::new(&peer, Setup::of("ann"));
        exchange.round(&mut peer).await.expect(Status::REQUEST_NOT_ACCEPTED);
        let (_other, _) = world.session("bob", &Offer::default()).await;
        // A session that has logged on is its own account's, and the place is free again.
        let counts = || ["ann", "bob"].map(|user| ledger.account(user).count(Kind::Session));
        let [anns, bobs] = counts();
        begun.remove(0).round(&mut peer).await.ok();
        assert_eq!(counts(), [anns - 1, bobs + 1]);
        let mut exchange = Exchange::new(&peer, Setup::of("ann"));
        exchange.round(&mut peer).await.expect(Status::MORE_PROCESSING_REQUIRED);
        exchange.round(&mut peer).await.ok();
        assert_eq!(counts(), [anns, bobs + 1]);
        peer.open_file(&mount, &Want::file("f")).await;
        ledger.set_most(Kind::Session, None, None);
    });
}

/// Asks for something that belongs to the session and opens nothing.
async fn ask(peer: &mut Peer, mount: &Mount) {
    peer.create(mount, &Want::existing("absent")).await.expect(Status::OBJECT_NAME_NOT_FOUND);
}

const IDLE: Duration = Duration::from_secs(60 * IDLE_SESSION_MINUTES as u64);

/// MS-SMB2 3.3.5.2.8: requests of the session count, an ECHO of nobody does not.
#[test]
fn r4_an_idle_session_ends_and_its_connection_with_it() {
    in_frozen_world(settings(), async |world| {
        let watch = tokio::task::spawn_local(watch_idle_sessions(Arc::clone(&world.server)));
        let (mut idle, _) = world.session("ann", &Offer::default()).await;
        let (mut busy, busys) = world.session("ann", &Offer::default()).await;
        let (mut holder, holders) = world.session("ann", &Offer::default()).await;
        let file = holder.open_file(&holders, &Want::file("held")).await;
        let before = world.server.sessions().len();
        for minute in 0..IDLE_SESSION_MINUTES - 1 {
            sleep(Duration::from_secs(60)).await;
            idle.expect_alive().await;
            if minute % 10 == 9 {
                ask(&mut busy, &busys).await;
            }
        }
        assert_eq!(world.server.sessions().len(), before, "not before its time");
        sleep(Duration::from_secs(60) + IDLE_LOOK * 2).await;
        idle.expect_disconnect().await;
        assert_eq!(world.server.sessions().len(), before - 1);
        ask(&mut busy, &busys).await;
        sleep(IDLE * 4).await;
        busy.expect_disconnect().await;
        // An open file keeps its session alive. After its close, the session ends when it has been
        // idle for long enough.
        holder.on(&holders, close_draft(file)).await.ok();
        sleep(IDLE / 2).await;
        ask(&mut holder, &holders).await;
        sleep(IDLE + IDLE_LOOK * 2).await;
        holder.expect_disconnect().await;
        // The client was disconnected for being idle, and can connect and open the file again.
        let (mut again, mount) = world.session("ann", &Offer::default()).await;
        let alone = Want { sharing: ShareAccess::EMPTY, ..Want::file("held") };
        let reply = again.create(&mount, &alone).await;
        again.close(&mount, file_id(&reply)).await;
        watch.abort();
    });
}

/// A connection with two sessions keeps the one in use.
#[test]
fn an_idle_session_leaves_the_others_of_its_connection() {
    in_frozen_world(settings(), async |world| {
        let watch = tokio::task::spawn_local(watch_idle_sessions(Arc::clone(&world.server)));
        let (mut peer, anns) = world.session("ann", &Offer::default()).await;
        let logon = peer.log_on("bob").await;
        let bobs = peer.mount(&logon, "data").await;
        let file = peer.open_file(&bobs, &Want::file("held")).await;
        sleep(IDLE + IDLE_LOOK * 2).await;
        let reply = peer.create(&anns, &Want::existing("held")).await;
        reply.expect(Status::USER_SESSION_DELETED);
        peer.close(&bobs, file).await;
        watch.abort();
    });
}

#[test]
fn with_zero_minutes_no_session_is_idle() {
    let settings = Settings { idle_session_minutes: 0, ..settings() };
    in_frozen_world(settings, async |world| {
        let watch = tokio::task::spawn_local(watch_idle_sessions(Arc::clone(&world.server)));
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        sleep(IDLE * 100).await;
        ask(&mut peer, &mount).await;
        watch.abort();
    });
}
