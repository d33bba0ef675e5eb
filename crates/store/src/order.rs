//! The order in which locks are taken, so that no two wait for each other.
//!
//! A lock says in its type where it stands, and a thread that takes one takes only those
//! behind it. Builds with assertions hold every test and the simulator to that; a release
//! knows nothing of it.

use core::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// Where a lock stands. One stands for others of its kind too: of these a thread has one at
/// a time, but for [`NAME`] and [`SHARD`], which whoever needs two takes in an order of
/// their own.
pub mod rank {
    /// GlobalClientTable and GlobalSessionTable.
    pub const CLIENT: usize = 0;
    /// What a Session has: tree connects, Opens, channels.
    pub const SESSION: usize = 1;
    /// What an Open has.
    pub const OPEN: usize = 2;
    /// A name, from looking it up to acting on it.
    pub const NAME: usize = 3;
    /// Which Opens outlive their connections.
    pub const DURABLE: usize = 4;
    /// Who watches which directory.
    pub const WATCHES: usize = 5;
    /// A shard of the table of open files.
    pub const SHARD: usize = 6;
    /// A File with its Opens.
    pub const FILE: usize = 7;
    /// What nothing else is taken behind.
    pub const LAST: usize = 8;
}

/// A [`Mutex`] with its rank.
#[derive(Debug, Default)]
pub struct Ordered<T, const RANK: usize>(Mutex<T>);

/// A [`RwLock`] with its rank.
#[derive(Debug, Default)]
pub struct OrderedRw<T, const RANK: usize>(RwLock<T>);

/// A lock that is held.
#[derive(Debug)]
pub struct Guard<G, const RANK: usize> {
    guard: G,
    _held: RankHeld<RANK>,
}

impl<T, const RANK: usize> Ordered<T, RANK> {
    /// A lock of `value`.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Takes it.
    pub fn lock(&self) -> Guard<MutexGuard<'_, T>, RANK> {
        let _held = RankHeld::new();
        Guard { guard: self.0.lock(), _held }
    }

    /// Without its rank, for tests of who takes it.
    #[cfg(test)]
    pub(crate) const fn bare(&self) -> &Mutex<T> {
        &self.0
    }
}

impl<T, const RANK: usize> OrderedRw<T, RANK> {
    /// A lock of `value`.
    pub const fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    /// Takes it beside others who read.
    pub fn read(&self) -> Guard<RwLockReadGuard<'_, T>, RANK> {
        let _held = RankHeld::new();
        Guard { guard: self.0.read(), _held }
    }

    /// Takes it alone.
    pub fn write(&self) -> Guard<RwLockWriteGuard<'_, T>, RANK> {
        let _held = RankHeld::new();
        Guard { guard: self.0.write(), _held }
    }

    /// Without its rank, for tests of who takes it.
    #[cfg(test)]
    pub(crate) const fn bare(&self) -> &RwLock<T> {
        &self.0
    }
}

impl<G: Deref, const RANK: usize> Deref for Guard<G, RANK> {
    type Target = G::Target;

    fn deref(&self) -> &G::Target {
        &self.guard
    }
}

impl<G: DerefMut, const RANK: usize> DerefMut for Guard<G, RANK> {
    fn deref_mut(&mut self) -> &mut G::Target {
        &mut self.guard
    }
}

/// That this thread has a lock of this rank.
#[derive(Debug)]
struct RankHeld<const RANK: usize>;

#[cfg(not(debug_assertions))]
impl<const RANK: usize> RankHeld<RANK> {
    const fn new() -> Self {
        Self
    }
}

#[cfg(debug_assertions)]
mod held {
    use core::cell::Cell;

    use super::{RankHeld, rank};

    const RANKS: usize = rank::LAST + 1;

    std::thread_local! {
        /// How many locks of each rank this thread has.
        static HELD: [Cell<u8>; RANKS] = const { [const { Cell::new(0) }; RANKS] };
    }

    impl<const RANK: usize> RankHeld<RANK> {
        /// # Panics
        /// When a lock is held that stands behind this one.
        pub(super) fn new() -> Self {
            let may_meet = matches!(RANK, rank::NAME | rank::SHARD);
            HELD.with(|held| {
                let behind = held.iter().skip(RANK.saturating_add(usize::from(may_meet)));
                let is_free = behind.clone().all(|count| count.get() == 0);
                assert!(is_free, "a lock of rank {RANK} is taken where {held:?} are held");
                if let Some(count) = held.get(RANK) {
                    count.set(count.get().saturating_add(1));
                }
            });
            Self
        }
    }

    impl<const RANK: usize> Drop for RankHeld<RANK> {
        fn drop(&mut self) {
            // A thread that ends may have no counts any more.
            let _ = HELD.try_with(|held| {
                if let Some(count) = held.get(RANK) {
                    count.set(count.get().saturating_sub(1));
                }
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caught(taking: impl FnOnce() + std::panic::UnwindSafe) -> bool {
        std::panic::catch_unwind(taking).is_err()
    }

    #[test]
    fn a_reversed_order_is_caught() {
        fn file() -> Ordered<(), { rank::FILE }> {
            Ordered::new(())
        }
        fn shard() -> Ordered<(), { rank::SHARD }> {
            Ordered::new(())
        }
        fn session() -> OrderedRw<u8, { rank::SESSION }> {
            OrderedRw::new(0)
        }
        assert!(caught(|| {
            let (file, shard) = (file(), shard());
            let _file = file.lock();
            let _shard = shard.lock();
        }));
        assert!(caught(|| {
            let (shard, session) = (shard(), session());
            let _shard = shard.lock();
            let _session = session.read();
        }));
        // Two of a kind, but for those that have an order among themselves.
        assert!(caught(|| {
            let (one, other) = (file(), file());
            let _one = one.lock();
            let _other = other.lock();
        }));
        assert!(!caught(|| {
            let (one, other) = (shard(), shard());
            let (_one, _other) = (one.lock(), other.lock());
        }));
        // What was held when it panicked is not held any more.
        assert!(!caught(|| {
            let (session, shard, file) = (session(), shard(), file());
            *session.write() += 1;
            let session = session.read();
            let _shard = shard.lock();
            let _file = file.lock();
            assert_eq!(*session, 1);
        }));
    }

    #[test]
    fn a_rank_takes_no_room() {
        assert_eq!(size_of::<Ordered<u64, 0>>(), size_of::<Mutex<u64>>());
        assert_eq!(size_of::<Guard<MutexGuard<'_, u64>, 0>>(), size_of::<MutexGuard<'_, u64>>());
        assert_eq!(core::mem::needs_drop::<RankHeld<0>>(), cfg!(debug_assertions));
    }
}
