//! FileId.Persistent and SessionId that no two nodes give.
//!
//! A client that comes to another node names its handle by the FileId that the first node gave
//! (MS-SMB2 2.2.14.1, 3.3.5.9.12), so that two nodes must never give the same one. The upper half of each
//! number is the [`Generation`] of the node's process, the lower half counts within it.
//!
//! A generation is the number of changes of one key of etcd (`version`), which each start of a node
//! changes once: no two starts have the same one. The epoch of a share would not do: it is a revision of
//! etcd, which grows with each record and exceeds 32 bits within 50 days at 1,000 changes a second; and a
//! session uses several shares.

use core::fmt;

/// The number of a node's registration in a cluster, from 1 on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Generation(pub u32);

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// Numbers of one generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IdSpace {
    generation: Generation,
    /// The lower half of the next number. None if all were given.
    next: Option<u32>,
    /// The secret by which the lower halves are mixed.
    secret: u32,
}

impl IdSpace {
    /// Numbers of this generation. `secret` is random: by it nobody guesses the number of another
    /// client's handle from that of the client's own.
    pub const fn new(generation: Generation, secret: u32) -> Self {
        Self { generation, next: Some(0), secret }
    }

    /// The generation.
    pub const fn generation(&self) -> Generation {
        self.generation
    }

    /// Takes a number. None after 2^32 of them, and for generation zero, which nobody has: the node
    /// registers anew ([`Command::NewGeneration`](crate::interface::Command::NewGeneration)). The
    /// numbers 0 and `u64::MAX`, which mean something else in the protocol, are never given.
    pub fn take(&mut self) -> Option<u64> {
        let count = self.next?;
        self.next = count.checked_add(1);
        if self.generation.0 == 0 || self.generation.0 == u32::MAX {
            return None;
        }
        Some(u64::from(self.generation.0) << 32 | u64::from(mix(count, self.secret)))
    }

    /// The generation of a number that a node of the cluster has given.
    pub const fn generation_of(id: u64) -> Generation {
        Generation((id >> 32) as u32)
    }
}

/// Returns a number for each `count`, no two the same, by four rounds of a Feistel network.
fn mix(count: u32, secret: u32) -> u32 {
    let (mut left, mut right) = (count >> 16, count & 0xffff);
    for round in 0..4_u32 {
        let mut word = right.wrapping_add(secret.rotate_left(round.wrapping_mul(8)));
        word = (word ^ word >> 16).wrapping_mul(0x85eb_ca6b);
        word = (word ^ word >> 13).wrapping_mul(0xc2b2_ae35);
        (left, right) = (right, left ^ (word ^ word >> 16) & 0xffff);
    }
    left << 16 | right
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::collections::BTreeSet;

    #[test]
    fn no_number_comes_twice() {
        let mut seen = BTreeSet::new();
        for generation in 1..5 {
            let mut ids = IdSpace::new(Generation(generation), 0x1234_5678);
            for _ in 0..20_000 {
                let id = ids.take().unwrap();
                assert_eq!(IdSpace::generation_of(id), Generation(generation));
                assert!(seen.insert(id) && id != 0 && id != u64::MAX);
            }
        }
        let mut halves: alloc::vec::Vec<u32> = (0..1 << 20).map(|n| mix(n << 12, 99)).collect();
        halves.sort_unstable();
        halves.dedup();
        assert_eq!(halves.len(), 1 << 20);
    }

    #[test]
    fn a_generation_has_an_end() {
        let mut ids = IdSpace { next: Some(u32::MAX - 1), ..IdSpace::new(Generation(3), 0) };
        assert!(ids.take().is_some() && ids.take().is_some());
        assert_eq!(ids.take(), None);
        assert_eq!(IdSpace::new(Generation(0), 0).take(), None);
        assert_eq!(IdSpace::new(Generation(u32::MAX), 0).take(), None);
        assert!(IdSpace::new(Generation(u32::MAX - 1), 0).take().is_some());
    }

    #[test]
    fn neighbours_are_not_told_from_one_number() {
        let mut one = IdSpace::new(Generation(1), 1);
        let mut two = IdSpace::new(Generation(1), 2);
        let differences = (0..100).filter(|_| one.take() != two.take()).count();
        assert!(differences > 95);
    }
}
