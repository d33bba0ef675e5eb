//! Short names of files that were removed or renamed; the cache of names finds those that exist.

use frevo_store::FileKey;
use frevo_store::short_name::may_be_short;

use crate::dir::Dir;
use crate::share::Share;
use crate::stat;
use crate::sys;

/// Returns a component as text, if it may be a short name.
fn as_short(wanted: &[u8]) -> Option<&str> {
    core::str::from_utf8(wanted).ok().filter(|wanted| may_be_short(wanted))
}

impl Share {
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
