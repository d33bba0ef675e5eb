//! The failures and good logons that the throttle remembers.

use std::collections::HashMap;
use std::net::IpAddr;
use std::time::Duration;

use frevo_wire::dtyp::Guid;
use tokio::time::Instant;

use super::Name;
use crate::base::limits::{
    LOGON_DELAY, LOGON_DELAY_MAX, LOGON_FAILURES_KEPT, LOGON_FAILURES_REMEMBERED,
    LOGON_GOOD_ACCOUNTS, LOGON_GOOD_KEPT, LOGON_GOOD_PER_ACCOUNT,
};
use crate::base::prefix::Prefix;

/// One way by which a client may be known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Source {
    /// Its address, or a network that it is in.
    Prefix(Prefix),
    /// Its ClientGuid.
    Client(Guid),
}

impl Source {
    const fn is_client(self) -> bool {
        matches!(self, Self::Client(_))
    }

    /// Makes the source of one address.
    pub(super) fn exact(address: IpAddr) -> Self {
        Self::Prefix(Prefix::exact(address))
    }
}

#[derive(Debug, Clone, Copy)]
struct Failure {
    count: u32,
    /// The next attempt is heeded then.
    free_at: Instant,
}

/// Failed logons by account and source.
#[derive(Debug, Default)]
pub(super) struct Failures(HashMap<(Name, Source), Failure>);

impl Failures {
    fn get(&self, name: &Name, source: Source, now: Instant) -> Option<Failure> {
        let known = self.0.get(&(Name::clone(name), source)).copied();
        known.filter(|known| known.is_kept(now))
    }

    /// How many there were lately.
    pub(super) fn count(&self, name: &Name, source: Source, now: Instant) -> u32 {
        self.get(name, source, now).map_or(0, |known| known.count)
    }

    /// When the next attempt from there is heeded; none when there was no failure.
    pub(super) fn free_at(&self, name: &Name, source: Source) -> Option<Instant> {
        self.0.get(&(Name::clone(name), source)).map(|known| known.free_at)
    }

    /// True while the last failure holds the next attempt back.
    pub(super) fn is_held(&self, name: &Name, source: Source, now: Instant) -> bool {
        self.free_at(name, source).is_some_and(|free_at| free_at > now)
    }

    /// Counts one more. How long it holds the next attempt from there back.
    pub(super) fn note(&mut self, name: &Name, source: Source, now: Instant) -> Duration {
        let count = self.count(name, source, now).saturating_add(1);
        let delay = penalty(count);
        self.make_room(now);
        self.0.insert((Name::clone(name), source), Failure { count, free_at: now + delay });
        delay
    }

    /// Forgets those of a source that has logged on.
    pub(super) fn forgive(&mut self, name: &Name, source: Source) {
        self.0.remove(&(Name::clone(name), source));
    }

    /// Forgets what is over. If that is not enough an eighth of the rest goes: those
    /// who failed least, so that a flood of names does not wipe out what is known of a
    /// guesser.
    fn make_room(&mut self, now: Instant) {
        if self.0.len() < LOGON_FAILURES_REMEMBERED {
            return;
        }
        self.0.retain(|_, known| known.is_kept(now));
        let goes = LOGON_FAILURES_REMEMBERED / 8;
        if self.0.len() + goes <= LOGON_FAILURES_REMEMBERED {
            return;
        }
        let mut order: Vec<_> = self.0.values().map(|known| (known.count, known.free_at)).collect();
        let (_, last, _) = order.select_nth_unstable(goes);
        let last = *last;
        self.0.retain(|_, known| (known.count, known.free_at) > last);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    #[cfg(test)]
    pub(super) fn names(&self) -> impl Iterator<Item = &Name> {
        self.0.keys().map(|(name, _)| name)
    }
}

impl Failure {
    fn is_kept(&self, now: Instant) -> bool {
        now < self.free_at + LOGON_FAILURES_KEPT
    }
}

fn penalty(count: u32) -> Duration {
    let doublings = count.saturating_sub(1).min(5);
    LOGON_DELAY.saturating_mul(1 << doublings).min(LOGON_DELAY_MAX)
}

/// Sources from which accounts were logged on to, and when last.
#[derive(Debug, Default)]
pub(super) struct GoodLogons(HashMap<Name, Vec<(Source, Instant)>>);

impl GoodLogons {
    /// True when there was one a short time ago.
    pub(super) fn has(&self, name: &Name, source: Source, now: Instant) -> bool {
        let known = self.0.get(name).map_or(&[][..], Vec::as_slice);
        known.iter().any(|(known, at)| *known == source && now < *at + LOGON_GOOD_KEPT)
    }

    /// Remembers one. An account has a place for a few, half of them for clients: those that make up
    /// a ClientGuid for each connection do not wipe out its addresses. The oldest is forgotten.
    pub(super) fn note(&mut self, name: &Name, source: Source, now: Instant) {
        self.make_room(name);
        let known = self.0.entry(Name::clone(name)).or_default();
        known.retain(|(known, at)| *known != source && now < *at + LOGON_GOOD_KEPT);
        let is_alike = |other: &Source| other.is_client() == source.is_client();
        let alike = known.iter().filter(|(other, _)| is_alike(other)).count();
        if alike >= LOGON_GOOD_PER_ACCOUNT / 2
            && let Some(oldest) = known.iter().position(|(other, _)| is_alike(other))
        {
            // The entries are sorted by time, so the first one of a kind is its oldest.
            known.remove(oldest);
        }
        known.push((source, now));
    }

    /// Forgets the account that has not been logged on to for longest.
    fn make_room(&mut self, name: &Name) {
        if self.0.len() < LOGON_GOOD_ACCOUNTS || self.0.contains_key(name) {
            return;
        }
        let last = |known: &Vec<(Source, Instant)>| known.last().map(|(_, at)| *at);
        let oldest = self.0.iter().min_by_key(|(_, known)| last(known));
        if let Some(oldest) = oldest.map(|(name, _)| Name::clone(name)) {
            self.0.remove(&oldest);
        }
    }

    #[cfg(test)]
    pub(super) fn sizes(&self) -> (usize, usize) {
        (self.0.len(), self.0.values().map(Vec::len).max().unwrap_or(0))
    }
}
