//! NETWORK_RESILIENCY_REQUEST, MS-SMB2 2.2.31.3. The answer has no output.

use crate::codec::{Parsed, Reader, Writer};

/// Input of LMR_REQUEST_RESILIENCY.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Request {
    /// Time for which the Open is kept after a disconnect, milliseconds.
    pub timeout: u32,
}

impl Request {
    /// Parses the input buffer of the FSCTL.
    pub fn parse(input: &[u8]) -> Parsed<Self> {
        let r = &mut Reader::new(input);
        let timeout = r.u32("Timeout")?;
        r.skip(4, "Reserved")?;
        Ok(Self { timeout })
    }

    /// Appends the input buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.timeout).u32(0);
    }
}
