//! Moving file data: inline while the page cache serves it, on another road
//! when the medium has to be waited for.

use frevo_net::buffer::Buf;
use frevo_store::Fault;
use frevo_wire::Status;

use crate::open::FileOpen;
use crate::response::PAYLOAD_HEADROOM;

/// The largest offset a file can have.
pub const MAX_OFFSET: u64 = i64::MAX as u64;

/// Reads up to `length` bytes into a buffer that has room for the headers in
/// front; fewer bytes mean the end of the file.
pub async fn read(file: &FileOpen, offset: u64, length: u32) -> Result<Buf, Status> {
    let length = length as usize;
    let mut buf = Buf::with_headroom(PAYLOAD_HEADROOM, length);
    let room = buf.append_zeroed(length);
    let count = file.node.read_at(offset, room).map_err(Fault::status)?;
    buf.truncate(count);
    Ok(buf)
}

/// Writes all of `data`.
pub async fn write(file: &FileOpen, offset: u64, data: &[u8]) -> Result<(), Status> {
    file.node.write_at(offset, data).map_err(Fault::status)
}

/// Puts what was written on stable storage.
pub async fn sync(file: &FileOpen) -> Result<(), Status> {
    file.node.sync().map_err(Fault::status)
}
