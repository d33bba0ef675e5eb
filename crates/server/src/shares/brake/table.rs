//! The clients of a brake, and its hold on them.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;

use super::{BrakeAction, Finding, Judge, Places};
use crate::access::access_rules::Caller;
use crate::base::limits::{BRAKE_CLIENTS, BRAKE_HELD_ADDRESSES, BRAKE_IDLE};
use crate::base::prefix::Prefix;
use crate::base::rates::{Clock, Gate};

/// An account at an address, of IPv6 in a network of 64 bits: sessions come and go.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Key {
    user: String,
    network: Prefix,
}

impl Key {
    pub(super) fn of(caller: &Caller<'_>) -> Self {
        let address = caller.address.to_canonical();
        let network = match address {
            IpAddr::V4(_) => None,
            IpAddr::V6(_) => Prefix::of_connection(address).nth_back(1),
        };
        let network = network.unwrap_or_else(|| Prefix::exact(address));
        Self { user: fold_name(caller.user), network }
    }
}

/// The hold of a brake on a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Grip {
    /// None.
    Free,
    /// Its changes are slowed down.
    Slowed,
    /// Its changes are refused.
    Held,
    /// Its sessions end.
    Cut,
}

/// A hold on a client, with its reason.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Gripped {
    pub(crate) action: BrakeAction,
    /// The session whose change was the last one.
    pub(crate) session: u64,
    pub(crate) finding: Finding,
    /// The time of the brake's clock.
    pub(crate) since: Duration,
    /// The end of a hold that has one.
    pub(crate) until: Duration,
}

impl Gripped {
    const fn grip(&self) -> Grip {
        match self.action {
            BrakeAction::Alarm => Grip::Free,
            BrakeAction::Slow => Grip::Slowed,
            BrakeAction::Hold => Grip::Held,
            BrakeAction::Cut => Grip::Cut,
        }
    }

    fn is_over(&self, now: Duration) -> bool {
        match self.action {
            BrakeAction::Hold => false,
            BrakeAction::Alarm | BrakeAction::Slow | BrakeAction::Cut => now >= self.until,
        }
    }
}

/// A client that the brake has, or had, to do with.
#[derive(Debug, Clone)]
pub(crate) struct Seen {
    pub(crate) user: String,
    pub(crate) address: IpAddr,
    pub(crate) gripped: Gripped,
    /// The time since it took hold.
    pub(crate) age: Duration,
}

/// One client.
pub(crate) struct Client {
    user: String,
    address: IpAddr,
    pub(super) judge: Mutex<Judge>,
    /// A [`Grip`], which each request reads.
    grip: AtomicU8,
    gripped: Mutex<Option<Gripped>>,
    /// The gate that its changes pass while they are slowed down.
    gate: Mutex<Option<Arc<Gate>>>,
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client").field("user", &self.user).finish_non_exhaustive()
    }
}

impl Client {
    fn new(caller: &Caller<'_>) -> Self {
        Self {
            user: caller.user.to_owned(),
            address: caller.address,
            judge: Mutex::default(),
            grip: AtomicU8::new(Grip::Free as u8),
            gripped: Mutex::default(),
            gate: Mutex::default(),
        }
    }

    /// The account as it has logged on first.
    pub(super) fn user(&self) -> &str {
        &self.user
    }

    pub(super) fn take_hold(&self, gripped: Gripped, gate: impl FnOnce() -> Arc<Gate>) {
        if gripped.action == BrakeAction::Slow {
            self.gate.lock().get_or_insert_with(gate);
        }
        *self.gripped.lock() = Some(gripped);
        self.grip.store(gripped.grip() as u8, Ordering::Release);
        if matches!(gripped.grip(), Grip::Held | Grip::Cut) {
            // It changes nothing any more, and may be held for long: its files are forgotten.
            self.judge.lock().pardon();
        }
    }

    /// The hold on it. One whose time has passed ends.
    pub(super) fn grip(&self, clock: Clock) -> Grip {
        if self.grip.load(Ordering::Acquire) == Grip::Free as u8 {
            return Grip::Free;
        }
        self.gripped_now(clock.now()).map_or(Grip::Free, |gripped| gripped.grip())
    }

    fn gripped_now(&self, now: Duration) -> Option<Gripped> {
        let mut gripped = self.gripped.lock();
        if gripped.is_some_and(|gripped| gripped.is_over(now)) {
            *gripped = None;
            self.grip.store(Grip::Free as u8, Ordering::Release);
            *self.gate.lock() = None;
        }
        *gripped
    }

    pub(super) fn gate(&self) -> Option<Arc<Gate>> {
        self.gate.lock().clone()
    }

    fn seen(&self, now: Duration) -> Option<Seen> {
        let gripped = self.gripped_now(now)?;
        let age = now.saturating_sub(gripped.since);
        Some(Seen { user: self.user.clone(), address: self.address, gripped, age })
    }

    fn release(&self) {
        *self.gripped.lock() = None;
        self.grip.store(Grip::Free as u8, Ordering::Release);
        *self.gate.lock() = None;
        self.judge.lock().pardon();
    }
}

/// The clients of a brake, over all reloads.
#[derive(Debug)]
pub(crate) struct Table {
    pub(super) clock: Clock,
    /// The places of data that are looked at.
    pub(super) places: Places,
    clients: Mutex<HashMap<Key, Arc<Client>>>,
    pub(super) alarms: AtomicU64,
}

impl Default for Table {
    fn default() -> Self {
        let mut secret = [0; 8];
        // Without random bytes the places are known, and the brake works all the same.
        let _ = getrandom::fill(&mut secret);
        Self {
            clock: Clock::start(),
            places: Places::of(u64::from_le_bytes(secret)),
            clients: Mutex::default(),
            alarms: AtomicU64::new(0),
        }
    }
}

impl Table {
    /// The client of a key. Clients that nobody uses are forgotten after a time, or when there are many; those
    /// that are held are not. An account that is held at many addresses is held at each further one.
    pub(super) fn client(&self, key: Key, caller: &Caller<'_>) -> Arc<Client> {
        let now = self.clock.now();
        let mut clients = self.clients.lock();
        if let Some(client) = clients.get(&key) {
            return Arc::clone(client);
        }
        let is_held = |(other, client): &(&Key, &Arc<Client>)| {
            other.user == key.user && client.grip(self.clock) == Grip::Held
        };
        let mut held = clients.iter().filter(is_held);
        if let Some((_, client)) = held.nth(BRAKE_HELD_ADDRESSES - 1) {
            return Arc::clone(client);
        }
        let is_idle = |client: &Arc<Client>| {
            Arc::strong_count(client) == 1 && client.gripped_now(now).is_none()
        };
        let is_old =
            |client: &Client| now.saturating_sub(client.judge.lock().latest()) > BRAKE_IDLE;
        clients.retain(|_, client| !is_idle(client) || !is_old(client));
        if clients.len() >= BRAKE_CLIENTS {
            clients.retain(|_, client| !is_idle(client));
        }
        let client = Arc::new(Client::new(caller));
        clients.insert(key, Arc::clone(&client));
        client
    }

    fn all(&self) -> Vec<Arc<Client>> {
        self.clients.lock().values().cloned().collect()
    }

    /// True while the account of a key is cut off. Guests have no name: each is known by its address.
    pub(super) fn refuses(&self, key: &Key) -> bool {
        let now = self.clock.now();
        let is_cut = |(other, client): (&Key, &Arc<Client>)| {
            client.grip.load(Ordering::Acquire) == Grip::Cut as u8
                && if key.user.is_empty() { other == key } else { other.user == key.user }
                && client.gripped_now(now).is_some()
        };
        self.clients.lock().iter().any(is_cut)
    }

    pub(super) fn held(&self) -> Vec<Seen> {
        let now = self.clock.now();
        let mut held: Vec<Seen> = self.all().iter().filter_map(|client| client.seen(now)).collect();
        held.sort_by(|one, other| (&one.user, one.address).cmp(&(&other.user, other.address)));
        held
    }

    pub(super) fn release(&self, which: impl Fn(&Seen) -> bool) -> usize {
        let now = self.clock.now();
        let all = self.all();
        let picked = all.iter().filter(|client| client.seen(now).is_some_and(|seen| which(&seen)));
        picked.map(|client| client.release()).count()
    }
}

#[cfg(test)]
impl Table {
    pub(super) fn len(&self) -> usize {
        self.clients.lock().len()
    }
}
