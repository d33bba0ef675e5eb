//! An open file, directory, link or special object.

use std::any::Any;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::Arc;

use frevo_store::vfs::{
    Allocated, BasicChange, Directory, EaChange, ExtentCopy, HostAccess, Kind, Node, ObjectId,
    ObjectIdChange, OpenHow, STORED_ATTRIBUTES, Security, SecurityChange, ShownLock, StreamStat,
    VfsResult,
};
use frevo_store::{Fault, FileKey, Stat};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use parking_lot::Mutex;
use rustix::fs::{
    Access, AtFlags, CWD, FallocateFlags, Mode, OFlags, StatVfsMountFlags, Statx, Timespec,
    Timestamps,
};
use rustix::io::{Errno, retry_on_intr};

use crate::compression;
use crate::directory::PosixDirectory;
use crate::dosattrib::{DosAttrib, SetChangeTime};
use crate::errno::fault_of;
use crate::extents;
use crate::locks;
use crate::reparse;
use crate::share::Share;
use crate::stat::{self, Extra};
use crate::sys::{self, ProcPath};
use crate::walk::Dir;
use crate::xattr::Handle;

/// An open object of a share.
#[derive(Debug)]
pub(crate) struct PosixNode {
    share: Arc<Share>,
    handle: Handle,
    key: FileKey,
    kind: Kind,
    /// Opened to read or write data.
    moves_data: bool,
    /// HIDDEN because of the name that it was opened by.
    hidden_name: bool,
    /// The directory in which this node was created, until that is durable.
    created_in: Mutex<Option<Dir>>,
    /// What took its place, see [`Vfs::replace`](frevo_store::Vfs::replace).
    successor: Mutex<Option<Arc<Self>>>,
}

impl PosixNode {
    pub(crate) fn new(
        share: Arc<Share>,
        handle: Handle,
        stx: &Statx,
        how: &OpenHow,
        hidden_name: bool,
    ) -> Self {
        Self {
            key: share.marked(stat::key_of(stx)),
            share,
            kind: stat::kind_of(stx),
            moves_data: (how.read || how.write) && !handle.is_path_only(),
            handle,
            hidden_name,
            created_in: Mutex::new(None),
            successor: Mutex::new(None),
        }
    }

    /// What took the place of this object.
    pub(crate) fn successor(&self) -> Option<Arc<Self>> {
        self.successor.lock().clone()
    }

    /// From now on this node is `other`.
    pub(crate) fn become_other(&self, other: Arc<Self>) {
        *self.successor.lock() = Some(other);
    }

    /// The same object opened otherwise, or another in its place: what the name
    /// makes of it stays.
    pub(crate) fn sibling(&self, handle: Handle, stx: &Statx) -> Self {
        Self {
            key: self.share.marked(stat::key_of(stx)),
            share: Arc::clone(&self.share),
            kind: stat::kind_of(stx),
            moves_data: false,
            handle,
            hidden_name: self.hidden_name,
            created_in: Mutex::new(None),
            successor: Mutex::new(None),
        }
    }

    /// The directory that must be made durable together with this node.
    pub(crate) fn was_created_in(&self, dir: Dir) {
        *self.created_in.lock() = Some(dir);
    }

    #[cfg(test)]
    pub(crate) fn is_entry_pending(&self) -> bool {
        self.created_in.lock().is_some()
    }

    /// The key of a directory of this share that has not become another object, as
    /// the host has it.
    pub(crate) fn as_directory_of(&self, share: &Arc<Share>) -> Option<FileKey> {
        let is_own = Arc::ptr_eq(&self.share, share) && self.kind == Kind::Directory;
        (is_own && self.successor().is_none()).then(|| share.unmarked(self.key))
    }

    /// For what is done to the object itself, not to its data.
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.handle.fd()
    }

    pub(crate) const fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) const fn kind(&self) -> Kind {
        self.kind
    }

    /// Makes another name of this file. By way of `/proc`, because linking a
    /// bare descriptor is a privilege.
    pub(crate) fn link_to(&self, dir: BorrowedFd<'_>, entry: &[u8]) -> Result<(), Errno> {
        if let Some(now) = self.successor() {
            return now.link_to(dir, entry);
        }
        let path = ProcPath::of(self.handle.fd());
        rustix::fs::linkat(CWD, path.as_c_str(), dir, entry, AtFlags::SYMLINK_FOLLOW)
    }

    /// The descriptor, if it moves data.
    fn data(&self) -> VfsResult<BorrowedFd<'_>> {
        if self.successor.lock().is_some() {
            // Nothing that it may become has data.
            return Err(Fault::AccessDenied);
        }
        match self.kind {
            Kind::Directory => Err(Fault::IsADirectory),
            _ if !self.moves_data => Err(Fault::AccessDenied),
            _ => Ok(self.handle.fd()),
        }
    }

    /// Symbolic links and special files cannot have attributes of users.
    pub(crate) fn has_xattrs(&self) -> bool {
        self.share.volume.xattrs && matches!(self.kind, Kind::File | Kind::Directory)
    }

    /// As [`Stat::ea_size`].
    pub(crate) fn ea_size(&self) -> u32 {
        if self.has_xattrs() { self.handle.ea_size() } else { 0 }
    }

    pub(crate) fn dos_attrib(&self) -> Option<DosAttrib> {
        let kept = self.share.keeps_attributes() && self.has_xattrs();
        if kept { self.handle.dos_attrib() } else { None }
    }

    fn set_times(&self, change: &BasicChange) -> VfsResult<()> {
        let (accessed, written) = (settable(change.accessed), settable(change.written));
        if accessed.is_none() && written.is_none() {
            return Ok(());
        }
        let times =
            Timestamps { last_access: timespec(accessed), last_modification: timespec(written) };
        rustix::fs::utimensat(self.handle.fd(), c"", &times, AtFlags::EMPTY_PATH).map_err(fault_of)
    }

    /// What goes to DOSATTRIB. It is the last to be set, because whatever changes
    /// the file later voids a ChangeTime.
    fn set_attributes(&self, change: &BasicChange) -> VfsResult<()> {
        let (created, changed) = (settable(change.created), settable(change.changed));
        if created.is_none() && changed.is_none() && change.attributes.is_none() {
            return Ok(());
        }
        if !self.share.keeps_attributes() || !self.has_xattrs() {
            // There is nowhere to keep them; a client that copies a file cannot
            // do anything about that, so it is told of success as smbd does.
            return Ok(());
        }
        let old = self.handle.dos_attrib();
        let directory = if self.kind == Kind::Directory { FileAttributes::DIRECTORY.0 } else { 0 };
        let before = old.map_or(0, |old| old.attributes);
        let attributes = match change.attributes {
            Some(new) => (new & STORED_ATTRIBUTES).0,
            None => before & STORED_ATTRIBUTES.0,
        };
        // That is said by FSCTL_SET_REPARSE_POINT alone.
        let attributes = attributes | before & FileAttributes::REPARSE_POINT.0;
        let created = match created.or_else(|| old.and_then(|old| old.created)) {
            Some(created) => created,
            None => {
                let stx = sys::stat_fd(self.handle.fd()).map_err(fault_of)?;
                stat::stat_of(&stx, &Extra::default()).created
            }
        };
        let attributes = attributes | directory;
        let value = DosAttrib { attributes, created: Some(created), changed: None };
        match changed {
            Some(changed) => self.keep_change_time(value, changed),
            None => self.handle.set_dos_attrib(&value).map_err(fault_of),
        }
    }

    /// Keeps a ChangeTime with the time until which the host may say that the
    /// file has changed: that of its being kept, which is known only afterwards.
    fn keep_change_time(&self, value: DosAttrib, shown: FileTime) -> VfsResult<()> {
        let fd = self.handle.fd();
        for slack in CHANGE_TIME_SLACK {
            let until = FileTime(stat::clock().0.saturating_add(slack));
            let changed = Some(SetChangeTime { shown, until });
            self.handle.set_dos_attrib(&DosAttrib { changed, ..value }).map_err(fault_of)?;
            let host = stat::stat_of(&sys::stat_fd(fd).map_err(fault_of)?, &Extra::default());
            if host.changed <= until {
                return Ok(());
            }
        }
        // The medium has a clock of its own: its time it is, as if none were set.
        Ok(())
    }
}

/// How much later than the clock says the medium may note a change: the first is
/// enough where it notes the last tick of the kernel's clock. In units of FILETIME:
/// 0, 1 and 20 ms.
const CHANGE_TIME_SLACK: [u64; 3] = [0, 10_000, 200_000];

/// Zero and the special values of MS-FSCC 2.4.7 leave a time alone.
fn settable(time: Option<FileTime>) -> Option<FileTime> {
    time.filter(|t| t.0 != 0 && t.0 < u64::MAX - 1)
}

/// UTIME_OMIT for a time that stays.
fn timespec(time: Option<FileTime>) -> Timespec {
    match time {
        Some(time) => {
            let (tv_sec, nanoseconds) = time.to_unix();
            Timespec { tv_sec, tv_nsec: nanoseconds.into() }
        }
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
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
        Ok(Stat { ea_size: self.ea_size(), ..self.stat_without_eas()? })
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
        let stx = sys::stat_fd(self.handle.fd()).map_err(fault_of)?;
        let dos = self.dos_attrib();
        let extra = Extra {
            dos,
            hidden_name: self.hidden_name,
            ea_size: 0,
            reparse_tag: reparse::tag(dos, |into| self.handle.value(reparse::ATTRIBUTE, into)),
        };
        Ok(self.share.stat_of(&stx, &extra))
    }

    fn is_read_only(&self) -> VfsResult<bool> {
        if let Some(now) = self.successor() {
            return now.is_read_only();
        }
        let is_marked = |dos: DosAttrib| dos.attributes & FileAttributes::READONLY.0 != 0;
        Ok(self.dos_attrib().is_some_and(is_marked))
    }

    fn takes_changes(&self) -> VfsResult<()> {
        self.share.writable()?;
        let mounted = rustix::fs::fstatvfs(self.handle.fd()).map_err(fault_of)?;
        if mounted.f_flag.contains(StatVfsMountFlags::RDONLY) {
            return Err(Fault::ReadOnly);
        }
        Ok(())
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

    /// fdatasync: it covers the data and whatever is needed to find it, the
    /// length included; only times may lag. The entry of a file that this node
    /// created is made durable with its first sync.
    fn sync(&self) -> VfsResult<()> {
        if self.handle.is_path_only() {
            let fd = sys::reopen(self.handle.fd(), OFlags::RDONLY).map_err(fault_of)?;
            retry_on_intr(|| rustix::fs::fdatasync(&fd)).map_err(fault_of)?;
        } else {
            retry_on_intr(|| rustix::fs::fdatasync(self.handle.fd())).map_err(fault_of)?;
        }
        let mut created_in = self.created_in.lock();
        if let Some(parent) = created_in.as_ref() {
            let fd = sys::reopen(parent.fd(), OFlags::RDONLY | OFlags::DIRECTORY);
            let fd = fd.map_err(fault_of)?;
            retry_on_intr(|| rustix::fs::fsync(&fd)).map_err(fault_of)?;
            *created_in = None;
        }
        Ok(())
    }

    fn set_end_of_file(&self, end: u64) -> VfsResult<()> {
        let fd = self.data()?;
        match retry_on_intr(|| rustix::fs::ftruncate(fd, end)) {
            Ok(()) => Ok(()),
            // What the kernel says of a descriptor that was not opened to write.
            Err(Errno::INVAL) if i64::try_from(end).is_ok() => Err(Fault::AccessDenied),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    fn set_allocation(&self, bytes: u64) -> VfsResult<()> {
        let fd = self.data()?;
        let end = sys::stat_fd(fd).map_err(fault_of)?.stx_size;
        if bytes < end {
            return self.set_end_of_file(bytes);
        }
        let more = bytes - end;
        if more == 0 {
            return Ok(());
        }
        // A file system takes all that is free before it finds that it is too
        // little, and everybody else is without for as long.
        let free = rustix::fs::fstatvfs(fd).map_err(fault_of)?;
        if more > free.f_bavail.saturating_mul(free.f_frsize) {
            return Err(Fault::DiskFull);
        }
        // Only behind the end: holes before it stay holes.
        let flags = FallocateFlags::KEEP_SIZE;
        match retry_on_intr(|| rustix::fs::fallocate(fd, flags, end, more)) {
            // A reservation is a wish; a file system without it stores all the same.
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            Err(Errno::BADF) => Err(Fault::AccessDenied),
            Err(errno) => {
                // What was taken before it failed is given back; the fault is told.
                let _ = retry_on_intr(|| rustix::fs::ftruncate(fd, end));
                Err(fault_of(errno))
            }
        }
    }

    fn set_basic(&self, change: &BasicChange) -> VfsResult<()> {
        if let Some(now) = self.successor() {
            return now.set_basic(change);
        }
        self.share.writable()?;
        if change.uid.is_some() || change.gid.is_some() {
            crate::security::chown(&self.handle, change.uid, change.gid)?;
        }
        if let Some(mode) = change.mode {
            crate::security::chmod(&self.handle, mode)?;
        }
        self.set_times(change)?;
        self.set_attributes(change)
    }

    fn streams(&self) -> VfsResult<Vec<StreamStat>> {
        if let Some(now) = self.successor() {
            return now.streams();
        }
        if self.has_xattrs() { self.share.list_streams(&self.handle) } else { Ok(Vec::new()) }
    }

    fn clear_streams(&self) -> VfsResult<()> {
        if let Some(now) = self.successor() {
            return now.clear_streams();
        }
        self.share.writable()?;
        if self.has_xattrs() { self.share.clear_streams(&self.handle) } else { Ok(()) }
    }

    fn show_lock(&self, lock: ShownLock) -> VfsResult<bool> {
        locks::show(self.data()?, lock)
    }

    fn directory(&self) -> VfsResult<Box<dyn Directory>> {
        if let Some(now) = self.successor() {
            return now.directory();
        }
        if self.kind != Kind::Directory {
            return Err(Fault::NotADirectory);
        }
        // A file position of its own.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = sys::open_beneath(self.handle.fd(), b".", flags, Mode::empty(), false);
        Ok(Box::new(PosixDirectory::new(Arc::clone(&self.share), fd.map_err(fault_of)?)))
    }

    fn eas(&self) -> VfsResult<Vec<(String, Vec<u8>)>> {
        if let Some(now) = self.successor() {
            return now.eas();
        }
        if self.has_xattrs() { self.handle.eas() } else { Ok(Vec::new()) }
    }

    fn set_ea(&self, name: &str, value: &[u8]) -> VfsResult<()> {
        if let Some(now) = self.successor() {
            return now.set_ea(name, value);
        }
        self.share.writable()?;
        if !self.has_xattrs() {
            return Err(Fault::NotSupported);
        }
        self.handle.set_ea(name, value)
    }

    fn needed_eas(&self) -> VfsResult<Vec<String>> {
        if let Some(now) = self.successor() {
            return now.needed_eas();
        }
        if self.has_xattrs() { self.handle.needed_eas() } else { Ok(Vec::new()) }
    }

    fn set_ea_needed(&self, name: &str, needed: bool) -> VfsResult<()> {
        if let Some(now) = self.successor() {
            return now.set_ea_needed(name, needed);
        }
        self.share.writable()?;
        if !self.has_xattrs() {
            return Err(Fault::NotSupported);
        }
        self.handle.set_ea_needed(name, needed)
    }

    fn set_eas(&self, changes: &[EaChange<'_>]) -> VfsResult<()> {
        if let Some(now) = self.successor() {
            return now.set_eas(changes);
        }
        self.share.writable()?;
        if !self.has_xattrs() {
            return Err(Fault::NotSupported);
        }
        self.handle.set_eas(changes)
    }

    fn link_target(&self) -> VfsResult<String> {
        if let Some(now) = self.successor() {
            return now.link_target();
        }
        if self.kind != Kind::Symlink {
            return Err(Fault::Invalid);
        }
        let target = rustix::fs::readlinkat(self.handle.fd(), c"", Vec::new()).map_err(fault_of)?;
        target.into_string().map_err(|_| Fault::NameInvalid)
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
        self.share.writable()?;
        match self.successor() {
            Some(now) => now.change_object_id(change),
            None => self.change_kept_object_id(change),
        }
    }

    fn keep_reparse(&self, buffer: Option<&[u8]>) -> VfsResult<()> {
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
        crate::security::stored(&self.share, &self.handle)
    }

    fn set_security(&self, change: &SecurityChange<'_>) -> VfsResult<()> {
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
        let owner = sys::stat_fd(fd).is_ok_and(|stx| {
            let user = rustix::process::geteuid();
            user.is_root() || user.as_raw() == stx.stx_uid
        });
        HostAccess {
            read: sys::may_access(fd, Access::READ_OK),
            write: !self.share.volume.read_only && sys::may_access(fd, Access::WRITE_OK),
            execute: sys::may_access(fd, Access::EXEC_OK),
            owner,
        }
    }

    fn share_extents(&self, source: &dyn Node, copy: &ExtentCopy) -> VfsResult<()> {
        self.share.writable()?;
        let source: &dyn Any = source;
        let source: &Self = source.downcast_ref().ok_or(Fault::CrossDevice)?;
        extents::share(self.share.root.as_fd(), self.data()?, source.data()?, copy)
    }

    fn set_compressed(&self, compressed: bool) -> VfsResult<()> {
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
}
