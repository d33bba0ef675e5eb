//! Calls that wait for an event, and are answered minutes or hours later, or never: as
//! WitnessrAsyncNotify does, MS-SWN 3.1.4.4.
//!
//! A wait is charged to its caller's account from its beginning to its end. It ends with its answer, by a
//! co_cancel or orphaned PDU of its client, or with its association: the pipe, or the connection of TCP.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;

use frevo_rpc::{Answer, FaultStatus};
use tokio::task::AbortHandle;

use crate::base::limits::RPC_WAIT_BYTES;
use crate::objects::ledger::{Charge, Holder, Kind};

/// The answer to a call, once an event has happened. Dropping it ends the wait.
pub(super) type Event = Pin<Box<dyn Future<Output = Answer> + Send>>;

/// The start of a call that may wait.
pub(super) enum Started {
    Ended(Answer),
    Waits(Event),
}

/// Charges an account for a call that waits.
///
/// # Errors
/// The fault of a call that is one too many.
pub(super) fn charge(holder: &Arc<Holder>) -> Result<Charge, FaultStatus> {
    holder.charge(Kind::RpcWait, RPC_WAIT_BYTES).map_err(|_| FaultStatus::SERVER_TOO_BUSY)
}

/// The waits on a pipe.
#[derive(Debug, Default)]
pub(super) struct PipeWaits(Vec<PipeWait>);

/// A wait on a pipe: a task on the core of the connection whose WRITE began it, since any connection of
/// the session may read the answer. Dropping it ends the task.
#[derive(Debug)]
struct PipeWait {
    call_id: u32,
    task: AbortHandle,
    _charge: Charge,
}

impl Drop for PipeWait {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl PipeWaits {
    /// Ends the waits of the calls that `is_wanted` does not name.
    pub(super) fn keep(&mut self, mut is_wanted: impl FnMut(u32) -> bool) {
        self.0.retain(|wait| is_wanted(wait.call_id));
    }

    /// Adds a wait, which `task` carries out.
    pub(super) fn add(&mut self, call_id: u32, task: AbortHandle, charge: Charge) {
        self.0.push(PipeWait { call_id, task, _charge: charge });
    }
}
