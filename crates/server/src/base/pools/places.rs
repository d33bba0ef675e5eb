//! Places for work beside the cores, of which each user may have only some.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use frevo_wire::Status;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Places of which there are only so many. One user's work leaves places to others, however much of
/// it waits: a user who waits for a place of the user's own does not stand in the row of all.
pub(crate) struct Places {
    all: Arc<Semaphore>,
    /// The places of each user with work.
    users: Mutex<HashMap<String, Arc<Semaphore>>>,
    /// Places that one user may have.
    of_user: usize,
}

/// One place, until it is dropped.
#[derive(Debug)]
pub(crate) struct HeldPlace {
    _of_all: OwnedSemaphorePermit,
    _of_user: OwnedSemaphorePermit,
}

impl Places {
    /// `all` places, of which one user may have `of_user`.
    pub(crate) fn new(all: usize, of_user: usize) -> Self {
        Self { all: Arc::new(Semaphore::new(all)), users: Mutex::default(), of_user }
    }

    /// Waits for a place for work of `user`.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when there are no places any more.
    pub(crate) async fn take(&self, user: &str) -> Result<HeldPlace, Status> {
        let of_user = permit(&self.places_of(user)).await?;
        Ok(HeldPlace { _of_all: permit(&self.all).await?, _of_user: of_user })
    }

    /// Places that nobody has.
    pub(crate) fn free(&self) -> usize {
        self.all.available_permits()
    }

    fn places_of(&self, user: &str) -> Arc<Semaphore> {
        let mut users = self.users.lock();
        if let Some(places) = users.get(user) {
            return Arc::clone(places);
        }
        // Drops the places of users without work.
        users.retain(|_, places| Arc::strong_count(places) > 1);
        let places = Arc::new(Semaphore::new(self.of_user));
        users.insert(user.to_owned(), Arc::clone(&places));
        places
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places").field("free", &self.free()).finish_non_exhaustive()
    }
}

/// Waits for a permit.
///
/// # Errors
/// INSUFFICIENT_RESOURCES when there are no permits any more.
pub(crate) async fn permit(of: &Arc<Semaphore>) -> Result<OwnedSemaphorePermit, Status> {
    let permit = Arc::clone(of).acquire_owned().await;
    permit.map_err(|_| Status::INSUFFICIENT_RESOURCES)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use tokio::time::timeout;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn one_user_leaves_places_to_others() {
        let places = Arc::new(Places::new(3, 2));
        let own: Vec<HeldPlace> = [places.take("ann").await, places.take("ann").await]
            .into_iter()
            .map(Result::unwrap)
            .collect();
        let soon = |user: &'static str| timeout(Duration::from_secs(1), places.take(user));
        assert!(soon("ann").await.is_err(), "a third one");
        // Those of the same user that wait are not in the way.
        let waiting = tokio::spawn({
            let places = Arc::clone(&places);
            async move { places.take("ann").await.map(drop) }
        });
        tokio::task::yield_now().await;
        let of_bob = soon("bob").await.unwrap().unwrap();
        assert_eq!(places.free(), 0);
        assert!(soon("carol").await.is_err(), "none is left");
        drop(of_bob);
        soon("carol").await.unwrap().unwrap();
        drop(own);
        waiting.await.unwrap().unwrap();
        assert_eq!(places.free(), 3);
    }
}
