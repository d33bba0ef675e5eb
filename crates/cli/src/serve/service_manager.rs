//! Messages to the service manager: sd_notify(3).
//!
//! The socket is connected before the server is confined, and never again.

use std::env;
use std::fmt::Write as _;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::OnceLock;

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use sd_notify::NotifyState;

/// Descriptors in one message.
const MOST: usize = 64;

/// The socket; none where there is no service manager.
static SOCKET: OnceLock<Option<UnixDatagram>> = OnceLock::new();

/// Connects to the service manager, if there is one. Before the server is confined.
pub(super) fn connect() {
    let connected = connected().unwrap_or_else(|error| {
        tracing::debug!(target: "frevo::server", %error, "cannot reach the service manager");
        None
    });
    // If `SOCKET` is set already, it keeps its first value.
    let _ = SOCKET.set(connected);
}

fn connected() -> io::Result<Option<UnixDatagram>> {
    let Some(path) = env::var_os("NOTIFY_SOCKET") else { return Ok(None) };
    let address = match path.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name)?,
        None => SocketAddr::from_pathname(&path)?,
    };
    let socket = UnixDatagram::unbound()?;
    socket.connect_addr(&address)?;
    Ok(Some(socket))
}

/// Sends states. Does nothing where there is no service manager.
pub(super) fn notify(states: &[NotifyState<'_>]) {
    let Some(Some(socket)) = SOCKET.get() else { return };
    let mut message = String::new();
    for state in states {
        // Writing to a String cannot fail.
        let _ = writeln!(message, "{state}");
    }
    if let Err(error) = socket.send(message.as_bytes()) {
        tracing::debug!(target: "frevo::server", %error, "cannot notify the service manager");
    }
}

/// Sends `message` with `descriptors`. Does nothing where there is no service manager. A confined
/// server cannot.
///
/// # Errors
/// When the service manager cannot be reached, or there are too many descriptors.
pub(super) fn tell(message: &str, descriptors: &[BorrowedFd<'_>]) -> io::Result<()> {
    let Some(Some(socket)) = SOCKET.get() else { return Ok(()) };
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MOST))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    let fits = descriptors.len() <= MOST
        && (descriptors.is_empty() || control.push(SendAncillaryMessage::ScmRights(descriptors)));
    if !fits {
        return Err(io::Error::other("too many sockets"));
    }
    sendmsg(socket, &[IoSlice::new(message.as_bytes())], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}
