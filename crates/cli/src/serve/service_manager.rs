//! Messages to the service manager with descriptors: sd_notify(3).

use std::env;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

/// Descriptors in one message.
const MOST: usize = 64;

/// Sends `message` with `descriptors`. Does nothing where there is no service manager.
///
/// # Errors
/// When the service manager cannot be reached, or there are too many descriptors.
pub(super) fn tell(message: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(()) };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = descriptors.len() <= MOST
        && (descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
    if !fits {
        return Err(io::Error::other("too many sockets"));
    }
    sendmsg(&socket, &[IoSlice::new(message.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
