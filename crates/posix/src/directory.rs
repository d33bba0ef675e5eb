//! Listing of a directory of the host.

mod owners;

use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use frevo_store::Stat;
use frevo_store::vfs::{Directory, HostAccess, Kind, VfsResult, links};
use rustix::fs::{SeekFrom, Statx};
use rustix::io::Errno;

use self::owners::{Owner, Owners};
use crate::credentials;
use crate::errno::fault_of;
use crate::facts::Remembered;
use crate::limits::{DIRECTORY_ON_CORE, ENTRIES_BUFFER_BYTES, OWNERS_KEPT_BYTES};
use crate::names;
use crate::patience;
use crate::reparse_tag;
use crate::share::Share;
use crate::share::guard::Unlisted;
use crate::stat::{self, Extra};
use crate::sys;
use crate::xattr::{DOSATTRIB, Names};

/// Offsets of the fields of struct linux_dirent64.
const RECORD_LEN: usize = 16;
const TYPE: usize = 18;
const NAME: usize = 19;

/// Bytes of records that are read to find one entry: enough for the longest name.
const ENTRIES_LOOKED_AT: usize = 1_024;

/// Bytes for the names of one entry's attributes; an entry with more is opened.
const NAMES_BYTES: usize = 512;

/// A listing in progress, with its own file position.
#[derive(Debug)]
pub(crate) struct PosixDirectory {
    share: Arc<Share>,
    fd: OwnedFd,
    buffer: Box<[u8]>,
    /// Bytes of `buffer` that hold records.
    filled: usize,
    /// Offset of the next record.
    at: usize,
    /// Position of the present record's name, and its type.
    name: core::ops::Range<usize>,
    file_type: u8,
    /// The present name, if it differs from the bytes on the medium.
    mapped: String,
    unlisted: Unlisted,
    /// The present entry, once its state was read.
    seen: Option<Seen>,
    /// The access to entries with the same owner, group and mode.
    owners: Owners,
    /// Bytes of names that were read since `owners` was empty.
    read: usize,
    /// True once the access to an entry was asked for.
    tells_access: bool,
    /// True once a core has found that the directory is small enough for it.
    is_measured: bool,
}

/// An entry whose state was read.
#[derive(Debug)]
struct Seen {
    owner: Owner,
    remembered: Remembered,
    /// True if a user of the host asked.
    is_acting: bool,
    /// Names of the entry's attributes, if they were read.
    names: Option<Names>,
    /// The access to an entry without protection of its own.
    access: Option<HostAccess>,
}

/// Gives up a call that would look through a large directory, if calls must not take long. A directory
/// of ext4 keeps the blocks of names that were removed, and one call may read all of them.
fn few_blocks_for_a_core(dir: BorrowedFd<'_>) -> Result<(), Errno> {
    let is_long = patience::is_short() && sys::stat_fd(dir)?.stx_size > DIRECTORY_ON_CORE;
    if is_long { Err(patience::give_up()) } else { Ok(()) }
}

/// True for an open directory with entries of any name.
pub(crate) fn has_entries(dir: BorrowedFd<'_>) -> Result<bool, Errno> {
    few_blocks_for_a_core(dir)?;
    let mut buffer = [0; ENTRIES_LOOKED_AT];
    loop {
        let filled = match sys::read_directory(dir, &mut buffer) {
            Ok(0) | Err(Errno::NOENT) => return Ok(false),
            other => other?,
        };
        let mut records = buffer.get(..filled).unwrap_or_default();
        while let Some((name, behind)) = first_record(records) {
            if !matches!(name, b"." | b"..") {
                return Ok(true);
            }
            records = behind;
        }
    }
}

/// The name in the first record of struct linux_dirent64, and the records behind it. None at the end.
fn first_record(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = records.get(RECORD_LEN..)?.first_chunk().copied().map(u16::from_le_bytes)?;
    let (record, behind) = records.split_at_checked(usize::from(length))?;
    let name = record.get(NAME..)?;
    let end = name.iter().position(|&byte| byte == 0)?;
    Some((name.get(..end)?, behind))
}

impl PosixDirectory {
    pub(crate) fn new(share: Arc<Share>, fd: OwnedFd) -> Self {
        let unlisted = share.unlisted(fd.as_fd());
        Self {
            unlisted,
            share,
            fd,
            buffer: vec![0; ENTRIES_BUFFER_BYTES].into_boxed_slice(),
            filled: 0,
            at: 0,
            name: 0..0,
            file_type: 0,
            mapped: String::new(),
            seen: None,
            owners: Owners::default(),
            read: 0,
            tells_access: false,
            is_measured: false,
        }
    }

    /// Moves to the next record; false at the end.
    fn advance(&mut self) -> VfsResult<bool> {
        self.seen = None;
        loop {
            if self.at >= self.filled {
                if !self.is_measured {
                    few_blocks_for_a_core(self.fd.as_fd()).map_err(fault_of)?;
                    // A thread measures nothing: the next core does.
                    self.is_measured = patience::is_short();
                }
                self.at = 0;
                self.filled = match sys::read_directory(self.fd.as_fd(), &mut self.buffer) {
                    Ok(len) => len,
                    // The directory itself was removed while it was read, so the listing ends here.
                    Err(Errno::NOENT) => 0,
                    Err(errno) => return Err(fault_of(errno)),
                };
                if self.filled == 0 {
                    self.name = 0..0;
                    return Ok(false);
                }
                // The cached owners are dropped after OWNERS_KEPT_BYTES bytes of entries, to keep
                // the cache small.
                self.read += self.filled;
                if self.read > OWNERS_KEPT_BYTES {
                    self.owners.clear();
                    self.read = self.filled;
                }
            }
            if self.take_record() {
                return Ok(true);
            }
        }
    }

    /// Reads the record at `at`; false for one that is not shown.
    fn take_record(&mut self) -> bool {
        let start = self.at;
        let record = &self.buffer[start..self.filled];
        let len = match record.get(RECORD_LEN..RECORD_LEN + 2) {
            Some(&[low, high]) => usize::from(u16::from_le_bytes([low, high])),
            _ => 0,
        };
        let Some(record) = record.get(..len).filter(|record| record.len() > NAME) else {
            self.at = self.filled;
            return false;
        };
        self.at = start + len;
        let name = &record[NAME..];
        let name_len = name.iter().position(|&b| b == 0).unwrap_or(name.len());
        let stored = &name[..name_len];
        if matches!(stored, b"" | b"." | b"..")
            || self.unlisted.has(stored)
            || self.share.is_vetoed(stored)
        {
            return false;
        }
        self.file_type = record[TYPE];
        self.name = start + NAME..start + NAME + name_len;
        true
    }

    /// Returns the present name with its NUL, as in the record.
    fn entry(&self) -> Option<&CStr> {
        let with_nul = self.buffer.get(self.name.start..=self.name.end)?;
        CStr::from_bytes_with_nul(with_nul).ok()
    }

    /// Returns the facts that an entry's attributes add to its state.
    fn extra(&self, stx: &Statx, entry: &CStr, seen: &Seen) -> Extra {
        let mut extra =
            Extra { hidden_name: self.share.hides(entry.to_bytes()), ..Extra::default() };
        if !has_attributes(self.file_type) {
            return extra;
        }
        let fd = self.fd.as_fd();
        // A user who may not read the file must get the kernel's refusal, not the cached attribute.
        let may_read = !seen.is_acting || seen.access.is_some_and(|access| access.read);
        let remembered = if may_read { seen.remembered } else { Remembered::NOTHING };
        if self.share.keeps_attributes() {
            let read = |value: &mut [u8]| match seen.names {
                Some(Names { has_dosattrib: false, .. }) => Err(Errno::NODATA),
                _ => self.share.entry_xattr(fd, entry, DOSATTRIB, value),
            };
            extra.dos = remembered.dos_attrib(stx, read);
            extra.reparse_tag = reparse_tag::tag(extra.dos, |into| {
                self.share.entry_xattr(fd, entry, reparse_tag::ATTRIBUTE, into)
            });
        }
        if self.share.options.list_ea_sizes && self.share.volume.xattrs {
            extra.ea_size = remembered.ea_size(|| self.share.entry_ea_size(fd, entry));
        }
        extra
    }

    /// Looks at the present entry, whose state is `stx`: at the names of its attributes, and at the
    /// access to it, where somebody asks for that.
    fn look(&mut self, stx: &Statx) -> Seen {
        let is_acting = credentials::is_acting();
        let remembered = self.share.remembered_for_all(stx);
        let mut seen =
            Seen { owner: Owner::of(stx), remembered, is_acting, names: None, access: None };
        if (self.tells_access || is_acting) && has_attributes(self.file_type) {
            // `names` lists the file's attributes. Most files have none, and then this one call
            // saves further calls.
            if !remembered.is_known() {
                seen.names = self.entry().and_then(|entry| self.names(entry));
            }
            seen.access = self.access(&seen);
        }
        seen
    }

    /// Reads the names of an entry's attributes; None if there are many.
    fn names(&self, entry: &CStr) -> Option<Names> {
        let mut list = [0; NAMES_BYTES];
        let len = self.share.entry_names(self.fd.as_fd(), entry, &mut list).ok()?;
        list.get(..len).map(Names::of)
    }

    /// Returns the access to the present entry, which is `seen`; None where only opening it tells.
    fn access(&mut self, seen: &Seen) -> Option<HostAccess> {
        if !self.share.notes_attributes(seen.owner.device) {
            return None;
        }
        let entry = self.entry()?;
        let is_unprotected = seen.remembered.is_unprotected(|| {
            let names = seen.names.or_else(|| self.names(entry))?;
            Some(!names.has_protection)
        });
        if !is_unprotected? {
            return None;
        }
        if let Some(known) = self.owners.access(&seen.owner) {
            return Some(known);
        }
        let access = seen.owner.access(&self.share, self.fd.as_fd(), entry)?;
        self.owners.note(seen.owner, access);
        Some(access)
    }
}

/// False for entries that cannot have attributes of users.
const fn has_attributes(file_type: u8) -> bool {
    !matches!(file_type, libc::DT_LNK | libc::DT_FIFO | libc::DT_SOCK)
}

impl Directory for PosixDirectory {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        if !self.advance()? {
            return Ok(None);
        }
        match names::map(&self.buffer[self.name.clone()], self.share.spelling) {
            Cow::Borrowed(name) => Ok(Some(name)),
            Cow::Owned(name) => {
                self.mapped = name;
                Ok(Some(&self.mapped))
            }
        }
    }

    fn entry_stat(&mut self) -> VfsResult<Option<Stat>> {
        if self.name.is_empty() {
            return Ok(None);
        }
        let Some(entry) = self.entry() else { return Ok(None) };
        let stx = match sys::stat_entry(self.fd.as_fd(), entry) {
            Ok(stx) => stx,
            Err(Errno::NOENT | Errno::STALE) => return Ok(None),
            Err(errno) => return Err(fault_of(errno)),
        };
        let seen = self.look(&stx);
        let Some(entry) = self.entry() else { return Ok(None) };
        let mut extra = self.extra(&stx, entry, &seen);
        if stat::kind_of(&stx) == Kind::Symlink {
            let target = rustix::fs::readlinkat(self.fd.as_fd(), entry, Vec::new());
            extra.is_directory_link =
                target.is_ok_and(|target| links::is_of_directory(target.to_bytes()));
        }
        self.seen = Some(seen);
        Ok(Some(self.share.stat_of(&stx, &extra)))
    }

    fn plain_access(&mut self) -> Option<HostAccess> {
        if let Some(seen) = &self.seen
            && (self.tells_access || seen.is_acting)
        {
            return seen.access;
        }
        self.tells_access = true;
        let mut seen = self.seen.take()?;
        if has_attributes(self.file_type) {
            seen.access = self.access(&seen);
        }
        let access = seen.access;
        self.seen = Some(seen);
        access
    }

    fn rewind(&mut self) -> VfsResult<()> {
        rustix::fs::seek(&self.fd, SeekFrom::Start(0)).map_err(fault_of)?;
        self.filled = 0;
        self.at = 0;
        self.name = 0..0;
        self.owners.clear();
        self.read = 0;
        self.is_measured = false;
        Ok(())
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.buffer.len() + self.mapped.capacity() + Owners::BYTES
    }
}
