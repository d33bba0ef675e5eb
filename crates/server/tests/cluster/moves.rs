//! Shares that are started, served, drained, left and stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::asking::*;
use crate::client::*;
use crate::nodes::*;
use files::{lock_draft, write_draft};
use frevo_server::internal::state::LifeState;
use frevo_store::state::{
    Done, Epoch, LoadDone, MemoryState, Ownership, RecordId, StateFault, StateStore,
};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::create_context::CreateContext;
use parking_lot::Mutex;

/// A store that fails, or does not answer.
#[derive(Default)]
pub struct Poor {
    memory: Arc<MemoryState>,
    fails: AtomicBool,
    is_silent: AtomicBool,
    loads: Mutex<Vec<LoadDone>>,
    dones: Mutex<Vec<Done>>,
}

impl std::fmt::Debug for Poor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Poor")
    }
}

impl Poor {
    fn over(memory: &Arc<MemoryState>) -> Arc<Self> {
        Arc::new(Self { memory: Arc::clone(memory), ..Self::default() })
    }

    fn set_failing(&self, fails: bool) {
        self.fails.store(fails, Ordering::Relaxed);
    }

    fn set_silent(&self, is_silent: bool) {
        self.is_silent.store(is_silent, Ordering::Relaxed);
    }
}

impl StateStore for Poor {
    fn load(&self, share: &str, done: LoadDone) {
        if self.is_silent.load(Ordering::Relaxed) {
            return self.loads.lock().push(done);
        }
        if self.fails.load(Ordering::Relaxed) {
            return done(Err(StateFault::Failed("the disk is full".into())));
        }
        self.memory.load(share, done);
    }

    fn put(&self, owner: &Ownership, id: RecordId, record: Vec<u8>, done: Done) {
        self.memory.put(owner, id, record, done);
    }

    fn remove(&self, owner: &Ownership, id: RecordId, done: Done) {
        if self.is_silent.load(Ordering::Relaxed) {
            return self.dones.lock().push(done);
        }
        self.memory.remove(owner, id, done);
    }
}

#[test]
fn a_share_goes_from_one_node_to_another() {
    cluster(async |cluster| {
        let first = cluster.node();
        assert_eq!(first.mount_status("lasting").await, Some(Status::BAD_NETWORK_NAME));
        assert_eq!(first.embedded.start_shares(&BOTH).await, Ok(0));
        assert_eq!(first.mount_status("lasting").await, Some(Status::SERVER_UNAVAILABLE));
        assert!(first.embedded.start_shares(&LASTING).await.is_err(), "it is started");
        first.embedded.serve_shares(&BOTH, None).await.unwrap();
        let (mut peer, mount, file) = opened(&first).await;
        first.embedded.drain_shares(&BOTH, Duration::from_secs(5)).await.unwrap();
        peer.expect_disconnect().await;
        drop((peer, mount));
        assert_eq!(first.mount_status("lasting").await, None, "draining");
        assert_eq!(first.server.durables.counts(), (1, 1));
        let there = "192.0.2.1:445".parse().unwrap();
        first.embedded.leave_shares(&BOTH, &[there]).await.unwrap();
        assert_eq!(first.state("lasting"), LifeState::Elsewhere(vec![there]));
        assert_eq!(first.server.durables.counts(), (0, 0));
        assert_eq!(first.mount_status("lasting").await, Some(Status::BAD_NETWORK_NAME));

        let second = cluster.node();
        assert_eq!(second.embedded.start_shares(&BOTH).await, Ok(1));
        let wrong = second.embedded.drain_shares(&LASTING, Duration::ZERO).await.unwrap_err();
        assert_eq!(wrong, "the share lasting: a share that is starting cannot drain");
        second.embedded.serve_shares(&BOTH, Some(Duration::from_secs(5))).await.unwrap();
        let (mut peer, mount, file) = taken_up(&second, file).await;
        peer.close(&mount, file).await;
        assert!(cluster.records().is_empty());
    });
}

#[test]
fn a_load_that_fails_leaves_the_share_free() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (peer, mount, file) = opened(&first).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let store = Poor::over(&cluster.store);
        let second = cluster.node_with(Arc::clone(&store) as _);
        store.set_failing(true);
        let why = second.embedded.start_shares(&BOTH).await.unwrap_err();
        assert!(why.ends_with("the state store failed: the disk is full"), "{why}");
        assert!(matches!(second.state("lasting"), LifeState::Failed(_)));
        assert!(matches!(second.state("plain"), LifeState::Failed(_)));
        assert_eq!(second.mount_status("lasting").await, Some(Status::SERVER_UNAVAILABLE));
        assert!(second.embedded.serve_shares(&LASTING, None).await.is_err());
        second.embedded.leave_shares(&BOTH, &[]).await.unwrap();
        assert_eq!(second.state("lasting"), LifeState::Elsewhere(Vec::new()));
        store.set_failing(false);
        assert_eq!(second.embedded.start_shares(&BOTH).await, Ok(1));
        second.embedded.serve_shares(&BOTH, None).await.unwrap();
        taken_up(&second, file).await;
    });
}

#[test]
fn a_start_is_stopped() {
    cluster(async |cluster| {
        let store = Poor::over(&cluster.store);
        let node = cluster.node_with(Arc::clone(&store) as _);
        store.set_silent(true);
        let starting = {
            let server = node.embedded.clone();
            tokio::task::spawn_local(async move { server.start_shares(&BOTH).await })
        };
        while store.loads.lock().len() < 2 {
            tokio::task::yield_now().await;
        }
        node.embedded.stop_shares(&BOTH).await.unwrap();
        let why = starting.await.unwrap().unwrap_err();
        assert!(why.contains("it was stopped while it was started"), "{why}");
        assert_eq!(node.state("lasting"), LifeState::Elsewhere(Vec::new()));
        store.set_silent(false);
        node.embedded.start_shares(&BOTH).await.unwrap();
        // The answer to the first load comes late, and changes nothing.
        store.loads.lock().clear();
        assert_eq!(node.state("lasting"), LifeState::Starting);
        node.embedded.stop_shares(&BOTH).await.unwrap();
        assert!(node.embedded.serve_shares(&BOTH, None).await.is_err());
    });
}

/// Opens that were restored do not stay when the share is stopped before it is served.
#[test]
fn a_share_that_was_started_is_stopped() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (peer, mount, _) = opened(&first).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let second = cluster.node();
        assert_eq!(second.embedded.start_shares(&BOTH).await, Ok(1));
        assert_eq!(second.server.durables.counts(), (1, 1));
        // The client cannot come yet, so its time has not begun.
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert_eq!(second.server.durables.counts(), (1, 1));
        second.embedded.stop_shares(&BOTH).await.unwrap();
        assert_eq!(second.server.durables.counts(), (0, 0));
        assert!(second.server.files.is_empty());
        assert_eq!(cluster.records().len(), 1);
    });
}

#[test]
fn a_share_that_cannot_be_drained_is_served_on() {
    cluster(async |cluster| {
        let store = Poor::over(&cluster.store);
        let node = cluster.node_with(Arc::clone(&store) as _);
        node.embedded.start_shares(&BOTH).await.unwrap();
        node.embedded.serve_shares(&BOTH, None).await.unwrap();
        let (mut peer, mount, file) = opened(&node).await;
        store.set_silent(true);
        let patience = Duration::from_secs(2);
        let why = node.embedded.drain_shares(&BOTH, patience).await.unwrap_err();
        assert_eq!(why, "the share lasting, plain: the records were not stored in time");
        assert_eq!(node.state("lasting"), LifeState::Owned(Epoch(1)));
        assert_eq!(node.state("plain"), LifeState::Owned(Epoch(1)));
        store.set_silent(false);
        peer.expect_disconnect().await;
        drop((peer, mount));
        let (mut peer, mount, file) = taken_up(&node, file).await;
        peer.close(&mount, file).await;
        node.embedded.drain_shares(&BOTH, patience).await.unwrap();
        let twice = node.embedded.drain_shares(&BOTH, patience).await;
        assert_eq!(twice.unwrap_err(), "the share lasting: a share that is draining cannot drain");
        assert!(matches!(node.state("lasting"), LifeState::Draining(_)), "as before");
    });
}

/// A drain answers what is under way, and closes what the next owner cannot have.
#[test]
fn a_drain_ends_all_but_persistent_handles() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount) = back(&node, guid(0x32), "bob", "plain").await;
        let goes = Want::file("goes").options(CreateOptions::DELETE_ON_CLOSE);
        peer.open_file(&mount, &goes).await;
        let durable = batch(Want::file("durable"), &[CreateContext::DurableRequest]);
        peer.create(&mount, &durable).await.ok();
        let (mut other, theirs) = back(&node, guid(0x33), "ann", "plain").await;
        let file = other.open_file(&theirs, &Want::file("f")).await;
        let late = theirs.put(write_draft(file, 0, b"in time"));
        let ids = other.send(vec![late], theirs.via()).await;
        let draining = {
            let server = node.embedded.clone();
            tokio::task::spawn_local(async move {
                server.drain_shares(&BOTH, Duration::from_secs(5)).await
            })
        };
        let answered = other.collect(&ids).await;
        assert_eq!(answered[0].status(), Status::SUCCESS);
        draining.await.unwrap().unwrap();
        peer.expect_disconnect().await;
        other.expect_disconnect().await;
        assert_eq!(cluster.content("goes"), None);
        assert_eq!(cluster.content("f"), Some(b"in time".to_vec()));
        assert_eq!(node.server.durables.counts(), (0, 0), "it dies with the node");
        assert!(node.server.files.is_empty());
    });
}

/// Nothing that a stopped owner says or does comes after the stop.
#[test]
fn a_stopped_owner_answers_nothing() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (mut peer, mount, file) = opened(&first).await;
        let write = mount.put(write_draft(file, 0, b"late"));
        let ids = peer.send(vec![write], mount.via()).await;
        // A share that has gone keeps none of the others from being stopped.
        first.embedded.stop_shares(&["none", BOTH[0], BOTH[1]]).await.unwrap();
        peer.expect_disconnect().await;
        drop((peer, mount, ids));
        assert_eq!(first.state("lasting"), LifeState::Elsewhere(Vec::new()));
        assert_eq!(first.mount_status("lasting").await, None);
        first.embedded.stop_shares(&BOTH).await.unwrap();
        assert_eq!(cluster.content("f"), Some(b"acknowledged".to_vec()));
        let second = cluster.owner().await;
        taken_up(&second, file).await;
    });
}

/// Several persistent handles of one lease come back with it, at its epoch. MS-SMB2 3.3.5.9.12.
#[test]
fn handles_of_one_lease_come_back_with_its_epoch() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (mut peer, mount) = back(&first, CLIENT, "ann", "lasting").await;
        let (mut ids, mut granted) = (Vec::new(), None);
        for create in [3, 4, 5] {
            let want = leased(Want::file("f"), 1, RWH, &[dh2q(guid(create), true)]);
            let reply = peer.create(&mount, &want).await;
            assert_eq!(durable_v2(reply.ok()).map(|(_, persistent)| persistent), Some(true));
            granted = caches(&reply).1;
            ids.push((create, files::file_id(&reply)));
        }
        let (state, epoch) = granted.unwrap();
        assert_eq!(state, RWH);
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let second = cluster.owner().await;
        let (mut peer, mount) = back(&second, CLIENT, "ann", "lasting").await;
        for (create, file) in ids {
            let want = leased(Want::existing("f"), 1, RWH, &[dh2c(file, guid(create), true)]);
            let reply = peer.create(&mount, &want).await;
            assert_eq!(caches(reply.ok()).1, Some((RWH, epoch)), "{create}");
        }
    });
}

/// A persistent CREATE whose answer was lost with its server is answered by the next one. MS-SMB2
/// 3.3.5.9.10.
#[test]
fn a_persistent_create_is_replayed_at_the_next_node() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (mut peer, mount) = back(&first, CLIENT, "ann", "lasting").await;
        let want = leased(Want::file("f").sharing(ALONE), 1, RWH, &[dh2q(guid(3), true)]);
        let made = files::file_id(&peer.create(&mount, &want).await);
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let second = cluster.owner().await;
        let (mut peer, mount) = back(&second, CLIENT, "ann", "lasting").await;
        let replay = |want: &Want| want.draft().flags(HeaderFlags::REPLAY_OPERATION);
        let reply = peer.on(&mount, replay(&want)).await;
        assert_eq!(files::file_id(reply.ok()).persistent, made.persistent);
        assert_eq!(caches(&reply).1.map(|(state, _)| state), Some(RWH));
        let file = files::file_id(&reply);
        peer.on(&mount, lock_draft(file, &[(0, 1, world::EXCLUSIVE)])).await.ok();
        assert_eq!(cluster.records().len(), 1, "one Open");
    });
}
