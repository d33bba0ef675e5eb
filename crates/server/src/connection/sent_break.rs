//! A break notification until the peer's transport has acknowledged it.

use std::time::Duration;

use tokio::time::Instant;

use crate::objects::lease::parcel::Parcel;

/// A notification that the peer's transport has not acknowledged yet.
pub(super) struct Sent {
    /// The notification; `None` after it went to another channel too.
    pub(super) parcel: Option<Parcel>,
    /// Where it ends in the stream.
    pub(super) end: u64,
    /// Retransmission time-out assumed for the connection.
    pub(super) rto: Duration,
    /// Bytes of the stream that were acknowledged at the last progress, and its time.
    pub(super) arrived: u64,
    pub(super) progress: Instant,
    pub(super) next_look: Instant,
}

impl Sent {
    /// Returns the time without an acknowledgment.
    pub(super) fn stalled(&mut self, arrived: u64, now: Instant) -> Duration {
        if arrived > self.arrived {
            self.arrived = arrived;
            self.progress = now;
        }
        now.saturating_duration_since(self.progress)
    }
}
