//! The largest dialect by which clients use shares of the cluster: MaxClusterDialect of MS-SMB2 3.3.1.5.
//!
//! A client that was let in by a dialect must find it at each node that takes its share over. So a dialect is
//! demanded by one key, which is set when all nodes speak it, and a node that does not speak it has no shares.
//!
//! The transaction that raises it compares the registrations of all nodes that this one knows, and a
//! registration compares the demand that its node knows. A node whose registration this one does not know yet
//! may come in between: it sees the demand at once, and has no shares.

use alloc::vec;
use alloc::vec::Vec;

use frevo_etcd::types::{Compare, Fact, LeaseId, Op, Relation, Revision, Txn};

use super::Machine;
use super::progress::Telling;
use super::requests::Attempt;
use crate::Epoch;
use crate::dialect::ClusterDialect;
use crate::interface::{Command, CommandFault, CommandId, Event, Order};
use crate::keys::ControlKey;
use crate::names::NodeName;
use crate::values::DialectValue;
use crate::view::View;

/// The demand as the server and the log were told it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Told {
    max: Option<ClusterDialect>,
    is_behind: bool,
}

impl Machine {
    /// True if the cluster demands a dialect that this node does not speak.
    pub(super) fn is_behind(&self) -> bool {
        let speaks = |view: &View| view.has_room_for(self.settings.dialect);
        self.view.as_ref().is_some_and(|view| !speaks(view))
    }

    /// Tells the demand, where it has changed.
    pub(super) fn act_on_dialect(&mut self) {
        let Some(view) = &self.view else { return };
        let entry = view.dialect.clone();
        let is_readable = entry.as_ref().is_none_or(|entry| entry.max.is_some());
        let max = entry.and_then(|entry| entry.max);
        // Without a value that can be read nothing is served, so the last one stays until then.
        if is_readable && self.told_dialect.max != max {
            self.told_dialect.max = max;
            self.order(Order::Dialect(max));
            if let Some(max) = max {
                self.note(Event::DialectSet(max));
            }
        }
        let is_behind = self.is_behind();
        if self.told_dialect.is_behind != is_behind {
            self.told_dialect.is_behind = is_behind;
            if is_behind {
                self.note(Event::Behind(max));
            }
        }
    }

    /// The condition that the demand is the one that this node knows.
    pub(super) fn has_same_dialect(&self) -> Compare {
        let entry = self.view.as_ref().and_then(|view| view.dialect.as_ref());
        let revision = entry.map_or(Revision(0), |entry| entry.revision);
        let key = self.layout.control(&ControlKey::Dialect);
        Compare { key, relation: Relation::Equal, fact: Fact::ModRevision(revision) }
    }

    pub(super) fn on_raise(&mut self, id: CommandId, to: ClusterDialect) {
        match self.raising(to) {
            Ok(Some(txn)) => self.tell(id, Command::Raise(to), txn, Epoch(0)),
            Ok(None) => self.end_command(id, Ok(())),
            Err(fault) => self.end_command(id, Err(fault)),
        }
    }

    /// Tries once more, after a transaction that found other keys than this node knew.
    pub(super) fn raise_again(&mut self, id: CommandId) {
        let Some(asked) = self.commands.get(&id) else { return };
        let Command::Raise(to) = asked.command else { return };
        let told = asked.told;
        let is_known = self.view.as_ref().is_some_and(|view| view.revision >= told);
        if asked.telling.is_some() || !is_known {
            return;
        }
        match self.raising(to) {
            Ok(Some(txn)) => {
                let attempt = Attempt::Due(self.now);
                if let Some(asked) = self.commands.get_mut(&id) {
                    asked.telling = Some(Telling { txn, attempt });
                }
                self.is_changed = true;
            }
            Ok(None) => self.end_command(id, Ok(())),
            Err(fault) => self.end_command(id, Err(fault)),
        }
    }

    /// The transaction that demands a dialect. None if it is demanded already.
    fn raising(&self, to: ClusterDialect) -> Result<Option<Txn>, CommandFault> {
        let Some(view) = &self.view else { return Err(CommandFault::NotConnected) };
        match view.dialect.as_ref().and_then(|entry| entry.max) {
            Some(max) if max == to => return Ok(None),
            Some(max) if max > to => return Err(CommandFault::Lowers(max)),
            _ => {}
        }
        let speaks = |dialect: Option<ClusterDialect>| dialect.is_some_and(|own| own >= to);
        let others =
            view.nodes.iter().filter(|(_, node)| !speaks(node.value.as_ref().map(|v| v.dialect)));
        let others: Vec<NodeName> = others.map(|(node, _)| node.clone()).collect();
        if !others.is_empty() {
            return Err(CommandFault::NotSpoken(to, others));
        }
        let is_same = view.nodes.iter().map(|(node, entry)| Compare {
            key: self.layout.control(&ControlKey::Node(node.clone())),
            relation: Relation::Equal,
            fact: Fact::ModRevision(entry.revision),
        });
        let value = DialectValue { max: to }.to_bytes();
        let key = self.layout.control(&ControlKey::Dialect);
        Ok(Some(Txn {
            compares: is_same.chain([self.has_same_dialect()]).collect(),
            success: vec![Op::Put { key, value, lease: LeaseId(0) }],
            failure: Vec::new(),
        }))
    }
}
