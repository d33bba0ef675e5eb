//! The file system of a root of its own: a folder with nothing in it.

use std::sync::Arc;

use frevo_store::vfs::{Existence, Node, OpenHow, Opened, VfsResult, Volume};
use frevo_store::{Fault, Name, Vfs};
use frevo_wire::dtyp::FileTime;

use super::node::{Virtual, hash};

/// One empty folder.
#[derive(Debug)]
pub(super) struct EmptyVfs {
    root: Arc<Virtual>,
    volume: Arc<Volume>,
}

impl EmptyVfs {
    pub(super) fn new(name: &str, time: FileTime) -> Self {
        let root = Arc::new(Virtual::folder(name, "", time));
        // The serial number is equal after each restart.
        let serial = u32::try_from(hash(name, "") >> 32).unwrap_or_default();
        let volume = Volume { read_only: true, created: time, ..Volume::plain(serial, "NTFS") };
        Self { root, volume: Arc::new(volume) }
    }
}

impl Vfs for EmptyVfs {
    fn open(&self, name: &Name, how: &OpenHow) -> VfsResult<Opened> {
        if name.stream().is_some() {
            return Err(Fault::NameInvalid);
        }
        if !name.is_root() {
            let is_in_root = name.components().nth(1).is_none();
            return Err(if is_in_root { Fault::NotFound } else { Fault::PathNotFound });
        }
        if how.existence == Existence::MustNotExist {
            return Err(Fault::Exists);
        }
        let node = Arc::clone(&self.root);
        let stat = node.stat()?;
        how.check(stat.kind)?;
        Ok(Opened::existing(node, stat, Name::root()))
    }

    fn volume(&self) -> Arc<Volume> {
        Arc::clone(&self.volume)
    }
}
