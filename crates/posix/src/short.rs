//! Lookup of files by their short names, and a short memory of removed names.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use frevo_store::short_name::{may_be_short, short_name};
use frevo_store::{FileKey, vfs::VfsResult};
use parking_lot::Mutex;
use rustix::fs::{Mode, OFlags};

use crate::errno::fault_of;
use crate::limits::{NAMES_READ_ON_CORE, TUNNELS};
use crate::names;
use crate::patience;
use crate::share::Share;
use crate::stat;
use crate::sys;
use crate::walk::Dir;

/// Time for which a removed name is remembered, MS-FSA 2.1.1.2.
const TUNNEL_AGE: Duration = Duration::from_secs(15);

/// Volume.TunnelCacheList for names: a client that removes or renames a file and soon creates one
/// by its short name means the long name again. Programs that know only short names save files in
/// this way.
#[derive(Debug, Default)]
pub(crate) struct Tunnels(Mutex<VecDeque<Tunnel>>);

#[derive(Debug)]
struct Tunnel {
    since: Instant,
    parent: FileKey,
    short: String,
    long: Vec<u8>,
}

impl Tunnels {
    fn note(&self, parent: FileKey, long: &[u8]) {
        let Some(short) = short_name(&names::map(long)) else { return };
        let mut all = self.0.lock();
        all.retain(|tunnel| tunnel.since.elapsed() < TUNNEL_AGE);
        if all.len() >= TUNNELS {
            all.pop_front();
        }
        all.push_back(Tunnel { since: Instant::now(), parent, short, long: long.to_vec() });
    }

    fn take(&self, parent: FileKey, short: &str) -> Option<Vec<u8>> {
        let mut all = self.0.lock();
        let is_meant = |tunnel: &Tunnel| {
            tunnel.parent == parent
                && tunnel.short.eq_ignore_ascii_case(short)
                && tunnel.since.elapsed() < TUNNEL_AGE
        };
        let at = all.iter().rposition(is_meant)?;
        all.remove(at).map(|tunnel| tunnel.long)
    }
}

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
            let short = short_name(&names::map(stored));
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
            self.tunnels.note(stat::key_of(&parent), stored);
        }
    }
}
