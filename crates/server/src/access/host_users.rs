//! Users of the host behind those who log on: who they are there and what groups
//! they are in, as the host's name service says.
//!
//! It may be slow: a directory far away is asked, or nobody answers. So it is
//! asked on threads that may wait, a few at a time, and what it said counts for
//! a while.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use frevo_net::buffer;
use frevo_net::file_io::{self, run_blocking};
use frevo_wire::Status;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use tokio::time::{Instant, timeout};

use crate::access::actor::Actor;
use crate::access::principals::take_listed;
use crate::base::ambient::Ambient;
use crate::base::host::{HostUser, Said};
use crate::base::limits::{
    HOST_LOOKUP_AGAIN, HOST_LOOKUP_TIMEOUT, HOST_LOOKUPS, HOST_LOOKUPS_PER_USER, HOST_USER_FRESH,
    HOST_USERS_REMEMBERED,
};
use crate::base::pools::permits::UserPermits;

/// The user of the host that an account is, as far as that is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum OnHost {
    /// Nobody has asked, or the name service does not answer.
    #[default]
    Unknown,
    /// The answer of the host: its user, or none.
    Known(Option<Arc<HostUser>>),
}

impl OnHost {
    /// The user, if it is known.
    pub fn user(&self) -> Option<&HostUser> {
        match self {
            Self::Known(user) => user.as_deref(),
            Self::Unknown => None,
        }
    }

    /// True once the host has answered.
    pub const fn is_known(&self) -> bool {
        matches!(self, Self::Known(_))
    }
}

/// When it was said, and what: there may be nobody of that name.
type Answer = (Instant, Option<Arc<HostUser>>);

/// The name of an account, and the group that a share forces.
type Whom = (String, Option<u32>);

/// The users that are known.
#[derive(Debug)]
pub struct HostUsers {
    known: Mutex<HashMap<String, Answer>>,
    actors: Mutex<HashMap<Whom, Arc<Actor>>>,
    asking: Arc<Semaphore>,
    naming: UserPermits,
    acts_lazily: AtomicBool,
}

impl Default for HostUsers {
    fn default() -> Self {
        Self {
            known: Mutex::default(),
            actors: Mutex::default(),
            asking: Arc::new(Semaphore::new(HOST_LOOKUPS)),
            naming: UserPermits::new(HOST_LOOKUPS, HOST_LOOKUPS_PER_USER),
            acts_lazily: AtomicBool::new(false),
        }
    }
}

impl HostUsers {
    /// Lets a thread that has acted as a user go on as this user until another one is
    /// needed. It is called before the first client is served: all shares must know.
    pub(crate) fn act_lazily(&self) {
        self.acts_lazily.store(true, Ordering::Release);
    }

    /// Returns true after [`Self::act_lazily`].
    pub(crate) fn acts_lazily(&self) -> bool {
        self.acts_lazily.load(Ordering::Acquire)
    }

    /// The user of the host called like an account. Its Opens have its new groups from then
    /// on.
    pub async fn look_up(&self, ambient: &Arc<dyn Ambient>, name: &str) -> OnHost {
        let ambient = Arc::clone(ambient);
        self.look_up_by(name, move |name| ambient.host_user(name)).await
    }

    async fn look_up_by(
        &self,
        name: &str,
        ask: impl FnOnce(&str) -> Said<HostUser> + Send + 'static,
    ) -> OnHost {
        let key = fold_name(name);
        if let Some(known) = self.fresh(&key) {
            return OnHost::Known(known);
        }
        let (asking, name) = (Arc::clone(&self.asking), name.to_owned());
        let answer = timeout(HOST_LOOKUP_TIMEOUT, async move {
            // The blocking call owns the permit, because it runs on even if the client no longer
            // waits.
            let permit = asking.acquire_owned().await.ok()?;
            run_blocking(move || {
                let _permit = permit;
                ask(&name)
            })
            .await
            .ok()
        });
        match answer.await {
            Ok(Some(Ok(found))) => OnHost::Known(self.learn(key, found)),
            _ => {
                tracing::warn!(target: "frevo::session", user = %key,
                    "the host's name service does not answer for a user; its earlier answer is used");
                self.stale(&key)
            }
        }
    }

    /// Runs a lookup of names for `user` on a thread that may wait. Lookups have permits of their
    /// own, so that many of them keep no user from logging on, and one user cannot have all of
    /// them.
    ///
    /// # Errors
    /// IO_TIMEOUT when the host does not answer; a lookup that has begun continues.
    pub async fn naming<T: Send + 'static>(
        &self,
        user: &str,
        ask: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, Status> {
        let answer = timeout(HOST_LOOKUP_TIMEOUT, async move {
            let permit = self.naming.take(user).await?;
            let answer = move || {
                let _permit = permit;
                let answer = ask();
                buffer::note_released(take_listed());
                answer
            };
            if file_io::stays() {
                return Ok(answer());
            }
            run_blocking(answer).await.map_err(|_| Status::INTERNAL_ERROR)
        });
        answer.await.unwrap_or(Err(Status::IO_TIMEOUT))
    }

    /// Like [`Self::look_up`], where waiting harms nobody: a host that starts may not know its
    /// users yet, and is asked again until `deadline`.
    pub fn look_up_now(
        &self,
        ambient: &dyn Ambient,
        name: &str,
        deadline: std::time::Instant,
    ) -> Option<Arc<HostUser>> {
        self.look_up_until(name, deadline, |name| ambient.host_user(name))
    }

    fn look_up_until(
        &self,
        name: &str,
        deadline: std::time::Instant,
        mut ask: impl FnMut(&str) -> Said<HostUser>,
    ) -> Option<Arc<HostUser>> {
        loop {
            match ask(name) {
                Ok(found) => return self.learn(fold_name(name), found),
                Err(_) if std::time::Instant::now() < deadline => {
                    std::thread::sleep(HOST_LOOKUP_AGAIN);
                }
                Err(errno) => {
                    tracing::warn!(target: "frevo::session", user = name, %errno,
                        "the host's name service does not answer for a user");
                    return None;
                }
            }
        }
    }

    fn fresh(&self, key: &str) -> Option<Option<Arc<HostUser>>> {
        let known = self.known.lock();
        let (since, user) = known.get(key)?;
        (since.elapsed() < HOST_USER_FRESH).then(|| user.clone())
    }

    fn stale(&self, key: &str) -> OnHost {
        self.known.lock().get(key).map_or(OnHost::Unknown, |(_, user)| OnHost::Known(user.clone()))
    }

    fn learn(&self, key: String, found: Option<HostUser>) -> Option<Arc<HostUser>> {
        let found = found.map(Arc::new);
        if let Some(user) = &found {
            let actors = self.actors.lock();
            for ((name, group), actor) in &*actors {
                if let Some(credentials) = user.credentials(*group).filter(|_| *name == key) {
                    actor.renew(credentials);
                }
            }
        }
        let mut known = self.known.lock();
        if known.len() >= HOST_USERS_REMEMBERED && !known.contains_key(&key) {
            let oldest = known.iter().min_by_key(|(_, (since, _))| *since);
            if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
                known.remove(&oldest);
            }
        }
        known.insert(key, (Instant::now(), found.clone()));
        found
    }

    /// Through whom all acts that is open for an account; none for root.
    pub fn actor(&self, name: &str, user: &HostUser, group: Option<u32>) -> Option<Arc<Actor>> {
        let credentials = user.credentials(group)?;
        let mut actors = self.actors.lock();
        if actors.len() >= HOST_USERS_REMEMBERED {
            // The cache is full, so the entries (actors) that no Open uses are dropped.
            actors.retain(|_, actor| Arc::strong_count(actor) > 1);
        }
        let key = (fold_name(name), group);
        let actor = actors
            .entry(key)
            .or_insert_with(|| Arc::new(Actor::new(Arc::new(credentials.clone()))));
        actor.renew(credentials);
        Some(Arc::clone(actor))
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::task::Poll;
    use std::time::Duration;

    use rustix::io::Errno;

    use super::*;
    use crate::base::host::UnixUser;

    fn user(uid: u32) -> HostUser {
        let unix = UnixUser { uid, gid: uid, groups: vec![uid] };
        HostUser { unix, groups: Vec::new() }
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_said_counts_for_a_while() {
        let users = HostUsers::default();
        let ask = async |uid| {
            let said = users.look_up_by("Ann", move |_| Ok(Some(user(uid)))).await;
            said.user().unwrap().unix.uid
        };
        assert_eq!(ask(5).await, 5);
        assert_eq!(ask(6).await, 5, "the same name in another case");
        tokio::time::advance(HOST_USER_FRESH).await;
        assert_eq!(ask(6).await, 6);
        assert_eq!(users.look_up_by("bob", |_| Ok(None)).await, OnHost::Known(None));
    }

    /// A service that fails has not said that there is nobody.
    #[tokio::test(start_paused = true)]
    async fn what_is_not_said_is_not_known() {
        let users = HostUsers::default();
        let fails = |_: &str| Err(Errno::MFILE);
        assert_eq!(users.look_up_by("ann", fails).await, OnHost::Unknown);
        users.look_up_by("ann", |_| Ok(Some(user(5)))).await;
        tokio::time::advance(HOST_USER_FRESH).await;
        let said = users.look_up_by("ann", fails).await;
        assert_eq!(said.user().unwrap().unix.uid, 5, "what it said before");
    }

    /// A server that starts before the name service finds its users later.
    #[test]
    fn a_service_that_starts_is_waited_for() {
        let users = HostUsers::default();
        let asked = std::cell::Cell::new(0);
        let starts = |_: &str| {
            asked.set(asked.get() + 1);
            if asked.get() < 3 { Err(Errno::CONNREFUSED) } else { Ok(Some(user(5))) }
        };
        let far = std::time::Instant::now() + Duration::from_secs(3_600);
        assert_eq!(users.look_up_until("ann", far, starts).unwrap().unix.uid, 5);
        assert_eq!(asked.get(), 3);
        let now = std::time::Instant::now();
        assert!(users.look_up_until("bob", now, |_| Err(Errno::CONNREFUSED)).is_none());
        assert!(users.look_up_until("carl", far, |_| Ok(None)).is_none(), "that is an answer");
    }

    #[tokio::test]
    async fn what_is_open_has_new_groups() {
        let users = HostUsers::default();
        let (ann, other) = (user(5), user(5));
        let actor = users.actor("ann", &ann, None).unwrap();
        let forced = users.actor("ANN", &other, Some(9)).unwrap();
        assert_eq!((actor.credentials().gid(), forced.credentials().gid()), (5, 9));
        let unix = UnixUser { gid: 7, ..user(5).unix };
        users.look_up_by("ann", move |_| Ok(Some(HostUser { unix, groups: Vec::new() }))).await;
        assert_eq!((actor.credentials().gid(), forced.credentials().gid()), (7, 9));
        assert!(Arc::ptr_eq(&actor, &users.actor("Ann", &ann, None).unwrap()));
        assert!(users.actor("root", &user(0), None).is_none());
    }

    #[tokio::test]
    async fn no_more_are_remembered_than_may_be() {
        let users = HostUsers::default();
        for number in 0..HOST_USERS_REMEMBERED + 1 {
            users.learn(number.to_string(), Some(user(5)));
            drop(users.actor(&number.to_string(), &user(5), None));
        }
        assert_eq!(users.known.lock().len(), HOST_USERS_REMEMBERED);
        assert!(users.actors.lock().len() <= HOST_USERS_REMEMBERED);
    }

    /// A service that does not answer holds up who logs on, and no thread more
    /// than a few.
    #[tokio::test(start_paused = true)]
    async fn a_service_that_hangs_is_not_waited_for_for_ever() {
        let users = HostUsers::default();
        let (release, hang) = std::sync::mpsc::channel::<()>();
        let hang = Arc::new(std::sync::Mutex::new(hang));
        users.learn(String::from("ann"), Some(user(5)));
        tokio::time::advance(HOST_USER_FRESH).await;
        let waiting = users.look_up_by("ann", move |_| {
            let _ = hang.lock().unwrap().recv();
            Ok(None)
        });
        // The runtime's paused clock does not advance by itself while blocking threads run, so the
        // test advances it beyond the timeout.
        let mut waiting = std::pin::pin!(waiting);
        let first = std::future::poll_fn(|cx| Poll::Ready(waiting.as_mut().poll(cx))).await;
        assert!(first.is_pending());
        tokio::time::advance(HOST_LOOKUP_TIMEOUT + Duration::from_secs(1)).await;
        assert_eq!(waiting.await.user().unwrap().unix.uid, 5, "what it said before");
        drop(release);
    }

    /// One user's lookups, of a thousand names each, took all permits.
    #[tokio::test]
    async fn one_user_leaves_lookups_to_others() {
        let users = Arc::new(HostUsers::default());
        let (release, hang) = std::sync::mpsc::channel::<()>();
        let hang = Arc::new(std::sync::Mutex::new(hang));
        let mut tasks = tokio::task::JoinSet::new();
        for _ in 0..=HOST_LOOKUPS {
            let (users, hang) = (Arc::clone(&users), Arc::clone(&hang));
            tasks.spawn(async move {
                let _ = users.naming("ann", move || hang.lock().unwrap().recv()).await;
            });
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
        let other = timeout(Duration::from_secs(5), users.naming("bob", || 7)).await;
        drop(release);
        assert_eq!(other, Ok(Ok(7)));
        while tasks.join_next().await.is_some() {}
    }

    /// The service may hang, and each request to it takes a thread.
    #[tokio::test]
    async fn the_name_service_is_asked_by_few_at_a_time() {
        use std::sync::atomic::AtomicUsize;
        let users = Arc::new(HostUsers::default());
        let (release, hang) = std::sync::mpsc::channel::<()>();
        let hang = Arc::new(std::sync::Mutex::new(hang));
        let begun = Arc::new(AtomicUsize::new(0));
        let mut tasks = tokio::task::JoinSet::new();
        // Each user starts as many look-ups as one user may (HOST_LOOKUPS_PER_USER). The last
        // look-up is of a further user and exceeds the limit of all users together (HOST_LOOKUPS).
        for at in 0..=HOST_LOOKUPS {
            let user = format!("user{}", at / HOST_LOOKUPS_PER_USER);
            let (users, hang, begun) = (Arc::clone(&users), Arc::clone(&hang), Arc::clone(&begun));
            tasks.spawn(async move {
                let ask = move || {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let _ = hang.lock().unwrap().recv();
                };
                let _ = users.naming(&user, ask).await;
            });
        }
        let until = async |count: usize| {
            while begun.load(Ordering::SeqCst) < count {
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        until(HOST_LOOKUPS).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(begun.load(Ordering::SeqCst), HOST_LOOKUPS, "there is no permit");
        release.send(()).unwrap();
        until(HOST_LOOKUPS + 1).await;
        drop(release);
        while tasks.join_next().await.is_some() {}
    }
}
