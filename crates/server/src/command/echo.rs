//! ECHO: MS-SMB2 3.3.5.17.

use frevo_wire::Status;
use frevo_wire::command::echo;

use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::refusal::Outcome;

/// Answers that the server is there.
pub(crate) fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    echo::Request::parse(rq.message)?;
    echo::Response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}
