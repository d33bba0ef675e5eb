//! The pipes of IPC$.

use frevo_wire::Status;
use frevo_wire::command::create;

use crate::refusal::Outcome;
use crate::request::Request;
use crate::response::Response;

/// An open pipe.
#[derive(Debug)]
pub struct Pipe {}

/// Opens a pipe.
pub fn create(_rq: &Request<'_>, _request: &create::Request<'_>, _out: &mut Response) -> Outcome {
    Err(Status::OBJECT_NAME_NOT_FOUND.into())
}

/// Reads from a pipe.
pub async fn read(
    _rq: &Request<'_>,
    _open: &crate::open::Open,
    _length: u32,
    _out: &mut Response,
) -> Outcome {
    Err(Status::INVALID_PIPE_STATE.into())
}

/// Writes to a pipe.
pub fn write(
    _rq: &Request<'_>,
    _open: &crate::open::Open,
    _data: &[u8],
) -> Result<u32, crate::refusal::Refusal> {
    Err(Status::INVALID_PIPE_STATE.into())
}
