//! LOGOFF: MS-SMB2 3.3.5.6.

use std::sync::Arc;

use frevo_wire::Status;
use frevo_wire::command::logoff;

use crate::refusal::Outcome;
use crate::request::Request;
use crate::response::Response;

/// Ends the session on all of its channels. The channel of this connection is
/// still there for the response's signature or seal; the next look-up finds
/// the session closed.
pub fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    logoff::Request::parse(rq.message)?;
    let session = Arc::clone(rq.session()?);
    rq.server().close_session(&session);
    logoff::Response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}
