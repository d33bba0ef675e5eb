//! A sketch of a directory with too many names to keep: a filter that proves nearly every absent
//! name, and recent answers.

use hashbrown::HashMap;

use super::shorts::ShortNames;
use super::table::{Lookup, hash_of};
use crate::fold::{self, Folded};
use crate::limits::{SKETCH_ANSWERS, SKETCH_BITS_PER_NAME, SKETCH_NAMES, SKETCH_PROBES};

/// A Bloom filter over the folded names and the short names, with some answers.
#[derive(Debug)]
pub(super) struct Sketch {
    /// The filter; empty for more than [`SKETCH_NAMES`] names, when every name may exist.
    bits: Box<[u64]>,
    /// The number of names that the filter is made for, and the number that it holds.
    room: usize,
    held: usize,
    answers: HashMap<Box<[u8]>, Answer>,
    short_names: ShortNames,
}

#[derive(Debug)]
enum Answer {
    /// A reader looks through the directory for this name, and it has not changed meanwhile.
    Sought,
    Absent,
    Present {
        stored: Box<[u8]>,
        /// True if no other name folds alike.
        alone: bool,
    },
    /// No name folds alike; this one has the short name that was asked for.
    Short {
        stored: Box<[u8]>,
    },
    /// A name that was alone and may have gone: the next note about it tells.
    Leaving,
}

/// The hashes of names while a directory is read; None if there are too many.
#[derive(Debug, Default)]
pub(super) struct Hashes {
    hashes: Vec<u64>,
    are_too_many: bool,
    short_names: ShortNames,
}

fn folded(name: &[u8]) -> Box<[u8]> {
    Folded::of(name).as_bytes().into()
}

fn hash_name(name: &[u8]) -> u64 {
    hash_of(Folded::of(name).as_bytes())
}

impl Hashes {
    pub(super) fn new(short_names: ShortNames) -> Self {
        Self { short_names, ..Self::default() }
    }

    /// Adds an entry's name and its short name.
    pub(super) fn add(&mut self, name: &[u8]) {
        self.push(hash_name(name));
        if let Some(short) = self.short_names.of(name) {
            self.push(hash_of(short.as_bytes()));
        }
    }

    fn push(&mut self, hash: u64) {
        if self.hashes.len() >= SKETCH_NAMES {
            self.are_too_many = true;
            self.hashes = Vec::new();
        }
        if !self.are_too_many {
            self.hashes.push(hash);
        }
    }
}

impl Sketch {
    pub(super) fn of(hashes: &Hashes) -> Self {
        let names = hashes.hashes.len();
        let words = if hashes.are_too_many {
            0
        } else {
            (names * SKETCH_BITS_PER_NAME).div_ceil(64).next_power_of_two()
        };
        let mut sketch = Self {
            bits: vec![0; words].into(),
            room: names.saturating_mul(2),
            held: 0,
            answers: HashMap::new(),
            short_names: hashes.short_names,
        };
        hashes.hashes.iter().for_each(|hash| sketch.hold(*hash));
        sketch
    }

    /// Returns the weight in the cache's limit, in names.
    pub(super) fn weight(&self) -> usize {
        self.bits.len() / 10 + self.answers.len()
    }

    /// True if the filter holds more names than it is made for and should be made anew.
    pub(super) fn is_worn(&self) -> bool {
        !self.bits.is_empty() && self.held > self.room
    }

    fn places(&self, hash: u64) -> impl Iterator<Item = (usize, u64)> + use<> {
        let mask = (self.bits.len() * 64).wrapping_sub(1) as u64;
        // The positions of all probes are made from the two halves of one hash.
        let (one, two) = (hash, hash.rotate_left(32) | 1);
        (0..SKETCH_PROBES).map(move |probe| {
            let bit = one.wrapping_add(two.wrapping_mul(probe)) & mask;
            ((bit / 64) as usize, 1 << (bit % 64))
        })
    }

    fn hold(&mut self, hash: u64) {
        if self.bits.is_empty() {
            return;
        }
        for (word, bit) in self.places(hash) {
            self.bits[word] |= bit;
        }
        self.held += 1;
    }

    fn may_hold(&self, hash: u64) -> bool {
        self.bits.is_empty() || self.places(hash).all(|(word, bit)| self.bits[word] & bit != 0)
    }

    /// Returns the answer for a name; None if the directory must be read for it.
    pub(super) fn find(&self, wanted: &[u8]) -> Option<Lookup<'_>> {
        match self.answers.get(Folded::of(wanted).as_bytes()) {
            Some(Answer::Absent) => Some(Lookup::Absent),
            // The stored name equals the wanted name, or the directory has no other spelling of it.
            Some(Answer::Present { stored, alone }) if *alone || **stored == *wanted => {
                Some(Lookup::Present(stored))
            }
            Some(Answer::Short { stored }) => Some(Lookup::Present(stored)),
            Some(_) => None,
            None if self.may_hold(hash_name(wanted)) => None,
            None => Some(Lookup::Absent),
        }
    }

    /// Records a present name. One that the filter proved absent is alone, which is remembered: the
    /// filter cannot forget it when it goes, and the directory would be read for it when it comes
    /// again, as names of temporary files do.
    pub(super) fn insert(&mut self, name: &[u8]) {
        if let Some(short) = self.short_names.of(name) {
            self.answers.remove(short.as_bytes());
            self.hold(hash_of(short.as_bytes()));
        }
        let hash = hash_name(name);
        let was_possible = self.may_hold(hash);
        self.hold(hash);
        let Some(answer) = self.answers.get_mut(Folded::of(name).as_bytes()) else {
            if !was_possible {
                let answer = Answer::Present { stored: name.into(), alone: true };
                self.remember(name, answer);
            }
            return;
        };
        match answer {
            Answer::Absent => *answer = Answer::Present { stored: name.into(), alone: true },
            Answer::Present { stored, .. } if **stored == *name => {}
            // The answer has another spelling, or its entry is being removed. So both names are
            // doubtful now.
            _ => self.doubt(name),
        }
    }

    /// Records an absent name.
    pub(super) fn remove(&mut self, name: &[u8]) {
        self.forget_short(name);
        match self.answers.get_mut(Folded::of(name).as_bytes()) {
            Some(answer @ (Answer::Present { alone: true, .. } | Answer::Leaving)) => {
                *answer = Answer::Absent;
            }
            Some(Answer::Absent) | None => {}
            Some(_) => self.doubt(name),
        }
    }

    /// Forgets the answer about a name, except that no other folds alike.
    pub(super) fn doubt(&mut self, name: &[u8]) {
        self.forget_short(name);
        let key = Folded::of(name);
        match self.answers.get(key.as_bytes()) {
            Some(Answer::Present { alone: true, stored }) if **stored == *name => {
                self.answers.insert(key.as_bytes().into(), Answer::Leaving);
            }
            _ => drop(self.answers.remove(key.as_bytes())),
        }
    }

    /// Forgets the answer about the short name of an entry. A short name is its own folded form.
    fn forget_short(&mut self, name: &[u8]) {
        if let Some(short) = self.short_names.of(name) {
            self.answers.remove(short.as_bytes());
        }
    }

    /// Records that the directory is about to be read for a name.
    pub(super) fn seek(&mut self, wanted: &[u8]) {
        self.remember(wanted, Answer::Sought);
    }

    fn remember(&mut self, name: &[u8], answer: Answer) {
        if self.answers.len() >= SKETCH_ANSWERS {
            self.answers = HashMap::new();
        }
        self.answers.insert(folded(name), answer);
    }

    /// Stores the result of reading for a name, unless the name changed meanwhile.
    pub(super) fn found(&mut self, seen: &Seeking<'_>) {
        let wanted = Folded::of(seen.wanted);
        let Some(answer) = self.answers.get_mut(wanted.as_bytes()) else { return };
        if matches!(answer, Answer::Sought) {
            *answer = match (&seen.best, &seen.short) {
                (Some(stored), _) => {
                    Answer::Present { stored: stored.clone(), alone: seen.count == 1 }
                }
                (None, Some(stored)) => Answer::Short { stored: stored.clone() },
                (None, None) => Answer::Absent,
            };
        }
    }
}

/// The search for one name while a directory is read.
#[derive(Debug)]
pub(super) struct Seeking<'a> {
    wanted: &'a [u8],
    short_names: ShortNames,
    /// The short name that `wanted` may be.
    wanted_short: Option<String>,
    best: Option<Box<[u8]>>,
    /// The first name in byte order whose short name is wanted.
    short: Option<Box<[u8]>>,
    count: usize,
}

impl<'a> Seeking<'a> {
    pub(super) fn new(wanted: &'a [u8], short_names: ShortNames) -> Self {
        let wanted_short = short_names.wanted(wanted);
        Self { wanted, short_names, wanted_short, best: None, short: None, count: 0 }
    }

    /// Returns the stored name that was found.
    pub(super) fn into_found(self) -> Option<Vec<u8>> {
        self.best.or(self.short).map(Vec::from)
    }

    /// Considers a name of the directory: an exact match is best, then the first in byte order.
    pub(super) fn see(&mut self, name: &[u8]) {
        if !fold::alike(name, self.wanted) {
            if let Some(short) = &self.wanted_short
                && self.short.as_deref().is_none_or(|first| name < first)
                && self.short_names.is_of(name, short)
            {
                self.short = Some(name.into());
            }
            return;
        }
        self.count += 1;
        let is_exact = |name: &[u8]| *name == *self.wanted;
        let better = |best: &[u8]| !is_exact(best) && (is_exact(name) || name < best);
        if self.best.as_deref().is_none_or(better) {
            self.best = Some(name.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sketch(names: usize) -> Sketch {
        let mut hashes = Hashes::default();
        (0..names).for_each(|n| hashes.add(format!("Name{n}").as_bytes()));
        Sketch::of(&hashes)
    }

    /// A name that comes and goes again and again needs no reading of the directory.
    #[test]
    fn a_new_name_that_was_removed_is_known_to_be_absent() {
        let mut sketch = sketch(20_000);
        let name = (0..)
            .map(|n| format!("Temporary{n}"))
            .find(|name| matches!(sketch.find(name.as_bytes()), Some(Lookup::Absent)));
        let name = name.unwrap();
        let (stored, other) = (name.as_bytes(), name.to_uppercase());
        for round in 0..3 {
            sketch.insert(stored);
            for wanted in [stored, other.as_bytes()] {
                assert_eq!(sketch.find(wanted), Some(Lookup::Present(stored)), "{round}");
            }
            // A rename marks the old name as doubtful before it removes the name.
            if round > 0 {
                sketch.doubt(stored);
                assert_eq!(sketch.find(other.as_bytes()), None, "{round}");
            }
            sketch.remove(stored);
            assert_eq!(sketch.find(other.as_bytes()), Some(Lookup::Absent), "{round}");
        }
        // The first spelling may be removed when a second one appears, so the sketch cannot tell
        // which of them exists.
        sketch.insert(stored);
        sketch.doubt(stored);
        sketch.insert(other.as_bytes());
        assert_eq!(sketch.find(stored), None);
        sketch.remove(stored);
        assert_eq!(sketch.find(stored), None);
        // Both names differ only in case and have the same hash, so the sketch has no answer.
        sketch.insert(stored);
        sketch.insert(other.as_bytes());
        assert_eq!(sketch.find(name.to_lowercase().as_bytes()), None);
    }

    #[test]
    fn nearly_every_absent_name_is_known_to_be() {
        let sketch = sketch(20_000);
        for n in 0..20_000 {
            assert_eq!(sketch.find(format!("NAME{n}").as_bytes()), None, "it may be there");
        }
        let is_known = |n: &usize| sketch.find(format!("other{n}").as_bytes()).is_some();
        let known = (0..20_000).filter(is_known).count();
        assert!(known > 19_900, "{known}");
    }

    #[test]
    fn answers_follow_what_is_noted() {
        let mut sketch = sketch(100);
        assert_eq!(sketch.find(b"NAME7"), None);
        sketch.seek(b"NAME7");
        let mut seen = Seeking::new(b"NAME7", ShortNames::Off);
        [&b"name8"[..], b"Name7"].into_iter().for_each(|name| seen.see(name));
        sketch.found(&seen);
        assert_eq!(sketch.find(b"NAME7"), Some(Lookup::Present(b"Name7")));
        sketch.remove(b"Name7");
        assert_eq!(sketch.find(b"NAME7"), Some(Lookup::Absent));
        sketch.insert(b"naMe7");
        assert_eq!(sketch.find(b"NAME7"), Some(Lookup::Present(b"naMe7")));
        // Two spellings exist, and only reading the directory tells which one comes first, so the
        // sketch has no answer.
        sketch.insert(b"NamE7");
        assert_eq!(sketch.find(b"NAME7"), None);
    }

    #[test]
    fn a_name_that_changes_during_its_lookup_is_not_cached() {
        for change in [Sketch::insert, Sketch::remove, Sketch::doubt] {
            let mut sketch = sketch(100);
            sketch.seek(b"NAME7");
            change(&mut sketch, b"Name7");
            sketch.found(&Seeking::new(b"NAME7", ShortNames::Off));
            assert_eq!(sketch.find(b"NAME7"), None);
        }
    }

    #[test]
    fn answers_are_bounded_and_a_worn_filter_is_known() {
        let mut sketch = sketch(100);
        for n in 0..SKETCH_ANSWERS + 1 {
            sketch.seek(format!("x{n}").as_bytes());
            assert!(sketch.answers.len() <= SKETCH_ANSWERS);
        }
        (0..100).for_each(|n| sketch.insert(format!("more{n}").as_bytes()));
        assert!(!sketch.is_worn());
        sketch.insert(b"one too many");
        assert!(sketch.is_worn());
    }

    #[test]
    fn the_best_is_exact_then_first() {
        let best = |names: &[&[u8]]| {
            let mut seen = Seeking::new(b"Abc", ShortNames::Off);
            names.iter().for_each(|name| seen.see(name));
            (seen.best, seen.count)
        };
        assert_eq!(best(&[b"abc", b"aBC", b"ABC"]), (Some((*b"ABC").into()), 3));
        assert_eq!(best(&[b"ABC", b"Abc", b"AAA"]), (Some((*b"Abc").into()), 2));
        assert_eq!(best(&[b"x"]), (None, 0));
    }
}
