use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};

use frevo_net::file_io::Caching;
use frevo_store::vfs::{BasicChange, Directory, HostAccess, Node, VfsResult};
use frevo_store::{FileKey, Stat};
use frevo_wire::Status;
use frevo_wire::dtyp::AccessMask;

use super::super::query_info::testing::Bench;
use crate::objects::data::write;
use crate::objects::open::OpenTarget;
use crate::objects::stable::sync;
use crate::objects::syncs::Syncs;
use frevo_store::Fault;
use std::sync::Arc;

/// A file whose medium loses data once, and whose kernel says so once.
#[derive(Debug)]
struct Lossy {
    node: Arc<dyn Node>,
    syncs: Arc<AtomicUsize>,
}

impl Node for Lossy {
    fn sync(&self) -> VfsResult<()> {
        match self.syncs.fetch_add(1, Ordering::Relaxed) {
            1 => Err(Fault::Io(5)),
            _ => Ok(()),
        }
    }

    fn key(&self) -> FileKey {
        self.node.key()
    }
    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.node.descriptor()
    }
    fn stat(&self) -> VfsResult<Stat> {
        self.node.stat()
    }
    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        self.node.read_at(offset, into)
    }
    fn write_at(&self, offset: u64, data: &[u8]) -> VfsResult<()> {
        self.node.write_at(offset, data)
    }
    fn set_end_of_file(&self, end: u64) -> VfsResult<()> {
        self.node.set_end_of_file(end)
    }
    fn set_allocation(&self, bytes: u64) -> VfsResult<()> {
        self.node.set_allocation(bytes)
    }
    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        self.node.set_basic(change)
    }
    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        self.node.directory()
    }
    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        self.node.eas()
    }
    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        self.node.set_ea(name, value)
    }
    fn link_target(&self) -> VfsResult<String> {
        self.node.link_target()
    }
    fn host_access(&self) -> HostAccess {
        self.node.host_access()
    }
}

/// Syncs that take until the test lets them go.
async fn slow(_syncs: Arc<Syncs>, running: &Running) -> Result<(), Status> {
    let number = running.begun.fetch_add(1, Ordering::Relaxed) + 1;
    running.covered.fetch_max(running.written.load(Ordering::Relaxed), Ordering::Relaxed);
    let outcome = running.go.acquire().await.map(|permit| permit.forget());
    outcome.map_err(|_| Status::UNEXPECTED_IO_ERROR)?;
    if running.fails == number { Err(Status::DISK_FULL) } else { Ok(()) }
}

struct Running {
    begun: AtomicUsize,
    /// Number of the last write, and of the last that a sync covers.
    written: AtomicUsize,
    covered: AtomicUsize,
    go: tokio::sync::Semaphore,
    /// The number of the sync that fails.
    fails: usize,
}

impl Running {
    fn new(fails: usize) -> Self {
        let [begun, written, covered] = [const { AtomicUsize::new(0) }; 3];
        Self { begun, written, covered, go: tokio::sync::Semaphore::new(0), fails }
    }
}

/// Requests that come while a sync runs share the next one, which covers the writes of each.
#[tokio::test]
async fn flushes_that_wait_share_a_sync_that_began_after_them() {
    let (syncs, running) = (Arc::new(Syncs::default()), Running::new(0));
    let flush = || async {
        let written = running.written.fetch_add(1, Ordering::Relaxed) + 1;
        syncs.join(|syncs| slow(syncs, &running)).await.unwrap();
        let covered = running.covered.load(Ordering::Relaxed);
        assert!(covered >= written, "write {written} was answered by a sync of {covered}");
    };
    let one_by_one = async {
        while running.begun.load(Ordering::Relaxed) < 1 {
            tokio::task::yield_now().await;
        }
        // The first sync began before the later requests arrived, so it does not cover their data
        // and a second sync must run.
        running.go.add_permits(1);
        while running.begun.load(Ordering::Relaxed) < 2 {
            tokio::task::yield_now().await;
        }
        running.go.add_permits(1);
    };
    tokio::join!(
        async {
            tokio::join!(flush(), flush(), flush(), flush(), flush(), flush(), flush(), flush());
        },
        one_by_one,
    );
    assert_eq!(running.begun.load(Ordering::Relaxed), 2);
    running.go.add_permits(1);
    flush().await;
    assert_eq!(running.begun.load(Ordering::Relaxed), 3, "a later one needs its own");
}

/// A request whose sync is given up leaves the others to make one; a failure is all of theirs.
#[tokio::test]
async fn who_gives_up_holds_nobody_up_and_a_failure_is_for_all() {
    let (syncs, running) = (Arc::new(Syncs::default()), Running::new(2));
    let flush = || syncs.join(|syncs| slow(syncs, &running));
    let waiting = async { tokio::join!(flush(), flush(), flush()) };
    let first = async {
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(20), flush());
        assert!(given_up.await.is_err());
        running.go.add_permits(1);
    };
    let (_, outcomes) = tokio::join!(first, waiting);
    assert_eq!(outcomes, (Err(Status::DISK_FULL), Err(Status::DISK_FULL), Err(Status::DISK_FULL)));
    assert_eq!(running.begun.load(Ordering::Relaxed), 2);
    assert_eq!(flush().await, Err(Status::DISK_FULL), "what was lost stays lost");
    // The host fails a sync with EIO (5). The same error must be reported to later requests, too.
    let syncs = Arc::new(Syncs::default());
    syncs.errno.set(5).unwrap();
    let later = syncs.join(|syncs| slow(syncs, &running)).await;
    assert_eq!(later, Err(Fault::Io(5).status()));
}

#[tokio::test]
async fn after_a_loss_no_flush_succeeds() {
    let bench = Bench::new();
    bench.write("f", "");
    let mut open = bench.open("f", AccessMask::READ_DATA | AccessMask::WRITE_DATA);
    let OpenTarget::File(file) = &mut open.target else { panic!("a file") };
    let syncs = Arc::new(AtomicUsize::new(0));
    file.node = Arc::new(Lossy { node: Arc::clone(&file.node), syncs: Arc::clone(&syncs) });
    sync(file).await.unwrap();
    let failure = sync(file).await.unwrap_err();
    for _ in 0..2 {
        let on_core = async || panic!("the data goes on the core");
        write(file, 0, b"more", Caching::Kept, on_core).await.unwrap();
        assert_eq!(sync(file).await, Err(failure), "what was lost stays lost");
    }
    assert_eq!(syncs.load(Ordering::Relaxed), 2, "nobody asks again");
    // Only the old Open reports the failure. The sync of a new Open succeeds.
    let again = bench.open("f", AccessMask::READ_DATA | AccessMask::WRITE_DATA);
    sync(again.file().unwrap()).await.unwrap();
}
