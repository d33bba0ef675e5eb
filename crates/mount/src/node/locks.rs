//! The byte-range locks that a mount has on a file.

use std::ops::RangeInclusive;

use frevo_client::{File, LockKind};

use crate::errno::{Outcome, errno};

/// A byte-range lock of POSIX.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// The lock owner, as the kernel numbers it.
    pub(crate) owner: u64,
    /// The process, reported by F_GETLK.
    pub(crate) pid: u32,
    /// The first byte of the range.
    pub(crate) start: u64,
    /// The last byte of the range.
    pub(crate) last: u64,
    /// True for a write lock.
    pub(crate) exclusive: bool,
}

impl Range {
    /// Returns the kind of lock to ask the server for.
    pub(crate) const fn lock_kind(&self) -> LockKind {
        if self.exclusive { LockKind::Exclusive } else { LockKind::Shared }
    }

    /// Makes a range from the bytes and the lock type of fcntl(2).
    pub(crate) const fn of(owner: u64, pid: u32, bytes: RangeInclusive<u64>, kind: i32) -> Self {
        let (start, last) = (*bytes.start(), *bytes.end());
        Self { owner, pid, start, last, exclusive: kind == libc::F_WRLCK }
    }

    /// Returns the lock type of fcntl(2).
    pub(crate) const fn kind(&self) -> i32 {
        if self.exclusive { libc::F_WRLCK } else { libc::F_RDLCK }
    }

    pub(crate) const fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    pub(crate) const fn conflicts(&self, other: &Self) -> bool {
        self.owner != other.owner && self.overlaps(other) && (self.exclusive || other.exclusive)
    }

    pub(crate) const fn len(&self) -> u64 {
        (self.last - self.start).saturating_add(1)
    }

    /// Returns the parts of this range that `other` does not cover.
    pub(crate) fn without(&self, other: &Self) -> Vec<Self> {
        let mut left = Vec::new();
        if self.start < other.start {
            left.push(Self { last: other.start - 1, ..*self });
        }
        if self.last > other.last {
            left.push(Self { start: other.last + 1, ..*self });
        }
        left
    }
}

/// The locks that this mount has on a file.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    pub(crate) held: Vec<HeldLock>,
}

/// A lock that the server has granted.
#[derive(Debug)]
pub(crate) struct HeldLock {
    pub(crate) range: Range,
    /// The Open that has the lock.
    pub(crate) file: File,
    /// The handle through which the lock was taken. The lock ends with this handle, whoever owns
    /// it: the kernel does not report the close of a lock's open file description (F_OFD_SETLK).
    pub(crate) through: u64,
}

impl HeldLock {
    /// Returns the parts of this lock outside `other`, to be taken again.
    pub(crate) fn without(&self, other: &Range) -> Vec<Self> {
        let left = self.range.without(other).into_iter();
        left.map(|range| Self { range, file: self.file.clone(), through: self.through }).collect()
    }

    pub(crate) async fn unlock(&self) -> Outcome<()> {
        let Range { start, .. } = self.range;
        self.file.unlock(start, self.range.len()).await.map_err(|error| errno(&error))
    }
}

impl Locks {
    pub(crate) const fn is_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Returns a local lock that conflicts with `wanted`.
    pub(crate) fn conflict(&self, wanted: &Range) -> Option<Range> {
        self.held.iter().map(|held| held.range).find(|range| range.conflicts(wanted))
    }

    /// Removes and returns the owner's locks that overlap `wanted`.
    pub(crate) fn replaced(&mut self, wanted: &Range) -> Vec<HeldLock> {
        let touches =
            |held: &mut HeldLock| held.range.owner == wanted.owner && held.range.overlaps(wanted);
        self.held.extract_if(.., touches).collect()
    }
}

impl Locks {
    /// Takes locks again that were released for a moment. Another client may have taken the range
    /// meanwhile: then the lock is lost, since POSIX has no way to report that.
    pub(crate) async fn take_again(&mut self, locks: Vec<HeldLock>) {
        for held in locks {
            let range = held.range;
            match held.file.try_lock(range.start, range.len(), range.lock_kind()).await {
                Ok(()) => self.held.push(held),
                Err(error) => {
                    tracing::warn!(%error, "this mount has lost a lock, which another client took")
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(owner: u64, start: u64, last: u64, exclusive: bool) -> Range {
        Range { owner, pid: 0, start, last, exclusive }
    }

    #[test]
    fn only_others_and_only_writers_are_in_the_way() {
        let mine = range(1, 10, 19, true);
        assert!(!mine.conflicts(&range(1, 10, 19, true)));
        assert!(mine.conflicts(&range(2, 19, 30, false)));
        assert!(!mine.conflicts(&range(2, 20, 30, true)));
        assert!(!range(1, 0, 9, false).conflicts(&range(2, 0, 9, false)));
    }

    #[test]
    fn what_is_left_of_a_lock() {
        let lock = range(1, 10, 19, true);
        assert_eq!(
            lock.without(&range(1, 12, 14, true)),
            [range(1, 10, 11, true), range(1, 15, 19, true)]
        );
        assert_eq!(lock.without(&range(1, 0, 14, true)), [range(1, 15, 19, true)]);
        assert_eq!(lock.without(&range(1, 0, u64::MAX, true)), []);
    }
}
