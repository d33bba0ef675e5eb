//! The quotas of users and groups of the host on the file systems of shares, and those of shares.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use crate::limits::{PROBE_PATIENCE, QUOTAS_AGE};

/// The quotas of a server's file systems.
pub trait QuotaSource: Send + Sync {
    /// Returns the quotas of users, groups and shares with limits, the fullest first. It may block.
    fn quotas(&self) -> Vec<LimitedOwner>;
}

/// The kinds of owners of files that have quotas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum OwnerKind {
    /// A user of the host.
    #[default]
    User,
    /// A group of the host.
    Group,
    /// A share: whatever is in its folder, whoever owns it.
    Share,
}

/// A user or a group of the host with limits on a file system, or a share with limits.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitedOwner {
    /// The kind of the owner.
    pub kind: OwnerKind,
    /// The shares on the file system; the share itself for one with limits.
    pub shares: Vec<String>,
    /// The number of the user or group on the host, or of the share's project; 0 for a subvolume.
    pub id: u32,
    /// Bytes that the owner's files take.
    pub space: u64,
    /// Bytes beyond which there is a grace time. None for no limit, as in the other limits.
    pub soft_space: Option<u64>,
    /// Bytes that are not exceeded.
    pub hard_space: Option<u64>,
    /// Count of the owner's files and directories; 0 for a subvolume.
    pub files: u64,
    /// Count beyond which there is a grace time.
    pub soft_files: Option<u64>,
    /// Count that is not exceeded.
    pub hard_files: Option<u64>,
    /// False if the kernel counts only.
    pub enforced: bool,
}

impl LimitedOwner {
    /// Returns the fullest part of a limit, in thousandths.
    pub fn fullness(&self) -> u64 {
        let part = |used: u64, limit: Option<u64>| {
            limit.map(|limit| used.saturating_mul(1_000).checked_div(limit).unwrap_or(1_000))
        };
        let space = [self.soft_space, self.hard_space].map(|limit| part(self.space, limit));
        let files = [self.soft_files, self.hard_files].map(|limit| part(self.files, limit));
        space.into_iter().chain(files).flatten().max().unwrap_or(0)
    }
}

/// The quotas as they were read last.
#[derive(Default)]
pub(crate) struct Quotas {
    known: Arc<Mutex<Known>>,
}

#[derive(Default)]
struct Known {
    read: Option<Instant>,
    /// True while a thread reads: storage that does not answer holds one thread.
    is_busy: bool,
    owners: Vec<LimitedOwner>,
}

/// Ends the reading, also after a panic.
struct Busy(Arc<Mutex<Known>>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.lock().is_busy = false;
    }
}

impl Quotas {
    /// Returns the quotas, read again if they are old. Those before are the answer if that takes long.
    pub(crate) async fn of(&self, source: Option<&Arc<dyn QuotaSource>>) -> Vec<LimitedOwner> {
        let Some(source) = source else { return Vec::new() };
        let is_due = {
            let mut known = self.known.lock();
            let is_old = known.read.is_none_or(|read| read.elapsed() >= QUOTAS_AGE);
            let is_due = is_old && !known.is_busy;
            known.is_busy |= is_due;
            is_due
        };
        if is_due {
            let (source, known) = (Arc::clone(source), Arc::clone(&self.known));
            let reading = tokio::task::spawn_blocking(move || {
                let busy = Busy(known);
                let owners = source.quotas();
                let mut known = busy.0.lock();
                (known.read, known.owners) = (Some(Instant::now()), owners);
            });
            let _ = timeout(PROBE_PATIENCE, reading).await;
        }
        self.known.lock().owners.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Counting(AtomicU32);

    impl QuotaSource for Counting {
        fn quotas(&self) -> Vec<LimitedOwner> {
            let id = self.0.fetch_add(1, Ordering::AcqRel);
            vec![LimitedOwner { id, ..LimitedOwner::default() }]
        }
    }

    #[tokio::test(start_paused = true)]
    async fn quotas_are_read_again_when_they_are_old() {
        let source: Arc<dyn QuotaSource> = Arc::new(Counting(AtomicU32::new(7)));
        let quotas = Quotas::default();
        assert!(quotas.of(None).await.is_empty());
        for id in [7, 7] {
            assert_eq!(quotas.of(Some(&source)).await[0].id, id);
        }
        tokio::time::advance(QUOTAS_AGE).await;
        assert_eq!(quotas.of(Some(&source)).await[0].id, 8);
    }

    #[test]
    fn the_fullest_limit_counts() {
        let owner = LimitedOwner {
            space: 50,
            files: 9,
            hard_space: Some(100),
            hard_files: Some(10),
            ..LimitedOwner::default()
        };
        assert_eq!(owner.fullness(), 900);
        assert_eq!(LimitedOwner { hard_files: Some(0), ..owner }.fullness(), 1_000);
        assert_eq!(LimitedOwner::default().fullness(), 0);
    }
}
