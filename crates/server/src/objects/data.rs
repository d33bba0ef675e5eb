//! Moving file data: inline while the page cache serves it, on another road
//! when the medium has to be waited for.

use std::borrow::Cow;
use std::io;
use std::sync::Arc;

use frevo_net::buffer::{Buf, HEADROOM};
use frevo_net::file_io::{self, Caching};
use frevo_net::limits::INLINE_WRITE_BYTES_MAX;
use frevo_net::watchdog;
use frevo_store::vfs::VfsResult;
use frevo_store::{Fault, Node};
use frevo_wire::Status;
use frevo_wire::command::create::CreateOptions;
use tokio::time::timeout;

use crate::base::host;
use crate::base::limits::{HELD_REPLY_PATIENCE, LONG_REPLY_BYTES, READ_STEP_BYTES};
use crate::base::pools::blocking_pool::CallPermits;
use crate::objects::cancellation::Cancellation;
use crate::objects::ledger::{Backlog, Built, Holder};
use crate::objects::open::{FileOpen, Open};
use crate::shares::impersonation;
use crate::shares::share::Share;

/// The fate of an Open's data in the page cache.
///
/// MS-SMB2 2.2.13, FILE_NO_INTERMEDIATE_BUFFERING: data is not retained in memory.
pub(crate) fn caching(share: &Share, options: CreateOptions) -> Caching {
    let is_unbuffered = options.contains(CreateOptions::NO_INTERMEDIATE_BUFFERING);
    if is_unbuffered && !share.cache_unbuffered { Caching::NotKept } else { Caching::Kept }
}

/// The fate of one request's data, whose client may demand that it is not kept: MS-SMB2 3.3.5.12
/// and 3.3.5.13.
///
/// Deviation: MS-FSA 2.1.5.3 and 2.1.5.4 refuse an unbuffered request that is not aligned to
/// sectors. The page cache aligns it here. Linux clients send such requests for `O_DIRECT`, and smbd
/// serves them.
pub(crate) fn demanded(open: &Open, is_unbuffered: bool) -> Caching {
    let avoids = is_unbuffered && !open.tree().share.cache_unbuffered;
    if avoids { Caching::NotKept } else { Caching::Kept }
}

/// The road for the data of a request with the demand `caching`.
fn road(file: &FileOpen, caching: Caching) -> Option<Cow<'_, file_io::File>> {
    let io = file.io()?;
    Some(match caching {
        Caching::Kept => Cow::Borrowed(io),
        Caching::NotKept => Cow::Owned(io.clone().caching(caching)),
    })
}

/// Data that was read, and its charge: an account's replies count before their data is read.
pub(crate) struct Read {
    pub(crate) buf: Buf,
    /// None for data that needed no wait, and soon counts as a reply of its connection.
    pub(crate) built: Option<Built>,
}

/// The way in which a request waits for the memory of its reply.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MemoryWait {
    /// It waits until there is memory, or until it is dropped.
    Dropped,
    /// It waits until there is memory, or its client has gone: in the middle of a compound no request is
    /// dropped.
    Told,
    /// It waits for [`HELD_REPLY_PATIENCE`] at most: earlier replies of its compound have memory until
    /// the compound ends, and many such compounds would wait for the memory that they have together.
    Briefly,
}

/// The account and the connection that are charged for the memory of a reply, and the way in which the
/// reply waits for it.
pub(crate) struct Payer<'a> {
    /// The account.
    pub(crate) holder: &'a Arc<Holder>,
    /// The memory of the connection.
    pub(crate) backlog: &'a Arc<Backlog>,
    /// The cancellation of the request.
    pub(crate) cancellation: &'a Cancellation,
    /// The way in which the request waits.
    pub(crate) wait: MemoryWait,
    /// The memory for the whole reply, if the request has waited for it before: on a thread nothing ends
    /// the wait of a request that is given up.
    pub(crate) built: Option<Built>,
}

impl Payer<'_> {
    /// Waits for memory for a reply of `bytes`.
    ///
    /// # Errors
    /// CANCELLED when the client has gone, INSUFFICIENT_RESOURCES where the request may not wait any
    /// longer.
    pub(crate) async fn build(&mut self, bytes: usize) -> Result<Built, Status> {
        if let Some(built) = self.built.take() {
            return Ok(built);
        }
        if let Some(built) = self.holder.try_build(self.backlog, bytes) {
            return Ok(built);
        }
        // The future is boxed, so that requests that do not wait need no memory for its state.
        Box::pin(self.await_memory(bytes)).await
    }

    async fn await_memory(&self, bytes: usize) -> Result<Built, Status> {
        let memory = self.holder.build(self.backlog, bytes);
        let built = match self.wait {
            MemoryWait::Dropped => Some(Ok(memory.await)),
            MemoryWait::Told => self.cancellation.unless_told(memory).await.map(Ok),
            MemoryWait::Briefly => {
                self.cancellation.unless_told(timeout(HELD_REPLY_PATIENCE, memory)).await
            }
        };
        built.ok_or(Status::CANCELLED)?.map_err(|_| Status::INSUFFICIENT_RESOURCES)
    }
}

/// Reads up to `length` bytes for `payer` into a buffer that has room for the headers in
/// front; fewer bytes mean the end of the file. Waits for memory if the holder has much. Data that is
/// not read on a core waits for `permits`.
pub(crate) async fn read(
    file: &FileOpen,
    offset: u64,
    length: u32,
    caching: Caching,
    payer: &mut Payer<'_>,
    permits: impl AsyncFnOnce() -> Result<CallPermits, Status>,
) -> Result<Read, Status> {
    let length = length as usize;
    let mut built = payer.built.take();
    if built.is_none() && length >= LONG_REPLY_BYTES {
        // The protection of a long reply waits for a turn, so that it is charged also without a disk.
        built = Some(payer.build(length).await?);
    }
    let mut buf = Buf::with_headroom(HEADROOM, length);
    if let Some(io) = road(file, caching) {
        let is_done = if length >= LONG_REPLY_BYTES {
            // The future is boxed, so that short requests need no memory for its state.
            Box::pin(try_read_in_turns(&io, offset, &mut buf, length)).await
        } else {
            io.try_read(offset, &mut buf, length)
        };
        let is_done = is_done.map_err(|error| status(&error))?;
        if is_done {
            return Ok(Read { buf, built });
        }
        if built.is_none() {
            built = payer.holder.try_build(payer.backlog, length);
        }
        if built.is_none() {
            // Other requests wait for memory, so this one frees its buffer before it joins the
            // line.
            drop(buf);
            built = Some(payer.build(length).await?);
            buf = Buf::with_headroom(HEADROOM, length);
        }
        let (at, left) = (offset.saturating_add(buf.len() as u64), length - buf.len());
        let read = io.read_rest(at, buf, left).await;
        return Ok(Read { buf: read.map_err(|error| status(&error))?, built });
    }
    let room = buf.append_zeroed(length);
    let (read, gave_up) = briefly(|| file.node.read_at(offset, room));
    let buf = match read {
        Err(_) if gave_up => {
            Box::pin(read_beside(Arc::clone(&file.node), offset, buf, permits)).await?
        }
        read => {
            buf.truncate(read.map_err(Fault::status)?);
            buf
        }
    };
    Ok(Read { buf, built })
}

/// Reads into an empty buffer like [`file_io::File::try_read`], in steps between which others have their turns.
async fn try_read_in_turns(
    io: &file_io::File,
    offset: u64,
    buf: &mut Buf,
    length: usize,
) -> io::Result<bool> {
    loop {
        let done = buf.len();
        let step = length.saturating_sub(done).min(READ_STEP_BYTES);
        if !io.try_read(offset.saturating_add(done as u64), buf, step)? {
            return Ok(false);
        }
        let is_end = buf.len() < done + step;
        if is_end || buf.len() >= length {
            return Ok(true);
        }
        watchdog::yield_if_due().await;
    }
}

/// Makes a call of the file system for data, which may give up on a core. Returns true if it did.
fn briefly<T>(call: impl FnOnce() -> VfsResult<T>) -> (VfsResult<T>, bool) {
    // The threads of a pool, and a simulator, carry a call out.
    if file_io::stays() { (call(), false) } else { host::short_patience(call) }
}

/// Fills `buf` on a thread: the data is in a file of its own, beside its stream's file. Waits for the
/// permits of the account first, which has few such threads.
async fn read_beside(
    node: Arc<dyn Node>,
    offset: u64,
    mut buf: Buf,
    permits: impl AsyncFnOnce() -> Result<CallPermits, Status>,
) -> Result<Buf, Status> {
    let permits = permits().await?;
    let read = move || {
        let _permits = permits;
        let count = node.read_at(offset, &mut buf)?;
        buf.truncate(count);
        Ok(buf)
    };
    let read = file_io::run_blocking(read).await.map_err(|error| status(&error))?;
    read.map_err(Fault::status)
}

/// Like [`read_beside`], for a write.
async fn write_beside(
    file: &FileOpen,
    offset: u64,
    data: Buf,
    permits: impl AsyncFnOnce() -> Result<CallPermits, Status>,
) -> Result<(), Status> {
    let permits = permits().await?;
    let (node, gate) = (Arc::clone(&file.node), file.gate.clone());
    let write = move || {
        let _permits = permits;
        if gate.is_some_and(|is_open| !is_open()) {
            return Err(Fault::NotServed);
        }
        node.write_at(offset, &data)
    };
    let written = file_io::run_blocking(write).await.map_err(|error| status(&error))?;
    written.map_err(Fault::status)
}

/// Writes all of `data`. Only what has to wait is copied, because the kernel may
/// then outlive the request.
pub(crate) async fn write(
    file: &FileOpen,
    offset: u64,
    data: &[u8],
    caching: Caching,
    permits: impl AsyncFnOnce() -> Result<CallPermits, Status>,
) -> Result<(), Status> {
    file.node.takes_data().map_err(Fault::status)?;
    match road(file, caching) {
        Some(io) if impersonation::actor_of(&*file.node).is_some() => {
            write_acting(file, &io, offset, data).await
        }
        Some(io) => io.write(offset, data).await.map_err(|error| status(&error)),
        None => match briefly(|| file.node.write_at(offset, data)) {
            (Err(_), true) => {
                Box::pin(write_beside(file, offset, Buf::copy_of(data), permits)).await
            }
            (written, _) => written.map_err(Fault::status),
        },
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
            // Between the parts of a long write, other requests may run on the core thread.
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
    if file_io::is_gate_closed(error) {
        return Fault::NotServed.status();
    }
    // An error without an errno comes from the async runtime, not from a system call.
    rustix::io::Errno::from_io_error(error)
        .map_or(Status::UNEXPECTED_IO_ERROR, |errno| host::fault_of(errno).status())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::fd::OwnedFd;

    use super::*;
    use crate::base::limits::READ_STEP_BYTES as STEP;

    /// Tests ends of files before, at and behind the end of a step and of the request.
    #[tokio::test]
    async fn long_reads_are_made_in_steps() {
        let data: Vec<u8> = (0..=2 * STEP).map(|at| (at % 251) as u8).collect();
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(&data).unwrap();
        let file = file_io::File::new(Arc::new(OwnedFd::from(file))).unwrap();
        for length in [0, 1, STEP - 1, STEP, STEP + 1, 2 * STEP + 1, 2 * STEP + 2, 4 * STEP] {
            for offset in [0, 7, STEP, 2 * STEP, 2 * STEP + 1, 3 * STEP] {
                let mut buf = Buf::with_headroom(HEADROOM, length);
                let read = try_read_in_turns(&file, offset as u64, &mut buf, length).await;
                assert!(read.unwrap());
                let from = offset.min(data.len());
                assert_eq!(*buf, data[from..(from + length).min(data.len())], "{length}");
            }
        }
    }
}
