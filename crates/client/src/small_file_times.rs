//! When the date of a small file is set that is written in one round trip.
//!
//! Whoever sets LastWriteTime through an Open wants nothing that is written through
//! it afterwards to change it: Open.UserSetModificationTime, MS-FSA 2.1.5.15.2. So the
//! date goes before the data. smbd then need not watch the time of the write, nor set it
//! and tell everybody once more when the file is closed. Some servers know nothing of
//! that. They are found out by what the first CLOSE says, the date is set again, and from
//! then on it goes last.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use frevo_wire::command::close;
use frevo_wire::dtyp::FileTime;

use crate::metadata::system_time;

/// File systems keep times to different fractions, FAT to two seconds.
const COARSEST: Duration = Duration::from_secs(2);

/// What is known of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Nothing yet: the date goes first, and CLOSE is asked.
    Unknown,
    /// What is written later leaves the date alone.
    First,
    /// It does not.
    Last,
}

/// What one file shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// It bears its date.
    Dated,
    /// It bears another one, or nobody knows.
    Undated,
}

/// What was learned of one share.
#[derive(Debug, Default)]
pub(crate) struct Dates(AtomicU8);

impl Dates {
    pub(crate) fn order(&self) -> Order {
        match self.0.load(Ordering::Relaxed) {
            0 => Order::Unknown,
            1 => Order::First,
            _ => Order::Last,
        }
    }

    /// Learns from the CLOSE of a file that was dated `wanted` before it was written.
    pub(crate) fn learn(&self, wanted: FileTime, closed: &close::Response) -> Shown {
        if !closed.flags.contains(close::CloseFlags::POSTQUERY_ATTRIB) {
            return Shown::Undated;
        }
        let shown = closed.last_write_time;
        if shown == wanted {
            // One that another file belies is not believed again.
            let _ = self.0.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
            return Shown::Dated;
        }
        let (a, b) = (system_time(shown), system_time(wanted));
        let apart = a.duration_since(b).or_else(|_| b.duration_since(a)).unwrap_or_default();
        if apart < COARSEST {
            // Kept less finely, or written just now: that tells nothing of the next.
            return Shown::Dated;
        }
        self.0.store(2, Ordering::Relaxed);
        Shown::Undated
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn closed(at: u64) -> close::Response {
        let flags = close::CloseFlags::POSTQUERY_ATTRIB;
        close::Response { flags, last_write_time: FileTime(at), ..close::Response::default() }
    }

    const SECOND: u64 = 10_000_000;

    #[test]
    fn one_file_tells_of_the_next() {
        let wanted = FileTime(130_000_000 * SECOND + 7);
        let dates = Dates::default();
        assert_eq!(dates.learn(wanted, &closed(wanted.0 - SECOND)), Shown::Dated);
        assert_eq!(dates.order(), Order::Unknown, "a coarse clock, or chance");
        assert_eq!(dates.learn(wanted, &close::Response::default()), Shown::Undated);
        assert_eq!(dates.order(), Order::Unknown, "nothing was said");
        assert_eq!(dates.learn(wanted, &closed(wanted.0)), Shown::Dated);
        assert_eq!(dates.order(), Order::First);
        assert_eq!(dates.learn(wanted, &closed(wanted.0 + 3 * SECOND)), Shown::Undated);
        assert_eq!(dates.order(), Order::Last);
        assert_eq!(dates.learn(wanted, &closed(wanted.0)), Shown::Dated);
        assert_eq!(dates.order(), Order::Last, "it was found out");
    }
}
