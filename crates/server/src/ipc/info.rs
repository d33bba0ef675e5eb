//! Information about open pipes: MS-FSCC 2.4.37 to 2.4.39 and 2.3.46.

use frevo_rpc::Endpoint;
use frevo_wire::Status;
use frevo_wire::codec::Writer;
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::fsctl::PipePeekHeader;
use frevo_wire::fscc::query::{
    FilePipeInformation, FilePipeRemoteInformation, FileStandardInformation,
};

use super::ALLOCATION;
use crate::objects::open::Open;

/// Appends the information that QUERY_INFO asks of a pipe.
///
/// # Errors
/// INVALID_DEVICE_REQUEST when `open` is no pipe, ACCESS_DENIED without
/// FILE_READ_ATTRIBUTES where the class needs it, NOT_SUPPORTED for classes
/// that pipes do not have.
pub(crate) fn pipe_info(
    open: &Open,
    class: FileInfoClass,
    w: &mut Writer<'_>,
) -> Result<(), Status> {
    let pipe = open.pipe()?.lock();
    match class {
        FileInfoClass::PIPE | FileInfoClass::PIPE_LOCAL | FileInfoClass::PIPE_REMOTE => {
            open.require(AccessMask::READ_ATTRIBUTES)?
        }
        _ => {}
    }
    match class {
        FileInfoClass::PIPE => pipe.mode().encode(w),
        FileInfoClass::PIPE_LOCAL => pipe.local().encode(w),
        FileInfoClass::PIPE_REMOTE => {
            FilePipeRemoteInformation { collect_data_time: 0, maximum_collection_count: 0 }
                .encode(w);
        }
        FileInfoClass::STANDARD => {
            // A pipe vanishes with its last Open, so it is reported as pending deletion, as on
            // Windows.
            FileStandardInformation {
                allocation_size: ALLOCATION,
                end_of_file: 0,
                number_of_links: 1,
                delete_pending: true,
                directory: false,
            }
            .encode(w);
        }
        _ => return Err(Status::NOT_SUPPORTED),
    }
    Ok(())
}

/// Takes FilePipeInformation of SET_INFO.
///
/// # Errors
/// As [`pipe_info`]; INFO_LENGTH_MISMATCH for a short buffer,
/// INVALID_PARAMETER for modes that do not exist.
pub(crate) fn set_pipe_info(open: &Open, class: FileInfoClass, bytes: &[u8]) -> Result<(), Status> {
    let mut pipe = open.pipe()?.lock();
    if class != FileInfoClass::PIPE {
        return Err(Status::NOT_SUPPORTED);
    }
    open.require(AccessMask::WRITE_ATTRIBUTES)?;
    let mode = FilePipeInformation::parse(bytes).map_err(|_| Status::INFO_LENGTH_MISMATCH)?;
    if mode.read_mode > 1 || mode.completion_mode > 1 {
        return Err(Status::INVALID_PARAMETER);
    }
    pipe.by_message = mode.read_mode == 1;
    pipe.completes = mode.completion_mode == 1;
    Ok(())
}

/// FSCTL_PIPE_PEEK, MS-SMB2 3.3.5.15.4: the state of the pipe and up to
/// `max_output` bytes of its first message, which stays. Room for nothing is
/// allowed and gets nothing.
///
/// # Errors
/// INVALID_DEVICE_REQUEST when `open` is no pipe, INVALID_PARAMETER when the
/// fixed part does not fit, PIPE_DISCONNECTED when all is read and the pipe
/// closed.
pub(crate) fn peek(open: &Open, max_output: u32) -> Result<(Vec<u8>, Status), Status> {
    open.require(AccessMask::READ_DATA)?;
    let pipe = open.pipe()?.lock();
    if pipe.is_closed() && pipe.unread() == 0 {
        return Err(Status::PIPE_DISCONNECTED);
    }
    let max_output = usize::try_from(max_output).unwrap_or(usize::MAX);
    if max_output == 0 {
        return Ok((Vec::new(), Status::SUCCESS));
    }
    let room = max_output.checked_sub(PipePeekHeader::SIZE).ok_or(Status::INVALID_PARAMETER)?;
    let waiting = pipe.waiting().map_or(&[][..], Endpoint::peek);
    let (shown, rest) = waiting.split_at(waiting.len().min(room));
    let mut output = Vec::with_capacity(PipePeekHeader::SIZE + shown.len());
    pipe.peek().encode(&mut Writer::new(&mut output));
    output.extend_from_slice(shown);
    Ok((output, super::read_status(!rest.is_empty())))
}
