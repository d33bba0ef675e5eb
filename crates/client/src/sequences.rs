//! Lock sequences: MS-SMB2 3.2.1.5 Open.OperationBuckets and 3.2.4.19. The server recognises
//! a repeated LOCK by its bucket and number.

use std::pin::pin;

use frevo_wire::command::lock::LockSequence;
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Buckets of one Open.
const BUCKETS: usize = 64;

/// Buckets for LOCKs that wait for other clients. The rest is for those that end soon: an unlock
/// that others wait for must not wait for them.
const BUCKETS_WAITING: usize = 48;

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    number: u8,
    busy: bool,
}

/// The buckets of an Open: Open.OperationBuckets.
#[derive(Debug)]
pub(crate) struct Sequences {
    buckets: Mutex<[Bucket; BUCKETS]>,
    freed: Notify,
}

impl Default for Sequences {
    fn default() -> Self {
        Self { buckets: Mutex::new([Bucket::default(); BUCKETS]), freed: Notify::new() }
    }
}

/// The sequence of one LOCK. Dropping it frees its bucket.
pub(crate) struct Sequence<'a> {
    owner: &'a Sequences,
    at: usize,
    pub(crate) sequence: LockSequence,
}

impl Sequences {
    /// Takes a free bucket with its next number, for a LOCK that waits for other clients; `None`
    /// while 48 are under way.
    pub(crate) fn take_waiting(&self) -> Option<Sequence<'_>> {
        self.take_from(|buckets| buckets.iter().take(BUCKETS_WAITING).position(|b| !b.busy))
    }

    /// Takes a free bucket with its next number, for a LOCK that ends soon. Waits while all are in
    /// use.
    pub(crate) async fn take(&self) -> Sequence<'_> {
        loop {
            let mut freed = pin!(self.freed.notified());
            freed.as_mut().enable();
            let free = self.take_from(|buckets| buckets.iter().rposition(|b| !b.busy));
            match free {
                Some(sequence) => return sequence,
                None => freed.await,
            }
        }
    }

    fn take_from(
        &self,
        free: impl FnOnce(&[Bucket; BUCKETS]) -> Option<usize>,
    ) -> Option<Sequence<'_>> {
        let mut buckets = self.buckets.lock();
        let at = free(&buckets)?;
        let bucket = buckets.get_mut(at)?;
        bucket.busy = true;
        bucket.number = (bucket.number + 1) % 16;
        let index = u32::try_from(at + 1).ok()?;
        Some(Sequence { owner: self, at, sequence: LockSequence::new(bucket.number, index) })
    }
}

impl Drop for Sequence<'_> {
    fn drop(&mut self) {
        if let Some(bucket) = self.owner.buckets.lock().get_mut(self.at) {
            bucket.busy = false;
        }
        self.owner.freed.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[test]
    fn two_under_way_never_share_a_bucket() {
        let sequences = Sequences::default();
        let first = sequences.take_waiting().unwrap();
        let second = sequences.take_waiting().unwrap();
        assert_ne!(first.sequence.index(), second.sequence.index());
        let number = first.sequence.number();
        drop(first);
        let third = sequences.take_waiting().unwrap();
        assert_eq!((third.sequence.index(), third.sequence.number()), (1, number + 1));
        let all: Vec<_> = std::iter::from_fn(|| sequences.take_waiting()).collect();
        assert_eq!(all.len(), BUCKETS_WAITING - 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_that_ends_soon_waits_for_a_bucket_and_not_for_those_that_wait() {
        let sequences = Sequences::default();
        let _waiting: Vec<_> = std::iter::from_fn(|| sequences.take_waiting()).collect();
        let mut soon = Vec::new();
        for _ in BUCKETS_WAITING..BUCKETS {
            soon.push(sequences.take().await);
        }
        assert!(timeout(Duration::from_secs(1), sequences.take()).await.is_err());
        let (next, ()) = tokio::join!(sequences.take(), async { drop(soon.pop()) });
        assert!(soon.iter().all(|one| one.sequence.index() != next.sequence.index()));
    }
}
