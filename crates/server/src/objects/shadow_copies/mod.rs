//! Shadow copies of shares over the network, MS-FSRVP: the calls on their way to the thread that has the
//! state, and the hands that make snapshots.

pub(crate) mod agent;

use std::fmt;
use std::future::Future;
use std::io;
use std::net::IpAddr;

use frevo_rpc::fsrvp::{HResult, Reply, Request};
use tokio::sync::{mpsc, oneshot};

/// The word for the server, which removes the shadow copies of a client that is silent.
pub(crate) const BY_SERVER: &str = "fsrvp";

/// Makes snapshots of shares, and stores the state of the shadow copies. Calls may block, but for
/// [`Self::volume`] and [`Self::is_thinned`].
pub trait Snapshotter: Send + Sync + fmt::Debug {
    /// Returns the name of the store that a share is on, by which two shares on one store are told. None for
    /// a share of which no snapshots can be made.
    fn volume(&self, share: &str) -> Option<String>;

    /// Makes a snapshot of a share for the account `by`, which nobody removes until [`Self::remove`] or
    /// [`Self::release`]. Returns the second since 1970 by which it is known.
    ///
    /// # Errors
    /// A sentence for the log.
    fn create(&self, share: &str, by: &str) -> Result<u64, String>;

    /// Removes a snapshot for the account `by`, or for the server itself, which is `fsrvp`. If it
    /// cannot be removed, that is tried again later.
    ///
    /// # Errors
    /// A sentence for the log.
    fn remove(&self, share: &str, taken: u64, by: &str) -> Result<(), String>;

    /// Leaves a snapshot to the schedule of its share.
    fn release(&self, share: &str, taken: u64);

    /// Returns true if a schedule thins the snapshots of a share. It does not block.
    fn is_thinned(&self, share: &str) -> bool;

    /// Removes a snapshot that was released, if its share has still no schedule that thins it.
    ///
    /// # Errors
    /// A sentence for the log. The snapshot is there, and is asked for again.
    fn expire(&self, share: &str, taken: u64) -> Result<(), String>;

    /// Stores the state. It is on the disk when the call returns.
    ///
    /// # Errors
    /// The state before is still stored.
    fn store(&self, state: &[u8]) -> io::Result<()>;
}

/// The caller of a call.
#[derive(Debug, Clone)]
pub(crate) struct Requester {
    pub(crate) user: String,
    pub(crate) address: IpAddr,
}

/// A call that waits for its answer.
#[derive(Debug)]
struct Asked {
    request: Request,
    by: Requester,
    answer: oneshot::Sender<Result<Reply, HResult>>,
}

/// The way to the thread that has the state.
#[derive(Debug)]
pub(crate) struct ShadowCopies(mpsc::Sender<Asked>);

impl ShadowCopies {
    const fn new(sender: mpsc::Sender<Asked>) -> Self {
        Self(sender)
    }

    /// Makes a call when the future is polled first. Then it is carried out also if nobody waits for its answer.
    pub(crate) fn call(
        &self,
        request: Request,
        by: Requester,
    ) -> impl Future<Output = Result<Reply, HResult>> + use<> {
        let sender = self.0.clone();
        async move {
            let (answer, answered) = oneshot::channel();
            if sender.try_send(Asked { request, by, answer }).is_err() {
                return Err(HResult::OUT_OF_MEMORY);
            }
            answered.await.unwrap_or(Err(HResult::UNEXPECTED))
        }
    }
}
