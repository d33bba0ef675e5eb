//! Listing of a directory of the host.

use std::borrow::Cow;
use std::ffi::CStr;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;

use frevo_store::Stat;
use frevo_store::vfs::{Directory, Kind, VfsResult, links};
use rustix::fs::{SeekFrom, Statx};
use rustix::io::Errno;

use crate::errno::fault_of;
use crate::guard::Unlisted;
use crate::limits::LIST_BUFFER_BYTES;
use crate::names;
use crate::reparse_tag;
use crate::share::Share;
use crate::stat::{self, Extra};
use crate::sys;
use crate::xattr::DOSATTRIB;

/// Offsets of the fields of struct linux_dirent64.
const RECORD_LEN: usize = 16;
const TYPE: usize = 18;
const NAME: usize = 19;

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
}

impl PosixDirectory {
    pub(crate) fn new(share: Arc<Share>, fd: OwnedFd) -> Self {
        let unlisted = share.unlisted(fd.as_fd());
        Self {
            unlisted,
            share,
            fd,
            buffer: vec![0; LIST_BUFFER_BYTES].into_boxed_slice(),
            filled: 0,
            at: 0,
            name: 0..0,
            file_type: 0,
            mapped: String::new(),
        }
    }

    /// Moves to the next record; false at the end.
    fn advance(&mut self) -> VfsResult<bool> {
        loop {
            if self.at >= self.filled {
                self.at = 0;
                self.filled = match sys::read_directory(self.fd.as_fd(), &mut self.buffer) {
                    Ok(len) => len,
                    // The directory itself was removed.
                    Err(Errno::NOENT) => 0,
                    Err(errno) => return Err(fault_of(errno)),
                };
                if self.filled == 0 {
                    self.name = 0..0;
                    return Ok(false);
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
    fn extra(&self, stx: &Statx, entry: &CStr) -> Extra {
        let mut extra =
            Extra { hidden_name: self.share.hides(entry.to_bytes()), ..Extra::default() };
        if matches!(self.file_type, libc::DT_LNK | libc::DT_FIFO | libc::DT_SOCK) {
            return extra;
        }
        let fd = self.fd.as_fd();
        if self.share.keeps_attributes() {
            extra.dos = self
                .share
                .dos_attrib(stx, |value| self.share.entry_xattr(fd, entry, DOSATTRIB, value));
            extra.reparse_tag = reparse_tag::tag(extra.dos, |into| {
                self.share.entry_xattr(fd, entry, reparse_tag::ATTRIBUTE, into)
            });
        }
        if self.share.options.list_ea_sizes && self.share.volume.xattrs {
            extra.ea_size = self.share.ea_size(stx, || self.share.entry_ea_size(fd, entry));
        }
        extra
    }
}

impl Directory for PosixDirectory {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        if !self.advance()? {
            return Ok(None);
        }
        match names::map(&self.buffer[self.name.clone()]) {
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
        match sys::stat_entry(self.fd.as_fd(), entry) {
            Ok(stx) => {
                let mut extra = self.extra(&stx, entry);
                if stat::kind_of(&stx) == Kind::Symlink {
                    let target = rustix::fs::readlinkat(self.fd.as_fd(), entry, Vec::new());
                    extra.is_directory_link =
                        target.is_ok_and(|target| links::is_of_directory(target.to_bytes()));
                }
                Ok(Some(self.share.stat_of(&stx, &extra)))
            }
            Err(Errno::NOENT | Errno::STALE) => Ok(None),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    fn rewind(&mut self) -> VfsResult<()> {
        rustix::fs::seek(&self.fd, SeekFrom::Start(0)).map_err(fault_of)?;
        self.filled = 0;
        self.at = 0;
        self.name = 0..0;
        Ok(())
    }

    fn bytes(&self) -> usize {
        size_of::<Self>() + self.buffer.len() + self.mapped.capacity()
    }

    fn descriptor(&self) -> Option<usize> {
        usize::try_from(self.fd.as_raw_fd()).ok()
    }
}
