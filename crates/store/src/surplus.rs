//! Tables that become small again.
//!
//! A table keeps the room of its largest crowd, which is most of what a server would keep of thousands of
//! clients after they have left.

use core::hash::{BuildHasher, Hash};

use hashbrown::HashMap;

/// Tables with less room than this keep it: entries.
const KEPT: usize = 64;
/// Room is given back when this many times the entries have it.
const SURPLUS: usize = 8;

/// Returns the room that a table should shrink to: most of its room is for entries that it does not have
/// any more. None for a table that keeps its room. Asked after each removal: the entries are moved once
/// for several times their number of removals.
#[must_use]
pub const fn less_room(capacity: usize, count: usize) -> Option<usize> {
    if capacity <= KEPT || count > capacity / SURPLUS {
        return None;
    }
    let room = count.saturating_mul(2);
    Some(if room > KEPT / 2 { room } else { KEPT / 2 })
}

/// Gives the room of a map back that most entries have left.
pub(crate) fn return_surplus<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    if let Some(room) = less_room(map.capacity(), map.len()) {
        map.shrink_to(room);
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
