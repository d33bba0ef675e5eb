//! The kernel's requests; each runs as a task of its own.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};

mod answers;
mod tasks;

#[cfg(test)]
pub(crate) use answers::answered;
use answers::{attr, data, empty, opened, value, written};
pub(crate) use tasks::{MadeEntry, NameIn};

use crate::limits;
use crate::node::Range;
use crate::poll_inline::Works;
use crate::volume::{Caller, Changes, Entry, EntryReply, NameLookup, Volume};

/// The implementation of fuser's trait.
pub(crate) struct Bridge {
    pub(crate) volume: Arc<Volume>,
    pub(crate) works: Works,
}

/// The kernel never sees one number for two nodes at once.
const GENERATION: Generation = Generation(0);

fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

fn name_in(parent: INodeNo, name: &OsStr) -> NameIn {
    NameIn { parent: parent.0, name: name.to_owned() }
}

#[allow(clippy::too_many_arguments, reason = "fuser's trait")]
impl Filesystem for Bridge {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Older kernels lack some of these capabilities, so each is requested only if the kernel
        // has it.
        for wanted in [
            InitFlags::FUSE_DO_READDIRPLUS,
            InitFlags::FUSE_READDIRPLUS_AUTO,
            InitFlags::FUSE_PARALLEL_DIROPS,
            InitFlags::FUSE_ASYNC_DIO,
            InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
            InitFlags::FUSE_POSIX_LOCKS,
            InitFlags::FUSE_FLOCK_LOCKS,
        ] {
            let _ = config.add_capabilities(wanted);
        }
        let _ = config.set_max_write(limits::REQUEST_MAX);
        let _ = config.set_max_background(limits::BACKGROUND);
        Ok(())
    }

    fn lookup(&self, asks: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.spawn_undoable(
            asks,
            async move |volume| volume.lookup(parent.0, &name).await,
            |found| match found {
                Ok(NameLookup::Found(EntryReply { attr, ttl }, name_ttl)) => {
                    reply.entry_with_ttls(&ttl, &name_ttl, &attr, GENERATION)
                }
                // In FUSE an entry with the inode number 0 lets the kernel cache that the name does
                // not exist.
                Ok(NameLookup::Absent(ttl)) => {
                    reply.entry(&ttl, &EntryReply::negative(), GENERATION)
                }
                Err(error) => reply.error(error),
            },
            |volume, found| {
                if let NameLookup::Found(entry_reply, _) = found {
                    volume.forget_one(entry_reply.attr.ino.0);
                }
            },
        );
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        self.forgotten(ino.0, count);
    }

    fn getattr(&self, asks: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let work = async move |volume: Arc<Volume>| volume.getattr(ino.0).await;
        self.spawn(asks, work, |outcome| attr(reply, &outcome));
    }

    fn setattr(
        &self,
        asks: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        accessed: Option<TimeOrNow>,
        modified: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let (accessed, modified) = (accessed.map(time), modified.map(time));
        let changes = Changes { mode, uid, gid, size, accessed, modified };
        let work = async move |volume: Arc<Volume>| volume.setattr(ino.0, changes).await;
        self.spawn(asks, work, |outcome| attr(reply, &outcome));
    }

    fn readlink(&self, asks: &Request, ino: INodeNo, reply: ReplyData) {
        let work = async move |volume: Arc<Volume>| volume.readlink(ino.0).await;
        let bytes = |target: PathBuf| target.into_os_string().into_vec();
        self.spawn(asks, work, move |outcome| data(reply, outcome.map(bytes)));
    }

    fn mknod(
        &self,
        asks: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let (name, made) = (name.to_owned(), name_in(parent, name));
        let work = async move |volume: Arc<Volume>| {
            if mode & libc::S_IFMT != libc::S_IFREG {
                return volume.mknod(parent.0, &name, mode, rdev).await;
            }
            let flags = libc::O_EXCL | libc::O_RDWR;
            let (entry_reply, handle) = volume.create(parent.0, &name, flags, mode).await?;
            volume.release(handle).await;
            Ok(entry_reply)
        };
        self.spawn_entry(asks, made, work, reply);
    }

    fn mkdir(
        &self,
        asks: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let (name, made) = (name.to_owned(), name_in(parent, name));
        let work = async move |volume: Arc<Volume>| volume.mkdir(parent.0, &name, mode).await;
        self.spawn_entry(asks, made, work, reply);
    }

    fn unlink(&self, asks: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, gone) = (name.to_owned(), vec![(parent.0, name.to_owned())]);
        let work = async move |volume: Arc<Volume>| volume.unlink(parent.0, &name).await;
        self.spawn_on_names(asks, gone, work, reply);
    }

    fn rmdir(&self, asks: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let (name, gone) = (name.to_owned(), vec![(parent.0, name.to_owned())]);
        let work = async move |volume: Arc<Volume>| volume.rmdir(parent.0, &name).await;
        self.spawn_on_names(asks, gone, work, reply);
    }

    fn symlink(
        &self,
        asks: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (made, target) = (name_in(parent, name), target.to_owned());
        let name = name.to_owned();
        let work = async move |volume: Arc<Volume>| volume.symlink(parent.0, &name, &target).await;
        self.spawn_entry(asks, made, work, reply);
    }

    fn rename(
        &self,
        asks: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        let moved = vec![(parent.0, name.clone()), (new_parent.0, new_name.clone())];
        let work = async move |volume: Arc<Volume>| {
            let (from, to) = ((parent.0, &*name), (new_parent.0, &*new_name));
            volume.rename(from, to, flags.bits()).await
        };
        self.spawn_on_names(asks, moved, work, reply);
    }

    fn link(
        &self,
        asks: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let (name, made) = (new_name.to_owned(), name_in(new_parent, new_name));
        let work = async move |volume: Arc<Volume>| volume.link(ino.0, new_parent.0, &name).await;
        self.spawn_entry(asks, made, work, reply);
    }

    fn open(&self, asks: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.spawn_undoable(
            asks,
            async move |volume| volume.open(ino.0, flags.0).await,
            |outcome| opened(reply, outcome, FopenFlags::FOPEN_DIRECT_IO),
            |volume, handle| volume.not_opened(handle),
        );
    }

    fn create(
        &self,
        asks: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = name.to_owned();
        self.spawn_undoable(
            asks,
            async move |volume| {
                let made = name_in(parent, &name);
                let (reply, handle) = volume.create(parent.0, &name, flags, mode).await?;
                Ok((MadeEntry { reply, made }, handle))
            },
            |outcome| match outcome {
                Ok((MadeEntry { reply: EntryReply { attr, ttl }, .. }, handle)) => {
                    let direct = FopenFlags::FOPEN_DIRECT_IO;
                    reply.created(&ttl, &attr, GENERATION, FileHandle(handle), direct);
                }
                Err(error) => reply.error(error),
            },
            |volume, (made, handle)| {
                volume.not_opened(handle);
                MadeEntry::undo(volume, made);
            },
        );
    }

    fn read(
        &self,
        asks: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size.min(limits::REQUEST_MAX);
        let work = async move |volume: Arc<Volume>| volume.read(handle.0, offset, size).await;
        // Large reads are spread over all cores; small ones run on this thread.
        self.read(asks, size <= limits::INLINE_READ_MAX, work, |outcome| data(reply, outcome));
    }

    fn write(
        &self,
        asks: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        data: &[u8],
        flags: WriteFlags,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let is_mapped = flags.contains(WriteFlags::FUSE_WRITE_CACHE);
        if !is_mapped {
            // `write_now` may spawn a task that sends the data, so this thread enters the runtime
            // first.
            let _inside = self.works.enter();
            if let Some(count) = self.volume.write_now(handle.0, offset, data) {
                return reply.written(count);
            }
        }
        let data = data.to_vec();
        let work = async move |volume: Arc<Volume>| {
            if is_mapped {
                volume.write_back(handle.0, offset, &data).await
            } else {
                volume.write(handle.0, offset, &data).await
            }
        };
        self.spawn(asks, work, |outcome| written(reply, outcome));
    }

    fn flush(
        &self,
        asks: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        let work = async move |volume: Arc<Volume>| volume.flush(handle.0, owner.0).await;
        self.spawn(asks, work, |outcome| empty(reply, outcome));
    }

    fn release(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        _: Option<LockOwner>,
        _: bool,
        reply: ReplyEmpty,
    ) {
        // The answer to RELEASE is sent first, because no program waits for it, and the kernel need
        // not keep the request.
        reply.ok();
        let volume = Arc::clone(&self.volume);
        self.works.begin(async move { volume.release(handle.0).await });
    }

    fn fsync(&self, asks: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        let work = async move |volume: Arc<Volume>| volume.fsync(handle.0).await;
        self.spawn(asks, work, |outcome| empty(reply, outcome));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        opened(reply, self.volume.opendir(ino.0), FopenFlags::empty());
    }

    fn readdir(
        &self,
        asks: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let spelling = self.volume.spelling();
        let work = async move |volume: Arc<Volume>| volume.entries(handle.0, offset, true).await;
        self.spawn(asks, work, move |outcome| match outcome {
            Ok(listed) => {
                for (next, entry) in listed.entries() {
                    let number = INodeNo(entry.number());
                    if reply.add(number, next, entry.kind(), entry.name(spelling)) {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        });
    }

    fn readdirplus(
        &self,
        asks: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        let volume = Arc::clone(&self.volume);
        let work = async move |volume: Arc<Volume>| volume.entries(handle.0, offset, false).await;
        self.spawn(asks, work, move |outcome| match outcome {
            Ok(listed) => {
                let spelling = volume.spelling();
                for (next, entry) in listed.entries() {
                    let name = entry.name(spelling);
                    let full = match entry {
                        Entry::Itself(..) => {
                            // The kernel does not count `.` and `..` of a listing as look-ups, so
                            // only their attributes are returned.
                            let entry_reply = volume.attr_of_directory(&listed.node);
                            reply.add(
                                entry_reply.ino,
                                next,
                                name,
                                &Duration::ZERO,
                                &entry_reply,
                                GENERATION,
                            )
                        }
                        Entry::Named(named) => {
                            let entry_reply = volume.reply_listed(&listed, named);
                            let (attr, ttl) = (entry_reply.attr, entry_reply.ttl);
                            let full = reply.add(attr.ino, next, name, &ttl, &attr, GENERATION);
                            if full {
                                volume.forget(attr.ino.0, 1);
                            }
                            full
                        }
                    };
                    if full {
                        break;
                    }
                }
                reply.ok();
            }
            Err(error) => reply.error(error),
        });
    }

    fn releasedir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        _: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.volume.releasedir(handle.0);
        reply.ok();
    }

    fn fsyncdir(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        // A change of a name is complete when the server has answered, so there is nothing left to
        // sync.
        reply.ok();
    }

    fn statfs(&self, asks: &Request, _: INodeNo, reply: ReplyStatfs) {
        let work = async move |volume: Arc<Volume>| volume.statfs().await;
        self.spawn(asks, work, |outcome| match outcome {
            Ok(room) => {
                let unit = u32::try_from(room.unit).unwrap_or(4096).max(1);
                let name = limits::NAME_MAX;
                reply.statfs(room.total, room.free, room.available, 0, 0, unit, name, unit);
            }
            Err(error) => reply.error(error),
        });
    }

    fn setxattr(
        &self,
        asks: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (name.to_owned(), value.to_vec());
        let work =
            async move |volume: Arc<Volume>| volume.setxattr(ino.0, &name, &value, flags).await;
        self.spawn(asks, work, |outcome| empty(reply, outcome));
    }

    fn getxattr(&self, asks: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.to_owned();
        let work = async move |volume: Arc<Volume>| volume.getxattr(ino.0, &name).await;
        self.spawn(asks, work, move |outcome| value(reply, outcome, size));
    }

    fn listxattr(&self, asks: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        let work = async move |volume: Arc<Volume>| volume.listxattr(ino.0).await;
        self.spawn(asks, work, move |outcome| value(reply, outcome, size));
    }

    fn removexattr(&self, asks: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        let work = async move |volume: Arc<Volume>| volume.removexattr(ino.0, &name).await;
        self.spawn(asks, work, |outcome| empty(reply, outcome));
    }

    fn getlk(
        &self,
        asks: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let wanted = Range::of(owner.0, pid, start..=end, kind);
        let work = async move |volume: Arc<Volume>| volume.getlk(handle.0, wanted).await;
        self.spawn(asks, work, move |outcome| match outcome {
            Ok(None) => reply.locked(start, end, libc::F_UNLCK, 0),
            Ok(Some(found)) => {
                reply.locked(found.start, found.last, found.kind(), found.pid);
            }
            Err(error) => reply.error(error),
        });
    }

    fn setlk(
        &self,
        asks: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        sleep: bool,
        reply: ReplyEmpty,
    ) {
        let wanted = Range::of(owner.0, pid, start..=end, kind);
        let waits = sleep.then(|| Caller::new(asks.pid()));
        if kind == libc::F_UNLCK {
            let work = async move |volume: Arc<Volume>| volume.unlock(handle.0, wanted).await;
            return self.spawn(asks, work, |outcome| empty(reply, outcome));
        }
        self.spawn_undoable(
            asks,
            async move |volume| {
                volume.setlk(handle.0, wanted, waits).await.map(|()| (handle.0, wanted))
            },
            |outcome| empty(reply, outcome.map(drop)),
            |volume, (handle, taken)| volume.not_locked(handle, taken),
        );
    }

    fn fallocate(
        &self,
        asks: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let work =
            async move |volume: Arc<Volume>| volume.fallocate(handle.0, offset, len, mode).await;
        self.spawn(asks, work, |outcome| empty(reply, outcome));
    }

    fn ioctl(
        &self,
        _: &Request,
        _: INodeNo,
        _: FileHandle,
        _: IoctlFlags,
        _: u32,
        _: &[u8],
        _: u32,
        reply: ReplyIoctl,
    ) {
        // The C library uses an ioctl to ask if a file is a terminal: ENOTTY says that it is not.
        reply.error(Errno::ENOTTY);
    }

    fn lseek(
        &self,
        asks: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        let work = async move |volume: Arc<Volume>| volume.lseek(handle.0, offset, whence).await;
        self.spawn(asks, work, |outcome| match outcome {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(error) => reply.error(error),
        });
    }

    fn copy_file_range(
        &self,
        asks: &Request,
        _: INodeNo,
        from: FileHandle,
        from_offset: u64,
        _: INodeNo,
        to: FileHandle,
        to_offset: u64,
        len: u64,
        _: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let work = async move |volume: Arc<Volume>| {
            let (source, target) = ((from.0, from_offset), (to.0, to_offset));
            volume.copy_range(source, target, len).await
        };
        self.spawn(asks, work, |outcome| written(reply, outcome));
    }

    fn access(&self, asks: &Request, ino: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        empty(reply, self.volume.access(ino.0, mask, asks.uid()));
    }
}
