//! Lock sequences: MS-SMB2 3.2.1.5 Open.OperationBuckets and 3.2.4.19. The server recognises
//! a repeated LOCK by its bucket and number.

use frevo_wire::command::lock::LockSequence;
use parking_lot::Mutex;

/// Buckets of one Open.
const BUCKETS: usize = 64;

#[derive(Debug, Clone, Copy, Default)]
struct Bucket {
    number: u8,
    busy: bool,
}

/// The buckets of an Open: Open.OperationBuckets.
#[derive(Debug)]
pub(crate) struct Sequences(Mutex<[Bucket; BUCKETS]>);

impl Default for Sequences {
    fn default() -> Self {
        Self(Mutex::new([Bucket::default(); BUCKETS]))
    }
}

/// The sequence of one LOCK. Dropping it frees its bucket.
pub(crate) struct Sequence<'a> {
    owner: &'a Sequences,
    at: usize,
    pub(crate) sequence: LockSequence,
}

impl Sequences {
    /// Takes a free bucket with its next number; `None` while 64 locks are under way.
    pub(crate) fn take(&self) -> Option<Sequence<'_>> {
        let mut buckets = self.0.lock();
        let at = buckets.iter().position(|bucket| !bucket.busy)?;
        let bucket = buckets.get_mut(at)?;
        bucket.busy = true;
        bucket.number = (bucket.number + 1) % 16;
        let index = u32::try_from(at + 1).ok()?;
        Some(Sequence { owner: self, at, sequence: LockSequence::new(bucket.number, index) })
    }
}

impl Drop for Sequence<'_> {
    fn drop(&mut self) {
        if let Some(bucket) = self.owner.0.lock().get_mut(self.at) {
            bucket.busy = false;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_under_way_never_share_a_bucket() {
        let sequences = Sequences::default();
        let first = sequences.take().unwrap();
        let second = sequences.take().unwrap();
        assert_ne!(first.sequence.index(), second.sequence.index());
        let number = first.sequence.number();
        drop(first);
        let third = sequences.take().unwrap();
        assert_eq!((third.sequence.index(), third.sequence.number()), (1, number + 1));
        let all: Vec<_> = std::iter::from_fn(|| sequences.take()).collect();
        assert_eq!(all.len(), BUCKETS - 2);
    }
}
