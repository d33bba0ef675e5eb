use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering};

use frevo_net::file_io::Caching;
use frevo_store::vfs::{BasicChange, Directory, HostAccess, Node, VfsResult};
use frevo_store::{FileKey, Stat};
use frevo_wire::dtyp::AccessMask;

use super::super::query_info::testing::Bench;
use crate::data::write;
use crate::open::OpenTarget;
use crate::stable::sync;
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
        write(file, 0, b"more", Caching::Kept).await.unwrap();
        assert_eq!(sync(file).await, Err(failure), "what was lost stays lost");
    }
    assert_eq!(syncs.load(Ordering::Relaxed), 2, "nobody asks again");
    // A new Open reads the data that survived, and goes on from there.
    let again = bench.open("f", AccessMask::READ_DATA | AccessMask::WRITE_DATA);
    sync(again.file().unwrap()).await.unwrap();
}
