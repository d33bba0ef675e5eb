//! The memory that buffers of all connections hold: row R2 of the catalogue of
//! faults, and what an authenticated client can do to others. One test runs at a
//! time: the count is the process's.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::net::Ipv4Addr;
use std::sync::Mutex;
use std::time::Duration;

use client::files::{close_draft, read_draft, write_draft};
use client::*;
use frevo_net::buffer::Buf;
use frevo_net::buffer::budget::{self, Fullness};
use frevo_server::{Limits, Reload};
use frevo_wire::command::change_notify::{ChangeNotifyFlags, CompletionFilter, Request};

/// Held by the test that runs.
static ALONE: Mutex<()> = Mutex::new(());

/// The credits that the answer to a request for 256 grants.
async fn granted(peer: &mut Peer, mount: &Mount) -> u16 {
    peer.on(mount, Draft::echo()).await.ok().header.credits
}

#[test]
fn credits_shrink_as_memory_fills_and_nobody_new_comes_when_it_is_full() {
    const LIMIT: usize = 64 << 20;
    let _alone = ALONE.lock();
    in_world(async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        // A waiting request keeps only a part of its frame. With whole frames, 500 requests would
        // take 34 MiB.
        let (mut watcher, watched) = world.session("ann", &Offer::default()).await;
        let directory = watcher.open_file(&watched, &Want::directory("d")).await;
        let before = budget::in_use();
        for _ in 0..500 {
            let draft = Draft::new(Command::CHANGE_NOTIFY).with(|w| {
                let flags = ChangeNotifyFlags::EMPTY;
                let (file_id, completion_filter) = (directory, CompletionFilter::FILE_NAME);
                let output_buffer_length = 4096;
                Request { flags, output_buffer_length, file_id, completion_filter }.encode(w);
                w.bytes(&[0; 61_000]);
            });
            watcher.send(vec![watched.put(draft)], watched.via()).await;
            watcher.interim().await;
        }
        let more = budget::in_use().saturating_sub(before);
        assert!(more < 1 << 20, "{more} bytes in buffers");
        drop(watcher);
        // `hold` allocates buffers until `eighths` eighths of the memory limit are used.
        let hold = |eighths: usize| -> Vec<Buf> {
            let mut held = Vec::new();
            while budget::in_use() < LIMIT / 8 * eighths {
                held.push(Buf::with_capacity(64 << 10));
            }
            held
        };
        let limits = Limits { memory: LIMIT, ..Limits::default() };
        world.embedded.reload(Reload::new().limits(limits));
        let before = budget::in_use();
        assert!(before < LIMIT / 8, "{before}");
        assert!(granted(&mut peer, &mount).await > 1);

        let held = hold(4);
        assert_eq!(budget::fullness(), Fullness::Scarce);
        assert_eq!(granted(&mut peer, &mount).await, 1, "as many as the request took");
        let more = hold(7);
        assert_eq!(budget::fullness(), Fullness::Dire);
        assert_eq!(granted(&mut peer, &mount).await, 0);
        let rest = hold(8);
        assert_eq!(budget::fullness(), Fullness::Full);
        assert!(world.connect_from(Ipv4Addr::LOCALHOST.into()).is_some(), "newcomers have room");
        // Memory is short, but a connected client is still served. Its large requests are handled
        // one after another.
        let file = peer.open_file(&mount, &Want::file("f")).await;
        let data = vec![7; 1 << 20];
        let drafts = (0..8).map(|n| mount.put(write_draft(file, n << 20, &data)));
        let mut waiting = Vec::new();
        for draft in drafts {
            waiting.extend(peer.send(vec![draft], mount.via()).await);
        }
        for id in waiting {
            let reply = peer.final_reply(id).await;
            assert_eq!(reply.ok().header.credits, 0, "none are given while it is full");
        }
        assert_eq!(world.content("f").len(), 8 << 20);
        peer.close(&mount, file).await;

        let beyond = hold(9);
        assert!(world.connect_from(Ipv4Addr::LOCALHOST.into()).is_none(), "not even for newcomers");
        drop((held, more, rest, beyond));
        assert_eq!(budget::fullness(), Fullness::Ample);
        assert!(budget::in_use() <= before + (2 << 20), "{} bytes", budget::in_use());
        assert!(granted(&mut peer, &mount).await > 1);
        assert!(world.connect_from(Ipv4Addr::LOCALHOST.into()).is_some());
    });
}

/// Asks for 8 MiB several times, and takes no answer.
async fn ask_for_much(peer: &mut Peer, mount: &Mount, file: FileId) {
    for _ in 0..3 {
        peer.send(vec![mount.put(read_draft(file, 0, 8 << 20))], mount.via()).await;
    }
}

/// A client that has credits for large READs, with `f` open.
async fn reader(world: &World, user: &str) -> (Peer, Mount, FileId) {
    let (mut peer, mount) = world.session(user, &Offer::default()).await;
    peer.asks = 512;
    peer.expect_alive_in(&mount).await;
    let file = peer.open_file(&mount, &Want::existing("f")).await;
    (peer, mount, file)
}

/// The bytes of buffers, once they stay.
async fn settled() -> usize {
    let mut last = usize::MAX;
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        let now = budget::in_use();
        if now == last {
            return now;
        }
        last = now;
    }
}

/// Tests that large READs of one account wait while the last quarter of the memory is left, that
/// another account has it, and that they go on when there is room.
#[test]
fn r3_large_reads_of_one_account_leave_memory_to_others() {
    const LIMIT: usize = 128 << 20;
    const READ: usize = 8 << 20;
    let _alone = ALONE.lock();
    in_world(async |world| {
        world.file("f", vec![7; 8 << 20]);
        let limits = Limits { memory: LIMIT, ..Limits::default() };
        world.embedded.reload(Reload::new().limits(limits));
        // With scarce memory clients get few credits.
        let (mut bob, mount, file) = reader(world, "bob").await;
        let mut of_ann = Vec::new();
        for _ in 0..12 {
            of_ann.push(reader(world, "ann").await);
        }
        for (peer, mount, file) in &mut of_ann {
            ask_for_much(peer, mount, *file).await;
        }
        let held = settled().await;
        // A buffer has room for headers too.
        assert!(held <= LIMIT - LIMIT / 4 + (64 << 10), "{held} bytes for one account");
        assert!(held > LIMIT / 2, "{held} bytes: it waits too early");
        // The rest of the memory is for other accounts.
        for _ in 0..3 {
            assert_eq!(bob.read(&mount, file, 0, 8 << 20).await.len(), 8 << 20);
        }
        assert!(budget::fullness() < Fullness::Dire);
        drop(bob);
        // The READs that wait are answered as their clients take answers.
        let taking = of_ann.into_iter().map(|(mut peer, ..)| {
            tokio::task::spawn_local(async move {
                for _ in 0..3 {
                    let reply = loop {
                        let reply = peer.reply().await;
                        if !reply.is_interim() {
                            break reply;
                        }
                    };
                    assert!(reply.message.len() > 8 << 20);
                }
            })
        });
        let taking: Vec<_> = taking.collect();
        for one in taking {
            one.await.unwrap();
        }
        assert!(settled().await < READ, "all has been sent");
    });
}

/// Clients of ann, whose READs have filled the account's part of the memory, and a little more.
async fn without_memory(world: &World) -> Vec<(Peer, Mount, FileId)> {
    const LIMIT: usize = 128 << 20;
    let mut of_ann = Vec::new();
    for _ in 0..12 {
        of_ann.push(reader(world, "ann").await);
    }
    for (peer, mount, file) in &mut of_ann {
        ask_for_much(peer, mount, *file).await;
    }
    settled().await;
    // Frames that begin while there is memory may go beyond the account's part.
    for (peer, ..) in of_ann.iter_mut().take(3) {
        if budget::in_use() <= LIMIT - LIMIT / 4 {
            let length: u32 = 8 << 20;
            peer.send_bytes(&[&length.to_be_bytes()[..], &[0; 100]].concat()).await;
            settled().await;
        }
    }
    assert!(budget::in_use() > LIMIT - LIMIT / 4, "{} bytes", budget::in_use());
    of_ann
}

/// Tests that an account with more than its part of the memory can still free something: its small
/// requests are answered, also behind READs that wait, and its large ones wait. It cannot have more of
/// them under way than a few.
#[test]
fn r3_an_account_without_memory_can_free_something() {
    const LIMIT: usize = 128 << 20;
    /// Bytes of a reply that waits for memory.
    const LONG: u32 = 1 << 20;
    let _alone = ALONE.lock();
    in_world(async |world| {
        world.file("f", vec![7; 8 << 20]);
        world.file("g", b"g");
        let limits = Limits { memory: LIMIT, ..Limits::default() };
        world.embedded.reload(Reload::new().limits(limits));
        let (mut closer, mount, file) = reader(world, "ann").await;
        let first = closer.open_file(&mount, &Want::existing("g")).await;
        let second = closer.open_file(&mount, &Want::existing("g")).await;
        let (mut writer, to, _) = reader(world, "ann").await;
        let target = writer.open_file(&to, &Want::file("h")).await;
        let of_ann = without_memory(world).await;
        let held = settled().await;
        // The READ waits, and the CLOSE behind it does not.
        let read = || mount.put(read_draft(file, 0, LONG));
        closer.send(vec![read()], mount.via()).await;
        let close = closer.send(vec![mount.put(close_draft(first))], mount.via()).await;
        closer.final_reply(close[0]).await.ok();
        // A large request waits, without memory. The connection has room for it.
        let data = vec![1; 512 << 10];
        let write = writer.send(vec![to.put(write_draft(target, 0, &data))], to.via()).await;
        let answer = writer.final_reply(write[0]);
        let answer = tokio::time::timeout(Duration::from_millis(300), answer);
        assert!(answer.await.is_err(), "{write:?} does not wait");
        // Requests that hold something are few: what comes behind them waits.
        for _ in 0..20 {
            closer.send(vec![read()], mount.via()).await;
        }
        let close = closer.send(vec![mount.put(close_draft(second))], mount.via()).await;
        let answer = closer.final_reply(close[0]);
        let answer = tokio::time::timeout(Duration::from_millis(300), answer);
        assert!(answer.await.is_err(), "{close:?} does not wait");
        let more = settled().await.saturating_sub(held);
        assert!(more <= 256 << 10, "{more} bytes more");
        drop(of_ann);
        writer.final_reply(write[0]).await.ok();
        closer.final_reply(close[0]).await.ok();
    });
}

/// True where this kernel and sandbox let a process watch.
fn can_watch() -> bool {
    let test = r"import ctypes,os,sys; sys.exit(ctypes.CDLL(None).fanotify_init(0xC01, 0) < 0)";
    let python = std::process::Command::new("python3").args(["-c", test]).status();
    let can = python.expect("python3").success();
    if !can {
        println!("skipped: nobody may watch a file system here (fanotify_init)");
    }
    can
}

/// Tests that paths of watched trees, whose lengths the client chooses, leave memory to others: they have
/// a bound in all, and one for each account.
#[test]
fn r3_paths_of_watched_trees_leave_memory_to_others() {
    const LIMIT: usize = 64 << 20;
    const TREES: usize = 8;
    const ALL: usize = frevo_posix::limits::HOST_DIRECTORIES_BYTES;
    let _alone = ALONE.lock();
    if !can_watch() {
        return;
    }
    in_world(async |world| {
        let long = "d".repeat(240);
        let innermost = world.dir.path().join([&*long; TREES].join("/"));
        std::fs::create_dir_all(&innermost).unwrap();
        for number in 0..8_000 {
            std::fs::create_dir(innermost.join(number.to_string())).unwrap();
        }
        world.file("f", b"data");
        let limits = Limits { memory: LIMIT, ..Limits::default() };
        world.embedded.reload(Reload::new().limits(limits));
        let ledger = &world.server.ledger;
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let mut directories = Vec::new();
        for depth in 1..=TREES {
            let want = Want::directory(&vec![&*long; depth].join("\\"));
            directories.push(ann.open_file(&mount, &want).await);
        }
        for directory in directories {
            let draft = Draft::new(Command::CHANGE_NOTIFY).with(|w| {
                let flags = ChangeNotifyFlags::WATCH_TREE;
                let (file_id, completion_filter) = (directory, CompletionFilter::DIR_NAME);
                let output_buffer_length = 4096;
                Request { flags, output_buffer_length, file_id, completion_filter }.encode(w);
            });
            ann.send(vec![mount.put(draft)], mount.via()).await;
        }
        // The bytes stay while thousands of directories that are counted already get their marks.
        let until = std::time::Instant::now() + Duration::from_secs(60);
        while ledger.watched_bytes() <= ALL / 2 {
            assert!(std::time::Instant::now() < until, "{} bytes", ledger.watched_bytes());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        for _ in 0..100 {
            let bytes = ledger.watched_bytes();
            assert!(bytes <= ALL - ALL / 4, "{bytes} bytes for one account");
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        assert!(ledger.fullness() < Fullness::Dire);
        let (mut bob, its) = world.session("bob", &Offer::default()).await;
        let file = bob.open_file(&its, &Want::existing("f")).await;
        assert_eq!(bob.read(&its, file, 0, 4).await, b"data");
        assert!(granted(&mut bob, &its).await > 0);
        drop(ann);
        let until = std::time::Instant::now() + Duration::from_secs(20);
        while ledger.watched_bytes() > 0 {
            assert!(std::time::Instant::now() < until, "{} bytes stay", ledger.watched_bytes());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
}

/// Tests that a READ in a compound waits briefly where earlier replies of the compound have memory, and
/// that connections which are reset free their replies, for whose memory their own requests wait.
#[test]
fn requests_free_memory_that_others_of_them_wait_for() {
    const LIMIT: usize = 128 << 20;
    const USED: usize = 90 << 20;
    const READ: u32 = 8 << 20;
    let _alone = ALONE.lock();
    in_world(async |world| {
        world.file("f", vec![7; READ as usize]);
        let limits = Limits { memory: LIMIT, ..Limits::default() };
        world.embedded.reload(Reload::new().limits(limits));
        let (mut last, to, its) = reader(world, "ann").await;
        let mut of_ann = Vec::new();
        for _ in 0..10 {
            of_ann.push(reader(world, "ann").await);
        }
        for (peer, mount, file) in &mut of_ann {
            peer.send(vec![mount.put(read_draft(*file, 0, READ))], mount.via()).await;
        }
        // The kernel takes a part of these answers, so that there is no saying how many fill the memory.
        for number in 0..60 {
            if settled().await >= USED {
                break;
            }
            let (peer, mount, file) = &mut of_ann[number % 10];
            peer.send(vec![mount.put(read_draft(*file, 0, 2 << 20))], mount.via()).await;
        }
        assert!(settled().await >= USED);
        let reads = |mount: &Mount, file, lengths: [u32; 3]| -> Vec<_> {
            lengths.into_iter().map(|length| mount.put(read_draft(file, 0, length))).collect()
        };
        last.send(reads(&to, its, [64 << 10, 7 << 20, 4096]), to.via()).await;
        let replies = last.replies().await.unwrap();
        let statuses: Vec<_> = replies.iter().map(Reply::status).collect();
        let refused = Status::INSUFFICIENT_RESOURCES;
        assert_eq!(statuses, [Status::SUCCESS, refused, Status::SUCCESS]);

        for (peer, mount, file) in &mut of_ann {
            peer.send(reads(mount, *file, [7 << 20, 4096, 4096]), mount.via()).await;
        }
        let waiting = settled().await;
        assert!(waiting < USED + (4 << 20), "{waiting} bytes: nothing waits");
        drop(of_ann);
        let left = settled().await;
        assert!(left < READ as usize, "{left} bytes are not free");
    });
}
