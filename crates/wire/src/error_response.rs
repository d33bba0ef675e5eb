//! ERROR, MS-SMB2 2.2.2: the body of a response that failed.

use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::command::{field_u16, field_u32};
use crate::header::HEADER_LEN;
use crate::limits::{MAX_ERROR_CONTEXTS, MAX_REDIRECT_ADDRESSES};
use crate::open_enum;
use crate::utf16::Utf16;
use alloc::vec;
use alloc::vec::Vec;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

open_enum! {
    /// ErrorId of an error context, 2.2.2.1.
    ErrorId(u32) {
        /// Every error except the share redirect.
        DEFAULT = 0x0000_0000,
        /// A share redirect, 2.2.2.2.2.
        SHARE_REDIRECT = 0x7264_5253,
    }
}

/// StructureSize.
const STRUCTURE_SIZE: u16 = 9;

/// SMB2 ERROR Context, 2.2.2.1 (3.1.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ErrorContext<'a> {
    /// The kind of data.
    pub error_id: ErrorId,
    /// The data, in the form that the type tells.
    pub data: &'a [u8],
}

/// The form of error data, which depends on the dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wrapping {
    /// Data without a context (2.0.2 to 3.0.2).
    Bare,
    /// Data in an error context (3.1.1).
    Context,
}

/// MS-SMB2 2.2.2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ErrorResponse<'a> {
    /// Data without a context; empty for nearly all errors.
    Data(&'a [u8]),
    /// At least one error context.
    Contexts(Vec<ErrorContext<'a>>),
}

impl<'a> ErrorResponse<'a> {
    /// An error without data, as nearly all errors are.
    pub const PLAIN: Self = Self::Data(&[]);

    /// Makes an error with data in the dialect's form.
    pub fn new(wrapping: Wrapping, error_id: ErrorId, data: &'a [u8]) -> Self {
        match wrapping {
            Wrapping::Bare => Self::Data(data),
            Wrapping::Context => Self::Contexts(vec![ErrorContext { error_id, data }]),
        }
    }

    /// Parses a whole message. The one byte that servers send in place of data is ignored.
    pub fn parse(message: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(message);
        r.skip(HEADER_LEN, "ERROR header")?;
        if r.u16("ERROR StructureSize")? != STRUCTURE_SIZE {
            return Err(Malformed::new("ERROR StructureSize"));
        }
        let count = usize::from(r.u8("ErrorContextCount")?);
        r.skip(1, "ERROR Reserved")?;
        let length = usize::try_from(r.u32("ByteCount")?).unwrap_or(usize::MAX);
        let data = r.take(length, "ErrorData")?;
        if count == 0 {
            return Ok(Self::Data(data));
        }
        if count > MAX_ERROR_CONTEXTS {
            return Err(Malformed::new("ErrorContextCount"));
        }
        let r = &mut Reader::new(data);
        let mut contexts = Vec::with_capacity(count);
        for _ in 0..count {
            // The contexts are aligned to eight bytes. Positions count from the end of the fixed
            // part, whose 8 bytes do not change the alignment.
            r.skip(r.position().wrapping_neg() % 8, "error context padding")?;
            let length = usize::try_from(r.u32("ErrorDataLength")?).unwrap_or(usize::MAX);
            let error_id = ErrorId(r.u32("ErrorId")?);
            contexts.push(ErrorContext { error_id, data: r.take(length, "ErrorContextData")? });
        }
        Ok(Self::Contexts(contexts))
    }

    /// Appends the body, at least nine bytes.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let contexts: &[_] = match self {
            Self::Data(_) => &[],
            Self::Contexts(contexts) => contexts,
        };
        debug_assert!(contexts.len() <= MAX_ERROR_CONTEXTS);
        w.u16(STRUCTURE_SIZE).u8(u8::try_from(contexts.len()).unwrap_or(u8::MAX)).u8(0);
        let length_at = w.offset();
        w.u32(0);
        let data_at = w.offset();
        if let Self::Data(data) = self {
            w.bytes(data);
        }
        for context in contexts {
            w.align(8).u32(field_u32(context.data.len())).u32(context.error_id.0);
            w.bytes(context.data);
        }
        let length = w.offset().saturating_sub(data_at);
        w.patch_u32(length_at, field_u32(length));
        if length == 0 {
            // As on Windows, ErrorData has one byte although ByteCount is zero, because clients
            // expect it.
            w.u8(0);
        }
    }

    /// Returns the data with `error_id`: of the first such context, or data without a context
    /// (which has no id and is never a share redirect).
    pub fn data(&self, error_id: ErrorId) -> Option<&'a [u8]> {
        match self {
            Self::Data(data) if error_id == ErrorId::DEFAULT => Some(data),
            Self::Data(_) => None,
            Self::Contexts(contexts) => {
                contexts.iter().find(|context| context.error_id == error_id).map(|it| it.data)
            }
        }
    }

    /// Returns the required output length in bytes, which STATUS_BUFFER_TOO_SMALL contains and
    /// STATUS_INFO_LENGTH_MISMATCH may contain.
    pub fn required_length(&self) -> Option<u32> {
        self.data(ErrorId::DEFAULT)?.try_into().ok().map(u32::from_le_bytes)
    }
}

/// Appends the body for STATUS_BUFFER_TOO_SMALL, 2.2.2.2.
pub fn encode_buffer_too_small(wrapping: Wrapping, required: u32, w: &mut Writer<'_>) {
    ErrorResponse::new(wrapping, ErrorId::DEFAULT, &required.to_le_bytes()).encode(w);
}

/// SymLinkErrorTag: 'SYML'.
const SYMLINK_ERROR_TAG: u32 = 0x4C4D_5953;
/// IO_REPARSE_TAG_SYMLINK.
const REPARSE_TAG_SYMLINK: u32 = 0xA000_000C;
/// Bytes of the fields before PathBuffer that ReparseDataLength counts.
const SYMLINK_FIXED: usize = 12;
/// SYMLINK_FLAG_RELATIVE.
const SYMLINK_RELATIVE: u32 = 0x0000_0001;

/// Symbolic Link Error Response, 2.2.2.2.1: with STATUS_STOPPED_ON_SYMLINK.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SymlinkError<'a> {
    /// Bytes of the requested path behind the link.
    pub unparsed_path_length: u16,
    /// The target of the link.
    pub substitute_name: Utf16<'a>,
    /// The target for display.
    pub print_name: Utf16<'a>,
    /// True if the target is relative to the link's directory.
    pub relative: bool,
}

impl<'a> SymlinkError<'a> {
    /// Parses the error data of a response.
    pub fn parse(data: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        let length = usize::try_from(r.u32("SymLinkLength")?).unwrap_or(usize::MAX);
        let r = &mut Reader::new(r.take(length, "SymLinkLength")?);
        if r.u32("SymLinkErrorTag")? != SYMLINK_ERROR_TAG {
            return Err(Malformed::new("SymLinkErrorTag"));
        }
        if r.u32("ReparseTag")? != REPARSE_TAG_SYMLINK {
            return Err(Malformed::new("ReparseTag"));
        }
        r.skip(2, "ReparseDataLength")?;
        let unparsed_path_length = r.u16("UnparsedPathLength")?;
        let substitute_offset = usize::from(r.u16("SubstituteNameOffset")?);
        let substitute_length = usize::from(r.u16("SubstituteNameLength")?);
        let print_offset = usize::from(r.u16("PrintNameOffset")?);
        let print_length = usize::from(r.u16("PrintNameLength")?);
        let relative = r.u32("symlink Flags")? & SYMLINK_RELATIVE != 0;
        let paths = r.rest();
        let path = |offset: usize, length: usize| {
            let path = paths.get(offset..offset.saturating_add(length));
            path.ok_or(Malformed::new("symlink PathBuffer")).and_then(Utf16::new)
        };
        Ok(Self {
            unparsed_path_length,
            substitute_name: path(substitute_offset, substitute_length)?,
            print_name: path(print_offset, print_length)?,
            relative,
        })
    }

    /// Appends the error data to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let substitute = self.substitute_name.as_bytes();
        let print = self.print_name.as_bytes();
        let paths = substitute.len().saturating_add(print.len());
        let reparse = paths.saturating_add(SYMLINK_FIXED);
        w.u32(field_u32(reparse.saturating_add(12))).u32(SYMLINK_ERROR_TAG);
        w.u32(REPARSE_TAG_SYMLINK).u16(field_u16(reparse)).u16(self.unparsed_path_length);
        w.u16(0).u16(field_u16(substitute.len()));
        w.u16(field_u16(substitute.len())).u16(field_u16(print.len()));
        w.u32(self.relative.into()).bytes(substitute).bytes(print);
    }
}

/// StructureSize of a share redirect, whatever its length.
const REDIRECT_SIZE: u32 = 48;
/// Bytes before IPAddrMoveList.
const REDIRECT_FIXED: usize = 24;
/// Bytes of MOVE_DST_IPADDR.
const MOVE_DST_LEN: usize = 24;
/// SHARE_MOVE_NOTIFICATION, MS-SWN 2.2.2.4.
const SHARE_MOVE_NOTIFICATION: u32 = 3;
/// MOVE_DST_IPADDR_V4.
const MOVE_DST_V4: u32 = 1;
/// MOVE_DST_IPADDR_V6.
const MOVE_DST_V6: u32 = 2;

/// Share Redirect Error Context Response, 2.2.2.2.2: with
/// STATUS_BAD_NETWORK_NAME and [`ErrorId::SHARE_REDIRECT`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareRedirect<'a> {
    /// The addresses of the share's new server.
    pub addresses: Vec<IpAddr>,
    /// The name of the share.
    pub resource_name: Utf16<'a>,
}

impl<'a> ShareRedirect<'a> {
    /// Parses the error data of a response.
    pub fn parse(data: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(data);
        if r.u32("redirect StructureSize")? != REDIRECT_SIZE {
            return Err(Malformed::new("redirect StructureSize"));
        }
        if r.u32("NotificationType")? != SHARE_MOVE_NOTIFICATION {
            return Err(Malformed::new("NotificationType"));
        }
        let name_offset = r.u32("ResourceNameOffset")?;
        let name_length = r.u32("ResourceNameLength")?;
        r.skip(4, "redirect Reserved and TargetType")?;
        let count = usize::try_from(r.u32("IPAddrCount")?).unwrap_or(usize::MAX);
        if count > MAX_REDIRECT_ADDRESSES || count > r.remaining() / MOVE_DST_LEN {
            return Err(Malformed::new("IPAddrCount"));
        }
        let mut addresses = Vec::with_capacity(count);
        for _ in 0..count {
            let kind = r.u32("MOVE_DST_IPADDR Type")?;
            r.skip(4, "MOVE_DST_IPADDR Reserved")?;
            let address = r.array::<16>("MOVE_DST_IPADDR")?;
            addresses.push(match (kind, address) {
                (MOVE_DST_V4, [a, b, c, d, ..]) => Ipv4Addr::new(a, b, c, d).into(),
                (MOVE_DST_V6, address) => Ipv6Addr::from(address).into(),
                _ => return Err(Malformed::new("MOVE_DST_IPADDR Type")),
            });
        }
        let name =
            crate::codec::pointed(data, name_offset, name_length, REDIRECT_FIXED, "ResourceName")?;
        Ok(Self { addresses, resource_name: Utf16::new(name)? })
    }

    /// Appends the error data to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        let name = self.resource_name.as_bytes();
        let addresses = self.addresses.len().saturating_mul(MOVE_DST_LEN);
        w.u32(REDIRECT_SIZE).u32(SHARE_MOVE_NOTIFICATION);
        w.u32(field_u32(REDIRECT_FIXED.saturating_add(addresses))).u32(field_u32(name.len()));
        w.u16(0).u16(0).u32(field_u32(self.addresses.len()));
        for address in &self.addresses {
            match address {
                IpAddr::V4(v4) => w.u32(MOVE_DST_V4).u32(0).bytes(&v4.octets()).zeros(12),
                IpAddr::V6(v6) => w.u32(MOVE_DST_V6).u32(0).bytes(&v6.octets()),
            };
        }
        w.bytes(name);
    }
}

#[cfg(test)]
mod tests;
