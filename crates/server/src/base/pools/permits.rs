//! Permits for work beside the cores, of which each user may have only some: who gets none waits.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use frevo_wire::Status;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// A number of permits. One user's work leaves permits to others, however much of it waits: work that
/// waits for a permit of its user is not yet in the queue of all users.
pub(crate) struct UserPermits {
    all: Arc<Semaphore>,
    /// The permits of each user with work.
    users: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// Permits that one user may have.
    of_user: usize,
}

/// One permit, until it is dropped.
#[derive(Debug)]
pub(crate) struct UserPermit {
    _of_all: OwnedSemaphorePermit,
    _of_user: OwnedSemaphorePermit,
}

impl UserPermits {
    /// `all` permits, of which one user may have `of_user`.
    pub(crate) fn new(all: usize, of_user: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), users: Mutex::default(), of_user }
    }

    /// Waits for a permit for work of `user`.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when there are no permits any more.
    pub(crate) async fn take(&self, user: &str) -> Result<UserPermit, Status> {
        let of_user = acquire(&self.permits_of(user)).await?;
        Ok(UserPermit { _of_all: acquire(&self.all).await?, _of_user: of_user })
    }

    /// Permits that nobody has.
    pub(crate) fn free(&self) -> usize {
        self.all.available_permits()
    }

    fn permits_of(&self, user: &str) -> Arc<Semaphore> {
        let mut users = self.users.lock();
        if let Some(permits) = users.get(user) {
            return Arc::clone(permits);
        }
        // Entries of users who neither hold nor await a permit are removed from the map.
        users.retain(|_, permits| Arc::strong_count(permits) > 1);
        let permits = Arc::new(Semaphore::new(self.of_user));
        users.insert(user.to_owned(), Arc::clone(&permits));
        permits
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
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

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
