//! Time of day and random numbers of the simulated machines.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use frevo_proto::protection::Compression;
use frevo_server::ambient::CryptoPlace;
use frevo_server::ambient::{HostNames, NoNames};
use frevo_wire::dtyp::FileTime;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::dice::Dice;

/// The time of day of one machine: it runs with tokio's clock, and can be set.
#[derive(Debug, Clone)]
pub struct Clock {
    start: Instant,
    /// Seconds by which the clock was set forward.
    ahead: Arc<AtomicI64>,
}

impl Clock {
    /// Returns a clock that is right; `start` is the beginning of the run.
    pub fn new(start: Instant) -> Self {
        Self { start, ahead: Arc::default() }
    }

    /// Sets the clock forward, or back.
    pub fn jump(&self, seconds: i64) {
        self.ahead.fetch_add(seconds, Ordering::Relaxed);
    }

    /// Returns the time of day.
    pub fn now(&self) -> FileTime {
        let since = self.start.elapsed();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(0);
        let ahead = self.ahead.load(Ordering::Relaxed);
        FileTime::from_unix(EPOCH + seconds + ahead, since.subsec_nanos())
    }
}

/// The clock of a machine, and random numbers from the seed.
#[derive(Debug)]
pub struct Simulated {
    clock: Clock,
    dice: Mutex<Dice>,
    /// For the work of other threads.
    threads: Mutex<Dice>,
    /// The compression that a client offers.
    compression: Compression,
}

/// The start time of every run: 2026-01-01.
const EPOCH: i64 = 1_767_225_600;

impl Simulated {
    /// Returns an ambient with the random numbers of `dice`.
    pub fn new(clock: Clock, dice: Dice) -> Self {
        let threads = Mutex::new(Dice::new(dice.clone().next(), 1));
        Self { clock, dice: Mutex::new(dice), threads, compression: Compression::ALL }
    }

    /// Has a client offer this compression alone.
    #[must_use]
    pub fn offering(self, compression: Compression) -> Self {
        Self { compression, ..self }
    }
}

impl frevo_server::ambient::Ambient for Simulated {
    fn now(&self) -> FileTime {
        self.clock.now()
    }

    fn random(&self, bytes: &mut [u8]) {
        self.dice.lock().fill(bytes);
    }

    fn names(&self) -> &dyn HostNames {
        &NoNames
    }

    /// Some messages, of whatever length, are elsewhere for a while.
    fn crypto_place(&self, _bytes: usize) -> CryptoPlace {
        let mut dice = self.threads.lock();
        match dice.percent(10) {
            true => CryptoPlace::After(dice.micros(1, 20_000)),
            false => CryptoPlace::Core,
        }
    }
}

impl frevo_client::internal::Ambient for Simulated {
    fn now(&self) -> FileTime {
        self.clock.now()
    }

    fn random(&self, bytes: &mut [u8]) -> bool {
        self.dice.lock().fill(bytes);
        true
    }

    fn compression(&self) -> Compression {
        self.compression
    }
}
