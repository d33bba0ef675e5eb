//! Facts from extended attributes of files that have not changed since: they need not be read
//! again.
//!
//! Setting or removing an attribute, changing the mode, the owner or a list: the kernel notes each
//! of these in the time of change, which nobody can set. So a fact holds while that time is the same
//! as when the attribute was read, if that was settled by then: a change within one tick of the
//! kernel's clock may get the same time once more. The state of a file is asked for anyway, and so
//! the check costs no call. Whoever changes a file, this process or another, is noticed.
//!
//! This is so on the file systems of [`NOTING`]. On others, and for a user as whom the server works
//! and who may not be allowed to read the attribute, it is read each time.

use std::ffi::CStr;
use std::os::fd::BorrowedFd;
use std::sync::LazyLock;

use frevo_store::FileKey;
use frevo_wire::dtyp::FileTime;
use hashbrown::HashMap;
use parking_lot::Mutex;
use rustix::fs::Statx;
use rustix::io::Errno;

use crate::dosattrib::DosAttrib;
use crate::limits::{DOSATTRIB_BYTES, KNOWN_FILES, TICK_MS};
use crate::ntacl;
use crate::share::Share;
use crate::{credentials, stat};

/// File systems that note a change of an extended attribute in the time of change, by f_type.
const NOTING: [u64; 3] = [
    0xEF53,      // ext2, ext3, ext4
    0x5846_5342, // xfs
    0x9123_683E, // btrfs
];

/// tmpfs notes it since Linux 6.1.
const TMPFS: u64 = 0x0102_1994;

/// True if the time of change of the files beside `root` tells of their attributes. `is_recent` is
/// true for Linux 6.13 and later.
pub(crate) fn are_kept(root: BorrowedFd<'_>, is_recent: bool) -> bool {
    rustix::fs::fstatfs(root).is_ok_and(|fs| {
        let kind = fs.f_type as u64;
        NOTING.contains(&kind) || is_recent && kind == TMPFS
    })
}

/// Seconds and nanoseconds.
type Time = (i64, u32);

/// A file as it was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    key: FileKey,
    changed: Time,
}

impl Version {
    /// True if a change of the file from now on gets another time.
    pub(crate) fn is_settled(&self) -> bool {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let ms = |seconds: i64, nanoseconds: i64| {
            seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000)
        };
        let (seconds, nanoseconds) = self.changed;
        let age = ms(now.tv_sec, now.tv_nsec).saturating_sub(ms(seconds, nanoseconds.into()));
        // Old forms of ext4's inodes have seconds only. The rest of a millisecond may be missing on
        // either side.
        let tick = if nanoseconds == 0 { 2_000 } else { TICK_MS };
        age > tick.cast_signed()
    }
}

/// The part of DOSATTRIB that is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Kept {
    attributes: u32,
    created: Option<FileTime>,
}

/// The facts of one file.
#[derive(Debug, Clone, Copy)]
struct Known {
    changed: Time,
    /// DOSATTRIB, once it was read.
    dos: Option<Option<Kept>>,
    /// Bits of the attributes for descriptors that are known to be absent.
    absent: u8,
}

const SHARDS: usize = 64;

/// The facts of all files of this process.
struct Facts([Mutex<HashMap<FileKey, Known>>; SHARDS]);

static FACTS: LazyLock<Facts> = LazyLock::new(|| Facts(std::array::from_fn(|_| Mutex::default())));

impl Facts {
    fn shard(&self, key: FileKey) -> &Mutex<HashMap<FileKey, Known>> {
        let spread = (key.inode ^ key.device).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.0[(spread >> 58) as usize % SHARDS]
    }

    fn of(&self, version: Version) -> Option<Known> {
        let shard = self.shard(version.key).lock();
        shard.get(&version.key).copied().filter(|known| known.changed == version.changed)
    }

    fn note(&self, version: Version, fact: impl FnOnce(&mut Known)) {
        let mut shard = self.shard(version.key).lock();
        if shard.len() >= KNOWN_FILES / SHARDS && !shard.contains_key(&version.key) {
            let some = shard.keys().next().copied();
            some.map(|key| shard.remove(&key));
        }
        let new = Known { changed: version.changed, dos: None, absent: 0 };
        let known = shard.entry(version.key).or_insert(new);
        if known.changed != version.changed {
            *known = new;
        }
        fact(known);
    }
}

/// The bit of an attribute for descriptors.
fn bit(attribute: &CStr) -> u8 {
    if attribute == ntacl::PRIVILEGED { 1 } else { 2 }
}

impl Share {
    /// Returns the version of a file with this state; None where attributes are read each time.
    pub(crate) fn version(&self, stx: &Statx) -> Option<Version> {
        let key = stat::key_of(stx);
        let is_noted = self.keeps_facts && key.device == self.home && !credentials::is_acting();
        let changed = (stx.stx_ctime.tv_sec, stx.stx_ctime.tv_nsec);
        is_noted.then_some(Version { key, changed })
    }

    /// Returns DOSATTRIB of a file whose state is `stx`. `read` reads it, if it is not known.
    pub(crate) fn dos_attrib(
        &self,
        stx: &Statx,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<DosAttrib> {
        let version = self.version(stx);
        if let Some(known) = version.and_then(|version| FACTS.of(version)?.dos) {
            let dos =
                |Kept { attributes, created }| DosAttrib { attributes, created, changed: None };
            return known.map(dos);
        }
        // Before it is read: what changes meanwhile gets another time.
        let settled = version.filter(Version::is_settled);
        let mut value = [0; DOSATTRIB_BYTES];
        let read = read(&mut value);
        let dos = read.ok().and_then(|len| value.get(..len)).and_then(DosAttrib::decode);
        let is_whole = dos.is_none_or(|dos| dos.changed.is_none());
        if let (Some(version), Ok(_) | Err(Errno::NODATA), true) = (settled, read, is_whole) {
            let kept = dos.map(|dos| Kept { attributes: dos.attributes, created: dos.created });
            FACTS.note(version, |known| known.dos = Some(kept));
        }
        dos
    }
}

/// True if the file is known not to have this attribute, one of those for descriptors.
pub(crate) fn lacks(version: Version, attribute: &CStr) -> bool {
    FACTS.of(version).is_some_and(|known| known.absent & bit(attribute) != 0)
}

/// Records that the file does not have this attribute. The version was settled before that was
/// seen.
pub(crate) fn note_lack(version: Version, attribute: &CStr) {
    FACTS.note(version, |known| known.absent |= bit(attribute));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(inode: u64, changed: Time) -> Version {
        Version { key: FileKey::of_file(7, inode), changed }
    }

    /// At n - 1, n and n + 1 files for each shard, and at many more.
    #[test]
    fn facts_are_bounded() {
        let facts = Facts(std::array::from_fn(|_| Mutex::default()));
        let len = || facts.0.iter().map(|shard| shard.lock().len()).sum::<usize>();
        let most = KNOWN_FILES / SHARDS;
        let first = version(1, (1, 1));
        let same: Vec<Version> = (1..)
            .map(|inode| version(inode, (1, 1)))
            .filter(|other| std::ptr::eq(facts.shard(other.key), facts.shard(first.key)))
            .take(most + 1)
            .collect();
        for (at, version) in same.iter().enumerate() {
            facts.note(*version, |known| known.absent = 1);
            assert_eq!(len(), most.min(at + 1));
            assert_eq!(facts.of(*version).map(|known| known.absent), Some(1));
        }
        (0..100_000).for_each(|inode| facts.note(version(inode, (1, 1)), |known| known.absent = 1));
        assert!(len() <= KNOWN_FILES, "{}", len());
    }

    #[test]
    fn another_version_has_no_facts_of_the_last() {
        let facts = Facts(std::array::from_fn(|_| Mutex::default()));
        let (old, new) = (version(1, (1, 1)), version(1, (1, 2)));
        facts.note(old, |known| known.absent = 1);
        assert!(facts.of(old).is_some() && facts.of(new).is_none());
        facts.note(new, |known| known.dos = Some(None));
        assert_eq!(facts.of(new).map(|known| (known.absent, known.dos)), Some((0, Some(None))));
        assert!(facts.of(old).is_none());
    }

    #[test]
    fn a_time_is_settled_when_the_next_change_has_another() {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime).tv_sec;
        for (changed, settled) in [
            ((now - 5, 0), true),
            ((now - 5, 1), true),
            ((now - 1, 0), false),
            ((now + 5, 1), false),
            ((i64::MIN, 1), true),
            ((i64::MAX, 1), false),
        ] {
            assert_eq!(version(1, changed).is_settled(), settled, "{changed:?}");
        }
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
        let now = (now.tv_sec, u32::try_from(now.tv_nsec).unwrap().max(1));
        assert!(!version(1, now).is_settled());
        std::thread::sleep(std::time::Duration::from_millis(3 * TICK_MS));
        assert!(version(1, now).is_settled());
    }
}
