//! CLOSE: MS-SMB2 3.3.5.10.

use frevo_wire::Status;
use frevo_wire::command::close::{self, CloseFlags};

use crate::open::{Open, OpenTarget};
use crate::refusal::Outcome;
use crate::request::Request;
use crate::response::Response;

/// Closes an Open; when asked, says what the file has become.
#[allow(clippy::unused_async)] // All file commands are called alike.
pub async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = close::Request::parse(rq.message)?;
    let open = rq.open()?;
    let response = if request.flags.contains(CloseFlags::POSTQUERY_ATTRIB) {
        attributes(open)
    } else {
        close::Response::default()
    };
    rq.session()?.close_open(open, &rq.server().files)?;
    response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

/// Attributes that cannot be had are zero, and the flag says so.
fn attributes(open: &Open) -> close::Response {
    let OpenTarget::File(file) = &open.target else { return close::Response::default() };
    let Ok(stat) = file.stat() else { return close::Response::default() };
    close::Response {
        flags: CloseFlags::POSTQUERY_ATTRIB,
        creation_time: stat.created,
        last_access_time: stat.accessed,
        last_write_time: stat.written,
        change_time: stat.changed,
        allocation_size: stat.allocation,
        end_of_file: stat.end_of_file,
        file_attributes: stat.attributes,
    }
}
