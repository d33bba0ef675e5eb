//! A file to which all actors append records, each under a lock.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::End;
use crate::trace::Trace;
use crate::violation;

/// The name of the log file.
pub(super) const NAME: &str = "log";
/// Length of a record, bytes.
const RECORD: usize = 64;

#[derive(Debug, Clone, Copy)]
enum Fate {
    /// The call is running, or its result is unknown.
    Perhaps,
    /// The record is at this offset.
    There { offset: u64, stable: bool },
}

/// The known state of the log file.
#[derive(Debug)]
pub struct Log {
    trace: Arc<Trace>,
    records: BTreeMap<u64, Fate>,
    /// Offsets that a crash has left empty.
    holes: BTreeSet<u64>,
    /// The end of the last record that any actor tried to append.
    reached: u64,
}

/// Returns the record of `value`.
pub fn record(value: u64) -> Vec<u8> {
    value.to_le_bytes().repeat(RECORD / 8)
}

impl Log {
    pub(super) const fn new(trace: Arc<Trace>) -> Self {
        Self { trace, records: BTreeMap::new(), holes: BTreeSet::new(), reached: 0 }
    }

    /// Records that an append of `value` at `offset` begins.
    pub fn append(&mut self, value: u64, offset: u64) {
        self.records.insert(value, Fate::Perhaps);
        self.reached = self.reached.max(offset + RECORD as u64);
    }

    /// Records the end of an append at `offset`.
    pub fn appended(&mut self, value: u64, offset: u64, end: End) {
        match end {
            End::Done { .. } => {
                self.records.insert(value, Fate::There { offset, stable: false });
            }
            End::Not => drop(self.records.remove(&value)),
            End::Unknown => {}
        }
    }

    /// Records that the record is stable, with all that were acknowledged before it.
    pub fn stable(&mut self, value: u64) {
        if let Some(Fate::There { stable, .. }) = self.records.get_mut(&value) {
            *stable = true;
        }
    }

    /// Compares the content of the disk with the possible ones.
    pub(super) fn on_disk(&mut self, content: &[u8], is_crash: bool) {
        let mut found = BTreeMap::new();
        for (at, bytes) in content.chunks(RECORD).enumerate() {
            let offset = (at * RECORD) as u64;
            if bytes.iter().all(|byte| *byte == 0) {
                if is_crash {
                    self.holes.insert(offset);
                } else if !self.holes.contains(&offset) {
                    violation!(self.trace, "the log has a hole at {offset}");
                }
                continue;
            }
            let value =
                u64::from_le_bytes(bytes[..8.min(bytes.len())].try_into().unwrap_or([0; 8]));
            if bytes != record(value) || !self.records.contains_key(&value) {
                violation!(
                    self.trace,
                    "the log has a record at {offset} that nobody appended: {value:#x}"
                );
                continue;
            }
            if let Some(first) = found.insert(value, offset) {
                violation!(
                    self.trace,
                    "record {value:#x} is in the log twice: at {first} and {offset}"
                );
            }
        }
        if is_crash {
            // After a crash, an append that was in progress is still written at its planned offset.
            // Records before this offset may be lost, which leaves holes.
            let lost = (content.len() as u64).next_multiple_of(RECORD as u64)..self.reached;
            self.holes.extend(lost.step_by(RECORD));
        }
        self.records.retain(|value, fate| {
            let Fate::There { offset, stable } = *fate else { return true };
            match found.get(value) {
                Some(at) if *at == offset => true,
                None if is_crash && !stable => false,
                other => {
                    violation!(
                        self.trace,
                        "record {value:#x} was acknowledged at {offset} and is at {other:?}"
                    );
                    false
                }
            }
        });
    }
}
