//! An open file of a share whose files are written once.

use std::any::Any;
use std::sync::Arc;

use frevo_store::vfs::{
    Allocated, BasicChange, Commitment, Directory, DiskExtents, EaChange, ExtentCopy, HostAccess,
    HostLock, Node, ObjectId, ObjectIdChange, Security, SecurityChange, StreamStat, VfsResult,
    VolumeSpace,
};
use frevo_store::{Fault, FileKey, Stat};
use frevo_wire::dtyp::{FileAttributes, FileTime};

use super::{Hold, WriteOnce};

/// The file, or a stream of it, which takes no change once the file is committed.
#[derive(Debug)]
pub(super) struct WriteOnceNode {
    inner: Arc<dyn Node>,
    rules: Arc<WriteOnce>,
}

/// The state of a committed file that cannot be deleted: clients are shown that it is read-only.
pub(super) fn marked(stat: Stat) -> Stat {
    let attributes = stat.attributes.without(FileAttributes::NORMAL) | FileAttributes::READONLY;
    Stat { attributes, ..stat }
}

impl WriteOnceNode {
    pub(super) fn new(inner: Arc<dyn Node>, rules: Arc<WriteOnce>) -> Self {
        Self { inner, rules }
    }

    pub(super) fn inner(&self) -> &dyn Node {
        &*self.inner
    }

    fn is_retained(&self) -> VfsResult<bool> {
        Ok(self.rules.hold_on(&*self.inner)? == Hold::Retained)
    }

    /// Fails once the file is committed.
    fn open_to_change(&self) -> VfsResult<&dyn Node> {
        match self.rules.hold_on(&*self.inner)? {
            Hold::Open => Ok(&*self.inner),
            Hold::Retained | Hold::Expired => Err(Fault::AccessDenied),
        }
    }

    fn shown(&self, stat: Stat) -> VfsResult<Stat> {
        Ok(if self.is_retained()? { marked(stat) } else { stat })
    }
}

macro_rules! passed_on {
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> $result {
            self.inner.$name($($arg),*)
        })*
    };
}

macro_rules! changing {
    ($(fn $name:ident(&self $(, $arg:ident: $type:ty)*) -> $result:ty;)*) => {
        $(fn $name(&self, $($arg: $type),*) -> $result {
            self.open_to_change()?.$name($($arg),*)
        })*
    };
}

impl Node for WriteOnceNode {
    fn stat(&self) -> VfsResult<Stat> {
        self.shown(self.inner.stat()?)
    }

    fn stat_without_eas(&self) -> VfsResult<Stat> {
        self.shown(self.inner.stat_without_eas()?)
    }

    fn is_read_only(&self) -> VfsResult<bool> {
        Ok(self.inner.is_read_only()? || self.is_retained()?)
    }

    /// Asked before the file is marked for deletion.
    fn takes_changes(&self) -> VfsResult<()> {
        if self.is_retained()? {
            return Err(Fault::AccessDenied);
        }
        self.inner.takes_changes()
    }

    fn takes_data(&self) -> VfsResult<()> {
        self.open_to_change()?.takes_data()
    }

    fn share_extents(&self, source: &dyn Node, copy: &ExtentCopy) -> VfsResult<()> {
        let any: &dyn Any = source;
        let source = any.downcast_ref::<Self>().map_or(source, Self::inner);
        self.open_to_change()?.share_extents(source, copy)
    }

    changing! {
        fn write_at(&self, offset: u64, data: &[u8]) -> VfsResult<()>;
        fn set_end_of_file(&self, end: u64) -> VfsResult<()>;
        fn set_allocation(&self, bytes: u64) -> VfsResult<()>;
        fn set_basic(&self, change: &BasicChange) -> VfsResult<()>;
        fn clear_streams(&self) -> VfsResult<()>;
        fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()>;
        fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()>;
        fn set_eas(&self, changes: &[EaChange<'_>]) -> VfsResult<()>;
        fn keep_reparse(&self, buffer: Option<&[u8]>) -> VfsResult<()>;
        fn change_object_id(&self, change: &ObjectIdChange) -> VfsResult<()>;
        fn set_security(&self, change: &SecurityChange<'_>) -> VfsResult<()>;
        fn set_compressed(&self, compressed: bool) -> VfsResult<()>;
        fn zero(&self, first: u64, length: u64, punch: bool) -> VfsResult<()>;
    }

    passed_on! {
        fn key(&self) -> FileKey;
        fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>>;
        fn data_device(&self) -> Option<(u32, u32)>;
        fn commitment(&self) -> VfsResult<Commitment>;
        fn commit(&self, at: FileTime) -> VfsResult<()>;
        fn release(&self) -> VfsResult<()>;
        fn is_hidden_by_name(&self) -> bool;
        fn birth(&self) -> Option<FileTime>;
        fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize>;
        fn sync(&self) -> VfsResult<()>;
        fn sync_all(&self) -> VfsResult<()>;
        fn is_synced_by_descriptor(&self) -> bool;
        fn streams(&self) -> VfsResult<Vec<StreamStat>>;
        fn has_entries(&self) -> VfsResult<bool>;
        fn directory(&self) -> VfsResult<Box<dyn Directory>>;
        fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>>;
        fn needed_eas(&self) -> VfsResult<Vec<String>>;
        fn link_target(&self) -> VfsResult<String>;
        fn device(&self) -> Option<(u32, u32)>;
        fn reparse_buffer(&self) -> VfsResult<Vec<u8>>;
        fn object_id(&self) -> VfsResult<Option<ObjectId>>;
        fn security(&self) -> VfsResult<Security>;
        fn stored_security(&self) -> VfsResult<Option<Vec<u8>>>;
        fn host_access(&self) -> HostAccess;
        fn show_lock(&self, lock: HostLock) -> VfsResult<bool>;
        fn volume_space(&self, uid: Option<u32>) -> VfsResult<Option<VolumeSpace>>;
        fn allocated(&self, first: u64, beyond: u64, limit: usize) -> VfsResult<Allocated>;
        fn extents_on_disk(&self, first: u64, limit: usize) -> VfsResult<DiskExtents>;
    }
}

#[cfg(test)]
mod tests {
    /// A method of the traits that is not named here would answer for a file system that can do nothing, and
    /// a new one that changes a file would change a committed one.
    #[test]
    fn every_method_is_passed_on() {
        for (of, traits, own) in [
            (
                "pub trait Vfs:",
                include_str!("../../../../store/src/vfs.rs"),
                include_str!("vfs.rs"),
            ),
            (
                "pub trait Node:",
                include_str!("../../../../store/src/vfs/node.rs"),
                include_str!("node.rs"),
            ),
        ] {
            let (_, rest) = traits.split_once(of).unwrap();
            let (body, _) = rest.split_once("\n}\n").unwrap();
            let mut count = 0;
            for line in body.lines() {
                let Some(name) = line.strip_prefix("    fn ") else { continue };
                let name = name.split_once('(').unwrap().0;
                assert!(own.contains(&format!(" fn {name}(")), "{of} {name}");
                count += 1;
            }
            assert!(count > 20, "{of}");
        }
    }
}
