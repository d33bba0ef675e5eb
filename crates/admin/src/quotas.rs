//! The quotas of users of the host on the file systems of shares.

use std::sync::Arc;

use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use tokio::time::{Instant, timeout};

use crate::limits::{PROBE_PATIENCE, QUOTAS_AGE};

/// The quotas of a server's file systems.
pub trait QuotaSource: Send + Sync {
    /// Returns the quotas of users with limits, the fullest first. It may block.
    fn quotas(&self) -> Vec<LimitedUser>;
}

/// A user of the host with limits on a file system.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct LimitedUser {
    /// The shares on the file system.
    pub shares: Vec<String>,
    /// The number of the user on the host.
    pub user: u32,
    /// Bytes that the user's files take.
    pub space: u64,
    /// Bytes beyond which there is a grace time. None for no limit, as in the other limits.
    pub soft_space: Option<u64>,
    /// Bytes that are not exceeded.
    pub hard_space: Option<u64>,
    /// Count of the user's files and directories.
    pub files: u64,
    /// Count beyond which there is a grace time.
    pub soft_files: Option<u64>,
    /// Count that is not exceeded.
    pub hard_files: Option<u64>,
    /// False if the kernel counts only.
    pub enforced: bool,
}

impl LimitedUser {
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
    users: Vec<LimitedUser>,
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
    pub(crate) async fn of(&self, source: Option<&Arc<dyn QuotaSource>>) -> Vec<LimitedUser> {
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
                let users = source.quotas();
                let mut known = busy.0.lock();
                (known.read, known.users) = (Some(Instant::now()), users);
            });
            let _ = timeout(PROBE_PATIENCE, reading).await;
        }
        self.known.lock().users.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    struct Counting(AtomicU32);

    impl QuotaSource for Counting {
        fn quotas(&self) -> Vec<LimitedUser> {
            let user = self.0.fetch_add(1, Ordering::AcqRel);
            vec![LimitedUser { user, ..LimitedUser::default() }]
        }
    }

    #[tokio::test(start_paused = true)]
    async fn quotas_are_read_again_when_they_are_old() {
        let source: Arc<dyn QuotaSource> = Arc::new(Counting(AtomicU32::new(7)));
        let quotas = Quotas::default();
        assert!(quotas.of(None).await.is_empty());
        for user in [7, 7] {
            assert_eq!(quotas.of(Some(&source)).await[0].user, user);
        }
        tokio::time::advance(QUOTAS_AGE).await;
        assert_eq!(quotas.of(Some(&source)).await[0].user, 8);
    }

    #[test]
    fn the_fullest_limit_counts() {
        let user = LimitedUser {
            space: 50,
            files: 9,
            hard_space: Some(100),
            hard_files: Some(10),
            ..LimitedUser::default()
        };
        assert_eq!(user.fullness(), 900);
        assert_eq!(LimitedUser { hard_files: Some(0), ..user }.fullness(), 1_000);
        assert_eq!(LimitedUser::default().fullness(), 0);
    }
}
