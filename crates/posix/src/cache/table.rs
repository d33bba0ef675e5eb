//! The names of one directory, by their folded form and by their short name.

use std::collections::BTreeSet;
use std::hash::BuildHasher;
use std::sync::OnceLock;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::shorts::ShortNames;
use crate::fold::{self, Folded};

/// Returns the hasher, with a random key for each process, so that no client can choose names that
/// collide.
fn hasher() -> &'static DefaultHashBuilder {
    static HASHER: OnceLock<DefaultHashBuilder> = OnceLock::new();
    HASHER.get_or_init(DefaultHashBuilder::default)
}

pub(super) fn hash_of(value: impl std::hash::Hash) -> u64 {
    hasher().hash_one(value)
}

fn hash_name(name: &[u8]) -> u64 {
    hash_of(Folded::of(name).as_bytes())
}

/// Names as stored, grouped by their folded form.
#[derive(Debug, Default)]
pub(super) struct Table {
    names: HashTable<Box<[u8]>>,
    /// Names that may or may not exist; nearly always none.
    doubtful: Vec<Box<[u8]>>,
    /// The hash of each name's short name, with the hash of the name itself. An ordered set, since
    /// clients can make many names with one short name.
    shorts: BTreeSet<(u64, u64)>,
    short_names: ShortNames,
}

/// The answer of a table about a name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Lookup<'a> {
    /// No name folds alike.
    Absent,
    /// The name as stored.
    Present(&'a [u8]),
    /// A name that may exist; the caller has to look.
    Doubtful(&'a [u8]),
}

impl Table {
    pub(super) fn new(short_names: ShortNames) -> Self {
        Self { short_names, ..Self::default() }
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.names.iter().map(|name| &**name)
    }

    pub(super) fn len(&self) -> usize {
        self.names.len()
    }

    /// Returns the weight in the cache's limit, in names: three short names take less than one name.
    pub(super) fn weight(&self) -> usize {
        self.names.len() + self.shorts.len().div_ceil(3)
    }

    /// Records a present name.
    pub(super) fn insert(&mut self, name: &[u8]) {
        self.settle(name);
        let hash = hash_name(name);
        if self.names.find(hash, |stored| **stored == *name).is_none() {
            self.names.insert_unique(hash, name.into(), |stored| hash_name(stored));
            if let Some(short) = self.short_names.of(name) {
                self.shorts.insert((hash_of(short.as_bytes()), hash));
            }
        }
    }

    /// Records an absent name.
    pub(super) fn remove(&mut self, name: &[u8]) {
        self.settle(name);
        let hash = hash_name(name);
        let Ok(entry) = self.names.find_entry(hash, |stored| **stored == *name) else { return };
        entry.remove();
        // Names that differ only in case have one short name, which is removed only with the last
        // of them.
        if let Some(short) = self.short_names.of(name)
            && self.names.find(hash, |stored| fold::alike(stored, name)).is_none()
        {
            self.shorts.remove(&(hash_of(short.as_bytes()), hash));
        }
    }

    /// Records that a name may exist.
    pub(super) fn doubt(&mut self, name: &[u8]) {
        self.insert(name);
        self.doubtful.push(name.into());
    }

    /// True if it is not known whether the name exists.
    pub(super) fn doubts(&self, name: &[u8]) -> bool {
        self.doubtful.iter().any(|doubtful| **doubtful == *name)
    }

    pub(super) fn doubtful(&self) -> usize {
        self.doubtful.len()
    }

    fn settle(&mut self, name: &[u8]) {
        if !self.doubtful.is_empty() {
            self.doubtful.retain(|doubtful| **doubtful != *name);
        }
    }

    /// Finds the exact name, else the first in byte order that folds alike, else one whose short name
    /// is `wanted`.
    pub(super) fn find(&self, wanted: &[u8]) -> Lookup<'_> {
        let mut best: Option<&[u8]> = None;
        for stored in self.names.iter_hash(hash_name(wanted)) {
            if !fold::alike(stored, wanted) {
                continue;
            }
            if self.doubts(stored) {
                return Lookup::Doubtful(stored);
            }
            let exact = |name: &[u8]| *name == *wanted;
            if exact(stored) || best.is_none_or(|best| !exact(best) && **stored < *best) {
                best = Some(stored);
            }
        }
        best.map_or_else(|| self.by_short_name(wanted), Lookup::Present)
    }

    fn by_short_name(&self, wanted: &[u8]) -> Lookup<'_> {
        let Some(wanted) = self.short_names.wanted(wanted) else { return Lookup::Absent };
        let hash = hash_of(wanted.as_bytes());
        for (_, long) in self.shorts.range((hash, u64::MIN)..=(hash, u64::MAX)) {
            for stored in self.names.iter_hash(*long) {
                if !self.short_names.is_of(stored, &wanted) {
                    continue;
                }
                let is_doubtful = self.doubts(stored);
                return if is_doubtful {
                    Lookup::Doubtful(stored)
                } else {
                    Lookup::Present(stored)
                };
            }
        }
        Lookup::Absent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exact_names_win_then_byte_order() {
        let mut table = Table::default();
        for name in [&b"abc"[..], b"ABC", b"aBC", b"other", b"caf\xe9", b"abc"] {
            table.insert(name);
        }
        assert_eq!(table.len(), 5);
        for exact in [&b"abc"[..], b"ABC", b"aBC"] {
            assert_eq!(table.find(exact), Lookup::Present(exact));
        }
        assert_eq!(table.find(b"Abc"), Lookup::Present(b"ABC"));
        assert_eq!(table.find(b"CAF\xe9"), Lookup::Absent);
        table.remove(b"ABC");
        table.remove(b"ABC");
        assert_eq!(table.find(b"Abc"), Lookup::Present(b"aBC"));
        assert_eq!(table.find(b"none"), Lookup::Absent);
        assert_eq!(table.len(), 4);
    }

    #[test]
    fn doubt_lasts_until_it_is_settled() {
        let mut table = Table::default();
        table.doubt(b"One");
        assert_eq!(table.find(b"ONE"), Lookup::Doubtful(b"One"));
        table.insert(b"One");
        assert_eq!(table.find(b"ONE"), Lookup::Present(b"One"));
        table.doubt(b"One");
        table.remove(b"One");
        assert_eq!(table.find(b"ONE"), Lookup::Absent);
        assert_eq!((table.len(), table.doubtful()), (0, 0));
    }
}
