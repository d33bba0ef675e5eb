//! A budget of entries for all listings that are under way.
//!
//! A walk lists many directories at once, and the server decides on their sizes. A listing
//! that exceeds the budget gives back its entries, waits for its turn and begins again.
//! Only one listing at a time waits for room, while the others end or give back.

use parking_lot::Mutex;
use tokio::sync::{MutexGuard, Notify};

use crate::limits::ENTRIES_UNDER_WAY;

/// The budget of this process.
pub(crate) static UNDER_WAY: Budget = Budget::new(ENTRIES_UNDER_WAY);

/// A limited number of entries.
pub(crate) struct Budget {
    most: usize,
    held: Mutex<usize>,
    turn: tokio::sync::Mutex<()>,
    given_back: Notify,
}

impl Budget {
    pub(crate) const fn new(most: usize) -> Self {
        Self {
            most,
            held: Mutex::new(0),
            turn: tokio::sync::Mutex::const_new(()),
            given_back: Notify::const_new(),
        }
    }

    /// Begins a listing, which holds no entries yet.
    pub(crate) const fn begin(&self) -> HeldEntries<'_> {
        HeldEntries { budget: self, count: 0 }
    }

    /// Waits to be the one listing that may wait for room.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock().await
    }
}

/// The entries of one listing. Dropping it gives them back.
pub(crate) struct HeldEntries<'a> {
    budget: &'a Budget,
    count: usize,
}

impl HeldEntries<'_> {
    /// Takes `count` further entries. Returns false if the budget does not suffice.
    pub(crate) fn add(&mut self, count: usize) -> bool {
        let mut held = self.budget.held.lock();
        let sum = held.saturating_add(count);
        if sum > self.budget.most {
            return false;
        }
        *held = sum;
        self.count += count;
        true
    }

    /// Waits until it can take `count` further entries; only for the listing whose turn it is.
    /// Returns false if the whole budget does not suffice.
    pub(crate) async fn wait(&mut self, count: usize) -> bool {
        loop {
            let mut given_back = std::pin::pin!(self.budget.given_back.notified());
            // Subscribes before the check, so that no notification is missed.
            given_back.as_mut().enable();
            if self.add(count) {
                return true;
            }
            if self.count.saturating_add(count) > self.budget.most {
                return false;
            }
            given_back.await;
        }
    }
}

impl Drop for HeldEntries<'_> {
    fn drop(&mut self) {
        let mut held = self.budget.held.lock();
        *held = held.saturating_sub(self.count);
        drop(held);
        self.budget.given_back.notify_waiters();
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
        assert_eq!(*budget.held.lock(), 0, "all was given back");
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
        // No others hold anything: waiting would never end.
        assert!(!waits.wait(2).await);
        assert_eq!(*budget.held.lock(), 9);
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
                    assert!(*budget.held.lock() <= 100);
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
        assert_eq!(*budget.held.lock(), 0);
    }
}
