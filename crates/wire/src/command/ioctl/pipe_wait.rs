//! FSCTL_PIPE_WAIT, MS-FSCC 2.3.49. The answer has no output.

use crate::codec::{Parsed, Reader, Writer};
use crate::command::field_u32;
use crate::utf16::Utf16;

/// Input of PIPE_WAIT.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// The longest wait, or `None` for no limit. The specification's text counts in 100
    /// milliseconds; senders mean 100 nanoseconds, negative for a duration.
    pub timeout: Option<i64>,
    /// The pipe, without a leading backslash.
    pub name: Utf16<'a>,
}

impl<'a> Request<'a> {
    /// Parses the input buffer of the FSCTL.
    pub fn parse(input: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(input);
        let timeout = r.i64("Timeout")?;
        let length = usize::try_from(r.u32("NameLength")?).unwrap_or(usize::MAX);
        let specified = r.u8("TimeoutSpecified")? != 0;
        r.skip(1, "Padding")?;
        let name = Utf16::new(r.take(length, "Name")?)?;
        Ok(Self { timeout: specified.then_some(timeout), name })
    }

    /// Appends the input buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.i64(self.timeout.unwrap_or(0)).u32(field_u32(self.name.as_bytes().len()));
        w.u8(self.timeout.is_some().into()).u8(0).bytes(self.name.as_bytes());
    }
}
