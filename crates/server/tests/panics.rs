//! A bug in the server: a panic ends the connection that met it. Others go on, and
//! nothing of that connection stays. A binary of its own: the panic hook is the process's.
#![allow(clippy::print_stdout, unreachable_pub, dead_code, reason = "tests")]

#[path = "client/mod.rs"]
mod client;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use client::files::{
    close_draft, delete_draft, file_id, flush_draft, lock_draft, read_draft, rename_draft,
    set_draft, write_draft,
};
use client::queries::{list_draft, query_draft};
use client::world::EXCLUSIVE;
use client::*;
use frevo_net::socket::Listener;
use frevo_net::transport::Stream;
use frevo_server::ambient::{Ambient, Host};
use frevo_server::internal::limits::BREAK_TIMEOUT;
use frevo_server::internal::state::{Shares, off_core_settled};
use frevo_server::panics;
use frevo_server::share::Share;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_wire::command::create::{CreateDisposition, CreateOptions, OplockLevel, ShareAccess};
use frevo_wire::command::query_directory::QueryDirectoryFlags;
use frevo_wire::dtyp::Guid;
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::FileInfoClass;
use tokio::task::LocalSet;
use tokio::time::{Instant, sleep, timeout};

/// Longer than anything here takes.
const PATIENCE: Duration = Duration::from_secs(60);

/// Calls of the file system, of which some panic.
#[derive(Default)]
struct Planted {
    is_armed: AtomicBool,
    calls: AtomicUsize,
    met: AtomicUsize,
}

impl Planted {
    /// The call number `first` panics, and if `often` all after it.
    fn plant(vfs: &MemoryVfs, first: usize, often: bool) -> Arc<Self> {
        let planted = Arc::new(Self::default());
        let here = Arc::clone(&planted);
        vfs.faults().at_call(Some(Arc::new(move |operation| {
            if !here.is_armed.load(Ordering::Acquire) {
                return;
            }
            let call = here.calls.fetch_add(1, Ordering::AcqRel);
            if call == first || (often && call > first) {
                here.met.fetch_add(1, Ordering::AcqRel);
                panic!("planted in {operation:?}");
            }
        })));
        planted
    }

    fn arm(&self, is_armed: bool) {
        self.is_armed.store(is_armed, Ordering::Release);
    }
}

fn in_memory_vfs() -> Arc<MemoryVfs> {
    Arc::new(MemoryVfs::new(MemoryOptions::default(), Arc::new(|| Host.now())))
}

fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test)
}

fn victim() -> Want {
    Want { oplock: OplockLevel::BATCH, ..Want::file("victim") }
}

/// Opens a file; none when the connection is lost.
async fn open(peer: &mut Peer, mount: &Mount, want: &Want) -> Option<FileId> {
    let reply = peer.ask_or_lose(mount.put(want.draft()), mount.via()).await?;
    Some(file_id(reply.ok()))
}

/// The work of a client, until its connection is lost.
async fn work(peer: &mut Peer, mount: &Mount) -> Option<()> {
    let file = open(peer, mount, &victim()).await?;
    let size = 3u64.to_le_bytes();
    for draft in [
        lock_draft(file, &[(0, 4, EXCLUSIVE)]),
        write_draft(file, 0, b"data"),
        read_draft(file, 0, 4),
        flush_draft(file),
        set_draft(FileInfoClass::END_OF_FILE, file, &size),
        query_draft(FileInfoClass::ALL, file),
        rename_draft(FileInfoClass::RENAME, file, "renamed", false),
        rename_draft(FileInfoClass::RENAME, file, "victim", false),
    ] {
        peer.ask_or_lose(mount.put(draft), mount.via()).await?;
    }
    // These CREATEs also change the file: two overwrite it, and one adds a stream. So more calls
    // can panic.
    let over = Want::file("over").disposition(CreateDisposition::OVERWRITE_IF);
    for want in [&over, &over, &Want::file("over:stream")] {
        let file = open(peer, mount, want).await?;
        peer.ask_or_lose(mount.put(close_draft(file)), mount.via()).await?;
    }
    open(peer, mount, &over).await?;
    let folder = open(peer, mount, &Want::directory("folder")).await?;
    let root = open(peer, mount, &Want::directory("")).await?;
    let class = FileInfoClass::ID_BOTH_DIRECTORY;
    let list = list_draft(root, class, QueryDirectoryFlags::EMPTY, "*");
    peer.ask_or_lose(mount.put(list), mount.via()).await?;
    let goes = Want::file("goes").options(CreateOptions::DELETE_ON_CLOSE);
    let goes = open(peer, mount, &goes).await?;
    let doomed = open(peer, mount, &Want::file("doomed")).await?;
    peer.ask_or_lose(mount.put(delete_draft(doomed)), mount.via()).await?;
    for file in [goes, doomed, folder] {
        peer.ask_or_lose(mount.put(close_draft(file)), mount.via()).await?;
    }
    Some(())
}

/// One world with a panic at call number `first`. False when there are fewer calls.
async fn one_panic(first: usize, often: bool, off_core: bool) -> bool {
    let vfs = in_memory_vfs();
    let world = World::over(settings(), &(Arc::clone(&vfs) as _));
    if off_core {
        let share = Share::disk("data", Arc::clone(&vfs) as _).off_core();
        world.server.reload(settings(), &Shares::new([share]), world.server.accounts());
    }
    let planted = Planted::plant(&vfs, first, often);
    let (mut bob, theirs) = world.session("bob", &Offer::default()).await;
    let own = bob.open_file(&theirs, &Want::file("own")).await;
    bob.write(&theirs, own, 0, b"mine").await;
    let (mut ann, mine) = world.session("ann", &Offer::default()).await;

    let before = panics::count();
    planted.arm(true);
    let outcome = work(&mut ann, &mine).await;
    let was_met = planted.met.load(Ordering::Acquire) > 0;
    assert_eq!(outcome.is_none(), was_met, "the connection that meets a panic ends: {first}");
    if outcome.is_some() {
        planted.arm(false);
    }
    drop(ann);
    // The call panicked, so its session ends with all its Opens. Only the other client's session is
    // left.
    let deadline = Instant::now() + PATIENCE;
    while world.server.sessions().len() > 1 {
        assert!(Instant::now() < deadline, "call {first}: the session does not end");
        sleep(Duration::from_millis(1)).await;
    }
    for share in world.server.shares().sorted() {
        assert!(off_core_settled(&share, deadline).await);
    }
    planted.arm(false);
    let met = planted.met.load(Ordering::Acquire);
    assert_eq!(panics::count() - before, met as u64, "each is counted once: {first}");
    bob.expect_alive().await;
    assert_eq!(bob.read(&theirs, own, 0, 4).await, b"mine");
    // No Open of the file is left, so a CREATE that shares nothing succeeds and its range can be
    // locked.
    let alone = Want { sharing: ShareAccess::EMPTY, ..victim() };
    let reply = timeout(BREAK_TIMEOUT / 2, bob.create(&theirs, &alone)).await;
    let again = file_id(reply.expect("nobody is asked").ok());
    bob.on(&theirs, lock_draft(again, &[(0, 4, EXCLUSIVE)])).await.ok();
    bob.close(&theirs, again).await;
    for name in ["goes", "doomed", "folder", "over:stream", "over"] {
        let want = Want { sharing: ShareAccess::EMPTY, ..Want::file(name) };
        let want = if name == "folder" { Want::directory(name) } else { want };
        let file = bob.open_file(&theirs, &want).await;
        bob.close(&theirs, file).await;
    }
    bob.close(&theirs, own).await;
    drop(bob);
    world.wind_up().await;
    was_met
}

fn at_each_call(often: bool, off_core: bool) -> usize {
    panics::watch(false);
    let mut first = 0;
    while block_on(one_panic(first, often, off_core)) {
        first += 1;
    }
    assert!(first > 20, "only {first} calls");
    first
}

/// L8. On one thread: the count of panics is the process's.
#[test]
fn l8_a_panic_ends_its_connection_and_nothing_else() {
    for off_core in [false, true] {
        // In the first pass one call panics; in the second one each close of the Open panics as
        // well.
        at_each_call(false, off_core);
        at_each_call(true, off_core);
    }
    a_core_that_stops_winds_up();
    a_listener_goes_on();
}

/// A task that is dropped has no end of its own: its core stops, or its server does.
fn a_core_that_stops_winds_up() {
    let vfs = in_memory_vfs();
    block_on(async {
        let world = World::over(settings(), &(Arc::clone(&vfs) as _));
        let (mut ann, mine) = world.session("ann", &Offer::default()).await;
        ann.open_file(&mine, &victim()).await;
        assert!(!world.server.files.is_empty());
        let server = Arc::clone(&world.server);
        world.crash();
        let deadline = Instant::now() + PATIENCE;
        while !server.files.is_empty() || !server.sessions().is_empty() {
            assert!(Instant::now() < deadline, "what was cancelled does not wind up");
            sleep(Duration::from_millis(1)).await;
        }
    });
}

/// The whole server, with its listener and cores.
fn a_listener_goes_on() {
    let vfs = in_memory_vfs();
    let planted = Planted::plant(&vfs, 0, true);
    block_on(async {
        let world = World::over(settings(), &(Arc::clone(&vfs) as _));
        let listener = Listener::bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = listener.local_addr().unwrap();
        let serving = world.listen(listener);
        for number in 0..3 {
            let stream = Stream::connect(address).await.unwrap();
            let mut peer = Peer::new(stream, Guid([number + 100; 16]));
            peer.negotiate(&Offer::default()).await;
            let logon = peer.log_on("ann").await;
            let mount = peer.mount(&logon, "data").await;
            planted.arm(true);
            assert_eq!(open(&mut peer, &mount, &victim()).await, None);
            planted.arm(false);
        }
        world.embedded.stop_within(Duration::from_millis(200));
        serving.await.unwrap().unwrap();
        assert!(world.server.sessions().is_empty() && world.server.files.is_empty());
    });
}
