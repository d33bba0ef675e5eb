//! The keys that all nodes watch, as this node knows them.

use alloc::collections::BTreeMap;

use frevo_etcd::types::{Change, KeyValue, LeaseId, Revision};

use crate::Epoch;
use crate::dialect::ClusterDialect;
use crate::keys::{ControlKey, Layout};
use crate::limits::{NODES, SHARES};
use crate::names::{NodeName, ShareName};
use crate::values::{DialectValue, LastValue, MoveValue, NodeValue, OwnerValue, RecordForm};

/// A node that is up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NodeEntry {
    /// Its registration. None if it cannot be read: the node takes nothing.
    pub value: Option<NodeValue>,
    /// Its lease.
    pub lease: LeaseId,
    /// The revision of the value.
    pub revision: Revision,
}

/// The owner of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnerEntry {
    /// The owner. None if the value cannot be read: the share has an owner all the same.
    pub value: Option<OwnerValue>,
    /// The ownership.
    pub epoch: Epoch,
    /// The lease of the node.
    pub lease: LeaseId,
}

/// The latest owner of a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LastEntry {
    /// The owner. None if the value cannot be read: nobody takes the share.
    pub value: Option<LastValue>,
    /// The revision of the value.
    pub revision: Revision,
}

/// A planned move.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveEntry {
    /// The move. None if it cannot be read.
    pub value: Option<MoveValue>,
    /// The revision of the value.
    pub revision: Revision,
}

/// The largest dialect of clients.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DialectEntry {
    /// The dialect. None if it cannot be read: a later version may demand what this one does not know, so
    /// no node has shares.
    pub max: Option<ClusterDialect>,
    /// The revision of the value.
    pub revision: Revision,
}

/// The keys that all nodes watch.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct View {
    /// All changes up to this revision are in the view.
    pub revision: Revision,
    /// Nodes that are up, at most [`NODES`].
    pub nodes: BTreeMap<NodeName, NodeEntry>,
    /// Shares that have an owner, at most [`SHARES`].
    pub owners: BTreeMap<ShareName, OwnerEntry>,
    /// Shares that had an owner, at most [`SHARES`].
    pub last: BTreeMap<ShareName, LastEntry>,
    /// Planned moves, at most [`SHARES`].
    pub moves: BTreeMap<ShareName, MoveEntry>,
    /// Nodes that are to have no shares, at most [`NODES`].
    pub drained: BTreeMap<NodeName, ()>,
    /// The largest dialect of clients. None if there is no limit.
    pub dialect: Option<DialectEntry>,
    /// Keys that are beyond the limits or have no name of Frevo's, since the view was read.
    pub ignored: u64,
}

/// Sets an entry, if it is there already or there is room for it. Returns false if there is none.
fn set<K: Ord, V>(map: &mut BTreeMap<K, V>, limit: usize, key: K, value: V) -> bool {
    let has_room = map.len() < limit || map.contains_key(&key);
    if has_room {
        map.insert(key, value);
    }
    has_room
}

impl View {
    /// The newest form of records that all nodes read which are up. None if none is up.
    pub fn record_form(&self) -> Option<RecordForm> {
        let of = |entry: &NodeEntry| {
            // A registration that cannot be read is that of an earlier version, or of a broken node.
            entry.value.as_ref().map_or(RecordForm::TOLD_BY_NONE, |value| value.records)
        };
        self.nodes.values().map(of).min()
    }

    /// Takes in a key with its value.
    pub fn put(&mut self, layout: &Layout, entry: &KeyValue) {
        let value = &*entry.value;
        let revision = entry.mod_revision;
        let is_known = match layout.parse_control(&entry.key) {
            Some(ControlKey::Node(node)) => {
                let value = NodeValue::from_bytes(value).ok();
                set(&mut self.nodes, NODES, node, NodeEntry { value, lease: entry.lease, revision })
            }
            Some(ControlKey::Owner(share)) => {
                let value = OwnerValue::from_bytes(value).ok();
                let epoch = Epoch(entry.create_revision.0);
                let owner = OwnerEntry { value, epoch, lease: entry.lease };
                set(&mut self.owners, SHARES, share, owner)
            }
            Some(ControlKey::Last(share)) => {
                let value = LastValue::from_bytes(value).ok();
                set(&mut self.last, SHARES, share, LastEntry { value, revision })
            }
            Some(ControlKey::Move(share)) => {
                let value = MoveValue::from_bytes(value).ok();
                set(&mut self.moves, SHARES, share, MoveEntry { value, revision })
            }
            Some(ControlKey::Drained(node)) => set(&mut self.drained, NODES, node, ()),
            Some(ControlKey::Dialect) => {
                let max = DialectValue::from_bytes(value).ok().map(|value| value.max);
                self.dialect = Some(DialectEntry { max, revision });
                true
            }
            None => false,
        };
        if !is_known {
            self.ignored = self.ignored.saturating_add(1);
        }
    }

    /// Takes in the end of a key.
    pub fn delete(&mut self, layout: &Layout, key: &[u8]) {
        match layout.parse_control(key) {
            Some(ControlKey::Node(node)) => _ = self.nodes.remove(&node),
            Some(ControlKey::Owner(share)) => _ = self.owners.remove(&share),
            Some(ControlKey::Last(share)) => _ = self.last.remove(&share),
            Some(ControlKey::Move(share)) => _ = self.moves.remove(&share),
            Some(ControlKey::Drained(node)) => _ = self.drained.remove(&node),
            Some(ControlKey::Dialect) => self.dialect = None,
            None => {}
        }
    }

    /// Takes in changes that a watch told.
    pub fn change(&mut self, layout: &Layout, change: &Change) {
        match change {
            Change::Put(entry) => self.put(layout, entry),
            Change::Delete { key, .. } => self.delete(layout, key),
        }
    }

    /// The name of the node that owns a share, if that is known.
    pub fn owner(&self, share: &ShareName) -> Option<&NodeName> {
        self.owners.get(share)?.value.as_ref().map(|value| &value.node)
    }

    /// True if the node is up and may take the share.
    pub fn can_take(&self, node: &NodeName, share: &ShareName) -> bool {
        let value = self.nodes.get(node).and_then(|entry| entry.value.as_ref());
        value.is_some_and(|value| !value.unable.has(share)) && self.may_have_shares(node)
    }

    /// True if the node is up and may have shares at all.
    pub fn may_have_shares(&self, node: &NodeName) -> bool {
        let value = self.nodes.get(node).and_then(|entry| entry.value.as_ref());
        let is_ready =
            value.is_some_and(|value| !value.leaving && self.has_room_for(value.dialect));
        is_ready && !self.drained.contains_key(node)
    }

    /// True if a node that speaks no larger dialect than this one may have shares: clients may use it for
    /// all shares of the cluster, and would lose their handles at a node that does not speak it.
    pub fn has_room_for(&self, largest: ClusterDialect) -> bool {
        let max = self.dialect.as_ref().map(|entry| entry.max);
        max.is_none_or(|max| max.is_some_and(|max| max <= largest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::names::ClusterName;
    use alloc::format;
    use alloc::vec::Vec;

    fn entry(key: Vec<u8>, value: &[u8]) -> KeyValue {
        let revision = Revision(4);
        KeyValue {
            key,
            value: value.to_vec(),
            create_revision: revision,
            mod_revision: revision,
            version: 1,
            lease: LeaseId(9),
        }
    }

    #[test]
    fn a_broken_owner_is_an_owner() {
        let layout = Layout::new(&ClusterName::new("c").unwrap());
        let share = ShareName::new("data").unwrap();
        let mut view = View::default();
        let key = layout.control(&ControlKey::Owner(share.clone()));
        view.put(&layout, &entry(key.clone(), b"\xff"));
        assert_eq!(view.owners[&share].value, None);
        assert_eq!(view.owners[&share].epoch, Epoch(4));
        assert_eq!(view.owner(&share), None);
        view.delete(&layout, &key);
        assert!(view.owners.is_empty());
        view.put(&layout, &entry(b"frevo/c/control/other/x".to_vec(), b""));
        assert_eq!(view.ignored, 1);
    }

    #[test]
    fn nodes_and_shares_are_bounded() {
        let layout = Layout::new(&ClusterName::new("c").unwrap());
        let mut view = View::default();
        for n in 0..=NODES {
            let node = NodeName::new(&format!("n{n}")).unwrap();
            view.put(&layout, &entry(layout.control(&ControlKey::Node(node)), b""));
        }
        assert_eq!((view.nodes.len(), view.ignored), (NODES, 1));
        for n in 0..=SHARES {
            let share = ShareName::new(&format!("s{n}")).unwrap();
            view.put(&layout, &entry(layout.control(&ControlKey::Owner(share)), b""));
        }
        assert_eq!((view.owners.len(), view.ignored), (SHARES, 2));
        let known = ControlKey::Node(NodeName::new("n0").unwrap());
        view.put(&layout, &entry(layout.control(&known), b""));
        assert_eq!(view.ignored, 2, "a known one changes");
    }
}
