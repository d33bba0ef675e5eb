//! FSCTLs on Opens, and those for snapshots and pipes.

use frevo_wire::Command;
use frevo_wire::command::ioctl::snapshots::SnapshotArray;
use frevo_wire::command::ioctl::{self, CtlCode};

use crate::Status;
use crate::connection::{Call, Message};
use crate::error::{Cause, During, Error, Result};
use crate::open::Open;
use crate::share::{Replay, fsctl};

/// The statuses of a server or a file system without this FSCTL.
pub(crate) const CANNOT: [Status; 4] = [
    Status::NOT_SUPPORTED,
    Status::INVALID_DEVICE_REQUEST,
    Status::NOT_IMPLEMENTED,
    Status::INVALID_INFO_CLASS,
];

/// Sends an FSCTL on an Open.
pub(crate) async fn control(
    open: &Open,
    operation: &'static str,
    code: CtlCode,
    input: &[u8],
    max_output: u32,
    also: &[Status],
) -> Result<Message> {
    open.ask(Replay::Idempotent, operation, also, |id| Ok(fsctl(code, id, input, max_output))).await
}

pub(crate) fn output(message: &Message) -> std::result::Result<&[u8], Cause> {
    Ok(ioctl::Response::parse(message.bytes())?.output)
}

/// FSCTL_SRV_ENUMERATE_SNAPSHOTS, MS-SMB2 3.2.4.20.1: asks for the size first, then for the
/// snapshots.
pub(crate) async fn snapshots(open: &Open) -> Result<Vec<String>> {
    const OPERATION: &str = "list the snapshots of";
    let code = CtlCode::SRV_ENUMERATE_SNAPSHOTS;
    let mut room = 16;
    // New snapshots between two requests can make the buffer too small again, so up to four
    // requests are sent.
    for _ in 0..4 {
        let message = control(open, OPERATION, code, &[], room, &[]).await?;
        let output = output(&message).during(OPERATION, &open.url)?;
        let array = SnapshotArray::parse(output).during(OPERATION, &open.url)?;
        if array.number_of_snapshots_returned >= array.number_of_snapshots {
            return Ok(array.snapshots.iter().map(|token| token.to_string_lossy()).collect());
        }
        room = array.snapshot_array_size.saturating_add(12).min(1 << 20);
    }
    Err(Error::new(
        Cause::Protocol("its list of snapshots never fits the size that it named"),
        OPERATION,
        &*open.url,
    ))
}

/// Writes to a pipe and reads its answer.
pub(crate) fn transceive(
    input: &[u8],
    max: u32,
) -> impl Fn(frevo_wire::file_id::FileId) -> Call<'static> {
    let input = input.to_vec();
    move |id| {
        let call = fsctl(CtlCode::PIPE_TRANSCEIVE, id, &input, max);
        debug_assert!(call.command == Command::IOCTL);
        call
    }
}

/// A file offset as the signed number that requests have.
pub(crate) fn signed(value: u64) -> Result<i64> {
    let cause = Cause::Usage("the offset is beyond the largest file (2^63 bytes)");
    i64::try_from(value).map_err(|_| Error::new(cause, "copy", ""))
}
