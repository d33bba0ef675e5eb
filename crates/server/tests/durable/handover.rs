//! Durable Opens over a planned restart.

use std::rc::Rc;
use std::sync::Arc;

use crate::asking::*;
use crate::client::world::EXCLUSIVE;
use crate::client::*;
use files::{lock_draft, write_draft};
use frevo_server::internal::state;
use frevo_store::state::{MemoryState, Ownership, RecordId, StateStore};
use frevo_wire::command::create::{CreateOptions, ShareAccess};
use frevo_wire::create_context::CreateContext;
use tokio::task::LocalSet;

const ALONE: ShareAccess = ShareAccess::EMPTY;
const RWH: u32 = 7;
const DHNQ: CreateContext<'static> = CreateContext::DurableRequest;

/// Runs of one server over one folder. Each but the last leaves its Opens to the next one by
/// [`stop`].
fn runs(test: impl AsyncFnOnce(&dyn Fn() -> World, &MemoryState)) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, async {
        let folder = Rc::new(tempfile::tempdir().unwrap());
        let store = Arc::new(MemoryState::default());
        let start = || {
            let world = World::at(settings(), folder.path());
            state::take_up(&world.server, Arc::clone(&store) as _).unwrap();
            world.server.start_scavenger();
            world
        };
        test(&start, &store).await;
    });
}

/// Loads the records of durable Opens, which are those of no share.
fn owner_of(store: &MemoryState) -> Ownership {
    let (done, loaded) = std::sync::mpsc::channel();
    store.load("", Box::new(move |result| done.send(result).unwrap()));
    loaded.recv().unwrap().unwrap().ownership
}

/// The orderly end of a server whose clients' connections are cut.
async fn stop(world: World) {
    state::leave(&world.server).await;
    world.server.close_waiting();
    world.crash();
}

/// Handles of both versions, under leases and oplocks, with their locks.
#[test]
fn durable_opens_outlive_a_planned_restart() {
    for (second, lease) in [(false, false), (false, true), (true, false), (true, true)] {
        runs(async |start, store| {
            let world = start();
            let client = guid(0x31);
            let ask = |contexts: &[CreateContext<'_>]| {
                let want = Want::file("f").sharing(ALONE);
                if lease { leased(want, 1, RWH, contexts) } else { batch(want, contexts) }
            };
            let (mut peer, mount) = back(&world, client, "ann", "data").await;
            let request = if second { dh2q(guid(3), false) } else { DHNQ };
            let reply = peer.create(&mount, &ask(&[request])).await;
            let (file, had) = (files::file_id(&reply), caches(&reply));
            peer.write(&mount, file, 0, b"acknowledged").await;
            peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
            drop(peer);
            lost(&world, 1).await;
            stop(world).await;
            assert_eq!(store.records().len(), 1);

            let world = start();
            assert_eq!(world.server.durables.counts(), (1, 1));
            assert!(store.records().is_empty(), "taken up once");
            let reconnect = if second { dh2c(file, guid(3), false) } else { dhnc(file) };
            let (mut thief, theirs) = back(&world, client, "bob", "data").await;
            let stolen = thief.create(&theirs, &ask(&[reconnect])).await;
            stolen.expect(Status::ACCESS_DENIED);
            let (mut peer, mount) = back(&world, client, "ann", "data").await;
            let reply = peer.create(&mount, &ask(&[reconnect])).await;
            reply.ok();
            assert_eq!(caches(&reply), had, "second {second}, lease {lease}");
            let again = files::file_id(&reply);
            assert_eq!(again.persistent, file.persistent);
            assert_eq!(peer.read(&mount, again, 0, 64).await, b"acknowledged");
            let lock = lock_draft(again, &[(0, 4, EXCLUSIVE)]);
            peer.on(&mount, lock).await.expect(Status::LOCK_NOT_GRANTED);
            peer.on(&mount, write_draft(again, 0, b"!")).await.ok();
            peer.close(&mount, again).await;
            assert_eq!(world.server.durables.counts(), (0, 0));
            world.crash();
        });
    }
}

/// An Open that waits gives way to others, as before the restart.
#[test]
fn what_was_left_is_in_nobodys_way() {
    runs(async |start, _| {
        let world = start();
        let want = batch(Want::file("f").sharing(ALONE), &[dh2q(guid(3), false)]);
        let (mut peer, mount) = back(&world, guid(0x31), "ann", "data").await;
        peer.open_file(&mount, &want).await;
        drop(peer);
        lost(&world, 1).await;
        stop(world).await;
        let world = start();
        let (mut other, theirs) = back(&world, guid(0x32), "bob", "data").await;
        other.create(&theirs, &Want::file("f")).await.ok();
        assert_eq!(world.server.durables.counts(), (0, 0));
        world.crash();
    });
}

/// It needs no lease, and stays resilient in the next run.
#[test]
fn resilient_opens_outlive_a_planned_restart() {
    runs(async |start, store| {
        let client = guid(0x31);
        let mut world = start();
        let (mut peer, mut mount) = back(&world, client, "ann", "data").await;
        let mut file = peer.open_file(&mount, &Want::file("f").sharing(ALONE)).await;
        make_resilient(&mut peer, &mount, file, 60_000).await;
        peer.on(&mount, lock_draft(file, &[(0, 4, EXCLUSIVE)])).await.ok();
        for _ in 0..2 {
            drop(peer);
            lost(&world, 1).await;
            stop(world).await;
            assert_eq!(store.records().len(), 1);
            world = start();
            let (mut other, theirs) = back(&world, guid(0x32), "bob", "data").await;
            other.create(&theirs, &Want::existing("f")).await.expect(Status::SHARING_VIOLATION);
            (peer, mount) = back(&world, client, "ann", "data").await;
            let reply = peer.create(&mount, &with(Want::existing("f"), &[dhnc(file)])).await;
            reply.ok();
            file = files::file_id(&reply);
            let lock = lock_draft(file, &[(0, 4, EXCLUSIVE)]);
            peer.on(&mount, lock).await.expect(Status::LOCK_NOT_GRANTED);
        }
        peer.close(&mount, file).await;
        assert_eq!(world.server.durables.counts(), (0, 0));
        world.crash();
    });
}

#[test]
fn other_opens_end_with_their_run() {
    runs(async |start, store| {
        let world = start();
        let (mut peer, mount) = back(&world, guid(0x31), "ann", "data").await;
        let goes = Want::file("gone").options(CreateOptions::DELETE_ON_CLOSE);
        peer.open_file(&mount, &batch(goes, &[dh2q(guid(3), false)])).await;
        peer.open_file(&mount, &Want::file("plain")).await;
        drop(peer);
        lost(&world, 1).await;
        let gone = world.path("gone");
        assert!(gone.exists());
        stop(world).await;
        assert!(store.records().is_empty() && !gone.exists());
    });
}

/// Records that are too old, cut short or strange are dropped, and nothing else with them.
#[test]
fn old_and_strange_records_cost_nothing_else() {
    runs(async |start, store| {
        let world = start();
        let (mut peer, mount) = back(&world, guid(0x31), "ann", "data").await;
        for (at, name) in [(3, "old"), (4, "good")] {
            let want = batch(Want::file(name), &[dh2q(guid(at), false)]);
            peer.open_file(&mount, &want).await;
        }
        drop(peer);
        lost(&world, 2).await;
        stop(world).await;
        let mut records = store.records();
        assert_eq!(records.len(), 2);
        records[0].1[..8].fill(0);
        let (id, bytes) = records.remove(0);
        let owner = owner_of(store);
        store.put(&owner, id, bytes.clone(), Box::new(|_| {}));
        for (at, strange) in [&bytes[..4], &bytes[..40], b""].iter().enumerate() {
            store.put(&owner, RecordId(at as u64), strange.to_vec(), Box::new(|_| {}));
        }
        let world = start();
        assert_eq!(world.server.durables.counts(), (1, 1));
        world.crash();
    });
}
