//! The order of data and timestamps when a small file is written in one round trip.
//!
//! After LastWriteTime was set through an Open, later writes through that Open leave it
//! alone: Open.UserSetModificationTime, MS-FSA 2.1.5.15.2. So the timestamp goes before the
//! data: smbd then sets it once, and notifies watchers once. Some servers do not implement
//! this. The first CLOSE shows it; the client sets the timestamp again, and from then on
//! sends it after the data.

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use frevo_wire::command::close;
use frevo_wire::dtyp::FileTime;

use crate::metadata::system_time;

/// The coarsest timestamps of a file system: those of FAT.
const COARSEST: Duration = Duration::from_secs(2);

/// The place of the timestamp in a compound.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Not known yet: before the data, and CLOSE is asked for the times.
    Unknown,
    /// Before the data: writes leave the timestamp alone.
    First,
    /// After the data: writes change the timestamp.
    Last,
}

/// The timestamp that a file has after it was written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shown {
    /// The timestamp that was set.
    Dated,
    /// Another timestamp, or an unknown one.
    Undated,
}

/// The order that a share needs, as far as it is known.
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

    /// Learns from the CLOSE of a file whose timestamp was set to `wanted` before its data.
    pub(crate) fn learn(&self, wanted: FileTime, closed: &close::Response) -> Shown {
        if !closed.flags.contains(close::CloseFlags::POSTQUERY_ATTRIB) {
            return Shown::Undated;
        }
        let shown = closed.last_write_time;
        if shown == wanted {
            // This file has kept the time that was set with its data. If another file has shown
            // that the share needs the order `Last`, that order stays.
            let _ = self.0.compare_exchange(0, 1, Ordering::Relaxed, Ordering::Relaxed);
            return Shown::Dated;
        }
        let (a, b) = (system_time(shown), system_time(wanted));
        let apart = a.duration_since(b).or_else(|_| b.duration_since(a)).unwrap_or_default();
        if apart < COARSEST {
            // The difference shows nothing, because the share stores coarse timestamps, or the
            // write happened at this very time. Nothing is stored for other files.
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
