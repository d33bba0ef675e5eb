//! The access to entries without attributes of their own: it follows from owner, group and mode, so
//! that one look serves all entries with the same.

use std::ffi::CStr;
use std::os::fd::{AsFd as _, BorrowedFd};

use frevo_store::vfs::{HostAccess, Kind};
use rustix::fs::{Mode, OFlags, Statx, StatxAttributes};

use crate::limits::LISTED_OWNERS;
use crate::share::Share;
use crate::{stat, sys};

/// All that the kernel decides by when it checks access to a file without lists and labels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Owner {
    uid: u32,
    gid: u32,
    mode: u16,
    /// Bits of statx for files that nobody may change.
    fixed: u64,
    /// A mount may be read-only.
    mount: u64,
    pub(super) device: u64,
}

impl Owner {
    pub(super) fn of(stx: &Statx) -> Self {
        let fixed = StatxAttributes::IMMUTABLE | StatxAttributes::APPEND;
        Self {
            uid: stx.stx_uid,
            gid: stx.stx_gid,
            mode: stx.stx_mode,
            fixed: (stx.stx_attributes & fixed).bits(),
            mount: stx.stx_mnt_id,
            device: stat::key_of(stx).device,
        }
    }

    /// Returns the access to an entry; None if it is not one of this owner any more.
    pub(super) fn access(
        &self,
        share: &Share,
        dir: BorrowedFd<'_>,
        entry: &CStr,
    ) -> Option<HostAccess> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW;
        let fd = sys::open_beneath(dir, entry.to_bytes(), flags, Mode::empty(), false).ok()?;
        let stx = sys::stat_fd(fd.as_fd()).ok()?;
        let is_plain = matches!(stat::kind_of(&stx), Kind::File | Kind::Directory);
        (is_plain && Self::of(&stx) == *self).then(|| share.access(fd.as_fd(), Some(self.uid)))
    }
}

/// The owners of the entries that were listed last.
#[derive(Debug, Default)]
pub(super) struct Owners {
    known: Vec<(Owner, HostAccess)>,
}

impl Owners {
    /// The most bytes that they take.
    pub(super) const BYTES: usize = LISTED_OWNERS * size_of::<(Owner, HostAccess)>();

    pub(super) fn clear(&mut self) {
        self.known.clear();
    }

    pub(super) fn access(&self, owner: &Owner) -> Option<HostAccess> {
        self.known.iter().find(|(known, _)| known == owner).map(|(_, access)| *access)
    }

    pub(super) fn note(&mut self, owner: Owner, access: HostAccess) {
        if self.known.len() >= LISTED_OWNERS {
            self.known.clear();
        }
        self.known.push((owner, access));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owner(uid: u32) -> Owner {
        Owner { uid, gid: 0, mode: 0o100_644, fixed: 0, mount: 1, device: 1 }
    }

    /// At n - 1, n and n + 1 owners.
    #[test]
    fn owners_are_bounded() {
        let mut owners = Owners::default();
        let access = |read| HostAccess { read, write: false, execute: false, owner: false };
        for uid in 0..3 * LISTED_OWNERS as u32 {
            assert!(owners.access(&owner(uid)).is_none());
            owners.note(owner(uid), access(uid % 2 == 0));
            assert_eq!(owners.access(&owner(uid)), Some(access(uid % 2 == 0)));
            assert!(owners.known.len() <= LISTED_OWNERS);
            assert!(owners.known.capacity() <= LISTED_OWNERS);
        }
        assert_eq!(owners.known.len(), LISTED_OWNERS);
        owners.clear();
        assert!(owners.access(&owner(1)).is_none());
    }
}
