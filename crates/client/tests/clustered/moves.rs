//! Shares that move to another node of a cluster in the middle of operations which take longer than one
//! request: the application sees a pause and no error.
#![allow(missing_docs, clippy::disallowed_methods, reason = "tests")]

use crate::evil;
use crate::nodes;

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use evil::between::Between;
use frevo_client::internal::{Dial, Dialing, LeaseHolder, Resolving, Yield};
use frevo_client::{
    Change, Client, CopyMethod, Credentials, File, LeaseState, LockKind, OpenOptions, Options,
    RecursiveMode, ServerName, Share, Watch,
};
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::{Command, Header};
use nodes::{CLUSTER, Nodes, SHARES, address, with_nodes};
use tokio::sync::Notify;
use tokio::time::{sleep, timeout};

/// The time that an application waits at most. A lease break that is not acknowledged takes longer.
const SOON: Duration = Duration::from_secs(10);

fn writable() -> OpenOptions {
    OpenOptions::new().read(true).write(true).create(true)
}

/// The ways in which a share comes to another node.
#[derive(Debug, Clone, Copy)]
enum Way {
    HandedOver,
    FailedOver,
}

impl Way {
    const ALL: [Self; 2] = [Self::HandedOver, Self::FailedOver];

    /// Brings the share "lasting" from the first node to the second.
    async fn go(self, nodes: &Arc<Nodes>) {
        match self {
            Self::HandedOver => nodes.hand_over("lasting", 0, 1).await,
            Self::FailedOver => nodes.fail_over("lasting", 0, 1).await,
        }
    }
}

/// Runs a test for each way.
fn each_way(test: impl AsyncFn(&Arc<Nodes>, Way) + Copy) {
    for way in Way::ALL {
        with_nodes(2, async |nodes| {
            nodes.take(0, "lasting").await;
            test(nodes, way).await;
        });
    }
}

/// Shares that are owned together stay in one session, in which the server can copy between them.
#[test]
fn a_server_copies_between_shares_that_have_moved_together() {
    with_nodes(3, async |nodes| {
        nodes.all[0].embedded.take_shares(&SHARES).await.unwrap();
        let session = nodes.session(Options::new(), CLUSTER).await;
        let one = session.share("lasting").await.unwrap();
        let two = session.share("second").await.unwrap();
        let source = writable().open(&one, "a").await.unwrap();
        let target = writable().open(&two, "b").await.unwrap();
        source.write_all_at(b"some data", 0).await.unwrap();
        for round in 0..6 {
            nodes.hand_over_group(&SHARES, round % 3, (round + 1) % 3).await;
            // Each of them is the first one that is looked for.
            let first = if round % 2 == 0 { &one } else { &two };
            assert!(!first.exists("absent").await.unwrap());
            let how = source.copy_range_to(&target, 1, round as u64 * 8, 8).await.unwrap();
            assert_eq!(how, Some(CopyMethod::OnServer), "round {round}");
            assert!(one.session().is_same(two.session()), "round {round}");
            assert_eq!(one.node().unwrap().address, address((round + 1) % 3));
        }
        assert_eq!(std::fs::read(nodes.path("b")).unwrap(), b"ome data".repeat(6));
        // They part, and each of them has its files.
        nodes.hand_over("second", 0, 2).await;
        target.write_all_at(b"more", 0).await.unwrap();
        source.write_all_at(b"more", 0).await.unwrap();
        let places = [&one, &two].map(|share| share.node().unwrap().address);
        assert_eq!(places, [address(0), address(2)]);
        assert_eq!(one.node().unwrap().moves, 6, "it has not moved again");
    });
}

/// Counts the requests for COPYCHUNK. The second one gets lost, and others are told.
#[derive(Debug)]
struct LosesChunks {
    between: Between,
    nodes: Arc<Nodes>,
}

impl LosesChunks {
    fn new(nodes: &Arc<Nodes>, count: Arc<AtomicUsize>, is_lost: Arc<Notify>) -> Self {
        let there = move |frame: Vec<u8>| {
            let is_chunk = Header::parse(&frame).is_ok_and(|header| {
                header.command == Command::IOCTL
                    && ioctl::Request::parse(&frame)
                        .is_ok_and(|request| request.ctl_code == CtlCode::SRV_COPYCHUNK_WRITE)
            });
            if is_chunk && count.fetch_add(1, Ordering::SeqCst) == 1 {
                is_lost.notify_one();
                return Vec::new();
            }
            vec![frame]
        };
        let (there, back) = (Arc::new(there), Arc::new(|frame: Vec<u8>| vec![frame]));
        let between = Between { server: Arc::clone(nodes) as Arc<dyn Dial>, there, back };
        Self { between, nodes: Arc::clone(nodes) }
    }
}

impl Dial for LosesChunks {
    fn dial<'a>(&'a self, server: &'a ServerName) -> Dialing<'a> {
        self.between.dial(server)
    }

    fn addresses<'a>(&'a self, server: &'a ServerName) -> Resolving<'a> {
        self.nodes.addresses(server)
    }
}

#[test]
fn a_copy_on_the_server_goes_on_at_the_new_node() {
    const LEN: usize = 40 << 20;
    with_nodes(2, async |nodes| {
        nodes.all[0].embedded.take_shares(&SHARES).await.unwrap();
        let content: Vec<u8> = (0..LEN + 1).map(|at| (at / 4096) as u8).collect();
        std::fs::write(nodes.path("from"), &content).unwrap();
        let (count, is_lost) = (Arc::new(AtomicUsize::new(0)), Arc::new(Notify::new()));
        let dial = LosesChunks::new(nodes, Arc::clone(&count), Arc::clone(&is_lost));
        let options = Options::new().channels(1).recover_for(Duration::from_secs(20));
        let client = Client::with_dialer(options, Arc::new(dial));
        let user = Credentials::new("ann", "secret");
        let session = client.connect(ServerName::new(CLUSTER), user).await.unwrap();
        let one = session.share("lasting").await.unwrap();
        let two = session.share("second").await.unwrap();
        let source = one.open("from").await.unwrap();
        let target = writable().open(&two, "to").await.unwrap();
        let moves = async {
            is_lost.notified().await;
            nodes.hand_over_group(&SHARES, 0, 1).await;
        };
        // From such an offset extents cannot be shared, nor sectors offloaded.
        let copied = source.copy_range_to(&target, 1, 0, LEN as u64);
        let (how, ()) = tokio::join!(timeout(SOON * 3, copied), moves);
        assert_eq!(how.unwrap().unwrap(), Some(CopyMethod::OnServer));
        assert!(std::fs::read(nodes.path("to")).unwrap() == content[1..]);
        // Two requests before the move, the second one without an answer; the key is not known there.
        let count = count.load(Ordering::SeqCst);
        assert!((4..=6).contains(&count), "{count} requests: the copy goes on where it was");
    });
}

#[test]
fn a_lock_is_waited_for_at_the_new_node() {
    each_way(async |nodes, way| {
        let holder = nodes.share("lasting").await;
        let held = writable().open(&holder, "f").await.unwrap();
        held.lock(0, 4, LockKind::Exclusive).await.unwrap();
        let other = nodes.share("lasting").await;
        let waiting = writable().open(&other, "f").await.unwrap();
        let waits = waiting.clone();
        let waits = tokio::spawn(async move { waits.lock(0, 4, LockKind::Exclusive).await });
        sleep(Duration::from_millis(200)).await;
        way.go(nodes).await;
        // The lock is held all the time, though its holder does nothing.
        nodes.until_reached(1, SOON).await;
        sleep(Duration::from_millis(300)).await;
        assert!(!waits.is_finished(), "two clients have one lock, {way:?}");
        held.unlock(0, 4).await.unwrap();
        timeout(SOON, waits).await.expect("the lock is free").unwrap().unwrap();
        assert!(held.try_lock(0, 4, LockKind::Exclusive).await.is_err());
        waiting.unlock(0, 4).await.unwrap();
    });
}

/// A client that does nothing but hold a file open does not keep others waiting.
#[test]
fn the_files_of_an_idle_client_come_along() {
    each_way(async |nodes, way| {
        let idle = nodes.share("lasting").await;
        let lease = idle.lease_of("f").await.unwrap();
        let file = writable().shared_lease(&lease).open(&idle, "f").await.unwrap();
        file.lock(0, 4, LockKind::Exclusive).await.unwrap();
        let all = [file, writable().open(&idle, "g").await.unwrap()];
        way.go(nodes).await;
        nodes.until_reached(1, SOON).await;
        let other = nodes.share("lasting").await;
        let begun = Instant::now();
        let theirs = timeout(SOON, writable().open(&other, "f")).await.expect("a break").unwrap();
        assert!(theirs.try_lock(0, 4, LockKind::Exclusive).await.is_err(), "{way:?}");
        assert!(begun.elapsed() < SOON, "{:?}", begun.elapsed());
        all[0].unlock(0, 4).await.unwrap();
        theirs.try_lock(0, 4, LockKind::Exclusive).await.unwrap();
        all[1].write_all_at(b"data", 0).await.unwrap();
    });
}

/// A cache of writes, which it sends when it is told to give the lease up.
struct WriteCache {
    file: OnceLock<File>,
    is_asked: Notify,
    may_send: Arc<Notify>,
}

impl LeaseHolder for WriteCache {
    fn broken(&self, _: LeaseState) -> Yield {
        let (file, may_send) = (self.file.get().cloned(), Arc::clone(&self.may_send));
        self.is_asked.notify_one();
        Box::pin(async move {
            may_send.notified().await;
            file.unwrap().write_all_at(b"cached", 0).await.unwrap();
            may_send.notify_one();
        })
    }
}

/// The share moves after the holder of a lease was told to give it up, and before it has.
#[test]
fn a_lease_is_given_up_at_the_new_node() {
    each_way(async |nodes, way| {
        let writer = nodes.share("lasting").await;
        let lease = writer.lease_of("f").await.unwrap();
        let cache = Arc::new(WriteCache {
            file: OnceLock::new(),
            is_asked: Notify::new(),
            may_send: Arc::default(),
        });
        let watcher: Weak<WriteCache> = Arc::downgrade(&cache);
        lease.watch(watcher);
        let all = LeaseState::READ.union(LeaseState::WRITE).union(LeaseState::HANDLE);
        let options = writable().lease(all).shared_lease(&lease);
        let file = options.open(&writer, "f").await.unwrap();
        assert!(lease.grant().state.contains(LeaseState::WRITE));
        assert!(cache.file.set(file).is_ok());
        let reader = nodes.share("lasting").await;
        let opening = tokio::spawn(async move {
            let file = OpenOptions::new().read(true).open(&reader, "f").await?;
            let mut data = [0; 6];
            file.read_exact_at(&mut data, 0).await.map(|()| data)
        });
        timeout(SOON, cache.is_asked.notified()).await.expect("a break");
        let sends = async {
            sleep(Duration::from_millis(300)).await;
            cache.may_send.notify_one();
        };
        tokio::join!(way.go(nodes), sends);
        let read = timeout(SOON, opening).await.expect("the break ends").unwrap().unwrap();
        assert_eq!(&read, b"cached", "{way:?}");
        assert!(!lease.grant().state.contains(LeaseState::WRITE), "{way:?}");
    });
}

#[test]
fn a_listing_goes_on_at_the_new_node() {
    each_way(async |nodes, way| {
        for at in 0..3_000 {
            std::fs::write(nodes.path(&format!("entry-{at:04}")), b"").unwrap();
        }
        // With few credits a listing takes several requests.
        let session = nodes.session(Options::new().credits(8).channels(1), CLUSTER).await;
        let share = session.share("lasting").await.unwrap();
        let mut dir = share.read_dir("").await.unwrap();
        let mut names = BTreeSet::new();
        while let Some(entry) = dir.next_entry().await.unwrap() {
            assert!(names.insert(entry.file_name().to_owned()), "{entry:?} came twice, {way:?}");
            if names.len() == 5 {
                way.go(nodes).await;
            }
        }
        assert_eq!(names.len(), 3_000, "{way:?}");
        let moved = async {
            nodes.revive(0);
            nodes.hand_over("lasting", 1, 0).await;
        };
        let (listed, ()) = tokio::join!(share.list_dir(""), moved);
        assert_eq!(listed.unwrap().len(), 3_000, "{way:?}");
    });
}

/// Waits until the watch tells of a change, and returns all that it tells.
async fn told(watch: &mut Watch, wanted: &Change) -> Vec<Change> {
    let mut all = Vec::new();
    let telling = async {
        while !all.contains(wanted) {
            all.extend(watch.next_changes().await.unwrap());
        }
    };
    let ended = timeout(SOON, telling).await;
    assert!(ended.is_ok(), "{wanted:?} is not told");
    all
}

/// After the loss is told, the application lists the directory. No later change is missed.
#[test]
fn a_watch_goes_on_at_the_new_node() {
    each_way(async |nodes, way| {
        for is_waiting in [true, false] {
            let share = nodes.share("lasting").await;
            let mut watch = share.watch("", RecursiveMode::NonRecursive).await.unwrap();
            let moment = Duration::from_millis(100);
            assert!(timeout(moment, watch.next_changes()).await.is_err(), "nothing has changed");
            let change = Change::Added(format!("before-{is_waiting}"));
            share.create_dir(&format!("before-{is_waiting}")).await.unwrap();
            told(&mut watch, &change).await;
            let missed = if is_waiting {
                let (missed, ()) = tokio::join!(told(&mut watch, &Change::Missed), way.go(nodes));
                missed
            } else {
                nodes.revive(0);
                nodes.hand_over("lasting", 1, 0).await;
                told(&mut watch, &Change::Missed).await
            };
            let losses = missed.iter().filter(|change| **change == Change::Missed).count();
            assert_eq!(losses, 1, "{missed:?}");
            share.create_dir(&format!("after-{is_waiting}")).await.unwrap();
            let after = told(&mut watch, &Change::Added(format!("after-{is_waiting}"))).await;
            assert!(!after.contains(&Change::Missed), "{after:?}, {way:?}");
        }
    });
}

#[test]
fn a_file_that_is_deleted_on_close_is_deleted_at_the_new_node() {
    each_way(async |nodes, way| {
        let share = nodes.share("lasting").await;
        let options = writable().delete_on_close(true);
        let closed = options.open(&share, "closed").await.unwrap();
        let dropped = options.open(&share, "dropped").await.unwrap();
        closed.write_all_at(b"data", 0).await.unwrap();
        way.go(nodes).await;
        nodes.until_reached(1, SOON).await;
        sleep(Duration::from_millis(100)).await;
        assert!(nodes.path("closed").exists() && nodes.path("dropped").exists(), "{way:?}");
        closed.write_all_at(b"more", 4).await.unwrap();
        closed.close().await.unwrap();
        assert!(!nodes.path("closed").exists(), "{way:?}");
        drop(dropped);
        let begun = Instant::now();
        while nodes.path("dropped").exists() {
            assert!(begun.elapsed() < SOON, "{way:?}");
            sleep(Duration::from_millis(10)).await;
        }
    });
}

/// As a program copies a tree: directories, files of all lengths, and attributes.
async fn put_tree(share: &Share, count: usize) -> frevo_client::Result<()> {
    for at in 0..count {
        let directory = format!("tree/{}", at % 5);
        share.create_dir_all(&directory).await?;
        let len = if at % 10 == 0 { 3_000_000 } else { at };
        share.write(&format!("{directory}/{at}"), &vec![at as u8; len]).await?;
    }
    Ok(())
}

#[test]
fn a_tree_is_put_and_removed_while_its_share_moves() {
    with_nodes(3, async |nodes| {
        nodes.take(0, "lasting").await;
        let share = nodes.share("lasting").await;
        let moves = async {
            for round in 0..9 {
                sleep(Duration::from_millis(30)).await;
                nodes.hand_over("lasting", round % 3, (round + 1) % 3).await;
            }
        };
        let (put, ()) = tokio::join!(put_tree(&share, 200), moves);
        put.unwrap();
        for at in 0..200_usize {
            let content = std::fs::read(nodes.path(&format!("tree/{}/{at}", at % 5))).unwrap();
            let len = if at % 10 == 0 { 3_000_000 } else { at };
            assert!(content == vec![at as u8; len], "{at}");
        }
        let moves = async {
            for round in 0..6 {
                sleep(Duration::from_millis(10)).await;
                nodes.fail_over("lasting", round % 3, (round + 1) % 3).await;
                nodes.revive(round % 3);
            }
        };
        let (removed, ()) = tokio::join!(share.remove_dir_all("tree"), moves);
        removed.unwrap();
        assert_eq!(std::fs::read_dir(nodes.dir.path()).unwrap().count(), 0);
    });
}
