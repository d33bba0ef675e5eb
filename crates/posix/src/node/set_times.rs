//! Times and DOS attributes of a file, as a client sets them.
//!
//! A client that may set them need not own the file (MS-FSA 2.1.5.15.2), while Linux lets only the
//! owner set times. The server sets them for users who may write the file, and what the host does not
//! let the server set is stored with the attributes.

use frevo_store::Fault;
use frevo_store::vfs::{BasicChange, Kind, STORED_ATTRIBUTES, VfsResult};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use rustix::fs::{Access, AtFlags, CWD, Mode, Timespec, Timestamps};
use rustix::io::Errno;

use super::PosixNode;
use crate::credentials;
use crate::dosattrib::{DosAttrib, KeptTimes, SetChangeTime};
use crate::errno::fault_of;
use crate::limits::DOSATTRIB_BYTES;
use crate::stat::{self, Extra};
use crate::sys::{self, ProcPath};
use crate::xattr::DOSATTRIB;

/// The place of the times that a client has set.
pub(super) enum TimesSet {
    /// None were to be set.
    None,
    /// The host took them.
    OnHost,
    /// They have to be stored with the attributes.
    Refused(KeptTimes),
    /// The host took others in their place: they may be stored with the attributes.
    Ignored(KeptTimes),
}

impl TimesSet {
    /// Returns what DOSATTRIB says of them, with its value before.
    fn kept(&self, before: Option<KeptTimes>) -> Option<KeptTimes> {
        match self {
            Self::None => before,
            Self::OnHost => None,
            Self::Refused(kept) | Self::Ignored(kept) => {
                let before = before.filter(|before| before.at == kept.at);
                Some(KeptTimes {
                    accessed: kept.accessed.or_else(|| before.and_then(|old| old.accessed)),
                    written: kept.written.or_else(|| before.and_then(|old| old.written)),
                    ..*kept
                })
            }
        }
    }
}

impl PosixNode {
    pub(super) fn set_times(&self, change: &BasicChange) -> VfsResult<TimesSet> {
        let (accessed, written) = (settable(change.accessed), settable(change.written));
        if accessed.is_none() && written.is_none() {
            return Ok(TimesSet::None);
        }
        let is_fuse = self.share.is_on_fuse(self.key, self.handle.fd());
        let set = self.or_as_server(|| self.set_host_times(accessed, written, is_fuse));
        if set.is_ok() && !is_fuse {
            return Ok(TimesSet::OnHost);
        }
        let now = stat::stat_of(&sys::stat_fd(self.handle.fd()).map_err(fault_of)?, &EXTRA);
        let kept = KeptTimes { accessed, written, at: now.written };
        match set {
            Ok(()) => {
                let differs =
                    |set: &FileTime, told: FileTime| set.0.abs_diff(told.0) >= COARSEST_TIME;
                let accessed = accessed.filter(|set| differs(set, now.accessed));
                let written = written.filter(|set| differs(set, now.written));
                if accessed.is_none() && written.is_none() {
                    return Ok(TimesSet::OnHost);
                }
                Ok(TimesSet::Ignored(KeptTimes { accessed, written, ..kept }))
            }
            Err(Errno::PERM | Errno::ACCESS) => Ok(TimesSet::Refused(kept)),
            Err(errno) => Err(fault_of(errno)),
        }
    }

    /// Makes a call, and once more as the server if the host refuses it to a user who may set times and
    /// attributes.
    fn or_as_server<T>(&self, call: impl Fn() -> Result<T, Errno>) -> Result<T, Errno> {
        match call() {
            Err(Errno::PERM | Errno::ACCESS) if credentials::is_acting() && self.may_set() => {
                let _server = credentials::as_server();
                call()
            }
            done => done,
        }
    }

    /// True if the user that this thread acts as may set times and attributes: by having made the file, by
    /// the host's permissions, or by a stored descriptor, which was checked when the file was opened.
    fn may_set(&self) -> bool {
        let is_writer = || sys::may_access(self.handle.fd(), Access::WRITE_OK);
        let has_descriptor = || {
            crate::security::stored(&self.share, &self.handle, None)
                .is_ok_and(|descriptor| descriptor.is_some())
        };
        self.is_given || is_writer() || has_descriptor()
    }

    /// Sets times on the host. On FUSE both are passed: version 2 of libfuse ignores a change of one
    /// alone.
    fn set_host_times(
        &self,
        mut accessed: Option<FileTime>,
        mut written: Option<FileTime>,
        is_fuse: bool,
    ) -> Result<(), Errno> {
        let fd = self.handle.fd();
        if is_fuse && (accessed.is_none() || written.is_none()) {
            let now = stat::stat_of(&sys::stat_fd(fd)?, &EXTRA);
            accessed = accessed.or(Some(now.accessed));
            written = written.or(Some(now.written));
        }
        let times =
            Timestamps { last_access: timespec(accessed), last_modification: timespec(written) };
        rustix::fs::utimensat(fd, c"", &times, AtFlags::EMPTY_PATH)
    }

    /// Sets the values in DOSATTRIB. They come last, because a later change of the file would make
    /// a stored ChangeTime invalid.
    pub(super) fn set_attributes(&self, change: &BasicChange, times: &TimesSet) -> VfsResult<()> {
        let (created, changed) = (settable(change.created), settable(change.changed));
        let is_bare = created.is_none() && changed.is_none() && change.attributes.is_none();
        if is_bare && matches!(times, TimesSet::None) {
            return Ok(());
        }
        if let Some(attributes) = change.attributes {
            self.set_mode_attributes(attributes)?;
        }
        if !self.share.keeps_attributes() || !self.has_xattrs() {
            // The file system cannot store attributes. The request succeeds nevertheless, as with
            // smbd, because clients that copy files always send attributes.
            return if let TimesSet::Refused(_) = times {
                Err(Fault::AccessDenied)
            } else {
                Ok(())
            };
        }
        let old = self.dos_attrib_to_change();
        if is_bare && matches!(times, TimesSet::OnHost) && old.is_none_or(|old| old.times.is_none())
        {
            return Ok(());
        }
        let directory = if self.kind == Kind::Directory { FileAttributes::DIRECTORY.0 } else { 0 };
        let before = old.map_or(0, |old| old.attributes);
        let attributes = match change.attributes {
            Some(new) => (new & STORED_ATTRIBUTES).0,
            None => before & STORED_ATTRIBUTES.0,
        };
        // REPARSE_POINT keeps its value, because only FSCTL_SET_REPARSE_POINT may change it.
        let attributes = attributes | before & FileAttributes::REPARSE_POINT.0;
        let at_birth = created.is_none() && old.is_some_and(|old| old.at_birth);
        let created = match created.or_else(|| old.and_then(|old| old.created)) {
            Some(created) => created,
            None => {
                let stx = sys::stat_fd(self.handle.fd()).map_err(fault_of)?;
                stat::stat_of(&stx, &EXTRA).created
            }
        };
        let attributes = attributes | directory;
        let kept = times.kept(old.and_then(|old| old.times));
        let created = Some(created);
        let value = DosAttrib { attributes, created, at_birth, changed: None, times: kept };
        let stored = match changed {
            Some(changed) => self.keep_change_time(value, changed),
            None => self.store_attributes(&value),
        };
        // The host has set other times instead (`Ignored`). If only times were to be set, storing
        // the client's times is optional and may fail without an error.
        let is_optional = is_bare && matches!(times, TimesSet::Ignored(_));
        if is_optional { Ok(()) } else { stored }
    }

    /// Sets the attributes that are bits of a file's mode. Only its owner changes these, unless the share lets
    /// writers do so.
    fn set_mode_attributes(&self, attributes: FileAttributes) -> VfsResult<()> {
        let mapped = self.share.mode_attributes();
        if mapped.is_empty() || self.kind != Kind::File {
            return Ok(());
        }
        let stx = sys::stat_fd(self.handle.fd()).map_err(fault_of)?;
        let mode = u32::from(stx.stx_mode) & 0o7777;
        let wanted = self.share.options.mode_with(mode, attributes);
        // A change of the mode would clear set-user-ID and set-group-ID of a program.
        if wanted == mode || mode & 0o6000 != 0 {
            return Ok(());
        }
        let path = ProcPath::of(self.handle.fd());
        let mode = Mode::from_raw_mode(wanted & 0o1777);
        let change = || rustix::fs::chmodat(CWD, path.as_c_str(), mode, AtFlags::empty());
        let is_own =
            self.is_given || credentials::acting().is_none_or(|user| user.uid() == stx.stx_uid);
        let changed = match is_own || self.share.lets_writers_set_modes() {
            true => self.or_as_server(change),
            false => change(),
        };
        match changed {
            // The file system has no such bits. The request succeeds as where it has no attributes.
            Err(Errno::OPNOTSUPP) => Ok(()),
            Err(Errno::PERM) if is_own && self.may_set() => Ok(()),
            changed => changed.map_err(fault_of),
        }
    }

    /// Returns the stored value, also to a user who may change it and not read it.
    fn dos_attrib_to_change(&self) -> Option<DosAttrib> {
        let read = || {
            let mut value = [0; DOSATTRIB_BYTES];
            let len = self.handle.value(DOSATTRIB, &mut value)?;
            Ok(value.get(..len).and_then(DosAttrib::decode))
        };
        self.or_as_server(read).ok().flatten()
    }

    fn store_attributes(&self, value: &DosAttrib) -> VfsResult<()> {
        self.or_as_server(|| self.handle.set_dos_attrib(value)).map_err(fault_of)
    }

    /// Stores a ChangeTime with the latest change time of the host for which it is valid: that of
    /// storing it, which is known only afterwards.
    fn keep_change_time(&self, value: DosAttrib, shown: FileTime) -> VfsResult<()> {
        let fd = self.handle.fd();
        for slack in CHANGE_TIME_SLACK {
            let until = FileTime(stat::clock().0.saturating_add(slack));
            let changed = Some(SetChangeTime { shown, until });
            self.store_attributes(&DosAttrib { changed, ..value })?;
            let host = stat::stat_of(&sys::stat_fd(fd).map_err(fault_of)?, &EXTRA);
            if host.changed <= until {
                return Ok(());
            }
        }
        // The client's change time could not be kept, so clients see the file system's own.
        Ok(())
    }
}

/// Nothing but the host's state.
const EXTRA: Extra =
    Extra { dos: None, hidden_name: false, ea_size: 0, reparse_tag: 0, is_directory_link: false };

/// The least difference between a time that was set and the one that the host tells, in units of
/// FILETIME, by which it has not taken it: FAT's times have steps of 2 s.
const COARSEST_TIME: u64 = 20_000_000;

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
