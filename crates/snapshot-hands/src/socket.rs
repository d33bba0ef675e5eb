//! The socket between the server and the process: each message is a packet.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::time::Duration;

use frevo_snapshots::limits::MESSAGE_BYTES;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::retry_on_intr;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, socketpair};

/// Makes a socket: the server's end, and that of the process.
pub(crate) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    Ok(socketpair(family, kind, SocketFlags::CLOEXEC, None)?)
}

pub(crate) fn send(socket: BorrowedFd<'_>, message: &[u8]) -> io::Result<()> {
    retry_on_intr(|| rustix::net::send(socket, message, SendFlags::NOSIGNAL))?;
    Ok(())
}

/// Receives a message. None at the end of the socket. A longer message than there is loses its end, so that
/// it is none any more.
pub(crate) fn receive(socket: BorrowedFd<'_>) -> io::Result<Option<Vec<u8>>> {
    let mut bytes = vec![0; MESSAGE_BYTES + 1];
    let (_, count) = retry_on_intr(|| rustix::net::recv(socket, &mut *bytes, RecvFlags::empty()))?;
    bytes.truncate(count);
    Ok((count > 0).then_some(bytes))
}

/// Waits until a message is there. False if none is in time.
pub(crate) fn has_message(socket: BorrowedFd<'_>, patience: Duration) -> io::Result<bool> {
    let patience = Timespec::try_from(patience).map_err(io::Error::other)?;
    let mut waiting = [PollFd::from_borrowed_fd(socket, PollFlags::IN)];
    Ok(retry_on_intr(|| poll(&mut waiting, Some(&patience)))? > 0)
}
