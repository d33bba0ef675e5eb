//! A server on a file system in memory, and the requests of these tests.

use std::sync::Arc;
use std::time::Duration;

use frevo_server::ambient::{Ambient, Host};
use frevo_store::memory::{Faults, MemoryOptions, MemoryVfs};
use frevo_wire::command::write::{self, WriteFlags};
use frevo_wire::create_context::{CreateContexts, name};
use frevo_wire::fscc::FileInfoClass;
use tokio::task::LocalSet;

use crate::client::files::{read_draft, set_draft};
use crate::client::*;

/// A server and its medium.
pub struct Disk {
    pub world: World,
    pub vfs: Arc<MemoryVfs>,
}

pub fn empty() -> MemoryVfs {
    MemoryVfs::new(MemoryOptions::default(), Arc::new(|| Host.now()))
}

impl Disk {
    pub fn new(vfs: MemoryVfs) -> Self {
        let vfs = Arc::new(vfs);
        Self { world: World::over(settings(), &(Arc::clone(&vfs) as _)), vfs }
    }

    pub fn faults(&self) -> &Faults {
        self.vfs.faults()
    }

    pub async fn session(&self) -> (Peer, Mount) {
        self.world.session("ann", &Offer::default()).await
    }

    /// Names and contents on the medium.
    pub fn contents(&self) -> Vec<(String, Vec<u8>)> {
        contents(&self.vfs)
    }
}

pub fn contents(vfs: &MemoryVfs) -> Vec<(String, Vec<u8>)> {
    vfs.contents().into_iter().map(|(name, bytes)| (name.to_string(), bytes)).collect()
}

pub fn block_on<T>(test: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    LocalSet::new().block_on(&runtime, test)
}

/// Runs a test with a logged-on client. Afterwards the connection is in order,
/// no reply comes that is too many, and the server has nothing open.
pub fn on_disk(test: impl AsyncFnOnce(&Disk, &mut Peer, &Mount)) {
    block_on(async {
        let disk = Disk::new(empty());
        let (mut peer, mount) = disk.session().await;
        test(&disk, &mut peer, &mount).await;
        assert!(!disk.faults().is_pending(), "a fault was planned and never met");
        peer.expect_alive_in(&mount).await;
        peer.expect_silence(Duration::from_millis(5)).await;
        drop(peer);
        disk.world.wind_up().await;
    });
}

pub fn write_through_draft(file: FileId, offset: u64, data: &[u8]) -> Draft {
    let flags = WriteFlags::WRITE_THROUGH;
    Draft::new(Command::WRITE)
        .with(|w| write::Request { flags, ..write::Request::new(file, offset, data) }.encode(w))
}

pub fn end_draft(file: FileId, end: u64) -> Draft {
    set_draft(FileInfoClass::END_OF_FILE, file, &end.to_le_bytes())
}

/// Create contexts that reserve space and set the attribute `a`.
pub fn making_contexts() -> Vec<u8> {
    // The extended attribute consists of NextEntryOffset, Flags, EaNameLength, EaValueLength, name,
    // NUL and value.
    let ea = [0, 0, 0, 0, 0, 1, 2, 0, b'a', 0, b'v', b'w'];
    let allocation = 10_000u64.to_le_bytes();
    CreateContexts::build(&[(name::EXTA, &ea), (name::ALSI, &allocation)]).as_bytes().to_vec()
}

impl Peer {
    /// All of a file of up to 64 KiB, that may be empty.
    pub async fn whole(&mut self, mount: &Mount, file: FileId) -> Vec<u8> {
        let reply = self.on(mount, read_draft(file, 0, 65_536)).await;
        if reply.status() == Status::END_OF_FILE {
            return Vec::new();
        }
        files::data(reply.ok()).to_vec()
    }

    /// The status of a CREATE; a file that it opened is closed again.
    pub async fn try_create(&mut self, mount: &Mount, want: &Want) -> Status {
        let reply = self.create(mount, want).await;
        if reply.status() == Status::SUCCESS {
            self.close(mount, files::file_id(&reply)).await;
        }
        reply.status()
    }
}
