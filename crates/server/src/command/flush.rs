//! FLUSH: MS-SMB2 3.3.5.11.

use frevo_wire::Status;
use frevo_wire::command::flush;
use frevo_wire::dtyp::AccessMask;

use crate::command::request::Request;
use crate::command::response::Response;
use crate::objects::open::OpenTarget;
use crate::objects::refusal::Outcome;
use crate::objects::stable;

/// Answers when all that was written is on stable storage. A pipe has nothing
/// to wait for: what is written to it is consumed at once.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    // macOS sets Reserved1 to 0xFFFF (F_FULLFSYNC) to have the drive's cache written. The field is
    // not read, because each sync writes the drive's cache.
    flush::Request::parse(rq.message)?;
    let open = rq.open()?;
    if let OpenTarget::File(file) = &open.target {
        // For a directory these bits mean FILE_ADD_FILE and FILE_ADD_SUBDIRECTORY, one of which is
        // needed, too.
        open.require_any(AccessMask::WRITE_DATA | AccessMask::APPEND_DATA)?;
        file.settle_times(rq.server().ambient.now());
        if !planted!(SkippedFlush) {
            stable::sync(file).await?;
        }
    }
    flush::Response.encode(&mut out.writer());
    Ok(Status::SUCCESS)
}

#[cfg(test)]
mod tests;
