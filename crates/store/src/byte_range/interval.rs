//! Ranges in an AVL tree, ordered by their first byte. Each node knows the last byte of its subtree
//! and whether one Open owns the whole subtree. A question about a range therefore visits a few
//! nodes, however many ranges are locked and whatever ranges a client chooses.

use alloc::boxed::Box;
use core::cmp::Ordering;

use super::Range;
use crate::open_id::OpenId;

/// A locked range that covers at least one byte, or lies between two bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) offset: u64,
    pub(super) length: u64,
    pub(super) owner: OpenId,
}

impl Key {
    pub(super) const fn new(owner: OpenId, range: Range) -> Self {
        Self { offset: range.offset, length: range.length, owner }
    }

    const fn range(&self) -> Range {
        Range { offset: self.offset, length: self.length }
    }
}

/// A set of locked ranges.
#[derive(Debug, Default)]
pub(super) struct Intervals {
    root: Tree,
}

type Tree = Option<Box<Node>>;

#[derive(Debug)]
struct Node {
    key: Key,
    left: Tree,
    right: Tree,
    height: u8,
    /// The largest last byte in this subtree.
    last: u64,
    /// The owner of all ranges in this subtree; None if there are several.
    owner: Option<OpenId>,
}

impl Intervals {
    pub(super) const EMPTY: Self = Self { root: None };

    /// Adds a range that is not in the set yet. `{0, 0}` overlaps nothing and must not be added.
    pub(super) fn insert(&mut self, key: Key) {
        self.root = Some(insert(self.root.take(), key));
    }

    pub(super) fn remove(&mut self, key: Key) {
        self.root = remove(self.root.take(), key);
    }

    /// True if any range overlaps `range`.
    pub(super) fn any(&self, range: Range) -> bool {
        let mut tree = &self.root;
        while let Some(node) = tree {
            if node.key.range().overlaps(range) {
                return true;
            }
            // If no range in the left subtree ends after the start of `range`, only the right
            // subtree can overlap it. If one does but does not overlap `range`, it begins after the
            // end of `range`, and so do all ranges on the right. The left subtree is enough.
            let reaches = node.left.as_ref().is_some_and(|left| left.last >= range.offset);
            tree = if reaches { &node.left } else { &node.right };
        }
        false
    }

    /// True if a range of an Open other than `owner` overlaps `range`.
    pub(super) fn any_other(&self, owner: OpenId, range: Range) -> bool {
        any_other(&self.root, owner, range)
    }
}

fn any_other(tree: &Tree, owner: OpenId, range: Range) -> bool {
    let Some(node) = tree else { return false };
    if node.owner == Some(owner) || node.last < range.offset {
        return false;
    }
    if node.key.owner != owner && node.key.range().overlaps(range) {
        return true;
    }
    any_other(&node.left, owner, range)
        || (node.key.offset <= range.last() && any_other(&node.right, owner, range))
}

impl Node {
    fn leaf(key: Key) -> Box<Self> {
        let (last, owner) = (key.range().last(), Some(key.owner));
        Box::new(Self { key, left: None, right: None, height: 1, last, owner })
    }

    /// Recomputes the facts about the subtree after a change below.
    fn sum(&mut self) {
        let (left, right) = (self.left.as_deref(), self.right.as_deref());
        self.height = height(left).max(height(right)).saturating_add(1);
        self.last = self.key.range().last();
        self.owner = Some(self.key.owner);
        for child in [left, right].into_iter().flatten() {
            self.last = self.last.max(child.last);
            self.owner = self.owner.filter(|_| self.owner == child.owner);
        }
    }
}

fn height(tree: Option<&Node>) -> u8 {
    tree.map_or(0, |node| node.height)
}

fn insert(tree: Tree, key: Key) -> Box<Node> {
    let Some(mut node) = tree else { return Node::leaf(key) };
    match key.cmp(&node.key) {
        Ordering::Less => node.left = Some(insert(node.left.take(), key)),
        Ordering::Greater => node.right = Some(insert(node.right.take(), key)),
        Ordering::Equal => {}
    }
    balance(node)
}

fn remove(tree: Tree, key: Key) -> Tree {
    let mut node = tree?;
    match key.cmp(&node.key) {
        Ordering::Less => node.left = remove(node.left.take(), key),
        Ordering::Greater => node.right = remove(node.right.take(), key),
        Ordering::Equal => match (node.left.take(), node.right.take()) {
            (None, other) | (other, None) => return other,
            (left, Some(right)) => {
                let (first, rest) = take_first(right);
                node.key = first;
                (node.left, node.right) = (left, rest);
            }
        },
    }
    Some(balance(node))
}

fn take_first(mut node: Box<Node>) -> (Key, Tree) {
    match node.left.take() {
        None => (node.key, node.right.take()),
        Some(left) => {
            let (first, rest) = take_first(left);
            node.left = rest;
            (first, Some(balance(node)))
        }
    }
}

/// Returns a subtree whose two sides differ in height by one at most. The sides of each child must
/// do so already.
fn balance(mut node: Box<Node>) -> Box<Node> {
    node.sum();
    let sides = |node: &Node| (height(node.left.as_deref()), height(node.right.as_deref()));
    let (left, right) = sides(&node);
    if left > right.saturating_add(1) {
        node.left = node.left.take().map(|child| {
            let (outer, inner) = sides(&child);
            if inner > outer { rotate_left(child) } else { child }
        });
        rotate_right(node)
    } else if right > left.saturating_add(1) {
        node.right = node.right.take().map(|child| {
            let (inner, outer) = sides(&child);
            if inner > outer { rotate_right(child) } else { child }
        });
        rotate_left(node)
    } else {
        node
    }
}

fn rotate_left(mut node: Box<Node>) -> Box<Node> {
    let Some(mut top) = node.right.take() else { return node };
    node.right = top.left.take();
    node.sum();
    top.left = Some(node);
    top.sum();
    top
}

fn rotate_right(mut node: Box<Node>) -> Box<Node> {
    let Some(mut top) = node.left.take() else { return node };
    node.left = top.right.take();
    node.sum();
    top.right = Some(node);
    top.sum();
    top
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;
    use alloc::vec::Vec;
    use proptest::prelude::*;

    fn check(tree: &Tree) -> Vec<Key> {
        let Some(node) = tree else { return Vec::new() };
        let (left, right) = (check(&node.left), check(&node.right));
        let apart = height(node.left.as_deref()).abs_diff(height(node.right.as_deref()));
        assert!(apart <= 1, "balanced");
        let all: Vec<Key> = left.into_iter().chain([node.key]).chain(right).collect();
        assert_eq!(Some(node.last), all.iter().map(|k| k.range().last()).max());
        let one = all.iter().all(|k| k.owner == node.key.owner);
        assert_eq!(node.owner, one.then_some(node.key.owner));
        all
    }

    proptest! {
        #[test]
        fn it_answers_as_a_list_would(
            ops in proptest::collection::vec((any::<bool>(), 0u64..40, 0u64..12, 0u64..3), 1..120),
            asked in proptest::collection::vec((0u64..45, 0u64..14, 0u64..3), 30),
        ) {
            let mut tree = Intervals::default();
            let mut list = BTreeSet::new();
            for (add, offset, length, owner) in ops {
                let key = Key::new(OpenId(owner), Range { offset, length });
                if (offset, length) == (0, 0) { continue }
                if add {
                    tree.insert(key);
                    list.insert(key);
                } else {
                    tree.remove(key);
                    list.remove(&key);
                }
            }
            prop_assert_eq!(check(&tree.root), list.iter().copied().collect::<Vec<_>>());
            for (offset, length, owner) in asked {
                let range = Range { offset, length };
                if (offset, length) == (0, 0) { continue }
                let over = |k: &&Key| k.range().overlaps(range);
                prop_assert_eq!(tree.any(range), list.iter().any(|k| over(&k)));
                let other = list.iter().filter(over).any(|k| k.owner != OpenId(owner));
                prop_assert_eq!(tree.any_other(OpenId(owner), range), other);
            }
        }
    }

    #[test]
    fn runs_in_either_direction_stay_flat() {
        for backwards in [false, true] {
            let mut tree = Intervals::default();
            let at = |i: u64| if backwards { 10_000 - i } else { i };
            for i in 0..10_000 {
                tree.insert(Key::new(OpenId(i % 2), Range { offset: at(i) * 2 + 1, length: 1 }));
            }
            assert_eq!(check(&tree.root).len(), 10_000);
            assert!(height(tree.root.as_deref()) <= 18);
        }
    }
}
