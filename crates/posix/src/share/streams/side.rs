//! The side folder: `.frevo-streams` in the share's root, which clients neither see nor reach. It
//! has a directory for each file with streams that do not fit attributes, and in it one file for
//! each such stream, called `:` and the stream's name.
//!
//! An attribute of the file names its directory, and the directory's name begins with the file's
//! number. So a copy that was made with its attributes, and a new file with the number of a removed
//! one, get no access to it.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::atomic::Ordering;

use frevo_store::Fault;
use frevo_store::vfs::{Kind, VfsResult};
use parking_lot::MutexGuard;
use rustix::fs::{Access, AtFlags, Mode, OFlags, RawDir, RenameFlags, Statx, XattrFlags};
use rustix::io::{Errno, retry_on_intr};

use super::body::write_all;
use super::layout::{Extent, attribute};
use super::table::DIRECTORY;
use crate::credentials::{self, Assumed};
use crate::errno::fault_of;
use crate::limits::{COMPONENT_BYTES, STREAMS_SHOWN};
use crate::share::Share;
use crate::xattr::Handle;
use crate::{patience, stat, sys};

/// The attribute that names the file's directory.
pub const MARK: &CStr = c"user.frevo.streams";

/// The beginning of the name of a data file until it is complete; no stream's entry begins so.
const UNFINISHED: &str = "new";

/// Checks that the user that this thread acts as may read or write the file.
pub(crate) fn check(file: &Handle, read: bool, write: bool) -> VfsResult<()> {
    let may = |access| sys::may_access(file.fd(), access);
    let acts = credentials::acting().is_some();
    if acts && (read && !may(Access::READ_OK) || write && !may(Access::WRITE_OK)) {
        return Err(Fault::AccessDenied);
    }
    Ok(())
}

/// Checks that the user may write the file, and then acts as the server, which owns the folder.
fn writes(file: &Handle) -> VfsResult<Assumed> {
    check(file, false, true)?;
    Ok(credentials::as_server())
}

/// Gives a stream's file the owner of its main file, whose quota then counts.
fn belongs_to(made: BorrowedFd<'_>, file: &Handle) {
    if credentials::server_ids().0 != 0 {
        return;
    }
    if let Ok(stx) = sys::stat_fd(file.fd()) {
        let owner = rustix::process::Uid::from_raw(stx.stx_uid);
        let _ = rustix::fs::fchown(made, Some(owner), None);
    }
}

/// The name of a file's directory in the side folder.
pub(crate) struct Mark(Vec<u8>);

/// True for a mark of the file with this number: the name of a directory in the side folder.
pub fn is_mark_of(value: &[u8], inode: u64) -> bool {
    let own = format!("{inode:x}-");
    let is_plain = |b: &u8| b.is_ascii_hexdigit() || *b == b'-';
    value.starts_with(own.as_bytes()) && value.iter().all(is_plain)
}

impl Mark {
    /// Returns the mark, if it belongs to the file with this number.
    fn of(value: Vec<u8>, inode: u64) -> Option<Self> {
        is_mark_of(&value, inode).then_some(Self(value))
    }
}

/// Returns the name of a stream's data file.
fn entry(stream: &str) -> VfsResult<Vec<u8>> {
    let name = [b":", stream.as_bytes()].concat();
    if name.len() > COMPONENT_BYTES { Err(Fault::NameTooLong) } else { Ok(name) }
}

impl Share {
    /// Returns the directory of a file in the side folder.
    pub(crate) fn side_of(&self, file: &Handle) -> Option<Mark> {
        self.streams.side.get()?;
        let value = file.whole_value(MARK).ok()?;
        Mark::of(value, sys::stat_fd(file.fd()).ok()?.stx_ino)
    }

    /// Returns the directory that is removed with an entry: that of a file without further names.
    pub(crate) fn side_of_entry(
        &self,
        dir: BorrowedFd<'_>,
        entry: &[u8],
        stx: &Statx,
    ) -> Option<Mark> {
        self.streams.side.get()?;
        let kind = stat::kind_of(stx);
        if kind != Kind::Directory && (kind != Kind::File || stx.stx_nlink > 1) {
            return None;
        }
        let entry = std::ffi::CString::new(entry).ok()?;
        let _server = credentials::as_server();
        let mut value = vec![0; COMPONENT_BYTES];
        let len = self.entry_xattr(dir, &entry, MARK, &mut value).ok()?;
        value.truncate(len);
        Mark::of(value, stx.stx_ino)
    }

    /// Removes a directory of the side folder with its contents. Errors are ignored: nobody is left
    /// who needs them.
    pub(crate) fn forget_side(&self, mark: Option<Mark>) {
        let (Some(mark), Some(folder)) = (mark, self.streams.side.get()) else { return };
        let _server = credentials::as_server();
        let Ok(dir) = sys::open_beneath(folder, &mark.0, DIRECTORY, Mode::empty(), false) else {
            return;
        };
        // Earlier versions may have filled the directory with more entries than one listing
        // returns.
        let is_removed = |entry: &Vec<u8>| {
            // An open stream keeps its blocks until it is closed.
            if let Ok(stx) = sys::stat_at(dir.as_fd(), entry) {
                patience::note_freed(stx.stx_blocks.saturating_mul(512));
            }
            rustix::fs::unlinkat(&dir, entry.as_slice(), AtFlags::empty()).is_ok()
        };
        while entries(dir.as_fd())
            .unwrap_or_default()
            .iter()
            .filter(|entry| is_removed(entry))
            .count()
            > 0
        {}
        let _ = rustix::fs::unlinkat(folder, mark.0.as_slice(), AtFlags::REMOVEDIR);
    }

    fn side_directory(&self, file: &Handle) -> VfsResult<Option<OwnedFd>> {
        let (Some(mark), Some(folder)) = (self.side_of(file), self.streams.side.get()) else {
            return Ok(None);
        };
        match sys::open_beneath(folder, &mark.0, DIRECTORY, Mode::empty(), false) {
            Ok(fd) => Ok(Some(fd)),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    /// Returns the file's directory, and makes it if necessary.
    fn make_side_directory(&self, file: &Handle) -> VfsResult<OwnedFd> {
        if let Some(fd) = self.side_directory(file)? {
            return Ok(fd);
        }
        let folder = self.streams.side.make(self.root.as_fd())?;
        let mark = match self.side_of(file) {
            Some(mark) => mark,
            None => self.set_mark(file)?,
        };
        match rustix::fs::mkdirat(folder, mark.0.as_slice(), Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(fault_of(errno)),
        }
        sys::open_beneath(folder, &mark.0, DIRECTORY, Mode::empty(), false).map_err(fault_of)
    }

    /// Gives a file a mark. Another server of the folder may give it one at the same time, which counts
    /// then.
    fn set_mark(&self, file: &Handle) -> VfsResult<Mark> {
        let inode = sys::stat_fd(file.fd()).map_err(fault_of)?.stx_ino;
        let mark = format!("{inode:x}-{}", self.unique()).into_bytes();
        match file.set_if(MARK, &mark, XattrFlags::CREATE) {
            Ok(()) => return Ok(Mark(mark)),
            Err(Errno::EXIST) => {}
            Err(errno) => return Err(fault_of(errno)),
        }
        if let Some(present) = self.side_of(file) {
            return Ok(present);
        }
        // The mark was copied from another file.
        file.set(MARK, &mark).map_err(fault_of)?;
        Ok(Mark(mark))
    }

    /// Returns a part of a name that no other thread and no other server of the folder uses.
    fn unique(&self) -> String {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let count = self.streams.side.made.fetch_add(1, Ordering::Relaxed);
        format!("{:x}-{:x}-{count:x}", now.tv_sec, now.tv_nsec)
    }

    /// Keeps other threads from making entries for a file in the side folder.
    fn making(&self, file: &Handle) -> VfsResult<MutexGuard<'_, ()>> {
        self.streams.making(sys::stat_fd(file.fd()).map_err(fault_of)?.stx_ino)
    }

    /// Returns the streams that a file has in the side folder.
    pub(crate) fn side_streams(&self, file: &Handle) -> VfsResult<Vec<String>> {
        if self.streams.side.get().is_none() {
            return Ok(Vec::new());
        }
        let _server = credentials::as_server();
        let Some(dir) = self.side_directory(file)? else { return Ok(Vec::new()) };
        let entries = entries(dir.as_fd()).map_err(fault_of)?;
        let name = |entry: Vec<u8>| String::from_utf8(entry.strip_prefix(b":")?.to_vec()).ok();
        Ok(entries.into_iter().filter_map(name).collect())
    }

    /// Returns the size of a stream in the side folder, and the space that it takes.
    pub(crate) fn side_extent(&self, file: &Handle, stream: &str) -> VfsResult<Extent> {
        let _server = credentials::as_server();
        let dir = self.side_directory(file)?.ok_or(Fault::Stale)?;
        Ok(Extent::of_side(&sys::stat_at(dir.as_fd(), &entry(stream)?).map_err(fault_of)?))
    }

    pub(crate) fn open_side(&self, file: &Handle, stream: &str) -> VfsResult<OwnedFd> {
        let _server = credentials::as_server();
        let dir = self.side_directory(file)?.ok_or(Fault::Stale)?;
        let path = entry(stream)?;
        let open = |flags| sys::open_beneath(dir.as_fd(), &path, flags, Mode::empty(), false);
        match open(OFlags::RDWR | OFlags::NOFOLLOW) {
            Err(Errno::ROFS) => open(OFlags::RDONLY | OFlags::NOFOLLOW),
            other => other,
        }
        .map_err(fault_of)
    }

    /// Makes an empty stream in the side folder.
    pub(crate) fn make_side(&self, file: &Handle, stream: &str) -> VfsResult<OwnedFd> {
        let _server = writes(file)?;
        let _making = self.making(file)?;
        let dir = self.make_side_directory(file)?;
        has_room(dir.as_fd())?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = sys::open_beneath(dir.as_fd(), &entry(stream)?, flags, mode, false);
        fd.inspect(|fd| belongs_to(fd.as_fd(), file)).map_err(fault_of)
    }

    /// Moves a stream with the data `value` from its attribute to the side folder. On failure nothing
    /// has changed.
    pub(crate) fn move_to_side(
        &self,
        file: &Handle,
        stream: &str,
        value: &[u8],
    ) -> VfsResult<OwnedFd> {
        let _server = writes(file)?;
        let _making = self.making(file)?;
        let dir = self.make_side_directory(file)?;
        has_room(dir.as_fd())?;
        let path = entry(stream)?;
        remove_leftover(dir.as_fd());
        // The name is unique, because another server of the folder may move a stream, too.
        let unfinished = format!("{UNFINISHED}-{}", self.unique());
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let mode = Mode::RUSR | Mode::WUSR;
        let fd = sys::open_beneath(dir.as_fd(), unfinished.as_bytes(), flags, mode, false);
        let fd = fd.map_err(fault_of)?;
        belongs_to(fd.as_fd(), file);
        let made = write_all(fd.as_fd(), 0, value).and_then(|()| {
            rustix::fs::renameat(&dir, unfinished.as_str(), &dir, path.as_slice()).map_err(fault_of)
        });
        if let Err(fault) = made {
            let _ = rustix::fs::unlinkat(&dir, unfinished.as_str(), AtFlags::empty());
            return Err(fault);
        }
        if let Some(attribute) = attribute(stream) {
            // If the attribute stays, it is ignored, because the side folder has newer data.
            let _ = file.remove(&attribute);
        }
        Ok(fd)
    }

    pub(crate) fn remove_side(&self, file: &Handle, stream: &str) -> VfsResult<()> {
        if self.streams.side.get().is_none() {
            return Ok(());
        }
        let _server = writes(file)?;
        let Some(dir) = self.side_directory(file)? else { return Ok(()) };
        let Ok(path) = entry(stream) else { return Ok(()) };
        match rustix::fs::unlinkat(&dir, path.as_slice(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    pub(crate) fn rename_side(&self, file: &Handle, from: &str, to: &str) -> VfsResult<()> {
        let _server = writes(file)?;
        let dir = self.side_directory(file)?.ok_or(Fault::Stale)?;
        let (from, to) = (entry(from)?, entry(to)?);
        let flags = RenameFlags::NOREPLACE;
        rustix::fs::renameat_with(&dir, from.as_slice(), &dir, to.as_slice(), flags)
            .map_err(fault_of)
    }

    /// Makes the side folder's entries of a file's streams durable.
    pub(crate) fn sync_side(&self, file: &Handle) -> VfsResult<()> {
        let _server = credentials::as_server();
        let Some(dir) = self.side_directory(file)? else { return Ok(()) };
        retry_on_intr(|| rustix::fs::fsync(&dir)).map_err(fault_of)?;
        let Some(folder) = self.streams.side.get() else { return Ok(()) };
        retry_on_intr(|| rustix::fs::fsync(folder)).map_err(fault_of)
    }
}

/// Removes a data file that an earlier version has left unfinished.
fn remove_leftover(dir: BorrowedFd<'_>) {
    let _ = rustix::fs::unlinkat(dir, UNFINISHED, AtFlags::empty());
}

/// Checks that a file may have one more stream in its directory, which is read whole for each
/// stream that is opened.
fn has_room(dir: BorrowedFd<'_>) -> VfsResult<()> {
    let streams = entries(dir).map_err(fault_of)?.len();
    if streams < STREAMS_SHOWN { Ok(()) } else { Err(Fault::NoMemory) }
}

/// Returns the entries of a directory, at most as many as a file may have.
fn entries(dir: BorrowedFd<'_>) -> Result<Vec<Vec<u8>>, Errno> {
    let dir = sys::open_beneath(dir, b".", DIRECTORY, Mode::empty(), false)?;
    let mut buffer = Vec::with_capacity(16 * 1024);
    let mut listing = RawDir::new(&dir, buffer.spare_capacity_mut());
    let mut found = Vec::new();
    while let Some(entry) = listing.next() {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if !matches!(name, b"." | b"..") {
            found.push(name.to_vec());
        }
        if found.len() >= STREAMS_SHOWN {
            break;
        }
    }
    Ok(found)
}
