//! fanotify(7) with directory handles and names.
//!
//! Every event contains the id of the process that caused it. A reader without privileges gets it
//! only for its own events: that distinguishes changes of this process from those of others.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::io::Errno;

use crate::limits::HOST_BUFFER_BYTES;
use crate::sys;

/// The identity of a directory or file in events: its file system and its file handle.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Handle(Box<[u8]>);

/// A change that the kernel reports.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Event {
    pub(super) mask: u64,
    /// True if this process caused it.
    pub(super) is_own: bool,
    /// The entry; for a rename the old one. For an event of a file itself: the file, with an empty
    /// name.
    pub(super) entry: Option<(Handle, Box<[u8]>)>,
    /// The new entry of a rename.
    pub(super) new_entry: Option<(Handle, Box<[u8]>)>,
}

impl Event {
    /// True if an entry was made, or moved to the directory.
    pub(super) const fn came(&self) -> bool {
        self.mask & (libc::FAN_CREATE | libc::FAN_MOVED_TO) != 0
    }

    /// True if an entry was removed, or moved away.
    pub(super) const fn went(&self) -> bool {
        self.mask & (libc::FAN_DELETE | libc::FAN_MOVED_FROM) != 0
    }
}

/// Events for renames with both names; Linux 5.17.
pub(super) const FAN_RENAME: u64 = 0x1000_0000;
const INFO_FID: u8 = 1;
const INFO_DFID_NAME: u8 = 2;
const INFO_OLD_DFID_NAME: u8 = 10;
const INFO_NEW_DFID_NAME: u8 = 12;

/// Bytes of struct fanotify_event_metadata.
const METADATA: usize = 24;
/// Bytes before the file handle in a record: header and fsid.
const RECORD: usize = 4 + 8;
/// Bytes of struct file_handle before the handle.
const FILE_HANDLE: usize = 8;
/// MAX_HANDLE_SZ
const HANDLE_BYTES: usize = 128;

const CHANGES: u64 = libc::FAN_CREATE
    | libc::FAN_DELETE
    | libc::FAN_MODIFY
    | libc::FAN_ATTRIB
    | libc::FAN_ONDIR
    | libc::FAN_EVENT_ON_CHILD;

/// Events of a file itself. Removing its last name is a change of its attributes.
const FILE_CHANGES: u64 = libc::FAN_MODIFY | libc::FAN_ATTRIB | libc::FAN_MOVE_SELF;

#[derive(Debug)]
pub(super) struct Fanotify {
    fd: OwnedFd,
    /// The events that stand for renames on this kernel.
    renames: AtomicU64,
}

impl Fanotify {
    /// Makes a group for directories. Fails with PERM or NOSYS if the kernel (before 5.13 without
    /// privileges) or a sandbox forbids it.
    pub(super) fn new() -> Result<Self, Errno> {
        let fd = group(libc::FAN_REPORT_DIR_FID | libc::FAN_REPORT_NAME)?;
        Ok(Self { fd, renames: AtomicU64::new(FAN_RENAME) })
    }

    /// Makes a group for files, whose events name the file itself. Fails as [`Self::new`] does.
    pub(super) fn of_files() -> Result<Self, Errno> {
        Ok(Self { fd: group(libc::FAN_REPORT_FID)?, renames: AtomicU64::new(0) })
    }

    pub(super) const fn fd(&self) -> &OwnedFd {
        &self.fd
    }

    /// Begins to watch a directory, which is open for reading.
    pub(super) fn mark(&self, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        self.change_mark(libc::FAN_MARK_ADD | libc::FAN_MARK_ONLYDIR, dir)
    }

    pub(super) fn unmark(&self, dir: BorrowedFd<'_>) {
        // The call fails only if the mark is gone already, for instance with its directory.
        let _ = self.change_mark(libc::FAN_MARK_REMOVE, dir);
    }

    fn change_mark(&self, flags: libc::c_uint, dir: BorrowedFd<'_>) -> Result<(), Errno> {
        let renames = self.renames.load(Ordering::Relaxed);
        match self.change(flags, CHANGES | renames, dir) {
            Err(Errno::INVAL) if renames == FAN_RENAME => {
                let renames = libc::FAN_MOVED_FROM | libc::FAN_MOVED_TO;
                self.renames.store(renames, Ordering::Relaxed);
                self.change(flags, CHANGES | renames, dir)
            }
            changed => changed,
        }
    }

    /// Begins to watch a file.
    pub(super) fn mark_file(&self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        self.change_file(libc::FAN_MARK_ADD, file)
    }

    pub(super) fn unmark_file(&self, file: BorrowedFd<'_>) {
        // The call fails only if the mark is gone already, so an error is ignored.
        let _ = self.change_file(libc::FAN_MARK_REMOVE, file);
    }

    fn change_file(&self, flags: libc::c_uint, file: BorrowedFd<'_>) -> Result<(), Errno> {
        match self.change(flags, FILE_CHANGES, file) {
            // fanotify refuses O_PATH descriptors, so the file is opened again for reading.
            Err(Errno::BADF) => {
                let opened = sys::reopen(file, rustix::fs::OFlags::RDONLY)?;
                self.change(flags, FILE_CHANGES, opened.as_fd())
            }
            other => other,
        }
    }

    /// Changes the mark of an open file. A confined process marks none by its path.
    fn change(&self, flags: libc::c_uint, mask: u64, file: BorrowedFd<'_>) -> Result<(), Errno> {
        let (group, file) = (self.fd.as_raw_fd(), file.as_raw_fd());
        // SAFETY: both descriptors are open, and there is no path.
        let marked = unsafe { libc::fanotify_mark(group, flags, mask, file, std::ptr::null()) };
        if marked == 0 { Ok(()) } else { Err(last_errno()) }
    }

    /// Reads the queued events; `None` stands for lost ones.
    pub(super) fn take(&self, buffer: &mut Vec<u8>, each: &mut impl FnMut(Option<Event>)) {
        buffer.resize(HOST_BUFFER_BYTES, 0);
        match rustix::io::retry_on_intr(|| rustix::io::read(&self.fd, &mut buffer[..])) {
            Ok(len) => parse(&buffer[..len], std::process::id(), each),
            Err(Errno::AGAIN) => {}
            Err(_) => each(None),
        }
    }
}

fn group(reports: libc::c_uint) -> Result<OwnedFd, Errno> {
    let flags = libc::FAN_CLASS_NOTIF | libc::FAN_CLOEXEC | libc::FAN_NONBLOCK | reports;
    // SAFETY: fanotify_init takes two integers and touches no memory.
    let fd = unsafe { libc::fanotify_init(flags, libc::O_RDONLY as libc::c_uint) };
    if fd < 0 {
        return Err(last_errno());
    }
    // SAFETY: the kernel has just returned this descriptor, so no other code owns it.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// Makes a group that others wait for, or marks a file at a path: what confined processes must not.
pub(super) fn attempt(is_waited_for: bool, path: Option<&CStr>) -> Result<(), Errno> {
    let class = if is_waited_for { libc::FAN_CLASS_CONTENT } else { libc::FAN_REPORT_FID };
    let fd = group(class)?;
    let Some(path) = path else { return Ok(()) };
    let (fd, at) = (fd.as_raw_fd(), libc::AT_FDCWD);
    // SAFETY: the descriptor is open, and the path is a C string that outlives the call.
    let marked =
        unsafe { libc::fanotify_mark(fd, libc::FAN_MARK_ADD, libc::FAN_MODIFY, at, path.as_ptr()) };
    if marked == 0 { Ok(()) } else { Err(last_errno()) }
}

fn last_errno() -> Errno {
    let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(libc::EIO);
    Errno::from_raw_os_error(errno)
}

/// Returns the handle by which events name a directory.
pub(super) fn handle_of(dir: BorrowedFd<'_>) -> Result<Handle, Errno> {
    #[repr(C, align(8))]
    struct Buffer([u8; FILE_HANDLE + HANDLE_BYTES]);
    let mut buffer = Buffer([0; FILE_HANDLE + HANDLE_BYTES]);
    buffer.0[..4].copy_from_slice(&(HANDLE_BYTES as u32).to_ne_bytes());
    let mut mount: libc::c_int = 0;
    // SAFETY: the path is an empty C string, the buffer has the room that its
    // first word says, and both outlive the call.
    let done = unsafe {
        libc::syscall(
            libc::SYS_name_to_handle_at,
            dir.as_raw_fd(),
            c"".as_ptr(),
            buffer.0.as_mut_ptr(),
            &raw mut mount,
            libc::AT_EMPTY_PATH,
        )
    };
    if done != 0 {
        return Err(last_errno());
    }
    let fsid = fsid_of(dir)?;
    let len = FILE_HANDLE + word(&buffer.0, 0) as usize;
    let handle = buffer.0.get(..len).ok_or(Errno::OVERFLOW)?;
    Ok(Handle(fsid.iter().chain(handle).copied().collect()))
}

/// Returns f_fsid as in events.
fn fsid_of(dir: BorrowedFd<'_>) -> Result<[u8; 8], Errno> {
    let mut stat = std::mem::MaybeUninit::<libc::statfs>::zeroed();
    // SAFETY: the descriptor is open, and the call may fill the whole structure.
    if unsafe { libc::fstatfs(dir.as_raw_fd(), stat.as_mut_ptr()) } != 0 {
        return Err(last_errno());
    }
    // SAFETY: the structure was zeroed, which is a valid value, and then filled.
    let stat = unsafe { stat.assume_init() };
    // SAFETY: fsid_t is two integers of four bytes without padding; libc keeps
    // them private.
    Ok(unsafe { std::mem::transmute::<libc::fsid_t, [u8; 8]>(stat.f_fsid) })
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..at + 4).map_or(0, |word| u32::from_ne_bytes([0, 1, 2, 3].map(|i| word[i])))
}

fn parse(mut bytes: &[u8], own: u32, each: &mut impl FnMut(Option<Event>)) {
    while bytes.len() >= METADATA {
        let len = word(bytes, 0) as usize;
        let Some((event, rest)) = bytes.split_at_checked(len).filter(|_| len >= METADATA) else {
            return each(None);
        };
        bytes = rest;
        let mask = u64::from(word(event, 8)) | u64::from(word(event, 12)) << 32;
        if mask & libc::FAN_Q_OVERFLOW != 0 {
            each(None);
            continue;
        }
        let is_own = word(event, 20) == own;
        let mut found = Event { mask, is_own, entry: None, new_entry: None };
        let mut records = event.get(METADATA..).unwrap_or_default();
        while records.len() > RECORD {
            let len = usize::from(u16::from_ne_bytes([records[2], records[3]]));
            let Some((record, rest)) = records.split_at_checked(len).filter(|_| len > RECORD)
            else {
                return each(None);
            };
            records = rest;
            match record[0] {
                INFO_FID | INFO_DFID_NAME | INFO_OLD_DFID_NAME => found.entry = entry(record),
                INFO_NEW_DFID_NAME => found.new_entry = entry(record),
                _ => {}
            }
        }
        each(Some(found));
    }
}

/// Parses the handle of a directory or file, and the name behind it.
fn entry(record: &[u8]) -> Option<(Handle, Box<[u8]>)> {
    let len = (word(record, RECORD) as usize).checked_add(RECORD + FILE_HANDLE)?;
    let (handle, name) = record.split_at_checked(len)?;
    let name = name.split(|&b| b == 0).next().unwrap_or_default();
    Some((Handle(handle.get(4..)?.into()), name.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, name: &[u8]) -> Vec<u8> {
        let mut out = vec![kind, 0, 0, 0];
        out.extend([7; 8]);
        out.extend(4u32.to_ne_bytes());
        out.extend(1u32.to_ne_bytes());
        out.extend([9; 4]);
        out.extend(name);
        let len = out.len() as u16;
        out[2..4].copy_from_slice(&len.to_ne_bytes());
        out
    }

    fn event(mask: u64, pid: u32, records: &[Vec<u8>]) -> Vec<u8> {
        let info = records.concat();
        let mut out = ((METADATA + info.len()) as u32).to_ne_bytes().to_vec();
        out.extend([3, 0, 24, 0]);
        out.extend(mask.to_ne_bytes());
        out.extend((-1i32).to_ne_bytes());
        out.extend(pid.to_ne_bytes());
        out.extend(info);
        out
    }

    fn parsed(bytes: &[u8]) -> Vec<Option<Event>> {
        let mut all = Vec::new();
        parse(bytes, 42, &mut |event| all.push(event));
        all
    }

    #[test]
    fn events_name_entries_and_who_caused_them() {
        let mut bytes = event(libc::FAN_CREATE, 42, &[record(2, b"x\0")]);
        bytes.extend(event(FAN_RENAME, 1, &[record(10, b"a\0\0"), record(12, b"b\0")]));
        bytes.extend(event(libc::FAN_Q_OVERFLOW, 0, &[]));
        let all = parsed(&bytes);
        let handle = Handle(
            [&[7; 8][..], &4u32.to_ne_bytes(), &1u32.to_ne_bytes(), &[9; 4]].concat().into(),
        );
        let entry = |name: &[u8]| Some((handle.clone(), name.into()));
        let created =
            Event { mask: libc::FAN_CREATE, is_own: true, entry: entry(b"x"), new_entry: None };
        let renamed =
            Event { mask: FAN_RENAME, is_own: false, entry: entry(b"a"), new_entry: entry(b"b") };
        assert_eq!(all, [Some(created), Some(renamed), None]);
    }

    #[test]
    fn lengths_that_lie_are_lost_events() {
        for cut in 1..40 {
            let mut bytes = event(libc::FAN_CREATE, 42, &[record(2, b"name\0")]);
            let len = bytes.len();
            bytes[..4].copy_from_slice(&((len + cut) as u32).to_ne_bytes());
            assert_eq!(parsed(&bytes), [None]);
        }
        let mut short = event(libc::FAN_CREATE, 42, &[record(2, b"name\0")]);
        short[METADATA + 2] = 200;
        assert_eq!(parsed(&short), [None]);
        assert_eq!(parsed(&[0; METADATA]), [None]);
    }

    #[test]
    fn a_directory_is_named_as_in_events() {
        let dir = tempfile::tempdir().unwrap();
        let open = |path: &std::path::Path| std::fs::File::open(path).map(OwnedFd::from).unwrap();
        use std::os::fd::AsFd as _;
        let fd = open(dir.path());
        let Ok(group) = Fanotify::new() else {
            // fanotify is not available (as in a sandbox), so the rest of the test is skipped.
            return;
        };
        group.mark(fd.as_fd()).unwrap();
        std::fs::write(dir.path().join("x"), "1").unwrap();
        let mut seen = Vec::new();
        group.take(&mut Vec::new(), &mut |event| seen.push(event.unwrap()));
        let handle = handle_of(fd.as_fd()).unwrap();
        assert_eq!(seen[0].entry, Some((handle, (*b"x").into())));
        assert!(seen.iter().all(|event| event.is_own));
    }
}
