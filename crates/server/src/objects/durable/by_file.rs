//! Persistent Opens by their file.

use std::collections::{BTreeSet, HashMap};

use frevo_store::FileKey;

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
            }
        }
    }

    /// True if a persistent Open of the file waits for its client.
    pub(super) fn is_held(&self, key: FileKey) -> bool {
        self.orphans.contains_key(&key)
    }
}
