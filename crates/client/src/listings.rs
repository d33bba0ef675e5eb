//! A budget of bytes for all that listings make this process keep.
//!
//! A walk lists many directories at once, and the server decides on their sizes. A listing
//! that exceeds the budget gives back its entries, waits for its turn and begins again.
//! Only one listing at a time waits for room, while the others end or give back. Names that are kept
//! beyond their listing take room of the same budget, and no listing waits for that.

use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Notify};

use crate::limits::LISTED_BYTES_MAX;

/// The budget of this process.
pub(crate) static UNDER_WAY: Budget = Budget::new(LISTED_BYTES_MAX);

/// A limited number of bytes.
pub(crate) struct Budget {
    most: usize,
    held: Mutex<BytesInUse>,
    turn: tokio::sync::Mutex<()>,
    given_back: Notify,
}

/// The bytes in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct BytesInUse {
    all: usize,
    /// Those of `all` that are kept beyond a listing.
    kept: usize,
}

impl Budget {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            most,
            held: Mutex::new(BytesInUse { all: 0, kept: 0 }),
            turn: tokio::sync::Mutex::const_new(()),
            given_back: Notify::const_new(),
        }
    }

    /// Begins a listing, which holds nothing yet.
    pub(crate) const fn begin(&self) -> HeldBytes<'_> {
        HeldBytes { budget: self, count: 0 }
    }

    /// Begins to keep names beyond their listings.
    const fn keep(&self) -> Keeping<'_> {
        Keeping { budget: self, count: 0 }
    }

    /// Waits to be the one listing that may wait for room.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }
}

/// The bytes of one listing. Dropping it gives them back.
pub(crate) struct HeldBytes<'a> {
    budget: &'a Budget,
    count: usize,
}

impl HeldBytes<'_> {
    /// Takes `count` further bytes. Returns false if the budget does not suffice.
    pub(crate) fn add(&mut self, count: usize) -> bool {
        let mut held = self.budget.held.lock();
        let sum = held.all.saturating_add(count);
        if sum > self.budget.most {
            return false;
        }
        held.all = sum;
        self.count += count;
        true
    }

    /// Waits until it can take `count` further bytes; only for the listing whose turn it is.
    /// Returns false if the budget without what is kept does not suffice.
    pub(crate) async fn wait(&mut self, count: usize) -> bool {
        loop {
            let mut changed = std::pin::pin!(self.budget.given_back.notified());
            // This waiter registers for notifications before it checks the budget, so it misses no
            // memory that is given back in between.
            changed.as_mut().enable();
            if self.add(count) {
                return true;
            }
            let kept = self.budget.held.lock().kept;
            if self.count.saturating_add(count).saturating_add(kept) > self.budget.most {
                return false;
            }
            changed.await;
        }
    }
}

impl Drop for HeldBytes<'_> {
    fn drop(&mut self) {
        let mut held = self.budget.held.lock();
        held.all = held.all.saturating_sub(self.count);
        drop(held);
        self.budget.given_back.notify_waiters();
    }
}

/// The bytes of names that are kept beyond their listings. Dropping it gives them back.
struct Keeping<'a> {
    budget: &'a Budget,
    count: usize,
}

impl Keeping<'_> {
    fn add(&mut self, count: usize) -> bool {
        let mut held = self.budget.held.lock();
        let sum = held.all.saturating_add(count);
        if sum > self.budget.most {
            return false;
        }
        held.all = sum;
        held.kept = held.kept.saturating_add(count);
        self.count += count;
        drop(held);
        // Kept bytes are not given back soon. So the waiting listing is woken: it may have to give
        // up now.
        self.budget.given_back.notify_waiters();
        true
    }

    fn give_back(&mut self, count: usize) {
        let count = count.min(self.count);
        let mut held = self.budget.held.lock();
        held.all = held.all.saturating_sub(count);
        held.kept = held.kept.saturating_sub(count);
        self.count -= count;
        drop(held);
        self.budget.given_back.notify_waiters();
    }
}

impl Drop for Keeping<'_> {
    fn drop(&mut self) {
        self.give_back(self.count);
    }
}

/// Bytes that a program keeps of listings: they take room of the budget of all listings under way,
/// `limits::LISTED_BYTES_MAX`. Dropping it gives them back.
pub struct ListingCharge(Keeping<'static>);

impl std::fmt::Debug for ListingCharge {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "ListingCharge({})", self.0.count)
    }
}

impl Default for ListingCharge {
    fn default() -> Self {
        Self(UNDER_WAY.keep())
    }
}

impl ListingCharge {
    /// Takes `count` further bytes. Returns false if the budget does not suffice.
    #[must_use]
    pub fn add(&mut self, count: usize) -> bool {
        self.0.add(count)
    }

    /// Gives `count` bytes back.
    pub fn give_back(&mut self, count: usize) {
        self.0.give_back(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_room_for_so_many_and_no_more() {
        let budget = Budget::new(10);
        for (first, second, fits) in [(5, 4, true), (5, 5, true), (5, 6, false)] {
            let (mut a, mut b) = (budget.begin(), budget.begin());
            assert!(a.add(first));
            assert_eq!(b.add(second), fits, "{first} + {second}");
        }
        assert_eq!(budget.held.lock().all, 0, "all was given back");
    }

    /// At one byte less than the budget, at the budget, and at one more. What a walk keeps is not
    /// given back before the walk does, and then all of it is.
    #[tokio::test(start_paused = true)]
    async fn kept_bytes_take_room_until_they_are_given_back() {
        let budget = Budget::new(10);
        let mut kept = budget.keep();
        assert!(kept.add(9) && kept.add(1) && !kept.add(1));
        let mut listing = budget.begin();
        assert!(!listing.add(1), "all of it is kept");
        kept.give_back(4);
        assert!(listing.add(4) && !listing.add(1) && !kept.add(1));
        drop(listing);
        assert!(kept.add(4));
        drop(kept);
        assert_eq!(budget.held.lock().all, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_goes_on_when_others_give_back() {
        let budget = Budget::new(10);
        let (mut waits, mut other) = (budget.begin(), budget.begin());
        assert!(waits.add(4) && other.add(6));
        let _turn = budget.turn().await;
        let minute = std::time::Duration::from_secs(60);
        assert!(tokio::time::timeout(minute, waits.wait(5)).await.is_err());
        drop(other);
        assert!(waits.wait(5).await);
        // No other listing holds memory that it could give back, so `wait` returns false at once.
        assert!(!waits.wait(2).await);
        assert_eq!(budget.held.lock().all, 9);
    }

    /// Kept bytes are not given back by other listings.
    #[tokio::test(start_paused = true)]
    async fn no_listing_waits_for_what_is_kept() {
        let budget = Budget::new(10);
        let (mut waits, mut other, mut kept) = (budget.begin(), budget.begin(), budget.keep());
        assert!(kept.add(5) && !kept.add(6) && other.add(4));
        let _turn = budget.turn().await;
        assert!(!waits.wait(6).await, "5 are kept");
        let minute = std::time::Duration::from_secs(60);
        assert!(tokio::time::timeout(minute, waits.wait(3)).await.is_err(), "the other ends");
        let grows = async {
            tokio::time::sleep(minute).await;
            assert!(kept.add(1));
            kept.give_back(0);
        };
        let (had, ()) = futures_util::future::join(waits.wait(5), grows).await;
        assert!(!had, "waits no longer when more is kept");
        kept.give_back(2);
        drop(other);
        assert!(waits.wait(6).await);
        drop((waits, kept));
        assert_eq!(*budget.held.lock(), BytesInUse { all: 0, kept: 0 });
    }

    /// However many there are, each gets through, and never hold they more together.
    #[tokio::test(start_paused = true)]
    async fn all_get_through() {
        let budget = Budget::new(100);
        let listing = async |parts: usize| {
            let mut waits = false;
            loop {
                let _turn = if waits { Some(budget.turn().await) } else { None };
                let mut held = budget.begin();
                let mut done = 0;
                while done < parts && (held.add(10) || (waits && held.wait(10).await)) {
                    assert!(budget.held.lock().all <= 100);
                    tokio::time::sleep(std::time::Duration::from_millis(1)).await;
                    done += 1;
                }
                if done == parts {
                    return;
                }
                waits = true;
            }
        };
        let all = (0..16).map(|n| listing(4 + n % 7));
        futures_util::future::join_all(all).await;
        assert_eq!(*budget.held.lock(), BytesInUse { all: 0, kept: 0 });
    }
}
