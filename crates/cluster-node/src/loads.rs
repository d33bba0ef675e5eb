//! Loads of records: one of the machine for all shares of a unit that are started together.

use std::sync::Arc;

use frevo_cluster::Epoch;
use frevo_cluster::interface::Record;
use frevo_cluster::names::ShareName;
use frevo_store::state::{self, LoadDone, Loaded, Ownership, StateFault};

/// A share that waits for its records.
pub(crate) struct Waiter {
    pub(crate) share: Arc<str>,
    pub(crate) done: LoadDone,
}

/// A load of a unit's records that is under way.
pub(crate) struct Gathering {
    pub(crate) unit: ShareName,
    pub(crate) epoch: Epoch,
    pub(crate) records: Vec<Record>,
    pub(crate) waiters: Vec<Waiter>,
}

impl Gathering {
    /// Gives each share its records.
    pub(crate) fn end(self) {
        let mut records: Vec<_> = self.records.iter().filter_map(split).collect();
        if planted!(RecordsNotLoaded) {
            records.clear();
        }
        for Waiter { share, done } in self.waiters {
            let (own, others) = records.into_iter().partition(|one: &OfShare| one.share == *share);
            records = others;
            let own: Vec<OfShare> = own;
            let epoch = state::Epoch(self.epoch.0);
            let ownership = Ownership { share, epoch };
            let own = own.into_iter().map(|one| (one.id, one.bytes)).collect();
            done(Ok(Loaded { ownership, records: own }));
        }
    }

    /// Tells each share that it has no records.
    pub(crate) fn fail(self, fault: &StateFault) {
        for waiter in self.waiters {
            (waiter.done)(Err(fault.clone()));
        }
    }
}

/// A record with the share that it is of.
struct OfShare {
    share: String,
    id: state::RecordId,
    bytes: Vec<u8>,
}

/// The bytes that are kept for a record: the length of the share's name, the name, the record. A unit has
/// the records of all its shares.
pub(crate) fn with_share(share: &str, record: &[u8]) -> Vec<u8> {
    let length = u16::try_from(share.len()).unwrap_or(u16::MAX);
    let mut kept = Vec::with_capacity(record.len().saturating_add(share.len()).saturating_add(2));
    kept.extend(length.to_be_bytes());
    kept.extend(share.as_bytes().iter().take(usize::from(length)));
    kept.extend(record);
    kept
}

/// The record of which [`with_share`] makes such bytes. None for other bytes, which no node has written.
fn split(record: &Record) -> Option<OfShare> {
    let (length, rest) = record.bytes.split_first_chunk::<2>()?;
    let (share, bytes) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    let share = std::str::from_utf8(share).ok()?.to_owned();
    Some(OfShare { share, id: state::RecordId(record.id.0), bytes: bytes.to_vec() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use frevo_cluster::RecordId;
    use parking_lot::Mutex;

    #[test]
    fn each_share_has_its_records() {
        let of = |id, share: &str| Record {
            id: RecordId(id),
            bytes: with_share(share, format!("record {id}").as_bytes()),
        };
        let got = Arc::new(Mutex::new(Vec::new()));
        let waiter = |share: &str| {
            let got = Arc::clone(&got);
            let done: LoadDone = Box::new(move |loaded| got.lock().push(loaded.unwrap()));
            Waiter { share: Arc::from(share), done }
        };
        let foreign = Record { id: RecordId(9), bytes: vec![0, 200, b'a'] };
        let gathering = Gathering {
            unit: ShareName::new("both").unwrap(),
            epoch: Epoch(5),
            records: vec![of(1, "a"), foreign, of(2, "größe"), of(3, "a")],
            waiters: vec![waiter("a"), waiter("größe"), waiter("c")],
        };
        gathering.end();
        let found: Vec<_> = got
            .lock()
            .iter()
            .map(|loaded: &Loaded| {
                assert_eq!(loaded.ownership.epoch, state::Epoch(5));
                let ids: Vec<_> = loaded.records.iter().map(|(id, _)| id.0).collect();
                for (id, bytes) in &loaded.records {
                    assert_eq!(bytes, format!("record {}", id.0).as_bytes());
                }
                (loaded.ownership.share.to_string(), ids)
            })
            .collect();
        let wanted: [(&str, Vec<u64>); 3] = [("a", vec![1, 3]), ("größe", vec![2]), ("c", vec![])];
        assert_eq!(found, wanted.map(|(share, ids)| (share.to_owned(), ids)));
    }

    #[test]
    fn other_bytes_are_no_record() {
        for bytes in [&[][..], &[0], &[0, 1], &[0, 1, 0xff], &[255, 255, b'a']] {
            assert!(split(&Record { id: RecordId(1), bytes: bytes.to_vec() }).is_none());
        }
    }
}
