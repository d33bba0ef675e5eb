//! Moving file data: inline while the page cache serves it, on another road
//! when the medium has to be waited for.

use std::io;
use std::sync::Arc;

use frevo_net::buffer::{Buf, HEADROOM};
use frevo_net::file_io;
use frevo_net::limits::INLINE_WRITE_BYTES_MAX;
use frevo_store::Fault;
use frevo_wire::Status;

use crate::host;
use crate::impersonation;
use crate::open::FileOpen;

/// Reads up to `length` bytes into a buffer that has room for the headers in
/// front; fewer bytes mean the end of the file.
pub(crate) async fn read(file: &FileOpen, offset: u64, length: u32) -> Result<Buf, Status> {
    let length = length as usize;
    let mut buf = Buf::with_headroom(HEADROOM, length);
    if let Some(io) = file.io() {
        return io.read(offset, buf, length).await.map_err(|error| status(&error));
    }
    let room = buf.append_zeroed(length);
    let count = file.node.read_at(offset, room).map_err(Fault::status)?;
    buf.truncate(count);
    Ok(buf)
}

/// Writes all of `data`. Only what has to wait is copied, because the kernel may
/// then outlive the request.
pub(crate) async fn write(file: &FileOpen, offset: u64, data: &[u8]) -> Result<(), Status> {
    match file.io() {
        Some(io) if impersonation::actor_of(&*file.node).is_some() => {
            write_acting(file, io, offset, data).await
        }
        Some(io) => io.write(offset, data).await.map_err(|error| status(&error)),
        None => file.node.write_at(offset, data).map_err(Fault::status),
    }
}

/// Like [`write`], under impersonation: a write takes space, and the kernel checks the quota
/// of the thread that writes.
async fn write_acting(
    file: &FileOpen,
    io: &file_io::File,
    offset: u64,
    data: &[u8],
) -> Result<(), Status> {
    let mut at = offset;
    for piece in data.chunks(INLINE_WRITE_BYTES_MAX) {
        if at != offset {
            // A long write shares the core with others.
            tokio::task::yield_now().await;
        }
        let tried = {
            let _acting = impersonation::act_for(&*file.node)?;
            io.try_write(at, piece)
        };
        match tried {
            Some(written) => written.map_err(|error| status(&error))?,
            None => {
                let (node, piece) = (Arc::clone(&file.node), Buf::copy_of(piece));
                let written = io.run_blocking(move |_| Ok(node.write_at(at, &piece))).await;
                written.map_err(|error| status(&error))?.map_err(Fault::status)?;
            }
        }
        at = at.saturating_add(piece.len() as u64);
    }
    Ok(())
}

/// The status that a client gets for an error of the host.
pub(crate) fn status(error: &io::Error) -> Status {
    // Only a system call's error has a number; others are our own runtime's.
    rustix::io::Errno::from_io_error(error)
        .map_or(Status::UNEXPECTED_IO_ERROR, |errno| host::fault_of(errno).status())
}
