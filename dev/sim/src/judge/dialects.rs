//! The dialects by which clients use a share of a cluster, while the cluster's largest dialect is raised:
//! MS-SMB2 3.3.1.5 and 3.3.5.7.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use frevo_client::Dialect;

use crate::trace::Trace;
use crate::violation;

/// The most refusals that a client needs, one after the other, until it speaks the dialect of the cluster.
const REFUSALS: u64 = 3;

/// A client, by its line, and a share, by its name.
type Pair = (usize, String);

/// A TREE_CONNECT that a node has answered.
#[derive(Debug, Clone)]
pub struct TreeConnect {
    /// The line of the client.
    pub line: usize,
    /// The share.
    pub share: String,
    /// The dialect of the client's session.
    pub dialect: Dialect,
    /// The largest dialect that the server of the node has been told for a moment; `None` for any.
    pub told: Option<Dialect>,
    /// The largest dialect that the cluster demands now; `None` for any.
    pub demanded: Option<Dialect>,
    /// Count of faults that have met the line.
    pub faults: u64,
}

impl TreeConnect {
    fn pair(&self) -> Pair {
        (self.line, self.share.clone())
    }
}

/// Refusals of one client, one after the other.
#[derive(Debug, Clone, Copy)]
struct Refusals {
    /// Count of faults on the line at the first of them.
    faults: u64,
    count: u64,
}

/// The known dialects of all clients.
#[derive(Debug)]
pub struct Dialects {
    trace: Arc<Trace>,
    /// The dialects by which clients were let in.
    let_in: BTreeSet<(Pair, Dialect)>,
    /// Those of which the clients know.
    known: BTreeSet<(Pair, Dialect)>,
    refusals: BTreeMap<Pair, Refusals>,
    /// The count of uses of a share by a client, each of which may be refused.
    uses: BTreeMap<Pair, u64>,
}

impl Dialects {
    /// Returns a judge of clients that have used nothing.
    pub const fn new(trace: Arc<Trace>) -> Self {
        Self {
            trace,
            let_in: BTreeSet::new(),
            known: BTreeSet::new(),
            refusals: BTreeMap::new(),
            uses: BTreeMap::new(),
        }
    }

    /// Records that a client begins to use a share.
    pub fn used(&mut self, line: usize, share: &str) {
        *self.uses.entry((line, share.to_owned())).or_default() += 1;
    }

    /// Records that a client has done something in a share by this dialect: it knows that it was let in.
    pub fn known(&mut self, line: usize, share: &str, dialect: Dialect) {
        let row = ((line, share.to_owned()), dialect);
        // The session may be another one by now than that of the call.
        if self.let_in.contains(&row) {
            self.known.insert(row);
        }
    }

    /// Records that a node has let a client in.
    pub fn let_in(&mut self, node: &str, tree: &TreeConnect) {
        let (TreeConnect { line, share, dialect, .. }, row) = (tree, (tree.pair(), tree.dialect));
        if tree.demanded.is_some_and(|most| *dialect > most) {
            violation!(
                self.trace,
                "{node} lets c{line} use {share} by {dialect}, and the cluster allows {}",
                most(tree.demanded)
            );
        } else if tree.told.is_some_and(|most| *dialect > most) && !self.let_in.contains(&row) {
            violation!(
                self.trace,
                "{node} lets c{line} use {share} by {dialect} for the first time, and knows {}",
                most(tree.told)
            );
        }
        self.refusals.remove(&row.0);
        self.let_in.insert(row);
    }

    /// Records that a node has refused a client because of its dialect.
    pub fn refused(&mut self, node: &str, tree: &TreeConnect) {
        let (TreeConnect { line, share, dialect, .. }, row) = (tree, (tree.pair(), tree.dialect));
        if tree.told.is_none_or(|most| *dialect <= most) {
            violation!(
                self.trace,
                "{node} refuses c{line} the share {share} by {dialect}, and knows {}",
                most(tree.told)
            );
        }
        if self.known.contains(&row) {
            violation!(
                self.trace,
                "{node} refuses c{line} the share {share} by {dialect}: it was let in before"
            );
        }
        let uses = self.uses.get(&row.0).copied().unwrap_or(1);
        let first = Refusals { faults: tree.faults, count: 0 };
        let refusals = self.refusals.entry(row.0).or_insert(first);
        refusals.count += 1;
        // A client that loses its session offers its newest dialect again.
        let most = REFUSALS * uses + tree.faults.saturating_sub(refusals.faults);
        if refusals.count > most {
            violation!(
                self.trace,
                "{node} refuses c{line} the share {share} because of its dialect {} times",
                refusals.count
            );
        }
    }
}

/// The largest dialect of a demand, in words.
fn most(dialect: Option<Dialect>) -> String {
    dialect.map_or_else(|| String::from("any"), |dialect| format!("{dialect} at most"))
}

#[cfg(test)]
mod tests {
    use tokio::time::Instant;

    use super::*;

    const OLD: Dialect = Dialect::Smb302;
    const NEW: Dialect = Dialect::Smb311;

    fn tree(dialect: Dialect, told: Dialect, demanded: Dialect) -> TreeConnect {
        let (told, demanded) = (Some(told), Some(demanded));
        TreeConnect { line: 1, share: "data".into(), dialect, told, demanded, faults: 0 }
    }

    /// The violations of what `act` does.
    fn found(act: impl FnOnce(&mut Dialects)) -> usize {
        let trace = Arc::new(Trace::new(Instant::now(), false));
        act(&mut Dialects::new(Arc::clone(&trace)));
        trace.take().2.len()
    }

    #[test]
    fn nobody_is_let_in_above_the_demand() {
        assert_eq!(found(|judge| judge.let_in("n0", &tree(OLD, OLD, OLD))), 0);
        assert_eq!(found(|judge| judge.let_in("n0", &tree(NEW, NEW, NEW))), 0);
        assert_eq!(found(|judge| judge.let_in("n0", &tree(NEW, OLD, OLD))), 1);
        assert_eq!(found(|judge| judge.let_in("n0", &tree(NEW, OLD, NEW))), 1, "a late node");
    }

    #[test]
    fn a_client_that_was_let_in_is_let_in_by_a_late_node() {
        let late = tree(NEW, OLD, NEW);
        let before = |judge: &mut Dialects| {
            judge.let_in("n0", &tree(NEW, NEW, NEW));
            judge.known(1, "data", NEW);
        };
        assert_eq!(found(|judge| (before(judge), judge.let_in("n1", &late)).1), 0);
        assert_eq!(found(|judge| (before(judge), judge.refused("n1", &late)).1), 1);
        let other = TreeConnect { line: 2, ..late };
        assert_eq!(found(|judge| (before(judge), judge.refused("n1", &other)).1), 0);
    }

    #[test]
    fn refusals_are_few_and_have_a_reason() {
        let refused = |times, faults| {
            found(|judge| {
                judge.used(1, "data");
                (0..times).for_each(|time| {
                    let faults = if time > 0 { faults } else { 0 };
                    judge.refused("n0", &TreeConnect { faults, ..tree(NEW, OLD, OLD) });
                });
            })
        };
        assert_eq!((refused(3, 0), refused(4, 0), refused(4, 1)), (0, 1, 0));
        assert_eq!(found(|judge| judge.refused("n0", &tree(NEW, NEW, NEW))), 1);
    }
}
