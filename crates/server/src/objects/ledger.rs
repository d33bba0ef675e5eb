//! Accounting of all that clients make the server keep.
//!
//! A [`Holder`] is an account, or a client's network before logon. Each object
//! that the server keeps for a client is a [`Charge`] on its holder: one of a
//! [`Kind`], with an estimate of its bytes. Dropping the charge gives both back.
//! Counts are capped for each holder by [`LIMITS`]. Bytes are capped for each
//! holder and in all by the budget, so that one holder cannot take what others
//! need.
//!
//! Sessions find their holder once, at logon. A charge is a few relaxed atomic
//! additions and takes no lock. Frames and replies pass through in large numbers:
//! a connection adds them up for itself and charges the sum ([`Tab`]).

use std::array;
use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use frevo_net::buffer::budget::{self, Fullness};
use frevo_wire::Status;
use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;

use crate::base::limits::{LISTING_BYTES_PER_USER, RELIEF_PATIENCE, RELIEF_PAUSE};
use crate::base::prefix::network;
use crate::objects::notice::{ConnectionHandle, Notice};

mod backlog;
mod built;
mod expanded;
mod kind;
mod tab;
mod window;

pub(crate) use backlog::Backlog;
pub(crate) use built::{Built, Room};
pub(crate) use expanded::Expanded;
pub(crate) use kind::KINDS;
pub use kind::Kind;
use kind::LIMITS;
pub(crate) use tab::Tabs;
pub(crate) use window::Window;

const _: () = {
    let mut at = 0;
    #[expect(clippy::indexing_slicing, reason = "evaluated by the compiler")]
    while at < KINDS {
        assert!(LIMITS[at].0 as usize == at && Kind::ALL[at] as usize == at);
        at += 1;
    }
};

/// The reason in the audit log for requests that are refused while they wait.
pub const GAVE_UP_WAITING: &str = "had requests waiting when no memory was left";

/// The identity of a holder.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Name {
    /// An account, by its name in lower case.
    Account(String),
    /// A network of clients that have not logged on.
    Network(IpAddr),
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Account(user) => write!(f, "account {user:?}"),
            Self::Network(address) => write!(f, "network {address}"),
        }
    }
}

/// Counts and bytes of one holder, or of all.
#[derive(Debug, Default)]
struct Sums {
    counts: [AtomicUsize; KINDS],
    /// Bytes of objects that stay until the client lets go of them.
    kept: AtomicUsize,
    /// Bytes of buffers ([`Kind::is_passing`]).
    passing: AtomicUsize,
}

impl Sums {
    const fn bytes_of(&self, kind: Kind) -> &AtomicUsize {
        if kind.is_passing() { &self.passing } else { &self.kept }
    }

    fn bytes(&self) -> usize {
        let (kept, passing) = (&self.kept, &self.passing);
        kept.load(Ordering::Relaxed).saturating_add(passing.load(Ordering::Relaxed))
    }
}

/// The part of the ledger that every holder refers to.
#[derive(Debug)]
struct Books {
    all: Sums,
    /// Bytes of the networks' holders: of clients that have not logged on.
    of_networks: AtomicUsize,
    /// Bytes that everything together may take.
    limit: AtomicUsize,
    /// Objects of each kind that an account, and a network, may have.
    most: [(AtomicUsize, AtomicUsize); KINDS],
    holders: Mutex<HashMap<Name, Weak<Holder>>>,
    relief: Relief,
    /// Facts that are remembered of clients' files.
    cache: OnceLock<Cache>,
}

/// Memory that clients cause, and that is given up before they lose anything.
#[derive(Debug, Clone, Copy)]
pub struct Cache {
    /// Returns its bytes.
    pub bytes: fn() -> usize,
    /// Frees it.
    pub forget: fn(),
    /// Returns the bytes of watched directories, which are not given up. Each account has its part by
    /// its [`Holder::host_places`].
    pub watched: fn() -> usize,
}

/// How the budget gets room again.
#[derive(Debug)]
struct Relief {
    start: tokio::time::Instant,
    /// Milliseconds from the start, and one, since when there was no room; 0 while
    /// there is.
    full_since: AtomicU64,
    /// The holder whose waiting requests were given up last.
    told: Mutex<Option<Name>>,
}

/// A connection of a holder.
#[derive(Debug)]
struct Member {
    id: u64,
    handle: ConnectionHandle,
    backlog: Arc<Backlog>,
}

/// All holders of a server.
#[derive(Debug)]
pub struct Ledger(Arc<Books>);

impl Default for Ledger {
    fn default() -> Self {
        let (all, limit) = (Sums::default(), AtomicUsize::new(usize::MAX));
        let mut limits = LIMITS.iter();
        let most = array::from_fn(|_| {
            let (_, account, network) = limits.next().copied().unwrap_or((Kind::Reply, 0, 0));
            (AtomicUsize::new(account), AtomicUsize::new(network))
        });
        let relief = Relief {
            start: tokio::time::Instant::now(),
            full_since: AtomicU64::new(0),
            told: Mutex::default(),
        };
        let (of_networks, holders) = (AtomicUsize::new(0), Mutex::default());
        let cache = OnceLock::new();
        Self(Arc::new(Books { all, of_networks, limit, most, holders, relief, cache }))
    }
}

impl Ledger {
    /// The holder of an account. Upper and lower case are one.
    pub fn account(&self, user: &str) -> Arc<Holder> {
        self.holder(Name::Account(fold_name(user)))
    }

    /// The holder of the network that `address` belongs to.
    pub fn network(&self, address: IpAddr) -> Arc<Holder> {
        self.holder(Name::Network(network(address)))
    }

    fn holder(&self, name: Name) -> Arc<Holder> {
        let mut holders = self.0.holders.lock();
        if let Some(holder) = holders.get(&name).and_then(Weak::upgrade) {
            return holder;
        }
        let books = Arc::clone(&self.0);
        let (sums, members) = (Sums::default(), Mutex::default());
        let holder = Arc::new(Holder {
            name: name.clone(),
            sums,
            books,
            members,
            registered: Arc::default(),
            turns: Arc::default(),
            host_places: Arc::default(),
            line: built::Line::default(),
        });
        holders.insert(name, Arc::downgrade(&holder));
        holder
    }

    /// All holders that something refers to.
    pub fn holders(&self) -> Vec<Arc<Holder>> {
        self.0.holders.lock().values().filter_map(Weak::upgrade).collect()
    }

    /// Objects of `kind` of all holders.
    pub fn count(&self, kind: Kind) -> usize {
        self.0.all.count(kind)
    }

    /// Objects of all holders that take descriptors. A connection counts twice, for its network and
    /// for its account.
    pub fn with_descriptors(&self) -> usize {
        self.0.all.with_descriptors()
    }

    /// Bytes of all holders.
    pub fn bytes(&self) -> usize {
        self.0.all.bytes()
    }

    /// Counts the bytes of `cache` too. Only the first one counts.
    pub fn set_cache(&self, cache: Cache) {
        let _ = self.0.cache.set(cache);
    }

    /// Bytes of the cache.
    pub fn cached_bytes(&self) -> usize {
        self.0.cached_bytes()
    }

    /// Bytes of watched directories.
    pub fn watched_bytes(&self) -> usize {
        self.0.watched_bytes()
    }

    /// Bytes that stay until a client lets go of them, and those of the cache.
    fn kept(&self) -> usize {
        self.0.kept()
    }

    /// Sets how many bytes all holders may have.
    pub fn set_limit(&self, bytes: usize) {
        self.0.limit.store(bytes.max(1), Ordering::Relaxed);
    }

    /// Sets how many objects of a kind an account, and a client network, may have. None
    /// means as many as [`LIMITS`] says.
    pub fn set_most(&self, kind: Kind, account: Option<usize>, network: Option<usize>) {
        let (Some((_, per_account, per_network)), Some((of_account, of_network))) =
            (LIMITS.get(kind as usize), self.0.most.get(kind as usize))
        else {
            return;
        };
        of_account.store(account.unwrap_or(*per_account), Ordering::Relaxed);
        of_network.store(network.unwrap_or(*per_network), Ordering::Relaxed);
    }

    /// The fill level of the ledger and of the process's buffers.
    pub fn fullness(&self) -> Fullness {
        let limit = self.0.limit.load(Ordering::Relaxed);
        let kept = self.kept();
        let bytes = kept.saturating_add(self.0.all.passing.load(Ordering::Relaxed));
        budget::of(bytes, limit).max(budget::fullness_with(kept))
    }

    /// True when there is memory for newcomers. An eighth beyond the limit is kept for
    /// them: accounts that take more than the limit do not use it up, only what is held
    /// by others.
    pub fn has_room_for_newcomers(&self) -> bool {
        if !self.is_overdrawn() {
            return true;
        }
        let limit = self.0.limit.load(Ordering::Relaxed).min(budget::limit());
        // Directories are watched for accounts only.
        let held = self.bytes().saturating_add(self.watched_bytes());
        let accounts = held.saturating_sub(self.0.of_networks.load(Ordering::Relaxed));
        self.0.used().saturating_sub(accounts) < limit / 8
    }

    /// True when the limit and the eighth beyond it are used up, by whomever.
    pub fn is_overdrawn(&self) -> bool {
        let limit = self.0.limit.load(Ordering::Relaxed);
        let beside = self.cached_bytes().saturating_add(self.watched_bytes());
        let bytes = self.bytes().saturating_add(beside);
        bytes >= limit.saturating_add(limit / 8) || budget::is_overdrawn_with(self.kept())
    }

    /// The fill level. When it is full, the cache is given up. While it still is, and has been for
    /// [`RELIEF_PATIENCE`], the biggest holder loses: at first its requests that wait, then one
    /// connection after the other.
    pub fn relieve(&self) -> Fullness {
        let mut fullness = self.fullness();
        if fullness == Fullness::Full
            && let Some(cache) = self.0.cache.get().filter(|cache| (cache.bytes)() > 0)
        {
            (cache.forget)();
            fullness = self.fullness();
        }
        let full_since = &self.0.relief.full_since;
        let since = full_since.load(Ordering::Relaxed);
        if fullness != Fullness::Full {
            if since != 0 {
                full_since.store(0, Ordering::Relaxed);
            }
            return fullness;
        }
        let now = self.0.relief.start.elapsed().as_millis();
        let now = u64::try_from(now).unwrap_or(u64::MAX).saturating_add(1);
        let patience = u64::try_from(RELIEF_PATIENCE.as_millis()).unwrap_or(u64::MAX);
        let pause = u64::try_from(RELIEF_PAUSE.as_millis()).unwrap_or(0);
        if since != 0 && now.saturating_sub(since) < patience {
            return fullness;
        }
        let next =
            if since == 0 { now } else { now.saturating_sub(patience).saturating_add(pause) };
        let first = full_since.compare_exchange(since, next, Ordering::Relaxed, Ordering::Relaxed);
        if first.is_ok() && since != 0 {
            self.take_from_biggest();
        }
        fullness
    }

    fn take_from_biggest(&self) {
        let limit = self.0.limit.load(Ordering::Relaxed);
        let mut holders = self.holders();
        holders.sort_by(|a, b| b.bytes().cmp(&a.bytes()).then_with(|| a.name.cmp(&b.name)));
        let Some(biggest) = holders.first().filter(|holder| holder.bytes() >= limit / 8) else {
            // No client uses more than an eighth of the memory, so no single client causes the
            // shortage.
            return;
        };
        let mut told = self.0.relief.told.lock();
        let is_told = told.replace(biggest.name.clone()).as_ref() == Some(&biggest.name);
        drop(told);
        let members = biggest.members.lock();
        let (name, bytes) = (&biggest.name, biggest.bytes());
        if !is_told && biggest.count(Kind::Waiting) > 0 {
            tracing::warn!(target: "frevo::memory", holder = %name, bytes,
                "memory is full; refused the waiting requests of the client that uses most");
            for member in &*members {
                let _ = member.handle.send(Notice::GiveUpWaiting);
            }
            return;
        }
        let size = |member: &&Member| (member.backlog.all(), member.id);
        if let Some(member) = members.iter().max_by_key(size) {
            tracing::warn!(target: "frevo::memory", holder = %name, bytes,
                "memory is full; closed a connection of the client that uses most");
            let why = "its client used the most memory when none was left; raise limits.memory to allow it";
            let _ = member.handle.send(Notice::Disconnect(why));
            // The memory of this connection counts as freed from now on, so that the next call
            // chooses another one even if it ends slowly.
            member.backlog.forget();
        }
    }
}

impl Books {
    fn cached_bytes(&self) -> usize {
        self.cache.get().map_or(0, |cache| (cache.bytes)())
    }

    fn watched_bytes(&self) -> usize {
        self.cache.get().map_or(0, |cache| (cache.watched)())
    }

    /// Bytes that stay until a client lets go of them.
    fn kept_by_clients(&self) -> usize {
        self.all.kept.load(Ordering::Relaxed).saturating_add(self.watched_bytes())
    }

    /// See [`Ledger::kept`].
    fn kept(&self) -> usize {
        self.kept_by_clients().saturating_add(self.cached_bytes())
    }

    /// Bytes that are in use: those of the ledger, or of the process if buffers are not charged yet.
    fn used(&self) -> usize {
        let beside = self.cached_bytes().saturating_add(self.watched_bytes());
        let held = self.all.bytes().saturating_add(beside);
        held.max(budget::in_use().saturating_add(self.kept()))
    }
}

impl Sums {
    fn with_descriptors(&self) -> usize {
        let counts = [Kind::Connection, Kind::Open, Kind::Listing].map(|kind| self.count(kind));
        counts.iter().sum()
    }

    fn count(&self, kind: Kind) -> usize {
        self.counts.get(kind as usize).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

/// One account, or one network of clients before logon.
#[derive(Debug)]
pub struct Holder {
    name: Name,
    sums: Sums,
    books: Arc<Books>,
    members: Mutex<Vec<Member>>,
    /// Its memory that is registered for RDMA, which has a bound of its own.
    pub registered: Arc<frevo_net::rdma::Holder>,
    /// Its time on the cores, by which its connections have their turns.
    pub turns: Arc<frevo_net::turns::Account>,
    /// Its places among the files and directories that are watched for changes by other programs,
    /// which have bounds of their own.
    pub host_places: Arc<frevo_store::HostPlaces>,
    /// Its replies that wait for memory.
    line: built::Line,
}

impl Holder {
    /// Returns the account or client network.
    pub const fn name(&self) -> &Name {
        &self.name
    }

    /// Its objects of `kind`.
    pub fn count(&self, kind: Kind) -> usize {
        self.sums.count(kind)
    }

    /// Returns the bytes that its objects are charged with, and those of the directories that are watched
    /// for it.
    pub fn bytes(&self) -> usize {
        self.sums.bytes().saturating_add(self.host_places.bytes())
    }

    /// Bytes that stay until it lets go of them.
    fn kept(&self) -> usize {
        self.sums.kept.load(Ordering::Relaxed).saturating_add(self.host_places.bytes())
    }

    /// Charges one object of `kind` with an estimate of its bytes.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when the holder has as many objects of the kind as
    /// it may have, or when it may not have more bytes.
    pub fn charge(self: &Arc<Self>, kind: Kind, bytes: usize) -> Result<Charge, Status> {
        let (Some(own), Some(all), Some((per_account, per_network))) = (
            self.sums.counts.get(kind as usize),
            self.books.all.counts.get(kind as usize),
            self.books.most.get(kind as usize),
        ) else {
            return Err(Status::INSUFFICIENT_RESOURCES);
        };
        let most = match self.name {
            Name::Account(_) => per_account.load(Ordering::Relaxed),
            Name::Network(_) => per_network.load(Ordering::Relaxed),
        };
        if own.fetch_add(1, Ordering::Relaxed) >= most {
            own.fetch_sub(1, Ordering::Relaxed);
            return Err(Status::INSUFFICIENT_RESOURCES);
        }
        all.fetch_add(1, Ordering::Relaxed);
        // If the charge is refused, dropping `charge` subtracts the count that was just added.
        let mut charge = Charge { holder: Arc::clone(self), kind, bytes: 0 };
        charge.resize(bytes)?;
        Ok(charge)
    }

    /// Its objects that take descriptors: connections, Opens, and listings under way.
    pub fn with_descriptors(&self) -> usize {
        self.sums.with_descriptors()
    }

    /// True for a holder of so many requests and replies that its further listings are short.
    pub fn has_much_waiting(&self) -> bool {
        self.sums.passing.load(Ordering::Relaxed) >= LISTING_BYTES_PER_USER
    }

    /// True for a holder of more than a sixteenth of the budget: it waits while there
    /// is no room.
    pub fn is_large(&self) -> bool {
        self.bytes() > self.books.limit.load(Ordering::Relaxed) / 16
    }

    fn add(&self, kind: Kind, bytes: usize) {
        self.sums.bytes_of(kind).fetch_add(bytes, Ordering::Relaxed);
        self.books.all.bytes_of(kind).fetch_add(bytes, Ordering::Relaxed);
        if matches!(self.name, Name::Network(_)) {
            self.books.of_networks.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    fn subtract(&self, kind: Kind, bytes: usize) {
        self.sums.bytes_of(kind).fetch_sub(bytes, Ordering::Relaxed);
        self.books.all.bytes_of(kind).fetch_sub(bytes, Ordering::Relaxed);
        if matches!(self.name, Name::Network(_)) {
            self.books.of_networks.fetch_sub(bytes, Ordering::Relaxed);
        }
    }

    /// Answers if the holder may keep what it has: half the budget at most, and
    /// no more than three quarters with all others together. One that has little
    /// may go on while others fill the rest.
    fn is_within_budget(&self) -> bool {
        let limit = self.books.limit.load(Ordering::Relaxed);
        let (own, all) = (self.kept(), self.books.kept_by_clients());
        let is_small = own <= limit / 64;
        let most = if is_small { limit - limit / 8 } else { limit - limit / 4 };
        own <= limit / 2 && all <= most
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        let mut holders = self.books.holders.lock();
        // The map may already have a new holder of the same name. The new holder is in use, so it
        // stays.
        if holders.get(&self.name).is_some_and(|holder| holder.strong_count() == 0) {
            holders.remove(&self.name);
        }
    }
}

/// One object that a holder is charged with, until this is dropped.
#[derive(Debug)]
#[must_use = "dropping it ends the charge"]
pub struct Charge {
    holder: Arc<Holder>,
    kind: Kind,
    bytes: usize,
}

impl Charge {
    /// Changes the estimate of its bytes.
    ///
    /// # Errors
    /// INSUFFICIENT_RESOURCES when that is more than the holder may have; the
    /// charge stays as it was.
    pub fn resize(&mut self, bytes: usize) -> Result<(), Status> {
        if bytes <= self.bytes {
            self.holder.subtract(self.kind, self.bytes - bytes);
            self.bytes = bytes;
            return Ok(());
        }
        let more = bytes - self.bytes;
        self.holder.add(self.kind, more);
        if self.kind.is_passing() || self.holder.is_within_budget() {
            self.bytes = bytes;
            return Ok(());
        }
        self.holder.subtract(self.kind, more);
        Err(Status::INSUFFICIENT_RESOURCES)
    }

    /// Returns the bytes that are charged.
    pub const fn bytes(&self) -> usize {
        self.bytes
    }

    /// Returns the holder that is charged.
    pub const fn holder(&self) -> &Arc<Holder> {
        &self.holder
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        let Self { holder, kind, bytes } = self;
        holder.subtract(*kind, *bytes);
        for sums in [&holder.sums, &holder.books.all] {
            if let Some(count) = sums.counts.get(*kind as usize) {
                count.fetch_sub(1, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests;
