//! A file of slots, each written as a whole: a register that several clients read and write.

use std::sync::Arc;

use super::{End, Moment};
use crate::trace::Trace;
use crate::violation;

/// Length of a slot, bytes: less than a page, so that it is written at once.
pub const SLOT: usize = 512;
/// Number of slots of a file; several share a page.
pub const SLOTS: usize = 12;

#[derive(Debug, Clone, Copy)]
struct Write {
    value: u64,
    asked: Moment,
    /// The first moment at which it may have happened.
    happened: Moment,
    /// The last moment at which it may happen.
    over: Moment,
    /// True while the call runs.
    pending: bool,
}

/// The known state of one file.
#[derive(Debug)]
pub struct Registers {
    /// Writes to each slot in the order of requests; the first is the initial content.
    slots: Vec<Vec<Write>>,
    /// The request of the newest acknowledged sync.
    synced: Moment,
}

/// Returns the content of a slot with `value`.
pub fn content(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(SLOT / 8)
}

/// Returns the value of a slot, unless it is torn.
fn value(content: &[u8]) -> Option<u64> {
    let (words, rest) = content.as_chunks::<8>();
    let first = words.first()?;
    let same = words.iter().all(|word| word == first);
    (same && rest.is_empty() && content.len() == SLOT).then(|| u64::from_le_bytes(*first))
}

const fn known(value: u64, at: Moment) -> Write {
    Write { value, asked: at, happened: at, over: at, pending: false }
}

impl Registers {
    /// Returns a stable file of zeros.
    pub fn new(now: Moment) -> Self {
        Self { slots: vec![vec![known(0, now)]; SLOTS], synced: now }
    }

    /// Records that a write begins.
    pub fn write(&mut self, slot: usize, value: u64, asked: Moment) {
        let write = Write { value, asked, happened: Moment::MAX, over: Moment::MAX, pending: true };
        self.slots[slot].push(write);
    }

    /// Records the end of a write.
    pub fn wrote(&mut self, slot: usize, value: u64, end: End, now: Moment) {
        let writes = &mut self.slots[slot];
        let Some(at) = writes.iter().position(|write| write.value == value) else { return };
        let write = &mut writes[at];
        write.pending = false;
        match end {
            End::Done { again } => {
                write.happened = write.happened.min(now);
                write.over = if again { now } else { write.happened };
            }
            End::Not if write.happened == Moment::MAX => drop(writes.remove(at)),
            End::Not | End::Unknown => {}
        }
    }

    /// Records that all writes acknowledged before `asked` are stable.
    pub fn synced(&mut self, asked: Moment) {
        self.synced = self.synced.max(asked);
    }

    /// Checks a read that was requested at `asked` and has returned `content` now.
    pub fn read(
        &mut self,
        slot: usize,
        found: &[u8],
        asked: Moment,
        now: Moment,
    ) -> Result<(), String> {
        let Some(value) = value(found) else {
            return Err(format!(
                "slot {slot} is torn: {} bytes {:02x?}",
                found.len(),
                &found[..found.len().min(16)]
            ));
        };
        let writes = &mut self.slots[slot];
        let Some(at) = writes.iter().position(|write| write.value == value) else {
            return Err(format!(
                "slot {slot} holds {value:#x}, which was not written there or failed"
            ));
        };
        let write = writes[at];
        let newer = writes.iter().find(|other| write.over < other.asked && other.happened < asked);
        if let Some(newer) = newer {
            return Err(format!(
                "slot {slot} holds {value:#x}, but {:#x} was written after it and before the read",
                newer.value
            ));
        }
        let write = &mut writes[at];
        write.happened = write.happened.min(now);
        Ok(())
    }

    /// Compares the disk with the possible contents; after a crash it may be as old as the last
    /// sync.
    pub fn on_disk(
        &mut self,
        content: &[u8],
        is_crash: bool,
        now: Moment,
        trace: &Arc<Trace>,
        name: &str,
    ) {
        let since = if is_crash { self.synced } else { now };
        for slot in 0..SLOTS {
            let found = content.get(slot * SLOT..(slot + 1) * SLOT).unwrap_or_default();
            if let Err(why) = self.read(slot, found, since, now) {
                violation!(trace, "{name} on disk (crash: {is_crash}): {why}");
            }
        }
    }

    /// Records a fall of the server: the disk holds `content`, and only running calls can still
    /// change it.
    pub fn begin_anew(&mut self, content: &[u8], now: Moment) {
        for (slot, writes) in self.slots.iter_mut().enumerate() {
            let found = content.get(slot * SLOT..(slot + 1) * SLOT).and_then(value).unwrap_or(0);
            let pending = writes.iter().filter(|write| write.pending && write.value != found);
            let pending: Vec<_> = pending
                .map(|write| Write {
                    asked: now,
                    happened: Moment::MAX,
                    over: Moment::MAX,
                    ..*write
                })
                .collect();
            let mut there = known(found, now);
            if let Some(write) = writes.iter().find(|write| write.pending && write.value == found) {
                // The client may send the pending write again, so the write is not over yet.
                there = Write { happened: now, over: Moment::MAX, ..*write };
            }
            *writes = vec![there];
            writes.extend(pending);
        }
        self.synced = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overwritten_data_does_not_reappear() {
        let mut file = Registers::new(1);
        file.write(0, 7, 2);
        assert!(file.read(0, &content(0), 3, 4).is_ok() && file.read(0, &content(7), 3, 4).is_ok());
        file.wrote(0, 7, End::Done { again: false }, 5);
        assert!(file.read(0, &content(0), 6, 7).is_err());
        file.write(0, 8, 8);
        file.wrote(0, 8, End::Unknown, 9);
        assert!(file.read(0, &content(7), 10, 11).is_ok());
        assert!(file.read(0, &content(8), 12, 13).is_ok());
        assert!(file.read(0, &content(7), 14, 15).is_err());
        assert!(file.read(0, &content(9), 16, 17).is_err());
        let mut torn = content(8);
        torn[9] ^= 1;
        assert!(file.read(0, &torn, 18, 19).is_err());
    }

    #[test]
    fn a_failed_write_is_not_visible() {
        let mut file = Registers::new(1);
        file.write(3, 7, 2);
        file.wrote(3, 7, End::Not, 3);
        assert!(file.read(3, &content(7), 4, 5).is_err());
    }

    #[test]
    fn a_crash_restores_the_last_sync() {
        let trace = Arc::new(Trace::new(tokio::time::Instant::now(), false));
        let mut file = Registers::new(1);
        for (value, at) in [(7, 2), (8, 4), (9, 8)] {
            file.write(0, value, at);
            file.wrote(0, value, End::Done { again: false }, at + 1);
        }
        file.synced(6);
        let disk = |value| [content(value), vec![0; SLOT * (SLOTS - 1)]].concat();
        file.on_disk(&disk(8), true, 10, &trace, "f");
        file.on_disk(&disk(9), true, 10, &trace, "f");
        assert!(!trace.is_violated());
        file.on_disk(&disk(7), true, 10, &trace, "f");
        assert!(trace.is_violated());
    }
}
