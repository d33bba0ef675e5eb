//! Quotas of users in the kernel, by `quotactl_fd(2)`: Linux 5.14. It accepts any descriptor of the
//! file system, so no device must be found.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use frevo_store::Fault;
use frevo_store::vfs::{QuotaLimits, QuotaState, UserQuota, VfsResult};
use rustix::io::Errno;

use crate::fault_of;

/// Q_XGETQSTAT of linux/dqblk_xfs.h, which every file system with quotas answers.
const GET_STATE: u32 = 0x5805;
/// Q_GETQUOTA of linux/quota.h.
const GET: u32 = 0x80_0007;
/// Q_SETQUOTA of linux/quota.h.
const SET: u32 = 0x80_0008;
/// Q_GETNEXTQUOTA of linux/quota.h, Linux 4.6.
const GET_NEXT: u32 = 0x80_0009;
/// USRQUOTA of linux/quota.h.
const OF_USERS: u32 = 0;

/// FS_QUOTA_UDQ_ACCT of linux/dqblk_xfs.h.
const IS_COUNTED: u16 = 1;
/// FS_QUOTA_UDQ_ENFD of linux/dqblk_xfs.h.
const IS_ENFORCED: u16 = 2;

/// QIF_BLIMITS of linux/quota.h: only the limits of space are set.
const LIMITS_OF_SPACE: u32 = 1;

/// XFS_SUPER_MAGIC of linux/magic.h.
const XFS: u64 = 0x5846_5342;
/// The user whose limits are the defaults on XFS.
const ROOT: u32 = 0;

/// QIF_DQBLKSIZE of linux/quota.h: bytes of a block of the limits.
const BLOCK: u64 = 1024;

/// struct fs_quota_stat of linux/dqblk_xfs.h, of which only the flags are read.
#[repr(C)]
#[derive(Default)]
struct FsQuotaStat {
    version: i8,
    flags: u16,
    pad: i8,
    rest: [u64; 9],
}

const _: () = assert!(size_of::<FsQuotaStat>() == 80);

/// struct if_nextdqblk of linux/quota.h. struct if_dqblk has no `id` and the same size.
#[repr(C)]
#[derive(Default)]
struct NextDqblk {
    hard_blocks: u64,
    soft_blocks: u64,
    space: u64,
    hard_inodes: u64,
    soft_inodes: u64,
    inodes: u64,
    block_time: u64,
    inode_time: u64,
    valid: u32,
    id: u32,
}

const _: () = assert!(size_of::<NextDqblk>() == 72);

/// Returns the state of quotas on this file system.
pub(crate) fn state(root: BorrowedFd<'_>) -> VfsResult<Option<QuotaState>> {
    let mut stat = FsQuotaStat::default();
    // SAFETY: Q_XGETQSTAT fills one struct fs_quota_stat, which `stat` is; any bits
    // are valid in it, and nothing is kept.
    let asked = unsafe { quotactl(root, GET_STATE, 0, (&raw mut stat).cast()) };
    match asked {
        Ok(()) => Ok((stat.flags & IS_COUNTED != 0)
            .then_some(QuotaState { is_enforced: stat.flags & IS_ENFORCED != 0 })),
        // These errors mean Linux before 5.14, no quotas, quotas switched off, or a sandbox that
        // forbids the call.
        Err(
            Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::SRCH
            | Errno::INVAL
            | Errno::NOTBLK
            | Errno::PERM,
        ) => Ok(None),
        Err(errno) => Err(fault_of(errno)),
    }
}

/// Returns the quota of a user.
pub(crate) fn get(root: BorrowedFd<'_>, uid: u32) -> VfsResult<Option<UserQuota>> {
    let quota = ask(root, GET, uid)?.filter(KernelQuota::says_something);
    Ok(quota.map(|stored| UserQuota { uid, ..stored.quota }))
}

/// Returns the first quota at or behind this user number.
pub(crate) fn get_from(root: BorrowedFd<'_>, uid: u32) -> VfsResult<Option<UserQuota>> {
    Ok(ask(root, GET_NEXT, uid)?.map(|stored| stored.quota))
}

/// Sets the limits of a user's space. The limit of the number of files stays.
pub(crate) fn set(root: BorrowedFd<'_>, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
    if uid == ROOT && keeps_defaults(root) {
        return Err(Fault::NotSupported);
    }
    limit(root, uid, limits)
}

/// Returns the limits of new users. XFS stores them as those of root, whom it does not limit; other
/// file systems cannot store any.
pub(crate) fn defaults(root: BorrowedFd<'_>) -> VfsResult<Option<QuotaLimits>> {
    if !keeps_defaults(root) {
        return Ok(None);
    }
    let stored = call(root, GET, ROOT)?;
    Ok(Some(stored.map_or_else(QuotaLimits::default, |stored| stored.limits())))
}

/// Sets the limits of new users.
pub(crate) fn set_defaults(root: BorrowedFd<'_>, limits: QuotaLimits) -> VfsResult<()> {
    if keeps_defaults(root) { limit(root, ROOT, limits) } else { Err(Fault::NotSupported) }
}

fn keeps_defaults(root: BorrowedFd<'_>) -> bool {
    // The magic number of XFS is positive, so the conversion does not change its value.
    rustix::fs::fstatfs(root).is_ok_and(|fs| u64::try_from(fs.f_type).is_ok_and(|kind| kind == XFS))
}

/// A quota, and whether the kernel stores more than its space.
struct KernelQuota {
    quota: UserQuota,
    inodes: u64,
}

impl KernelQuota {
    /// True if the kernel stores anything. ext4 also answers for users of whom it stores nothing.
    fn says_something(&self) -> bool {
        let UserQuota { used, threshold, limit, .. } = self.quota;
        (used, self.inodes) != (0, 0) || threshold.is_some() || limit.is_some()
    }
}

fn ask(root: BorrowedFd<'_>, command: u32, uid: u32) -> VfsResult<Option<KernelQuota>> {
    let Some(block) = call(root, command, uid)? else { return Ok(None) };
    // Q_GETQUOTA leaves the id in the block empty, so the id of the request decides whether the
    // entry is that of root.
    let is_root = if command == GET { uid == ROOT } else { block.id == ROOT };
    let limits =
        if is_root && keeps_defaults(root) { QuotaLimits::default() } else { block.limits() };
    let QuotaLimits { threshold, limit } = limits;
    let quota = UserQuota { uid: block.id, used: block.space, threshold, limit };
    Ok(Some(KernelQuota { quota, inodes: block.inodes }))
}

fn call(root: BorrowedFd<'_>, command: u32, uid: u32) -> VfsResult<Option<NextDqblk>> {
    let mut block = NextDqblk::default();
    // SAFETY: Q_GETQUOTA fills one struct if_dqblk and Q_GETNEXTQUOTA one struct
    // if_nextdqblk, neither larger than `block`; any bits are valid in it, and
    // nothing is kept.
    match unsafe { quotactl(root, command, uid, (&raw mut block).cast()) } {
        Ok(()) => Ok(Some(block)),
        // There is no further user, this user has no entry, or quotas are switched off: all three
        // mean "no quota".
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(errno) => Err(fault_of(errno)),
    }
}

fn limit(root: BorrowedFd<'_>, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
    let mut block = NextDqblk {
        hard_blocks: blocks(limits.limit),
        soft_blocks: blocks(limits.threshold),
        valid: LIMITS_OF_SPACE,
        ..NextDqblk::default()
    };
    if block.hard_blocks != 0 {
        // XFS ignores a soft limit above the hard limit, so the soft limit is lowered.
        block.soft_blocks = block.soft_blocks.min(block.hard_blocks);
    }
    // SAFETY: Q_SETQUOTA reads one struct if_dqblk, which `block` begins with, and
    // keeps nothing of it.
    unsafe { quotactl(root, SET, uid, (&raw mut block).cast()) }.map_err(|errno| match errno {
        // ESRCH means that quotas are switched off on this file system.
        Errno::SRCH => Fault::NotSupported,
        errno => fault_of(errno),
    })
}

/// Converts bytes to the kernel's blocks, where 0 means no limit: the smallest limit is one block.
fn blocks(bytes: Option<u64>) -> u64 {
    bytes.map_or(0, |bytes| (bytes / BLOCK).max(1))
}

impl NextDqblk {
    fn limits(&self) -> QuotaLimits {
        // In the kernel's block a limit of 0 means "no limit".
        let bytes = |blocks: u64| (blocks != 0).then(|| blocks.saturating_mul(BLOCK));
        QuotaLimits { threshold: bytes(self.soft_blocks), limit: bytes(self.hard_blocks) }
    }
}

/// # Safety
/// `data` points to what `command` reads or fills.
unsafe fn quotactl(
    root: BorrowedFd<'_>,
    command: u32,
    uid: u32,
    data: *mut libc::c_void,
) -> Result<(), Errno> {
    let command = command << 8 | OF_USERS;
    // SAFETY: the descriptor is open, and the caller guarantees that `data` is valid.
    let done =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, root.as_raw_fd(), command, uid, data) };
    if done == 0 { Ok(()) } else { Err(crate::sys::last_errno()) }
}
