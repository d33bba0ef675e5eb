//! Permits for work beside the cores, of which each user may have only some: who gets none waits.
//!
//! A user who is alone may have permits beyond that part. Whether somebody else is active is asked only
//! when a user wants more than the part, so that nothing else pays for it.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use frevo_wire::Status;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::sleep;

use crate::base::limits::ALONE_KNOWN;

/// A number of permits. One user's work leaves permits to others, however much of it waits: work that
/// waits for a permit of its user is not yet in the queue of all users.
pub(crate) struct UserPermits {
    all: Arc<Semaphore>,
    /// The permits of each user with work.
    users: Mutex<HashMap<String, Arc<OfUser>>>,
    /// Permits that one user may have.
    of_user: usize,
    /// Permits that a user who is alone has besides.
    beyond: Option<Beyond>,
}

/// Tells if nobody but this user has been active lately.
pub(crate) type IsAlone = Arc<dyn Fn(&str) -> bool + Send + Sync>;

/// Permits beyond the part of one user.
struct Beyond {
    permits: Arc<Semaphore>,
    is_alone: IsAlone,
}

/// The permits of one user with work.
struct OfUser {
    part: Arc<Semaphore>,
    /// The permit of the first one in line, which alone asks if the user is alone.
    first: Semaphore,
}

/// One permit, until it is dropped.
pub(crate) struct UserPermit {
    held: PermitPart,
    /// Keeps the user's entry.
    _of_user: Arc<OfUser>,
}

/// The kinds of permits.
enum PermitPart {
    /// One of the user's part, and one of all.
    Part { _of_user: OwnedSemaphorePermit, _of_all: OwnedSemaphorePermit },
    /// One beyond it.
    Beyond { _permit: OwnedSemaphorePermit },
}

impl UserPermits {
    /// `all` permits, of which one user may have `of_user`.
    pub(crate) fn new(all: usize, of_user: usize) -> Self {
        let all = Arc::new(Semaphore::new(all));
        Self { all, users: Mutex::default(), of_user, beyond: None }
    }

    /// Adds `beyond` permits, which a user has besides while `is_alone` says so.
    pub(crate) fn with_beyond(mut self, beyond: usize, is_alone: IsAlone) -> Self {
        let permits = Arc::new(Semaphore::new(beyond));
        self.beyond = (beyond > 0).then_some(Beyond { permits, is_alone });
        self
    }

    /// Waits for a permit for work of `user`.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when there are no permits any more.
    pub(crate) async fn take(&self, user: &str) -> Result<UserPermit, Status> {
        let of_user = self.of_user(user);
        let part = match &self.beyond {
            None => acquire(&of_user.part).await?,
            Some(beyond) => {
                let granted = self.part_or_beyond(beyond, user, &of_user).await?;
                match granted {
                    Granted::Part(part) => part,
                    Granted::Beyond(permit) => {
                        let held = PermitPart::Beyond { _permit: permit };
                        return Ok(UserPermit { held, _of_user: of_user });
                    }
                }
            }
        };
        let held = PermitPart::Part { _of_user: part, _of_all: acquire(&self.all).await? };
        Ok(UserPermit { held, _of_user: of_user })
    }

    /// Waits for a permit of the user's part, or for one beyond it while the user is alone.
    async fn part_or_beyond(
        &self,
        beyond: &Beyond,
        user: &str,
        of_user: &OfUser,
    ) -> Result<Granted, Status> {
        let first = of_user.first.acquire().await;
        let _first = first.map_err(|_| Status::INSUFFICIENT_RESOURCES)?;
        loop {
            if let Ok(part) = Arc::clone(&of_user.part).try_acquire_owned() {
                return Ok(Granted::Part(part));
            }
            let is_alone = !self.has_others(user) && (beyond.is_alone)(user);
            tokio::select! {
                biased;
                part = acquire(&of_user.part) => return part.map(Granted::Part),
                permit = acquire(&beyond.permits), if is_alone => {
                    return permit.map(Granted::Beyond);
                }
                // Other accounts may have become active or idle, so the permits are counted again.
                () = sleep(ALONE_KNOWN) => {}
            }
        }
    }

    /// True while another user holds or awaits a permit.
    fn has_others(&self, user: &str) -> bool {
        let users = self.users.lock();
        users.iter().any(|(name, of_user)| name != user && Arc::strong_count(of_user) > 1)
    }

    /// Permits that nobody has.
    pub(crate) fn free(&self) -> usize {
        self.all.available_permits()
    }

    fn of_user(&self, user: &str) -> Arc<OfUser> {
        let mut users = self.users.lock();
        if let Some(of_user) = users.get(user) {
            return Arc::clone(of_user);
        }
        // Entries of users who neither hold nor await a permit are removed from the map.
        users.retain(|_, of_user| Arc::strong_count(of_user) > 1);
        let part = Arc::new(Semaphore::new(self.of_user));
        let of_user = Arc::new(OfUser { part, first: Semaphore::new(1) });
        users.insert(user.to_owned(), Arc::clone(&of_user));
        of_user
    }
}

/// A permit that a user has got.
enum Granted {
    /// One of the user's part, still without one of all.
    Part(OwnedSemaphorePermit),
    /// One beyond it.
    Beyond(OwnedSemaphorePermit),
}

impl fmt::Debug for UserPermit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_beyond = matches!(self.held, PermitPart::Beyond { .. });
        f.debug_struct("UserPermit").field("is_beyond", &is_beyond).finish()
    }
}

impl fmt::Debug for UserPermits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("UserPermits").field("free", &self.free()).finish_non_exhaustive()
    }
}

/// Waits for a permit.
///
/// # Errors
/// INSUFFICIENT_RESOURCES when there are no permits any more.
pub(crate) async fn acquire(of: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Status> {
    let permit = Arc::clone(of).acquire_owned().await;
    permit.map_err(|_| Status::INSUFFICIENT_RESOURCES)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    /// Tests that a user who is alone has permits beyond the part, that work in line gets them within a
    /// short time after others have gone, and that nobody gets them while others are active.
    #[tokio::test(start_paused = true)]
    async fn a_user_alone_has_more_than_a_part() {
        let is_alone = Arc::new(AtomicBool::new(true));
        let told = Arc::clone(&is_alone);
        let permits = UserPermits::new(2, 1)
            .with_beyond(2, Arc::new(move |user| user == "ann" && told.load(Ordering::Relaxed)));
        let soon = |user: &'static str| timeout(Duration::from_secs(1), permits.take(user));
        let mut of_ann = Vec::new();
        while let Ok(permit) = soon("ann").await {
            of_ann.push(permit.unwrap());
        }
        assert_eq!(of_ann.len(), 3);
        // Another account gets permits at once, but only its part of them.
        let of_bob = soon("bob").await.unwrap().unwrap();
        assert!(soon("bob").await.is_err());
        of_ann.truncate(1);
        assert!(soon("ann").await.is_err(), "bob has one");
        is_alone.store(false, Ordering::Relaxed);
        drop(of_bob);
        assert!(soon("ann").await.is_err(), "others are active elsewhere");
        let waits = soon("ann");
        let goes = async {
            sleep(ALONE_KNOWN / 2).await;
            is_alone.store(true, Ordering::Relaxed);
        };
        let (permit, ()) = tokio::join!(waits, goes);
        of_ann.push(permit.unwrap().unwrap());
        assert_eq!(of_ann.len(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_leaves_permits_to_others() {
        let permits = Arc::new(UserPermits::new(3, 2));
        let own: Vec<UserPermit> = [permits.take("ann").await, permits.take("ann").await]
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let soon = |user: &'static str| timeout(Duration::from_secs(1), permits.take(user));
        assert!(soon("ann").await.is_err(), "a third one");
        // Many waiting tasks of the user "ann" must not block another user.
        let waiting = tokio::spawn({
            let permits = Arc::clone(&permits);
            async move { permits.take("ann").await.map(drop) }
        });
        tokio::task::yield_now().await;
        let of_bob = soon("bob").await.unwrap().unwrap();
        assert_eq!(permits.free(), 0);
        assert!(soon("carol").await.is_err(), "none is left");
        drop(of_bob);
        soon("carol").await.unwrap().unwrap();
        drop(own);
        waiting.await.unwrap().unwrap();
        assert_eq!(permits.free(), 3);
    }
}
