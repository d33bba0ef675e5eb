//! The witness of a cluster, MS-SWN: the registrations of clients of other nodes, and the calls that wait
//! for news.
//!
//! A server on its own has none: it is told of no cluster, and does not offer the interface.

use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use frevo_rpc::WinError;
use frevo_rpc::witness::{
    Asked, ClusterState, InterfaceListReply, Interfaces, Key, MessageType, NotifyReply,
    Registering, Registration, Registrations, Wish,
};
use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep_until};

use crate::base::limits::WITNESS_REGISTRATION_BYTES;
use crate::objects::ledger::{Charge, Holder, Kind};

/// The client of a registration.
#[derive(Debug, Clone)]
pub(crate) struct Client {
    /// The account that has registered.
    pub(crate) user: String,
    /// The address from which it has registered.
    pub(crate) address: IpAddr,
    /// The time of the registration.
    pub(crate) since: FileTime,
}

/// The server's part of a registration.
#[derive(Debug)]
struct Registered {
    client: Client,
    /// Wakes the call that waits for news.
    news: Arc<Notify>,
    _charge: Charge,
}

/// A registration for administrators.
#[derive(Debug)]
pub(crate) struct Shown {
    pub(crate) client: Client,
    pub(crate) registration: Registration,
    pub(crate) is_waiting: bool,
    pub(crate) queued: usize,
}

/// The notifications that were sent since the start, by type.
#[derive(Debug, Default)]
pub(crate) struct Told {
    resources: AtomicU64,
    clients: AtomicU64,
    shares: AtomicU64,
    addresses: AtomicU64,
}

impl Told {
    fn count(&self, kind: MessageType) -> &AtomicU64 {
        match kind {
            MessageType::CLIENT_MOVE => &self.clients,
            MessageType::SHARE_MOVE => &self.shares,
            MessageType::IP_CHANGE => &self.addresses,
            _ => &self.resources,
        }
    }

    /// The number of notifications of all types.
    pub(crate) fn all(&self) -> u64 {
        let all = [&self.resources, &self.clients, &self.shares, &self.addresses];
        all.into_iter().map(|count| count.load(Ordering::Relaxed)).sum()
    }
}

/// The witness of a server.
#[derive(Debug)]
pub(crate) struct Witness {
    registrations: Mutex<Registrations<Registered>>,
    /// Told of each state of the cluster.
    changed: Notify,
    /// The moment from which the registrations count time.
    began: Instant,
    last_association: AtomicU64,
    /// Seconds at which unused registrations were looked for.
    swept: AtomicU64,
    pub(crate) told: Told,
}

impl Default for Witness {
    fn default() -> Self {
        Self {
            registrations: Mutex::default(),
            changed: Notify::new(),
            began: Instant::now(),
            last_association: AtomicU64::default(),
            swept: AtomicU64::default(),
            told: Told::default(),
        }
    }
}

impl Witness {
    fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Takes in the state of the cluster, and wakes the calls of all clients that are to be told.
    pub(crate) fn set_cluster(&self, state: &ClusterState) {
        let mut registrations = self.registrations.lock();
        registrations.set_cluster(state, |registered| {
            if !planted!(NewsKept) {
                registered.news.notify_one();
            }
        });
        drop(registrations);
        self.changed.notify_waiters();
    }

    /// Ends registrations that nobody uses. All are looked at once a second at most.
    pub(crate) fn expire(&self) {
        let now = self.now();
        if self.swept.swap(now.as_secs(), Ordering::Relaxed) == now.as_secs() {
            return;
        }
        let expired = self.registrations.lock().expire(now);
        if !expired.is_empty() {
            tracing::debug!(target: "frevo::witness", count = expired.len(),
                "registrations ended that were not used");
        }
    }

    /// Returns a number for an association, to which its handles belong.
    pub(crate) fn new_association(&self) -> u64 {
        self.last_association.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
    }

    /// Waits until a node is up, and returns the reply with the interfaces.
    pub(crate) async fn interfaces(&self) -> InterfaceListReply {
        loop {
            // The wait begins before the look, so that no state in between is missed.
            let mut changed = std::pin::pin!(self.changed.notified());
            changed.as_mut().enable();
            match self.interfaces_now() {
                Interfaces::Wait => changed.await,
                Interfaces::Answer(reply) => return reply,
            }
        }
    }

    /// Returns the reply with the interfaces, if a node is up.
    pub(crate) fn interfaces_now(&self) -> Interfaces {
        self.registrations.lock().interfaces()
    }

    /// Registers a client.
    ///
    /// # Errors
    /// The return value of the call.
    pub(crate) fn register(
        &self,
        association: u64,
        random: [u8; 16],
        wish: Wish,
        client: Client,
        holder: &Arc<Holder>,
    ) -> Result<Key, WinError> {
        self.expire();
        let mut registrations = self.registrations.lock();
        let registration = registrations.judge(wish)?;
        let charge = holder.charge(Kind::Registration, WITNESS_REGISTRATION_BYTES);
        let charge = charge.map_err(|_| WinError::NO_SYSTEM_RESOURCES)?;
        let place = Registering { key: Key(random), association, now: self.now() };
        let registered = Registered { client, news: Arc::default(), _charge: charge };
        registrations.insert(place, registration, registered)?;
        Ok(place.key)
    }

    /// Ends a registration. A call that waits for its news ends, too.
    ///
    /// # Errors
    /// The return value of the call.
    pub(crate) fn unregister(&self, key: Key, association: u64) -> Result<(), WinError> {
        let removed = self.registrations.lock().remove(key, association)?;
        removed.news.notify_one();
        Ok(())
    }

    /// Ends the registrations of an association that has ended.
    pub(crate) fn leave(&self, association: u64) {
        let removed = self.registrations.lock().remove_all(association);
        removed.iter().for_each(|registered| registered.news.notify_one());
    }

    /// Begins a call that waits for news.
    ///
    /// # Errors
    /// The return value of the call.
    pub(crate) fn notify(
        self: &Arc<Self>,
        key: Key,
        association: u64,
    ) -> Result<Waiting, WinError> {
        let mut registrations = self.registrations.lock();
        let registered = registrations.begin_notify(key, association, self.now())?;
        let news = Arc::clone(&registered.news);
        Ok(Waiting { witness: Arc::clone(self), key, news, is_answered: false })
    }

    /// Has the registered clients of a name use SMB at the addresses of a node. Returns their number. None
    /// if no such node is up.
    pub(crate) fn move_client(&self, client: &str, to: &str) -> Option<usize> {
        let mut registrations = self.registrations.lock();
        registrations.move_client(client, to, |registered| registered.news.notify_one())
    }

    /// The number of registrations.
    pub(crate) fn count(&self) -> usize {
        self.registrations.lock().len()
    }

    /// All registrations, the oldest first.
    pub(crate) fn shown(&self) -> Vec<Shown> {
        let registrations = self.registrations.lock();
        let shown = registrations.all().map(|known| Shown {
            client: known.attached.client.clone(),
            registration: known.registration.clone(),
            is_waiting: known.is_waiting,
            queued: known.queued,
        });
        let mut shown: Vec<_> = shown.collect();
        drop(registrations);
        shown.sort_by_key(|shown| shown.client.since);
        shown
    }
}

/// A call that waits for news. Dropping it ends the wait.
#[derive(Debug)]
pub(crate) struct Waiting {
    witness: Arc<Witness>,
    key: Key,
    news: Arc<Notify>,
    is_answered: bool,
}

impl Waiting {
    /// Waits for the answer.
    pub(crate) async fn answer(mut self) -> NotifyReply {
        loop {
            let asked = self.witness.registrations.lock().ask(self.key, self.witness.now());
            let until = match asked {
                Asked::Answer(reply) => {
                    self.is_answered = true;
                    if let Some(notification) = &reply.notification {
                        let count = self.witness.told.count(notification.kind());
                        count.fetch_add(1, Ordering::Relaxed);
                    }
                    return reply;
                }
                Asked::Wait(until) => until.and_then(|until| self.witness.began.checked_add(until)),
            };
            // News that come before the wait begins are kept by the notifier.
            let news = self.news.notified();
            match until {
                None => news.await,
                Some(until) => tokio::select! {
                    biased;
                    () = news => {}
                    () = sleep_until(until) => {}
                },
            }
        }
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if !self.is_answered {
            self.witness.registrations.lock().end_notify(self.key, self.witness.now());
        }
    }
}
