//! The names of a directory under a lease: a name that is not among them does not exist.
//!
//! They are a listing and the names that this mount has made since. Other clients break the lease
//! when they make a name. Only hashes are kept: two names with one hash count as one, so that the
//! server is asked for both.

use std::collections::HashSet;
use std::hash::{BuildHasher, RandomState};

use crate::limits::KNOWN_NAMES_MAX;

/// All names that may exist in a directory.
pub(super) struct KnownNames {
    /// The version of the lease under which they were listed.
    version: u64,
    hashes: HashSet<u64>,
    hasher: RandomState,
}

impl KnownNames {
    /// Returns the names of a listing; None if they are too many, or some may be equal to others
    /// for the server.
    pub(super) fn of<'a>(version: u64, names: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut known = Self { version, hashes: HashSet::new(), hasher: RandomState::new() };
        let mut names = names;
        names.all(|name| known.add(name)).then_some(known)
    }

    pub(super) const fn version(&self) -> u64 {
        self.version
    }

    /// Adds a name. Returns false if the names are unknown from now on.
    pub(super) fn add(&mut self, name: &str) -> bool {
        let hash = self.hash(name);
        self.hashes.insert(hash);
        // Servers compare names outside of ASCII in different ways, so the list of a directory with
        // such a name is not used.
        name.is_ascii() && self.hashes.len() <= KNOWN_NAMES_MAX
    }

    /// Returns true if no file has this name.
    pub(super) fn lack(&self, name: &str) -> bool {
        // These names may exist without being listed: short names with `~` (MS-FSCC 2.4.46) and
        // streams with `:`.
        let is_plain = name.is_ascii() && !name.contains(['~', ':']);
        is_plain && !self.hashes.contains(&self.hash(name))
    }

    /// Returns a hash that ignores case, as servers may.
    fn hash(&self, name: &str) -> u64 {
        self.hasher.hash_one(name.to_ascii_lowercase())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_name_that_no_server_takes_for_a_known_one_is_lacking() {
        let mut names = KnownNames::of(7, ["a", "Makefile"].into_iter()).unwrap();
        assert!(names.lack("b") && !names.lack("a") && !names.lack("A") && !names.lack("makefile"));
        assert!(!names.lack("longna~1.txt") && !names.lack("b:stream") && !names.lack("\u{e9}"));
        assert!(names.add("b") && !names.lack("B"));
        assert!(!names.add("\u{212a}"), "the Kelvin sign may be a k");
        assert!(KnownNames::of(7, ["a", "\u{e9}"].into_iter()).is_none());
    }

    #[test]
    fn the_count_of_names_is_bounded() {
        let all: Vec<String> = (0..=KNOWN_NAMES_MAX).map(|at| at.to_string()).collect();
        let names = || all.iter().map(String::as_str);
        assert!(KnownNames::of(1, names()).is_none());
        let mut most = KnownNames::of(1, names().skip(1)).unwrap();
        assert!(!most.add("one more"));
    }
}
