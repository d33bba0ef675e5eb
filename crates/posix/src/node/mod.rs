//! An open file, directory, link or special object.

mod object_id;
mod reparse;
mod set_times;
mod sync;
mod write_once;

use std::any::Any;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_store::vfs::{
    Allocated, BasicChange, Commitment, Directory, DiskExtents, EaChange, ExtentCopy, HostAccess,
    HostLock, Kind, Node, ObjectId, ObjectIdChange, OpenHow, Security, SecurityChange, StreamStat,
    VfsResult, VolumeSpace, links,
};
use frevo_store::{Fault, FileKey, Stat};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use parking_lot::Mutex;
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatVfsMountFlags, Statx};
use rustix::io::{Errno, retry_on_intr};

use crate::compression;
use crate::credentials;
use crate::dir::Dir;
use crate::directory::{self, PosixDirectory};
use crate::dosattrib::DosAttrib;
use crate::errno::fault_of;
use crate::extents;
use crate::facts::Version;
use crate::locks;
use crate::patience;
use crate::quota;
use crate::reparse_tag;
use crate::share::Share;
use crate::stat::{self, Extra};
use crate::sys::{self, ProcPath};
use crate::volume;
use crate::writable;
use crate::xattr::{DOSATTRIB, Handle};

/// An open file, directory, link or special file of a share.
#[derive(Debug)]
pub(crate) struct PosixNode {
    share: Arc<Share>,
    handle: Handle,
    key: FileKey,
    /// The number of the mount in which it was opened.
    mount: u64,
    kind: Kind,
    /// True if it was opened to read or write data.
    moves_data: bool,
    /// HIDDEN because of the name by which it was opened.
    hidden_name: bool,
    /// True if the user that made it through this node has given it to another.
    is_given: bool,
    /// The version in which it was opened, if that was settled and it was not known whether it has a
    /// descriptor.
    version: Option<Version>,
    /// The directory in which this node was created, until that entry is durable.
    created_in: Mutex<Option<Dir>>,
    /// True if more than data and size was changed through this node since its last sync.
    altered: AtomicBool,
    /// The object that replaced this one, see [`Vfs::replace`](frevo_store::Vfs::replace).
    successor: Mutex<Option<Arc<Self>>>,
}

impl PosixNode {
    /// Opens the directory once more, for a position of its own.
    fn listed(&self) -> VfsResult<OwnedFd> {
        if self.kind != Kind::Directory {
            return Err(Fault::NotADirectory);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        sys::open_beneath(self.handle.fd(), b".", flags, Mode::empty(), false).map_err(fault_of)
    }

    pub(crate) fn new(
        share: Arc<Share>,
        handle: Handle,
        stx: &Statx,
        how: &OpenHow,
        hidden_name: bool,
    ) -> Self {
        Self {
            key: share.marked(stat::key_of(stx)),
            mount: stx.stx_mnt_id,
            share,
            kind: stat::kind_of(stx),
            moves_data: (how.read || how.write) && !handle.is_path_only(),
            handle,
            hidden_name,
            is_given: false,
            version: None,
            created_in: Mutex::new(None),
            altered: AtomicBool::new(false),
            successor: Mutex::new(None),
        }
    }

    /// Remembers the version in which it has just been opened, if that is settled.
    pub(crate) fn seen_as(self, version: Option<Version>) -> Self {
        Self { version: version.filter(Version::is_settled), ..self }
    }

    /// Marks it as a new object that its user has given to another: attributes are set as if it were still
    /// the user's.
    pub(crate) fn given(self) -> Self {
        Self { is_given: true, ..self }
    }

    /// Changes extended attributes, and once more as the server if the host refuses that to the user that
    /// made the object and has given it away.
    fn change_eas(&self, change: impl Fn() -> VfsResult<()>) -> VfsResult<()> {
        match change() {
            Err(Fault::AccessDenied) if self.is_given && credentials::is_acting() => {
                let _server = credentials::as_server();
                change()
            }
            done => done,
        }
    }

    /// Returns the object that replaced this one.
    pub(crate) fn successor(&self) -> Option<Arc<Self>> {
        self.successor.lock().clone()
    }

    /// Makes `other` the replacement of this node.
    pub(crate) fn become_other(&self, other: Arc<Self>) {
        *self.successor.lock() = Some(other);
    }

    /// Makes a node of this object opened in another way, or of its replacement. Facts that follow
    /// from the name stay.
    pub(crate) fn sibling(&self, handle: Handle, stx: &Statx) -> Self {
        Self {
            key: self.share.marked(stat::key_of(stx)),
            mount: stx.stx_mnt_id,
            share: Arc::clone(&self.share),
            kind: stat::kind_of(stx),
            moves_data: false,
            handle,
            hidden_name: self.hidden_name,
            is_given: false,
            version: None,
            created_in: Mutex::new(None),
            altered: AtomicBool::new(false),
            successor: Mutex::new(None),
        }
    }

    /// Sets the directory that must be made durable together with this node.
    pub(crate) fn was_created_in(&self, dir: Dir) {
        *self.created_in.lock() = Some(dir);
    }

    #[cfg(test)]
    pub(crate) fn is_entry_pending(&self) -> bool {
        self.created_in.lock().is_some()
    }

    /// Returns the host's key of a directory of this share that has not been replaced.
    pub(crate) fn as_directory_of(&self, share: &Arc<Share>) -> Option<FileKey> {
        let is_own = Arc::ptr_eq(&self.share, share) && self.kind == Kind::Directory;
        (is_own && self.successor().is_none()).then(|| share.unmarked(self.key))
    }

    /// Returns the descriptor for operations on the object itself, not on its data.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.handle.fd()
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Makes another name of this file. The link goes through `/proc`, because linking a bare
    /// descriptor is a privilege.
    pub(crate) fn link_to(&self, dir: BorrowedFd<'_>, entry: &[u8]) -> Result<(), Errno> {
        if let Some(now) = self.successor() {
            return now.link_to(dir, entry);
        }
        let path = ProcPath::of(self.handle.fd());
        rustix::fs::linkat(CWD, path.as_c_str(), dir, entry, AtFlags::SYMLINK_FOLLOW)
    }

    /// Returns the descriptor, if the node was opened for data.
    fn data(&self) -> VfsResult<BorrowedFd<'_>> {
        if self.successor.lock().is_some() {
            // This handle was opened only to replace the object, so it has no access to data.
            return Err(Fault::AccessDenied);
        }
        match self.kind {
            Kind::Directory => Err(Fault::IsADirectory),
            _ if !self.moves_data => Err(Fault::AccessDenied),
            _ => Ok(self.handle.fd()),
        }
    }

    /// False for symbolic links and special files, which cannot have user attributes.
    pub(crate) fn has_xattrs(&self) -> bool {
        self.share.volume.xattrs && matches!(self.kind, Kind::File | Kind::Directory)
    }

    /// Returns the size of the extended attributes; see [`Stat::ea_size`].
    pub(crate) fn ea_size(&self) -> u32 {
        if self.has_xattrs() { self.handle.ea_size().unwrap_or(0) } else { 0 }
    }

    /// Returns DOSATTRIB of this file, whose state is `stx`.
    fn dos_attrib_of(&self, stx: &Statx) -> Option<DosAttrib> {
        let is_stored = self.share.keeps_attributes() && self.has_xattrs();
        let read = |value: &mut [u8]| self.handle.value(DOSATTRIB, value);
        if is_stored { self.share.dos_attrib(stx, read) } else { None }
    }

    /// Returns the state, with the size of the extended attributes if that is wanted.
    fn state(&self, with_eas: bool) -> VfsResult<Stat> {
        let stx = sys::stat_fd(self.handle.fd()).map_err(fault_of)?;
        let dos = self.dos_attrib_of(&stx);
        let with_eas = with_eas && self.has_xattrs();
        let extra = Extra {
            dos,
            hidden_name: self.hidden_name,
            ea_size: if with_eas { self.share.ea_size(&stx, || self.handle.ea_size()) } else { 0 },
            reparse_tag: reparse_tag::tag(dos, |into| {
                self.handle.value(reparse_tag::ATTRIBUTE, into)
            }),
            is_directory_link: self.handle.is_directory_link(&stx),
        };
        Ok(self.share.stat_of(&stx, &extra))
    }

    pub(crate) fn dos_attrib(&self) -> Option<DosAttrib> {
        let is_stored = self.share.keeps_attributes() && self.has_xattrs();
        if is_stored { self.handle.dos_attrib() } else { None }
    }
}

impl Node for PosixNode {
    fn key(&self) -> FileKey {
        self.successor.lock().as_ref().map_or(self.key, |now| now.key)
    }

    fn descriptor(&self) -> Option<Arc<dyn Any + Send + Sync>> {
        self.data().ok()?;
        Some(self.handle.shared())
    }

    fn stat(&self) -> VfsResult<Stat> {
        if let Some(now) = self.successor() {
            return now.stat();
        }
        self.state(true)
    }

    fn data_device(&self) -> Option<(u32, u32)> {
        if self.kind != Kind::File || self.data().is_err() {
            return None;
        }
        Some(stat::device_of(self.share.unmarked(self.key)))
    }

    fn stat_without_eas(&self) -> VfsResult<Stat> {
        if let Some(now) = self.successor() {
            return now.stat_without_eas();
        }
        self.state(false)
    }

    fn is_read_only(&self) -> VfsResult<bool> {
        if let Some(now) = self.successor() {
            return now.is_read_only();
        }
        let mapped = self.share.mode_attributes();
        if !mapped.is_empty() {
            let stx = sys::stat_fd(self.handle.fd()).map_err(fault_of)?;
            let attributes = mapped.of_mode(u32::from(stx.stx_mode));
            return Ok(self.kind == Kind::File && attributes.contains(FileAttributes::READONLY));
        }
        let is_marked = |dos: DosAttrib| dos.attributes & FileAttributes::READONLY.0 != 0;
        Ok(self.dos_attrib().is_some_and(is_marked))
    }

    fn takes_changes(&self) -> VfsResult<()> {
        self.share.writable()?;
        if writable::is_noted(self.mount) {
            return Ok(());
        }
        let mounted = rustix::fs::fstatvfs(self.handle.fd()).map_err(fault_of)?;
        if mounted.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(Fault::ReadOnly);
        }
        Ok(())
    }

    fn commitment(&self) -> VfsResult<Commitment> {
        match self.successor() {
            Some(now) => now.commitment(),
            None => self.kept_commitment(),
        }
    }

    fn commit(&self, at: FileTime) -> VfsResult<()> {
        self.mark_altered();
        self.share.writable()?;
        match self.successor() {
            Some(now) => now.commit(at),
            None => self.keep_commitment(at),
        }
    }

    fn release(&self) -> VfsResult<()> {
        self.share.writable()?;
        match self.successor() {
            Some(now) => now.release(),
            None => self.release_commitment(),
        }
    }

    fn is_hidden_by_name(&self) -> bool {
        let is_marked = |dos: DosAttrib| dos.attributes & FileAttributes::HIDDEN.0 != 0;
        self.hidden_name && !self.dos_attrib().is_some_and(is_marked)
    }

    fn birth(&self) -> Option<FileTime> {
        if let Some(now) = self.successor() {
            return now.birth();
        }
        stat::birth_of(&sys::stat_fd(self.handle.fd()).ok()?)
    }

    fn read_at(&self, offset: u64, into: &mut [u8]) -> VfsResult<usize> {
        let fd = self.data()?;
        let mut filled = 0;
        while filled < into.len() {
            let at = offset.saturating_add(filled as u64);
            match rustix::io::pread(fd, &mut into[filled..], at) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(Errno::INTR) => {}
                Err(Errno::BADF) => return Err(Fault::AccessDenied),
                Err(errno) => return Err(fault_of(errno)),
            }
        }
        Ok(filled)
    }

    fn write_at(&self, offset: u64, data: &[u8]) -> VfsResult<()> {
        let fd = self.data()?;
        let mut done = 0;
        while done < data.len() {
            let at = offset.saturating_add(done as u64);
            match rustix::io::pwrite(fd, &data[done..], at) {
                Ok(0) => return Err(Fault::Io(libc::EIO)),
                Ok(count) => done += count,
                Err(Errno::INTR) => {}
                Err(Errno::BADF) => return Err(Fault::AccessDenied),
                Err(errno) => return Err(fault_of(errno)),
            }
        }
        Ok(())
    }

    fn sync(&self) -> VfsResult<()> {
        let altered = self.altered.swap(false, Ordering::AcqRel);
        let mut created_in = self.created_in.lock();
        let is_all = altered || created_in.is_some() || self.kind == Kind::Directory;
        self.sync_self(is_all).inspect_err(|_| self.mark_altered())?;
        if let Some(parent) = created_in.as_ref() {
            self.sync_folder(parent.fd())?;
            *created_in = None;
        }
        Ok(())
    }

    fn sync_all(&self) -> VfsResult<()> {
        self.mark_altered();
        self.sync()
    }

    fn is_synced_by_descriptor(&self) -> bool {
        // The name of a new file is stable once its parent directory was synced. If another thread
        // holds the lock, that sync is still running.
        let is_settled = self.created_in.try_lock().is_some_and(|parent| parent.is_none());
        is_settled && !self.altered.load(Ordering::Acquire) && self.data().is_ok()
    }

    fn set_end_of_file(&self, end: u64) -> VfsResult<()> {
        let fd = self.data()?;
        if self.share.fills_holes {
            let now = sys::stat_fd(fd).map_err(fault_of)?.stx_size;
            let more = end.saturating_sub(now);
            extents::check_room(fd, more)?;
            // The file system writes the zeros within the call.
            if patience::gives_up_freeing(more) {
                return Err(fault_of(Errno::AGAIN));
            }
        }
        match retry_on_intr(|| rustix::fs::ftruncate(fd, end)) {
            Ok(()) => Ok(()),
            // ftruncate returns EINVAL for a valid length if the file was not opened for writing.
            Err(Errno::INVAL) if i64::try_from(end).is_ok() => Err(Fault::AccessDenied),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    fn set_allocation(&self, bytes: u64) -> VfsResult<()> {
        let fd = self.data()?;
        if bytes < sys::stat_fd(fd).map_err(fault_of)?.stx_size {
            return self.set_end_of_file(bytes);
        }
        extents::reserve(fd, bytes)
    }

    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        self.mark_altered();
        if let Some(now) = self.successor() {
            return now.set_basic(change);
        }
        self.share.writable()?;
        if change.uid.is_some() || change.gid.is_some() {
            crate::security::chown(&self.handle, change.uid, change.gid)?;
        }
        if let Some(mode) = change.mode {
            let _server = crate::security::as_owner(&self.share, &self.handle)?;
            crate::security::chmod(&self.handle, mode)?;
        }
        let times = self.set_times(change)?;
        self.set_attributes(change, &times)
    }

    fn streams(&self) -> VfsResult<Vec<StreamStat>> {
        if let Some(now) = self.successor() {
            return now.streams();
        }
        if self.has_xattrs() { self.share.list_streams(&self.handle) } else { Ok(Vec::new()) }
    }

    fn clear_streams(&self) -> VfsResult<()> {
        self.mark_altered();
        if let Some(now) = self.successor() {
            return now.clear_streams();
        }
        self.share.writable()?;
        if self.has_xattrs() { self.share.clear_streams(&self.handle) } else { Ok(()) }
    }

    fn show_lock(&self, lock: HostLock) -> VfsResult<bool> {
        locks::show(self.data()?, lock)
    }

    fn has_entries(&self) -> VfsResult<bool> {
        if let Some(now) = self.successor() {
            return now.has_entries();
        }
        directory::has_entries(self.listed()?.as_fd()).map_err(fault_of)
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        if let Some(now) = self.successor() {
            return now.directory();
        }
        Ok(Box::new(PosixDirectory::new(Arc::clone(&self.share), self.listed()?)))
    }

    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        if let Some(now) = self.successor() {
            return now.eas();
        }
        if self.has_xattrs() { self.handle.eas() } else { Ok(Vec::new()) }
    }

    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        self.mark_altered();
        if let Some(now) = self.successor() {
            return now.set_ea(name, value);
        }
        self.share.writable()?;
        if !self.has_xattrs() {
            return Err(Fault::NotSupported);
        }
        self.change_eas(|| self.handle.set_ea(name, value))
    }

    fn needed_eas(&self) -> VfsResult<Vec<String>> {
        if let Some(now) = self.successor() {
            return now.needed_eas();
        }
        if self.has_xattrs() { self.handle.needed_eas() } else { Ok(Vec::new()) }
    }

    fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        self.mark_altered();
        if let Some(now) = self.successor() {
            return now.set_ea_needed(name, needed);
        }
        self.share.writable()?;
        if !self.has_xattrs() {
            return Err(Fault::NotSupported);
        }
        self.change_eas(|| self.handle.set_ea_needed(name, needed))
    }

    fn set_eas(&self, changes: &[EaChange<'_>]) -> VfsResult<()> {
        self.mark_altered();
        if let Some(now) = self.successor() {
            return now.set_eas(changes);
        }
        self.share.writable()?;
        if !self.has_xattrs() {
            return Err(Fault::NotSupported);
        }
        self.change_eas(|| self.handle.set_eas(changes))
    }

    fn link_target(&self) -> VfsResult<String> {
        if let Some(now) = self.successor() {
            return now.link_target();
        }
        if self.kind != Kind::Symlink {
            return Err(Fault::Invalid);
        }
        let target = rustix::fs::readlinkat(self.handle.fd(), c"", Vec::new()).map_err(fault_of)?;
        target.into_string().map(links::told).map_err(|_| Fault::NameInvalid)
    }

    fn device(&self) -> Option<(u32, u32)> {
        if !matches!(self.kind, Kind::CharDevice | Kind::BlockDevice) {
            return None;
        }
        let stx = sys::stat_fd(self.handle.fd()).ok()?;
        Some((stx.stx_rdev_major, stx.stx_rdev_minor))
    }

    fn reparse_buffer(&self) -> VfsResult<Vec<u8>> {
        match self.successor() {
            Some(now) => now.reparse_buffer(),
            None => self.kept_reparse(),
        }
    }

    fn object_id(&self) -> VfsResult<Option<ObjectId>> {
        match self.successor() {
            Some(now) => now.object_id(),
            None => self.kept_object_id(),
        }
    }

    fn change_object_id(&self, change: &ObjectIdChange) -> VfsResult<()> {
        self.mark_altered();
        self.share.writable()?;
        match self.successor() {
            Some(now) => now.change_object_id(change),
            None => self.change_kept_object_id(change),
        }
    }

    fn keep_reparse(&self, buffer: Option<&[u8]>) -> VfsResult<()> {
        self.mark_altered();
        self.share.writable()?;
        match self.successor() {
            Some(now) => now.keep_reparse(buffer),
            None if !self.share.keeps_attributes() => Err(Fault::NotSupported),
            None => self.set_kept_reparse(buffer),
        }
    }

    fn security(&self) -> VfsResult<Security> {
        if let Some(now) = self.successor() {
            return now.security();
        }
        crate::security::query(&self.share, &self.handle)
    }

    fn stored_security(&self) -> VfsResult<Option<Vec<u8>>> {
        if let Some(now) = self.successor() {
            return now.stored_security();
        }
        crate::security::stored(&self.share, &self.handle, self.version)
    }

    fn set_security(&self, change: &SecurityChange<'_>) -> VfsResult<()> {
        self.mark_altered();
        if let Some(now) = self.successor() {
            return now.set_security(change);
        }
        self.share.writable()?;
        crate::security::set(&self.share, &self.handle, change)
    }

    fn host_access(&self) -> HostAccess {
        if let Some(now) = self.successor() {
            return now.host_access();
        }
        let fd = self.handle.fd();
        let stx = sys::stat_fd(fd).ok();
        self.share.access(fd, stx.map(|stx| stx.stx_uid))
    }

    fn volume_space(&self, uid: Option<u32>) -> VfsResult<Option<VolumeSpace>> {
        if self.key.device == self.share.home {
            return Ok(None);
        }
        let fd = self.handle.fd();
        let space = rustix::fs::fstatvfs(fd).map(|vfs| volume::space(&vfs)).map_err(fault_of)?;
        let is_enforced =
            || quota::state(fd).is_ok_and(|state| state.is_some_and(|s| s.is_enforced));
        let quota = match uid.filter(|_| is_enforced()) {
            Some(uid) => quota::get(fd, uid)?,
            None => None,
        };
        Ok(Some(VolumeSpace { space, quota }))
    }

    fn share_extents(&self, source: &dyn Node, copy: &ExtentCopy) -> VfsResult<()> {
        self.share.writable()?;
        let source: &dyn Any = source;
        let source: &Self = source.downcast_ref().ok_or(Fault::CrossDevice)?;
        extents::share(self.share.root.as_fd(), self.data()?, source.data()?, copy)
    }

    fn set_compressed(&self, compressed: bool) -> VfsResult<()> {
        self.mark_altered();
        self.share.writable()?;
        if !self.share.volume.compresses || !matches!(self.kind, Kind::File | Kind::Directory) {
            return Err(Fault::NotSupported);
        }
        compression::set(self.handle.fd(), compressed)
    }

    fn zero(&self, first: u64, length: u64, punch: bool) -> VfsResult<()> {
        self.share.writable()?;
        extents::zero(self.data()?, first, length, punch)
    }

    fn allocated(&self, first: u64, beyond: u64, limit: usize) -> VfsResult<Allocated> {
        extents::allocated(self.data()?, first, beyond, limit)
    }

    fn extents_on_disk(&self, first: u64, limit: usize) -> VfsResult<DiskExtents> {
        match self.kind {
            Kind::File | Kind::Directory => extents::on_disk(self.handle.fd(), first, limit),
            _ => Err(Fault::NotSupported),
        }
    }
}
