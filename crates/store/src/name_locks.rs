//! Locks on names. Rename, link and delete on close look a name up and then act on it; the lock
//! keeps a CREATE of that name on another core from coming in between.

use frevo_wire::fscc::upcase;
use parking_lot::MutexGuard;

use crate::name::{FolderId, Name};
use crate::order::{Guard, Ordered, rank};

/// Number of locks: many times the number of cores, so that two names rarely share one.
const LOCKS: usize = 4_096;

/// The locks. Lock order: before every shard and file; never held across an await. Only
/// [`NameLocks::hold_both`] locks two names.
///
/// Names are told apart by their folded path. If two names lead to one file through a link or
/// another share, only the file system itself arbitrates.
#[derive(Debug)]
pub struct NameLocks([NameLock; LOCKS]);

type NameLock = Ordered<(), { rank::NAME }>;
type NameGuard<'a> = Guard<MutexGuard<'a, ()>, { rank::NAME }>;

/// A lock on one or two names; dropping it unlocks them.
#[derive(Debug)]
pub struct NamesLocked<'a> {
    _first: NameGuard<'a>,
    _second: Option<NameGuard<'a>>,
}

impl Default for NameLocks {
    fn default() -> Self {
        Self([const { NameLock::new(()) }; LOCKS])
    }
}

impl NameLocks {
    /// Locks one name of a folder until the guard is dropped.
    pub fn hold(&self, folder_id: FolderId, name: &Name) -> NamesLocked<'_> {
        NamesLocked { _first: self.at(index(folder_id, name)), _second: None }
    }

    /// Locks two names in a fixed order, whichever is named first.
    pub fn hold_both(&self, folder_id: FolderId, one: &Name, other: &Name) -> NamesLocked<'_> {
        let (one, other) = (index(folder_id, one), index(folder_id, other));
        let _first = self.at(one.min(other));
        let _second = (one != other).then(|| self.at(one.max(other)));
        NamesLocked { _first, _second }
    }

    /// Locks one name unless another thread has it.
    pub fn try_hold(&self, folder_id: FolderId, name: &Name) -> Option<NamesLocked<'_>> {
        let _first = self.lock_at(index(folder_id, name)).try_lock()?;
        Some(NamesLocked { _first, _second: None })
    }

    /// Locks two names unless another thread has one of them.
    pub fn try_hold_both(
        &self,
        folder_id: FolderId,
        one: &Name,
        other: &Name,
    ) -> Option<NamesLocked<'_>> {
        let (one, other) = (index(folder_id, one), index(folder_id, other));
        let _first = self.lock_at(one.min(other)).try_lock()?;
        let second = (one != other).then(|| self.lock_at(one.max(other)));
        let _second = match second {
            Some(second) => Some(second.try_lock()?),
            None => None,
        };
        Some(NamesLocked { _first, _second })
    }

    fn at(&self, index: usize) -> NameGuard<'_> {
        self.lock_at(index).lock()
    }

    fn lock_at(&self, index: usize) -> &NameLock {
        self.0.get(index).unwrap_or(&self.0[0])
    }
}

/// Returns the lock's index: FNV-1a over the upper case, eight characters of ASCII at a time. A name
/// in ASCII folds like names in ASCII only.
fn index(folder_id: FolderId, name: &Name) -> usize {
    let mut hash = 0xCBF2_9CE4_8422_2325u64 ^ folder_id.0 as u64;
    let mut add = |word: u64| hash = (hash ^ word).wrapping_mul(0x0000_0100_0000_01B3);
    if name.path().is_ascii() {
        for some in name.path().as_bytes().chunks(8) {
            let mut word = [0; 8];
            word.iter_mut().zip(some).for_each(|(to, from)| *to = from.to_ascii_uppercase());
            let word = u64::from_le_bytes(word);
            // The hash multiplies what it adds, and the low bits of a product do not depend on the
            // high bits of a factor. So the upper half of the word is also mixed into the lower.
            add(word ^ word >> 32);
            add(word >> 32);
        }
    } else {
        name.path().chars().for_each(|c| add(u64::from(u32::from(upcase(c)))));
    }
    hash = (hash ^ hash >> 32).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(hash >> 52).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    const HERE: FolderId = FolderId(1);

    fn name(text: &str) -> Name {
        Name::from_stored(String::from(text))
    }

    #[test]
    fn names_that_fold_alike_have_one_lock() {
        assert_eq!(index(HERE, &name("d\\Ä")), index(HERE, &name("D\\ä")));
        assert_eq!(index(HERE, &name("Dir\\File 12.TXT")), index(HERE, &name("dIR\\fILE 12.txt")));
        assert_ne!(index(HERE, &name("a")), index(HERE, &name("b")));
        assert_ne!(index(HERE, &name("a")), index(FolderId(2), &name("a")));
        let locks = NameLocks::default();
        let held = locks.hold_both(HERE, &name("a"), &name("A"));
        drop(held);
        let _both = locks.hold_both(HERE, &name("a"), &name("b"));
        assert!(locks.0[index(HERE, &name("B"))].bare().is_locked());
    }

    #[test]
    fn names_that_are_held_are_not_waited_for() {
        let locks = NameLocks::default();
        let (a, b) = (name("a"), name("b"));
        let held = locks.hold(HERE, &a);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                assert!(locks.try_hold(HERE, &name("A")).is_none());
                assert!(locks.try_hold_both(HERE, &b, &a).is_none());
                assert!(locks.try_hold(HERE, &b).is_some(), "nothing is kept of the attempt");
            });
        });
        drop(held);
        assert!(locks.try_hold_both(HERE, &a, &b).is_some());
        assert!(locks.try_hold_both(HERE, &a, &a).is_some());
    }

    #[test]
    fn names_spread_over_the_locks() {
        let mut taken = alloc::vec![false; LOCKS];
        (0..LOCKS).for_each(|i| taken[index(HERE, &name(&format!("dir\\file{i}")))] = true);
        let used = taken.iter().filter(|taken| **taken).count();
        assert!(used > LOCKS / 2, "{used}");
    }

    #[test]
    fn two_that_want_the_same_pair_do_not_wait_for_each_other() {
        let locks = NameLocks::default();
        std::thread::scope(|scope| {
            for i in 0..2 {
                let locks = &locks;
                scope.spawn(move || {
                    let (a, b) = (name("a"), name("b"));
                    for _ in 0..20_000 {
                        let _held = if i == 0 {
                            locks.hold_both(HERE, &a, &b)
                        } else {
                            locks.hold_both(HERE, &b, &a)
                        };
                    }
                });
            }
        });
    }
}
