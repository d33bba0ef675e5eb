//! IOCTL: MS-SMB2 3.3.5.15. What a control code demands stands in its row of
//! the [`table`]; only when that holds does its handler run.

mod call;
mod compression;
mod copychunk;
mod copyfile;
mod dfs;
mod extents;
mod facts;
mod layout;
mod network_interface;
mod object_id;
mod offload;
mod ranges;
pub(in crate::command) mod reparse;
mod resiliency;
mod storage_qos;
pub(crate) mod table;
#[cfg(feature = "test-hooks")]
mod test_hooks;
mod validate_negotiate;

use frevo_wire::Status;
use frevo_wire::command::ioctl::operation::{self, OperationId};
use frevo_wire::command::ioctl::{self, IoctlFlags, pipe_wait};
use frevo_wire::file_id::FileId;

use crate::audit::Recorded;
use crate::command::request::Request;
use crate::command::response::Response;
use crate::ipc;
use crate::objects::audited;
use crate::objects::open::{FileOpen, Open, OpenTarget};
use crate::objects::refusal::Outcome;
use crate::objects::stable::{self, Change};
use crate::objects::times::KeptTimes;
pub(crate) use call::Copying;
use call::{Answer, Call, NO_OUTPUT, respond};
use table::{Act, On, Row};

/// Bytes of the response before its output: header, fixed part.
const OUTPUT_AT: usize = 112;
/// Bytes of the fixed part, which is all that [`Request::room`] does not give
/// to the output.
const FIXED: usize = OUTPUT_AT - 64;
/// Where the request says where its input begins.
const INPUT_OFFSET_AT: usize = 88;

/// FILE_DEVICE_FILE_SYSTEM, the upper half of the control codes for files and volumes.
const DEVICE_FILE_SYSTEM: u32 = 9;

/// Does what the control code says.
pub(crate) async fn handle(rq: &Request<'_>, out: &mut Response) -> Outcome {
    let request = ioctl::Request::parse(rq.message)?;
    if request.flags != IoctlFlags::IS_FSCTL {
        return Err(Status::NOT_SUPPORTED.into());
    }
    #[cfg(feature = "test-hooks")]
    if test_hooks::is_one(rq, request.ctl_code) {
        return test_hooks::handle(rq, &request, out).await;
    }
    rq.session()?;
    let Some(row) = table::row(request.ctl_code) else {
        // MS-SMB2 3.3.5.15: the control codes of a file system need an Open, so a missing Open is
        // reported first. 3.3.5.15.8: other unknown codes are refused.
        let is_missed = rq.open.is_none() && request.ctl_code.0 >> 16 == DEVICE_FILE_SYSTEM;
        return Err(if is_missed { Status::FILE_CLOSED } else { Status::NOT_SUPPORTED }.into());
    };
    check_open(rq, &request, row)?;
    check_sizes(rq, &request)?;
    check_rights(rq, row)?;
    let room = u32::try_from(rq.room.saturating_sub(FIXED)).unwrap_or(u32::MAX);
    let max_output = request.max_output_response.min(room);
    let call = Call { rq, input: request.input, max_output };
    let file = rq.open.as_ref().and_then(|open| open.file().ok());
    let offloaded = match file.filter(|file| file.brake.is_some()) {
        Some(_) if row.act == Act::OffloadWrite => copying(rq).source,
        _ => None,
    };
    let mut kept = file.filter(|_| row.changes).map(|file| guarded(row, file));
    let acted = act(&call, row.act).await;
    out.note_moved(rq.pace.moved.get());
    if let (Some(kept), Err(_)) = (&mut kept, &acted) {
        kept.was_refused();
    }
    drop(kept);
    let (output, status) = acted?;
    if row.recorded == Recorded::Data && file.is_some_and(|file| file.brake.is_some()) {
        tell_brake(&call, row.act, offloaded.as_deref())?;
    }
    audit(&call, row);
    if row.changes && row.act != Act::CopyChunk {
        let file = call.open()?.file()?;
        // Setting or deleting a reparse point may replace the host's object, so the name in its
        // directory is synced, not only the attributes.
        let is_another = matches!(row.act, Act::SetReparsePoint | Act::DeleteReparsePoint);
        let change = if is_another { Change::Names(vec![file.name()]) } else { Change::Attributes };
        stable::sync_change(file, change).await?;
    }
    if output.len() > max_output as usize {
        // A handler that returns more than MaxOutputResponse has a bug. The client gets an error,
        // not the excess bytes.
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    respond(rq, &request, &output, status, out)
}

/// Keeps the times that a control code must leave, and the time of a change of data.
pub(super) fn guarded<'a>(row: &Row, file: &'a FileOpen) -> KeptTimes<'a> {
    match row.recorded {
        Recorded::Data => file.keep_times_of_write(),
        Recorded::Nothing
        | Recorded::Attributes(_)
        | Recorded::Basic
        | Recorded::Rename
        | Recorded::Link
        | Recorded::Removal => file.keep_times(),
    }
}

/// Records a change beside the data. Changed data is recorded when the handle is closed, and an
/// object ID that a code only may make, by its handler.
fn audit(call: &Call<'_>, row: &Row) {
    let (Recorded::Attributes(parts), true) = (row.recorded, row.changes) else { return };
    if let Ok(open) = call.open() {
        audited::attributes(open, parts, Ok(()));
    }
}

/// Records a change that was refused, or is not supported; `is_denial` if for want of a right.
pub(super) fn record_refused(rq: &Request<'_>, open: &Open, is_denial: bool, status: Status) {
    let request = ioctl::Request::parse(rq.message).ok();
    let Some(row) = request.and_then(|request| table::row(request.ctl_code)) else { return };
    match row.recorded {
        Recorded::Attributes(parts) => {
            if row.changes || is_denial || matches!(row.act, Act::Refuse(_)) {
                audited::attributes(open, parts, Err(status));
            }
        }
        Recorded::Data => audited::write_refused(open, status),
        Recorded::Nothing => {}
        // These kinds are for information classes. A test of the table ensures that no control code
        // has them.
        Recorded::Basic | Recorded::Rename | Recorded::Link | Recorded::Removal => {}
    }
}

/// True for a message whose control code must name an Open.
pub(crate) fn is_about_an_open(message: &[u8]) -> bool {
    let request = ioctl::Request::parse(message).ok();
    let row = request.and_then(|request| table::row(request.ctl_code));
    row.is_some_and(|row| row.on != On::Nothing)
}

/// The data that a request copies on the server, as far as the request says it. Shared extents move none.
pub(crate) fn copying(rq: &Request<'_>) -> Copying {
    let Ok(request) = ioctl::Request::parse(rq.message) else { return Copying::default() };
    match table::row(request.ctl_code).map(|row| row.act) {
        Some(Act::CopyChunk) => copychunk::asked(rq, request.input),
        Some(Act::OffloadWrite) => offload::asked(rq, request.input),
        _ => Copying::default(),
    }
}

/// Tells the brake of a change of data, but for copies of chunks and shared extents, which tell it themselves.
fn tell_brake(call: &Call<'_>, act: Act, offloaded: Option<&Open>) -> Result<(), Status> {
    let (open, file) = (call.open()?, call.file()?);
    match (act, offloaded) {
        (Act::SetZeroData, _) => {
            // MS-FSCC 2.3.85: FileOffset and BeyondFinalZero.
            let field = |at: usize| call.input.get(at..).and_then(<[u8]>::first_chunk);
            let [offset, beyond] =
                [0, 8].map(|at| field(at).map_or(0, |it| u64::from_le_bytes(*it)));
            if offset < beyond {
                open.brake_zeroed(file, offset);
            }
        }
        (Act::OffloadWrite, Some(source)) => {
            let source = source.file()?;
            let length = source.stat().map_or(0, |stat| stat.end_of_file);
            open.brake_copied(file, source, [0, 0], length);
        }
        (Act::Trim | Act::OffloadWrite, _) => open.brake_zeroed(file, 0),
        _ => {}
    }
    Ok(())
}

/// Runs the handler of a control code.
async fn act(call: &Call<'_>, act: Act) -> Answer {
    match act {
        Act::Refuse(status) => Err(status.into()),
        Act::Referrals => Box::pin(dfs::referrals(call)).await,
        Act::ReferralsEx => Box::pin(dfs::referrals_ex(call)).await,
        Act::ValidateNegotiate => validate_negotiate::handle(call),
        Act::NetworkInterfaces => network_interface::handle(call).await,
        Act::Operation => operation(call),
        Act::PipeWait => pipe_wait(call),
        Act::PipeTransceive => {
            ipc::transceive(call.rq, call.open()?, call.input, call.max_output).await
        }
        Act::PipePeek => Ok(ipc::peek(call.open()?, call.max_output)?),
        Act::ResumeKey => copychunk::resume_key(call),
        Act::CopyChunk => copychunk::handle(call).await,
        Act::Snapshots => facts::snapshots(call).await,
        Act::SetSparse => ranges::set_sparse(call).await,
        Act::SetZeroData => ranges::set_zero_data(call).await,
        Act::AllocatedRanges => ranges::query_allocated(call).await,
        Act::ObjectId(asked) => object_id::handle(call, asked),
        Act::GetReparsePoint => reparse::get(call),
        Act::DeleteReparsePoint => reparse::delete(call).await,
        Act::SetReparsePoint => reparse::set(call).await,
        Act::GetCompression => compression::get(call),
        Act::SetCompression => compression::set(call).await,
        Act::DuplicateExtents => extents::duplicate(call).await,
        Act::DuplicateExtentsEx => extents::duplicate_ex(call).await,
        Act::Trim => extents::trim(call).await,
        Act::VolumeData => Box::pin(layout::volume(call)).await,
        Act::RetrievalPointers => Box::pin(layout::retrieval_pointers(call)).await,
        Act::MarkHandle => layout::mark_handle(call),
        Act::FileRegions => layout::regions(call),
        Act::UsnData => layout::usn_data(call),
        Act::GetIntegrity => extents::integrity(call),
        Act::SetIntegrity => extents::set_integrity(call),
        Act::OffloadRead => offload::read(call).await,
        Act::OffloadWrite => offload::write(call).await,
        Act::StorageQos => storage_qos::control(call),
        Act::Resiliency => resiliency::handle(call),
        Act::Nothing => NO_OUTPUT,
    }
}

/// MS-SMB2 3.3.5.15: some codes are about no Open and must not name one, all
/// others must.
fn check_open(rq: &Request<'_>, request: &ioctl::Request<'_>, row: &Row) -> Result<(), Status> {
    match (row.on, &rq.open) {
        (On::Nothing, None) if request.file_id == FileId::ALL_ONES => Ok(()),
        (On::Nothing, _) => Err(Status::INVALID_PARAMETER),
        (_, None) => Err(Status::FILE_CLOSED),
        (On::Anything, Some(_)) => Ok(()),
        (On::File, Some(open)) => open.file().map(|_| ()),
        (On::Pipe, Some(open)) => match open.target {
            OpenTarget::Pipe(_) => Ok(()),
            // Deviation: for a pipe's control code on a file Windows returns
            // INVALID_DEVICE_REQUEST, and this server NOT_SUPPORTED.
            OpenTarget::File(_) => Err(Status::NOT_SUPPORTED),
        },
    }
}

/// MS-SMB2 3.3.5.15: sizes against what was negotiated and was paid for. That
/// the input lies within the message is proved by its having been parsed.
fn check_sizes(rq: &Request<'_>, request: &ioctl::Request<'_>) -> Result<(), Status> {
    let max = rq.connection.negotiated()?.terms.max_transact_size;
    let input = u32::try_from(request.input.len()).unwrap_or(u32::MAX);
    if input > max || request.max_input_response > max || request.max_output_response > max {
        return Err(Status::INVALID_PARAMETER);
    }
    let offset = rq.message.get(INPUT_OFFSET_AT..).and_then(|rest| rest.first_chunk());
    if input != 0 && offset.is_none_or(|at| !u32::from_le_bytes(*at).is_multiple_of(8)) {
        return Err(Status::INVALID_PARAMETER);
    }
    let sent = input.saturating_add(request.output_count);
    let asked = request.max_input_response.saturating_add(request.max_output_response);
    rq.check_charge(sent.max(asked))
}

/// The Open's rights first, then whether the share may be changed at all.
fn check_rights(rq: &Request<'_>, row: &Row) -> Result<(), Status> {
    if let Some(open) = &rq.open {
        open.require(row.all)?;
        if !row.any.is_empty() {
            open.require_any(row.any)?;
        }
    }
    if !row.changes {
        return Ok(());
    }
    let is_protected = match rq.open.as_ref().map(|open| &open.target) {
        Some(OpenTarget::File(file)) => file.vfs.volume().read_only,
        _ => false,
    };
    if is_protected || rq.tree()?.share.read_only {
        return Err(Status::MEDIA_WRITE_PROTECTED);
    }
    Ok(())
}

/// FSCTL_FREVO_QUERY_OPERATION.
fn operation(call: &Call<'_>) -> Answer {
    let id = OperationId::parse(call.input).map_err(|_| Status::INVALID_PARAMETER)?;
    if (call.max_output as usize) < operation::Outcome::LEN {
        return Err(Status::BUFFER_TOO_SMALL.into());
    }
    let outcome = call.rq.session()?.operations.ask(id)?;
    Ok((call::output(|w| outcome.encode(w)), Status::SUCCESS))
}

/// FSCTL_PIPE_WAIT.
fn pipe_wait(call: &Call<'_>) -> Answer {
    // MS-SMB2 3.3.5.15.10: a malformed pipe name is reported like a name that does not exist.
    let request =
        pipe_wait::Request::parse(call.input).map_err(|_| Status::OBJECT_NAME_NOT_FOUND)?;
    if call.rq.tree()?.share.vfs().is_some() {
        return Err(Status::OBJECT_NAME_NOT_FOUND.into());
    }
    let name = request.name.to_string().map_err(|_| Status::OBJECT_NAME_NOT_FOUND)?;
    ipc::wait(&name)?;
    NO_OUTPUT
}
