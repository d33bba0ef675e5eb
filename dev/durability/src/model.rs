//! The expected content of a file: slots. One writer writes each slot, one write at a time; every
//! byte shows the writer and the number of the write.
//!
//! A slot holds the last acknowledged stable write, or a later one; an interrupted write may be
//! there in part.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::mix;

/// Distance between the beginnings of two slots, bytes.
pub(crate) const SPACING: u64 = 16 << 10;
/// Bytes written together. A page holds a whole number of blocks, so that an interrupted write ends
/// between two blocks.
const BLOCK: usize = 64;

#[derive(Debug, Default)]
struct Slot {
    issued: AtomicU64,
    acknowledged: AtomicU64,
}

/// The slots of one client in one file.
#[derive(Debug)]
pub(crate) struct Slots {
    writer: u32,
    base: u64,
    slots: Vec<Slot>,
}

/// The number of the last acknowledged write of each slot at some moment.
pub(crate) type Acknowledged = Vec<u64>;

impl Slots {
    /// Returns `count` slots from `base` on.
    pub(crate) fn new(writer: u32, base: u64, count: usize) -> Self {
        let slots = std::iter::repeat_with(Slot::default).take(count).collect();
        Self { writer, base, slots }
    }

    pub(crate) const fn base(&self) -> u64 {
        self.base
    }

    /// Returns the bytes from [`Self::base`] to the end of the last slot.
    pub(crate) fn span(&self) -> u64 {
        self.slots.len() as u64 * SPACING
    }

    pub(crate) fn count(&self) -> usize {
        self.slots.len()
    }

    /// Returns the offset of a slot, which is not aligned to pages.
    pub(crate) fn offset(&self, slot: usize) -> u64 {
        self.base + slot as u64 * SPACING + mix(slot as u64) % 16 * BLOCK as u64
    }

    /// Returns the length of a slot: from one block to several pages.
    pub(crate) fn len(slot: usize) -> usize {
        BLOCK << (slot % 8)
    }

    /// Begins a write; returns its number and its bytes.
    pub(crate) fn issue(&self, slot: usize) -> (u64, Vec<u8>) {
        let number = self.slots[slot].issued.fetch_add(1, Ordering::AcqRel) + 1;
        (number, self.content(slot, number))
    }

    /// Records that the write is acknowledged as stable.
    pub(crate) fn acknowledge(&self, slot: usize, number: u64) {
        self.slots[slot].acknowledged.store(number, Ordering::Release);
    }

    /// Returns the acknowledged writes; call it before the file is read.
    pub(crate) fn acknowledged(&self) -> Acknowledged {
        self.slots.iter().map(|slot| slot.acknowledged.load(Ordering::Acquire)).collect()
    }

    fn content(&self, slot: usize, number: u64) -> Vec<u8> {
        (0..Self::len(slot) / BLOCK).flat_map(|at| block(self.writer, slot, number, at)).collect()
    }

    /// Compares the content of the whole file with the writes that it may hold; returns the first
    /// violation.
    pub(crate) fn judge(&self, file: &[u8], acknowledged: &Acknowledged) -> Vec<String> {
        (0..self.count())
            .filter_map(|slot| self.judge_slot(file, slot, acknowledged[slot]))
            .collect()
    }

    fn judge_slot(&self, file: &[u8], slot: usize, acknowledged: u64) -> Option<String> {
        let issued = self.slots[slot].issued.load(Ordering::Acquire);
        let from = usize::try_from(self.offset(slot)).ok()?;
        for at in 0..Self::len(slot) / BLOCK {
            let begin = from + at * BLOCK;
            // A slot that was never acknowledged may be a hole, or lie beyond the end of the file.
            let there = match file.get(begin..begin + BLOCK) {
                Some(there) => there,
                None if acknowledged == 0 => continue,
                None => &[],
            };
            let is_hole = there.iter().all(|byte| *byte == 0);
            if acknowledged == 0 && is_hole {
                continue;
            }
            let number = there.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes));
            let fits = (acknowledged..=issued).contains(&number)
                && there == block(self.writer, slot, number, at);
            if !fits {
                return Some(format!(
                    "slot {slot} of client {} at {begin}: write {acknowledged} of {issued} was \
                     acknowledged, {} is there",
                    self.writer,
                    if there == block(self.writer, slot, number, at) {
                        format!("write {number}")
                    } else {
                        format!("something else, {there:02x?},")
                    }
                ));
            }
        }
        None
    }
}

fn block(writer: u32, slot: usize, number: u64, at: usize) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut seed = mix(u64::from(writer) << 40 ^ (slot as u64) << 20 ^ at as u64);
    for (word, bytes) in block.chunks_exact_mut(8).enumerate() {
        let value = if word == 0 { number } else { seed ^ mix(number) };
        bytes.copy_from_slice(&value.to_le_bytes());
        seed = mix(seed.wrapping_add(1));
    }
    block
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(slots: &Slots, writes: &[(usize, Vec<u8>)]) -> Vec<u8> {
        let mut file = vec![0; usize::try_from(slots.base() + slots.span()).unwrap()];
        for (slot, data) in writes {
            let from = usize::try_from(slots.offset(*slot)).unwrap();
            file[from..from + data.len()].copy_from_slice(data);
        }
        file
    }

    #[test]
    fn only_acknowledged_or_later_data_is_accepted() {
        let slots = Slots::new(3, SPACING, 16);
        let (first, old) = slots.issue(5);
        let (second, new) = slots.issue(5);
        let none = slots.acknowledged();
        for there in [vec![], vec![(5, old.clone())], vec![(5, new.clone())]] {
            assert!(slots.judge(&file(&slots, &there), &none).is_empty());
        }
        assert!(slots.judge(&[], &none).is_empty(), "nothing was promised");
        slots.acknowledge(5, first);
        let torn: Vec<u8> = new[..BLOCK].iter().chain(&old[BLOCK..]).copied().collect();
        let some = slots.acknowledged();
        for (there, is_good) in [(&old, true), (&new, true), (&torn, true)] {
            let found = slots.judge(&file(&slots, &[(5, there.clone())]), &some);
            assert_eq!(found.is_empty(), is_good, "{found:?}");
        }
        assert_eq!(slots.judge(&file(&slots, &[]), &some).len(), 1, "a lost write");
        assert_eq!(slots.judge(&[], &some).len(), 1, "a lost file");
        slots.acknowledge(5, second);
        let all = slots.acknowledged();
        assert!(slots.judge(&file(&slots, &[(5, new.clone())]), &all).is_empty());
        assert_eq!(slots.judge(&file(&slots, &[(5, old)]), &all).len(), 1, "an older write");
        assert_eq!(slots.judge(&file(&slots, &[(5, torn)]), &all).len(), 1, "half a write");
        let mut other = new;
        other[BLOCK + 9] ^= 1;
        assert_eq!(slots.judge(&file(&slots, &[(5, other)]), &all).len(), 1, "another byte");
    }

    #[test]
    fn slots_do_not_meet() {
        let slots = Slots::new(0, 0, 64);
        for slot in 0..64 {
            let end = slots.offset(slot) + Slots::len(slot) as u64;
            assert!(end <= slots.base() + (slot as u64 + 1) * SPACING);
        }
    }
}
