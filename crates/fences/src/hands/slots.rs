//! The acts that wait for storage or for etcd: so many at once, each kind apart, so that storage that does
//! not answer holds up neither connections with etcd nor fences of other storage.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use frevo_cluster::fence::Fence;

use super::wire::Act;
use crate::limits::{ACTS_AT_ONCE, FENCES_PER_MINUTE};
use crate::{FenceFault, ceph};

const MINUTE: Duration = Duration::from_secs(60);

/// The acts that are under way, the identities of this node, and those that it has had fenced.
#[derive(Debug, Default)]
pub(super) struct Slots {
    dials: usize,
    /// The units that are looked at.
    looks: BTreeSet<String>,
    /// The identities that storage is told to refuse.
    fences: BTreeSet<String>,
    /// The identities of this node by units, as the last looks found them.
    own: BTreeMap<String, Fence>,
    /// The moments of the fences of the last minute. A fence that is tried again counts once.
    fenced: BTreeMap<String, Duration>,
}

impl Slots {
    /// Begins an act, if there is a place for it and it may be done.
    pub(super) fn begin(&mut self, act: &Act, now: Duration) -> Result<(), FenceFault> {
        let full = |what: &str| Err(FenceFault(format!("too many {what} are under way")));
        match act {
            Act::Dial(_) if self.dials >= ACTS_AT_ONCE => return full("connections with etcd"),
            Act::Dial(_) => self.dials += 1,
            Act::Look(unit) if self.looks.contains(unit) => {
                let why = format!("the storage of {unit} has not answered the look before yet");
                return Err(FenceFault(why));
            }
            Act::Look(_) if self.looks.len() >= ACTS_AT_ONCE => return full("looks at storage"),
            Act::Look(unit) => _ = self.looks.insert(unit.clone()),
            Act::Fence(text) => {
                let text = self.judge(text, now)?;
                if self.fences.contains(&text) {
                    return Err(FenceFault(format!("the fence of {text} has not ended yet")));
                }
                if self.fences.len() >= ACTS_AT_ONCE {
                    return full("fences");
                }
                self.fenced.entry(text.clone()).or_insert(now);
                self.fences.insert(text);
            }
            Act::Raise(_) | Act::Lower(_) | Act::Until(_) => {}
        }
        Ok(())
    }

    /// Returns the text of an identity that may be fenced.
    fn judge(&mut self, text: &str, now: Duration) -> Result<String, FenceFault> {
        let fence = identity(text)?;
        let text = fence.to_text();
        if fence.can_refuse() && self.own.values().any(|own| is_same(own, &fence)) {
            return Err(FenceFault(format!("{text} is the identity of this node itself")));
        }
        self.fenced.retain(|_, begun| now.saturating_sub(*begun) < MINUTE);
        if !self.fenced.contains_key(&text) && self.fenced.len() >= FENCES_PER_MINUTE {
            let why = format!("{FENCES_PER_MINUTE} identities were fenced within a minute");
            return Err(FenceFault(why));
        }
        Ok(text)
    }

    /// Ends an act that was begun.
    pub(super) fn end(&mut self, act: &Act) {
        match act {
            Act::Dial(_) => self.dials = self.dials.saturating_sub(1),
            Act::Look(unit) => _ = self.looks.remove(unit),
            Act::Fence(text) => {
                if let Ok(fence) = identity(text) {
                    self.fences.remove(&fence.to_text());
                }
            }
            Act::Raise(_) | Act::Lower(_) | Act::Until(_) => {}
        }
    }

    /// Notes the identity of this node at the storage of a unit. None if the storage cannot be used.
    pub(super) fn note(&mut self, unit: &str, own: Option<&Fence>) {
        match own {
            Some(own) => _ = self.own.insert(unit.to_owned(), own.clone()),
            None => _ = self.own.remove(unit),
        }
    }
}

/// The identity with a text.
pub(super) fn identity(text: &str) -> Result<Fence, FenceFault> {
    Fence::from_text(text).map_err(|fault| FenceFault(fault.to_string()))
}

/// True if storage refuses the same node by both, however they are written.
fn is_same(a: &Fence, b: &Fence) -> bool {
    match (a, b) {
        (Fence::ScsiPr { key: a, .. }, Fence::ScsiPr { key: b, .. }) => a == b,
        (Fence::Nfs { client: a, .. }, Fence::Nfs { client: b, .. }) => a == b,
        (Fence::Ceph { client: a }, Fence::Ceph { client: b }) => {
            ceph::client(a) == ceph::client(b)
        }
        (a, b) => a == b,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fuse(connection: usize) -> Act {
        Act::Fence(format!("fuse {connection} host"))
    }

    fn why(end: Result<(), FenceFault>) -> String {
        end.unwrap_err().to_string()
    }

    #[test]
    fn storage_that_is_silent_holds_up_no_other_act() {
        let (mut slots, now) = (Slots::default(), Duration::ZERO);
        let look = |n: usize| Act::Look(format!("unit{n}"));
        for n in 0..ACTS_AT_ONCE {
            slots.begin(&look(n), now).unwrap();
        }
        assert_eq!(
            why(slots.begin(&look(ACTS_AT_ONCE), now)),
            "too many looks at storage are under way"
        );
        for _ in 0..ACTS_AT_ONCE {
            slots.begin(&Act::Dial(0), now).unwrap();
        }
        assert!(why(slots.begin(&Act::Dial(1), now)).contains("connections with etcd"));
        for n in 0..ACTS_AT_ONCE {
            slots.begin(&fuse(n), now).unwrap();
        }
        assert_eq!(why(slots.begin(&fuse(ACTS_AT_ONCE), now)), "too many fences are under way");
        for act in [look(3), Act::Dial(0), fuse(3)] {
            slots.end(&act);
            slots.begin(&act, now).unwrap();
        }
    }

    #[test]
    fn a_unit_and_an_identity_have_one_act_at_once() {
        let (mut slots, now) = (Slots::default(), Duration::ZERO);
        let look = Act::Look("a".into());
        slots.begin(&look, now).unwrap();
        let fault = why(slots.begin(&look, now));
        assert_eq!(fault, "the storage of a has not answered the look before yet");
        slots.begin(&Act::Look("b".into()), now).unwrap();
        slots.end(&look);
        slots.begin(&look, now).unwrap();
        slots.begin(&fuse(51), now).unwrap();
        assert_eq!(why(slots.begin(&fuse(51), now)), "the fence of fuse 51 host has not ended yet");
        slots.end(&fuse(51));
        slots.begin(&fuse(51), now).unwrap();
    }

    #[test]
    fn this_node_is_not_fenced() {
        let (mut slots, now) = (Slots::default(), Duration::ZERO);
        slots.note("a", Some(&Fence::Fuse { connection: 51, host: "host".into() }));
        slots.note("b", Some(&Fence::Ceph { client: "192.0.2.1:0/371".into() }));
        slots.note("c", Some(&Fence::ScsiPr { device: "/dev/disk/by-id/wwn-0x1".into(), key: 7 }));
        slots.note("d", Some(&Fence::None));
        let other = Fence::ScsiPr { device: "/dev/disk/by-id/wwn-0x2".into(), key: 7 };
        let ceph = |client: &str| Fence::Ceph { client: client.into() }.to_text();
        for own in [
            "fuse 51 host".into(),
            ceph("192.0.2.1:0/371"),
            ceph("192.0.2.1:0/0371"),
            other.to_text(),
        ] {
            let fault = why(slots.begin(&Act::Fence(own.clone()), now));
            assert_eq!(fault, format!("{own} is the identity of this node itself"));
        }
        slots.begin(&Act::Fence(ceph("192.0.2.2:0/371")), now).unwrap();
        slots.begin(&Act::Fence(Fence::None.to_text()), now).unwrap();
        // The storage refuses the old identity, and a look has found a new one.
        slots.note("a", None);
        slots.begin(&fuse(51), now).unwrap();
    }

    #[test]
    fn so_many_identities_are_fenced_in_a_minute() {
        let mut slots = Slots::default();
        let mut fence = |n, now| {
            let begun = slots.begin(&fuse(n), Duration::from_secs(now));
            if begun.is_ok() {
                slots.end(&fuse(n));
            }
            begun
        };
        for n in 0..FENCES_PER_MINUTE {
            fence(n, 100).unwrap();
        }
        assert!(why(fence(FENCES_PER_MINUTE, 159)).ends_with("were fenced within a minute"));
        fence(7, 159).unwrap();
        fence(FENCES_PER_MINUTE, 160).unwrap();
    }
}
