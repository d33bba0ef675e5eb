//! Facts from extended attributes of files that have not changed since: they need not be read
//! again.
//!
//! Setting or removing an attribute, changing the mode, the owner or a list: the kernel notes each
//! of these in the time of change, which nobody can set. So a fact holds while that time is the same
//! as when the attribute was read, if that was settled by then: a change within one tick of the
//! kernel's clock may get the same time once more. Since Linux 6.13 it does not, once somebody has
//! read the time. The state of a file is asked for anyway, and so the check costs no call. Whoever
//! changes a file, this process or another, is noticed.
//!
//! A file that this process has just made has the attributes that it wrote, and no others. Another
//! program may have changed them in the few microseconds before the time of change was read, so that
//! is believed for [`TICK_MS`] only, and only where times are exact.
//!
//! This is so on the file systems of [`NOTING`]. On others, and for a user as whom the server works
//! and who may not be allowed to read the attribute, it is read each time.

mod table;

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd};
use std::sync::LazyLock;

use frevo_store::FileKey;
use rustix::fs::{MemfdFlags, Mode, Statx, memfd_create};
use rustix::io::Errno;

use crate::dosattrib::DosAttrib;
use crate::limits::{DOSATTRIB_BYTES, TICK_MS};
use crate::ntacl;
use crate::{memory, mounts, stat, sys};
use table::{Facts, Known, StoredAttributes};

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

/// True if a change of a file beside `root` gets a time of change that nobody has read before
/// (multigrain timestamps, Linux 6.13).
pub(crate) fn are_times_exact(root: BorrowedFd<'_>) -> bool {
    /// True if this kernel has them, as a file in memory shows.
    static KERNEL: LazyLock<bool> = LazyLock::new(|| tells_changes_apart().unwrap_or(false));
    *KERNEL && are_kept(root, true) && kind_of_mount(root).is_some_and(|kind| is_exact(&kind))
}

/// True for the kinds that have them. Of the family of ext4 the older two do not.
fn is_exact(kind: &str) -> bool {
    matches!(kind, "ext4" | "xfs" | "btrfs" | "tmpfs")
}

/// Changes a file with a read of its time before each change. Several pairs of changes fall into
/// different ticks of the clock by chance less than once in a million times.
fn tells_changes_apart() -> Result<bool, Errno> {
    const CHANGES: u32 = 5;
    let file = memfd_create("frevo-times", MemfdFlags::CLOEXEC)?;
    let mut times = Vec::new();
    for change in 0..CHANGES {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o600 | (change & 1) << 6))?;
        let stx = sys::stat_fd(file.as_fd())?;
        times.push((stx.stx_ctime.tv_sec, stx.stx_ctime.tv_nsec));
    }
    Ok(times.windows(2).all(|pair| pair[0] != pair[1]))
}

/// Returns the kind of the mounted file system that `root` is in, as the kernel calls it.
fn kind_of_mount(root: BorrowedFd<'_>) -> Option<String> {
    mounts::kind_of(sys::stat_fd(root).ok()?.stx_mnt_id)
}

/// A time of change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Time {
    /// Seconds since 1970.
    pub(crate) seconds: i64,
    pub(crate) nanoseconds: u32,
}

/// A file as it was at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version {
    key: FileKey,
    changed: Time,
    /// The next change gets another time.
    is_exact: bool,
}

impl Version {
    /// Returns the file `key` as it was after the change at `changed`. `is_exact` is true if the next
    /// change gets another time.
    pub(crate) const fn new(key: FileKey, changed: Time, is_exact: bool) -> Self {
        Self { key, changed, is_exact }
    }

    /// True if a change of the file from now on gets another time.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_exact || self.is_old()
    }

    /// True if the last change was more than a tick of the kernel's clock ago.
    fn is_old(&self) -> bool {
        let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
        let ms = |seconds: i64, nanoseconds: i64| {
            seconds.saturating_mul(1_000).saturating_add(nanoseconds / 1_000_000)
        };
        let Time { seconds, nanoseconds } = self.changed;
        let age = ms(now.tv_sec, now.tv_nsec).saturating_sub(ms(seconds, nanoseconds.into()));
        // Old ext4 inodes store whole seconds, and either timestamp may be cut to a millisecond.
        // `tick` is large enough for both.
        let tick = if nanoseconds == 0 { 2_000 } else { TICK_MS };
        age > tick.cast_signed()
    }
}

static FACTS: Facts = Facts::new();

/// Returns the bytes that the facts of all files take.
pub(crate) fn bytes() -> usize {
    FACTS.bytes()
}

/// Forgets the facts of all files, to free their memory.
pub(crate) fn forget() {
    FACTS.clear();
}

/// Records a fact, unless memory is short.
fn note(version: Version, fact: impl FnOnce(&mut Known)) {
    if !memory::is_paused() {
        FACTS.note(version, fact);
    }
}

/// The bit of an attribute for descriptors.
fn bit(attribute: &CStr) -> u32 {
    if attribute == ntacl::PRIVILEGED { table::PRIVILEGED } else { table::UNPRIVILEGED }
}

/// The facts that were remembered of a file when its state was read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Remembered {
    version: Option<Version>,
    known: Option<Known>,
}

impl Remembered {
    /// Nothing is known, and nothing will be remembered.
    pub(crate) const NOTHING: Self = Self { version: None, known: None };

    pub(crate) fn of(version: Option<Version>) -> Self {
        Self { version, known: version.and_then(|version| FACTS.of(version)) }
    }

    /// Returns DOSATTRIB of the file, whose state is `stx`. `read` reads it, if it is not known.
    pub(crate) fn dos_attrib(
        &self,
        stx: &Statx,
        read: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
    ) -> Option<DosAttrib> {
        if let Some(known) = self.known.and_then(|known| known.dos()) {
            return known.map(StoredAttributes::dos_attrib);
        }
        // `settled` reads the time before the attribute, so that a change during the read gets a
        // later timestamp.
        let settled = self.settled();
        let mut value = [0; DOSATTRIB_BYTES];
        let read = read(&mut value);
        let dos = read.ok().and_then(|len| value.get(..len)).and_then(DosAttrib::decode);
        let dos = dos.map(|dos| dos.with_birth(stat::birth_of(stx)));
        let is_whole = dos.is_none_or(|dos| dos.changed.is_none() && dos.times.is_none());
        if let (Some(version), Ok(_) | Err(Errno::NODATA), true) = (settled, read, is_whole) {
            note(version, |known| known.set_dos(dos.map(StoredAttributes::of)));
        }
        dos
    }

    /// Returns the size of the file's extended attributes. `read` reads it, unless there are known
    /// to be none.
    pub(crate) fn ea_size(&self, read: impl FnOnce() -> Result<u32, Errno>) -> u32 {
        if self.lacks(table::EAS) {
            return 0;
        }
        let settled = self.settled();
        let size = read();
        if let (Some(version), Ok(0)) = (settled, size) {
            note(version, |known| known.set_lack(table::EAS));
        }
        size.unwrap_or(0)
    }

    /// True if nothing has to be read to tell DOSATTRIB and the access to the file.
    pub(crate) fn is_known(&self) -> bool {
        self.lacks(table::PROTECTION) && self.known.is_some_and(|known| known.dos().is_some())
    }

    /// True if no attribute of the file restricts access to it or stores a stream. `read` says so,
    /// if it is not known; None if that could not be read.
    pub(crate) fn is_unprotected(&self, read: impl FnOnce() -> Option<bool>) -> Option<bool> {
        if self.lacks(table::PROTECTION) {
            return Some(true);
        }
        let settled = self.settled();
        let is_unprotected = read();
        if let (Some(version), Some(true)) = (settled, is_unprotected) {
            let all = table::PROTECTION | table::PRIVILEGED | table::UNPRIVILEGED;
            note(version, |known| known.set_lack(all));
        }
        is_unprotected
    }

    fn lacks(&self, bits: u32) -> bool {
        self.known.is_some_and(|known| known.lacks(bits))
    }

    /// Returns the version, if what is read from now on can be remembered.
    fn settled(&self) -> Option<Version> {
        self.version.filter(Version::is_settled)
    }
}

/// Records the facts of a file that this process has just made, and written `dos` to; none where the
/// time of another program's change may equal the version's.
pub(crate) fn note_new(version: Version, dos: Option<DosAttrib>) {
    if !version.is_exact {
        return;
    }
    let dos = dos.map(|dos| Some(StoredAttributes::of(dos)));
    note(version, |known| {
        known.set_new();
        dos.into_iter().for_each(|dos| known.set_dos(dos));
    });
}

/// True if DOSATTRIB of the file is known.
pub(crate) fn knows_dos_attrib(version: Version) -> bool {
    FACTS.of(version).is_some_and(|known| known.dos().is_some())
}

/// True if the file is known not to have this attribute, one of those for descriptors.
pub(crate) fn lacks(version: Version, attribute: &CStr) -> bool {
    FACTS.of(version).is_some_and(|known| known.lacks(bit(attribute)))
}

/// Records that the file does not have this attribute. The version was settled before that was
/// seen.
pub(crate) fn note_lack(version: Version, attribute: &CStr) {
    note(version, |known| known.set_lack(bit(attribute)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(inode: u64, (seconds, nanoseconds): (i64, u32)) -> Version {
        let changed = Time { seconds, nanoseconds };
        Version { key: FileKey::of_file(7, inode), changed, is_exact: false }
    }

    /// Of the kernels that are supported some tell changes apart and some do not, but each always
    /// says the same.
    #[test]
    fn a_kernel_distinguishes_changes_always_or_never() {
        let first = tells_changes_apart().unwrap();
        assert!((0..20).all(|_| tells_changes_apart().unwrap() == first));
        let folder = tempfile::tempdir().unwrap();
        let open = |path: &std::path::Path| std::fs::File::open(path).unwrap();
        let kind = kind_of_mount(open(folder.path()).as_fd()).unwrap();
        assert_eq!(are_times_exact(open(folder.path()).as_fd()), first && is_exact(&kind));
        assert!(!are_times_exact(open(std::path::Path::new("/proc")).as_fd()));
        assert!(!["ext2", "ext3", "overlay", "vfat"].map(is_exact).contains(&true));
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
        // Other programs may have the processor for longer than a tick.
        let times = std::iter::repeat_with(|| {
            let began = std::time::Instant::now();
            let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
            let now = (now.tv_sec, u32::try_from(now.tv_nsec).unwrap().max(1));
            let is_settled = version(1, now).is_settled();
            (began.elapsed().as_millis() < u128::from(TICK_MS / 2)).then_some((now, is_settled))
        });
        let (now, is_settled) = times.flatten().next().unwrap();
        assert!(!is_settled);
        std::thread::sleep(std::time::Duration::from_millis(3 * TICK_MS));
        assert!(version(1, now).is_settled());
    }
}
