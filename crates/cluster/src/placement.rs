//! The spread of shares over nodes.
//!
//! All nodes compute the same from the same keys, so that each share without an owner is taken by one of
//! them. Where their keys differ for a moment, two may try: the transaction that takes a share lets one
//! of them succeed. Shares that have an owner stay where they are.

use alloc::collections::{BTreeMap, BTreeSet};

use crate::names::{NodeName, ShareName};

/// A node that may take shares.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Load {
    /// Its part in relation to other nodes, from 1 on.
    pub weight: u32,
    /// The weights of the shares that it has.
    pub load: u64,
}

/// The load in relation to the weight, for comparisons.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Burden {
    /// The load that the node would have with one more share of weight 1, for each 2^32 of its weight.
    relative: u128,
    /// Decides between equal ones, so that a node is not first for all shares.
    tie: u64,
    node: NodeName,
}

impl Burden {
    fn of(node: &NodeName, load: Load) -> Self {
        let next = u128::from(load.load).saturating_add(1) << 32;
        let relative = next.checked_div(u128::from(load.weight)).unwrap_or(u128::MAX);
        Self { relative, tie: hash(&[node.as_str()]), node: node.clone() }
    }
}

/// Returns the node for each share of `free`, given with its weight: the one with the least load in
/// relation to its weight, which then has it more. Shares that no node can serve are not in the result.
pub fn spread(
    mut nodes: BTreeMap<NodeName, Load>,
    free: &BTreeMap<ShareName, u32>,
    can_take: impl Fn(&NodeName, &ShareName) -> bool,
) -> BTreeMap<ShareName, NodeName> {
    let mut order: BTreeSet<Burden> =
        nodes.iter().map(|(node, load)| Burden::of(node, *load)).collect();
    let mut result = BTreeMap::new();
    for (share, &weight) in free {
        let first = order.iter().find(|burden| can_take(&burden.node, share)).cloned();
        let Some(burden) = first else { continue };
        if let Some(load) = nodes.get_mut(&burden.node) {
            order.remove(&burden);
            load.load = load.load.saturating_add(u64::from(weight));
            order.insert(Burden::of(&burden.node, *load));
        }
        result.insert(share.clone(), burden.node);
    }
    result
}

/// Returns the number of nodes that have the share before `node`, when `first` does not take it: all
/// nodes agree on the order, which differs from share to share.
pub fn rank<'a>(
    share: &ShareName,
    node: &NodeName,
    first: Option<&NodeName>,
    nodes: impl Iterator<Item = &'a NodeName>,
) -> u32 {
    if first == Some(node) {
        return 0;
    }
    let place = |node: &NodeName| hash(&[share.as_str(), node.as_str()]);
    let own = place(node);
    let is_before = |other: &&NodeName| {
        *other != node && (first == Some(*other) || (place(other), *other) < (own, node))
    };
    u32::try_from(nodes.filter(is_before).count()).unwrap_or(u32::MAX)
}

/// FNV-1a, with a last mixing: the same at all nodes and in all versions.
fn hash(words: &[&str]) -> u64 {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    for byte in words.iter().flat_map(|word| word.bytes().chain([0xff])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    }
    hash ^= hash >> 32;
    hash = hash.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    hash ^ hash >> 29
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn node(n: u32) -> NodeName {
        NodeName::new(&format!("n{n}")).unwrap()
    }

    fn share(n: u32) -> ShareName {
        ShareName::new(&format!("share{n}")).unwrap()
    }

    fn nodes(weights: &[u32]) -> BTreeMap<NodeName, Load> {
        let of = |(n, &weight): (u32, &u32)| (node(n), Load { weight, load: 0 });
        (0..).zip(weights).map(of).collect()
    }

    fn shares(count: u32) -> BTreeMap<ShareName, u32> {
        (0..count).map(|n| (share(n), 1)).collect()
    }

    fn count(result: &BTreeMap<ShareName, NodeName>, n: u32) -> u64 {
        result.values().filter(|name| **name == node(n)).count() as u64
    }

    #[test]
    fn the_shares_of_a_dead_node_are_spread_over_the_others() {
        let first = spread(nodes(&[1, 1, 1]), &shares(100), |_, _| true);
        let counts: Vec<_> = (0..3).map(|n| count(&first, n)).collect();
        assert_eq!(counts.iter().sum::<u64>(), 100);
        assert!(counts.iter().all(|n| (33..=34).contains(n)), "{counts:?}");
        let lost: BTreeMap<_, _> = first
            .iter()
            .filter(|(_, owner)| **owner == node(2))
            .map(|(s, _)| (s.clone(), 1))
            .collect();
        let mut left = nodes(&[1, 1]);
        for n in 0..2 {
            left.get_mut(&node(n)).unwrap().load = counts[n as usize];
        }
        let second = spread(left, &lost, |_, _| true);
        for n in 0..2 {
            assert_eq!(counts[n as usize] + count(&second, n), 50);
        }
    }

    #[test]
    fn a_node_that_cannot_gets_nothing() {
        let result = spread(nodes(&[1, 1]), &shares(10), |name, _| *name != node(0));
        assert_eq!((count(&result, 0), count(&result, 1)), (0, 10));
        assert!(spread(nodes(&[1]), &shares(3), |_, _| false).is_empty());
        assert!(spread(nodes(&[]), &shares(3), |_, _| true).is_empty());
    }

    #[test]
    fn nodes_agree_on_the_next_one() {
        let names: Vec<_> = (0..5).map(node).collect();
        for n in 0..50 {
            let first = node(n % 5);
            let mut ranks: Vec<_> = names
                .iter()
                .map(|name| rank(&share(n), name, Some(&first), names.iter()))
                .collect();
            assert_eq!(ranks[(n % 5) as usize], 0);
            ranks.sort_unstable();
            assert_eq!(ranks, [0, 1, 2, 3, 4]);
        }
    }

    proptest! {
        #[test]
        fn the_load_follows_the_weights(weights in proptest::collection::vec(1..20_u32, 1..10)) {
            let total: u32 = weights.iter().sum();
            let result = spread(nodes(&weights), &shares(1000), |_, _| true);
            for (n, weight) in (0..).zip(&weights) {
                let wanted = 1000.0 * f64::from(*weight) / f64::from(total);
                let has = count(&result, n) as f64;
                prop_assert!((has - wanted).abs() <= 10.0, "{n} has {has}, wanted {wanted}");
            }
        }
    }
}
