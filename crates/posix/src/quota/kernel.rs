//! The kernel's calls about quotas: `quotactl_fd(2)`, Linux 5.14. It accepts any descriptor of the file
//! system, so no device must be found.

use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// Q_XGETQSTAT of linux/dqblk_xfs.h, which every file system with quotas answers.
const GET_STATE: u32 = 0x5805;
/// Q_GETQUOTA of linux/quota.h.
const GET: u32 = 0x80_0007;
/// Q_SETQUOTA of linux/quota.h.
const SET: u32 = 0x80_0008;
/// Q_GETNEXTQUOTA of linux/quota.h, Linux 4.6.
const GET_NEXT: u32 = 0x80_0009;

/// QIF_BLIMITS of linux/quota.h: the limits of space are set.
pub(super) const LIMITS_OF_SPACE: u32 = 1;
/// QIF_ILIMITS of linux/quota.h: the limits of the number of files are set.
pub(super) const LIMITS_OF_FILES: u32 = 4;

/// QIF_DQBLKSIZE of linux/quota.h: bytes of a block of the limits.
pub(super) const BLOCK: u64 = 1024;

/// The subjects of quotas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Subject {
    /// Users: the owners of files. USRQUOTA of linux/quota.h.
    User,
    /// Groups of files. GRPQUOTA.
    Group,
    /// Projects: trees of files with one number. PRJQUOTA.
    Project,
}

impl Subject {
    const fn number(self) -> u32 {
        match self {
            Self::User => 0,
            Self::Group => 1,
            Self::Project => 2,
        }
    }
}

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
#[derive(Debug, Default)]
pub(super) struct NextDqblk {
    pub(super) hard_blocks: u64,
    pub(super) soft_blocks: u64,
    pub(super) space: u64,
    pub(super) hard_inodes: u64,
    pub(super) soft_inodes: u64,
    pub(super) inodes: u64,
    pub(super) block_time: u64,
    pub(super) inode_time: u64,
    pub(super) valid: u32,
    pub(super) id: u32,
}

const _: () = assert!(size_of::<NextDqblk>() == 72);

/// The kernel's work for the quotas of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Upkeep {
    /// Space and files are counted, and limits mean nothing.
    Counted,
    /// Those over a limit get no more.
    Enforced,
}

/// Returns what the kernel does for the quotas of a kind; `None` without any.
pub(super) fn upkeep(root: BorrowedFd<'_>, subject: Subject) -> Result<Option<Upkeep>, Errno> {
    let mut stat = FsQuotaStat::default();
    let data = (&raw mut stat).cast();
    // SAFETY: Q_XGETQSTAT fills one struct fs_quota_stat, which `stat` is; any bits
    // are valid in it, and nothing is kept.
    match unsafe { quotactl(root, GET_STATE, Subject::User, 0, data) } {
        Ok(()) => {}
        // These errors mean Linux before 5.14, no quotas, quotas switched off, or a sandbox that
        // forbids the call.
        Err(
            Errno::NOSYS
            | Errno::OPNOTSUPP
            | Errno::SRCH
            | Errno::INVAL
            | Errno::NOTBLK
            | Errno::PERM,
        ) => return Ok(None),
        Err(errno) => return Err(errno),
    }
    // FS_QUOTA_UDQ_ACCT and FS_QUOTA_UDQ_ENFD, and two bits for each further kind.
    let bits = stat.flags.checked_shr(subject.number() * 2).unwrap_or(0);
    Ok(match (bits & 1 != 0, bits & 2 != 0) {
        (false, _) => None,
        (true, false) => Some(Upkeep::Counted),
        (true, true) => Some(Upkeep::Enforced),
    })
}

/// The entry that is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Wanted {
    /// The one of this number.
    Of(u32),
    /// The first one at or behind this number.
    From(u32),
}

/// Returns an entry; `None` if there is none, and where quotas are switched off.
pub(super) fn entry(
    root: BorrowedFd<'_>,
    subject: Subject,
    wanted: Wanted,
) -> Result<Option<NextDqblk>, Errno> {
    let mut block = NextDqblk::default();
    let (command, id) = match wanted {
        Wanted::Of(id) => (GET, id),
        Wanted::From(id) => (GET_NEXT, id),
    };
    // SAFETY: Q_GETQUOTA fills one struct if_dqblk and Q_GETNEXTQUOTA one struct
    // if_nextdqblk, neither larger than `block`; any bits are valid in it, and
    // nothing is kept.
    match unsafe { quotactl(root, command, subject, id, (&raw mut block).cast()) } {
        Ok(()) => {
            // Q_GETQUOTA leaves the number in the block empty.
            if let Wanted::Of(id) = wanted {
                block.id = id;
            }
            Ok(Some(block))
        }
        Err(Errno::NOENT | Errno::SRCH) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// Sets the limits of `block` that its field `valid` names.
pub(super) fn set(
    root: BorrowedFd<'_>,
    subject: Subject,
    id: u32,
    mut block: NextDqblk,
) -> Result<(), Errno> {
    if block.hard_blocks != 0 {
        // XFS ignores a soft limit above the hard limit, so the soft limit is lowered.
        block.soft_blocks = block.soft_blocks.min(block.hard_blocks);
    }
    if block.hard_inodes != 0 {
        block.soft_inodes = block.soft_inodes.min(block.hard_inodes);
    }
    // SAFETY: Q_SETQUOTA reads one struct if_dqblk, which `block` begins with, and
    // keeps nothing of it.
    unsafe { quotactl(root, SET, subject, id, (&raw mut block).cast()) }
}

/// Converts bytes to the kernel's blocks, where 0 means no limit: the smallest limit is one block.
pub(super) fn blocks(bytes: Option<u64>) -> u64 {
    bytes.map_or(0, |bytes| (bytes / BLOCK).max(1))
}

/// Converts the kernel's blocks to bytes; `None` for no limit.
pub(super) fn bytes(blocks: u64) -> Option<u64> {
    (blocks != 0).then(|| blocks.saturating_mul(BLOCK))
}

/// # Safety
/// `data` points to what `command` reads or fills.
unsafe fn quotactl(
    root: BorrowedFd<'_>,
    command: u32,
    subject: Subject,
    id: u32,
    data: *mut libc::c_void,
) -> Result<(), Errno> {
    let command = command << 8 | subject.number();
    // SAFETY: the descriptor is open, and the caller guarantees that `data` is valid.
    let done = unsafe { libc::syscall(libc::SYS_quotactl_fd, root.as_raw_fd(), command, id, data) };
    if done == 0 { Ok(()) } else { Err(crate::sys::last_errno()) }
}
