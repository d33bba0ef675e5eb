//! Quotas of users as the kernel keeps them, by `quotactl_fd(2)`: Linux 5.14. It
//! takes any descriptor of the file system, so that no device has to be found.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use frevo_store::vfs::{QuotaState, UserQuota, VfsResult};
use rustix::io::Errno;

use crate::fault_of;

/// Q_XGETQSTAT of linux/dqblk_xfs.h: every file system with quotas answers it.
const GET_STATE: u32 = 0x5805;
/// Q_GETQUOTA of linux/quota.h.
const GET: u32 = 0x80_0007;
/// Q_GETNEXTQUOTA of linux/quota.h, Linux 4.6.
const GET_NEXT: u32 = 0x80_0009;
/// USRQUOTA of linux/quota.h.
const OF_USERS: u32 = 0;

/// FS_QUOTA_UDQ_ACCT of linux/dqblk_xfs.h.
const IS_COUNTED: u16 = 1;
/// FS_QUOTA_UDQ_ENFD of linux/dqblk_xfs.h.
const IS_ENFORCED: u16 = 2;

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
    let quota = ask(root, GET, uid)?;
    Ok(quota.map(|quota| UserQuota { uid, ..quota }))
}

/// The first quota from this user on.
pub(crate) fn get_from(root: BorrowedFd<'_>, uid: u32) -> VfsResult<Option<UserQuota>> {
    ask(root, GET_NEXT, uid)
}

fn ask(root: BorrowedFd<'_>, command: u32, uid: u32) -> VfsResult<Option<UserQuota>> {
    let mut block = NextDqblk::default();
    // SAFETY: Q_GETQUOTA fills one struct if_dqblk and Q_GETNEXTQUOTA one struct
    // if_nextdqblk, neither larger than `block`; any bits are valid in it, and
    // nothing is kept.
    match unsafe { quotactl(root, command, uid, (&raw mut block).cast()) } {
        Ok(()) => {}
        // Nobody any more; nobody by that number; quotas are off.
        Err(Errno::NOENT | Errno::SRCH) => return Ok(None),
        Err(errno) => return Err(fault_of(errno)),
    }
    // 0 is no limit.
    let bytes = |blocks: u64| (blocks != 0).then(|| blocks.saturating_mul(BLOCK));
    Ok(Some(UserQuota {
        uid: block.id,
        used: block.space,
        threshold: bytes(block.soft_blocks),
        limit: bytes(block.hard_blocks),
    }))
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
