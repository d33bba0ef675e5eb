//! Files on which programs of the host have leases (`F_SETLEASE`: Samba with
//! kernel oplocks, an NFS server). Opening one has told the program; until it
//! lets go, or the kernel takes the lease from it, the CREATE waits, as one does
//! for the oplock of another client (MS-SMB2 3.3.4.6).

use frevo_wire::Status;
use tokio::time::Instant;

use crate::base::limits::{HOST_LEASE_LOOK, HOST_LEASE_PATIENCE};
use crate::command::request::Request;

/// How much longer is waited.
pub(super) struct Patience {
    until: Option<Instant>,
}

impl Patience {
    pub(super) const fn new() -> Self {
        Self { until: None }
    }

    /// Lets some time pass. SHARING_VIOLATION when it has been enough, CANCELLED
    /// when the client has had enough.
    pub(super) async fn pause(&mut self, rq: &Request<'_>) -> Result<(), Status> {
        let now = Instant::now();
        if now >= *self.until.get_or_insert(now + HOST_LEASE_PATIENCE) {
            return Err(Status::SHARING_VIOLATION);
        }
        tokio::select! {
            biased;
            () = rq.cancellation.told() => Err(Status::CANCELLED),
            () = tokio::time::sleep(HOST_LEASE_LOOK) => Ok(()),
        }
    }
}
