//! A local disk whose calls take seconds for the files of one account: others, on another share, wait for
//! the first of them and for no further one.

use std::future::poll_fn;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_net::transport::Stream;
use frevo_net::{memory, watchdog};
use frevo_server::ambient::{Ambient, Host};
use frevo_server::internal::limits::{BLOCKING_REQUESTS_PER_USER, DISK_TRIALS, SLOW_SHARE};
use frevo_server::internal::state::Shares;
use frevo_server::share::Share;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::vfs::{OpenHow, Opened, Space, Stat, VfsResult, Volume};
use frevo_store::{FileKey, Name, Node, Vfs};
use frevo_wire::dtyp::{AccessMask, Guid};
use tokio::time::timeout;

use crate::client::files::{file_id, read_draft, write_draft};
use crate::client::*;

/// Time of a call about a name that begins with [`SLOW`].
const CALL: Duration = Duration::from_secs(2);
const SLOW: &str = "slow";
/// Connections of the account whose calls are slow, and requests of each.
const CONNECTIONS: u8 = 8;
const REQUESTS: usize = 3;

/// A disk that is slow for some names.
#[derive(Debug)]
struct Disk(MemoryVfs);

impl Disk {
    fn look_for(&self, name: &Name) -> &MemoryVfs {
        if name.path().starts_with(SLOW) {
            std::thread::sleep(CALL);
        }
        &self.0
    }
}

impl Vfs for Disk {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        self.look_for(name).open(name, how)
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.look_for(name).remove(name, key)
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        self.look_for(from).rename(from, key, to, replace)
    }

    fn link(&self, node: &dyn Node, to: &Name, replace: bool) -> VfsResult<()> {
        self.look_for(to).link(node, to, replace)
    }

    fn stat(&self, name: &Name) -> VfsResult<Stat> {
        self.look_for(name).stat(name)
    }

    fn space(&self) -> VfsResult<Space> {
        self.0.space()
    }

    fn volume(&self) -> Arc<Volume> {
        self.0.volume()
    }
}

/// Adds the share `disk`, as a configuration without `off_core` has it.
fn add_disk(world: &World) {
    let inner = MemoryVfs::new(MemoryOptions::default(), Arc::new(|| Host.now()));
    let disk = Share::disk("disk", Arc::new(Disk(inner))).off_core_while_waiting();
    let present = world.server.shares().sorted().into_iter();
    let present = present.filter(|share| share.name() != "IPC$").map(|share| Share::clone(&share));
    let shares = Shares::new(present.chain([disk]));
    let settings = Settings::clone(&world.server.settings());
    world.server.reload(settings, &shares, world.server.accounts());
}

/// A client that has logged on and uses a share. Each poll of its connection is measured, as on a core.
async fn arrive(world: &World, user: &str, number: u8, share: &str) -> (Peer, Mount) {
    let at = |port| SocketAddr::new(Ipv4Addr::LOCALHOST.into(), port);
    let (ours, theirs) = memory::pair(1 << 20, [at(50_000), at(445)]);
    let mut connection = Box::pin(world.embedded.serve_connection(theirs).unwrap());
    world.keep(tokio::task::spawn_local(poll_fn(move |cx| {
        watchdog::measured(|| connection.as_mut().poll(cx)).0
    })));
    let mut peer = Peer::new(Stream::Memory(ours), Guid([number; 16]));
    peer.negotiate(&Offer::default()).await;
    let logon = peer.log_on(user).await;
    let mount = peer.mount(&logon, share).await;
    (peer, mount)
}

/// Opens a file, writes, reads and closes it. Returns the time that it took.
async fn look(peer: &mut Peer, mount: &Mount) -> Duration {
    let began = Instant::now();
    let file = peer.open_file(mount, &Want::file("probe").access(AccessMask::FILE_ALL)).await;
    peer.write(mount, file, 0, b"as always").await;
    assert_eq!(peer.read(mount, file, 0, 100).await, b"as always");
    peer.close(mount, file).await;
    began.elapsed()
}

/// Requests that wait for the disk leave the core once the disk is known to be slow. Nobody knows it before the
/// first call has ended, if the disk has just been used.
#[test]
fn a_disk_that_stands_still_holds_others_up_once() {
    let slow_looks = slow_looks(true);
    assert!(slow_looks <= 1, "{slow_looks} looks have waited");
}

/// A disk that has not been used yet may stand still, so that threads make the first calls.
#[test]
fn an_untried_disk_that_stands_still_holds_nobody_up() {
    assert_eq!(slow_looks(false), 0);
}

/// Returns how many looks of bob's have waited for a crowd whose disk stands still, after bob has used the disk
/// if it `is_tried`. Bob has the other share and also files on the disk that are not slow.
fn slow_looks(is_tried: bool) -> usize {
    let (told, tells) = std::sync::mpsc::channel();
    in_world(async move |world| {
        add_disk(world);
        let (mut bob, elsewhere) = arrive(world, "bob", 0xBB, "data").await;
        let same_disk = bob.mount(&elsewhere.logon, "disk").await;
        look(&mut bob, &elsewhere).await;
        if is_tried {
            for _ in 0..DISK_TRIALS {
                look(&mut bob, &same_disk).await;
            }
        }
        let mut crowd = Vec::new();
        for number in 1..=CONNECTIONS {
            let (mut ann, mount) = arrive(world, "ann", number, "disk").await;
            let mut asked = Vec::new();
            for at in 0..REQUESTS {
                let draft = Want::file(&format!("{SLOW}-{number}-{at}")).draft();
                asked.extend(ann.send(vec![mount.put(draft)], mount.via()).await);
            }
            crowd.push((ann, mount, asked));
        }
        let slow = async {
            for (ann, mount, asked) in &mut crowd {
                for reply in ann.collect(asked).await {
                    ann.close(mount, file_id(reply.ok())).await;
                }
            }
        };
        let mut looks = Vec::new();
        let probes = async {
            loop {
                looks.push(look(&mut bob, &elsewhere).await + look(&mut bob, &same_disk).await);
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        timeout(Duration::from_secs(120), async {
            tokio::select! {
                biased;
                () = probes => (),
                () = slow => (),
            }
        })
        .await
        .expect("the slow requests are answered");
        assert!(looks.len() > 20, "{looks:?}");
        let _ = told.send(looks.iter().filter(|took| **took >= CALL / 2).count());
    });
    tells.recv().expect("the world has come to its end")
}

/// Opens a file for which the disk takes [`CALL`].
async fn open_slowly(peer: &mut Peer, mount: &Mount, number: u8) {
    let file = peer.open_file(mount, &Want::file(&format!("{SLOW}-{number}"))).await;
    peer.close(mount, file).await;
}

/// Has all clocks go on.
async fn pass(time: Duration) {
    tokio::time::pause();
    tokio::time::advance(time).await;
    tokio::time::resume();
}

/// A disk that stands still again and again holds others up once: the calls on threads tell that it is still
/// slow.
#[test]
fn a_disk_that_stays_slow_holds_others_up_no_more() {
    in_world(async |world| {
        add_disk(world);
        let (mut ann, mount) = arrive(world, "ann", 1, "disk").await;
        let (mut bob, elsewhere) = arrive(world, "bob", 2, "data").await;
        // The first call is made on the core, and the second one on a thread.
        for number in 0..2 {
            open_slowly(&mut ann, &mount, number).await;
            pass(SLOW_SHARE * 3 / 4).await;
        }
        let draft = Want::file(&format!("{SLOW}-last")).draft();
        let asked = ann.send(vec![mount.put(draft)], mount.via()).await;
        let took = look(&mut bob, &elsewhere).await;
        assert!(took < CALL / 2, "{took:?}");
        ann.collect(&asked).await;
    });
}

/// Large WRITEs, whose messages go to threads without a copy, write their data: alone, sealed, and as the first
/// and the last of a compound.
#[test]
fn large_writes_to_a_slow_disk_write_their_data() {
    in_world(async |world| {
        add_disk(world);
        let (mut ann, mount) = arrive(world, "ann", 1, "disk").await;
        open_slowly(&mut ann, &mount, 0).await;
        let file = ann.open_file(&mount, &Want::file("large")).await;
        let data = |seed: usize| -> Vec<u8> { (0..300_000).map(|at| (at % seed) as u8).collect() };
        for (mount, seed) in [(mount.clone(), 251), (mount.clone().sealed(), 241)] {
            ann.write(&mount, file, 0, &data(seed)).await;
            assert!(ann.read(&mount, file, 0, 300_000).await == data(seed));
            let both = [(0, seed - 10), (300_000, seed - 20)];
            let drafts = both.map(|(at, seed)| mount.put(write_draft(file, at, &data(seed))));
            for reply in ann.ask_all(drafts.into(), mount.via()).await {
                reply.ok();
            }
            for (at, seed) in both {
                assert!(ann.read(&mount, file, at, 300_000).await == data(seed));
            }
        }
    });
}

/// The READs of a client that takes no answers wait for memory, and keep no threads of the disk.
#[test]
fn reads_that_wait_for_memory_keep_no_threads_of_a_slow_disk() {
    const BIG: u32 = 8 << 20;
    const SMALLER: u32 = 1 << 20;
    in_world(async |world| {
        world.server.ledger.set_limit(256 << 20);
        add_disk(world);
        let (mut ann, mount) = arrive(world, "ann", 0xAA, "disk").await;
        let big = Want::file("big").access(AccessMask::FILE_ALL);
        let file = ann.open_file(&mount, &big).await;
        ann.write(&mount, file, u64::from(BIG) - 1, b"x").await;
        ann.close(&mount, file).await;
        open_slowly(&mut ann, &mount, 0).await;
        // Two large replies are all that a connection may have.
        let waiting = BLOCKING_REQUESTS_PER_USER / 2 + 1;
        let lengths = [BIG; 2].into_iter().chain(std::iter::repeat_n(SMALLER, waiting));
        let lengths: Vec<_> = lengths.collect();
        let charge: u64 = lengths.iter().map(|length| u64::from(length / 65_536)).sum();
        let mut crowd = Vec::new();
        for number in 1..=2 {
            let (mut other, mount) = arrive(world, "ann", number, "disk").await;
            let file = other.open_file(&mount, &Want::existing("big")).await;
            while other.credits < charge {
                look(&mut other, &mount).await;
            }
            for length in &lengths {
                let draft = read_draft(file, 0, *length);
                other.send(vec![mount.put(draft)], mount.via()).await;
            }
            crowd.push(other);
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        let looked = timeout(Duration::from_secs(20), look(&mut ann, &mount));
        looked.await.expect("another connection of the account has threads");
        drop(crowd);
        look(&mut ann, &mount).await;
    });
}
