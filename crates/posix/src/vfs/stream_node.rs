//! A named stream that is open.

use std::any::Any;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use frevo_store::vfs::{
    Allocated, BasicChange, Commitment, Directory, EaChange, HostAccess, Node, ObjectId,
    ObjectIdChange, OpenHow, Security, SecurityChange, StreamStat, VfsResult, VolumeSpace,
};
use frevo_store::{Fault, FileKey, Stat};
use frevo_wire::dtyp::FileTime;
use rustix::fs::{AtFlags, FallocateFlags, OFlags, Timespec, Timestamps};
use rustix::io::retry_on_intr;

use crate::errno::fault_of;
use crate::extents;
use crate::limits::XATTR_VALUE_BYTES;
use crate::share::Share;
use crate::share::streams::body::{Body, Where, beside_the_core, is_full, write_all};
use crate::share::streams::layout::{attribute, stat_of};
use crate::sys;
use crate::xattr::Handle;

/// An open stream as a node.
#[derive(Debug)]
pub(crate) struct StreamNode {
    share: Arc<Share>,
    file: Arc<dyn Node>,
    handle: Handle,
    body: Arc<Body>,
    read: bool,
    write: bool,
}

impl Drop for StreamNode {
    fn drop(&mut self) {
        if Arc::strong_count(&self.body) == 1 {
            self.share.streams.note_closed();
        }
    }
}

impl StreamNode {
    pub(super) fn new(
        share: Arc<Share>,
        file: Arc<dyn Node>,
        handle: Handle,
        body: Arc<Body>,
        how: &OpenHow,
    ) -> Self {
        Self { share, file, handle, body, read: how.read, write: how.write }
    }

    pub(super) fn file(&self) -> &dyn Node {
        &*self.file
    }

    pub(super) fn size(&self) -> VfsResult<u64> {
        Ok(self.body.lock_soon()?.extent(&self.handle)?.size)
    }

    fn writable(&self) -> VfsResult<()> {
        self.share.writable()?;
        if self.write { Ok(()) } else { Err(Fault::AccessDenied) }
    }

    /// Changes the data: in the attribute while it fits, else in the side folder. `extent` is the
    /// least length of the data afterwards. A core moves no data into the side folder.
    fn change(
        &self,
        extent: u64,
        in_memory: impl FnOnce(&mut Vec<u8>),
        in_file: impl FnOnce(BorrowedFd<'_>) -> VfsResult<()>,
    ) -> VfsResult<()> {
        let _begun = self.body.begin_write()?;
        let mut state = self.body.lock_soon()?;
        let side = match &state.at {
            Where::Gone => return Err(Fault::Stale),
            Where::Side(fd) => Arc::clone(fd),
            Where::Attribute => {
                let mut value = state.value(&self.handle)?;
                if extent < XATTR_VALUE_BYTES as u64 {
                    let before = value.clone();
                    in_memory(&mut value);
                    value.push(0);
                    let attribute = attribute(&state.name).ok_or(Fault::NameTooLong)?;
                    match self.handle.set(&attribute, &value) {
                        Ok(()) => {
                            self.touch();
                            return Ok(());
                        }
                        Err(errno) if is_full(errno) => value = before,
                        Err(errno) => return Err(fault_of(errno)),
                    }
                }
                beside_the_core()?;
                let fd = self.share.move_to_side(&self.handle, &state.name, &value)?;
                let fd = Arc::new(fd);
                state.at = Where::Side(Arc::clone(&fd));
                fd
            }
        };
        // The data of the client may be large, so it is written without the lock.
        drop(state);
        in_file(side.as_fd())?;
        self.touch();
        Ok(())
    }

    /// Sets the file's write time after a write to a stream (MS-FSA 2.1.4.17).
    fn touch(&self) {
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        // libfuse 2 ignores a request that sets only one timestamp, so on FUSE both are set.
        let is_fuse = self.share.is_on_fuse(self.file.key(), self.handle.fd());
        let omitted = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT };
        let keep = if is_fuse { now } else { omitted };
        let times = Timestamps { last_access: keep, last_modification: now };
        // The data was written, so the write succeeds even if its time cannot be set.
        let _ = rustix::fs::utimensat(self.handle.fd(), c"", &times, AtFlags::EMPTY_PATH);
    }
}

impl Node for StreamNode {
    fn key(&self) -> FileKey {
        FileKey { stream: self.body.id(), ..self.file.key().file() }
    }

    /// Returns None, because the data may move.
    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    fn takes_changes(&self) -> VfsResult<()> {
        self.file.takes_changes()
    }

    fn commitment(&self) -> VfsResult<Commitment> {
        self.file.commitment()
    }

    fn commit(&self, at: FileTime) -> VfsResult<()> {
        self.file.commit(at)
    }

    fn release(&self) -> VfsResult<()> {
        self.file.release()
    }

    fn stat(&self) -> VfsResult<Stat> {
        let file = self.file.stat()?;
        let state = self.body.lock_soon()?;
        Ok(stat_of(file, &state.name, state.extent(&self.handle)?))
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        if !self.read {
            return Err(Fault::AccessDenied);
        }
        self.body.read(&self.handle, offset, into)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> VfsResult<()> {
        self.writable()?;
        if data.is_empty() {
            return Ok(());
        }
        let end = offset.checked_add(data.len() as u64).ok_or(Fault::Invalid)?;
        let in_memory = |value: &mut Vec<u8>| {
            let at = usize::try_from(offset).unwrap_or(usize::MAX);
            value.resize(value.len().max(at + data.len()), 0);
            value[at..at + data.len()].copy_from_slice(data);
        };
        self.change(end, in_memory, |fd| {
            beside_the_core()?;
            write_all(fd, offset, data)
        })
    }

    /// Makes attributes durable, together with all metadata of their file.
    fn sync(&self) -> VfsResult<()> {
        let side = match &self.body.lock_soon()?.at {
            Where::Side(fd) => Some(Arc::clone(fd)),
            Where::Attribute | Where::Gone => None,
        };
        if let Some(fd) = side {
            retry_on_intr(|| rustix::fs::fsync(&fd)).map_err(fault_of)?;
        }
        self.share.sync_side(&self.handle)?;
        self.file.sync()?;
        let again = sys::reopen(self.handle.fd(), OFlags::RDONLY).map_err(fault_of)?;
        retry_on_intr(|| rustix::fs::fsync(&again)).map_err(fault_of)
    }

    fn set_end_of_file(&self, end: u64) -> VfsResult<()> {
        self.writable()?;
        if i64::try_from(end).is_err() {
            return Err(Fault::Invalid);
        }
        let in_memory =
            |value: &mut Vec<u8>| value.resize(usize::try_from(end).unwrap_or(usize::MAX), 0);
        self.change(end, in_memory, |fd| rustix::fs::ftruncate(fd, end).map_err(fault_of))
    }

    /// Cuts a longer stream, and reserves space for one in the side folder. Deviation from MS-FSA
    /// 2.1.5.15.1: for a stream in an attribute no space can be reserved, and AllocationSize stays that
    /// of its data.
    fn set_allocation(&self, bytes: u64) -> VfsResult<()> {
        self.writable()?;
        if bytes < self.size()? {
            return self.set_end_of_file(bytes);
        }
        let _begun = self.body.begin_write()?;
        let side = match &self.body.lock_soon()?.at {
            Where::Side(fd) => Arc::clone(fd),
            Where::Attribute => return Ok(()),
            Where::Gone => return Err(Fault::Stale),
        };
        extents::reserve(side.as_fd(), bytes)
    }

    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        self.file.set_basic(change)
    }

    fn birth(&self) -> Option<FileTime> {
        self.file.birth()
    }

    fn volume_space(&self, uid: Option<u32>) -> VfsResult<Option<VolumeSpace>> {
        self.file.volume_space(uid)
    }

    fn zero(&self, first: u64, length: u64, _punch: bool) -> VfsResult<()> {
        self.writable()?;
        let end = first.saturating_add(length).min(self.size()?);
        let at = |value: u64| usize::try_from(value).unwrap_or(usize::MAX);
        let in_memory = |value: &mut Vec<u8>| {
            let end = at(end).min(value.len());
            if let Some(range) = value.get_mut(at(first)..end) {
                range.fill(0);
            }
        };
        self.change(0, in_memory, |fd| {
            let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            let length = end.saturating_sub(first);
            if length == 0 {
                return Ok(());
            }
            retry_on_intr(|| rustix::fs::fallocate(fd, flags, first, length)).map_err(fault_of)
        })
    }

    /// Returns the whole range: holes of streams are not known.
    fn allocated(&self, first: u64, beyond: u64, limit: usize) -> VfsResult<Allocated> {
        let has_any = first < beyond;
        let ranges = if has_any && limit > 0 { vec![(first, beyond)] } else { Vec::new() };
        Ok(Allocated { has_more: has_any && limit == 0, ranges })
    }

    fn streams(&self) -> VfsResult<Vec<StreamStat>> {
        self.file.streams()
    }

    fn clear_streams(&self) -> VfsResult<()> {
        self.file.clear_streams()
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        Err(Fault::NotADirectory)
    }

    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        self.file.eas()
    }

    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        self.file.set_ea(name, value)
    }

    fn needed_eas(&self) -> VfsResult<Vec<String>> {
        self.file.needed_eas()
    }

    fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        self.file.set_ea_needed(name, needed)
    }

    fn set_eas(&self, changes: &[EaChange<'_>]) -> VfsResult<()> {
        self.file.set_eas(changes)
    }

    fn object_id(&self) -> VfsResult<Option<ObjectId>> {
        self.file.object_id()
    }

    fn change_object_id(&self, change: &ObjectIdChange) -> VfsResult<()> {
        self.file.change_object_id(change)
    }

    fn link_target(&self) -> VfsResult<String> {
        Err(Fault::Invalid)
    }

    fn security(&self) -> VfsResult<Security> {
        self.file.security()
    }

    fn set_security(&self, change: &SecurityChange<'_>) -> VfsResult<()> {
        self.file.set_security(change)
    }

    fn host_access(&self) -> HostAccess {
        self.file.host_access()
    }
}

#[cfg(test)]
mod tests {
    use frevo_store::Name;
    use frevo_store::vfs::{Existence, Opened, Vfs as _};

    use super::*;
    use crate::{PosixOptions, PosixVfs, patience};

    const LARGE: u64 = 100 << 10;

    fn node_of(opened: &Opened) -> &StreamNode {
        let node: &dyn Any = &*opened.node;
        node.downcast_ref().unwrap()
    }

    /// Tests that a stream moves with its old data, and that the new data is written without the lock.
    #[test]
    fn the_first_large_write_holds_up_nobody() {
        let host = tempfile::tempdir().unwrap();
        let vfs = PosixVfs::open_root(host.path(), PosixOptions::default()).unwrap();
        let how =
            OpenHow { existence: Existence::Either, read: true, write: true, ..OpenHow::LOOK };
        let open = |stream: &str| {
            let name = Name::from_stored("file".into()).with_stream(Some(stream));
            let opened = vfs.open(&name, &how).unwrap();
            opened.node.write_at(0, b"small").unwrap();
            opened
        };
        let read = |opened: &Opened| {
            let mut into = [0; 8];
            let len = opened.node.read_at(0, &mut into).unwrap();
            into[..len].to_vec()
        };
        let opened = open("a");
        let node = node_of(&opened);
        let changed = node.change(
            LARGE,
            |_| (),
            |fd| {
                assert_eq!(patience::short(|| node.size()), (Ok(5), false));
                write_all(fd, 0, b"S")
            },
        );
        assert_eq!(changed, Ok(()));
        assert_eq!(read(&opened), b"Small");
        // A write that fails leaves the old data, of which no copy is left in the attribute.
        let opened = open("b");
        let node = node_of(&opened);
        assert_eq!(node.change(LARGE, |_| (), |_| Err(Fault::DiskFull)), Err(Fault::DiskFull));
        assert_eq!(read(&opened), b"small");
        assert_eq!(node.handle.value_len(&attribute("b").unwrap()), Err(rustix::io::Errno::NODATA));
        drop(opened);
        assert_eq!(
            read(
                &vfs.open(&Name::from_stored("file".into()).with_stream(Some("B")), &how).unwrap()
            ),
            b"small"
        );
    }
}
