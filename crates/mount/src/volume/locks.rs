//! Byte-range locks: POSIX's, which belong to processes, made of SMB's, which
//! belong to Opens.
//!
//! Processes of this machine are told apart here; against the rest of the world
//! each lock of POSIX is one of the server's. SMB's are not merged or split, so
//! what replaces a lock lets go of it first; when the new one is not to be had
//! the old one is taken again. A lock of flock(2) is one of the whole file, whose
//! owner is the open file and not a process: the two kinds keep each other out, as
//! they do on the kernel's own SMB and NFS mounts.

use std::sync::Arc;

use frevo_client::File;
use fuser::Errno;

use super::{Caller, Volume};
use crate::errno::{Outcome, errno};
use crate::limits::{LOCK_AGAIN_FIRST, LOCK_AGAIN_MAX, LOCKS_MAX};
use crate::node::Node;

/// A lock as POSIX has it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Range {
    /// Whose.
    pub(crate) owner: u64,
    /// The process, for who asks who is in the way.
    pub(crate) pid: u32,
    /// The first byte.
    pub(crate) start: u64,
    /// The last byte.
    pub(crate) last: u64,
    /// For writing.
    pub(crate) exclusive: bool,
}

impl Range {
    /// What fcntl(2) has as a kind and two ends.
    pub(crate) const fn of(owner: u64, pid: u32, (start, last): (u64, u64), kind: i32) -> Self {
        Self { owner, pid, start, last, exclusive: kind == libc::F_WRLCK }
    }

    /// The kind, as fcntl(2) has it.
    pub(crate) const fn kind(&self) -> i32 {
        if self.exclusive { libc::F_WRLCK } else { libc::F_RDLCK }
    }

    const fn overlaps(&self, other: &Self) -> bool {
        self.start <= other.last && other.start <= self.last
    }

    const fn conflicts(&self, other: &Self) -> bool {
        self.owner != other.owner && self.overlaps(other) && (self.exclusive || other.exclusive)
    }

    const fn len(&self) -> u64 {
        (self.last - self.start).saturating_add(1)
    }

    /// What is left of this without `other`.
    fn without(&self, other: &Self) -> Vec<Self> {
        let mut left = Vec::new();
        if self.start < other.start {
            left.push(Self { last: other.start - 1, ..*self });
        }
        if self.last > other.last {
            left.push(Self { start: other.last + 1, ..*self });
        }
        left
    }
}

/// The locks that this mount has on a file.
#[derive(Debug, Default)]
pub(crate) struct Locks {
    held: Vec<HeldLock>,
}

/// One of them.
#[derive(Debug)]
struct HeldLock {
    range: Range,
    /// The Open that has it.
    file: File,
    /// The handle that it was taken through. Whoever its owner is, it does not outlive
    /// that: of a lock that belongs to an open file (F_OFD_SETLK) the kernel tells no more
    /// when it is closed.
    through: u64,
}

impl HeldLock {
    /// What is left of it without `other`, to be taken again.
    fn without(&self, other: &Range) -> Vec<Self> {
        let left = self.range.without(other).into_iter();
        left.map(|range| Self { range, file: self.file.clone(), through: self.through }).collect()
    }

    async fn unlock(&self) -> Outcome<()> {
        let Range { start, .. } = self.range;
        self.file.unlock(start, self.range.len()).await.map_err(|error| errno(&error))
    }
}

impl Locks {
    pub(super) const fn is_any(&self) -> bool {
        !self.held.is_empty()
    }

    /// Another process of this machine that is in the way.
    fn conflict(&self, wanted: &Range) -> Option<Range> {
        self.held.iter().map(|held| held.range).find(|range| range.conflicts(wanted))
    }

    /// Takes those of the same owner out that `wanted` touches.
    fn replaced(&mut self, wanted: &Range) -> Vec<HeldLock> {
        let touches =
            |held: &mut HeldLock| held.range.owner == wanted.owner && held.range.overlaps(wanted);
        self.held.extract_if(.., touches).collect()
    }
}

impl Volume {
    /// The Open that locks are taken with: the one that is read and written with.
    fn locker(&self, node: &Node) -> Outcome<File> {
        self.writer(node).or_else(|| self.open_file(node)).ok_or(Errno::EBADF)
    }

    /// Sees to it that who locks for writing through a file that he only reads
    /// (flock) does so with the Open that this mount will write with: to SMB any
    /// other one is somebody else, who is kept out.
    async fn prepare_locker(&self, node: &Arc<Node>, wanted: &Range) {
        if !wanted.exclusive || self.settings.read_only || self.writer(node).is_some() {
            return;
        }
        let _turn = node.opening.lock().await;
        if let Err(error) = self.open_on_server(node, true, true).await {
            tracing::debug!(?error, "locked with an Open that only reads");
        }
    }

    /// Who is in the way of a lock; nobody.
    pub(crate) async fn getlk(&self, number: u64, wanted: Range) -> Outcome<Option<Range>> {
        let node = Arc::clone(&self.handle(number)?.node);
        let locks = node.locks.lock().await;
        if let Some(found) = locks.conflict(&wanted) {
            return Ok(Some(found));
        }
        // What this owner has himself is in nobody's way.
        let own = |range: &Range| range.owner == wanted.owner && range.overlaps(&wanted);
        if locks.held.iter().any(|held| own(&held.range)) {
            return Ok(None);
        }
        let file = self.locker(&node)?;
        match file.lock(wanted.start, wanted.len(), wanted.exclusive, false).await {
            Ok(()) => {
                file.unlock(wanted.start, wanted.len()).await.map_err(|error| errno(&error))?;
                Ok(None)
            }
            // Whose it is the server does not tell.
            Err(error) if errno(&error) == Errno::EAGAIN => {
                Ok(Some(Range { pid: 0, exclusive: true, ..wanted }))
            }
            Err(error) => Err(errno(&error)),
        }
    }

    /// Locks, and waits for that if asked to: until the caller is sent a signal.
    pub(crate) async fn setlk(
        &self,
        number: u64,
        wanted: Range,
        mut waits: Option<Caller>,
    ) -> Outcome<()> {
        let mut pause = LOCK_AGAIN_FIRST;
        loop {
            // Gone when it was unmounted under the program.
            let node = Arc::clone(&self.handle(number)?.node);
            self.prepare_locker(&node, &wanted).await;
            let unlocked = node.unlocked.notified();
            tokio::pin!(unlocked);
            unlocked.as_mut().enable();
            let caller = match (self.try_lock(&node, number, wanted).await, &mut waits) {
                (Err(error), Some(caller)) if error == Errno::EAGAIN => caller,
                (other, _) => return other,
            };
            // Waiting on the server would keep everybody else of this mount from
            // letting go.
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = unlocked => {}
                () = caller.signalled() => return Err(Errno::EINTR),
            }
            pause = (pause * 2).min(LOCK_AGAIN_MAX);
        }
    }

    async fn try_lock(&self, node: &Arc<Node>, through: u64, wanted: Range) -> Outcome<()> {
        let mut locks = node.locks.lock().await;
        // Who asked may have been killed meanwhile, and the handle closed: that has taken its
        // locks already, or waits for its turn here and will take this one.
        self.handle(through)?;
        if locks.conflict(&wanted).is_some() {
            return Err(Errno::EAGAIN);
        }
        if locks.held.len() >= LOCKS_MAX {
            return Err(Errno::ENOLCK);
        }
        let covers = |range: &Range| {
            range.owner == wanted.owner
                && range.exclusive == wanted.exclusive
                && range.start <= wanted.start
                && wanted.last <= range.last
        };
        if locks.held.iter().any(|held| covers(&held.range)) {
            return Ok(());
        }
        let file = self.locker(node)?;
        let replaced = locks.replaced(&wanted);
        let mut taken = Ok(());
        for held in &replaced {
            taken = taken.and(held.unlock().await);
        }
        if taken.is_ok() {
            let lock = file.lock(wanted.start, wanted.len(), wanted.exclusive, false);
            taken = lock.await.map_err(|error| errno(&error));
        }
        let left: Vec<HeldLock> = if taken.is_ok() {
            locks.held.push(HeldLock { range: wanted, file, through });
            replaced.iter().flat_map(|held| held.without(&wanted)).collect()
        } else {
            replaced
        };
        take_again(&mut locks, left).await;
        taken
    }

    /// Unlocks.
    pub(crate) async fn unlock(&self, number: u64, wanted: Range) -> Outcome<()> {
        let node = Arc::clone(&self.handle(number)?.node);
        self.unlock_in(&node, wanted).await
    }

    /// Nobody has any use for a lock that was taken.
    pub(crate) fn not_locked(self: &Arc<Self>, number: u64, taken: Range) {
        let volume = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = volume.unlock(number, taken).await {
                tracing::debug!(?error, "a lock went with its file");
            }
        });
    }

    async fn unlock_in(&self, node: &Arc<Node>, wanted: Range) -> Outcome<()> {
        let mut locks = node.locks.lock().await;
        let replaced = locks.replaced(&wanted);
        if replaced.is_empty() {
            return Ok(());
        }
        // Whoever locks it next must find what was written under this lock.
        let mut done = self.send(node).await;
        let mut left = Vec::new();
        for held in replaced {
            // Nobody knows of the others any more either: one that failed keeps none of them.
            done = done.and(held.unlock().await);
            left.extend(held.without(&wanted));
        }
        take_again(&mut locks, left).await;
        drop(locks);
        node.unlocked.notify_waiters();
        done
    }

    /// A handle is closed for the last time: what was locked through it is not any more.
    pub(super) async fn unlock_through(&self, node: &Arc<Node>, through: u64) {
        let mut locks = node.locks.lock().await;
        let is_its = |held: &mut HeldLock| held.through == through;
        let gone: Vec<HeldLock> = locks.held.extract_if(.., is_its).collect();
        if gone.is_empty() {
            return;
        }
        let _ = self.send(node).await;
        for held in gone {
            if let Err(error) = held.unlock().await {
                tracing::debug!(?error, "a lock went with its file");
            }
        }
        drop(locks);
        node.unlocked.notify_waiters();
    }

    /// An owner has closed the file: POSIX takes all his locks.
    pub(super) async fn unlock_all(&self, node: &Arc<Node>, owner: u64) {
        let all = Range { owner, pid: 0, start: 0, last: u64::MAX, exclusive: false };
        if let Err(error) = self.unlock_in(node, all).await {
            tracing::debug!(?error, "a lock went with its file");
        }
    }
}

/// Takes again what had to be let go of for a moment. Somebody may have been
/// faster: then it is lost, as POSIX knows no way to say.
async fn take_again(locks: &mut Locks, left: Vec<HeldLock>) {
    for held in left {
        let range = held.range;
        match held.file.lock(range.start, range.len(), range.exclusive, false).await {
            Ok(()) => locks.held.push(held),
            Err(error) => tracing::warn!(%error, "a lock was lost to somebody else"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn range(owner: u64, start: u64, last: u64, exclusive: bool) -> Range {
        Range { owner, pid: 0, start, last, exclusive }
    }

    #[test]
    fn only_others_and_only_writers_are_in_the_way() {
        let mine = range(1, 10, 19, true);
        assert!(!mine.conflicts(&range(1, 10, 19, true)));
        assert!(mine.conflicts(&range(2, 19, 30, false)));
        assert!(!mine.conflicts(&range(2, 20, 30, true)));
        assert!(!range(1, 0, 9, false).conflicts(&range(2, 0, 9, false)));
    }

    #[test]
    fn what_is_left_of_a_lock() {
        let lock = range(1, 10, 19, true);
        assert_eq!(
            lock.without(&range(1, 12, 14, true)),
            [range(1, 10, 11, true), range(1, 15, 19, true)]
        );
        assert_eq!(lock.without(&range(1, 0, 14, true)), [range(1, 15, 19, true)]);
        assert_eq!(lock.without(&range(1, 0, u64::MAX, true)), []);
    }
}
