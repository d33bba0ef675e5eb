//! The results of scans that are remembered.

use std::collections::HashMap;
use std::sync::Arc;

use frevo_store::FileKey;
use frevo_wire::dtyp::FileTime;

use crate::base::limits::SCAN_RESULTS;

/// The result of a scan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Finding {
    /// Nothing was found.
    Nothing,
    /// A virus of this name was found.
    Virus(Arc<str>),
    /// The service does not let the file pass, and names no virus.
    Blocked,
    /// The file could not be scanned.
    Unscanned,
}

/// A remembered result.
#[derive(Debug, Clone)]
pub(super) struct Kept {
    /// The host's time of the file's last change, before the scan.
    pub(super) changed: FileTime,
    /// The number of the signatures that the file was scanned by.
    pub(super) signatures: u64,
    pub(super) found: Finding,
}

impl Kept {
    pub(super) const fn unscanned(changed: FileTime) -> Self {
        Self { changed, signatures: 0, found: Finding::Unscanned }
    }
}

/// Results by files, in two halves: when the young half is full, it becomes the old one, and the old one is
/// forgotten. A result that is asked for becomes young again.
#[derive(Debug, Default)]
pub(super) struct Results {
    young: HashMap<FileKey, Kept>,
    old: HashMap<FileKey, Kept>,
}

impl Results {
    pub(super) fn insert(&mut self, key: FileKey, kept: Kept) {
        self.old.remove(&key);
        if self.young.len() >= SCAN_RESULTS / 2 && !self.young.contains_key(&key) {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, kept);
    }

    pub(super) fn find(&mut self, key: FileKey) -> Option<Kept> {
        if let Some(kept) = self.old.remove(&key) {
            self.insert(key, kept);
        }
        self.young.get(&key).cloned()
    }

    /// All results, the old half first.
    pub(super) fn all(&self) -> Vec<(FileKey, Kept)> {
        let both = self.old.iter().chain(&self.young);
        both.map(|(key, kept)| (*key, kept.clone())).collect()
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.young.len() + self.old.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(signatures: u64) -> Kept {
        Kept { changed: FileTime(1), signatures, found: Finding::Nothing }
    }

    fn key(inode: usize) -> FileKey {
        FileKey::of_file(1, inode as u64)
    }

    #[test]
    fn so_many_results_are_remembered() {
        let mut results = Results::default();
        for inode in 0..2 * SCAN_RESULTS {
            results.insert(key(inode), kept(0));
            assert!(results.find(key(0)).is_some(), "it is asked for all the time");
            assert!(results.len() <= SCAN_RESULTS);
        }
        assert!(results.find(key(1)).is_none());
        assert!(results.find(key(2 * SCAN_RESULTS - 1)).is_some());
        results.insert(key(0), kept(7));
        assert_eq!(results.find(key(0)).unwrap().signatures, 7);
    }
}
