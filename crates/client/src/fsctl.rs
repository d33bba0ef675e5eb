//! FSCTLs on Opens: snapshots, links, holes.

use frevo_wire::codec::Writer;
use frevo_wire::command::ioctl::snapshots::SnapshotArray;
use frevo_wire::command::ioctl::{self, CtlCode};
use frevo_wire::dtyp::AccessMask;
use frevo_wire::fscc::FileInfoClass;
use frevo_wire::fscc::fsctl::AllocatedRange;
use frevo_wire::{Command, Status};

use crate::connection::{Call, Message};
use crate::copying::signed;
use crate::create::Ask;
use crate::error::{Cause, During, Error, Result};
use crate::file::File;
use crate::open::Open;
use crate::share::{Replay, Share, fsctl};

/// Statuses of a server or a file system that does not have an FSCTL.
pub(crate) const CANNOT: [Status; 3] =
    [Status::NOT_SUPPORTED, Status::INVALID_DEVICE_REQUEST, Status::NOT_IMPLEMENTED];

/// Room for one answer about holes, bytes.
const RANGES: u32 = 65_536;
/// Pieces between holes that are told apart in one file.
const RANGES_KEPT: usize = 1 << 20;

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

impl File {
    /// The versions of the file that snapshots keep, as `@GMT-` tokens.
    ///
    /// # Errors
    /// What the server says.
    pub async fn snapshots(&self) -> Result<Vec<String>> {
        snapshots(&self.open).await
    }

    /// What of a range is not a hole: offsets and lengths, in order. Of one with very many
    /// holes the rest counts as none.
    ///
    /// # Errors
    /// What the server says.
    pub async fn allocated(&self, offset: u64, len: u64) -> Result<Vec<(u64, u64)>> {
        const OPERATION: &str = "look for holes in";
        let end = offset.saturating_add(len);
        let mut found: Vec<(u64, u64)> = Vec::new();
        let mut from = offset;
        while from < end {
            let mut input = Vec::new();
            AllocatedRange { file_offset: signed(from)?, length: signed(end - from)? }
                .encode(&mut Writer::new(&mut input));
            let code = CtlCode::QUERY_ALLOCATED_RANGES;
            let also = [Status::BUFFER_OVERFLOW];
            let message = control(&self.open, OPERATION, code, &input, RANGES, &also).await?;
            let told = output(&message).during(OPERATION, self.url())?;
            let before = found.len();
            for range in told.chunks_exact(AllocatedRange::SIZE) {
                let range = AllocatedRange::parse(range).during(OPERATION, self.url())?;
                let numbers = u64::try_from(range.file_offset).ok();
                let numbers = numbers.zip(u64::try_from(range.length).ok());
                let (at, count) = numbers
                    .filter(|(at, count)| *count > 0 && at.saturating_add(*count) > from)
                    .ok_or_else(|| {
                        let cause = Cause::Protocol("a range that was not asked for");
                        Error::new(cause, OPERATION, self.url())
                    })?;
                found.push((at, count));
                from = at.saturating_add(count);
            }
            if found.len() >= RANGES_KEPT && from < end {
                found.push((from, end - from));
                break;
            }
            let is_all = message.header.status != Status::BUFFER_OVERFLOW;
            if is_all || found.len() == before {
                break;
            }
        }
        Ok(found)
    }

    /// Reserves room for `len` bytes without making the file longer.
    ///
    /// # Errors
    /// DISK_FULL (`StorageFull`) when there is none.
    pub async fn reserve(&self, len: u64) -> Result<()> {
        let data = signed(len)?.to_le_bytes().to_vec();
        self.set_info(FileInfoClass::ALLOCATION, "reserve room for", data).await
    }

    /// Lets the file have holes: what is not written takes no room.
    ///
    /// # Errors
    /// What the server says, where its file system has none.
    pub async fn set_sparse(&self) -> Result<()> {
        control(&self.open, "make holes in", CtlCode::SET_SPARSE, &[], 0, &[]).await?;
        Ok(())
    }

    /// Gives the range back to the file system: it reads as zeros.
    ///
    /// # Errors
    /// What the server says.
    pub async fn punch_hole(&self, offset: u64, len: u64) -> Result<()> {
        self.set_sparse().await?;
        let mut input = Vec::new();
        Writer::new(&mut input).u64(offset).u64(offset.saturating_add(len));
        let code = CtlCode::SET_ZERO_DATA;
        control(&self.open, "make holes in", code, &input, 0, &[]).await?;
        Ok(())
    }
}

impl Share {
    /// The versions of `path` that snapshots keep, as `@GMT-` tokens.
    ///
    /// # Errors
    /// What the server says.
    pub async fn snapshots(&self, path: &str) -> Result<Vec<String>> {
        let ask = Ask::existing(AccessMask::READ_DATA | AccessMask::READ_ATTRIBUTES);
        let (open, _) = Open::new(self, path, ask, "list the snapshots of").await?;
        snapshots(&open).await
    }
}

/// FSCTL_SRV_ENUMERATE_SNAPSHOTS, MS-SMB2 3.2.4.20.1: first how many bytes
/// they take, then they.
pub(crate) async fn snapshots(open: &Open) -> Result<Vec<String>> {
    const OPERATION: &str = "list the snapshots of";
    let code = CtlCode::SRV_ENUMERATE_SNAPSHOTS;
    let mut room = 16;
    // Some may be made between two questions.
    for _ in 0..4 {
        let message = control(open, OPERATION, code, &[], room, &[]).await?;
        let output = output(&message).during(OPERATION, &open.url)?;
        let array = SnapshotArray::parse(output).during(OPERATION, &open.url)?;
        if array.number_of_snapshots_returned >= array.number_of_snapshots {
            return Ok(array.snapshots.iter().map(|token| token.to_string_lossy()).collect());
        }
        room = array.snapshot_array_size.saturating_add(12).min(1 << 20);
    }
    Err(Error::new(Cause::Protocol("a list of snapshots that never fits"), OPERATION, &*open.url))
}

/// A request that a pipe answers.
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
