//! Times and DOS attributes of a file, as a client sets them.

use frevo_store::vfs::{BasicChange, Kind, STORED_ATTRIBUTES, VfsResult};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use rustix::fs::{AtFlags, Timespec, Timestamps};

use super::PosixNode;
use crate::dosattrib::{DosAttrib, SetChangeTime};
use crate::errno::fault_of;
use crate::stat::{self, Extra};
use crate::sys;

impl PosixNode {
    pub(super) fn set_times(&self, change: &BasicChange) -> VfsResult<()> {
        let (accessed, written) = (settable(change.accessed), settable(change.written));
        if accessed.is_none() && written.is_none() {
            return Ok(());
        }
        let times =
            Timestamps { last_access: timespec(accessed), last_modification: timespec(written) };
        rustix::fs::utimensat(self.handle.fd(), c"", &times, AtFlags::EMPTY_PATH).map_err(fault_of)
    }

    /// Sets the values in DOSATTRIB. They come last, because a later change of the file would make
    /// a stored ChangeTime invalid.
    pub(super) fn set_attributes(&self, change: &BasicChange) -> VfsResult<()> {
        let (created, changed) = (settable(change.created), settable(change.changed));
        if created.is_none() && changed.is_none() && change.attributes.is_none() {
            return Ok(());
        }
        if !self.share.keeps_attributes() || !self.has_xattrs() {
            // The attributes cannot be stored. A client that copies a file can do nothing about
            // that, so it gets success, as from smbd.
            return Ok(());
        }
        let old = self.handle.dos_attrib();
        let directory = if self.kind == Kind::Directory { FileAttributes::DIRECTORY.0 } else { 0 };
        let before = old.map_or(0, |old| old.attributes);
        let attributes = match change.attributes {
            Some(new) => (new & STORED_ATTRIBUTES).0,
            None => before & STORED_ATTRIBUTES.0,
        };
        // Only FSCTL_SET_REPARSE_POINT changes this one.
        let attributes = attributes | before & FileAttributes::REPARSE_POINT.0;
        let at_birth = created.is_none() && old.is_some_and(|old| old.at_birth);
        let created = match created.or_else(|| old.and_then(|old| old.created)) {
            Some(created) => created,
            None => {
                let stx = sys::stat_fd(self.handle.fd()).map_err(fault_of)?;
                stat::stat_of(&stx, &Extra::default()).created
            }
        };
        let attributes = attributes | directory;
        let value = DosAttrib { attributes, created: Some(created), at_birth, changed: None };
        match changed {
            Some(changed) => self.keep_change_time(value, changed),
            None => self.handle.set_dos_attrib(&value).map_err(fault_of),
        }
    }

    /// Stores a ChangeTime with the latest change time of the host for which it is valid: that of
    /// storing it, which is known only afterwards.
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
        // The medium has a clock of its own: its time is shown, as if none were set.
        Ok(())
    }
}

/// Amounts by which the medium's change time may be later than the clock, in units of FILETIME: 0,
/// 1 and 20 ms. The first is enough if the medium notes the last tick of the kernel's clock.
const CHANGE_TIME_SLACK: [u64; 3] = [0, 10_000, 200_000];

/// Returns the time to set, or None for the values of MS-FSCC 2.4.7 that leave a time alone.
fn settable(time: Option<FileTime>) -> Option<FileTime> {
    time.filter(|t| t.0 != 0 && t.0 < u64::MAX - 1)
}

/// Returns a time for the kernel; UTIME_OMIT for one that stays.
fn timespec(time: Option<FileTime>) -> Timespec {
    match time {
        Some(time) => {
            let (tv_sec, nanoseconds) = time.to_unix();
            Timespec { tv_sec, tv_nsec: nanoseconds.into() }
        }
        None => Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_OMIT },
    }
}
