//! Facts from extended attributes of the share's files.

use rustix::fs::Statx;
use rustix::io::Errno;

use crate::dosattrib::DosAttrib;
use crate::facts::{self, Remembered, Time, Version};
use crate::share::Share;
use crate::{credentials, stat};

impl Share {
    /// Returns the version of a file with this state; None where attributes are read each time.
    pub(crate) fn version(&self, stx: &Statx) -> Option<Version> {
        if credentials::is_acting() { None } else { self.version_for_all(stx) }
    }

    fn version_for_all(&self, stx: &Statx) -> Option<Version> {
        let key = stat::key_of(stx);
        let is_noted = self.keeps_facts && key.device == self.home;
        let changed = Time { seconds: stx.stx_ctime.tv_sec, nanoseconds: stx.stx_ctime.tv_nsec };
        // Several changes may have the same timestamp if it has whole seconds, so only a timestamp
        // with nanoseconds is exact.
        let is_exact = self.has_exact_times && stx.stx_ctime.tv_nsec != 0;
        is_noted.then_some(Version::new(key, changed, is_exact))
    }

    /// True if the access to files of this device follows from owner, group and mode, where no
    /// attribute says otherwise.
    pub(crate) fn notes_attributes(&self, device: u64) -> bool {
        self.keeps_facts && device == self.home && self.volume.xattrs
    }

    /// Records the facts of a file that this process has just made, and written `dos` to, before
    /// `stx` was read.
    pub(crate) fn note_new(&self, stx: &Statx, dos: Option<DosAttrib>) {
        let Some(version) = self.version(stx) else { return };
        facts::note_new(version, dos.map(|dos| dos.with_birth(stat::birth_of(stx))));
    }

    /// Returns what is remembered of a file whose state is `stx`.
    pub(crate) fn remembered(&self, stx: &Statx) -> Remembered {
        let version = self.version(stx);
        Remembered::of(version)
    }

    /// Like [`Self::remembered`], also while this thread acts as a user. What attributes say is for
    /// users that may read the file; that some are absent is for all.
    pub(crate) fn remembered_for_all(&self, stx: &Statx) -> Remembered {
        Remembered::of(self.version_for_all(stx))
    }

    /// Returns DOSATTRIB of a file whose state is `stx`. `read` reads it, if it is not known.
    pub(crate) fn dos_attrib(
        &self,
        stx: &Statx,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<DosAttrib> {
        self.remembered(stx).dos_attrib(stx, read)
    }

    /// Returns the size of the extended attributes of a file whose state is `stx`. `read` reads it,
    /// unless there are known to be none.
    pub(crate) fn ea_size(&self, stx: &Statx, read: impl FnOnce() -> Result<u32, Errno>) -> u32 {
        self.remembered(stx).ea_size(read)
    }
}
