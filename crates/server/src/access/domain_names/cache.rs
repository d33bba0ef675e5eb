//! The answers about single names and SIDs, bounded in number and in time.

use std::collections::HashMap;
use std::hash::Hash;
use std::time::Instant;

use frevo_wire::dtyp::Sid;

use crate::access::principals::Principal;
use crate::base::limits::{DOMAIN_NAMES_FRESH, DOMAIN_NAMES_REMEMBERED};

/// An answer, which may be that there is nobody, and its time.
type Answer = (Instant, Option<Principal>);

/// The answers that are known.
#[derive(Debug, Default)]
pub(super) struct Cache {
    sids: HashMap<Sid, Answer>,
    names: HashMap<String, Answer>,
}

impl Cache {
    /// The answer about a SID. None when it must be asked for.
    pub(super) fn by_sid(&self, sid: &Sid, now: Instant) -> Option<Option<Principal>> {
        self.sids.get(sid).and_then(|answer| fresh(answer, now))
    }

    /// The answer about a name in lower case.
    pub(super) fn by_name(&self, name: &str, now: Instant) -> Option<Option<Principal>> {
        self.names.get(name).and_then(|answer| fresh(answer, now))
    }

    pub(super) fn learn_sid(&mut self, sid: Sid, found: Option<Principal>, now: Instant) {
        learn(&mut self.sids, sid, (now, found));
    }

    pub(super) fn learn_name(&mut self, name: String, found: Option<Principal>, now: Instant) {
        learn(&mut self.names, name, (now, found));
    }
}

fn fresh(answer: &Answer, now: Instant) -> Option<Option<Principal>> {
    let (since, found) = answer;
    let is_fresh = now.saturating_duration_since(*since) < DOMAIN_NAMES_FRESH;
    is_fresh.then(|| found.clone())
}

/// Keeps an answer, if need be in the place of the oldest one.
fn learn<K: Hash + Eq + Clone>(known: &mut HashMap<K, Answer>, key: K, answer: Answer) {
    if known.len() >= DOMAIN_NAMES_REMEMBERED && !known.contains_key(&key) {
        let oldest = known.iter().min_by_key(|(_, (since, _))| *since);
        if let Some(oldest) = oldest.map(|(key, _)| key.clone()) {
            known.remove(&oldest);
        }
    }
    known.insert(key, answer);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_bounded_in_number_and_time() {
        let domain: Sid = "S-1-5-21-1-2-3".parse().unwrap();
        let mut cache = Cache::default();
        let start = Instant::now();
        for rid in 0..=DOMAIN_NAMES_REMEMBERED {
            let rid = u32::try_from(rid).unwrap();
            let now = start + std::time::Duration::from_millis(rid.into());
            cache.learn_sid(domain.with_rid(rid).unwrap(), None, now);
            cache.learn_name(rid.to_string(), None, now);
        }
        assert_eq!(cache.sids.len(), DOMAIN_NAMES_REMEMBERED);
        assert_eq!(cache.names.len(), DOMAIN_NAMES_REMEMBERED);
        assert_eq!(cache.by_sid(&domain.with_rid(0).unwrap(), start), None, "the oldest one");
        assert_eq!(cache.by_sid(&domain.with_rid(1).unwrap(), start), Some(None));
        assert_eq!(cache.by_name("1", start), Some(None));
        let later = start + DOMAIN_NAMES_FRESH + std::time::Duration::from_millis(1);
        assert_eq!(cache.by_name("1", later), None);
    }
}
