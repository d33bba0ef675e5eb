//! Requests that find no space while deleted files are being closed: their space comes with the close,
//! which is behind the answer to the deletion.

use std::sync::Arc;
use std::time::Duration;

use frevo_server::ambient::{Ambient as _, Host};
use frevo_server::internal::state::close_beside;
use frevo_server::share::Share;
use frevo_store::memory::{MemoryOptions, MemoryVfs, Operation};
use frevo_store::vfs::{Existence, KindWanted, OpenHow};
use frevo_store::{Fault, Name, Vfs};
use frevo_wire::codec::Writer;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::ioctl::CtlCode;
use frevo_wire::command::ioctl::copychunk::{
    Chunk, CopyRequest, CopyResponse, ResumeKey, ResumeKeyResponse,
};
use frevo_wire::command::query_info::InfoType;
use frevo_wire::create_context::{CreateContext, CreateContexts};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::FsInfoClass;
use frevo_wire::fscc::fsctl::ZeroData;

use super::calls::*;
use crate::client::files::{close_draft, delete_draft, rename_draft};
use crate::client::world::{Users, in_own_world, over, serving};
use crate::client::*;

const PAGE: u64 = 4096;
/// Pages of the volume while it is full, and when it has space.
const FULL: u64 = 24 * PAGE;
const AMPLE: u64 = 1 << 30;
/// Time of a close.
const CLOSE: Duration = Duration::from_millis(200);

/// A volume, and what is done on it while it is full: it has space when a close beside the cores has ended.
struct Disk(Arc<MemoryVfs>);

impl Disk {
    fn new() -> (Self, Arc<dyn Vfs>) {
        let disk = Arc::new(MemoryVfs::new(MemoryOptions::default(), Arc::new(|| Host.now())));
        let vfs: Arc<dyn Vfs> = Arc::<MemoryVfs>::clone(&disk);
        (Self(disk), vfs)
    }

    /// Fills the volume. A file that `owner` has deleted is closed soon, and gives its space back then.
    fn fill(&self, owner: usize) {
        self.0.faults().set_capacity(FULL);
        self.close(owner);
    }

    /// The next call of this kind finds no space, and others do once a close has ended.
    fn fails_once(&self, operation: Operation) {
        self.0.faults().fail_next(operation, Fault::DiskFull);
        self.close(1);
    }

    fn close(&self, owner: usize) {
        let disk = Arc::clone(&self.0);
        close_beside(
            owner,
            Box::new(move || {
                std::thread::sleep(CLOSE);
                disk.faults().set_capacity(AMPLE);
            }),
        );
    }
}

fn bytes(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut Writer::new(&mut bytes));
    bytes
}

async fn copy(
    peer: &mut Peer,
    mount: &Mount,
    source_key: ResumeKey,
    target: FileId,
    chunks: Vec<Chunk>,
) -> CopyResponse {
    let input = bytes(|w| CopyRequest { source_key, chunks }.encode(w));
    let reply = ask(peer, mount, CtlCode::SRV_COPYCHUNK, target, &input, 12).await;
    CopyResponse::parse(&output(reply.ok())).unwrap()
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

        disk.fill(1);
        peer.write(&mount, target, 0, &pattern).await;
        disk.fill(1);
        let size = (64 * PAGE).to_le_bytes();
        peer.on(&mount, set_draft(FileInfoClass::ALLOCATION, target, &size)).await.ok();

        disk.fill(1);
        let allocation = [CreateContext::AllocationSize(64 * PAGE)];
        let contexts = CreateContexts::from_requests(&allocation).as_bytes().to_vec();
        let want = Want { contexts, ..Want::file("allocated") };
        let made = peer.open_file(&mount, &want.disposition(CreateDisposition::CREATE)).await;
        peer.close(&mount, made).await;

        // A copy goes on where it has stopped: also one that appends, in the midst of its chunks.
        let key = ask(&mut peer, &mount, CtlCode::SRV_REQUEST_RESUME_KEY, source, &[], 32).await;
        let key = ResumeKeyResponse::parse(&output(key.ok())).unwrap().resume_key;
        let copied = peer.open_file(&mount, &Want::file("copied")).await;
        let at_the_end = |at: u64| Chunk {
            source_offset: at * PAGE,
            target_offset: u64::MAX,
            length: 4 * PAGE as u32,
        };
        disk.fill(1);
        let chunks = (0..4).map(|n| at_the_end(4 * n)).collect();
        let told = copy(&mut peer, &mount, key, copied, chunks).await;
        assert_eq!((told.chunks_written, told.total_bytes_written), (4, 16 * PAGE as u32));
        assert!(peer.read(&mount, copied, 0, 32 * PAGE as u32).await == pattern);

        let zeroed = peer.open_file(&mount, &Want::file("zeroed")).await;
        let end = (64 * PAGE).to_le_bytes();
        peer.on(&mount, set_draft(FileInfoClass::END_OF_FILE, zeroed, &end)).await.ok();
        disk.fails_once(Operation::Write);
        let zero = ZeroData { file_offset: 0, beyond_final_zero: 64 * PAGE as i64 };
        let zero = bytes(|w| zero.encode(w));
        ask(&mut peer, &mount, CtlCode::SET_ZERO_DATA, zeroed, &zero, 0).await.ok();
        for want in [Want::file("new"), Want::directory("folder"), Want::file("new:stream")] {
            disk.fails_once(Operation::Create);
            peer.open_file(&mount, &want).await;
        }

        // The closes so far have ended.
        tokio::time::sleep(3 * CLOSE).await;
        // Without a close that is under way it is full.
        disk.0.faults().set_capacity(FULL);
        let size = (4096 * PAGE).to_le_bytes();
        let more = set_draft(FileInfoClass::ALLOCATION, copied, &size);
        peer.on(&mount, more).await.expect(Status::DISK_FULL);
        disk.0.faults().set_capacity(AMPLE);
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
        disk.fails_once(Operation::Sync);
        let link = rename_draft(FileInfoClass::LINK, file, "g", false);
        let status = peer.on(&mount, link).await.status();
        assert_ne!(status, Status::OBJECT_NAME_COLLISION);
        assert_eq!(status, Status::DISK_FULL);
        assert!(disk.0.stat(&Name::from_stored("g".into())).is_ok());
        tokio::time::sleep(3 * CLOSE).await;
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
            disk.fill(Arc::as_ptr(&ann).addr());
            let query = |file| query_info_draft(file, InfoType::FILESYSTEM, class.0, 0);
            let full = total(other.on(&of_bob, query(root_of_bob)).await);
            let ample = total(peer.on(&mount, query(root)).await);
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
            disk.0.open(&name("d"), &folder).unwrap();
            let remains = disk.0.open(&name("d\\.nfs0001"), &make).unwrap().node.key();
            let vfs = Arc::clone(&disk.0);
            close_beside(
                owner,
                Box::new(move || {
                    std::thread::sleep(CLOSE);
                    vfs.remove(&Name::from_stored("d\\.nfs0001".into()), remains).unwrap();
                }),
            );
            let options = match at_close {
                true => CreateOptions::DIRECTORY_FILE | CreateOptions::DELETE_ON_CLOSE,
                false => CreateOptions::DIRECTORY_FILE,
            };
            let opened = peer.open_file(&mount, &Want::existing("d").options(options)).await;
            if !at_close {
                peer.on(&mount, delete_draft(opened)).await.ok();
            }
            peer.on(&mount, close_draft(opened)).await.ok();
            assert!(disk.0.stat(&name("d")).is_err(), "the folder is gone: {at_close}");
        }
        // With a file in it the folder stays.
        disk.0.open(&name("d"), &folder).unwrap();
        disk.0.open(&name("d\\file"), &make).unwrap();
        let opened = peer.open_file(&mount, &Want::directory("d")).await;
        peer.on(&mount, delete_draft(opened)).await.expect(Status::DIRECTORY_NOT_EMPTY);
    });
}
