//! Limits of rate in force, and what of them is for a tree connect.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::task::yield_now;

use crate::access::rate_rules::{RateRule, StoragePolicy};
use crate::base::limits::RATE_FLOWS;
use crate::base::panics;
use crate::base::rates::Clock;

mod buckets;
mod limited;
mod storage_qos;
mod work;

pub(crate) use buckets::HeldOne;
pub(crate) use limited::{HeldBack, Limited};
pub(crate) use storage_qos::{AskedPolicy, BASE_IO_SIZE, FlowNumbers, LogicalFlow, StorageQos};
pub(crate) use work::{At, Demand, RateFlow, Work, Worker};

/// The version of the rules, and of the groups of users by which they are picked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(u64);

/// The bit of a version that says that there are rules, or policies of storage.
const ON: u64 = 1;

/// The name of the limits of logical flows, beside those of rules.
pub(crate) const STORAGE_QOS: &str = "storage QoS";

/// The limits of rate of a server.
#[derive(Debug)]
pub(crate) struct Rates {
    /// Changes with the rules and with the groups of users, and never comes again; odd: there are rules.
    version: AtomicU64,
    rules: ArcSwap<Vec<Arc<Limited>>>,
    /// The clock of all limits.
    pub(crate) clock: Clock,
    /// The logical flows of clients.
    pub(crate) storage_qos: StorageQos,
}

impl Rates {
    /// Puts `rules` and `policies` in force.
    pub(crate) fn new(rules: &[RateRule], policies: &[StoragePolicy]) -> Self {
        let clock = Clock::start();
        let rates = Self {
            version: AtomicU64::new(0),
            rules: ArcSwap::default(),
            clock,
            storage_qos: StorageQos::new(clock),
        };
        rates.set(rules, policies);
        rates
    }

    /// True if there are rules, or policies of storage. Asked for each request.
    #[inline]
    pub(crate) fn are_on(&self) -> bool {
        self.version.load(Ordering::Acquire) & ON != 0
    }

    /// The version of now. To be asked for before rules are picked, so that older rules are never remembered as
    /// newer ones.
    pub(crate) fn version(&self) -> Version {
        Version(self.version.load(Ordering::Acquire))
    }

    /// Picks the rules for `worker` in `share`.
    pub(crate) fn pick(&self, worker: Worker<'_>, share: &str) -> RateFlow {
        RateFlow::of(&self.rules.load(), worker, share)
    }

    /// Puts other rules and policies in force. Those that stay as they are go on, with all that wait for them.
    pub(crate) fn set(&self, rules: &[RateRule], policies: &[StoragePolicy]) {
        self.storage_qos.set(policies);
        let before = self.rules.load_full();
        let kept = |rule: &RateRule| before.iter().find(|limited| limited.rule == *rule).cloned();
        let make = |rule: &RateRule| {
            kept(rule).unwrap_or_else(|| Arc::new(Limited::new(rule.clone(), self.clock)))
        };
        let now: Vec<_> = rules.iter().map(make).collect();
        let is_over = |limited: &&Arc<Limited>| !now.iter().any(|kept| Arc::ptr_eq(kept, limited));
        let over: Vec<_> = before.iter().filter(is_over).cloned().collect();
        self.rules.store(Arc::new(now));
        let are_on = !rules.is_empty() || !policies.is_empty();
        self.renew(|_| u64::from(are_on));
        // Those that wait go on after the new rules are in force.
        over.iter().for_each(|limited| limited.end());
    }

    /// Forgets the limits of users, sessions and addresses that are gone and owe nothing, and flows that have ended.
    pub(crate) async fn sweep(&self) {
        panics::contained(|| self.storage_qos.sweep());
        yield_now().await;
        let rules = self.rules.load_full();
        for limited in rules.iter() {
            panics::contained(|| limited.sweep(self.clock.now()));
            yield_now().await;
        }
    }

    /// Has the rules for users picked again: their groups may have changed.
    pub(crate) fn pick_again(&self) {
        self.renew(|version| version & ON);
    }

    fn renew(&self, are_on: impl Fn(u64) -> u64) {
        let next = |version: u64| Some((version & !ON).wrapping_add(2) | are_on(version));
        let _ = self.version.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
    }

    /// Returns the rules with their numbers.
    pub(crate) fn numbers(&self) -> Vec<(Arc<Limited>, HeldBack)> {
        let rules = self.rules.load();
        rules.iter().map(|limited| (Arc::clone(limited), limited.held_back())).collect()
    }

    /// The sessions whose operations wait, each with the name of the first rule for which one does.
    pub(crate) fn holders(&self) -> BTreeMap<u64, String> {
        let mut holders = BTreeMap::new();
        let mut add = |sessions: BTreeSet<u64>, name: &str| {
            for session in sessions {
                holders.entry(session).or_insert_with(|| name.to_owned());
            }
        };
        for limited in self.rules.load().iter() {
            add(limited.sessions(), &limited.rule.name);
        }
        add(self.storage_qos.sessions(), STORAGE_QOS);
        holders
    }
}

/// The rules of rate for one tree connect, as they were picked last.
#[derive(Debug, Default)]
pub(crate) struct Picked(Mutex<Vec<PickedFor>>);

#[derive(Debug)]
struct PickedFor {
    version: Version,
    address: IpAddr,
    flow: Arc<RateFlow>,
}

impl Picked {
    /// The rules for requests from `address`, which `pick` picks unless they are known. None if no rule has a
    /// limit for them.
    pub(crate) fn flow(
        &self,
        version: Version,
        address: IpAddr,
        pick: impl FnOnce() -> Option<RateFlow>,
    ) -> Option<Arc<RateFlow>> {
        let mut picked = self.0.lock();
        let is_known = |known: &&PickedFor| known.version == version && known.address == address;
        if let Some(known) = picked.iter().find(is_known) {
            return Some(Arc::clone(&known.flow)).filter(|flow| !flow.is_free());
        }
        // Picked before older ones are dropped, so that limits of its own go on.
        let flow = Arc::new(pick()?);
        picked.retain(|known| known.version == version);
        if picked.len() >= RATE_FLOWS {
            picked.remove(0);
        }
        picked.push(PickedFor { version, address, flow: Arc::clone(&flow) });
        Some(flow).filter(|flow| !flow.is_free())
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future as _;
    use std::pin::pin;
    use std::task::{Context, Waker};

    use super::*;

    /// Others have their turn between two rules.
    #[test]
    fn a_sweep_looks_at_one_rule_a_turn() {
        let rules: Vec<_> = (0..5).map(|at| RateRule::new(&format!("rule {at}"))).collect();
        let rates = Rates::new(&rules, &[]);
        let mut sweep = pin!(rates.sweep());
        let mut cx = Context::from_waker(Waker::noop());
        let turns = (0..100).take_while(|_| sweep.as_mut().poll(&mut cx).is_pending()).count();
        assert!((rules.len()..100).contains(&turns), "{turns}");
    }

    #[test]
    fn no_version_comes_again() {
        let rules = [RateRule { read: Some(1), ..RateRule::new("a") }];
        let rates = Rates::new(&[], &[]);
        let mut known = vec![rates.version()];
        for _ in 0..3 {
            rates.set(&rules, &[]);
            assert!(rates.are_on());
            known.push(rates.version());
            rates.pick_again();
            assert!(rates.are_on());
            known.push(rates.version());
            rates.set(&[], &[]);
            assert!(!rates.are_on());
            rates.pick_again();
            assert!(!rates.are_on());
            known.push(rates.version());
        }
        for (at, version) in known.iter().enumerate() {
            assert!(!known[..at].contains(version), "{known:?}");
        }
    }
}
