//! Quotas in the kernel: those of users as a server's clients see them, and all of them for the
//! administrator of the host ([`host`]).

pub mod host;
mod kernel;
mod project;
mod subvolume;

use std::os::fd::BorrowedFd;

use frevo_store::Fault;
use frevo_store::vfs::{QuotaLimits, QuotaState, UserQuota, VfsResult};
use rustix::io::Errno;

use crate::fault_of;
use kernel::{LIMITS_OF_SPACE, NextDqblk, Subject, Upkeep, Wanted, blocks, bytes};

/// XFS_SUPER_MAGIC of linux/magic.h.
const XFS: u64 = 0x5846_5342;
/// The user whose limits are the defaults on XFS.
const ROOT: u32 = 0;

/// Returns the state of quotas on this file system.
pub(crate) fn state(root: BorrowedFd<'_>) -> VfsResult<Option<QuotaState>> {
    let upkeep = kernel::upkeep(root, Subject::User).map_err(fault_of)?;
    Ok(upkeep.map(|upkeep| QuotaState { is_enforced: upkeep == Upkeep::Enforced }))
}

/// Returns the quota of a user.
pub(crate) fn get(root: BorrowedFd<'_>, uid: u32) -> VfsResult<Option<UserQuota>> {
    let quota = ask(root, Wanted::Of(uid))?.filter(KernelQuota::says_something);
    Ok(quota.map(|stored| stored.quota))
}

/// Returns the first quota at or behind this user number.
pub(crate) fn get_from(root: BorrowedFd<'_>, uid: u32) -> VfsResult<Option<UserQuota>> {
    Ok(ask(root, Wanted::From(uid))?.map(|stored| stored.quota))
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
    let stored = call(root, Wanted::Of(ROOT))?;
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

fn ask(root: BorrowedFd<'_>, wanted: Wanted) -> VfsResult<Option<KernelQuota>> {
    let Some(block) = call(root, wanted)? else { return Ok(None) };
    let is_default = block.id == ROOT && keeps_defaults(root);
    let limits = if is_default { QuotaLimits::default() } else { block.limits() };
    let QuotaLimits { threshold, limit } = limits;
    let quota = UserQuota { uid: block.id, used: block.space, threshold, limit };
    Ok(Some(KernelQuota { quota, inodes: block.inodes }))
}

fn call(root: BorrowedFd<'_>, wanted: Wanted) -> VfsResult<Option<NextDqblk>> {
    kernel::entry(root, Subject::User, wanted).map_err(fault_of)
}

fn limit(root: BorrowedFd<'_>, uid: u32, limits: QuotaLimits) -> VfsResult<()> {
    let block = NextDqblk {
        hard_blocks: blocks(limits.limit),
        soft_blocks: blocks(limits.threshold),
        valid: LIMITS_OF_SPACE,
        ..NextDqblk::default()
    };
    kernel::set(root, Subject::User, uid, block).map_err(|errno| match errno {
        // ESRCH means that quotas are switched off on this file system.
        Errno::SRCH => Fault::NotSupported,
        errno => fault_of(errno),
    })
}

impl NextDqblk {
    fn limits(&self) -> QuotaLimits {
        QuotaLimits { threshold: bytes(self.soft_blocks), limit: bytes(self.hard_blocks) }
    }
}
