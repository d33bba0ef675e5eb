//! Quotas of users as the kernel keeps and takes them, by `quotactl_fd(2)`: Linux 5.14. It
//! takes any descriptor of the file system, so that no device has to be found.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use frevo_store::Fault;
use frevo_store::vfs::{QuotaLimits, QuotaState, UserQuota, VfsResult};
use rustix::io::Errno;

use crate::fault_of;

/// Q_XGETQSTAT of linux/dqblk_xfs.h: every file system with quotas answers it.
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

/// QIF_BLIMITS of linux/quota.h: the limits of space alone are set.
const LIMITS_OF_SPACE: u32 = 1;

/// XFS_SUPER_MAGIC of linux/magic.h.
const XFS: u64 = 0x5846_5342;
/// Whose limits are everyone's on XFS.
const ROOT: u32 = 0;

/// QIF_DQBLKSIZE of linux/quota.h: bytes of a block of the limits.
const BLOCK: u64 = 1024;

/// struct fs_quota_stat of linux/dqblk_xfs.h, of which the flags are read.
#[repr(C)]
#[derive(Default)]
struct FsQuotaStat {
    version: i8,
    flags: u16,
    pad: i8,
    rest: [u64; 9],
}

const _: () = assert!(size_of::<FsQuotaStat>() == 80);

/// struct if_nextdqblk of linux/quota.h; struct if_dqblk is the same without `id`,
/// in the same number of bytes.
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

/// What this file system does about the quotas of users.
pub(crate) fn state(root: BorrowedFd<'_>) -> VfsResult<Option<QuotaState>> {
    let mut stat = FsQuotaStat::default();
    // SAFETY: Q_XGETQSTAT fills one struct fs_quota_stat, which `stat` is; any bits
    // are valid in it, and nothing is kept.
    let asked = unsafe { quotactl(root, GET_STATE, 0, (&raw mut stat).cast()) };
    match asked {
        Ok(()) => Ok((stat.flags & IS_COUNTED != 0)
            .then_some(QuotaState { is_enforced: stat.flags & IS_ENFORCED != 0 })),
        // Before Linux 5.14, a kernel or file system without quotas, or they are off;
        // a sandbox that forbids the call.
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

/// The quota of a user.
pub(crate) fn get(root: BorrowedFd<'_>, uid: u32) -> VfsResult<Option<UserQuota>> {
    let quota = ask(root, GET, uid)?.filter(Kept::says_something);
    Ok(quota.map(|kept| UserQuota { uid, ..kept.quota }))
}

/// The first quota from this user on.
pub(crate) fn get_from(root: BorrowedFd<'_>, uid: u32) -> VfsResult<Option<UserQuota>> {
    Ok(ask(root, GET_NEXT, uid)?.map(|kept| kept.quota))
}

/// Limits the space of a user; how many files he may have stays as it is.
pub(crate) fn set(root: BorrowedFd<'_>, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
    if uid == ROOT && keeps_defaults(root) {
        return Err(Fault::NotSupported);
    }
    limit(root, uid, limits)
}

/// The limits of whoever is new. XFS keeps them as those of root, whom it does not
/// limit; the others have no place for any.
pub(crate) fn defaults(root: BorrowedFd<'_>) -> VfsResult<Option<QuotaLimits>> {
    if !keeps_defaults(root) {
        return Ok(None);
    }
    let kept = call(root, GET, ROOT)?;
    Ok(Some(kept.map_or_else(QuotaLimits::default, |kept| kept.limits())))
}

/// Limits whoever is new.
pub(crate) fn set_defaults(root: BorrowedFd<'_>, limits: QuotaLimits) -> VfsResult<()> {
    if keeps_defaults(root) { limit(root, ROOT, limits) } else { Err(Fault::NotSupported) }
}

fn keeps_defaults(root: BorrowedFd<'_>) -> bool {
    // XFS's number is positive in each width that the field has.
    rustix::fs::fstatfs(root).is_ok_and(|fs| u64::try_from(fs.f_type).is_ok_and(|kind| kind == XFS))
}

/// A quota, and whether the kernel knows of more than its space.
struct Kept {
    quota: UserQuota,
    inodes: u64,
}

impl Kept {
    /// ext4 answers for everybody, also for those of whom it keeps nothing.
    fn says_something(&self) -> bool {
        let UserQuota { used, threshold, limit, .. } = self.quota;
        (used, self.inodes) != (0, 0) || threshold.is_some() || limit.is_some()
    }
}

fn ask(root: BorrowedFd<'_>, command: u32, uid: u32) -> VfsResult<Option<Kept>> {
    let Some(block) = call(root, command, uid)? else { return Ok(None) };
    // GET leaves no number there.
    let is_root = if command == GET { uid == ROOT } else { block.id == ROOT };
    let limits =
        if is_root && keeps_defaults(root) { QuotaLimits::default() } else { block.limits() };
    let QuotaLimits { threshold, limit } = limits;
    let quota = UserQuota { uid: block.id, used: block.space, threshold, limit };
    Ok(Some(Kept { quota, inodes: block.inodes }))
}

fn call(root: BorrowedFd<'_>, command: u32, uid: u32) -> VfsResult<Option<NextDqblk>> {
    let mut block = NextDqblk::default();
    // SAFETY: Q_GETQUOTA fills one struct if_dqblk and Q_GETNEXTQUOTA one struct
    // if_nextdqblk, neither larger than `block`; any bits are valid in it, and
    // nothing is kept.
    match unsafe { quotactl(root, command, uid, (&raw mut block).cast()) } {
        Ok(()) => Ok(Some(block)),
        // Nobody any more; nobody by that number; quotas are off.
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
        // XFS sets nothing, and says that it did, where the soft limit is above.
        block.soft_blocks = block.soft_blocks.min(block.hard_blocks);
    }
    // SAFETY: Q_SETQUOTA reads one struct if_dqblk, which `block` begins with, and
    // keeps nothing of it.
    unsafe { quotactl(root, SET, uid, (&raw mut block).cast()) }.map_err(|errno| match errno {
        // Quotas are off.
        Errno::SRCH => Fault::NotSupported,
        errno => fault_of(errno),
    })
}

/// Bytes as the kernel is told them, where 0 is no limit: the least that can be
/// allowed is a block.
fn blocks(bytes: Option<u64>) -> u64 {
    bytes.map_or(0, |bytes| (bytes / BLOCK).max(1))
}

impl NextDqblk {
    fn limits(&self) -> QuotaLimits {
        // 0 is no limit.
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
    // SAFETY: the descriptor is open, and the caller vouches for `data`.
    let done =
        unsafe { libc::syscall(libc::SYS_quotactl_fd, root.as_raw_fd(), command, uid, data) };
    if done == 0 { Ok(()) } else { Err(crate::sys::last_errno()) }
}
