//! Files and directories whose end, cut or listing takes the kernel long: none of it is done on a core.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::{self, ThreadId};
use std::time::Duration;

use crate::client::files::{close_draft, delete_draft, rename_draft, set_draft};
use crate::client::queries::list_draft;
use crate::client::world::over;
use crate::client::*;
use frevo_posix::limits::{FREED_ON_CORE, RESERVED_ON_CORE};
use frevo_posix::patience;
use frevo_server::ambient::{Ambient, Host};
use frevo_server::internal::limits::CLOSINGS_WAITING;
use frevo_server::internal::state::{Kind, Shares};
use frevo_server::share::Share;
use frevo_store::memory::{MemoryOptions, MemoryVfs};
use frevo_store::name::Rules;
use frevo_store::vfs::{
    BasicChange, Directory, HostAccess, OpenHow, Opened, Security, Space, VfsResult, Volume,
};
use frevo_store::{Fault, FileKey, Name, Node, Stat, Vfs};
use frevo_wire::command::create::{self, CreateDisposition, CreateOptions, OplockLevel};
use frevo_wire::command::query_directory::{self, QueryDirectoryFlags};
use frevo_wire::create_context::{CreateContext, CreateContexts};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::fscc::{DirectoryEntries, FileInfoClass};
use parking_lot::Mutex;
use tokio::time::{sleep, timeout};

/// Bytes of the file `large`.
const LARGE: u64 = 1 << 30;

/// The slow calls, with their threads.
#[derive(Debug)]
struct Calls {
    bytes: AtomicU64,
    /// The last name of `large` is gone.
    is_gone: AtomicBool,
    /// Files of the name `large` that were replaced by another one so far.
    replaced: AtomicU64,
    /// No close ends while it is set.
    is_stuck: AtomicBool,
    /// No cut of `large` ends while it is set.
    is_cut_stuck: AtomicBool,
    /// Cuts of `large` that succeed; those after them fail.
    cuts: AtomicUsize,
    closed: Mutex<Vec<ThreadId>>,
    /// The names of the threads in `closed`.
    closers: Mutex<Vec<Option<String>>>,
    ends: Mutex<Vec<(ThreadId, u64)>>,
    listed: Mutex<Vec<ThreadId>>,
}

/// A file system with the file `large`, which is cut and closed slowly, and whose directories are listed
/// slowly.
#[derive(Debug)]
struct Slow {
    inner: MemoryVfs,
    calls: Arc<Calls>,
}

impl Slow {
    fn with_calls() -> (Arc<Calls>, Arc<dyn Vfs>) {
        let inner = MemoryVfs::new(MemoryOptions::default(), Arc::new(|| Host.now()));
        let calls = Arc::new(Calls {
            bytes: AtomicU64::new(LARGE),
            is_gone: AtomicBool::new(false),
            replaced: AtomicU64::new(0),
            is_stuck: AtomicBool::new(false),
            is_cut_stuck: AtomicBool::new(false),
            cuts: AtomicUsize::new(usize::MAX),
            closed: Mutex::default(),
            closers: Mutex::default(),
            ends: Mutex::default(),
            listed: Mutex::default(),
        });
        (Arc::clone(&calls), Arc::new(Self { inner, calls }))
    }
}

impl Vfs for Slow {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        let opened = self.inner.open(name, how)?;
        let is_large = name.path() == "large";
        let calls = Arc::clone(&self.calls);
        let replaced_before = calls.replaced.load(Ordering::Relaxed);
        let node = SlowNode { inner: opened.node, is_large, replaced_before, calls };
        Ok(Opened { stat: node.stat()?, node: Arc::new(node), ..opened })
    }

    fn remove(&self, name: &Name, key: FileKey) -> VfsResult<()> {
        self.inner.remove(name, key)?;
        if name.path() == "large" {
            patience::note_freed(self.calls.bytes.load(Ordering::Relaxed));
            self.calls.is_gone.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    fn rename(&self, from: &Name, key: FileKey, to: &Name, replace: bool) -> VfsResult<Name> {
        let renamed = self.inner.rename(from, key, to, replace)?;
        self.calls.replaced.fetch_add(u64::from(to.path() == "large"), Ordering::Relaxed);
        Ok(renamed)
    }

    fn space(&self) -> VfsResult<Space> {
        self.inner.space()
    }

    fn volume(&self) -> Arc<Volume> {
        self.inner.volume()
    }
}

#[derive(Debug)]
struct SlowNode {
    inner: Arc<dyn Node>,
    is_large: bool,
    /// [`Calls::replaced`] when it was opened.
    replaced_before: u64,
    calls: Arc<Calls>,
}

impl Drop for SlowNode {
    fn drop(&mut self) {
        let Calls { is_gone, replaced, .. } = &*self.calls;
        let is_replaced = replaced.load(Ordering::Relaxed) > self.replaced_before;
        if self.is_large && (is_replaced || is_gone.load(Ordering::Relaxed)) {
            while self.calls.is_stuck.load(Ordering::Relaxed) {
                thread::sleep(Duration::from_millis(1));
            }
            let here = thread::current();
            self.calls.closers.lock().push(here.name().map(str::to_owned));
            self.calls.closed.lock().push(here.id());
        }
    }
}

impl Node for SlowNode {
    fn key(&self) -> FileKey {
        self.inner.key()
    }

    fn stat(&self) -> VfsResult<Stat> {
        let stat = self.inner.stat()?;
        let bytes = self.calls.bytes.load(Ordering::Relaxed);
        let large = Stat { end_of_file: bytes, allocation: bytes, ..stat };
        Ok(if self.is_large { large } else { stat })
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        self.inner.read_at(offset, into)
    }

    fn set_end_of_file(&self, end: u64) -> VfsResult<()> {
        if self.calls.ends.lock().len() >= self.calls.cuts.load(Ordering::Relaxed) {
            return Err(Fault::Io(5));
        }
        self.calls.ends.lock().push((thread::current().id(), end));
        while self.calls.is_cut_stuck.load(Ordering::Relaxed) {
            thread::sleep(Duration::from_millis(1));
        }
        self.calls.bytes.store(end, Ordering::Relaxed);
        Ok(())
    }

    fn set_allocation(&self, bytes: u64) -> VfsResult<()> {
        if bytes > RESERVED_ON_CORE && patience::gives_up(usize::MAX) {
            return Err(Fault::Leased);
        }
        self.set_end_of_file(bytes)
    }

    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        self.inner.set_basic(change)
    }

    fn security(&self) -> VfsResult<Security> {
        self.inner.security()
    }

    fn host_access(&self) -> HostAccess {
        self.inner.host_access()
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        Ok(Box::new(SlowList { inner: self.inner.directory()?, calls: Arc::clone(&self.calls) }))
    }
}

/// A listing that reads for long before each name.
#[derive(Debug)]
struct SlowList {
    inner: Box<dyn Directory>,
    calls: Arc<Calls>,
}

impl Directory for SlowList {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        if patience::gives_up(usize::MAX) {
            return Err(Fault::Leased);
        }
        self.calls.listed.lock().push(thread::current().id());
        self.inner.next_name()
    }

    fn entry_stat(&mut self) -> VfsResult<Option<Stat>> {
        self.inner.entry_stat()
    }

    fn rewind(&mut self) -> VfsResult<()> {
        self.inner.rewind()
    }

    fn bytes(&self) -> usize {
        self.inner.bytes()
    }
}

/// Waits until `large` has been closed, and all Opens are given back; fails if that was done on the core.
async fn closed_beside(world: &World, calls: &Calls, opens: usize) {
    let closed = async {
        while calls.closed.lock().len() < opens || world.server.ledger.count(Kind::Open) > 0 {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), closed).await.expect("the file is closed in the end");
    let here = thread::current().id();
    assert!(calls.closed.lock().drain(..).all(|thread| thread != here), "closed on the core");
}

/// The last close of a file of 300,000 extents took 24 s on the core, after its answer.
#[test]
fn r6_a_deleted_file_is_closed_beside_the_core() {
    let (calls, vfs) = Slow::with_calls();
    over(&vfs, async |world| {
        let want = Want::file("large").access(AccessMask::FILE_ALL);
        for is_lost in [false, true] {
            calls.is_gone.store(false, Ordering::Relaxed);
            let (mut ann, mount) = world.session("ann", &Offer::default()).await;
            let file = ann.open_file(&mount, &want).await;
            ann.on(&mount, delete_draft(file)).await.ok();
            if is_lost {
                drop((ann, mount));
            } else {
                ann.on(&mount, close_draft(file)).await.ok();
                let gone = ann.create(&mount, &Want::existing("large")).await;
                assert_eq!(gone.status(), Status::OBJECT_NAME_NOT_FOUND, "when it is answered");
            }
            closed_beside(world, &calls, 1).await;
        }
        // A file with less is closed by the core, which has nobody wait.
        calls.bytes.store(FREED_ON_CORE, Ordering::Relaxed);
        calls.is_gone.store(false, Ordering::Relaxed);
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let file = ann.open_file(&mount, &want.options(CreateOptions::DELETE_ON_CLOSE)).await;
        ann.on(&mount, close_draft(file)).await.ok();
        ann.expect_alive().await;
        assert_eq!(*calls.closed.lock(), [thread::current().id()]);
    });
}

/// A file that gets the name of a large one ends that on no core either.
#[test]
fn r6_a_replaced_file_is_closed_beside_the_core() {
    let (calls, vfs) = Slow::with_calls();
    over(&vfs, async |world| {
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let large = ann.open_file(&mount, &Want::file("large")).await;
        ann.close(&mount, large).await;
        let small = ann.open_file(&mount, &Want::file("small").access(AccessMask::FILE_ALL)).await;
        let rename = rename_draft(FileInfoClass::RENAME, small, "large", true);
        ann.on(&mount, rename).await.ok();
        ann.close(&mount, small).await;
        closed_beside(world, &calls, 1).await;
    });
}

/// Replaced files count for their account until they are closed, and few wait: the next rename closes
/// its file itself, on a thread.
#[test]
fn r6_few_replaced_files_wait_to_be_closed() {
    let (calls, vfs) = Slow::with_calls();
    over(&vfs, async |world| {
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let large = ann.open_file(&mount, &Want::file("large")).await;
        ann.close(&mount, large).await;
        calls.is_stuck.store(true, Ordering::Relaxed);
        let mut small = Vec::new();
        for at in 0..CLOSINGS_WAITING + 2 {
            let want = Want::file(&format!("small {at}")).access(AccessMask::FILE_ALL);
            small.push(ann.open_file(&mount, &want).await);
        }
        let replace = |file| rename_draft(FileInfoClass::RENAME, file, "large", true);
        let last = small.pop().unwrap();
        for &file in &small {
            ann.on(&mount, replace(file)).await.ok();
            ann.close(&mount, file).await;
        }
        assert_eq!(world.server.ledger.count(Kind::Open), CLOSINGS_WAITING + 2);
        let sent = ann.send(vec![mount.put(replace(last))], mount.via()).await;
        ann.interim().await;
        sleep(Duration::from_millis(100)).await;
        assert_eq!(calls.closed.lock().len(), 0, "it waits on a thread for its own close");
        ann.expect_alive().await;
        calls.is_stuck.store(false, Ordering::Relaxed);
        ann.collect(&sent).await.remove(0).ok();
        ann.close(&mount, last).await;
        closed_beside(world, &calls, CLOSINGS_WAITING + 2).await;
    });
}

/// A file system that may hang has threads of its own, which close its files: the closer's are for all.
#[test]
fn r6_a_share_off_the_core_closes_its_own_files() {
    let (calls, vfs) = Slow::with_calls();
    over(&vfs, async |world| {
        let away = Share::disk("away", Arc::clone(&vfs)).off_core();
        let present = world.server.shares().sorted().into_iter();
        let present = present.filter(|share| share.name() != "IPC$");
        let shares = Shares::new(present.map(|share| Share::clone(&share)).chain([away]));
        let settings = Settings::clone(&world.server.settings());
        world.server.reload(settings, &shares, world.server.accounts());
        let (mut ann, data) = world.session("ann", &Offer::default()).await;
        let away = ann.mount(&data.logon, "away").await;
        let want = Want::file("large").access(AccessMask::FILE_ALL);
        let file = ann.open_file(&away, &want).await;
        ann.on(&away, delete_draft(file)).await.ok();
        ann.close(&away, file).await;
        closed_beside(world, &calls, 1).await;
        assert_eq!(calls.closers.lock().drain(..).collect::<Vec<_>>(), [Some("blocking".into())]);
    });
}

/// End of file 0, allocation 0 and an overwrite of a file of 300,000 extents took 24 s on the core.
#[test]
fn r6_a_large_file_is_cut_in_steps_beside_the_core() {
    let (calls, vfs) = Slow::with_calls();
    over(&vfs, async |world| {
        let here = thread::current().id();
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let want = Want::file("large").access(AccessMask::FILE_ALL);
        let large = ann.open_file(&mount, &want).await;
        for class in [FileInfoClass::END_OF_FILE, FileInfoClass::ALLOCATION] {
            calls.bytes.store(LARGE, Ordering::Relaxed);
            ann.on(&mount, set_draft(class, large, &0u64.to_le_bytes())).await.ok();
            assert_cut_in_steps(&calls, here);
        }
        // A file that grows, or loses little, is set in one short call.
        let set = |end: u64| set_draft(FileInfoClass::END_OF_FILE, large, &end.to_le_bytes());
        for end in [2 * LARGE, 0] {
            calls.bytes.store(FREED_ON_CORE, Ordering::Relaxed);
            ann.on(&mount, set(end)).await.ok();
        }
        let expected = [(here, 2 * LARGE), (here, 0)];
        assert_eq!(std::mem::take(&mut *calls.ends.lock()), expected);
        // The same end frees what is reserved behind it, in one call.
        calls.bytes.store(LARGE, Ordering::Relaxed);
        ann.on(&mount, set(LARGE)).await.ok();
        let ends = std::mem::take(&mut *calls.ends.lock());
        assert!(matches!(ends[..], [(thread, LARGE)] if thread != here), "{ends:?}");
        ann.close(&mount, large).await;

        calls.bytes.store(LARGE, Ordering::Relaxed);
        let overwrite = want.disposition(CreateDisposition::OVERWRITE);
        let large = ann.open_file(&mount, &overwrite).await;
        assert_cut_in_steps(&calls, here);
        ann.close(&mount, large).await;
    });
}

/// Fails unless `large` was cut to nothing in several steps on another thread.
fn assert_cut_in_steps(calls: &Calls, core: ThreadId) {
    let ends = std::mem::take(&mut *calls.ends.lock());
    assert!(ends.iter().all(|(thread, _)| *thread != core), "cut on the core");
    assert!(ends.len() > 2, "{ends:?}");
    assert!(ends.is_sorted_by(|(_, one), (_, next)| one > next), "{ends:?}");
    assert_eq!(ends.last().map(|(_, end)| *end), Some(0));
}

/// Waits until a step of a cut has begun.
async fn cut_begun(calls: &Calls) {
    let begun = async {
        while calls.ends.lock().is_empty() {
            sleep(Duration::from_millis(5)).await;
        }
    };
    timeout(Duration::from_secs(60), begun).await.expect("the cut begins");
}

/// A client that was let in between the steps of a cut kept what it had cached of a length in between.
#[test]
fn r6_who_is_let_in_during_a_cut_caches_nothing_of_it() {
    let (calls, vfs) = Slow::with_calls();
    over(&vfs, async |world| {
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let (mut bob, theirs) = world.session("bob", &Offer::default()).await;
        let want = Want::file("large").access(AccessMask::FILE_ALL);
        let large = ann.open_file(&mount, &want).await;
        let caching = Want { oplock: OplockLevel::II, ..want.clone() };
        let end = set_draft(FileInfoClass::END_OF_FILE, large, &[0; 8]);
        let allocation = set_draft(FileInfoClass::ALLOCATION, large, &[0; 8]);
        let overwrite = want.disposition(CreateDisposition::OVERWRITE).draft();
        for cut in [end, allocation, overwrite] {
            calls.ends.lock().clear();
            calls.bytes.store(LARGE, Ordering::Relaxed);
            calls.is_cut_stuck.store(true, Ordering::Relaxed);
            let sent = ann.send(vec![mount.put(cut)], mount.via()).await;
            cut_begun(&calls).await;
            let opened = bob.create(&theirs, &caching).await;
            let response = create::Response::parse(&opened.ok().message).unwrap();
            assert_eq!(response.oplock_level, OplockLevel::II);
            calls.is_cut_stuck.store(false, Ordering::Relaxed);
            let told = timeout(Duration::from_secs(60), bob.reply()).await.expect("a break");
            assert_eq!(told.header.command, Command::OPLOCK_BREAK);
            ann.final_reply(sent[0]).await.ok();
            bob.close(&theirs, response.file_id).await;
        }
    });
}

/// The times of a file moved with the first step of a cut, and were put back when a later one failed.
#[test]
fn r6_a_cut_that_fails_after_a_step_has_moved_times() {
    let (calls, vfs) = Slow::with_calls();
    over(&vfs, async |world| {
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let want = Want::file("large").access(AccessMask::FILE_ALL);
        let large = ann.open_file(&mount, &want).await;
        let name = Name::parse("large", Rules::Windows).unwrap();
        let cell = world.server.files.find(vfs.stat(&name).unwrap().key).unwrap();
        for (steps, moves) in [(0, 0), (1, 1)] {
            let before = cell.moves();
            calls.ends.lock().clear();
            calls.cuts.store(steps, Ordering::Relaxed);
            let cut = set_draft(FileInfoClass::END_OF_FILE, large, &[0; 8]);
            let failed = ann.on(&mount, cut).await;
            assert_ne!(failed.status(), Status::SUCCESS);
            assert_eq!(calls.ends.lock().len(), steps);
            assert_eq!(cell.moves() - before, moves, "after {steps} steps");
        }
        drop(cell);
    });
}

/// An overwrite that had emptied the file, and then gave up to be repeated beside the core, was
/// refused for the READONLY attribute that it had set itself.
#[test]
fn r6_an_overwrite_that_is_repeated_has_changed_nothing() {
    let read_only = |name| Want { attributes: FileAttributes::READONLY, ..Want::file(name) };
    let dispositions = [CreateDisposition::OVERWRITE_IF, CreateDisposition::SUPERSEDE];
    // A stream that is large has a file of its own, which is freed beside the core.
    in_world(async |world| {
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        for (name, disposition) in ["f", "g"].into_iter().zip(dispositions) {
            world.file(name, "content");
            let stream = Want::file(&format!("{name}:s"));
            let file = ann.open_file(&mount, &stream).await;
            for at in 0..3 {
                ann.write(&mount, file, at << 16, &vec![7; 1 << 16]).await;
            }
            ann.close(&mount, file).await;
            let wanted = read_only(name).disposition(disposition);
            let file = ann.open_file(&mount, &wanted).await;
            ann.close(&mount, file).await;
            assert!(world.content(name).is_empty());
            let stream = ann.create(&mount, &Want::existing(&format!("{name}:s"))).await;
            assert_eq!(stream.status(), Status::OBJECT_NAME_NOT_FOUND);
        }
    });
    // Much space is reserved beside the core.
    let (calls, vfs) = Slow::with_calls();
    over(&vfs, async |world| {
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        calls.bytes.store(FREED_ON_CORE, Ordering::Relaxed);
        let file = ann.open_file(&mount, &Want::file("large")).await;
        ann.close(&mount, file).await;
        let bytes = RESERVED_ON_CORE + (1 << 20);
        let requests = [CreateContext::AllocationSize(bytes)];
        let contexts = CreateContexts::from_requests(&requests).as_bytes().to_vec();
        let wanted = read_only("large").disposition(CreateDisposition::OVERWRITE_IF);
        let file = ann.open_file(&mount, &Want { contexts, ..wanted }).await;
        ann.close(&mount, file).await;
        let ends: Vec<_> = calls.ends.lock().iter().map(|(_, end)| *end).collect();
        assert_eq!(ends, [0, bytes], "each once");
    });
}

/// A directory that once had 200,000 names took 14 ms in each listing.
#[test]
fn r6_a_large_directory_is_listed_beside_the_core() {
    let (calls, vfs) = Slow::with_calls();
    over(&vfs, async |world| {
        let (mut ann, mount) = world.session("ann", &Offer::default()).await;
        let file = ann.open_file(&mount, &Want::file("a")).await;
        ann.close(&mount, file).await;
        let (class, flags) = (FileInfoClass::NAMES, QueryDirectoryFlags::EMPTY);
        let root = Want::existing("").access(AccessMask::READ_DATA);
        let folder = ann.open_file(&mount, &root).await;
        let reopen = QueryDirectoryFlags::REOPEN;
        for (flags, pattern) in [(flags, "*"), (reopen, "*"), (reopen, "")] {
            let reply = ann.on(&mount, list_draft(folder, class, flags, pattern)).await;
            let answer = query_directory::Response::parse(&reply.ok().message).unwrap();
            let entries = DirectoryEntries::new(answer.output, class).unwrap();
            let names: Vec<_> = entries.map(|e| e.unwrap().name.decode().unwrap()).collect();
            assert_eq!(names, [".", "..", "a"], "all in one answer");
        }
        let other = ann.open_file(&mount, &root).await;
        let reply = ann.on(&mount, list_draft(other, class, flags, "zzz*")).await;
        assert_eq!(reply.status(), Status::NO_SUCH_FILE, "the first answer of a listing");
        let reply = ann.on(&mount, list_draft(other, class, flags, "zzz*")).await;
        assert_eq!(reply.status(), Status::NO_MORE_FILES);
        let here = thread::current().id();
        assert!(calls.listed.lock().iter().all(|thread| *thread != here), "listed on the core");
        assert!(!calls.listed.lock().is_empty());
    });
}
