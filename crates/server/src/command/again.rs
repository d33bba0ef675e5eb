//! Requests that are carried out again. A deletion that was answered may not have given its space back,
//! and on network and FUSE file systems not its place in the folder either, until the last descriptor
//! of the file is closed beside the cores. A request that fails for that reason waits, and is tried once
//! more: here, for all commands whose row says that a failure has changed nothing ([`Row::repeats`]),
//! unless the handler notes that it has ([`Response::note_change`]).

use std::pin::Pin;

use frevo_wire::Status;

use crate::base::limits::CLOSED_NAMES_PATIENCE;
use crate::base::pools::closer::{self, Ended};
use crate::command::Row;
use crate::command::blocking_requests::{self, start_over};
use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::open::closing;
use crate::objects::refusal::Outcome;

/// True for a failure that the end of closes may undo.
pub(super) fn may_pass(rq: &Request<'_>, status: Status) -> bool {
    match status {
        Status::DISK_FULL => true,
        // A removed file keeps a name (`.nfs*`, `.fuse_hidden*`) until it is closed.
        Status::DIRECTORY_NOT_EMPTY => {
            rq.tree.as_ref().is_some_and(|tree| tree.share.pool().is_some())
        }
        _ => false,
    }
}

/// Runs the handler of a request once more, after files that were being closed; those that `before` counts had
/// been closed before its first run. It finds all closed then that were deleted before it came: one more run
/// is enough.
pub(super) fn again<'a>(
    rq: &'a Request<'_>,
    row: &'static Row,
    out: &'a mut Response,
    status: Status,
    before: Ended,
) -> Pin<Box<dyn Future<Output = Outcome> + 'a>> {
    Box::pin(async move {
        let has_closed = match status {
            Status::DISK_FULL => rq.has_freed(before).await,
            _ => {
                let owner = owner(rq)?;
                let closed = closer::has_closed_since(before, owner, CLOSED_NAMES_PATIENCE);
                rq.cancellation.unless_told(closed).await == Some(true)
            }
        };
        if !has_closed {
            return Err(status.into());
        }
        rq.still_served()?;
        start_over(rq, out);
        blocking_requests::attempt(rq, row, out, false).await
    })
}

/// The number by which the closer knows the account of a request.
fn owner(rq: &Request<'_>) -> Result<usize, Status> {
    Ok(closing::owner_of(Some(rq.session()?.holder())))
}
