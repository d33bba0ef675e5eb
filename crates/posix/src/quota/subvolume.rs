//! The quota of a subvolume of btrfs, which has none of users: that of its group `0/ID` (btrfs-qgroup).

use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use rustix::io::Errno;

/// BTRFS_IOC_INO_LOOKUP: `_IOWR(0x94, 18, struct btrfs_ioctl_ino_lookup_args)`.
const INO_LOOKUP: u32 = 0xD000_9412;
/// BTRFS_IOC_TREE_SEARCH: `_IOWR(0x94, 17, struct btrfs_ioctl_search_args)`.
const TREE_SEARCH: u32 = 0xD000_9411;
/// BTRFS_IOC_QGROUP_LIMIT: `_IOR(0x94, 43, struct btrfs_ioctl_qgroup_limit_args)`.
const QGROUP_LIMIT: u32 = 0x8030_942B;

/// BTRFS_FIRST_FREE_OBJECTID: the number of a subvolume's root folder.
const ROOT_FOLDER: u64 = 256;
/// BTRFS_QUOTA_TREE_OBJECTID.
const QUOTA_TREE: u64 = 8;
/// BTRFS_QGROUP_INFO_KEY.
const INFO: u32 = 242;
/// BTRFS_QGROUP_LIMIT_KEY.
const LIMIT: u32 = 244;
/// BTRFS_QGROUP_LIMIT_MAX_RFER: the limit of all that the subvolume refers to.
const MAX_REFERRED: u64 = 1;
/// Bytes of the head of an item that a search finds.
const ITEM_HEAD: usize = 32;

/// struct btrfs_ioctl_ino_lookup_args.
#[repr(C)]
struct InoLookup {
    tree: u64,
    object: u64,
    name: [u8; 4080],
}

const _: () = assert!(size_of::<InoLookup>() == 4096);

/// struct btrfs_ioctl_search_args: a search key, and the items that are found.
#[repr(C)]
struct Search {
    tree: u64,
    objects: [u64; 2],
    offsets: [u64; 2],
    transactions: [u64; 2],
    types: [u32; 2],
    items: u32,
    unused: [u32; 9],
    found: [u8; 3992],
}

const _: () = assert!(size_of::<Search>() == 4096);

/// struct btrfs_ioctl_qgroup_limit_args.
#[repr(C)]
#[derive(Default)]
struct QgroupLimit {
    group: u64,
    flags: u64,
    max_referred: u64,
    rest: [u64; 3],
}

const _: () = assert!(size_of::<QgroupLimit>() == 48);

/// The space of a subvolume.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct SubvolumeSpace {
    /// Bytes that it refers to.
    pub(super) referred: u64,
    /// The limit of these.
    pub(super) limit: Option<u64>,
}

/// Returns the space of the subvolume with this folder; `None` where quotas are off (`btrfs quota enable`).
///
/// # Errors
/// Fails without CAP_SYS_ADMIN, and on other file systems than btrfs.
pub(super) fn space(folder: BorrowedFd<'_>) -> io::Result<Option<SubvolumeSpace>> {
    let mut lookup = InoLookup { tree: 0, object: ROOT_FOLDER, name: [0; 4080] };
    // SAFETY: the call reads and fills one struct btrfs_ioctl_ino_lookup_args, which `lookup` is.
    let done = unsafe { libc::ioctl(folder.as_raw_fd(), INO_LOOKUP as _, &raw mut lookup) };
    if done != 0 {
        return Err(crate::sys::last_errno().into());
    }
    let group = lookup.tree;
    let Some(info) = item(folder, INFO, group)? else { return Ok(None) };
    let number = |item: &[u8], at: usize| {
        let bytes = item.get(at * 8..).and_then(|rest| rest.first_chunk::<8>());
        bytes.map_or(0, |bytes| u64::from_le_bytes(*bytes))
    };
    let limit = item(folder, LIMIT, group)?.unwrap_or_default();
    let is_limited = number(&limit, 0) & MAX_REFERRED != 0;
    Ok(Some(SubvolumeSpace {
        referred: number(&info, 1),
        limit: is_limited.then(|| number(&limit, 1)).filter(|limit| *limit != 0),
    }))
}

/// Sets the limit of the subvolume with this folder.
///
/// # Errors
/// Fails without CAP_SYS_ADMIN, and where quotas are off.
pub(super) fn limit(folder: BorrowedFd<'_>, bytes: Option<u64>) -> io::Result<()> {
    // CLEAR_VALUE of the kernel takes a limit away.
    let max_referred = bytes.unwrap_or(u64::MAX);
    let arguments = QgroupLimit { flags: MAX_REFERRED, max_referred, ..QgroupLimit::default() };
    // SAFETY: the call reads one struct btrfs_ioctl_qgroup_limit_args, which `arguments` is.
    let done = unsafe { libc::ioctl(folder.as_raw_fd(), QGROUP_LIMIT as _, &raw const arguments) };
    if done == 0 { Ok(()) } else { Err(crate::sys::last_errno().into()) }
}

/// Returns the item of this type and group of the tree of quotas.
fn item(folder: BorrowedFd<'_>, kind: u32, group: u64) -> io::Result<Option<Vec<u8>>> {
    let mut search = Search {
        tree: QUOTA_TREE,
        objects: [0, 0],
        offsets: [group, group],
        transactions: [0, u64::MAX],
        types: [kind, kind],
        items: 1,
        unused: [0; 9],
        found: [0; 3992],
    };
    // SAFETY: the call reads and fills one struct btrfs_ioctl_search_args, which `search` is.
    let done = unsafe { libc::ioctl(folder.as_raw_fd(), TREE_SEARCH as _, &raw mut search) };
    if done != 0 {
        return match crate::sys::last_errno() {
            // There is no tree of quotas.
            Errno::NOENT => Ok(None),
            errno => Err(errno.into()),
        };
    }
    if search.items == 0 {
        return Ok(None);
    }
    // The head ends with the type and the length of the item.
    let length = search.found.get(ITEM_HEAD - 4..).and_then(|rest| rest.first_chunk::<4>());
    let length = length.map_or(0, |length| u32::from_le_bytes(*length)) as usize;
    Ok(search.found.get(ITEM_HEAD..ITEM_HEAD.saturating_add(length)).map(<[u8]>::to_vec))
}
