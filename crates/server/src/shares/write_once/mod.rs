//! Shares whose files are written once: a file that stayed unchanged for a time is committed, and nobody
//! changes it through SMB any more. Once its time of retention is over it can be deleted, and still not changed.
//!
//! [`WriteOnceVfs`] is the file system of such a share. A file counts as committed as soon as the host's
//! own record of its last change (`ctime`), which no client sets, is old enough, whether or not anybody
//! looks. At the first look by a client the commitment is stored with the file, so that a
//! later change by a program of the host begins nothing anew.
//!
//! Folders are not committed, but one with entries cannot be moved: its files would go with it.

mod node;
mod vfs;

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use frevo_store::Node;
use frevo_store::vfs::{Commitment, VfsResult};
use frevo_wire::dtyp::FileTime;
use tokio::time::Instant;

use crate::base::ambient::{Ambient, Host};
use crate::base::host;

pub(crate) use vfs::WriteOnceVfs;

/// The times of a share whose files are written once.
#[derive(Clone)]
pub struct WriteOnce {
    /// The time without a change after which a file is committed.
    after: Duration,
    /// The time from the commitment on for which a file cannot be deleted. None: for ever.
    retain: Option<Duration>,
    clock: Arc<dyn Ambient>,
    /// The time of day at a moment: of the server's start, which a reload does not change.
    since: Since,
    /// True once it was told that commitments cannot be stored.
    is_told: Arc<AtomicBool>,
}

/// The time of day at a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Since {
    time: FileTime,
    moment: Instant,
}

impl Since {
    fn now(clock: &dyn Ambient) -> Self {
        Self { time: clock.now(), moment: Instant::now() }
    }

    /// The start of the process, or of the first share whose files are written once.
    fn start() -> Self {
        static START: OnceLock<Since> = OnceLock::new();
        *START.get_or_init(|| Self::now(&Host))
    }

    /// The time of day by the time that has passed.
    fn passed(&self) -> FileTime {
        later(self.time, self.moment.elapsed())
    }
}

impl fmt::Debug for WriteOnce {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WriteOnce")
            .field("after", &self.after)
            .field("retain", &self.retain)
            .finish_non_exhaustive()
    }
}

/// Equal for equal times.
impl PartialEq for WriteOnce {
    fn eq(&self, other: &Self) -> bool {
        (self.after, self.retain) == (other.after, other.retain)
    }
}

/// The hold on a committed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hold {
    /// It can be changed.
    Open,
    /// It can neither be changed nor deleted.
    Retained,
    /// It can be deleted, and not changed.
    Expired,
}

/// A time later by `by`; the last one where that is beyond it.
fn later(time: FileTime, by: Duration) -> FileTime {
    let ticks = u64::try_from(by.as_nanos() / 100).unwrap_or(u64::MAX);
    FileTime(time.0.saturating_add(ticks))
}

impl WriteOnce {
    /// Files are committed once they stayed unchanged for `after`, and can be deleted `retain` after that;
    /// None for never.
    pub fn new(after: Duration, retain: impl Into<Option<Duration>>) -> Self {
        let (retain, clock) = (retain.into(), Arc::new(Host));
        Self { after, retain, clock, since: Since::start(), is_told: Arc::default() }
    }

    /// Like [`Self::new`], by the time of day of `clock`, which is right now.
    pub fn by(
        after: Duration,
        retain: impl Into<Option<Duration>>,
        clock: Arc<dyn Ambient>,
    ) -> Self {
        let (retain, since) = (retain.into(), Since::now(&*clock));
        Self { after, retain, clock, since, is_told: Arc::default() }
    }

    /// The hold on a file with these facts.
    ///
    /// A clock that jumps forward commits files early, which loses nothing. It does not end a retention
    /// while the server runs: that ends when the time of day and the time that has passed since the
    /// start both say so.
    fn hold(&self, facts: &Commitment) -> Hold {
        let now = self.clock.now();
        let Some(committed) = self.committed(facts, now) else { return Hold::Open };
        let passed = self.since.passed();
        let ends = self.retain.map(|retain| later(committed, retain));
        match ends {
            Some(ends) if ends <= now.min(passed) && ends.0 != u64::MAX => Hold::Expired,
            _ => Hold::Retained,
        }
    }

    /// The time of the commitment; None for a file that is not committed yet.
    fn committed(&self, facts: &Commitment, now: FileTime) -> Option<FileTime> {
        let due = later(facts.unchanged_since, self.after);
        facts.committed.or((due <= now).then_some(due))
    }

    /// The hold on the file of `node`.
    fn hold_on(&self, node: &dyn Node) -> VfsResult<Hold> {
        // A user who may write a file may not be able to read its attributes.
        let _server = host::as_server();
        node.commitment().map(|facts| self.hold(&facts))
    }

    /// Stores that the file of `node` is committed, if it is and nothing is stored. A failure is only
    /// logged: the host's record of the last change still counts.
    fn note(&self, node: &dyn Node) -> VfsResult<Hold> {
        let _server = host::as_server();
        let facts = node.commitment()?;
        let hold = self.hold(&facts);
        if facts.committed.is_none()
            && let Some(at) = self.committed(&facts, self.clock.now())
            && let Err(fault) = node.commit(at)
            && !self.is_told.swap(true, Ordering::Relaxed)
        {
            tracing::warn!(target: "frevo::write_once", %fault,
                "commitments of files of a share cannot be stored; a change by a program of the host would undo it");
        }
        Ok(hold)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;

    #[derive(Debug)]
    struct Clock(Mutex<u64>);

    impl Ambient for Clock {
        fn now(&self) -> FileTime {
            FileTime(*self.0.lock() * 10_000_000)
        }

        fn random(&self, bytes: &mut [u8]) {
            bytes.fill(7);
        }
    }

    /// A clock that has jumped before a reload made the share anew ends nothing either.
    #[test]
    fn a_reload_does_not_take_the_clock_of_then() {
        let seconds = Duration::from_secs;
        let (first, again) = (WriteOnce::new(seconds(1), None), WriteOnce::new(seconds(2), None));
        assert_eq!(first.since, again.since);
        assert!(first != again);
    }

    const fn at(seconds: u64) -> FileTime {
        FileTime(seconds * 10_000_000)
    }

    #[tokio::test(start_paused = true)]
    async fn a_file_is_open_then_retained_then_expired() {
        let clock = Arc::new(Clock(Mutex::new(1000)));
        let seconds = Duration::from_secs;
        let rules = WriteOnce::by(seconds(60), seconds(3600), Arc::clone(&clock) as _);
        let facts = |since, committed| Commitment { unchanged_since: at(since), committed };
        assert_eq!(rules.hold(&facts(941, None)), Hold::Open);
        assert_eq!(rules.hold(&facts(940, None)), Hold::Retained);
        // A change by the host after the commitment begins nothing anew.
        assert_eq!(rules.hold(&facts(1000, Some(at(990)))), Hold::Retained);
        // A change in the future is none that is old enough.
        assert_eq!(rules.hold(&facts(5000, None)), Hold::Open);
        // A jump of the clock does not end the retention.
        *clock.0.lock() = 9000;
        assert_eq!(rules.hold(&facts(940, Some(at(1000)))), Hold::Retained);
        tokio::time::advance(seconds(3599)).await;
        assert_eq!(rules.hold(&facts(940, Some(at(1000)))), Hold::Retained);
        tokio::time::advance(seconds(1)).await;
        assert_eq!(rules.hold(&facts(940, Some(at(1000)))), Hold::Expired);
        // A clock that jumps back prolongs it.
        *clock.0.lock() = 2000;
        assert_eq!(rules.hold(&facts(940, Some(at(1000)))), Hold::Retained);
        *clock.0.lock() = 9000;
        assert_eq!(rules.hold(&facts(940, Some(FileTime(u64::MAX)))), Hold::Retained);
        let for_ever = WriteOnce::by(seconds(60), None, clock);
        assert_eq!(for_ever.hold(&facts(0, Some(at(1)))), Hold::Retained);
    }
}
