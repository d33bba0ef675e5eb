//! Small questions about a file: snapshots, object id.

use std::sync::Arc;

use frevo_net::file_io::run_blocking;
use frevo_store::Fault;
use frevo_wire::command::ioctl::snapshots::SnapshotArray;
use frevo_wire::dtyp::Guid;
use frevo_wire::fscc::fsctl::ObjectIdBuffer;
use frevo_wire::{Status, Utf16};

use super::{Answer, Call, output};
use crate::data;

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
    let listed = run_blocking(move || vfs.snapshots(&name)).await;
    let moments = listed.map_err(|error| data::status(&error))?.map_err(Fault::status)?;
    let tokens: Vec<_> = moments.iter().map(|moment| utf16(&moment.to_string())).collect();
    let tokens = tokens.iter().map(|token| Utf16::new(token)).collect::<Result<_, _>>()?;
    let array = SnapshotArray::new(tokens, call.max_output);
    Ok((output(|w| array.encode(w)), Status::SUCCESS))
}

fn utf16(text: &str) -> Vec<u8> {
    text.encode_utf16().flat_map(u16::to_le_bytes).collect()
}

/// FSCTL_CREATE_OR_GET_OBJECT_ID and FSCTL_GET_OBJECT_ID, MS-FSA 2.1.5.10.1:
/// an id made of what names the file on its volume.
pub(super) fn object_id(call: &Call<'_>) -> Answer {
    if (call.max_output as usize) < ObjectIdBuffer::SIZE {
        return Err(Status::INVALID_PARAMETER.into());
    }
    let file = call.file()?;
    let serial = file.vfs.volume().serial;
    let object_id = made_id(file.node.key().inode, serial);
    let id = ObjectIdBuffer {
        object_id,
        birth_volume_id: made_id(0, serial),
        birth_object_id: object_id,
        domain_id: Guid::default(),
    };
    Ok((output(|w| id.encode(w)), Status::SUCCESS))
}

fn made_id(inode: u64, serial: u32) -> Guid {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&inode.to_le_bytes());
    bytes[8..12].copy_from_slice(&serial.to_le_bytes());
    Guid(bytes)
}
