//! Persistent Opens by their file.

use std::collections::{BTreeSet, HashMap};

use frevo_store::FileKey;

use crate::base::surplus::return_surplus;

/// Open.DurableFileId
type Id = u64;

/// The persistent Opens of each file, and the number of them that wait for their clients. Every
/// CREATE asks, so the time for an answer does not depend on the number of other files.
#[derive(Debug, Default)]
pub(super) struct ByFile {
    opens: HashMap<FileKey, BTreeSet<Id>>,
    /// Number of Opens that wait for their clients, for each file with such Opens.
    orphans: HashMap<FileKey, usize>,
}

impl ByFile {
    /// Adds a persistent Open.
    pub(super) fn enter(&mut self, key: FileKey, id: Id) {
        self.opens.entry(key).or_default().insert(id);
    }

    /// Removes an Open that has closed or is not persistent any more.
    pub(super) fn leave(&mut self, key: FileKey, id: Id) {
        if let Some(ids) = self.opens.get_mut(&key) {
            ids.remove(&id);
            if ids.is_empty() {
                self.opens.remove(&key);
                return_surplus(&mut self.opens);
            }
        }
    }

    /// Persistent Opens of a file, in the order of their ids.
    pub(super) fn of(&self, key: FileKey) -> impl Iterator<Item = Id> {
        self.opens.get(&key).into_iter().flatten().copied()
    }

    /// The number of persistent Opens of a file.
    pub(super) fn count(&self, key: FileKey) -> usize {
        self.opens.get(&key).map_or(0, BTreeSet::len)
    }

    /// Notes that a persistent Open waits for its client from now on.
    pub(super) fn orphan(&mut self, key: FileKey) {
        *self.orphans.entry(key).or_default() += 1;
    }

    /// Notes that a persistent Open does not wait for its client any more.
    pub(super) fn adopt(&mut self, key: FileKey) {
        if let Some(count) = self.orphans.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.orphans.remove(&key);
                return_surplus(&mut self.orphans);
            }
        }
    }

    /// True if a persistent Open of the file waits for its client.
    pub(super) fn is_held(&self, key: FileKey) -> bool {
        self.orphans.contains_key(&key)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The room of thousands of files is given back.
    #[test]
    fn a_crowd_of_files_leaves_no_room() {
        let mut by_file = ByFile::default();
        let key = |n| FileKey::of_file(1, n);
        for n in 0..10_000 {
            by_file.enter(key(n), n);
            by_file.orphan(key(n));
        }
        for n in 1..10_000 {
            by_file.adopt(key(n));
            by_file.leave(key(n), n);
        }
        assert!(by_file.is_held(key(0)) && by_file.count(key(0)) == 1);
        for room in [by_file.opens.capacity(), by_file.orphans.capacity()] {
            assert!(room <= 64, "room for {room}");
        }
    }
}
