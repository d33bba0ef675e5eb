//! Small questions about a file: snapshots.

use std::sync::Arc;

use frevo_store::Fault;
use frevo_wire::command::ioctl::snapshots::SnapshotArray;
use frevo_wire::{Status, Utf16};

use super::call::{Answer, Call, output};

/// Bytes that FSCTL_SRV_ENUMERATE_SNAPSHOTS must have room for.
const SNAPSHOTS_MIN: u32 = 16;

/// FSCTL_SRV_ENUMERATE_SNAPSHOTS, MS-SMB2 3.3.5.15.1: those in which the file
/// is, by its present name.
pub(super) async fn snapshots(call: &Call<'_>) -> Answer {
    if call.max_output < SNAPSHOTS_MIN {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let file = call.file()?;
    let (vfs, name) = (Arc::clone(&file.vfs), file.name().with_stream(None));
    // There may be thousands of snapshots, so they are listed on a blocking thread.
    let list = move || {
        let moments = vfs.snapshots(&name)?;
        Ok(moments.iter().map(|moment| utf16(&moment.to_string())).collect::<Vec<_>>())
    };
    let tokens = call.rq.beside_core(list).await?.map_err(Fault::status)?;
    let tokens = tokens.iter().map(|token| Utf16::new(token)).collect::<Result<_, _>>()?;
    let array = SnapshotArray::new(tokens, call.max_output);
    Ok((output(|w| array.encode(w)), Status::SUCCESS))
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}
