//! Byte-range locks: POSIX locks of processes, made of SMB locks of Opens.
//!
//! Conflicts between local processes are found here; every POSIX lock is also a lock on the server,
//! for other clients. SMB locks are not merged or split: a replaced lock is released first, and
//! taken again if the new one is refused. A flock(2) lock covers the whole file and belongs to an
//! open file description instead of a process. Both kinds exclude each other, as on the kernel's
//! own SMB and NFS mounts.

use std::sync::Arc;

use frevo_client::File;
use fuser::Errno;

use super::{Caller, Volume};
use crate::errno::{Outcome, errno};
use crate::limits::{LOCK_RETRY_FIRST, LOCK_RETRY_MAX, LOCKS_MAX};
use crate::node::{HeldLock, Node, Range};

impl Volume {
    /// Returns the Open for locks: the one that is also used to read and write.
    fn locker(&self, node: &Node) -> Outcome<File> {
        self.writer(node).or_else(|| self.open_file(node)).ok_or(Errno::EBADF)
    }

    /// Opens the file for writing before a write lock through a read-only handle (flock). Later
    /// writes of this mount use that Open; to SMB, any other Open is excluded by the lock.
    async fn prepare_locker(&self, node: &Arc<Node>, wanted: &Range) {
        if !wanted.exclusive || self.settings.read_only || self.writer(node).is_some() {
            return;
        }
        let _turn = self.turn(node).await;
        if let Err(error) = self.open_on_server(node, true, true).await {
            tracing::debug!(?error, "the lock is taken through a read-only Open");
        }
    }

    /// Returns a lock that conflicts with `wanted`; None if there is none.
    pub(crate) async fn getlk(&self, number: u64, wanted: Range) -> Outcome<Option<Range>> {
        let node = Arc::clone(&self.handle(number)?.node);
        let locks = node.locks.lock().await;
        if let Some(found) = locks.conflict(&wanted) {
            return Ok(Some(found));
        }
        // A lock never conflicts with another lock of the same owner.
        let own = |range: &Range| range.owner == wanted.owner && range.overlaps(&wanted);
        if locks.held.iter().any(|held| own(&held.range)) {
            return Ok(None);
        }
        let file = self.locker(&node)?;
        match file.try_lock(wanted.start, wanted.len(), wanted.lock_kind()).await {
            Ok(()) => {
                file.unlock(wanted.start, wanted.len()).await.map_err(|error| errno(&error))?;
                Ok(None)
            }
            // The server does not report who has the conflicting lock, so the pid is 0.
            Err(error) if errno(&error) == Errno::EAGAIN => {
                Ok(Some(Range { pid: 0, exclusive: true, ..wanted }))
            }
            Err(error) => Err(errno(&error)),
        }
    }

    /// Locks a range. With `waits`, waits for it until the caller gets a signal.
    pub(crate) async fn setlk(
        &self,
        number: u64,
        wanted: Range,
        mut waits: Option<Caller>,
    ) -> Outcome<()> {
        let mut pause = LOCK_RETRY_FIRST;
        loop {
            // During the wait an unmount may remove the handle, so the handle is looked up in each
            // round.
            let node = Arc::clone(&self.handle(number)?.node);
            self.prepare_locker(&node, &wanted).await;
            let unlocked = node.unlocked.notified();
            tokio::pin!(unlocked);
            unlocked.as_mut().enable();
            let caller = match (self.try_lock(&node, number, wanted).await, &mut waits) {
                (Err(error), Some(caller)) if error == Errno::EAGAIN => caller,
                (other, _) => return other,
            };
            // The lock is tried again and again, because a request that waits on the server would
            // block the unlocks of this mount.
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = unlocked => {}
                () = caller.signalled() => return Err(Errno::EINTR),
            }
            pause = (pause * 2).min(LOCK_RETRY_MAX);
        }
    }

    async fn try_lock(&self, node: &Arc<Node>, through: u64, wanted: Range) -> Outcome<()> {
        let mut locks = node.locks.lock().await;
        // If the caller was killed, its handle may be closed already. Then `handle` returns an
        // error. A close that comes later will release the lock.
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
            let lock = file.try_lock(wanted.start, wanted.len(), wanted.lock_kind());
            taken = lock.await.map_err(|error| errno(&error));
        }
        let left: Vec<HeldLock> = if taken.is_ok() {
            locks.held.push(HeldLock { range: wanted, file, through });
            replaced.iter().flat_map(|held| held.without(&wanted)).collect()
        } else {
            replaced
        };
        locks.take_again(left).await;
        taken
    }

    /// Releases a range of locks.
    pub(crate) async fn unlock(&self, number: u64, wanted: Range) -> Outcome<()> {
        let node = Arc::clone(&self.handle(number)?.node);
        self.unlock_in(&node, wanted).await
    }

    /// Releases a lock whose caller was killed before the answer.
    pub(crate) fn not_locked(self: &Arc<Self>, number: u64, taken: Range) {
        let volume = Arc::clone(self);
        tokio::spawn(async move {
            if let Err(error) = volume.unlock(number, taken).await {
                tracing::debug!(?error, "unlock failed: the lock ends with its file");
            }
        });
    }

    async fn unlock_in(&self, node: &Arc<Node>, wanted: Range) -> Outcome<()> {
        let mut locks = node.locks.lock().await;
        let replaced = locks.replaced(&wanted);
        if replaced.is_empty() {
            return Ok(());
        }
        // The data is sent before the unlock, because the next owner of the lock must find it on
        // the server.
        let mut done = self.send(node).await;
        let mut left = Vec::new();
        for held in replaced {
            // If one unlock fails, the other locks are released nevertheless, because for the
            // program the whole range is unlocked.
            done = done.and(held.unlock().await);
            left.extend(held.without(&wanted));
        }
        locks.take_again(left).await;
        drop(locks);
        node.unlocked.notify_waiters();
        done
    }

    /// Releases the locks taken through a handle at its last close.
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
                tracing::debug!(?error, "unlock failed: the lock ends with its file");
            }
        }
        drop(locks);
        node.unlocked.notify_waiters();
    }

    /// Releases all locks of an owner that closed the file, as POSIX requires.
    pub(super) async fn unlock_all(&self, node: &Arc<Node>, owner: u64) {
        let all = Range { owner, pid: 0, start: 0, last: u64::MAX, exclusive: false };
        if let Err(error) = self.unlock_in(node, all).await {
            tracing::debug!(?error, "unlock failed: the lock ends with its file");
        }
    }
}
