//! The limits that each user, session or address has of its own under one rule.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use frevo_wire::fscc::fold_name;
use parking_lot::Mutex;

use super::limited::Limited;
use crate::access::rate_rules::{Each, RateRule};
use crate::base::limits::RATE_BUCKET_BYTES;
use crate::base::prefix::network;
use crate::base::rates::{Gate, Waited};
use crate::base::under_way::UnderWay;
use crate::objects::ledger::{Charge, Holder, Kind};

/// The limits of operations, of bytes that are read, and of bytes that are written.
#[derive(Debug)]
pub(super) struct Gates([Option<Gate>; 3]);

const _: () = assert!(size_of::<Gates>() + size_of::<Bucket>() <= RATE_BUCKET_BYTES);

impl Gates {
    /// Makes those of a rule.
    pub(super) fn of(rule: &RateRule) -> Self {
        let gate = |rate: Option<u64>| rate.map(|rate| Gate::new(rate, rule.burst));
        Self([gate(rule.operations), gate(rule.read), gate(rule.write)])
    }

    /// Returns them in their order; None where there is no limit.
    pub(super) fn all(&self) -> impl Iterator<Item = Option<&Gate>> {
        self.0.iter().map(Option::as_ref)
    }

    /// Returns the limits that there are.
    pub(super) fn present(&self) -> impl Iterator<Item = &Gate> {
        self.all().flatten()
    }

    pub(super) fn close(&self) {
        self.present().for_each(Gate::close);
    }

    /// The one of them that has held back most, with its numbers. None where nothing had to wait.
    fn most_held(&self) -> Option<(Waited, &'static str)> {
        let named = self.all().zip(["operations", "read", "write"]);
        let waited = named.filter_map(|(gate, name)| Some((gate?.waited(), name)));
        waited.filter(|(waited, _)| has_waited(waited)).max_by_key(|(waited, _)| order(waited))
    }

    /// The time from which on nothing is owed.
    fn rest_at(&self) -> Duration {
        self.present().map(Gate::rests_at).max().unwrap_or_default()
    }
}

const fn has_waited(waited: &Waited) -> bool {
    waited.waiting > 0 || waited.count > 0
}

/// The order by which those are shown that are held back: those that wait now are the last.
const fn order(waited: &Waited) -> (bool, u64, usize) {
    (waited.waiting > 0, waited.micros, waited.waiting)
}

/// A user, a session or an address that its own limits have held back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct HeldOne {
    /// Its name, number or address.
    pub(crate) who: String,
    /// The limit that has held it back most: `operations`, `read` or `write`.
    pub(crate) by: &'static str,
    /// Numbers of that limit.
    pub(crate) waited: Waited,
}

/// One that has limits of its own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Key {
    /// An account, by its name in lower case.
    User(String),
    Session(u64),
    Network(IpAddr),
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::User(name) => f.write_str(name),
            Self::Session(id) => write!(f, "{id:#x}"),
            Self::Network(address) => address.fmt(f),
        }
    }
}

/// The facts by which a request has its own limits.
pub(super) struct Owner<'a> {
    pub(super) user: &'a str,
    pub(super) session: u64,
    pub(super) address: IpAddr,
    /// Lives as long as the session.
    pub(super) lives: &'a Arc<UnderWay>,
    /// The account that is charged.
    pub(super) holder: &'a Arc<Holder>,
}

impl Owner<'_> {
    fn key(&self, each: Each) -> Key {
        match each {
            Each::User => Key::User(fold_name(self.user)),
            Each::Session => Key::Session(self.session),
            Each::Address => Key::Network(network(self.address)),
        }
    }
}

/// The limits of one of them.
#[derive(Debug)]
struct Bucket {
    gates: Arc<Gates>,
    /// Tree connects that have them picked.
    uses: usize,
    /// The session that it is for, and nobody else later.
    session: Option<Weak<UnderWay>>,
    /// Its charge while it is used, on the account that has used it first since nobody did. Those that are not are
    /// bounded by the number of all.
    charge: Option<Charge>,
}

impl Bucket {
    /// The time from which on nothing is owed any more, at once for a session that has ended.
    fn rests_at(&self) -> Duration {
        let is_over = self.session.as_ref().is_some_and(|session| session.strong_count() == 0);
        if is_over { Duration::ZERO } else { self.gates.rest_at() }
    }
}

/// The buckets of a rule. One that nobody uses stays until nothing is owed: who logs on again owes what it owed. That
/// of a session ends with it.
#[derive(Debug)]
pub(super) struct Buckets {
    most: usize,
    all: Mutex<All>,
}

#[derive(Debug, Default)]
struct All {
    buckets: BTreeMap<Key, Bucket>,
    /// The number of those that nobody uses.
    unused: usize,
    /// The rule is not in force any more: nobody waits for its limits.
    are_closed: bool,
}

impl Buckets {
    /// Makes room for `most` of them.
    pub(super) fn new(most: usize) -> Self {
        Self { most, all: Mutex::default() }
    }

    /// Returns their number.
    pub(super) fn len(&self) -> usize {
        self.all.lock().buckets.len()
    }

    pub(super) fn close(&self) {
        let mut all = self.all.lock();
        all.are_closed = true;
        all.buckets.retain(|_, bucket| bucket.uses > 0);
        all.unused = 0;
        all.buckets.values().for_each(|bucket| bucket.gates.close());
    }

    /// Returns the sessions whose operations wait.
    pub(super) fn sessions(&self) -> BTreeSet<u64> {
        let used = |bucket: &Bucket| (bucket.uses > 0).then(|| Arc::clone(&bucket.gates));
        // The lines are looked at without the lock of all.
        let gates: Vec<_> = self.all.lock().buckets.values().filter_map(used).collect();
        gates.iter().flat_map(|gates| gates.present().flat_map(Gate::flows)).collect()
    }

    /// The `most` of them that are held back most, the first one most of all.
    pub(super) fn most_held(&self, most: usize) -> Vec<HeldOne> {
        let all = self.all.lock();
        let waited = all.buckets.iter().map(|(key, bucket)| (bucket.gates.most_held(), key));
        let mut held: Vec<_> =
            waited.filter_map(|(held, key)| held.map(|(waited, by)| (waited, by, key))).collect();
        held.sort_by_cached_key(|(waited, ..)| Reverse(order(waited)));
        let shown = held.into_iter().take(most);
        shown.map(|(waited, by, key)| HeldOne { who: key.to_string(), by, waited }).collect()
    }

    /// Forgets those that nobody uses and that owe nothing.
    pub(super) fn sweep(&self, now: Duration) {
        self.all.lock().sweep(now);
    }

    fn begin_use(&self, key: &Key, rule: &RateRule, owner: &Owner<'_>) -> Option<Arc<Gates>> {
        let charge = owner.holder.charge(Kind::RateBucket, RATE_BUCKET_BYTES).ok();
        let mut all = self.all.lock();
        let All { buckets, unused, are_closed } = &mut *all;
        if let Some(bucket) = buckets.get_mut(key) {
            if bucket.uses == 0 {
                *unused = unused.saturating_sub(1);
                bucket.charge = charge;
            }
            bucket.uses = bucket.uses.saturating_add(1);
            return Some(Arc::clone(&bucket.gates));
        }
        let are_closed = *are_closed;
        let charge = Some(charge?);
        if all.buckets.len() >= self.most && !all.drop_an_unused_one() {
            return None;
        }
        let gates = Arc::new(Gates::of(rule));
        if are_closed {
            gates.close();
        }
        let session = matches!(key, Key::Session(_)).then(|| Arc::downgrade(owner.lives));
        let bucket = Bucket { gates: Arc::clone(&gates), uses: 1, session, charge };
        all.buckets.insert(key.clone(), bucket);
        Some(gates)
    }

    fn end_use(&self, key: &Key, now: Duration) {
        let mut all = self.all.lock();
        let All { buckets, unused, are_closed } = &mut *all;
        let Some(bucket) = buckets.get_mut(key) else { return };
        bucket.uses = bucket.uses.saturating_sub(1);
        if bucket.uses > 0 {
            return;
        }
        let _charge = bucket.charge.take();
        if *are_closed || bucket.rests_at() <= now {
            buckets.remove(key);
        } else {
            *unused = unused.saturating_add(1);
        }
    }
}

impl All {
    fn sweep(&mut self, now: Duration) {
        self.buckets.retain(|_, bucket| bucket.uses > 0 || bucket.rests_at() > now);
        self.unused = self.buckets.values().filter(|bucket| bucket.uses == 0).count();
    }

    /// Drops the unused one that owes nothing first. False if all are used.
    fn drop_an_unused_one(&mut self) -> bool {
        if self.unused == 0 {
            return false;
        }
        let unused = self.buckets.iter().filter(|(_, bucket)| bucket.uses == 0);
        let first = unused.min_by_key(|(_, bucket)| bucket.rests_at());
        let Some(key) = first.map(|(key, _)| key.clone()) else { return false };
        self.unused = self.unused.saturating_sub(1);
        self.buckets.remove(&key).is_some()
    }
}

/// The own limits of one, used until this is dropped.
#[derive(Debug)]
pub(super) struct Own {
    limited: Arc<Limited>,
    key: Key,
    pub(super) gates: Arc<Gates>,
}

impl Own {
    /// True if no other account passes the gates. Behind an address there may be several.
    pub(super) const fn is_of_one_account(&self) -> bool {
        !matches!(self.key, Key::Network(_))
    }

    /// Takes the limits of `owner`. None where all share those of the rule: it is for nobody alone, has too many
    /// of its own, or there is no memory for them.
    pub(super) fn take(limited: &Arc<Limited>, owner: &Owner<'_>) -> Option<Self> {
        let key = owner.key(limited.rule.each?);
        let gates = limited.buckets.begin_use(&key, &limited.rule, owner)?;
        Some(Self { limited: Arc::clone(limited), key, gates })
    }
}

impl Drop for Own {
    fn drop(&mut self) {
        self.limited.buckets.end_use(&self.key, self.limited.clock.now());
    }
}
