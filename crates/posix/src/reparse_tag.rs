//! The tag of a stored reparse buffer.

use std::ffi::CStr;

use frevo_wire::dtyp::FileAttributes;
use rustix::io::Errno;

use crate::dosattrib::DosAttrib;
use crate::limits::REPARSE_BYTES;

/// The attribute that holds a reparse buffer, header included.
pub(crate) const ATTRIBUTE: &CStr = c"user.frevo.reparse";

/// Returns the tag of a stored buffer; 0 if DOSATTRIB tells of none, or the buffer has gone.
pub(crate) fn tag(
    dos: Option<DosAttrib>,
    value: impl FnOnce(&mut [u8]) -> Result<usize, Errno>,
) -> u32 {
    let marked = dos.is_some_and(|d| d.attributes & FileAttributes::REPARSE_POINT.0 != 0);
    if !marked {
        return 0;
    }
    let mut buffer = vec![0; REPARSE_BYTES];
    let len = value(&mut buffer).unwrap_or(0);
    buffer.get(..len).and_then(|kept| kept.first_chunk()).map_or(0, |tag| u32::from_le_bytes(*tag))
}
