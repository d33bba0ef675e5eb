//! Time of day and random numbers of the simulated machines.

use frevo_server::internal::host::{HostNames, NoNames};
use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::dice::Dice;

/// A clock that runs with tokio's, and random numbers from the seed.
#[derive(Debug)]
pub struct Simulated {
    start: Instant,
    dice: Mutex<Dice>,
}

/// The start time of every run: 2026-01-01.
const EPOCH: i64 = 1_767_225_600;

impl Simulated {
    /// Returns an ambient with the random numbers of `dice`; `start` is the beginning of the run.
    pub const fn new(start: Instant, dice: Dice) -> Self {
        Self { start, dice: Mutex::new(dice) }
    }

    /// Returns the time of day in a run that began at `start`.
    pub fn time(start: Instant) -> FileTime {
        let since = start.elapsed();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
        FileTime::from_unix(EPOCH + seconds, since.subsec_nanos())
    }
}

impl frevo_server::internal::ambient::Ambient for Simulated {
    fn now(&self) -> FileTime {
        Self::time(self.start)
    }

    fn random(&self, bytes: &mut [u8]) {
        self.dice.lock().fill(bytes);
    }

    fn names(&self) -> &dyn HostNames {
        &NoNames
    }
}

impl frevo_client::internal::Ambient for Simulated {
    fn now(&self) -> FileTime {
        Self::time(self.start)
    }

    fn random(&self, bytes: &mut [u8]) -> bool {
        self.dice.lock().fill(bytes);
        true
    }
}
