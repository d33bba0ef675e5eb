//! The place of this server among the servers of a cluster: until when it may serve the shares that
//! they have in turn, and the numbers that it gives.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use frevo_store::IdSource;
use frevo_store::state::ServeLimit;

/// The parts that a server of a cluster is given by
/// [`ServerBuilder::cluster`](crate::ServerBuilder::cluster).
#[derive(Clone)]
pub struct Seat {
    /// The limit of all shares that are [`clustered`](crate::Share::clustered). The server looks at it
    /// before each answer and before each change of a file: beyond the limit there is neither, and the
    /// connections of the shares end. Their Opens, locks and records stay.
    pub limit: Arc<ServeLimit>,
    /// The time now, by the clock of the limit.
    pub clock: Arc<dyn Fn() -> Duration + Send + Sync>,
    /// FileId.Persistent of Opens in clustered shares, and SessionId.
    pub ids: Arc<dyn IdSource>,
}

impl Seat {
    /// True while clustered shares may be served.
    pub(crate) fn allows(&self) -> bool {
        self.limit.allows((self.clock)()) || planted!(LimitIgnored)
    }

    /// The time until the limit; zero beyond it.
    pub(crate) fn left(&self) -> Duration {
        self.limit.until().saturating_sub((self.clock)())
    }
}

impl fmt::Debug for Seat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let now = (self.clock)();
        f.debug_struct("Seat")
            .field("limit", &self.limit.until())
            .field("now", &now)
            .field("ids", &self.ids)
            .finish()
    }
}
