//! The time of day and random bytes: all nondeterminism enters the client here. A simulator
//! brings its own.

use std::fmt;
use std::time::{SystemTime, UNIX_EPOCH};

use frevo_proto::protection::Compression;
use frevo_wire::dtyp::FileTime;

use crate::error::Cause;

/// A wall clock and a source of random bytes. Timers use tokio's clock instead, which a
/// simulator can pause.
pub trait Ambient: Send + Sync + fmt::Debug {
    /// Returns the time of day.
    fn now(&self) -> FileTime;

    /// Fills `bytes` with random bytes that are good enough for keys. Returns false if the
    /// system has none.
    fn random(&self, bytes: &mut [u8]) -> bool;

    /// Returns the compression that is offered where some is. A simulator offers less.
    fn compression(&self) -> Compression {
        Compression::ALL
    }
}

/// The clock and the random source of this machine.
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

/// Returns `N` random bytes that are good enough for keys.
pub(crate) fn random<const N: usize>(ambient: &dyn Ambient) -> Result<[u8; N], Cause> {
    let mut bytes = [0; N];
    if ambient.random(&mut bytes) {
        return Ok(bytes);
    }
    Err(Cause::Usage("the system provides no random numbers, without which nothing is secure"))
}
