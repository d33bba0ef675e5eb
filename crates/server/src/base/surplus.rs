//! Maps that become small again.
//!
//! A map keeps the room of its largest crowd, which is most of what a server would keep of thousands of
//! clients after they have left.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

/// Maps with less room than this keep it: entries.
const KEPT: usize = 64;
/// Room is given back when this many times the entries have it.
const SURPLUS: usize = 8;

/// Gives room back that most entries have left. Called after each removal: the entries are moved once
/// for several times their number of removals.
pub(crate) fn return_surplus<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    let capacity = map.capacity();
    if capacity > KEPT && map.len() <= capacity / SURPLUS {
        map.shrink_to((map.len() * 2).max(KEPT / 2));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_is_given_back_seldom_and_nearly_all() {
        let mut map: HashMap<u32, u32> = (0..10_000).map(|n| (n, n)).collect();
        let mut moves = 0;
        for n in 0..10_000 {
            map.remove(&n);
            let before = map.capacity();
            return_surplus(&mut map);
            moves += u32::from(map.capacity() < before);
            assert!(map.capacity() >= map.len());
        }
        assert!(map.capacity() <= KEPT, "room for {}", map.capacity());
        assert!(moves <= 5, "{moves} times");
    }
}
