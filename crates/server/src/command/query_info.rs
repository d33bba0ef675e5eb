//! QUERY_INFO: MS-SMB2 3.3.5.20, with the object store's part of MS-FSA
//! 2.1.5.12 to 2.1.5.14.

mod eas;
mod file;
mod fs;
mod output;
pub(super) mod quota;
pub(super) mod security;
#[cfg(test)]
pub(super) mod testing;
#[cfg(test)]
mod tests;

use frevo_proto::Dialect;
use frevo_wire::Status;
use frevo_wire::command::query_info::{self, InfoType};

pub(super) use self::eas::fault_status;
pub(super) use self::file::{compression_format, wide_id};
pub(super) use self::fs::volume_space;
pub(super) use self::output::Output;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::open::Open;
use crate::objects::refusal::{Outcome, Refusal};
use crate::objects::shown::Shown;

/// Says what is known of a file, its volume or its protection.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = query_info::Request::parse(rq.message)?;
    let length = request.output_buffer_length;
    if length > rq.connection.negotiated()?.terms.max_transact_size {
        return Err(Status::INVALID_PARAMETER.into());
    }
    rq.check_charge(length.max(u32::try_from(request.input.len()).unwrap_or(u32::MAX)))?;
    let settled = fs::prepare(rq.open()?, &request).await;
    let mut output = Output::begin(out.bytes_mut(), length, rq.room);
    if request.info_type == InfoType::QUOTA {
        quota::query(rq, rq.open()?, &request, &mut output).await?;
    } else {
        let settled = settled.as_ref();
        answer(rq.open()?, rq.dialect(), rq.shown, settled, &request, &mut output)?;
    }
    Ok(output.finish())
}

fn answer(
    open: &Open,
    dialect: Dialect,
    shown: Option<&Shown>,
    settled: Option<&fs::Settled>,
    request: &query_info::Request<'_>,
    output: &mut Output<'_>,
) -> Result<(), Refusal> {
    match request.info_type {
        InfoType::FILE => file::query(open, dialect, shown, request, output),
        InfoType::FILESYSTEM => Ok(fs::query(open, request.file_info_class, settled, output)?),
        InfoType::SECURITY => security::query(open, request.security_information(), output),
        _ => Err(Status::INVALID_PARAMETER.into()),
    }
}
