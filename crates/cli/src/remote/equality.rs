//! Equality of a source and its target, as far as listings show it.

use std::time::{Duration, SystemTime};

use super::endpoint::Entry;

/// True when two times are equal in the coarser of both resolutions: SMB keeps 100 ns,
/// other systems microseconds, milliseconds, a second, FAT two seconds.
pub(crate) fn same_time(a: SystemTime, b: SystemTime) -> bool {
    let apart = a.duration_since(b).or_else(|_| b.duration_since(a)).unwrap_or_default();
    apart < grain(a).max(grain(b))
}

/// The resolution of the clock that made `time`, as far as its digits show.
fn grain(time: SystemTime) -> Duration {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let nanos = since.as_nanos();
    let grains = [2_000_000_000, 1_000_000_000, 10_000_000, 1_000_000, 1_000];
    let found = grains.into_iter().find(|grain| nanos.is_multiple_of(*grain)).unwrap_or(100);
    Duration::from_nanos(u64::try_from(found).unwrap_or(100))
}

/// True when a file is equal at both ends, by size and time.
pub(crate) fn is_same(from: &Entry, to: &Entry) -> bool {
    from.len == to.len && same_time(from.modified, to.modified)
}

/// True when a copy would change nothing or replace a newer file: the target is equal, or newer.
pub(crate) fn is_up_to_date(from: &Entry, to: &Entry) -> bool {
    from.kind == to.kind && (is_same(from, to) || to.modified > from.modified)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_compared_as_finely_as_both_clocks_go() {
        let at = |nanos| SystemTime::UNIX_EPOCH + Duration::new(1_700_000_001, nanos);
        assert!(same_time(at(123_456_789), at(123_456_700)), "SMB's");
        assert!(same_time(at(123_456_789), at(123_456_000)) && same_time(at(123_456_789), at(0)));
        assert!(same_time(at(123_456_789), at(120_000_000)), "exFAT");
        assert!(!same_time(at(123_456_789), at(123_458_900)), "changed a moment later");
        assert!(!same_time(at(123_456_789), at(923_456_789)));
        let even = SystemTime::UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        assert!(same_time(at(923_456_789), even) && same_time(even, at(923_456_789)), "FAT");
        assert!(!same_time(at(0), at(0) + Duration::from_secs(2)));
        assert!(!same_time(even, even + Duration::from_secs(2)));
    }
}
