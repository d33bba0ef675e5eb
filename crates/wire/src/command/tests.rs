//! Captured messages, round trips and hostile bytes for all commands.

mod captured;
mod hostile;
mod ioctl_buffers;
mod roundtrip;
mod tree_connect_extension;

use crate::codec::{Parsed, Writer};
use crate::command::{
    cancel, change_notify, close, create, echo, flush, ioctl, lock, logoff, negotiate,
    oplock_break, query_directory, query_info, read, session_setup, set_info, tree_connect,
    tree_disconnect, write,
};
use crate::error_response::ErrorResponse;
use crate::header::{Command, HEADER_LEN};
use std::vec::Vec;

/// Returns a message with an empty header and the body that `encode` appends.
pub(crate) fn message(encode: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut bytes = Vec::from([0u8; HEADER_LEN]);
    encode(&mut Writer::from(&mut bytes, 0));
    bytes
}

/// Parses a request and encodes the result.
fn reencode_request(command: Command, m: &[u8]) -> Parsed<Vec<u8>> {
    Ok(match command {
        Command::NEGOTIATE => negotiate::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::SESSION_SETUP => {
            session_setup::Request::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        Command::LOGOFF => logoff::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::TREE_CONNECT => {
            tree_connect::Request::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        Command::TREE_DISCONNECT => {
            tree_disconnect::Request::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        Command::CREATE => create::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::CLOSE => close::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::FLUSH => flush::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::READ => read::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::WRITE => write::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::LOCK => lock::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::IOCTL => ioctl::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::CANCEL => cancel::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::ECHO => echo::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::QUERY_DIRECTORY => {
            query_directory::Request::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        Command::CHANGE_NOTIFY => {
            change_notify::Request::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        Command::QUERY_INFO => query_info::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::SET_INFO => set_info::Request::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::OPLOCK_BREAK => {
            oplock_break::Request::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        other => panic!("no request {other}"),
    })
}

/// Parses a successful response and encodes the result.
fn reencode_response(command: Command, m: &[u8]) -> Parsed<Vec<u8>> {
    Ok(match command {
        Command::NEGOTIATE => negotiate::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::SESSION_SETUP => {
            session_setup::Response::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        Command::LOGOFF => logoff::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::TREE_CONNECT => {
            tree_connect::Response::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        Command::TREE_DISCONNECT => {
            tree_disconnect::Response::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        Command::CREATE => create::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::CLOSE => close::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::FLUSH => flush::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::READ => read::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::WRITE => write::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::LOCK => lock::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::IOCTL => ioctl::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::ECHO => echo::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::QUERY_DIRECTORY => {
            query_directory::Response::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        Command::CHANGE_NOTIFY => {
            change_notify::Response::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        Command::QUERY_INFO => query_info::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::SET_INFO => set_info::Response::parse(m).map(|p| message(|w| p.encode(w)))?,
        Command::OPLOCK_BREAK => {
            oplock_break::Response::parse(m).map(|p| message(|w| p.encode(w)))?
        }
        other => panic!("no response {other}"),
    })
}

fn reencode_error(m: &[u8]) -> Parsed<Vec<u8>> {
    ErrorResponse::parse(m).map(|p| message(|w| p.encode(w)))
}
