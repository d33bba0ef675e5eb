//! The turns by the rank of this node for each share, whatever the time is. Each look of a machine at its
//! turns is compared with them, so that the exploration judges what [`Machine::turns`] leaves out.

use super::*;

impl Turns {
    /// The same shares have their turn, and the next turn is not missed.
    pub(in crate::machine) fn judge(&self, reference: &Self) {
        assert_eq!(self.come, reference.come, "shares whose turn has come");
        let is_missed = match (self.next, reference.next) {
            (_, None) => false,
            (None, Some(_)) => true,
            (Some(next), Some(due)) => next > due,
        };
        assert!(!is_missed, "woken at {:?}, and a turn is due at {:?}", self.next, reference.next);
    }
}

impl Machine {
    /// The turns, with the spread of all shares and the rank of this node for each.
    pub(in crate::machine) fn turns_by_all_ranks(&self, view: &View) -> Turns {
        let node = &self.settings.node;
        let first = self.first_takers(view);
        let mut turns = Turns::default();
        for (name, share) in &self.shares {
            let Some(free) = self.free_to_take(view, name, share) else { continue };
            let able = view.nodes.keys().filter(|node| view.can_take(node, name));
            let rank = rank(name, node, first.get(name), able);
            let is_given = given_to(view, name) == Some(node);
            let turn = self.settings.timing.turn().saturating_mul(rank);
            let due = after(self.begin(free, is_given), turn);
            if due > self.now && share.stage == Stage::Away {
                turns.wait_for(due);
            } else {
                turns.come.push(name.clone());
            }
        }
        turns
    }
}
