//! What the server takes from the world besides bytes: the time of day and
//! random bytes. A simulator brings its own.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use frevo_wire::dtyp::FileTime;

/// Wall clock and randomness. Timers do not come from here but from tokio's
/// clock, which a simulator can pause.
pub trait Ambient: Send + Sync + fmt::Debug {
    /// The time of day.
    fn now(&self) -> FileTime;

    /// Fills `bytes` with random ones fit for keys.
    fn random(&self, bytes: &mut [u8]);

    /// Eight random bytes as a number.
    fn random_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.random(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// The host's clock and random source.
#[derive(Debug, Clone, Copy, Default)]
pub struct Host;

impl Ambient for Host {
    fn now(&self) -> FileTime {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
        FileTime::from_unix(seconds, since.subsec_nanos())
    }

    /// # Panics
    /// When the kernel has no randomness to give: going on would mean guessable keys.
    #[allow(clippy::expect_used)]
    fn random(&self, bytes: &mut [u8]) {
        getrandom::fill(bytes).expect("the kernel's random source works");
    }
}
