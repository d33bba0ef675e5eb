//! Gives the allocator's free memory back to the system after a burst.

use std::sync::Arc;
use std::time::Duration;

use frevo_net::buffer::{self, budget};
use rustix::time::{ClockId, clock_gettime};
use tokio::time::sleep;

use crate::base::host;
use crate::base::limits::{
    CONNECTION_BYTES, GIVE_BACK_BYTES, GIVE_BACK_LOOK, GIVE_BACK_LOOKS, GIVE_BACK_LOOKS_BUSY,
    GIVE_BACK_QUIET_PART,
};
use crate::objects::ledger::{Kind, Ledger};
use crate::objects::server::ServerState;

/// Gives free memory back from time to time. It may take many milliseconds, so it is done beside the
/// cores.
pub(super) async fn give_back(server: Arc<ServerState>) {
    let mut process = Process::default();
    let mut looks = Looks::default();
    loop {
        sleep(GIVE_BACK_LOOK).await;
        // It frees many names, which takes long.
        if host::remembers_names() {
            let _ = tokio::task::spawn_blocking(host::forget_unused_names).await;
        }
        let used = used(&server.ledger, budget::in_use());
        let resident = buffer::resident_bytes();
        let seen = Seen { used, released: buffer::take_released(), resident, work: process.work() };
        if looks.is_due(seen) {
            let _ = tokio::task::spawn_blocking(buffer::release_free_memory).await;
            looks.given_back(buffer::resident_bytes());
        }
    }
}

/// Returns the bytes that are known to be in use, with `buffers` in large buffers. Nobody is charged for what a
/// connection itself takes: thousands of them would look like memory that the allocator keeps, and their end
/// would not be noticed.
fn used(ledger: &Ledger, buffers: usize) -> usize {
    let beside = ledger.cached_bytes().saturating_add(ledger.watched_bytes());
    let connections = ledger.count(Kind::Connection).saturating_mul(CONNECTION_BYTES);
    ledger.bytes().saturating_add(beside).max(buffers).saturating_add(connections)
}

/// The processor time of this process, as the kernel counts it.
#[derive(Default)]
struct Process {
    worked: Duration,
}

impl Process {
    /// Returns the processor time since the last call.
    fn work(&mut self) -> Duration {
        let now = clock_gettime(ClockId::ProcessCPUTime);
        let now = Duration::try_from(now).unwrap_or_default();
        now.saturating_sub(std::mem::replace(&mut self.worked, now))
    }
}

/// The memory and the work that one look sees.
#[derive(Debug, Clone, Copy, Default)]
struct Seen {
    /// Bytes that are known to be in use.
    used: usize,
    /// Bytes that pools have freed since the last look.
    released: usize,
    /// Bytes of the process, if the kernel tells them.
    resident: Option<usize>,
    /// Processor time since the last look.
    work: Duration,
}

/// The memory in use at earlier looks.
#[derive(Debug, Default)]
struct Looks {
    /// The most since memory was given back.
    most: usize,
    /// The bytes at the last look.
    last: usize,
    /// Further looks after one at which much was free.
    left: u32,
    /// Bytes that pools of buffers have freed since memory was given back. Nobody used them: they were
    /// not in `most` when they were freed.
    released: usize,
    /// The bytes of the process when memory was last given back while it was quiet, and those that were
    /// in use then. None before the first look.
    after: Option<(usize, usize)>,
    /// True if the process did little before the last look.
    is_quiet: bool,
    /// The processor time of the last look.
    work: Duration,
    /// The most processor time of one look since then, and of the look at which memory was given back under
    /// load: those who still ask little afterwards do not count as load.
    busiest: Duration,
    /// The number of looks since then.
    since: u32,
}

impl Looks {
    /// Returns true if free memory is to be given back.
    fn is_due(&mut self, seen: Seen) -> bool {
        let Seen { used, released, .. } = seen;
        self.most = self.most.max(used);
        self.released = self.released.saturating_add(released);
        let is_much = self.most.saturating_sub(used) >= GIVE_BACK_BYTES;
        // After a burst its memory is freed gradually, so the server looks several times.
        let is_rest = self.left > 0 && (used < self.last || self.left == GIVE_BACK_LOOKS);
        self.left = if is_much { GIVE_BACK_LOOKS } else { self.left.saturating_sub(1) };
        self.last = used;
        let is_swollen = self.is_swollen(seen);
        let is_due = is_much || is_rest || self.released >= GIVE_BACK_BYTES || is_swollen;
        if is_due {
            self.most = used;
            self.released = 0;
        }
        is_due
    }

    /// Returns true if the process has grown by more than what is in use, and does little now. Requests
    /// take memory that nothing counts while they are carried out, and the allocator keeps it. To give
    /// it back while they come would make them wait for the same memory again.
    fn is_swollen(&mut self, seen: Seen) -> bool {
        let Some(resident) = seen.resident else { return false };
        self.since = self.since.saturating_add(1);
        self.work = seen.work;
        self.busiest = self.busiest.max(seen.work);
        let (resident_after, used_after) = *self.after.get_or_insert((resident, seen.used));
        let expected = resident_after.saturating_add(seen.used).saturating_sub(used_after);
        self.is_quiet = seen.work.saturating_mul(GIVE_BACK_QUIET_PART) <= self.busiest;
        resident.saturating_sub(expected) >= GIVE_BACK_BYTES
            && (self.is_quiet || self.since >= GIVE_BACK_LOOKS_BUSY)
    }

    /// Notes the bytes of the process after memory was given back. Those under load say nothing of what
    /// stays when it is over: requests still have some of them.
    fn given_back(&mut self, resident: Option<usize>) {
        if self.is_quiet {
            self.after = resident.map(|resident| (resident, self.last));
        }
        self.busiest = if self.is_quiet { Duration::ZERO } else { self.work };
        self.since = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MUCH: usize = GIVE_BACK_BYTES;

    /// A look that sees only what is counted.
    fn counted(used: usize, released: usize) -> Seen {
        Seen { used, released, ..Seen::default() }
    }

    fn with_process(used: usize, resident: usize, work_ms: u64) -> Seen {
        let work = Duration::from_millis(work_ms);
        Seen { used, resident: Some(resident), work, ..Seen::default() }
    }

    /// Tests n - 1 and n bytes that are used no more, and the looks that follow.
    #[test]
    fn memory_of_a_burst_is_given_back_as_it_becomes_free() {
        let mut looks = Looks::default();
        assert!(!looks.is_due(counted(3 * MUCH, 0)));
        assert!(!looks.is_due(counted(2 * MUCH + 1, 0)));
        assert!(looks.is_due(counted(2 * MUCH, 0)));
        assert!(looks.is_due(counted(2 * MUCH, 0)), "the first look after it");
        assert!(!looks.is_due(counted(2 * MUCH, 0)), "nothing became free");
        assert!(looks.is_due(counted(2 * MUCH - 1, 0)), "a little became free");
        assert!(!looks.is_due(counted(2 * MUCH - 1, 0)));
        assert!(!looks.is_due(counted(2 * MUCH - 2, 0)), "the burst is over");
    }

    /// Tests n - 1 and n bytes that pools free long after they were used, in one look and in several.
    #[test]
    fn memory_that_pools_kept_is_given_back_too() {
        let mut looks = Looks::default();
        assert!(!looks.is_due(counted(0, MUCH - 1)));
        assert!(looks.is_due(counted(0, 1)));
        assert!(!looks.is_due(counted(0, MUCH - 1)));
        assert!(!looks.is_due(counted(0, 0)));
        assert!(looks.is_due(counted(0, MUCH)));
        assert!(!looks.is_due(counted(0, 0)));
    }

    /// Tests n - 1 and n bytes that nothing counts: they are given back when the process does little,
    /// once.
    #[test]
    fn memory_that_nothing_counted_is_given_back_when_work_is_over() {
        let mut looks = Looks::default();
        assert!(!looks.is_due(with_process(0, 10 * MUCH, 0)));
        assert!(!looks.is_due(with_process(0, 12 * MUCH, 800)), "requests come");
        assert!(!looks.is_due(with_process(0, 12 * MUCH, 201)), "they still come");
        assert!(!looks.is_due(with_process(0, 11 * MUCH - 1, 1)));
        let (half, with_half) = (MUCH / 2, 11 * MUCH + MUCH / 2 - 1);
        assert!(!looks.is_due(with_process(half, with_half, 1)), "some of it is in use");
        assert!(looks.is_due(with_process(0, 12 * MUCH, 200)));
        looks.given_back(Some(11 * MUCH));
        for _ in 0..GIVE_BACK_LOOKS_BUSY {
            assert!(!looks.is_due(with_process(0, 12 * MUCH - 1, 0)), "the rest stays");
        }
    }

    /// Connections hold memory that nobody is charged for. It was given back last when they were all there, in a
    /// quiet moment, so that nothing but their end says that most of it is free now.
    #[test]
    fn memory_of_many_connections_is_given_back_after_them() {
        const EACH: usize = 2 * CONNECTION_BYTES;
        let (ledger, mut looks) = (Ledger::default(), Looks::default());
        let resident = |connections: usize| 10 * MUCH + connections * EACH;
        let see = |looks: &mut Looks, resident: usize, work_ms: u64| {
            looks.is_due(with_process(used(&ledger, 0), resident, work_ms))
        };
        assert!(!see(&mut looks, resident(0), 20));
        let count = 4 * MUCH / EACH;
        let (ann, network) = (ledger.account("ann"), ledger.network([192, 0, 2, 1].into()));
        let charges: Vec<_> = (0..count)
            .flat_map(|_| {
                [&ann, &network].map(|holder| holder.charge(Kind::Connection, 0).unwrap())
            })
            .collect();
        assert!(!see(&mut looks, resident(count), 400), "they log on");
        looks.is_due(with_process(used(&ledger, 0), resident(count) + MUCH, 20));
        looks.given_back(Some(resident(count)));
        assert!(!see(&mut looks, resident(count), 20));
        drop(charges);
        assert!(see(&mut looks, resident(count), 20), "they have gone");
        looks.given_back(Some(resident(0)));
        assert!(see(&mut looks, resident(0), 20), "the look after it");
        assert!(!see(&mut looks, resident(0), 20), "nothing became free");
    }

    /// Without a pause it is given back now and then.
    #[test]
    fn memory_that_nothing_counted_is_given_back_under_load_now_and_then() {
        let mut looks = Looks::default();
        let looks_until_due = |looks: &mut Looks| {
            (1..).find(|_| looks.is_due(with_process(0, 20 * MUCH, 900))).unwrap()
        };
        assert!(!looks.is_due(with_process(0, 10 * MUCH, 900)));
        assert_eq!(looks_until_due(&mut looks), GIVE_BACK_LOOKS_BUSY - 1);
        looks.given_back(Some(10 * MUCH));
        assert_eq!(looks_until_due(&mut looks), GIVE_BACK_LOOKS_BUSY);
        // Giving back did not reduce the memory. It is tried again when the load is over.
        looks.given_back(Some(20 * MUCH));
        assert!(!looks.is_due(with_process(0, 20 * MUCH, 900)));
        assert!(looks.is_due(with_process(0, 20 * MUCH, 0)), "the load is over");
        looks.given_back(Some(15 * MUCH));
        assert!(!looks.is_due(with_process(0, 15 * MUCH, 0)), "once");
    }

    /// Memory that was given back in the last second of a load is given back again when it is over, also while
    /// others go on to ask a little.
    #[test]
    fn those_who_ask_little_do_not_keep_the_memory_of_others() {
        let mut looks = Looks::default();
        assert!(!looks.is_due(with_process(0, 10 * MUCH, 20)));
        assert!(!looks.is_due(with_process(2 * MUCH, 13 * MUCH, 900)));
        for time in ["much is used no more", "the look after it"] {
            assert!(looks.is_due(with_process(MUCH, 13 * MUCH, 700)), "{time}");
            looks.given_back(Some(13 * MUCH));
        }
        assert!(looks.is_due(with_process(MUCH, 13 * MUCH, 20)), "it is over");
        looks.given_back(Some(11 * MUCH));
        assert!(!looks.is_due(with_process(MUCH, 11 * MUCH, 20)), "once");
    }
}
