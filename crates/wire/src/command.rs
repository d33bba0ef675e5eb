//! The commands of MS-SMB2 2.2: one file for each, with request and response.
//!
//! `parse` takes one whole message of a compound: from its 64-byte header to its end; every offset
//! in it counts from its start. `encode` appends only the body; the header is already written, and
//! [`Writer::offset`](crate::codec::Writer::offset) counts from it.
//!
//! Parsers check the form (structure size, bounds). Server and client check the values, because the
//! status for an invalid value differs between commands.

pub mod cancel;
pub mod change_notify;
pub mod close;
pub mod create;
pub mod echo;
pub mod flush;
pub mod ioctl;
pub mod lock;
pub mod logoff;
pub mod negotiate;
pub mod oplock_break;
pub mod query_directory;
pub mod query_info;
pub mod read;
pub mod server_to_client_notification;
pub mod session_setup;
pub mod set_info;
pub mod tree_connect;
pub mod tree_disconnect;
pub mod write;

use crate::codec::{Malformed, Parsed, Reader};
use crate::header::HEADER_LEN;

/// Returns a reader behind the header and the StructureSize, which must be `size`. Its position
/// counts from the header.
fn body<'a>(message: &'a [u8], size: u16, what: &'static str) -> Parsed<Reader<'a>> {
    let mut r = Reader::new(message);
    r.skip(HEADER_LEN, what)?;
    if r.u16(what)? != size {
        return Err(Malformed::new(what));
    }
    Ok(r)
}

/// Returns a length or offset for a 16-bit field. A value that does not fit is a bug of the caller;
/// the largest number then makes the peer refuse the message, where a wrapped one could make it
/// read wrong bytes.
pub(crate) fn field_u16(n: usize) -> u16 {
    debug_assert!(n <= usize::from(u16::MAX), "{n} does not fit its field");
    u16::try_from(n).unwrap_or(u16::MAX)
}

/// Returns a length or offset for a 32-bit field, like [`field_u16`].
pub(crate) fn field_u32(n: usize) -> u32 {
    debug_assert!(u32::try_from(n).is_ok(), "{n} does not fit its field");
    u32::try_from(n).unwrap_or(u32::MAX)
}

/// Declares messages whose body is the StructureSize 4 and two reserved bytes.
macro_rules! empty_messages {
    ($($(#[$meta:meta])* $name:ident, $what:literal;)*) => { $(
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name;

        impl $name {
            /// Parses a whole message.
            pub fn parse(message: &[u8]) -> $crate::codec::Parsed<Self> {
                let r = &mut $crate::command::body(message, 4, concat!($what, " StructureSize"))?;
                r.skip(2, concat!($what, " Reserved"))?;
                Ok(Self)
            }

            /// Appends the body to `w`, behind the header.
            pub fn encode(&self, w: &mut $crate::codec::Writer<'_>) {
                w.u16(4).u16(0);
            }
        }
    )* };
}
use empty_messages;

/// Declares a response that is only an output buffer: StructureSize 9, OutputBufferOffset,
/// OutputBufferLength.
macro_rules! output_response {
    ($(#[$meta:meta])* $name:ident, $what:literal;) => {
        $(#[$meta])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub struct $name<'a> {
            /// The output buffer; empty for none.
            pub output: &'a [u8],
        }

        impl<'a> $name<'a> {
            /// Parses a whole message.
            pub fn parse(message: &'a [u8]) -> $crate::codec::Parsed<Self> {
                let r = &mut $crate::command::body(message, 9, concat!($what, " StructureSize"))?;
                let offset = r.u16("OutputBufferOffset")?;
                let length = r.u32("OutputBufferLength")?;
                let fixed = $crate::command::OUTPUT_FIXED;
                let output =
                    $crate::codec::pointed(message, offset.into(), length, fixed, "OutputBuffer")?;
                Ok(Self { output })
            }

            /// Appends the body to `w`, behind the header.
            pub fn encode(&self, w: &mut $crate::codec::Writer<'_>) {
                w.bytes(&$crate::command::output_head($crate::command::field_u32(self.output.len())));
                w.bytes(self.output);
            }
        }
    };
}
use output_response;

/// Offset of the output buffer in QUERY_DIRECTORY, CHANGE_NOTIFY and QUERY_INFO responses.
pub const OUTPUT_FIXED: usize = 72;

/// Returns the 8 bytes between the header and the output buffer of QUERY_DIRECTORY, CHANGE_NOTIFY
/// and QUERY_INFO responses, for a server that has the output in a buffer already. Without output
/// too, OutputBufferOffset is where the buffer would begin, as Windows has it.
pub const fn output_head(output_len: u32) -> [u8; 8] {
    let [a, b, c, d] = output_len.to_le_bytes();
    [9, 0, OUTPUT_FIXED as u8, 0, a, b, c, d]
}

#[cfg(test)]
pub(crate) mod tests;
