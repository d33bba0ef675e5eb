//! The contract of an open object.

use alloc::boxed::Box;
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::any::Any;
use core::fmt;

use frevo_wire::dtyp::{FileAttributes, FileTime};

use super::change::{
    Allocated, BasicChange, Commitment, DiskExtents, EaChange, ExtentCopy, HostLock, ObjectId,
    ObjectIdChange,
};
use super::directory::Directory;
use super::fault::{Fault, VfsResult};
use super::protection::{HostAccess, Security, SecurityChange};
use super::stat::{FileKey, Stat, StreamStat};
use super::volume::VolumeSpace;
use crate::security::HostAcl;

/// An open object of a file system. Dropping it closes it. It is `Any` so that [`Vfs::link`](super::Vfs::link)
/// recognises its own nodes.
pub trait Node: Any + Send + Sync + fmt::Debug {
    /// Returns the file's identity.
    fn key(&self) -> FileKey;

    /// Returns a shared owner of the host's descriptor (`std::os::fd::OwnedFd`), if data may be
    /// moved directly through one.
    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        None
    }

    /// Returns the present state.
    fn stat(&self) -> VfsResult<Stat>;

    /// Returns the present state; `ea_size` may be 0: few replies carry it, and counting costs
    /// time.
    fn stat_without_eas(&self) -> VfsResult<Stat> {
        self.stat()
    }

    /// Returns the device numbers (major, minor) of the file system of the regular file behind
    /// [`Self::descriptor`], if known.
    fn data_device(&self) -> Option<(u32, u32)> {
        None
    }

    /// True if the attribute READONLY is set. Cheaper than the whole state.
    fn is_read_only(&self) -> VfsResult<bool> {
        Ok(self.stat()?.attributes.contains(FileAttributes::READONLY))
    }

    /// Fails with [`Fault::ReadOnly`] if the file system takes no changes now. The host can make it
    /// read-only at any time, and does so after an error of the disk.
    fn takes_changes(&self) -> VfsResult<()> {
        Ok(())
    }

    /// Fails with [`Fault::AccessDenied`] if the data may not be changed any more, because the file is
    /// committed. It is asked before data is moved through [`Self::descriptor`].
    fn takes_data(&self) -> VfsResult<()> {
        Ok(())
    }

    /// Returns the facts by which a file that is written once is committed.
    fn commitment(&self) -> VfsResult<Commitment> {
        Err(Fault::NotSupported)
    }

    /// Stores that the file is committed since `at`, and has the host refuse changes if it can.
    fn commit(&self, at: FileTime) -> VfsResult<()> {
        let _ = at;
        Err(Fault::NotSupported)
    }

    /// Has the host allow the removal of a committed file.
    fn release(&self) -> VfsResult<()> {
        Err(Fault::NotSupported)
    }

    /// True if the object is HIDDEN because of its name alone: see [`Stat::attributes`].
    fn is_hidden_by_name(&self) -> bool {
        false
    }

    /// Returns the object's birth time as stored on the medium, which nobody can change: with
    /// [`Self::key`] it identifies the object even after its removal. None if the file system does
    /// not know it.
    fn birth(&self) -> Option<FileTime> {
        None
    }

    /// Reads at `offset`; fewer bytes than asked for mean the end of the file.
    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize>;

    /// Writes all of `data` at `offset`, extending the file if necessary.
    fn write_at(&self, offset: u64, data: &[u8]) -> VfsResult<()> {
        let _ = (offset, data);
        Err(Fault::ReadOnly)
    }

    /// Makes all written data stable, and the metadata to find it.
    fn sync(&self) -> VfsResult<()> {
        Ok(())
    }

    /// Like [`Self::sync`], also for attributes that were changed through other nodes of the object.
    fn sync_all(&self) -> VfsResult<()> {
        self.sync()
    }

    /// True if a sync of the data of [`Self::descriptor`] (fdatasync) is all that [`Self::sync`]
    /// would do now.
    fn is_synced_by_descriptor(&self) -> bool {
        false
    }

    /// Sets the end of the file; an extension reads as zeros.
    fn set_end_of_file(&self, end: u64) -> VfsResult<()> {
        let _ = end;
        Err(Fault::ReadOnly)
    }

    /// Reserves space up to `bytes`; below the end of file it cuts (MS-FSA 2.1.5.15.1).
    fn set_allocation(&self, bytes: u64) -> VfsResult<()> {
        let _ = bytes;
        Err(Fault::ReadOnly)
    }

    /// Changes times and attributes.
    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        let _ = change;
        Err(Fault::ReadOnly)
    }

    /// Returns the named streams of the file, sorted by name, without the file's own data.
    fn streams(&self) -> VfsResult<Vec<StreamStat>> {
        Ok(Vec::new())
    }

    /// Removes all named streams, as overwriting a file does.
    fn clear_streams(&self) -> VfsResult<()> {
        Ok(())
    }

    /// True for a directory that cannot be removed because it has entries, also such as no listing
    /// shows.
    fn has_entries(&self) -> VfsResult<bool> {
        Ok(self.directory()?.next_name()?.is_some())
    }

    /// Starts listing a directory, without "." and "..".
    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        Err(Fault::NotADirectory)
    }

    /// Returns the extended attributes that clients may see, names without prefix.
    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        Ok(Vec::new())
    }

    /// Sets an extended attribute; an empty value removes it.
    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        let _ = (name, value);
        Err(Fault::NotSupported)
    }

    /// Returns the stored names of the attributes that a program must understand to use the file:
    /// FILE_NEED_EA, MS-FSCC 2.4.16.
    fn needed_eas(&self) -> VfsResult<Vec<String>> {
        Ok(Vec::new())
    }

    /// Sets or clears FILE_NEED_EA of an attribute. Removing the attribute clears it.
    fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        let _ = name;
        if needed { Err(Fault::NotSupported) } else { Ok(()) }
    }

    /// Sets or removes several extended attributes, each named once. Continues after a fault and
    /// returns the first one. Invalid names are refused before anything changes.
    fn set_eas(&self, changes: &[EaChange<'_>]) -> VfsResult<()> {
        let flags = changes.iter().any(|change| change.need) || !self.needed_eas()?.is_empty();
        let apply = |change: &EaChange<'_>| {
            self.set_ea(change.name, change.value)?;
            if flags && !change.value.is_empty() {
                self.set_ea_needed(change.name, change.need)?;
            }
            Ok(())
        };
        let mut done = Ok(());
        for change in changes {
            done = done.and(apply(change));
        }
        done
    }

    /// Returns the target of a symbolic link as clients see it; see [`links`](super::links).
    fn link_target(&self) -> VfsResult<String> {
        Err(Fault::Invalid)
    }

    /// Returns the major and minor number of a device.
    fn device(&self) -> Option<(u32, u32)> {
        None
    }

    /// Returns the reparse buffer stored with a file or directory, MS-FSA 2.1.1.3 File.ReparseData
    /// with its header; [`Fault::NotFound`] without one. The kind of a link or special file says
    /// what it is, so it stores none.
    fn reparse_buffer(&self) -> VfsResult<Vec<u8>> {
        Err(Fault::NotFound)
    }

    /// Stores a reparse buffer with a file or directory, or removes it. The state then shows a
    /// reparse point and its tag. Fails with [`Fault::NotSupported`] if buffers cannot be stored.
    fn keep_reparse(&self, buffer: Option<&[u8]>) -> VfsResult<()> {
        let _ = buffer;
        Err(Fault::NotSupported)
    }

    /// Returns the object id of a file or directory with its extended information (MS-FSA 2.1.1.3
    /// File.ObjectId); None without one. Fails with [`Fault::NotSupported`] if ids cannot be
    /// stored.
    fn object_id(&self) -> VfsResult<Option<ObjectId>> {
        Err(Fault::NotSupported)
    }

    /// Changes the object id.
    ///
    /// # Errors
    /// [`Fault::Exists`] for a new id on an object that has one, [`Fault::NotFound`] for extended
    /// information on an object without one.
    fn change_object_id(&self, change: &ObjectIdChange) -> VfsResult<()> {
        let _ = change;
        Err(Fault::NotSupported)
    }

    /// Returns the object's protection.
    fn security(&self) -> VfsResult<Security> {
        Ok(Security::Host(HostAcl::default()))
    }

    /// Returns only the stored descriptor, if there is one in force. Most files have none, and then
    /// the host's permissions need not be read.
    fn stored_security(&self) -> VfsResult<Option<Vec<u8>>> {
        Ok(match self.security()? {
            Security::Stored(bytes) => Some(bytes),
            Security::Host(_) => None,
        })
    }

    /// Stores a descriptor, and sets the nearest permissions on the host. It is in force until
    /// another program changes the host's permissions.
    fn set_security(&self, _change: &SecurityChange<'_>) -> VfsResult<()> {
        Err(Fault::NotSupported)
    }

    /// Returns whether the host allows this process to read, write or execute the object.
    fn host_access(&self) -> HostAccess {
        HostAccess { read: true, write: true, execute: true, owner: true }
    }

    /// Shows other programs a lock of this node's Open, replacing the lock shown for that range
    /// before. False if another program holds a conflicting lock.
    fn show_lock(&self, lock: HostLock) -> VfsResult<bool> {
        let _ = lock;
        Ok(true)
    }

    // The following method is about space.

    /// Returns the space of the file's volume if that is another one than the root's, with the
    /// enforced quota of the user `uid` there (MS-FSA 2.1.5.13.3, Open.File.Volume). None for a
    /// file on the root's volume, whose space [`Vfs::space`](super::Vfs::space) tells.
    fn volume_space(&self, uid: Option<u32>) -> VfsResult<Option<VolumeSpace>> {
        let _ = uid;
        Ok(None)
    }

    // The following methods are about extents and holes.

    /// Makes a range of this file share the extents of a range of `source`. Both ranges are aligned
    /// to [`Volume::cluster`](super::Volume::cluster), except that they may end where both files end. The file grows if the
    /// range ends behind its end. Fails with [`Fault::CrossDevice`] if `source` is a node of
    /// another file system, and with [`Fault::Invalid`] for ranges that overlap or are not aligned.
    fn share_extents(&self, source: &dyn Node, copy: &ExtentCopy) -> VfsResult<()> {
        let _ = (source, copy);
        Err(Fault::NotSupported)
    }

    /// Makes later writes compressed or not; on a directory, the files that are created in it.
    /// [`Stat::attributes`] shows it.
    fn set_compressed(&self, _compressed: bool) -> VfsResult<()> {
        Err(Fault::NotSupported)
    }

    /// Makes `length` bytes from `first` on read as zeros. The end of the file stays. With `punch`
    /// their space is freed; otherwise it is kept if the file system can do so without writing.
    fn zero(&self, first: u64, length: u64, punch: bool) -> VfsResult<()> {
        let _ = (first, length, punch);
        Err(Fault::NotSupported)
    }

    /// Returns up to `limit` ranges with data from `first` to before `beyond`.
    fn allocated(&self, first: u64, beyond: u64, limit: usize) -> VfsResult<Allocated> {
        let _ = (first, beyond, limit);
        Err(Fault::NotSupported)
    }

    /// Returns up to `limit` extents that end behind `first`, with their places on the volume.
    /// Nothing is written to the disk for it.
    fn extents_on_disk(&self, first: u64, limit: usize) -> VfsResult<DiskExtents> {
        let _ = (first, limit);
        Err(Fault::NotSupported)
    }
}
