//! What the client takes from the world besides bytes: the time of day and
//! random bytes. A simulator brings its own.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use frevo_wire::dtyp::FileTime;

use crate::error::Cause;

/// Wall clock and randomness. Timers do not come from here but from tokio's
/// clock, which a simulator can pause.
pub trait Ambient: Send + Sync + fmt::Debug {
    /// The time of day.
    fn now(&self) -> FileTime;

    /// Fills `bytes` with random ones fit for keys; false when there are none.
    fn random(&self, bytes: &mut [u8]) -> bool;
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

    fn random(&self, bytes: &mut [u8]) -> bool {
        getrandom::fill(bytes).is_ok()
    }
}

/// Random bytes, or the reason why there is nothing to be done without.
pub(crate) fn random<const N: usize>(ambient: &dyn Ambient) -> Result<[u8; N], Cause> {
    let mut bytes = [0; N];
    if ambient.random(&mut bytes) {
        return Ok(bytes);
    }
    Err(Cause::Usage("the system has no random numbers"))
}
