//! The server's keys for Kerberos, and its memory of accepted tickets.

use std::fmt;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwapOption;
use frevo_auth::kerberos::{Fault, Policy, Replay, ReplayTable, Replays, Service, ServiceKeys};
use frevo_net::file_io::run_blocking;
use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

use crate::base::limits::{NEWER_KEYS_LOOK, NEWER_KEYS_REST};

/// A place of keys that may have newer ones than the server.
pub trait KeySource: Send + Sync + fmt::Debug {
    /// Returns the keys and rules if they have changed since they were read last. It may block for as
    /// long as it takes to read a file.
    fn newer(&self) -> Option<(ServiceKeys, Policy)>;
}

/// The looks for newer keys.
#[derive(Debug, Default)]
struct Looks {
    /// The time of the next look.
    next: Option<Instant>,
    /// The time until which nobody waits, after newer keys did not come.
    rest: Option<Instant>,
}

/// The memory of AP-REQs that all connections share.
#[derive(Debug, Default)]
struct SharedReplays(Mutex<ReplayTable>);

impl Replays for SharedReplays {
    fn record(&self, replay: Replay, now: i64) -> Result<(), Fault> {
        self.0.lock().record(replay, now)
    }
}

/// The keys and rules in force, with the memory, which stays when they change.
#[derive(Debug, Default)]
struct InForce {
    service: ArcSwapOption<Service>,
    replays: Arc<SharedReplays>,
}

impl InForce {
    fn made(&self, keys: Arc<ServiceKeys>, policy: Policy) -> Arc<Service> {
        let replays = Arc::clone(&self.replays) as Arc<dyn Replays>;
        Arc::new(Service { keys, policy, replays })
    }

    /// Puts newer keys of `source` into force, unless a reload has set others since the look began:
    /// those are of a newer configuration. True if there were newer ones.
    fn look(&self, source: &dyn KeySource) -> bool {
        let before = self.service.load_full();
        let Some((keys, policy)) = source.newer() else { return false };
        let newer = self.made(Arc::new(keys), policy);
        let found = self.service.compare_and_swap(&before, Some(newer));
        if found.as_ref().map(Arc::as_ptr) == before.as_ref().map(Arc::as_ptr) {
            tracing::info!(target: "frevo::server",
                "Kerberos: the keytab has new keys; they are in force");
        }
        true
    }
}

/// The keys and rules in force, and the place of newer ones. A reload replaces them.
#[derive(Debug, Default)]
pub(crate) struct KerberosSlot {
    in_force: Arc<InForce>,
    source: OnceLock<Arc<dyn KeySource>>,
    looks: tokio::sync::Mutex<Looks>,
}

impl KerberosSlot {
    /// Returns what acceptors need; None while the server takes no tickets.
    pub(crate) fn service(&self) -> Option<Arc<Service>> {
        self.in_force.service.load_full()
    }

    /// Sets the place of newer keys. A second one is ignored.
    pub(crate) fn set_source(&self, source: Arc<dyn KeySource>) {
        let _ = self.source.set(source);
    }

    /// Returns other keys than `used`, by which a ticket could not be opened. After a new password of
    /// the account clients have tickets for the new key before the keytab is written: this waits for it
    /// until `waits`, if that is given. One client looks while the others that wait do so; after keys
    /// that did not come nobody waits for a while, and looks are limited in rate.
    pub(crate) async fn newer(
        &self,
        used: Option<&Arc<Service>>,
        waits: Option<Instant>,
    ) -> Option<Arc<Service>> {
        let source = self.source.get()?;
        let other = || {
            let service = self.service()?;
            used.is_none_or(|used| !Arc::ptr_eq(used, &service)).then_some(service)
        };
        let mut looks = match waits {
            Some(_) => self.looks.lock().await,
            // A client that looks may wait for long, and this one is not to wait.
            None => match self.looks.try_lock() {
                Ok(looks) => looks,
                Err(_) => return other(),
            },
        };
        loop {
            if let Some(service) = other() {
                return Some(service);
            }
            let now = Instant::now();
            let is_resting = looks.rest.is_some_and(|rest| now < rest);
            let Some(end) = waits.filter(|_| !is_resting) else {
                return self.look_once(&mut looks, source).await.then(other).flatten();
            };
            if let Some(next) = looks.next {
                sleep_until(next).await;
            }
            if !self.look_once(&mut looks, source).await && Instant::now() >= end {
                looks.rest = Some(Instant::now() + NEWER_KEYS_REST);
                return None;
            }
        }
    }

    /// Looks for newer keys, and puts them into force, unless the last look was just before. True if
    /// there were newer ones.
    async fn look_once(&self, looks: &mut Looks, source: &Arc<dyn KeySource>) -> bool {
        if looks.next.is_some_and(|next| Instant::now() < next) {
            return false;
        }
        looks.next = Some(Instant::now() + NEWER_KEYS_LOOK);
        // The thread puts the keys into force, because the client may go before the answer, and the
        // source tells them once.
        let (in_force, source) = (Arc::clone(&self.in_force), Arc::clone(source));
        let has_newer = run_blocking(move || in_force.look(&*source)).await.unwrap_or(false);
        if has_newer {
            looks.rest = None;
        }
        has_newer
    }

    /// Replaces keys and rules.
    pub(crate) fn set(&self, keys: Option<(Arc<ServiceKeys>, Policy)>) {
        let service = keys.map(|(keys, policy)| self.in_force.made(keys, policy));
        self.in_force.service.store(service);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::Duration;

    use super::*;
    use crate::base::limits::NEWER_KEYS_PATIENCE;

    fn patience() -> Option<Instant> {
        Some(Instant::now() + NEWER_KEYS_PATIENCE)
    }

    /// A keytab that changes at the look with this number.
    #[derive(Debug)]
    struct Keytab {
        looks: AtomicUsize,
        changes_at: usize,
    }

    impl KeySource for Keytab {
        fn newer(&self) -> Option<(ServiceKeys, Policy)> {
            let look = self.looks.fetch_add(1, Ordering::Relaxed) + 1;
            (look == self.changes_at).then(|| (ServiceKeys::default(), Policy::default()))
        }
    }

    fn slot(changes_at: usize) -> (Arc<KerberosSlot>, Arc<Keytab>) {
        let keytab = Arc::new(Keytab { looks: AtomicUsize::new(0), changes_at });
        let slot = Arc::new(KerberosSlot::default());
        slot.set(Some((Arc::default(), Policy::default())));
        slot.set_source(Arc::<Keytab>::clone(&keytab));
        (slot, keytab)
    }

    /// Twenty clients with tickets for a new key wait for the keytab, and one of them looks.
    #[tokio::test(start_paused = true)]
    async fn clients_wait_for_newer_keys() {
        let (slot, keytab) = slot(5);
        let used = slot.service().unwrap();
        let mut clients = tokio::task::JoinSet::new();
        for _ in 0..20 {
            let (slot, used) = (Arc::clone(&slot), Arc::clone(&used));
            clients.spawn(async move { slot.newer(Some(&used), patience()).await });
        }
        while let Some(found) = clients.join_next().await {
            assert!(!Arc::ptr_eq(&found.unwrap().unwrap(), &used));
        }
        assert_eq!(keytab.looks.load(Ordering::Relaxed), 5);
    }

    /// Tickets that no key will open cost one look each `NEWER_KEYS_LOOK` at most.
    #[tokio::test(start_paused = true)]
    async fn looks_are_limited_in_rate() {
        let (slot, keytab) = slot(usize::MAX);
        let used = slot.service().unwrap();
        let begun = Instant::now();
        assert!(slot.newer(Some(&used), patience()).await.is_none());
        let waited = begun.elapsed();
        assert!(waited >= NEWER_KEYS_PATIENCE && waited < NEWER_KEYS_PATIENCE * 2, "{waited:?}");
        let before = keytab.looks.load(Ordering::Relaxed);
        for _ in 0..1_000 {
            assert!(slot.newer(Some(&used), patience()).await.is_none());
        }
        assert!(keytab.looks.load(Ordering::Relaxed) <= before + 1);
        assert_eq!(begun.elapsed(), waited, "nobody waits");
        tokio::time::advance(NEWER_KEYS_REST + Duration::from_secs(1)).await;
        assert!(slot.newer(None, patience()).await.is_some(), "a client that used other keys");
    }

    /// A client that waits for keys, as one with a forged ticket may, holds up no other that does
    /// not.
    #[tokio::test(start_paused = true)]
    async fn a_client_that_does_not_wait_is_answered_at_once() {
        let (slot, _) = slot(usize::MAX);
        let used = slot.service().unwrap();
        let (waiting, its) = (Arc::clone(&slot), Arc::clone(&used));
        let waiting = tokio::spawn(async move { waiting.newer(Some(&its), patience()).await });
        while slot.looks.try_lock().is_ok() {
            tokio::task::yield_now().await;
        }
        let begun = Instant::now();
        assert!(slot.newer(Some(&used), None).await.is_none());
        assert!(slot.newer(None, None).await.is_some());
        assert_eq!(begun.elapsed(), Duration::ZERO);
        assert!(waiting.await.unwrap().is_none());
    }

    /// A keytab that a reload takes out of use while it is read.
    #[derive(Debug, Default)]
    struct Replaced(OnceLock<Arc<KerberosSlot>>);

    impl KeySource for Replaced {
        fn newer(&self) -> Option<(ServiceKeys, Policy)> {
            let policy = Policy { clock_skew: 60, ..Policy::default() };
            self.0.get()?.set(Some((Arc::default(), policy)));
            Some((ServiceKeys::default(), Policy::default()))
        }
    }

    #[tokio::test]
    async fn newer_keys_undo_no_reload() {
        let (slot, source) = (Arc::new(KerberosSlot::default()), Arc::<Replaced>::default());
        slot.set(Some((Arc::default(), Policy::default())));
        slot.set_source(Arc::<Replaced>::clone(&source));
        source.0.set(Arc::clone(&slot)).unwrap();
        let used = slot.service().unwrap();
        let found = slot.newer(Some(&used), None).await.unwrap();
        assert_eq!(found.policy.clock_skew, 60);
        assert_eq!(slot.service().unwrap().policy.clock_skew, 60);
    }

    #[test]
    fn new_keys_keep_the_memory() {
        let slot = KerberosSlot::default();
        assert!(slot.service().is_none());
        let keys = Arc::new(ServiceKeys::default());
        slot.set(Some((Arc::clone(&keys), Policy::default())));
        let first = slot.service().unwrap();
        slot.set(Some((keys, Policy { clock_skew: 60, ..Policy::default() })));
        let second = slot.service().unwrap();
        assert_eq!(second.policy.clock_skew, 60);
        assert!(Arc::ptr_eq(&first.replays, &second.replays));
        slot.set(None);
        assert!(slot.service().is_none());
    }
}
