//! TREE_CONNECT_ANDX and TREE_DISCONNECT: MS-CIFS 2.2.4.55 and 2.2.4.51, MS-SMB 2.2.4.7.

use alloc::format;
use alloc::vec::Vec;

use frevo_wire::codec::Parsed;

use crate::charset::{Charset, Strings, Unmappable};
use crate::header::Command;
use crate::message::{Request, Response, and_x};

/// The kind of a share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// Files: "A:".
    Disk,
    /// Named pipes: "IPC".
    Pipe,
    /// A printer or another device.
    Other,
}

/// Returns a request for `share` of `server`. `password` is empty but for servers whose shares have
/// passwords.
///
/// # Errors
/// If the code page lacks a character of the names.
pub fn connect(
    charset: Charset,
    server: &str,
    share: &str,
    password: &[u8],
) -> Result<Request<'static>, Unmappable> {
    // MS-CIFS 2.2.4.55.1: a single null byte where no password is used.
    let password = if password.is_empty() { &[0] } else { password };
    let mut bytes = Strings::new(charset);
    bytes.raw(password).text(&format!("\\\\{server}\\{share}"))?.raw(b"?????\0");
    let words = and_x(|w| {
        w.u16(0).u16(u16::try_from(password.len()).unwrap_or(u16::MAX));
    });
    Ok(Request::new(Command::TREE_CONNECT_ANDX, words, bytes.bytes))
}

/// Returns the kind of the share in a response.
///
/// # Errors
/// If it is malformed.
pub fn service(response: &Response<'_>) -> Parsed<Service> {
    // Old servers send the AndX block alone.
    response.and_x(2, "TREE_CONNECT_ANDX WordCount")?;
    let name: Vec<u8> = response.bytes().iter().copied().take_while(|byte| *byte != 0).collect();
    Ok(match &*name {
        b"IPC" => Service::Pipe,
        b"LPT1:" | b"COMM" => Service::Other,
        // "A:"; impacket's server sends back what it was asked for.
        _ => Service::Disk,
    })
}

/// Returns the request that ends a tree connect.
pub const fn disconnect() -> Request<'static> {
    Request::new(Command::TREE_DISCONNECT, Vec::new(), Vec::new())
}
