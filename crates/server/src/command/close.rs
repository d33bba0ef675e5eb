//! CLOSE.

use frevo_wire::Status;

use crate::refusal::Outcome;
use crate::request::Request;
use crate::response::Response;

/// Not written yet.
pub async fn handle(_rq: &Request<'_>, _out: &mut Response) -> Outcome {
    Err(Status::NOT_SUPPORTED.into())
}
