//! Facts learned about each mounted file system.
//!
//! Only a trial shows whether a file system supports calls that must not wait. The first read and
//! the first write on each device try; all others of the process use the result.

use std::collections::HashMap;
use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use rustix::fs::FileType;

use crate::limits::{
    BLOCKING_CALLS_PER_MOUNT_MAX, INLINE_WRITE_AWAY_MAX, INLINE_WRITE_AWAY_MIN, INLINE_WRITE_STALL,
    INLINE_WRITES_WATCHED, MOUNTS_MAX, RING_OPS_PER_MOUNT_MAX,
};
use crate::permits::Permits;

/// The result of trying a call on a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Learned {
    /// The call has not been tried yet.
    Unknown,
    /// The call has worked.
    Yes,
    /// The file system or the kernel refused it.
    No,
}

/// A [`Learned`] for all cores.
struct Lesson(AtomicU8);

impl Lesson {
    const fn new() -> Self {
        Self(AtomicU8::new(Learned::Unknown as u8))
    }

    fn learned(&self) -> Learned {
        match self.0.load(Ordering::Relaxed) {
            1 => Learned::Yes,
            2 => Learned::No,
            _ => Learned::Unknown,
        }
    }

    fn learn(&self, what: Learned) {
        if self.learned() != what {
            self.0.store(what as u8, Ordering::Relaxed);
        }
    }
}

/// The kind of storage behind a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Medium {
    /// Memory: the file system is the page cache, and no call waits for a device.
    Memory,
    /// A local disk behind the page cache: a buffered write is a copy, unless the kernel slows its
    /// writer down.
    Disk,
    /// A server or a process: any call may wait for long.
    Remote,
}

/// One mounted file system, identified by its device number.
pub struct Mount {
    device: u64,
    magic: u64,
    medium: Medium,
    read_nowait: Lesson,
    write_nowait: Lesson,
    cachestat: Lesson,
    dontcache: Lesson,
    /// Until when writes leave the core, and the length of that time.
    away: Mutex<Option<(Instant, Duration)>>,
    /// True if `away` has ever been set.
    ever_away: AtomicBool,
    /// Number of writes on the core that are still watched closely.
    suspicion: AtomicU32,
    pub(super) ring_ops: Permits,
    pub(super) blocking_calls: Permits,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    reads_inline: AtomicU64,
    reads_off_core: AtomicU64,
    writes_inline: AtomicU64,
    writes_off_core: AtomicU64,
    write_stalls: AtomicU64,
}

/// Facts about a mount, for logs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountReport {
    /// Device number, as in `stat`.
    pub device: u64,
    /// Name of the file system, or its magic number.
    pub file_system: String,
    /// The kind of storage.
    pub medium: Medium,
    /// Result of trying reads that must not wait.
    pub reads_nowait: Learned,
    /// Result of trying writes that must not wait.
    pub writes_nowait: Learned,
    /// Number of reads done on the core.
    pub reads_inline: u64,
    /// Number of reads that left the core.
    pub reads_off_core: u64,
    /// Number of writes done on the core.
    pub writes_inline: u64,
    /// Number of writes that left the core.
    pub writes_off_core: u64,
    /// Number of writes on the core that took too long.
    pub write_stalls: u64,
}

static MOUNTS: Mutex<Option<HashMap<u64, Arc<Mount>>>> = Mutex::new(None);

/// Returns reports about all known mounts, by device.
#[must_use]
pub fn mounts() -> Vec<MountReport> {
    let known = MOUNTS.lock();
    let mut reports: Vec<MountReport> =
        known.iter().flat_map(HashMap::values).map(|mount| mount.report()).collect();
    reports.sort_by_key(|report| report.device);
    reports
}

impl Mount {
    /// Returns the mount of a regular file.
    pub(super) fn of(fd: BorrowedFd<'_>) -> io::Result<Arc<Self>> {
        let stat = rustix::fs::fstat(fd)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
        }
        Self::at(stat.st_dev, fd)
    }

    /// Returns the mount `device`, which contains `fd`.
    pub(super) fn at(device: u64, fd: BorrowedFd<'_>) -> io::Result<Arc<Self>> {
        if let Some(mount) = MOUNTS.lock().get_or_insert_default().get(&device) {
            return Ok(Arc::clone(mount));
        }
        // The file system is queried before the lock is taken, because a file server that hangs
        // would block all mounts.
        let magic = rustix::fs::fstatfs(fd)?.f_type as u64;
        let mut known = MOUNTS.lock();
        let known = known.get_or_insert_default();
        // Mounts beyond the limit share one entry (u64::MAX).
        let device = if known.len() < MOUNTS_MAX { device } else { u64::MAX };
        let mount = known.entry(device).or_insert_with(|| Arc::new(Self::new(device, magic)));
        Ok(Arc::clone(mount))
    }

    fn new(device: u64, magic: u64) -> Self {
        Self {
            device,
            magic,
            medium: medium_of(magic),
            read_nowait: Lesson::new(),
            write_nowait: Lesson::new(),
            cachestat: Lesson::new(),
            dontcache: Lesson::new(),
            away: Mutex::new(None),
            ever_away: AtomicBool::new(false),
            suspicion: AtomicU32::new(0),
            ring_ops: Permits::new(RING_OPS_PER_MOUNT_MAX),
            blocking_calls: Permits::new(BLOCKING_CALLS_PER_MOUNT_MAX),
            counters: Counters::default(),
        }
    }

    /// A mount with the same facts to learn, and calls of its own.
    #[cfg(test)]
    pub(super) fn like(other: &Self) -> Self {
        Self::new(other.device, other.magic)
    }

    /// Returns the kind of storage.
    #[must_use]
    pub fn medium(&self) -> Medium {
        self.medium
    }

    /// Returns the facts and counts of the mount.
    #[must_use]
    pub fn report(&self) -> MountReport {
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        MountReport {
            device: self.device,
            file_system: name_of(self.magic),
            medium: self.medium,
            reads_nowait: self.read_nowait.learned(),
            writes_nowait: self.write_nowait.learned(),
            reads_inline: count(&self.counters.reads_inline),
            reads_off_core: count(&self.counters.reads_off_core),
            writes_inline: count(&self.counters.writes_inline),
            writes_off_core: count(&self.counters.writes_off_core),
            write_stalls: count(&self.counters.write_stalls),
        }
    }

    pub(super) fn may_read_nowait(&self) -> bool {
        self.read_nowait.learned() != Learned::No
    }

    pub(super) fn learn_read_nowait(&self, works: bool) {
        self.read_nowait.learn(if works { Learned::Yes } else { Learned::No });
    }

    pub(super) fn may_write_nowait(&self) -> bool {
        self.write_nowait.learned() != Learned::No
    }

    pub(super) fn learn_write_nowait(&self, works: bool) {
        self.write_nowait.learn(if works { Learned::Yes } else { Learned::No });
    }

    pub(super) fn may_cachestat(&self) -> bool {
        self.cachestat.learned() != Learned::No
    }

    pub(super) fn learn_cachestat(&self, works: bool) {
        self.cachestat.learn(if works { Learned::Yes } else { Learned::No });
    }

    /// True if data may be moved with `RWF_DONTCACHE`. In memory there is nothing but the cache.
    pub(super) fn may_dontcache(&self) -> bool {
        self.medium == Medium::Disk && self.dontcache.learned() != Learned::No
    }

    /// Learns from a call with `RWF_DONTCACHE`. One file's refusal, as of a file on persistent memory,
    /// is not that of all.
    pub(super) fn learn_dontcache(&self, works: bool) {
        match works {
            true => self.dontcache.learn(Learned::Yes),
            false if self.dontcache.learned() == Learned::Unknown => {
                self.dontcache.learn(Learned::No);
            }
            false => {}
        }
    }

    pub(super) fn count_read(&self, inline: bool) {
        let counters = &self.counters;
        let counter = if inline { &counters.reads_inline } else { &counters.reads_off_core };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_write(&self, inline: bool) {
        let counters = &self.counters;
        let counter = if inline { &counters.writes_inline } else { &counters.writes_off_core };
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// True if buffered writes may run on the core at `now`.
    pub(super) fn may_write_inline(&self, now: Instant) -> bool {
        match self.medium {
            Medium::Memory => true,
            Medium::Disk if !self.ever_away.load(Ordering::Relaxed) => true,
            Medium::Disk => self.away.lock().is_none_or(|(until, _)| until <= now),
            Medium::Remote => false,
        }
    }

    /// True if the next write on the core should be watched for sleep, not only for time.
    pub(super) fn is_suspect(&self) -> bool {
        self.suspicion.load(Ordering::Relaxed) > 0
    }

    /// Learns from a write on the core from `began` to `now`. A first slow write only raises
    /// suspicion, because other threads may have had the processor. A watched write that was slow
    /// and slept sends later writes off the core for a while.
    pub(super) fn wrote_inline(&self, began: Instant, now: Instant, slept: Option<bool>) {
        let suspicion = self.suspicion.load(Ordering::Relaxed);
        if now.saturating_duration_since(began) < INLINE_WRITE_STALL {
            if suspicion > 0 {
                // If another core changes this counter at the same time, one of the two changes is
                // lost, which is harmless.
                self.suspicion.store(suspicion - 1, Ordering::Relaxed);
            }
            return;
        }
        self.suspicion.store(INLINE_WRITES_WATCHED, Ordering::Relaxed);
        if slept == Some(true) {
            self.counters.write_stalls.fetch_add(1, Ordering::Relaxed);
            self.send_away(began, now);
        }
    }

    fn send_away(&self, began: Instant, now: Instant) {
        let mut away = self.away.lock();
        let period = match *away {
            // Writing inline was slow again soon after the last pause, so the next pause is twice
            // as long, up to a maximum.
            Some((until, last)) if began.saturating_duration_since(until) < last => last * 2,
            _ => INLINE_WRITE_AWAY_MIN,
        };
        let period = period.min(INLINE_WRITE_AWAY_MAX);
        *away = Some((now + period, period));
        self.ever_away.store(true, Ordering::Relaxed);
    }
}

impl fmt::Debug for Mount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.report().fmt(f)
    }
}

/// Known file systems: magic number, name, kind of storage. Any other one counts as a disk when its
/// writes are first tried on the core; a wrong guess shows in the time they take, and is corrected.
const FILE_SYSTEMS: &[(u64, &str, Medium)] = &[
    (0x0102_1994, "tmpfs", Medium::Memory),
    (0x8584_58f6, "ramfs", Medium::Memory),
    (0xef53, "ext4", Medium::Disk),
    (0x5846_5342, "xfs", Medium::Disk),
    (0x9123_683e, "btrfs", Medium::Disk),
    (0xca45_1a4e, "bcachefs", Medium::Disk),
    (0xf2f5_2010, "f2fs", Medium::Disk),
    (0x2fc1_2fc1, "zfs", Medium::Disk),
    (0x794c_7630, "overlay", Medium::Disk),
    (0x4d44, "vfat", Medium::Disk),
    (0x2011_bab0, "exfat", Medium::Disk),
    (0x7366_746e, "ntfs3", Medium::Disk),
    (0x6573_5546, "fuse", Medium::Remote),
    (0x6969, "nfs", Medium::Remote),
    (0xff53_4d42, "cifs", Medium::Remote),
    (0xfe53_4d42, "smb2", Medium::Remote),
    (0x00c3_6400, "ceph", Medium::Remote),
    (0x0102_1997, "9p", Medium::Remote),
    (0x6165_676c, "pstore", Medium::Remote),
    (0x0bd0_0bd0, "lustre", Medium::Remote),
    (0x4750_4653, "gpfs", Medium::Remote),
    (0x7461_636f, "ocfs2", Medium::Remote),
    (0x0116_1970, "gfs2", Medium::Remote),
];

fn medium_of(magic: u64) -> Medium {
    let known = FILE_SYSTEMS.iter().find(|known| known.0 == magic & 0xffff_ffff);
    known.map_or(Medium::Disk, |known| known.2)
}

/// Returns the kind of storage of a file.
///
/// # Errors
/// The error of `fstatfs`.
pub fn medium_at(file: BorrowedFd<'_>) -> io::Result<Medium> {
    Ok(medium_of(rustix::fs::fstatfs(file)?.f_type as u64))
}

fn name_of(magic: u64) -> String {
    let known = FILE_SYSTEMS.iter().find(|known| known.0 == magic & 0xffff_ffff);
    known.map_or_else(|| format!("{:#x}", magic & 0xffff_ffff), |known| known.1.to_owned())
}

/// True for an error that means "never", not "not now".
pub(super) fn refuses(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOSYS | libc::EPERM))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stall_sends_writes_away_longer_each_time() {
        let mount = Mount::new(1, 0xef53);
        let start = Instant::now();
        assert!(mount.may_write_inline(start));
        let slept = Some(true);
        mount.wrote_inline(start, start + INLINE_WRITE_STALL - Duration::from_nanos(1), slept);
        assert!(mount.may_write_inline(start + INLINE_WRITE_STALL));

        let mut now = start;
        for expected in [1, 2, 4, 8, 16, 32, 64, 64, 64] {
            let ended = now + INLINE_WRITE_STALL;
            mount.wrote_inline(now, ended, slept);
            let back = ended + Duration::from_secs(expected);
            assert!(!mount.may_write_inline(back - Duration::from_nanos(1)), "{expected}");
            assert!(mount.may_write_inline(back), "{expected}");
            now = back;
        }
        assert_eq!(mount.report().write_stalls, 9);
        // Long after the last stall earlier stalls are forgotten, so the pause has its minimum
        // again.
        let later = now + Duration::from_secs(1000);
        mount.wrote_inline(later, later + INLINE_WRITE_STALL, slept);
        let back = later + INLINE_WRITE_STALL + INLINE_WRITE_AWAY_MIN;
        assert!(mount.may_write_inline(back));
    }

    #[test]
    fn a_thread_that_gave_way_is_no_slow_disk() {
        let mount = Mount::new(1, 0xef53);
        let start = Instant::now();
        let late = start + INLINE_WRITE_STALL;
        assert!(!mount.is_suspect());
        mount.wrote_inline(start, late, None);
        assert!(mount.is_suspect() && mount.may_write_inline(late));
        mount.wrote_inline(start, late, Some(false));
        assert!(mount.is_suspect() && mount.may_write_inline(late));
        for _ in 0..INLINE_WRITES_WATCHED {
            assert!(mount.is_suspect());
            mount.wrote_inline(start, start, Some(true));
        }
        assert!(!mount.is_suspect() && mount.may_write_inline(late));
        assert_eq!(mount.report().write_stalls, 0);
    }

    #[test]
    fn media_are_known_by_their_magic() {
        assert_eq!(medium_of(0x0102_1994), Medium::Memory);
        assert_eq!(medium_of(0x6573_5546), Medium::Remote);
        // On 32-bit systems statfs(2) returns the magic number with its sign extended.
        assert_eq!(medium_of(0xffff_ffff_9123_683e), Medium::Disk);
        assert_eq!(name_of(0x1234), "0x1234");
        let remote = Mount::new(1, 0x6969);
        assert!(!remote.may_write_inline(Instant::now()));
    }
}
