//! The arguments of the calls, and their replies.

use super::{CLOSE, COMMAND, OPEN, UNKNOWN_1};
use crate::FaultStatus;
use crate::limits::MAX_SPOTLIGHT_PATH;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::ndr::{ContextHandle, NdrReader, NdrWriter};

/// Bytes that the interface has for a path, with its NUL.
const PATH_ROOM: u32 = 1025;

/// The arguments of a call. Fields of unknown meaning are not kept, unless they are sent back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// mdssvc_open
    Open {
        /// device_id, unkn2 and unkn3, which the reply repeats.
        echoed: [u32; 3],
        /// share_mount_path: where the client has mounted the share.
        mount_path: String,
        /// share_name
        share: String,
    },
    /// mdssvc_unknown1
    Unknown1 {
        /// handle
        handle: ContextHandle,
    },
    /// mdssvc_cmd
    Command(Command),
    /// mdssvc_close
    Close {
        /// in_handle
        handle: ContextHandle,
    },
}

/// The arguments of mdssvc_cmd.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Command {
    /// handle
    pub handle: ContextHandle,
    /// next_fragment: not 0 for the next part of the last answer.
    pub next_fragment: u32,
    /// request_blob
    pub message: Vec<u8>,
    /// max_fragment_size1: bytes of one part of the answer.
    pub max_fragment: u32,
}

/// Reads a conformant varying string of bytes up to its NUL.
fn path(r: &mut NdrReader<'_>, what: &'static str) -> Parsed<String> {
    let bad = Malformed::new(what);
    let (room, offset, count) = (r.u32(what)?, r.u32(what)?, r.u32(what)?);
    let count = usize::try_from(count).map_err(|_| bad)?;
    if offset != 0 || room > PATH_ROOM || count > MAX_SPOTLIGHT_PATH {
        return Err(bad);
    }
    let bytes = r.raw(count, what)?;
    let text = bytes.split(|byte| *byte == 0).next().unwrap_or(&[]);
    core::str::from_utf8(text).map(Into::into).map_err(|_| bad)
}

fn encode_path(w: &mut NdrWriter, text: &str) {
    let count = u32::try_from(text.len().saturating_add(1)).unwrap_or(u32::MAX);
    w.u32(PATH_ROOM).u32(0).u32(count).fixed(text.as_bytes()).u8(0);
}

/// Reads mdssvc_blob.
fn blob(r: &mut NdrReader<'_>) -> Parsed<Vec<u8>> {
    let what = "mdssvc_blob";
    let bad = Malformed::new(what);
    let (length, size, points) = (r.u32(what)?, r.u32(what)?, r.pointer(what)?);
    if length > size || (length > 0 && !points) {
        return Err(bad);
    }
    if !points {
        return Ok(Vec::new());
    }
    let (room, offset, count) = (r.u32(what)?, r.u32(what)?, r.u32(what)?);
    if room != size || offset != 0 || count != length {
        return Err(bad);
    }
    Ok(r.raw(usize::try_from(count).map_err(|_| bad)?, what)?.to_vec())
}

fn encode_blob(w: &mut NdrWriter, bytes: &[u8]) {
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    w.u32(length).u32(length).pointer(!bytes.is_empty());
    if !bytes.is_empty() {
        w.u32(length).u32(0).u32(length).fixed(bytes);
    }
}

impl Request {
    /// Parses the stub data of a call.
    ///
    /// # Errors
    /// OP_RNG_ERROR for a number without a call, NDR for malformed stub data.
    pub fn parse(opnum: u16, stub: &[u8]) -> Result<Self, FaultStatus> {
        let r = &mut NdrReader::new(stub);
        Ok(match opnum {
            OPEN => Self::Open {
                echoed: [r.u32("device_id")?, r.u32("unkn2")?, r.u32("unkn3")?],
                mount_path: path(r, "share_mount_path")?,
                share: path(r, "share_name")?,
            },
            UNKNOWN_1 => {
                let handle = r.handle("handle")?;
                (0..6).try_for_each(|_| r.u32("mdssvc_unknown1").map(|_| ()))?;
                Self::Unknown1 { handle }
            }
            COMMAND => {
                let handle = r.handle("handle")?;
                (0..3).try_for_each(|_| r.u32("mdssvc_cmd").map(|_| ()))?;
                let next_fragment = r.u32("next_fragment")?;
                r.u32("flags")?;
                let message = blob(r)?;
                r.u32("unkn5")?;
                let max_fragment = r.u32("max_fragment_size1")?;
                (0..4).try_for_each(|_| r.u32("mdssvc_cmd").map(|_| ()))?;
                Self::Command(Command { handle, next_fragment, message, max_fragment })
            }
            CLOSE => {
                let handle = r.handle("in_handle")?;
                (0..4).try_for_each(|_| r.u32("mdssvc_close").map(|_| ()))?;
                Self::Close { handle }
            }
            _ => return Err(FaultStatus::OP_RNG_ERROR),
        })
    }

    /// Returns the number of the call.
    pub const fn opnum(&self) -> u16 {
        match self {
            Self::Open { .. } => OPEN,
            Self::Unknown1 { .. } => UNKNOWN_1,
            Self::Command(_) => COMMAND,
            Self::Close { .. } => CLOSE,
        }
    }

    /// Stub data of a request, with zeros in fields of unknown meaning.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        match self {
            Self::Open { echoed: [device, second, third], mount_path, share } => {
                w.u32(*device).u32(*second).u32(*third);
                encode_path(&mut w, mount_path);
                encode_path(&mut w, share);
            }
            Self::Unknown1 { handle } => {
                w.handle(handle).u32(0).u32(0).u32(0).u32(0).u32(0).u32(0);
            }
            Self::Command(command) => {
                w.handle(&command.handle).u32(0).u32(0).u32(0);
                w.u32(command.next_fragment).u32(super::FLAGS);
                encode_blob(&mut w, &command.message);
                w.u32(0).u32(command.max_fragment).u32(1).u32(command.max_fragment).u32(0).u32(0);
            }
            Self::Close { handle } => _ = w.handle(handle).u32(0).u32(0).u32(0).u32(0),
        }
        w.into_stub()
    }
}

/// The reply to a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// mdssvc_open
    Open {
        /// The first arguments of the call.
        echoed: [u32; 3],
        /// share_path: the root of the paths of results. Empty for a share that is not searched.
        share_path: String,
        /// handle: NULL for a share that is not searched.
        handle: ContextHandle,
    },
    /// mdssvc_unknown1
    Unknown1 {
        /// flags: 0 for the handle NULL.
        flags: u32,
    },
    /// mdssvc_cmd
    Command {
        /// fragment: not 0 if a part of the answer is left.
        fragment: u32,
        /// response_blob: empty for a message that is not understood.
        message: Vec<u8>,
    },
    /// mdssvc_close
    Close {
        /// out_handle: the handle of the call.
        handle: ContextHandle,
    },
}

impl Reply {
    /// Stub data of the reply.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        match self {
            Self::Open { echoed: [device, second, third], share_path, handle } => {
                w.u32(*device).u32(*second).u32(*third);
                encode_path(&mut w, share_path);
                w.handle(handle);
            }
            Self::Unknown1 { flags } => _ = w.u32(0).u32(*flags).u32(0),
            Self::Command { fragment, message } => {
                w.u32(*fragment);
                encode_blob(&mut w, message);
                w.u32(0);
            }
            Self::Close { handle } => _ = w.handle(handle).u32(0),
        }
        w.into_stub()
    }

    /// Parses the reply to the call of this number.
    ///
    /// # Errors
    /// Malformed stub data.
    pub fn parse(opnum: u16, stub: &[u8]) -> Parsed<Self> {
        let r = &mut NdrReader::new(stub);
        Ok(match opnum {
            OPEN => Self::Open {
                echoed: [r.u32("device_id")?, r.u32("unkn2")?, r.u32("unkn3")?],
                share_path: path(r, "share_path")?,
                handle: r.handle("handle")?,
            },
            UNKNOWN_1 => {
                r.u32("status")?;
                let flags = r.u32("flags")?;
                r.u32("unkn7")?;
                Self::Unknown1 { flags }
            }
            COMMAND => {
                let fragment = r.u32("fragment")?;
                let message = blob(r)?;
                r.u32("unkn9")?;
                Self::Command { fragment, message }
            }
            CLOSE => {
                let handle = r.handle("out_handle")?;
                r.u32("status")?;
                Self::Close { handle }
            }
            _ => return Err(Malformed::new("mdssvc call")),
        })
    }
}
