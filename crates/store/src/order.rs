//! The order in which locks are taken, so that no two threads wait for each other.
//!
//! The type of a lock contains its rank, and a thread may only take locks of a higher rank than
//! those it holds. Builds with assertions check that in tests and in the simulator; release builds
//! have no check.

use core::ops::{Deref, DerefMut};

use parking_lot::{Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The ranks of locks. A thread holds one lock of a rank at a time; only for [`NAME`] and [`SHARD`]
/// it may hold two, which it takes in a fixed order.
pub mod rank {
    /// GlobalClientTable and GlobalSessionTable.
    pub const CLIENT: usize = 0;
    /// State of a Session: tree connects, Opens, channels.
    pub const SESSION: usize = 1;
    /// State of an Open.
    pub const OPEN: usize = 2;
    /// A name, from looking it up to acting on it.
    pub const NAME: usize = 3;
    /// The table of Opens that outlive their connections.
    pub const DURABLE: usize = 4;
    /// The record of an Open that is being made, put or removed.
    pub const RECORD: usize = 5;
    /// The index of watches.
    pub const WATCHES: usize = 6;
    /// A shard of the table of open files.
    pub const SHARD: usize = 7;
    /// A File with its Opens.
    pub const FILE: usize = 8;
    /// Locks behind which no other lock is taken.
    pub const LAST: usize = 9;
}

/// A [`Mutex`] with its rank.
#[derive(Debug, Default)]
pub struct Ordered<T, const RANK: usize>(Mutex<T>);

/// A [`RwLock`] with its rank.
#[derive(Debug, Default)]
pub struct OrderedRw<T, const RANK: usize>(RwLock<T>);

/// A lock that this thread holds.
#[derive(Debug)]
pub struct Guard<G, const RANK: usize> {
    guard: G,
    _held: RankHeld<RANK>,
}

impl<T, const RANK: usize> Ordered<T, RANK> {
    /// Makes a lock of `value`.
    pub const fn new(value: T) -> Self {
        Self(Mutex::new(value))
    }

    /// Waits for the lock and checks the lock order.
    pub fn lock(&self) -> Guard<MutexGuard<'_, T>, RANK> {
        let _held = RankHeld::new();
        Guard { guard: model::take(|| self.0.try_lock(), || self.0.lock()), _held }
    }

    /// Takes the lock if it is free, and checks the lock order.
    pub fn try_lock(&self) -> Option<Guard<MutexGuard<'_, T>, RANK>> {
        let _held = RankHeld::new();
        self.0.try_lock().map(|guard| Guard { guard, _held })
    }

    /// Returns the lock without its rank, for tests of lock contention.
    #[cfg(test)]
    pub(crate) const fn bare(&self) -> &Mutex<T> {
        &self.0
    }
}

impl<T, const RANK: usize> OrderedRw<T, RANK> {
    /// Makes a lock of `value`.
    pub const fn new(value: T) -> Self {
        Self(RwLock::new(value))
    }

    /// Locks the value for reading.
    pub fn read(&self) -> Guard<RwLockReadGuard<'_, T>, RANK> {
        let _held = RankHeld::new();
        Guard { guard: model::take(|| self.0.try_read(), || self.0.read()), _held }
    }

    /// Locks the value for writing.
    pub fn write(&self) -> Guard<RwLockWriteGuard<'_, T>, RANK> {
        let _held = RankHeld::new();
        Guard { guard: model::take(|| self.0.try_write(), || self.0.write()), _held }
    }

    /// Returns the lock without its rank, for tests of lock contention.
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

/// Proof that this thread has a lock of this rank.
#[derive(Debug)]
struct RankHeld<const RANK: usize>;

#[cfg(not(debug_assertions))]
impl<const RANK: usize> RankHeld<RANK> {
    const fn new() -> Self {
        Self
    }
}

#[cfg(debug_assertions)]
mod checked {
    use core::cell::RefCell;
    use std::vec::Vec;

    use super::{RankHeld, model, rank};

    const RANKS: usize = rank::LAST + 1;

    std::thread_local! {
        /// Number of locks of each rank that this thread holds. In a model several threads share
        /// one thread of the host: one entry for each.
        static HELD: RefCell<Vec<[u8; RANKS]>> = const { RefCell::new(Vec::new()) };
    }

    /// Calls `look` with the locks that this thread holds.
    fn with_held<T>(look: impl FnOnce(&mut [u8; RANKS]) -> T) -> Option<T> {
        let thread = model::thread();
        // If the thread is just ending, its counts may be gone already. Then nothing is checked.
        let looked = HELD.try_with(|held| {
            let mut held = held.borrow_mut();
            if held.len() <= thread {
                held.resize(thread.saturating_add(1), [0; RANKS]);
            }
            held.get_mut(thread).map(look)
        });
        looked.ok().flatten()
    }

    impl<const RANK: usize> RankHeld<RANK> {
        /// Counts a lock of this rank.
        ///
        /// # Panics
        /// If this thread holds a lock of this rank or a higher one.
        pub(super) fn new() -> Self {
            let may_meet = matches!(RANK, rank::NAME | rank::SHARD);
            let held = with_held(|held| {
                let before = *held;
                if let Some(count) = held.get_mut(RANK) {
                    *count = count.saturating_add(1);
                }
                before
            });
            let this = Self;
            if let Some(held) = held {
                let mut behind = held.iter().skip(RANK.saturating_add(usize::from(may_meet)));
                let is_free = behind.all(|count| *count == 0);
                assert!(is_free, "a lock of rank {RANK} is taken where {held:?} are held");
            }
            this
        }
    }

    impl<const RANK: usize> Drop for RankHeld<RANK> {
        fn drop(&mut self) {
            let _ = with_held(|held| {
                if let Some(count) = held.get_mut(RANK) {
                    *count = count.saturating_sub(1);
                }
            });
            model::step();
        }
    }
}

/// Steps of threads, of which a model checker decides the order (`crates/server/tests/models`). Only
/// builds with assertions have them.
pub mod model {
    #[cfg(debug_assertions)]
    use steps::scheduler;
    #[cfg(debug_assertions)]
    pub use steps::{Scheduler, schedule, step, thread};

    /// A place at which another thread may go on.
    #[cfg(not(debug_assertions))]
    #[inline(always)]
    pub const fn step() {}

    /// Takes a lock with `wait`. In a model the thread only tries, and lets other threads run until
    /// it has the lock.
    #[cfg_attr(not(debug_assertions), inline(always))]
    pub(super) fn take<G>(try_to: impl Fn() -> Option<G>, wait: impl FnOnce() -> G) -> G {
        #[cfg(debug_assertions)]
        if let Some(scheduler) = scheduler() {
            scheduler.step();
            loop {
                if let Some(guard) = try_to() {
                    return guard;
                }
                scheduler.wait();
            }
        }
        #[cfg(not(debug_assertions))]
        let _ = try_to;
        wait()
    }

    #[cfg(debug_assertions)]
    mod steps {
        use alloc::rc::Rc;
        use core::cell::RefCell;

        /// A scheduler of threads that share one thread of the host.
        pub trait Scheduler {
            /// The number of the present thread, from 0.
            fn thread(&self) -> usize;
            /// Lets another thread run.
            fn step(&self);
            /// Lets other threads run, because this thread waits for one of them.
            fn wait(&self);
        }

        std::thread_local! {
            static SCHEDULER: RefCell<Option<Rc<dyn Scheduler>>> = const { RefCell::new(None) };
        }

        /// Sets the scheduler of this thread of the host.
        pub fn schedule(with: Option<Rc<dyn Scheduler>>) {
            SCHEDULER.with(|scheduler| scheduler.replace(with));
        }

        pub(super) fn scheduler() -> Option<Rc<dyn Scheduler>> {
            SCHEDULER.try_with(|scheduler| scheduler.borrow().clone()).ok().flatten()
        }

        /// The number of the present thread; 0 outside of models.
        pub fn thread() -> usize {
            scheduler().map_or(0, |scheduler| scheduler.thread())
        }

        /// A place at which another thread may go on.
        pub fn step() {
            if let Some(scheduler) = scheduler() {
                scheduler.step();
            }
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
        // A thread must not hold two locks of the same rank, such as those of two files, because
        // two threads could deadlock.
        assert!(caught(|| {
            let (one, other) = (file(), file());
            let _one = one.lock();
            let _other = other.lock();
        }));
        assert!(!caught(|| {
            let (one, other) = (shard(), shard());
            let (_one, _other) = (one.lock(), other.lock());
        }));
        // The panics above have released their locks, so this thread can take locks in the right
        // order.
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
