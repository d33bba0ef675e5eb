//! What changes in SET_INFO break of that which others cache: the checks for an
//! oplock break in MS-FSA 2.1.5.15 and 2.1.5.17.

use frevo_store::lease::Cause;
use frevo_wire::Status;
use frevo_wire::command::set_info::{InfoType, Request};
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::set::{
    DispositionFlags, FileDispositionInformation, FileDispositionInformationEx,
};

use super::file;
use crate::lease;
use crate::open::{Open, OpenTarget};
use crate::request;

/// Breaks what is in the way, and waits for it. What will be refused for want of
/// rights breaks nothing.
pub(super) async fn contend(
    rq: &request::Request<'_>,
    open: &Open,
    request: &Request<'_>,
) -> Result<(), Status> {
    let OpenTarget::File(target) = &open.target else { return Ok(()) };
    let Some(cause) = cause(open, request) else { return Ok(()) };
    lease::contend(rq, target, cause).await
}

fn cause(open: &Open, request: &Request<'_>) -> Option<Cause> {
    match request.info_type {
        InfoType::SECURITY => return Some(Cause::Delete),
        InfoType::FILE => {}
        _ => return None,
    }
    let class = FileInfoClass(request.file_info_class);
    let row = file::row(class).ok()?;
    open.require(row.access).ok()?;
    match class {
        FileInfoClass::END_OF_FILE | FileInfoClass::ALLOCATION => Some(Cause::Write),
        FileInfoClass::RENAME | FileInfoClass::RENAME_EX | FileInfoClass::LINK => {
            Some(Cause::Rename)
        }
        FileInfoClass::DISPOSITION => {
            let wanted = FileDispositionInformation::parse(request.buffer).ok()?;
            wanted.delete_pending.then_some(Cause::Delete)
        }
        FileInfoClass::DISPOSITION_EX => {
            let wanted = FileDispositionInformationEx::parse(request.buffer).ok()?;
            wanted.flags.contains(DispositionFlags::DELETE).then_some(Cause::Delete)
        }
        _ => None,
    }
}
