//! A call of a control code, and its answer.

use std::sync::Arc;

use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl;
use frevo_wire::file_id::FileId;

use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::open::{FileOpen, Open};
use crate::objects::refusal::{Outcome, Refusal};

/// The answer of a handler: output, and SUCCESS or another status that has output.
pub(super) type Answer = Result<(Vec<u8>, Status), Refusal>;

/// An answer without output.
pub(super) const NO_OUTPUT: Answer = Ok((Vec::new(), Status::SUCCESS));

/// A request whose row holds, with a file in it if the row demands one.
pub(super) struct Call<'a> {
    pub(super) rq: &'a Request<'a>,
    pub(super) input: &'a [u8],
    /// Bytes that the output may have.
    pub(super) max_output: u32,
}

impl Call<'_> {
    pub(super) fn open(&self) -> Result<&Arc<Open>, Status> {
        self.rq.open()
    }

    pub(super) fn file(&self) -> Result<&FileOpen, Status> {
        self.open()?.file()
    }

    /// The file; INVALID_PARAMETER for a directory.
    pub(super) fn data_file(&self) -> Result<&FileOpen, Status> {
        let file = self.file()?;
        if file.is_directory { Err(Status::INVALID_PARAMETER) } else { Ok(file) }
    }
}

/// The data that a copy on the server moves.
#[derive(Default)]
pub(crate) struct Copying {
    /// Bytes that it reads.
    pub(crate) read: u64,
    /// Bytes that it writes.
    pub(crate) write: u64,
    /// The Open that it reads from. None if the request names none.
    pub(crate) source: Option<Arc<Open>>,
}

/// Writes the IOCTL response with its output.
pub(super) fn respond(
    rq: &Request<'_>,
    request: &ioctl::Request<'_>,
    output: &[u8],
    status: Status,
    out: &mut Response,
) -> Outcome {
    let file_id = rq.open.as_ref().map_or(FileId::ALL_ONES, |open| open.file_id);
    let response = ioctl::Response { ctl_code: request.ctl_code, file_id, input: &[], output };
    response.encode(&mut out.writer());
    Ok(status)
}

/// The bytes that `write` appends.
pub(super) fn output(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut Writer::new(&mut bytes));
    bytes
}
