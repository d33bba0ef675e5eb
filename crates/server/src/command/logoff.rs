//! LOGOFF: MS-SMB2 3.3.5.6.

use std::sync::Arc;

use frevo_wire::Status;
use frevo_wire::command::logoff;

use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::refusal::Outcome;

/// Ends the session on all of its channels. The channel of this connection is
/// still there for the response's signature or seal; the next look-up finds
/// the session closed.
/// Waits for its operations on other channels: after the answer nothing is done in its name.
/// Of two parallel LOGOFFs one succeeds.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    logoff::Request::parse(rq.message)?;
    let session = Arc::clone(rq.session()?);
    if !session.under_way.end() {
        return Err(Status::USER_SESSION_DELETED.into());
    }
    rq.server().close_session(&session, "the client logged off");
    session.under_way.drained().await;
    logoff::Response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}
