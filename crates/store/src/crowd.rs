//! Values that are found by a key: a few of them for most files, tens of thousands for some.
//!
//! They are in a row, which is searched while it is short. From [`INDEXED_FROM`] values on an index
//! finds each of them: otherwise a client with as many Opens of one file as there may be would make
//! each request about this file long, and the end of a session that has many of them longer still. The
//! memory of many goes with most of them.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::hash::Hash;
use core::slice;

use hashbrown::HashMap;

use crate::limits::INDEXED_FROM;

/// A value with the key that it is found by, which no other value of its crowd has.
pub(crate) trait Keyed {
    /// The key.
    type Key: Copy + Eq + Hash;

    /// Returns the key of this value.
    fn key(&self) -> Self::Key;
}

/// Values that are found by their keys.
#[derive(Debug)]
pub(crate) struct Crowd<V: Keyed> {
    values: Vec<V>,
    /// The places of the values in the row, once there have been many.
    places: Option<Box<HashMap<V::Key, usize>>>,
}

impl<V: Keyed> Default for Crowd<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: Keyed> Crowd<V> {
    /// No values.
    pub(crate) const fn new() -> Self {
        Self { values: Vec::new(), places: None }
    }

    /// Returns the number of values.
    pub(crate) const fn len(&self) -> usize {
        self.values.len()
    }

    /// True without a value.
    pub(crate) const fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    /// Returns the values: in the order in which they came, as long as they have been few.
    pub(crate) fn iter(&self) -> slice::Iter<'_, V> {
        self.values.iter()
    }

    /// Like [`Self::iter`]. The keys must stay as they are.
    pub(crate) fn iter_mut(&mut self) -> slice::IterMut<'_, V> {
        self.values.iter_mut()
    }

    /// Returns the value with this key.
    pub(crate) fn find(&self, key: V::Key) -> Option<&V> {
        self.values.get(self.place(key)?)
    }

    /// Returns the value with this key. The key must stay as it is.
    pub(crate) fn find_mut(&mut self, key: V::Key) -> Option<&mut V> {
        let place = self.place(key)?;
        self.values.get_mut(place)
    }

    /// Adds a value, whose key no other one has.
    pub(crate) fn push(&mut self, value: V) {
        let place = self.values.len();
        if let Some(places) = &mut self.places {
            places.insert(value.key(), place);
        }
        self.values.push(value);
        if self.places.is_none() && self.values.len() >= INDEXED_FROM {
            let keys = self.values.iter().map(V::key);
            self.places = Some(Box::new(keys.zip(0..).collect()));
        }
    }

    /// Takes out the value with this key.
    pub(crate) fn take(&mut self, key: V::Key) -> Option<V> {
        let place = self.place(key)?;
        let Some(places) = &mut self.places else { return Some(self.values.remove(place)) };
        places.remove(&key);
        let taken = self.values.swap_remove(place);
        if let Some(moved) = self.values.get(place) {
            places.insert(moved.key(), place);
        }
        self.give_back();
        Some(taken)
    }

    /// Frees memory that more values have needed.
    fn give_back(&mut self) {
        let few = self.values.len();
        if few < INDEXED_FROM / 2 {
            self.places = None;
            self.values.shrink_to_fit();
        } else if few < self.values.capacity() / 4 {
            let room = few.saturating_mul(2);
            self.values.shrink_to(room);
            if let Some(places) = &mut self.places {
                places.shrink_to(room);
            }
        }
    }

    /// Returns the place of a value in the row.
    fn place(&self, key: V::Key) -> Option<usize> {
        match &self.places {
            Some(places) => places.get(&key).copied(),
            None => self.values.iter().position(|value| value.key() == key),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, PartialEq, Eq)]
    struct Numbered(u32);

    impl Keyed for Numbered {
        type Key = u32;

        fn key(&self) -> u32 {
            self.0
        }
    }

    /// Tests that each value is found by its key alone, with an index and without, whichever have
    /// been taken out.
    #[test]
    fn each_is_found_among_few_and_among_many() {
        let count = u32::try_from(3 * INDEXED_FROM).unwrap();
        let mut crowd = Crowd::new();
        for number in 0..count {
            crowd.push(Numbered(number));
            assert_eq!(crowd.places.is_some(), crowd.len() >= INDEXED_FROM);
            assert_eq!(crowd.find(number), Some(&Numbered(number)));
            assert_eq!(crowd.find(number + 1), None);
        }
        for number in (0..count).filter(|number| number % 3 != 1) {
            assert_eq!(crowd.take(number), Some(Numbered(number)));
            assert_eq!(crowd.take(number), None);
        }
        assert_eq!(crowd.len(), INDEXED_FROM);
        for number in 0..count {
            let there = (number % 3 == 1).then_some(Numbered(number));
            assert_eq!(crowd.find(number), there.as_ref());
            assert_eq!(crowd.find_mut(number).is_some(), there.is_some());
        }
        let numbers: Vec<u32> = crowd.iter().map(Numbered::key).collect();
        for number in numbers {
            assert_eq!(crowd.take(number), Some(Numbered(number)));
            assert!(crowd.values.capacity() < INDEXED_FROM || crowd.places.is_some());
        }
        assert!(crowd.is_empty() && crowd.places.is_none());
    }

    /// Tests that few values of a file that had many Opens have little memory.
    #[test]
    fn memory_of_many_goes_with_most_of_them() {
        let count = u32::try_from(1_000 * INDEXED_FROM).unwrap();
        let mut crowd = Crowd::new();
        (0..count).for_each(|number| crowd.push(Numbered(number)));
        for number in 0..count {
            assert_eq!(crowd.take(number), Some(Numbered(number)));
            let most = 4 * crowd.len() + INDEXED_FROM;
            assert!(
                crowd.values.capacity() <= most,
                "{} of {}",
                crowd.values.capacity(),
                crowd.len()
            );
            let indexed = crowd.places.as_ref().map_or(0, |places| places.capacity());
            assert!(indexed <= 2 * most, "{indexed} of {}", crowd.len());
        }
    }

    #[test]
    fn few_keep_their_order() {
        let mut crowd = Crowd::new();
        (0..5).for_each(|number| crowd.push(Numbered(number)));
        crowd.take(1);
        assert_eq!(crowd.iter().map(Numbered::key).collect::<Vec<_>>(), [0, 2, 3, 4]);
        crowd.iter_mut().for_each(|_| {});
    }
}
