//! Requests that find no space while deleted files are being closed: their space comes with the close,
//! which is behind the answer to the deletion.

use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use frevo_server::ambient::{Ambient as _, Host};
use frevo_server::internal::state::{close_beside, has_closed_blocking};
use frevo_server::share::Share;
use frevo_store::memory::{MemoryOptions, MemoryVfs, Operation};
use frevo_store::vfs::{Existence, KindWanted, OpenHow};
use frevo_store::{Fault, Name, Vfs};
use frevo_wire::codec::Writer;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::copychunk::{Chunk, CopyRequest, CopyResponse, ResumeKeyResponse};
use frevo_wire::command::query_info::InfoType;
use frevo_wire::create_context::{CreateContext, CreateContexts};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::FsInfoClass;
use frevo_wire::fscc::fsctl::ZeroData;
use parking_lot::Mutex;
use tokio::time::sleep;

use super::calls::*;
use crate::client::files::{close_draft, delete_draft, file_id, rename_draft, write_draft};
use crate::client::world::{Users, in_own_world, over, serving};
use crate::client::*;

const PAGE: u64 = 4096;
/// Pages of the volume while it is full, and when it has space.
const FULL: u64 = 24 * PAGE;
const AMPLE: u64 = 1 << 30;
type Calls = Arc<Mutex<Vec<Operation>>>;

/// A close that is under way until this is dropped.
struct Closing {
    /// Calls of the file system so far.
    calls: Calls,
    /// The call that finds no space; any one if it is None.
    awaited: Option<Operation>,
    _end: Sender<()>,
}

/// A volume, and what is done on it while it is full: it has space when a close beside the cores has ended.
struct Disk {
    vfs: Arc<MemoryVfs>,
    calls: Calls,
}

impl Disk {
    fn new() -> (Self, Arc<dyn Vfs>) {
        let vfs = Arc::new(MemoryVfs::new(MemoryOptions::default(), Arc::new(|| Host.now())));
        let calls = Calls::default();
        let noted = Arc::clone(&calls);
        vfs.faults().at_call(Some(Arc::new(move |operation| noted.lock().push(operation))));
        let shared: Arc<dyn Vfs> = Arc::<MemoryVfs>::clone(&vfs);
        (Self { vfs, calls }, shared)
    }

    /// Fills the volume, on which this call is made next. A file that `owner` has deleted is being closed, and
    /// gives its space back then.
    fn fill(&self, owner: usize, operation: Operation) -> Closing {
        self.vfs.faults().set_capacity(FULL);
        Closing { awaited: Some(operation), ..self.close(owner) }
    }

    /// The next call of this kind finds no space, and others do once a close has ended.
    fn fails_once(&self, operation: Operation) -> Closing {
        self.vfs.faults().fail_next(operation, Fault::DiskFull);
        Closing { awaited: Some(operation), ..self.close(1) }
    }

    fn close(&self, owner: usize) -> Closing {
        self.close_with(owner, |vfs| vfs.faults().set_capacity(AMPLE))
    }

    /// The next call of this kind fails, and a close of `owner` that is under way has ended before it does.
    fn fails_behind(&self, operation: Operation, fault: Fault, owner: usize) {
        self.vfs.faults().fail_next(operation, fault);
        let (ends, is_over) = channel::<()>();
        close_beside(owner, Box::new(move || _ = is_over.recv()));
        let ends = Mutex::new(Some(ends));
        self.vfs.faults().at_call(Some(Arc::new(move |called| {
            if called == operation && ends.lock().take().is_some() {
                has_closed_blocking(owner, Duration::from_secs(60));
            }
        })));
    }

    /// Begins a close that ends with `end`.
    fn close_with(&self, owner: usize, end: impl FnOnce(&MemoryVfs) + Send + 'static) -> Closing {
        let (vfs, (ends, is_over)) = (Arc::clone(&self.vfs), channel::<()>());
        close_beside(
            owner,
            Box::new(move || {
                let _ = is_over.recv();
                end(&vfs);
            }),
        );
        Closing { calls: Arc::clone(&self.calls), awaited: None, _end: ends }
    }
}

fn bytes(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes));
    bytes
}

/// Asks while a close is under way, which ends when the request has called the file system: before it finds no
/// space, before it learns of that, or while it waits.
async fn waits(peer: &mut Peer, mount: &Mount, draft: Draft, closing: Closing) -> Reply {
    closing.calls.lock().clear();
    let is_awaited = |call: &Operation| closing.awaited.is_none_or(|awaited| awaited == *call);
    let id = peer.send(vec![mount.put(draft)], mount.via()).await[0];
    while !closing.calls.lock().iter().any(is_awaited) {
        sleep(Duration::from_millis(1)).await;
    }
    drop(closing);
    peer.final_reply(id).await
}

/// Tests each request that takes space: it succeeds once the deleted file is closed.
#[test]
fn space_of_deleted_files_is_waited_for_by_whatever_takes_space() {
    let (disk, vfs) = Disk::new();
    over(&vfs, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let source = peer.open_file(&mount, &Want::file("source")).await;
        let pattern: Vec<u8> = (0..16 * PAGE).map(|at| (at / 7) as u8).collect();
        peer.write(&mount, source, 0, &pattern).await;
        let target = peer.open_file(&mount, &Want::file("target")).await;

        let full = disk.fill(1, Operation::Write);
        waits(&mut peer, &mount, write_draft(target, 0, &pattern), full).await.ok();
        let full = disk.fill(1, Operation::SetAllocation);
        let size = (64 * PAGE).to_le_bytes();
        let allocate = set_draft(FileInfoClass::ALLOCATION, target, &size);
        waits(&mut peer, &mount, allocate, full).await.ok();

        let full = disk.fill(1, Operation::SetAllocation);
        let allocation = [CreateContext::AllocationSize(64 * PAGE)];
        let contexts = CreateContexts::from_requests(&allocation).as_bytes().to_vec();
        let want = Want { contexts, ..Want::file("allocated") };
        let create = want.disposition(CreateDisposition::CREATE).draft();
        let made = file_id(waits(&mut peer, &mount, create, full).await.ok());
        peer.close(&mount, made).await;

        // A copy goes on where it has stopped: also one that appends, in the midst of its chunks.
        let key = ask(&mut peer, &mount, CtlCode::SRV_REQUEST_RESUME_KEY, source, &[], 32).await;
        let source_key = ResumeKeyResponse::parse(&output(key.ok())).unwrap().resume_key;
        let copied = peer.open_file(&mount, &Want::file("copied")).await;
        let at_the_end = |at: u64| Chunk {
            source_offset: at * PAGE,
            target_offset: u64::MAX,
            length: 4 * PAGE as u32,
        };
        let full = disk.fill(1, Operation::Write);
        let chunks = (0..4).map(|n| at_the_end(4 * n)).collect();
        let copy = bytes(|w| CopyRequest { source_key, chunks }.encode(w));
        let copy = ioctl_draft(CtlCode::SRV_COPYCHUNK, copied, &copy, 12);
        let told = waits(&mut peer, &mount, copy, full).await;
        let told = CopyResponse::parse(&output(told.ok())).unwrap();
        assert_eq!((told.chunks_written, told.total_bytes_written), (4, 16 * PAGE as u32));
        assert!(peer.read(&mount, copied, 0, 32 * PAGE as u32).await == pattern);

        let zeroed = peer.open_file(&mount, &Want::file("zeroed")).await;
        let end = (64 * PAGE).to_le_bytes();
        peer.on(&mount, set_draft(FileInfoClass::END_OF_FILE, zeroed, &end)).await.ok();
        let full = disk.fails_once(Operation::Write);
        let zero = ZeroData { file_offset: 0, beyond_final_zero: 64 * PAGE as i64 };
        let zero = bytes(|w| zero.encode(w));
        let zero = ioctl_draft(CtlCode::SET_ZERO_DATA, zeroed, &zero, 0);
        waits(&mut peer, &mount, zero, full).await.ok();
        for want in [Want::file("new"), Want::directory("folder"), Want::file("new:stream")] {
            let full = disk.fails_once(Operation::Create);
            waits(&mut peer, &mount, want.draft(), full).await.ok();
        }

        // All closes have ended. Without one that is under way the volume is full.
        disk.vfs.faults().set_capacity(FULL);
        let size = (4096 * PAGE).to_le_bytes();
        let more = set_draft(FileInfoClass::ALLOCATION, copied, &size);
        peer.on(&mount, more).await.expect(Status::DISK_FULL);
        disk.vfs.faults().set_capacity(AMPLE);
    });
}

/// Tests requests whose failure comes back when all closes have ended, as a thread's may: they are tried again.
#[test]
fn a_close_that_has_ended_before_the_failure_counts() {
    let (disk, vfs) = Disk::new();
    over(&vfs, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let owner = Arc::as_ptr(&world.server.ledger.account("ann")).addr();
        let file = peer.open_file(&mount, &Want::file("file")).await;
        let key = ask(&mut peer, &mount, CtlCode::SRV_REQUEST_RESUME_KEY, file, &[], 32).await;
        let source_key = ResumeKeyResponse::parse(&output(key.ok())).unwrap().resume_key;
        let copied = peer.open_file(&mount, &Want::file("copied")).await;
        let chunk = Chunk { source_offset: 0, target_offset: 0, length: PAGE as u32 };
        let copy = bytes(|w| CopyRequest { source_key, chunks: vec![chunk] }.encode(w));
        let page = [7; PAGE as usize];
        let size = (64 * PAGE).to_le_bytes();
        for (operation, draft) in [
            (Operation::Write, write_draft(file, 0, &page)),
            (Operation::SetAllocation, set_draft(FileInfoClass::ALLOCATION, file, &size)),
            (Operation::Write, ioctl_draft(CtlCode::SRV_COPYCHUNK, copied, &copy, 12)),
            (Operation::Create, Want::file("new").draft()),
        ] {
            disk.fails_behind(operation, Fault::DiskFull, owner);
            peer.on(&mount, draft).await.ok();
            assert!(!disk.vfs.faults().is_pending(), "{operation:?} was not asked for");
        }
    });
}

/// Tests that a link which was made is not made once more where it could not be put on stable storage.
#[test]
fn a_request_that_has_changed_something_is_not_repeated() {
    let (disk, vfs) = Disk::new();
    over(&vfs, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let want = Want::file("f").options(CreateOptions::WRITE_THROUGH);
        let file = peer.open_file(&mount, &want).await;
        let closing = disk.fails_once(Operation::Sync);
        let link = rename_draft(FileInfoClass::LINK, file, "g", false);
        let status = peer.on(&mount, link).await.status();
        drop(closing);
        assert_ne!(status, Status::OBJECT_NAME_COLLISION);
        assert_eq!(status, Status::DISK_FULL);
        assert!(disk.vfs.stat(&Name::from_stored("g".into())).is_ok());
    });
}

/// Tests that an account which has deleted a file sees its space, and that another one's query does not
/// wait for it.
#[test]
fn the_free_space_has_that_of_deleted_files() {
    let (disk, vfs) = Disk::new();
    over(&vfs, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let (mut other, of_bob) = world.session("bob", &Offer::default()).await;
        let root = peer.open_file(&mount, &Want::directory("")).await;
        let root_of_bob = other.open_file(&of_bob, &Want::directory("")).await;
        let ann = world.server.ledger.account("ann");
        let total =
            |reply: Reply| u64::from_le_bytes(reply.ok().message[72..80].try_into().unwrap());
        for class in [FsInfoClass::SIZE, FsInfoClass::FULL_SIZE] {
            let closing = disk.fill(Arc::as_ptr(&ann).addr(), Operation::Space);
            let query = |file| query_info_draft(file, InfoType::FILESYSTEM, class.0, 0);
            let full = total(other.on(&of_bob, query(root_of_bob)).await);
            let id = peer.send(vec![mount.put(query(root))], mount.via()).await[0];
            peer.interim().await;
            drop(closing);
            let ample = total(peer.final_reply(id).await);
            assert!(ample > full, "{class:?}: {ample} and {full}");
        }
    });
}

/// Tests that a folder is removed in which a deleted file has a name until it is closed, as on network
/// and FUSE file systems, by each way to remove it.
#[test]
fn a_folder_with_names_of_closing_files_only_is_removed() {
    let (disk, vfs) = Disk::new();
    let shares = [Share::disk("data", vfs).off_core()];
    let server = serving(settings(), shares, Arc::new(Users), Arc::new(Host));
    let world = World::of(server, tempfile::tempdir().unwrap());
    in_own_world(false, &world, async |world| {
        let (mut peer, mount) = world.session("ann", &Offer::default()).await;
        let owner = Arc::as_ptr(&world.server.ledger.account("ann")).addr();
        let name = |text: &str| Name::from_stored(text.into());
        let make = OpenHow { existence: Existence::MustNotExist, ..OpenHow::LOOK };
        let folder = OpenHow { kind: KindWanted::Directory, ..make };
        for at_close in [false, true] {
            disk.vfs.open(&name("d"), &folder).unwrap();
            let remains = disk.vfs.open(&name("d\\.nfs0001"), &make).unwrap().node.key();
            let closing = disk.close_with(owner, move |vfs| {
                vfs.remove(&Name::from_stored("d\\.nfs0001".into()), remains).unwrap();
            });
            let options = match at_close {
                true => CreateOptions::DIRECTORY_FILE | CreateOptions::DELETE_ON_CLOSE,
                false => CreateOptions::DIRECTORY_FILE,
            };
            let opened = peer.open_file(&mount, &Want::existing("d").options(options)).await;
            if at_close {
                waits(&mut peer, &mount, close_draft(opened), closing).await.ok();
            } else {
                waits(&mut peer, &mount, delete_draft(opened), closing).await.ok();
                peer.on(&mount, close_draft(opened)).await.ok();
            }
            assert!(disk.vfs.stat(&name("d")).is_err(), "the folder is gone: {at_close}");
        }
        // The close has ended before the removal fails.
        let leaves = Want::directory("d").options(CreateOptions::DELETE_ON_CLOSE);
        let opened = peer.open_file(&mount, &leaves).await;
        disk.fails_behind(Operation::Remove, Fault::NotEmpty, owner);
        peer.on(&mount, close_draft(opened)).await.ok();
        assert!(disk.vfs.stat(&name("d")).is_err(), "the folder is gone");
        disk.vfs.faults().at_call(None);
        // With a file in it the folder stays.
        disk.vfs.open(&name("d"), &folder).unwrap();
        disk.vfs.open(&name("d\\file"), &make).unwrap();
        let opened = peer.open_file(&mount, &Want::directory("d")).await;
        peer.on(&mount, delete_draft(opened)).await.expect(Status::DIRECTORY_NOT_EMPTY);
    });
}
