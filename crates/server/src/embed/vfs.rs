//! File systems to share, and the contract of one's own.
//!
//! - [`folder`] shows a folder of the host (feature `posix`).
//! - [`memory`] keeps its files in memory.
//! - [`ReadOnlyTree`] shows entries that the program lists, such as those of an archive.
//! - [`Vfs`] is the contract for everything else; `frevo_store::conformance` has its tests.

mod tree;

use std::sync::Arc;

use frevo_store::memory::{MemoryOptions, MemoryVfs};

use crate::base::ambient::{Ambient, Host};

pub use frevo_store::vfs::{
    BasicChange, Directory, Existence, Fault, FileKey, HostAccess, Kind, KindWanted, Node, OpenHow,
    Opened, Space, Stat, Vfs, VfsResult, Volume,
};
pub use frevo_store::{Name, name};
pub use frevo_wire::dtyp::{FileAttributes, FileTime};
pub use tree::{Content, FileRange, ReadOnlyTree};

/// Returns an empty file system in memory that holds up to `capacity` bytes of file data.
pub fn memory(capacity: u64) -> Arc<dyn Vfs> {
    // Two memory trees must not have the same volume serial number, so it is random.
    let serial = u32::try_from(Host.random_u64() >> 32).unwrap_or(0);
    let options = MemoryOptions { capacity, serial, ..MemoryOptions::default() };
    Arc::new(MemoryVfs::new(options, Arc::new(|| Host.now())))
}

/// Opens a folder of the host.
///
/// # Errors
/// When it does not exist, is not a folder, or must not be read.
#[cfg(feature = "posix")]
pub fn folder(path: impl AsRef<std::path::Path>) -> std::io::Result<Arc<dyn Vfs>> {
    crate::base::host::open_folder(path.as_ref())
}
