//! Maps that become small again, as those of the store do ([`frevo_store::surplus`]).

use std::collections::HashMap;
use std::hash::{BuildHasher, Hash};

use frevo_store::surplus::less_room;

/// Gives room back that most entries have left. Called after each removal: the entries are moved once
/// for several times their number of removals.
pub(crate) fn return_surplus<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if let Some(room) = less_room(map.capacity(), map.len()) {
        map.shrink_to(room);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_that_most_entries_have_left_is_given_back() {
        let mut map: HashMap<u32, u32> = (0..10_000).map(|n| (n, n)).collect();
        for n in 0..10_000 {
            map.remove(&n);
            return_surplus(&mut map);
            assert!(map.capacity() >= map.len());
        }
        assert!(map.capacity() <= 64, "room for {}", map.capacity());
    }
}
