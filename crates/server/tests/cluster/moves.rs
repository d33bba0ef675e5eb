//! Shares that are started, served, drained, left and stopped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::asking::*;
use crate::client::*;
use crate::nodes::*;
use files::{lock_draft, write_draft};
use frevo_server::internal::state::LifeState;
use frevo_store::memory::Operation;
use frevo_store::state::{
    Done, Epoch, LoadDone, MemoryState, Ownership, RecordId, StateFault, StateStore,
};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::lock::LockFlags;
use frevo_wire::command::negotiate::GlobalCapabilities;
use frevo_wire::create_context::CreateContext;
use parking_lot::Mutex;

/// A store that fails, or does not answer.
#[derive(Default)]
pub struct Poor {
    memory: Arc<MemoryState>,
    fails: AtomicBool,
    is_silent: AtomicBool,
    keeps_puts: AtomicBool,
    loads: Mutex<Vec<LoadDone>>,
    dones: Mutex<Vec<Done>>,
    puts: Mutex<Vec<Box<dyn FnOnce() + Send>>>,
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

    /// Keeps the records that come, or stores all it has kept.
    fn keep_puts(&self, keeps: bool) {
        self.keeps_puts.store(keeps, Ordering::Relaxed);
        if !keeps {
            let puts = std::mem::take(&mut *self.puts.lock());
            puts.into_iter().for_each(|put| put());
        }
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
        if self.keeps_puts.load(Ordering::Relaxed) {
            let (memory, owner) = (Arc::clone(&self.memory), owner.clone());
            let put = move || memory.put(&owner, id, record, done);
            return self.puts.lock().push(Box::new(put));
        }
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
        assert_eq!(first.mount_status("lasting").await, None, "it has just left");

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

/// The end of a session whose share moves away is told like any other.
#[test]
fn who_uses_a_share_that_leaves_is_told() {
    cluster(async |cluster| {
        for is_drained in [true, false] {
            let node = cluster.owner().await;
            let mut peer = node.connect();
            let capabilities = GlobalCapabilities(0xFF);
            peer.negotiate(&Offer { capabilities, ..Offer::default() }).await;
            let logon = peer.log_on("ann").await;
            peer.mount(&logon, "lasting").await;
            match is_drained {
                true => node.embedded.drain_shares(&BOTH, Duration::from_secs(5)).await.unwrap(),
                false => node.embedded.stop_shares(&BOTH).await.unwrap(),
            }
            let news = peer.reply().await;
            assert_eq!(news.header.command, Command::SERVER_TO_CLIENT_NOTIFICATION);
            assert_eq!(news.header.session_id, logon.id);
            peer.expect_disconnect().await;
        }
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

/// A node of an earlier version takes no share of whose records it cannot read one, and leaves them all.
#[test]
fn records_of_a_later_version_stay() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (peer, mount, file) = opened(&first).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let of_this = cluster.store.records();
        let [(id, record)] = &of_this[..] else { panic!("one record: {of_this:?}") };
        let write = |records: &[(RecordId, Vec<u8>)]| {
            let (told, loaded) = std::sync::mpsc::channel();
            cluster.store.load("lasting", Box::new(move |result| told.send(result).unwrap()));
            let owner = loaded.recv().unwrap().unwrap().ownership;
            for (id, record) in records {
                cluster.store.put(&owner, *id, record.clone(), Box::new(|done| done.unwrap()));
            }
        };
        let (mut later, mut damaged) = (record.clone(), record.clone());
        later[3] = b'6';
        damaged.pop();
        let all = [(*id, later), (RecordId(id.0 + 1), damaged)];
        write(&all);
        let second = cluster.node();
        let why = second.embedded.start_shares(&BOTH).await.unwrap_err();
        assert!(why.starts_with("the share lasting: a later version of Frevo has put"), "{why}");
        assert!(why.contains("upgrade Frevo"), "{why}");
        assert!(matches!(second.state("lasting"), LifeState::Failed(_)));
        assert_eq!(cluster.store.records(), all, "nothing is removed");

        // A later version takes the share up, and the damaged record is lost alone.
        write(&of_this);
        let third = cluster.node();
        assert_eq!(third.embedded.start_shares(&BOTH).await, Ok(1));
        third.embedded.serve_shares(&BOTH, None).await.unwrap();
        taken_up(&third, file).await;
        assert_eq!(cluster.records().len(), 1);
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

/// A client that was sent away before the addresses have left would find this server there again: until then no
/// connection ends, and nothing answers a lock that waits or a request that has come too late.
#[test]
fn connections_end_when_the_addresses_have_left() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (mut holder, hers) = back(&node, guid(0x32), "ann", "plain").await;
        let held = holder.open_file(&hers, &Want::file("g")).await;
        holder.on(&hers, lock_draft(held, &[(0, 4, world::EXCLUSIVE)])).await.ok();
        let (mut waiter, his) = back(&node, guid(0x33), "bob", "plain").await;
        let file = waiter.open_file(&his, &Want::existing("g")).await;
        let waiting = lock_draft(file, &[(0, 4, LockFlags::EXCLUSIVE_LOCK)]);
        waiter.send(vec![his.put(waiting)], his.via()).await;
        waiter.interim().await;
        let (leave, has_left) = tokio::sync::oneshot::channel::<()>();
        let draining = {
            let server = node.embedded.clone();
            tokio::task::spawn_local(async move {
                let leave = async { has_left.await.unwrap() };
                server.drain_shares_of(&BOTH, Duration::from_secs(5), leave).await
            })
        };
        waiter.expect_silence(Duration::from_secs(1)).await;
        let late = hers.put(write_draft(held, 0, b"late"));
        holder.send(vec![late], hers.via()).await;
        holder.expect_silence(Duration::from_secs(1)).await;
        leave.send(()).unwrap();
        draining.await.unwrap().unwrap();
        holder.expect_disconnect().await;
        waiter.expect_disconnect().await;
        assert_eq!(cluster.content("g"), Some(Vec::new()));
    });
}

#[test]
fn a_share_whose_addresses_do_not_leave_is_served_on() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount, file) = opened(&node).await;
        let never = std::future::pending();
        let why = node.embedded.drain_shares_of(&BOTH, Duration::from_secs(2), never).await;
        let expected = "the share lasting, plain: its addresses have not left in time";
        assert_eq!(why.unwrap_err(), expected);
        peer.expect_disconnect().await;
        drop((peer, mount));
        let (mut peer, mount, file) = taken_up(&node, file).await;
        peer.close(&mount, file).await;
    });
}

/// Linux's client repeats a request at the next owner before it has taken its Open up there, by the FileId that it had
/// before the move.
#[test]
fn a_request_that_is_earlier_than_its_reconnect_waits_for_it() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (peer, mount, file) = opened(&first).await;
        first.embedded.drain_shares(&BOTH, Duration::from_secs(5)).await.unwrap();
        first.embedded.leave_shares(&BOTH, &[]).await.unwrap();
        drop((peer, mount));
        let second = cluster.owner().await;
        let (mut peer, mount) = back(&second, CLIENT, "ann", "lasting").await;
        let write = || write_draft(file, 0, b"early");
        // It waits for a moment alone, and for its own client alone.
        peer.on(&mount, write()).await.expect(Status::FILE_CLOSED);
        let (mut bob, his) = back(&second, guid(0x39), "bob", "lasting").await;
        bob.on(&his, write()).await.expect(Status::FILE_CLOSED);
        let drafts = [write(), reconnect(file).draft()];
        let mut ids = Vec::new();
        for draft in drafts {
            ids.extend(peer.send(vec![mount.put(draft)], mount.via()).await);
        }
        let replies = peer.collect(&ids).await;
        assert_eq!(replies[0].status(), Status::SUCCESS);
        assert_eq!(files::file_id(replies[1].ok()), file, "the FileId stays");
        peer.close(&mount, file).await;
        assert!(cluster.content("f").unwrap().starts_with(b"early"));
    });
}

/// A request outlives its connection, and its session is not there any more. Another server may have the
/// share only when it has ended.
#[test]
fn requests_whose_clients_have_gone_are_waited_for() {
    cluster(async |cluster| {
        let store = Poor::over(&cluster.store);
        let node = cluster.node_with(Arc::clone(&store) as _);
        node.embedded.start_shares(&BOTH).await.unwrap();
        node.embedded.serve_shares(&BOTH, None).await.unwrap();
        let (mut peer, mount) = back(&node, CLIENT, "ann", "lasting").await;
        store.keep_puts(true);
        let want = leased(Want::file("f").sharing(ALONE), 1, RWH, &[dh2q(guid(3), true)]);
        peer.send(vec![mount.put(want.draft())], mount.via()).await;
        while store.puts.lock().is_empty() {
            tokio::task::yield_now().await;
        }
        drop((peer, mount));
        node.is_left().await;
        let patience = Duration::from_secs(2);
        let why = node.embedded.drain_shares(&BOTH, patience).await.unwrap_err();
        assert_eq!(why, "the share lasting: its requests have not ended in time");
        let stopping = {
            let server = node.embedded.clone();
            tokio::task::spawn_local(async move { server.stop_shares(&BOTH).await })
        };
        tokio::time::sleep(Duration::from_secs(60)).await;
        assert!(!stopping.is_finished());
        store.keep_puts(false);
        stopping.await.unwrap().unwrap();
        assert!(node.server.files.is_empty());
    });
}

/// A write that hangs in the file system when its client has gone is not one that comes after those of the
/// next owner.
#[test]
fn a_write_whose_client_has_gone_is_waited_for() {
    in_memory_off_core(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount) = back(&node, CLIENT, "ann", "plain").await;
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let (hung, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (hangs, until) = (Arc::clone(&hung), Arc::clone(&goes_on));
        cluster.memory().faults().at_call(Some(Arc::new(move |operation| {
            if operation == Operation::Write {
                hangs.store(true, Ordering::Relaxed);
                wait_for(&until);
            }
        })));
        peer.send(vec![mount.put(write_draft(file, 0, b"late"))], mount.via()).await;
        while !hung.load(Ordering::Relaxed) {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        drop((peer, mount));
        node.is_left().await;
        let why = node.embedded.drain_shares(&BOTH, Duration::from_millis(100)).await.unwrap_err();
        assert_eq!(why, "the share plain: its requests have not ended in time");
        goes_on.store(true, Ordering::Relaxed);
        node.embedded.drain_shares(&BOTH, Duration::from_secs(60)).await.unwrap();
        assert_eq!(cluster.content("f"), Some(b"late".to_vec()));
        assert!(node.server.files.is_empty());
    });
}

/// A thread waits until a test says that it goes on.
fn wait_for(goes_on: &AtomicBool) {
    while !goes_on.load(Ordering::Relaxed) {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Another server may serve a share as soon as it is drained, so an Open whose client does not come back in
/// time is that server's: nothing is deleted here.
#[test]
fn a_drained_share_changes_no_file() {
    cluster(async |cluster| {
        let first = cluster.owner().await;
        let (mut peer, mount, file) = opened(&first).await;
        peer.on(&mount, files::delete_draft(file)).await.ok();
        first.embedded.drain_shares(&BOTH, Duration::from_secs(5)).await.unwrap();
        peer.expect_disconnect().await;
        drop((peer, mount));
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        assert!(cluster.content("f").is_some());
        assert_eq!(cluster.records().len(), 1);
        first.embedded.leave_shares(&BOTH, &[]).await.unwrap();
        let second = cluster.owner().await;
        tokio::time::sleep(Duration::from_secs(3_600)).await;
        let is_gone = || cluster.content("f").is_none() && cluster.records().is_empty();
        assert!(comes(is_gone).await, "its owner deletes it");
        drop(second);
    });
}

/// A client is sent away by the end of its connection while the share's address may be at this server,
/// and by a status later, so that its other shares can stay.
#[test]
fn a_share_that_has_long_left_is_refused() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount, file) = opened(&node).await;
        node.embedded.stop_shares(&BOTH).await.unwrap();
        peer.expect_disconnect().await;
        drop((peer, mount, file));
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(node.mount_status("lasting").await, None, "it has just left");
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert_eq!(node.mount_status("lasting").await, Some(Status::SERVER_UNAVAILABLE));
        let (mut peer, own) = back(&node, CLIENT, "ann", "own").await;
        let draft = files::tree_connect_draft("\\\\frevo\\plain").session(own.logon.id);
        peer.send(vec![draft], own.via()).await;
        peer.reply().await.expect(Status::SERVER_UNAVAILABLE);
        peer.open_file(&own, &Want::file("of another share")).await;
        node.embedded.start_shares(&BOTH).await.unwrap();
        node.embedded.serve_shares(&BOTH, None).await.unwrap();
        assert_eq!(node.mount_status("lasting").await, Some(Status::SUCCESS));
    });
}

/// A drain that runs out of time in the middle of its closes leaves no file open that nobody has.
#[test]
fn a_drain_that_breaks_off_closes_what_it_has_taken() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        let (mut peer, mount) = back(&node, guid(0x32), "bob", "plain").await;
        for number in 0..100 {
            let want = Want::file(&format!("f{number}")).sharing(ALONE);
            peer.open_file(&mount, &want).await;
        }
        let why = node.embedded.drain_shares(&["plain"], Duration::ZERO).await.unwrap_err();
        assert_eq!(why, "the share plain: its files were not closed in time");
        peer.expect_disconnect().await;
        drop((peer, mount));
        node.is_left().await;
        assert!(comes(|| node.server.files.is_empty()).await, "files are open that nobody has");
    });
}

/// Has calls to open a file on other threads do something.
fn at_open(cluster: &Cluster, act: impl Fn() + Send + Sync + 'static) {
    let core = std::thread::current().id();
    cluster.memory().faults().at_call(Some(Arc::new(move |operation| {
        if operation == Operation::Open && std::thread::current().id() != core {
            act();
        }
    })));
}

/// A start that was given up is still making handles anew when the share is started once more.
#[test]
fn a_start_waits_for_the_end_of_one_that_was_given_up() {
    in_memory(async |cluster| {
        let first = cluster.owner().await;
        let (peer, mount, file) = opened(&first).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let second = cluster.node();
        let (hung, goes_on) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (hangs, until) = (Arc::clone(&hung), Arc::clone(&goes_on));
        at_open(cluster, move || {
            if !hangs.swap(true, Ordering::Relaxed) {
                wait_for(&until);
            }
        });
        let start = || {
            let server = second.embedded.clone();
            tokio::task::spawn_local(async move { server.start_shares(&BOTH).await })
        };
        let given_up = start();
        while !hung.load(Ordering::Relaxed) {
            tokio::task::yield_now().await;
        }
        given_up.abort();
        assert!(given_up.await.is_err());
        assert!(matches!(second.state("lasting"), LifeState::Failed(_)));
        let again = start();
        tokio::time::sleep(Duration::from_secs(1)).await;
        assert!(!again.is_finished());
        assert_eq!(cluster.records().len(), 1);
        goes_on.store(true, Ordering::Relaxed);
        assert_eq!(again.await.unwrap(), Ok(1));
        cluster.memory().faults().at_call(None);
        second.embedded.serve_shares(&BOTH, None).await.unwrap();
        taken_up(&second, file).await;
    });
}

/// A panic where handles are made anew is no share without handles.
#[test]
fn a_start_that_breaks_fails_and_the_records_stay() {
    in_memory(async |cluster| {
        let first = cluster.owner().await;
        let (peer, mount, file) = opened(&first).await;
        first.embedded.stop_shares(&BOTH).await.unwrap();
        drop((peer, mount));
        let second = cluster.node();
        at_open(cluster, || panic!("as the test wants"));
        let why = second.embedded.start_shares(&BOTH).await.unwrap_err();
        assert!(why.contains("an error in the program"), "{why}");
        assert!(matches!(second.state("lasting"), LifeState::Failed(_)));
        assert_eq!(cluster.records().len(), 1);
        cluster.memory().faults().at_call(None);
        assert_eq!(second.embedded.start_shares(&BOTH).await, Ok(1));
        second.embedded.serve_shares(&BOTH, None).await.unwrap();
        taken_up(&second, file).await;
    });
}

/// The stop of a share does not wait for its turn on a runtime.
#[test]
fn a_stop_begins_in_the_call() {
    cluster(async |cluster| {
        let node = cluster.owner().await;
        node.embedded.begin_to_stop_shares(&["none", "lasting", "plain"]);
        assert_eq!(node.state("lasting"), LifeState::Elsewhere(Vec::new()));
        assert_eq!(node.state("plain"), LifeState::Elsewhere(Vec::new()));
        node.embedded.stop_shares(&BOTH).await.unwrap();
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
