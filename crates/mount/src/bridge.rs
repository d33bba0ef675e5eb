//! The kernel's requests, each carried out by a task of its own.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use fuser::{
    AccessFlags, BsdFileFlags, CopyFileRangeFlags, Errno, FileHandle, Filesystem, FopenFlags,
    Generation, INodeNo, InitFlags, IoctlFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags,
    ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEmpty, ReplyEntry,
    ReplyIoctl, ReplyLock, ReplyLseek, ReplyOpen, ReplyStatfs, ReplyWrite, ReplyXattr, Request,
    TimeOrNow, WriteFlags,
};
use tokio::runtime::Handle as Runtime;

use crate::begun::begin;
use crate::errno::Outcome;
use crate::limits;
use crate::volume::{Caller, Changes, Entry, Found, Range, Told, Volume};

/// What fuser calls.
pub(crate) struct Bridge {
    pub(crate) volume: Arc<Volume>,
    pub(crate) runtime: Runtime,
}

/// Numbers are never used again for something else while the kernel has them.
const GENERATION: Generation = Generation(0);

impl Bridge {
    /// Starts what an operation does.
    fn go<F: Future<Output = ()> + Send + 'static>(&self, work: impl FnOnce(Arc<Volume>) -> F) {
        self.runtime.spawn(work(Arc::clone(&self.volume)));
    }

    /// The same, begun on this thread: for what mostly need not wait, or has little to do
    /// before it does.
    fn begin<F: Future<Output = ()> + Send + 'static>(&self, work: impl FnOnce(Arc<Volume>) -> F) {
        begin(&self.runtime, work(Arc::clone(&self.volume)));
    }

    /// The kernel has forgotten a node so many times. This thread is none of the
    /// runtime's, on which what was kept open is closed.
    pub(crate) fn forgotten(&self, id: u64, count: u64) {
        if let Some(node) = self.volume.forget(id, count) {
            self.go(async move |volume| volume.let_go(&node).await);
        }
    }
}

fn entry(reply: ReplyEntry, outcome: &Outcome<Told>) {
    match outcome {
        Ok(Told { attr, ttl }) => reply.entry(ttl, attr, GENERATION),
        Err(error) => reply.error(*error),
    }
}

fn attr(reply: ReplyAttr, outcome: &Outcome<Told>) {
    match outcome {
        Ok(Told { attr, ttl }) => reply.attr(ttl, attr),
        Err(error) => reply.error(*error),
    }
}

fn empty(reply: ReplyEmpty, outcome: Outcome<()>) {
    match outcome {
        Ok(()) => reply.ok(),
        Err(error) => reply.error(error),
    }
}

fn written(reply: ReplyWrite, outcome: Outcome<u32>) {
    match outcome {
        Ok(count) => reply.written(count),
        Err(error) => reply.error(error),
    }
}

fn data(reply: ReplyData, outcome: Outcome<impl AsRef<[u8]>>) {
    match outcome {
        Ok(data) => reply.data(data.as_ref()),
        Err(error) => reply.error(error),
    }
}

fn opened(reply: ReplyOpen, outcome: Outcome<u64>, flags: FopenFlags) {
    match outcome {
        Ok(handle) => reply.opened(FileHandle(handle), flags),
        Err(error) => reply.error(error),
    }
}

/// The value of an attribute, or how long it is.
fn value(reply: ReplyXattr, outcome: Outcome<Vec<u8>>, size: u32) {
    match outcome {
        Ok(value) if size == 0 => reply.size(u32::try_from(value.len()).unwrap_or(u32::MAX)),
        Ok(value) if value.len() <= size as usize => reply.data(&value),
        Ok(_) => reply.error(Errno::ERANGE),
        Err(error) => reply.error(error),
    }
}

fn time(time: TimeOrNow) -> SystemTime {
    match time {
        TimeOrNow::SpecificTime(time) => time,
        TimeOrNow::Now => SystemTime::now(),
    }
}

#[allow(clippy::too_many_arguments, reason = "fuser's trait")]
impl Filesystem for Bridge {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // What an older kernel does not have is done without.
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

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let name = name.to_owned();
        self.go(async move |volume| match volume.lookup(parent.0, &name).await {
            Ok(Found::There(Told { attr, ttl })) => reply.entry(&ttl, &attr, GENERATION),
            // Number 0 is nothing, which is kept as a name is.
            Ok(Found::Absent(ttl)) => reply.entry(&ttl, &Told::nothing(), GENERATION),
            Err(error) => reply.error(error),
        });
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        self.forgotten(ino.0, count);
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        self.go(async move |volume| attr(reply, &volume.getattr(ino.0).await));
    }

    fn setattr(
        &self,
        _: &Request,
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
        self.go(async move |volume| attr(reply, &volume.setattr(ino.0, changes).await));
    }

    fn readlink(&self, _: &Request, ino: INodeNo, reply: ReplyData) {
        self.go(async move |volume| {
            data(
                reply,
                volume.readlink(ino.0).await.map(|target| target.into_os_string().into_vec()),
            );
        });
    }

    fn mknod(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        rdev: u32,
        reply: ReplyEntry,
    ) {
        let name = name.to_owned();
        self.go(async move |volume| {
            if mode & libc::S_IFMT != libc::S_IFREG {
                return entry(reply, &volume.mknod(parent.0, &name, mode, rdev).await);
            }
            let flags = libc::O_EXCL | libc::O_RDWR;
            let made = volume.create(parent.0, &name, flags, mode).await;
            if let Ok((_, handle)) = &made {
                volume.release(*handle).await;
            }
            entry(reply, &made.map(|(told, _)| told));
        });
    }

    fn mkdir(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        reply: ReplyEntry,
    ) {
        let name = name.to_owned();
        self.go(async move |volume| entry(reply, &volume.mkdir(parent.0, &name, mode).await));
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.go(async move |volume| empty(reply, volume.unlink(parent.0, &name).await));
    }

    fn rmdir(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.go(async move |volume| empty(reply, volume.rmdir(parent.0, &name).await));
    }

    fn symlink(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        target: &Path,
        reply: ReplyEntry,
    ) {
        let (name, target) = (name.to_owned(), target.to_owned());
        self.go(async move |volume| entry(reply, &volume.symlink(parent.0, &name, &target).await));
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        new_parent: INodeNo,
        new_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let (name, new_name) = (name.to_owned(), new_name.to_owned());
        self.go(async move |volume| {
            let (from, to) = ((parent.0, &*name), (new_parent.0, &*new_name));
            empty(reply, volume.rename(from, to, flags.bits()).await);
        });
    }

    fn link(
        &self,
        _: &Request,
        ino: INodeNo,
        new_parent: INodeNo,
        new_name: &OsStr,
        reply: ReplyEntry,
    ) {
        let name = new_name.to_owned();
        self.go(async move |volume| entry(reply, &volume.link(ino.0, new_parent.0, &name).await));
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        self.go(async move |volume| {
            opened(reply, volume.open(ino.0, flags.0).await, FopenFlags::FOPEN_DIRECT_IO);
        });
    }

    fn create(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        let name = name.to_owned();
        self.go(async move |volume| match volume.create(parent.0, &name, flags, mode).await {
            Ok((Told { attr, ttl }, handle)) => {
                let direct = FopenFlags::FOPEN_DIRECT_IO;
                reply.created(&ttl, &attr, GENERATION, FileHandle(handle), direct);
            }
            Err(error) => reply.error(error),
        });
    }

    fn read(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        size: u32,
        _: OpenFlags,
        _: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let size = size.min(limits::REQUEST_MAX);
        let read = async move |volume: Arc<Volume>| {
            data(reply, volume.read(handle.0, offset, size).await);
        };
        // Much data is for all cores.
        if size <= limits::READ_HERE { self.begin(read) } else { self.go(read) }
    }

    fn write(
        &self,
        _: &Request,
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
            // Whoever sends it is a task.
            let _inside = self.runtime.enter();
            if let Some(count) = self.volume.write_now(handle.0, offset, data) {
                return reply.written(count);
            }
        }
        let data = data.to_vec();
        self.go(async move |volume| {
            let done = if is_mapped {
                volume.write_back(handle.0, offset, &data).await
            } else {
                volume.write(handle.0, offset, &data).await
            };
            written(reply, done);
        });
    }

    fn flush(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        reply: ReplyEmpty,
    ) {
        self.go(async move |volume| empty(reply, volume.flush(handle.0, owner.0).await));
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
        self.go(async move |volume| {
            volume.release(handle.0).await;
            reply.ok();
        });
    }

    fn fsync(&self, _: &Request, _: INodeNo, handle: FileHandle, _: bool, reply: ReplyEmpty) {
        self.go(async move |volume| empty(reply, volume.fsync(handle.0).await));
    }

    fn opendir(&self, _: &Request, ino: INodeNo, _: OpenFlags, reply: ReplyOpen) {
        opened(reply, self.volume.opendir(ino.0), FopenFlags::empty());
    }

    fn readdir(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        self.go(async move |volume| match volume.entries(handle.0, offset, true).await {
            Ok(listed) => {
                let spelling = volume.spelling();
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
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        mut reply: ReplyDirectoryPlus,
    ) {
        self.go(async move |volume| match volume.entries(handle.0, offset, false).await {
            Ok(listed) => {
                let spelling = volume.spelling();
                for (next, entry) in listed.entries() {
                    let name = entry.name(spelling);
                    let full = match entry {
                        Entry::Itself(..) => {
                            // Not looked up by being listed.
                            let told = volume.tell_itself(&listed.node);
                            reply.add(told.ino, next, name, &Duration::ZERO, &told, GENERATION)
                        }
                        Entry::Named(named) => {
                            let told = volume.tell_entry(&listed, named);
                            let (attr, ttl) = (told.attr, told.ttl);
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
        // What is done to names is done when the server has answered.
        reply.ok();
    }

    fn statfs(&self, _: &Request, _: INodeNo, reply: ReplyStatfs) {
        self.go(async move |volume| match volume.statfs().await {
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
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        flags: i32,
        _: u32,
        reply: ReplyEmpty,
    ) {
        let (name, value) = (name.to_owned(), value.to_vec());
        self.go(async move |volume| {
            empty(reply, volume.setxattr(ino.0, &name, &value, flags).await);
        });
    }

    fn getxattr(&self, _: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let name = name.to_owned();
        self.go(async move |volume| value(reply, volume.getxattr(ino.0, &name).await, size));
    }

    fn listxattr(&self, _: &Request, ino: INodeNo, size: u32, reply: ReplyXattr) {
        self.go(async move |volume| value(reply, volume.listxattr(ino.0).await, size));
    }

    fn removexattr(&self, _: &Request, ino: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let name = name.to_owned();
        self.go(async move |volume| empty(reply, volume.removexattr(ino.0, &name).await));
    }

    fn getlk(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        owner: LockOwner,
        start: u64,
        end: u64,
        kind: i32,
        pid: u32,
        reply: ReplyLock,
    ) {
        let wanted = Range::of(owner.0, pid, (start, end), kind);
        self.go(async move |volume| match volume.getlk(handle.0, wanted).await {
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
        let wanted = Range::of(owner.0, pid, (start, end), kind);
        let waits = sleep.then(|| Caller::new(asks.pid()));
        self.go(async move |volume| {
            let done = match kind {
                libc::F_UNLCK => volume.unlock(handle.0, wanted).await,
                _ => volume.setlk(handle.0, wanted, waits).await,
            };
            empty(reply, done);
        });
    }

    fn fallocate(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: u64,
        len: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        self.go(async move |volume| {
            empty(reply, volume.fallocate(handle.0, offset, len, mode).await);
        });
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
        // Whoever asks whether it is a terminal: it is not.
        reply.error(Errno::ENOTTY);
    }

    fn lseek(
        &self,
        _: &Request,
        _: INodeNo,
        handle: FileHandle,
        offset: i64,
        whence: i32,
        reply: ReplyLseek,
    ) {
        let Ok(offset) = u64::try_from(offset) else { return reply.error(Errno::ENXIO) };
        self.go(async move |volume| match volume.lseek(handle.0, offset, whence).await {
            Ok(found) => reply.offset(i64::try_from(found).unwrap_or(i64::MAX)),
            Err(error) => reply.error(error),
        });
    }

    fn copy_file_range(
        &self,
        _: &Request,
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
        self.go(async move |volume| {
            let (source, target) = ((from.0, from_offset), (to.0, to_offset));
            written(reply, volume.copy_range(source, target, len).await);
        });
    }

    fn access(&self, _: &Request, _: INodeNo, mask: AccessFlags, reply: ReplyEmpty) {
        // The kernel judges by the modes (default_permissions); the server has
        // the last word when something is done.
        let refused = mask.contains(AccessFlags::W_OK) && self.volume.settings.read_only;
        empty(reply, if refused { Err(Errno::EROFS) } else { Ok(()) });
    }
}
