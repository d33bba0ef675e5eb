//! Shares that pass from one server to another: both serve one folder, and keep their records in one
//! store, as two nodes of a cluster do.

use std::rc::Rc;
use std::sync::Arc;

use crate::asking::*;
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use files::{flush_draft, lock_draft, write_draft};
use frevo_server::Reload;
use frevo_server::internal::state::{self, Life, LifeState};
use frevo_server::rate_rules::RateRule;
use frevo_store::state::{Epoch, MemoryState, OpenRecord};
use frevo_wire::command::create::{CreateOptions, ShareAccess};
use frevo_wire::dtyp::Guid;
use tokio::task::LocalSet;
use tokio::time::{Duration, Instant, sleep};

const ALONE: ShareAccess = ShareAccess::EMPTY;
const RWH: u32 = 7;
const CLIENT: Guid = guid(0x31);
const LASTING: [&str; 1] = ["lasting"];

/// Servers over one folder and one store. Each that starts is the owner of the continuous share from
/// then on, also if another one is not told.
fn servers(test: impl AsyncFnOnce(&dyn Fn() -> World, &MemoryState)) {
    world::without_ring();
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let runtime = runtime.unwrap();
    LocalSet::new().block_on(&runtime, async {
        let folder = Rc::new(tempfile::tempdir().unwrap());
        let store = Arc::new(MemoryState::default());
        let start = || {
            let world = World::at(settings(), folder.path());
            state::restore(&world.server, Arc::clone(&store) as _).unwrap();
            world.server.start_scavenger();
            world
        };
        test(&start, &store).await;
    });
}

fn life(world: &World) -> Arc<Life> {
    state::life_of(world.server.shares().find("lasting").unwrap())
}

fn records(store: &MemoryState) -> Vec<OpenRecord> {
    let parse = |(_, bytes): (_, Vec<u8>)| OpenRecord::from_bytes(&bytes).unwrap();
    store.records().into_iter().map(parse).collect()
}

/// A persistent Open of a file that goes with it, with a lease and a lock.
async fn opened(world: &World) -> (Peer, Mount, FileId) {
    let (mut peer, mount) = back(world, CLIENT, "ann", "lasting").await;
    let want = Want::file("f").sharing(ALONE).options(CreateOptions::DELETE_ON_CLOSE);
    let want = leased(want, 1, RWH, &[dh2q(guid(3), true)]);
    let file = peer.open_file(&mount, &want).await;
    peer.write(&mount, file, 0, b"acknowledged").await;
    peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
    (peer, mount, file)
}

/// The client takes its Open up at another server, which has its lock and its data.
async fn taken_up(world: &World, file: FileId) -> (Peer, Mount, FileId) {
    let (mut peer, mount) = back(world, CLIENT, "ann", "lasting").await;
    let want = leased(Want::existing("f"), 1, RWH, &[dh2c(file, guid(3), true)]);
    let file = files::file_id(&peer.create(&mount, &want).await);
    assert_eq!(peer.read(&mount, file, 0, 100).await, b"acknowledged");
    (peer, mount, file)
}

#[test]
fn a_share_is_given_to_another_server_and_back() {
    servers(async |start, store| {
        let first = start();
        let (mut peer, mount, file) = opened(&first).await;
        let (mut other, theirs) = back(&first, guid(0x32), "bob", "lasting").await;
        other.open_file(&theirs, &Want::file("g").options(CreateOptions::DELETE_ON_CLOSE)).await;
        let there = "192.0.2.1:445".parse().unwrap();
        first.server.give_shares(&LASTING, &[there]).await.unwrap();
        assert_eq!(life(&first).state(), LifeState::Elsewhere(vec![there]));
        // All clients of the moved share are disconnected, so that they look for the other server.
        // Only the persistent Open moves; "g" is deleted, because its Open has DELETE_ON_CLOSE.
        peer.expect_disconnect().await;
        other.expect_disconnect().await;
        drop((peer, mount, other, theirs));
        assert!(first.path("f").exists() && !first.path("g").exists());
        assert_eq!(first.server.durables.counts(), (0, 0));
        assert_eq!(records(store).len(), 1);
        let mut peer = first.connect();
        peer.negotiate(&Offer::default()).await;
        let logon = peer.log_on("ann").await;
        let refused = peer.try_mount(&logon, "lasting").await.err().unwrap();
        refused.expect(Status::BAD_NETWORK_NAME);

        let second = start();
        let (mut peer, mount, file) = taken_up(&second, file).await;
        assert!(first.server.give_shares(&LASTING, &[]).await.is_err(), "it has no share to give");
        second.server.give_shares(&LASTING, &[]).await.unwrap();
        peer.expect_disconnect().await;
        drop((peer, mount));
        assert_eq!(first.server.take_shares(&LASTING).await, Ok(1));
        assert_eq!(life(&first).state(), LifeState::Owned(Epoch(3)));
        assert!(first.server.take_shares(&LASTING).await.is_err(), "it is served");
        let (mut peer, mount, file) = taken_up(&first, file).await;
        peer.close(&mount, file).await;
        assert!(!first.path("f").exists(), "it goes with its Open");
        assert!(records(store).is_empty());
    });
}

/// An old owner that nobody has told learns it from the store: the change that it put on record is
/// not acknowledged, nor is anything else, and it leaves files and records alone.
#[test]
fn an_old_owner_acknowledges_nothing() {
    servers(async |start, store| {
        let first = start();
        let (mut peer, mount, file) = opened(&first).await;
        let (mut other, theirs) = back(&first, guid(0x32), "bob", "lasting").await;
        let held = other.open_file(&theirs, &Want::file("g")).await;
        let second = start();
        assert!(life(&first).serves(), "nobody has told it");
        let lock = lock_draft(file, &[(8, 4, EXCLUSIVE)]);
        assert!(peer.ask_or_lose(mount.put(lock), mount.via()).await.is_none());
        assert_eq!(life(&first).state(), LifeState::Elsewhere(Vec::new()));
        let write = write_draft(held, 0, b"late");
        assert!(other.ask_or_lose(theirs.put(write), theirs.via()).await.is_none());
        drop((peer, mount, other, theirs));
        while first.server.durables.counts() != (0, 0) || !first.server.sessions().is_empty() {
            sleep(Duration::from_millis(1)).await;
        }
        assert_eq!((first.content("f"), first.content("g")), (b"acknowledged".to_vec(), vec![]));
        let left = records(store);
        assert_eq!((left.len(), left[0].locks.len()), (1, 1), "as the new owner has loaded it");
        let (mut peer, mount, file) = taken_up(&second, file).await;
        peer.close(&mount, file).await;
    });
}

#[test]
fn an_open_outlives_an_owner_that_is_cut_off() {
    servers(async |start, store| {
        let first = start();
        let (mut peer, mount, file) = opened(&first).await;
        assert_eq!(first.server.lose_share("Lasting"), Ok(true));
        assert_eq!(first.server.lose_share("lasting"), Ok(false));
        peer.expect_disconnect().await;
        drop((peer, mount));
        let second = start();
        let (mut peer, mount, file) = taken_up(&second, file).await;
        assert_eq!(records(store)[0].locks.len(), 1);
        peer.close(&mount, file).await;
        assert!(!second.path("f").exists() && records(store).is_empty());
    });
}

/// A request waits for a limit, and its share leaves meanwhile: what it then takes of the limit is given back to others.
#[test]
fn a_request_whose_share_has_left_uses_nothing_of_a_limit() {
    servers(async |start, _| {
        let server = start();
        let (mut peer, mount, file) = opened(&server).await;
        let (mut other, theirs) = back(&server, guid(0x32), "bob", "data").await;
        let mine = other.open_file(&theirs, &Want::file("g")).await;
        let burst = Duration::from_millis(10);
        let limit = RateRule { operations: Some(1), burst, ..RateRule::new("all") };
        let limited = Settings { rates: vec![limit], ..settings() };
        server.embedded.reload(Reload::new().settings(limited));
        other.on(&theirs, flush_draft(mine)).await.ok();
        peer.send(vec![mount.put(write_draft(file, 0, b"late"))], mount.via()).await;
        sleep(Duration::from_millis(500)).await;
        assert_eq!(server.embedded.rate_status()[0].waiting, 1);
        assert!(life(&server).stop());
        sleep(Duration::from_millis(550)).await;
        assert_eq!(server.embedded.rate_status()[0].waiting, 0);
        let began = Instant::now();
        other.on(&theirs, flush_draft(mine)).await.ok();
        assert!(began.elapsed() < Duration::from_millis(50), "{:?}", began.elapsed());
        assert_eq!(server.content("f"), b"acknowledged");
    });
}
