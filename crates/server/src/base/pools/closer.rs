//! Threads that close what takes long to close: the kernel frees the blocks of a file without a name
//! within the close of its last descriptor, and a file may have an extent for each block.
//!
//! Nobody waits for a close. What one owner closes is closed in its order, one at a time; owners take
//! turns. Each piece of work keeps its charge until it is done, which bounds how much waits. When the
//! process ends the kernel closes the rest.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::{Instant, sleep};

use crate::base::host;
use crate::base::limits::{CLOSING_THREADS, SPACE_PATIENCE};
use crate::base::panics;
use crate::base::pools::threads::{Job, Threads};

/// Time between two looks at the closes that others wait for.
const SPACE_PAUSE: Duration = Duration::from_millis(10);

/// The closer of the process.
static CLOSER: LazyLock<Arc<Closer>> = LazyLock::new(|| Arc::new(Closer::new()));

/// Closes something on another thread, behind what `owner` has closed before. Owners are told apart by
/// their numbers.
pub fn close(owner: usize, job: Job) {
    CLOSER.close(owner, job);
}

/// Returns how many closes of `owner` have not begun.
pub(crate) fn waiting(owner: usize) -> usize {
    CLOSER.lanes.lock().of_owners.get(&owner).map_or(0, |lane| lane.jobs.len())
}

/// Closes of an account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Closes {
    /// Those that the closer carries out.
    OfCloser,
    /// Those on threads of others too.
    All,
}

/// A number of closes that have ended, to be noted before a call that closes may be in the way of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Ended(u64);

/// Returns the number of closes that have ended so far.
pub(crate) fn ended() -> Ended {
    CLOSER.ended()
}

/// Waits until what waits now has been closed, if anything does, after a call that found no space and was
/// begun when `before` had ended. Returns true if the call may find some now: a deletion that was answered
/// has given its space back. A close that has ended meanwhile may have done so behind the call, whose
/// failure is learned of later. Closes on threads of others are not waited for: their file system may hang,
/// and has space of its own.
pub(crate) async fn has_freed(before: Ended) -> bool {
    CLOSER.has_freed(before).await
}

/// Waits until what `owner` has closed so far is closed, for `patience` at most. Returns true if
/// something was to be closed.
pub(crate) async fn has_closed(owner: usize, closes: Closes, patience: Duration) -> bool {
    CLOSER.has_closed(owner, closes, patience).await
}

/// Like [`has_closed`] of all closes, after a call that was begun when `before` had ended. Returns true
/// also if closes have ended since then.
pub(crate) async fn has_closed_since(before: Ended, owner: usize, patience: Duration) -> bool {
    has_closed(owner, Closes::All, patience).await || ended() != before
}

/// Like `has_closed` of all closes, on a thread that may block.
pub fn has_closed_blocking(owner: usize, patience: Duration) -> bool {
    CLOSER.has_closed_blocking(owner, patience)
}

/// Notes a close of `owner` on a thread of others, until the result is dropped.
pub(crate) fn note(owner: usize) -> Noted {
    Noted { number: CLOSER.lanes.lock().note(owner), owner }
}

/// A close that others carry out.
pub(crate) struct Noted {
    number: u64,
    owner: usize,
}

impl Drop for Noted {
    fn drop(&mut self) {
        CLOSER.ends(self.owner, self.number);
    }
}

struct Closer {
    lanes: Mutex<Lanes>,
    /// Closes that have ended.
    ended: AtomicU64,
    threads: Arc<Threads>,
}

#[derive(Default)]
struct Lanes {
    /// The number of the next close.
    next: u64,
    /// The closer's own closes that have not ended. Those of different owners end in any order.
    outstanding: BTreeSet<u64>,
    of_owners: HashMap<usize, Lane>,
    /// Owners whose next close may begin, in the order of their turns.
    turns: VecDeque<usize>,
}

/// A close and its number.
struct Numbered {
    number: u64,
    job: Job,
}

/// A close whose turn it is.
struct Taken {
    owner: usize,
    numbered: Numbered,
}

/// The closes of one owner.
#[derive(Default)]
struct Lane {
    jobs: VecDeque<Numbered>,
    /// The closer's own that have not ended.
    outstanding: BTreeSet<u64>,
    /// Those on threads of others that have not ended.
    noted: BTreeSet<u64>,
    /// One of them has begun, or waits for its turn.
    is_under_way: bool,
}

impl Closer {
    fn new() -> Self {
        let threads = Threads::new("closing", CLOSING_THREADS, host::begin_thread);
        Self { lanes: Mutex::default(), ended: AtomicU64::new(0), threads: Arc::new(threads) }
    }

    fn ended(&self) -> Ended {
        Ended(self.ended.load(Ordering::Acquire))
    }

    /// Notes the end of a close: counted before it is outstanding no more, so that one of both is seen.
    fn ends(&self, owner: usize, number: u64) {
        let mut lanes = self.lanes.lock();
        self.ended.fetch_add(1, Ordering::Release);
        lanes.ends(owner, number);
    }

    async fn has_closed(&self, owner: usize, closes: Closes, patience: Duration) -> bool {
        let given = self.lanes.lock().next;
        if self.lanes.lock().are_closed(owner, closes, given) {
            return false;
        }
        let until = Instant::now() + patience;
        while !self.lanes.lock().are_closed(owner, closes, given) && Instant::now() < until {
            sleep(SPACE_PAUSE).await;
        }
        true
    }

    fn has_closed_blocking(&self, owner: usize, patience: Duration) -> bool {
        let given = self.lanes.lock().next;
        if self.lanes.lock().are_closed(owner, Closes::All, given) {
            return false;
        }
        let until = Instant::now() + patience;
        while !self.lanes.lock().are_closed(owner, Closes::All, given) && Instant::now() < until {
            std::thread::sleep(SPACE_PAUSE);
        }
        true
    }

    async fn has_freed(&self, before: Ended) -> bool {
        let given = self.lanes.lock().next;
        let is_done = || self.lanes.lock().outstanding.first().is_none_or(|first| *first >= given);
        if is_done() {
            return self.ended() != before;
        }
        let until = Instant::now() + SPACE_PATIENCE;
        while !is_done() && Instant::now() < until {
            sleep(SPACE_PAUSE).await;
        }
        true
    }

    fn close(self: &Arc<Self>, owner: usize, job: Job) {
        {
            let mut lanes = self.lanes.lock();
            let number = lanes.number(owner);
            let lane = lanes.of_owners.entry(owner).or_default();
            lane.jobs.push_back(Numbered { number, job });
            if std::mem::replace(&mut lane.is_under_way, true) {
                return;
            }
            lanes.turns.push_back(owner);
        }
        let closer = Arc::clone(self);
        if let Err(here) = self.threads.give(Box::new(move || closer.work())) {
            // There is no thread at all.
            here();
        }
    }

    /// Closes until no owner has a turn.
    fn work(&self) {
        loop {
            let taken = self.lanes.lock().take();
            let Some(Taken { owner, numbered: Numbered { number, job } }) = taken else { break };
            // A close that panics does not affect others.
            let _ = panics::contained(job);
            self.lanes.lock().end(owner);
            self.ends(owner, number);
        }
    }
}

impl Lanes {
    /// Numbers a close that waits for its turn.
    fn number(&mut self, owner: usize) -> u64 {
        let number = self.next_number();
        self.outstanding.insert(number);
        self.of_owners.entry(owner).or_default().outstanding.insert(number);
        number
    }

    /// Numbers a close on a thread of others.
    fn note(&mut self, owner: usize) -> u64 {
        let number = self.next_number();
        self.of_owners.entry(owner).or_default().noted.insert(number);
        number
    }

    const fn next_number(&mut self) -> u64 {
        let number = self.next;
        self.next = number.wrapping_add(1);
        number
    }

    /// Notes the end of a close.
    fn ends(&mut self, owner: usize, number: u64) {
        self.outstanding.remove(&number);
        if let Some(lane) = self.of_owners.get_mut(&owner) {
            lane.outstanding.remove(&number);
            lane.noted.remove(&number);
            if lane.outstanding.is_empty() && lane.noted.is_empty() && !lane.is_under_way {
                self.of_owners.remove(&owner);
            }
        }
    }

    /// True if the closes of `owner` before the number `given` have ended.
    fn are_closed(&self, owner: usize, closes: Closes, given: u64) -> bool {
        let Some(lane) = self.of_owners.get(&owner) else { return true };
        let have_ended =
            |numbers: &BTreeSet<u64>| numbers.first().is_none_or(|first| *first >= given);
        have_ended(&lane.outstanding) && (closes == Closes::OfCloser || have_ended(&lane.noted))
    }

    /// Takes the first close of the owner whose turn it is.
    fn take(&mut self) -> Option<Taken> {
        let owner = self.turns.pop_front()?;
        let numbered = self.of_owners.get_mut(&owner)?.jobs.pop_front()?;
        Some(Taken { owner, numbered })
    }

    /// Gives the owner another turn behind the others, if it has more to close.
    fn end(&mut self, owner: usize) {
        let Some(lane) = self.of_owners.get_mut(&owner) else { return };
        lane.is_under_way = !lane.jobs.is_empty();
        if lane.is_under_way {
            self.turns.push_back(owner);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    /// Tests that a close without end holds up what its owner closes later, and nothing of others.
    #[test]
    fn owners_wait_for_their_own_closes_only() {
        let closer = Arc::new(Closer::new());
        let (told, hears) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        closer.close(1, Box::new(move || ended.recv().unwrap_or_default()));
        for (owner, name) in [(1, "first of 1"), (1, "second of 1"), (2, "of 2"), (3, "of 3")] {
            let told = told.clone();
            closer.close(owner, Box::new(move || told.send(name).unwrap()));
        }
        let mut others = [(); 2].map(|()| hears.recv_timeout(PATIENCE).unwrap());
        others.sort_unstable();
        assert_eq!(others, ["of 2", "of 3"]);
        assert!(hears.try_recv().is_err());
        drop(end);
        let own = [(); 2].map(|()| hears.recv_timeout(PATIENCE).unwrap());
        assert_eq!(own, ["first of 1", "second of 1"]);
    }

    /// Tests that a call without space waits for what was closed before it, and for nothing else.
    #[tokio::test]
    async fn space_is_waited_for() {
        let closer = Arc::new(Closer::new());
        assert!(!closer.has_freed(closer.ended()).await, "nothing is closed");
        let (end, ended) = mpsc::channel::<()>();
        closer.close(1, Box::new(move || ended.recv().unwrap_or_default()));
        let waiting = tokio::spawn({
            let closer = Arc::clone(&closer);
            async move { closer.has_freed(closer.ended()).await }
        });
        let (told, hears) = mpsc::channel();
        for _ in 0..2 {
            let told = told.clone();
            closer.close(2, Box::new(move || told.send(()).unwrap()));
            hears.recv_timeout(PATIENCE).unwrap();
        }
        sleep(10 * SPACE_PAUSE).await;
        assert!(
            !waiting.is_finished(),
            "closes of others that came later have ended, not this one"
        );
        drop(end);
        assert!(waiting.await.unwrap());
        assert!(!closer.has_freed(closer.ended()).await);
    }

    /// Tests that a call without space is repeated if a close has ended since it was begun, and not for one
    /// that had ended before.
    #[tokio::test]
    async fn a_close_that_has_ended_since_counts() {
        let closer = Arc::new(Closer::new());
        let before = closer.ended();
        let (told, hears) = mpsc::channel();
        closer.close(1, Box::new(move || told.send(()).unwrap()));
        hears.recv_timeout(PATIENCE).unwrap();
        closer.has_closed_blocking(1, PATIENCE);
        assert!(closer.has_freed(before).await);
        assert!(!closer.has_freed(closer.ended()).await);
    }

    /// Tests that a query waits for the closes of its own account, those on threads of others among
    /// them, and for a limited time.
    #[tokio::test(start_paused = true)]
    async fn an_account_waits_for_its_own_closes() {
        let patience = Duration::from_secs(2);
        let (own, other) = (usize::MAX - 1, usize::MAX - 2);
        let of_other = note(other);
        assert!(!has_closed(own, Closes::All, patience).await, "nothing of its own");
        let noted = note(own);
        let waiting = tokio::spawn(has_closed(own, Closes::All, patience));
        sleep(Duration::from_secs(1)).await;
        assert!(!waiting.is_finished());
        drop(noted);
        assert!(waiting.await.unwrap());
        let hangs = note(own);
        let began = Instant::now();
        // A query of another file system does not wait for it, and a call without space does not either.
        assert!(!has_closed(own, Closes::OfCloser, patience).await);
        assert!(!CLOSER.lanes.lock().outstanding.contains(&hangs.number));
        assert!(has_closed(own, Closes::All, patience).await);
        assert!(began.elapsed() < patience + 2 * SPACE_PAUSE, "{:?}", began.elapsed());
        drop((hangs, of_other));
        let lanes = CLOSER.lanes.lock();
        assert!([own, other].iter().all(|owner| !lanes.of_owners.contains_key(owner)));
    }

    /// Tests that a panic of one close ends neither the thread nor the owner's turns.
    #[test]
    fn a_close_that_panics_is_the_end_of_no_other() {
        let closer = Arc::new(Closer::new());
        let (told, hears) = mpsc::channel();
        closer.close(1, Box::new(|| panic!("planted")));
        closer.close(1, Box::new(move || told.send(()).unwrap()));
        hears.recv_timeout(PATIENCE).unwrap();
    }

    /// Tests that at most so many owners close at one time, and that each has its turn.
    #[test]
    fn owners_take_turns() {
        let closer = Arc::new(Closer::new());
        let (told, hears) = mpsc::channel();
        let gate = Arc::new(Mutex::new(()));
        let shut = gate.lock();
        for owner in 0..2 * CLOSING_THREADS {
            let (gate, told) = (Arc::clone(&gate), told.clone());
            closer.close(
                owner,
                Box::new(move || {
                    drop(gate.lock());
                    told.send(owner).unwrap();
                }),
            );
        }
        drop(shut);
        let mut all: Vec<_> =
            (0..2 * CLOSING_THREADS).map(|_| hears.recv_timeout(PATIENCE).unwrap()).collect();
        all.sort_unstable();
        assert_eq!(all, (0..2 * CLOSING_THREADS).collect::<Vec<_>>());
    }
}
