//! Mounts that are known to take changes, because they have just taken one of this process.
//!
//! A delete is refused when it is asked for if the file system takes no changes (MS-FSA
//! 2.1.5.1.2.1). That is known without a question to the kernel for [`TICK_MS`] after this process
//! has made a file in the same mount. What is mounted anew for reading within that time is noticed
//! when the file is to be removed, as it is when that happens after the question: the kernel refuses
//! the removal, and the client is told.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::limits::{CHANGED_MOUNTS, TICK_MS};

/// Mounts by their numbers. Some share a slot, and the last one has it.
struct Changed([AtomicU64; CHANGED_MOUNTS]);

static CHANGED: Changed = Changed::new();

impl Changed {
    const fn new() -> Self {
        Self([const { AtomicU64::new(0) }; CHANGED_MOUNTS])
    }

    /// Returns the slot with the number of a mount in the upper half, and the time of its last
    /// change in the lower.
    fn slot(&self, mount: u64) -> &AtomicU64 {
        &self.0[mount as usize % CHANGED_MOUNTS]
    }

    fn note(&self, mount: u64) {
        self.slot(mount).store(mount << 32 | u64::from(now()), Ordering::Relaxed);
    }

    fn is_noted(&self, mount: u64) -> bool {
        let noted = self.slot(mount).load(Ordering::Relaxed);
        let age = now().wrapping_sub(noted as u32);
        noted != 0 && noted >> 32 == mount && u64::from(age) <= TICK_MS
    }
}

/// Milliseconds of a clock that nobody sets.
fn now() -> u32 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::MonotonicCoarse);
    (now.tv_sec.wrapping_mul(1_000) + now.tv_nsec / 1_000_000) as u32
}

/// Records that the mount with this number has just taken a change.
pub(crate) fn note(mount: u64) {
    CHANGED.note(mount);
}

/// True if the mount with this number took a change a short time ago.
pub(crate) fn is_noted(mount: u64) -> bool {
    CHANGED.is_noted(mount)
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn a_change_counts_for_a_short_time_and_for_its_mount() {
        let (changed, mount) = (Changed::new(), 37);
        assert!(!changed.is_noted(mount) && !changed.is_noted(0));
        // Other programs may have the processor for longer than a change counts, so that it is noted again.
        let noted = std::iter::repeat_with(|| {
            let began = Instant::now();
            changed.note(mount);
            let noted =
                [mount, mount + 1, mount + CHANGED_MOUNTS as u64].map(|m| changed.is_noted(m));
            (began.elapsed() < Duration::from_millis(TICK_MS / 2)).then_some(noted)
        });
        assert_eq!(
            noted.flatten().next(),
            Some([true, false, false]),
            "another mount of this slot"
        );
        std::thread::sleep(Duration::from_millis(3 * TICK_MS));
        assert!(!changed.is_noted(mount));
    }
}
