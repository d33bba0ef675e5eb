//! Admission of connections that have not authenticated.
//!
//! They are counted in steps: by address, by networks of growing size, and in all. One
//! flood cannot shut others out. When a step is full, the newcomer is not refused but
//! the oldest connection of the busiest part of that step is evicted: of the /48 that
//! holds most, the /56 that holds most, and so on down to an address.
//!
//! Each entry and end costs a few operations on ordered sets, whatever the number of
//! connections.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::IpAddr;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::base::limits::{
    UNAUTHENTICATED, UNAUTHENTICATED_PER_24, UNAUTHENTICATED_PER_48, UNAUTHENTICATED_PER_56,
    UNAUTHENTICATED_PER_ADDRESS, UNAUTHENTICATED_SPARED,
};
use crate::base::prefix::Prefix;
use crate::objects::notice::{ConnectionHandle, Notice};

/// The reason in the log for the end of an evicted connection.
pub const EVICTED: &str = "had not logged on when newcomers needed its place";

/// The connections on which nobody has logged on yet.
#[derive(Debug, Default, Clone)]
pub struct Admission(Arc<Mutex<HalfOpens>>);

/// One unauthenticated connection; dropped when it authenticates or ends.
#[derive(Debug)]
pub struct Ticket {
    all: Arc<Mutex<HalfOpens>>,
    number: Number,
    told: Arc<Notify>,
}

impl Admission {
    /// Counts a new connection from `address`. Where there are too many, an older one is
    /// evicted; none when that would be unfair to all of them.
    pub fn enter(&self, address: IpAddr) -> Option<Ticket> {
        let now = Instant::now();
        let mut all = self.0.lock();
        let evicted = match all.full_step(address) {
            Some(step) => Some(all.evict(step, address, now)?),
            None => None,
        };
        let told = Arc::new(Notify::new());
        let number = all.add(address, now, Arc::clone(&told));
        drop(all);
        if let Some(evicted) = evicted {
            evicted.tell();
        }
        Some(Ticket { all: Arc::clone(&self.0), number, told })
    }

    /// True if a connection from `address` could only be admitted in the place of another one.
    pub fn is_full_for(&self, address: IpAddr) -> bool {
        self.0.lock().full_step(address).is_some()
    }
}

impl Ticket {
    /// Completes when the connection is evicted, unless [`Self::reach_by`] was called
    /// before.
    pub async fn evicted(&self) {
        self.told.notified().await;
    }

    /// Has an eviction told to `handle` from now on, also one that has happened already.
    pub fn reach_by(&self, handle: ConnectionHandle) {
        match self.all.lock().by_number.get_mut(&self.number) {
            Some(half_open) => half_open.handle = Some(handle),
            None => _ = handle.send(Notice::Evicted),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.all.lock().remove(self.number);
    }
}

/// A connection's number. A later one has a higher number.
type Number = u64;

/// A connection on which nobody has logged on yet.
#[derive(Debug)]
struct HalfOpen {
    address: IpAddr,
    since: Instant,
    told: Arc<Notify>,
    handle: Option<ConnectionHandle>,
}

impl HalfOpen {
    fn tell(self) {
        match self.handle {
            Some(handle) => _ = handle.send(Notice::Evicted),
            None => self.told.notify_one(),
        }
    }
}

/// The order of the parts of a crowd: the last has most connections, and of those with
/// as many, the oldest one.
type Rank = (usize, Reverse<Number>, Prefix);

/// The connections from one prefix.
#[derive(Debug, Default)]
struct Crowd {
    members: BTreeSet<Number>,
    /// The narrower prefixes of the next step; none in an address.
    parts: BTreeSet<Rank>,
}

impl Crowd {
    fn rank(&self, prefix: Prefix) -> Option<Rank> {
        self.members.first().map(|oldest| (self.members.len(), Reverse(*oldest), prefix))
    }
}

#[derive(Debug, Default)]
struct HalfOpens {
    by_number: BTreeMap<Number, HalfOpen>,
    crowds: HashMap<Prefix, Crowd>,
    next: Number,
}

/// The number of connections that a step may have.
fn most(prefix: Prefix) -> usize {
    match (prefix.length(), prefix.is_v4()) {
        (0, _) => UNAUTHENTICATED,
        (120, true) => UNAUTHENTICATED_PER_24,
        (48, false) => UNAUTHENTICATED_PER_48,
        (56, false) => UNAUTHENTICATED_PER_56,
        _ => UNAUTHENTICATED_PER_ADDRESS,
    }
}

impl HalfOpens {
    fn count(&self, prefix: Prefix) -> usize {
        self.crowds.get(&prefix).map_or(0, |crowd| crowd.members.len())
    }

    /// The narrowest step that has no place for a connection from `address`. An eviction
    /// there makes room in the wider ones too.
    fn full_step(&self, address: IpAddr) -> Option<Prefix> {
        Prefix::of_connection(address).rev().find(|step| self.count(*step) >= most(*step))
    }

    fn add(&mut self, address: IpAddr, since: Instant, told: Arc<Notify>) -> Number {
        let number = self.next;
        self.next += 1;
        self.by_number.insert(number, HalfOpen { address, since, told, handle: None });
        self.change(address, |members| _ = members.insert(number));
        number
    }

    fn remove(&mut self, number: Number) -> Option<HalfOpen> {
        let half_open = self.by_number.remove(&number)?;
        self.change(half_open.address, |members| _ = members.remove(&number));
        Some(half_open)
    }

    /// Changes the members of each step of `address`, and its rank in the next wider one.
    fn change(&mut self, address: IpAddr, change: impl Fn(&mut BTreeSet<Number>)) {
        let (mut before, mut after) = (None, None);
        for prefix in Prefix::of_connection(address).rev() {
            let crowd = self.crowds.entry(prefix).or_default();
            if let Some(part) = before.take() {
                crowd.parts.remove(&part);
            }
            crowd.parts.extend(after.take());
            before = crowd.rank(prefix);
            change(&mut crowd.members);
            after = crowd.rank(prefix);
            if crowd.members.is_empty() {
                self.crowds.remove(&prefix);
            }
        }
    }

    /// Makes room in `step` for a newcomer from `address`. None when the one to evict is
    /// young and its network holds no more than the newcomer's would.
    fn evict(&mut self, step: Prefix, address: IpAddr, now: Instant) -> Option<HalfOpen> {
        let (number, is_busier) = self.loser(step, address)?;
        let age = now.duration_since(self.by_number.get(&number)?.since);
        if !is_busier && age < UNAUTHENTICATED_SPARED {
            return None;
        }
        self.remove(number)
    }

    /// The oldest connection of the busiest part of `step`. True when that part holds
    /// more than the newcomer's own would. Among the busiest the newcomer's own part
    /// loses first: a flood evicts itself.
    fn loser(&self, step: Prefix, address: IpAddr) -> Option<(Number, bool)> {
        let (mut here, mut is_own, mut is_busier) = (step, true, false);
        loop {
            let crowd = self.crowds.get(&here)?;
            let Some((count, _, busiest)) = crowd.parts.last() else {
                return crowd.members.first().map(|oldest| (*oldest, is_busier));
            };
            let mut next = *busiest;
            if is_own {
                let own = Prefix::of_connection(address).find(|p| p.length() > here.length())?;
                let own_count = self.count(own);
                if own_count == *count {
                    next = own;
                } else {
                    is_own = false;
                    is_busier = *count > own_count + 1;
                }
            }
            here = next;
        }
    }
}

#[cfg(test)]
mod tests;
