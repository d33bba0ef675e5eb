//! Lookup of files by their short names.

use frevo_store::short_name::{may_be_short, short_name};
use frevo_store::{FileKey, vfs::VfsResult};
use rustix::fs::{Mode, OFlags};

use crate::dir::Dir;
use crate::errno::fault_of;
use crate::limits::NAMES_READ_ON_CORE;
use crate::names;
use crate::patience;
use crate::share::Share;
use crate::stat;
use crate::sys;

/// Returns a component as text, if it may be a short name.
fn as_short(wanted: &[u8]) -> Option<&str> {
    core::str::from_utf8(wanted).ok().filter(|wanted| may_be_short(wanted))
}

impl Share {
    /// Returns the entry of `dir` whose short name is `wanted`. Reads the directory.
    pub(crate) fn by_short_name(&self, dir: &Dir, wanted: &[u8]) -> VfsResult<Option<Vec<u8>>> {
        if !self.options.short_names {
            return Ok(None);
        }
        let Some(wanted) = as_short(wanted) else { return Ok(None) };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = sys::open_beneath(dir.fd(), b".", flags, Mode::empty(), false);
        let mut count = 0_usize;
        let mut entries = rustix::fs::Dir::new(fd.map_err(fault_of)?).map_err(fault_of)?;
        while let Some(entry) = entries.read() {
            let entry = entry.map_err(fault_of)?;
            count += 1;
            if count > NAMES_READ_ON_CORE && patience::is_short() {
                return Err(fault_of(patience::give_up()));
            }
            let stored = entry.file_name().to_bytes();
            let short = short_name(&names::map(stored, self.spelling));
            if short.is_some_and(|short| short.eq_ignore_ascii_case(wanted)) {
                return Ok(Some(stored.to_vec()));
            }
        }
        Ok(None)
    }

    /// Returns the long name for a short name that a file had a moment ago.
    pub(crate) fn tunnelled(&self, parent: FileKey, wanted: &[u8]) -> Option<Vec<u8>> {
        let short = as_short(wanted).filter(|_| self.options.short_names)?;
        self.tunnels.take(parent, short)
    }

    /// Remembers the name of an entry that was removed or renamed.
    pub(crate) fn name_went(&self, dir: &Dir, stored: &[u8]) {
        if !self.options.short_names {
            return;
        }
        if let Ok(parent) = sys::stat_fd(dir.fd()) {
            self.tunnels.note(stat::key_of(&parent), stored, self.spelling);
        }
    }
}
