//! Answers of a stream, one in each line.

use alloc::vec::Vec;

use crate::limits::ANSWER_BYTES;
use crate::types::Fault;

/// The fault of an answer that is longer than [`ANSWER_BYTES`].
pub const TOO_LONG: Fault = Fault::Malformed("an answer that is too long");

/// The bytes of a stream whose line has no end yet: at most [`ANSWER_BYTES`].
#[derive(Debug, Default)]
pub struct Lines {
    begun: Vec<u8>,
}

impl Lines {
    /// Takes the next bytes of the stream, and gives each line that they end to `each`. Empty lines are
    /// left out.
    ///
    /// # Errors
    /// [`TOO_LONG`] for a line that is longer than [`ANSWER_BYTES`], and the errors of `each`.
    pub fn take<E: From<Fault>>(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(&[u8]) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let end = part.strip_suffix(b"\n");
            let text = end.unwrap_or(part);
            if self.begun.len().saturating_add(text.len()) > ANSWER_BYTES {
                return Err(TOO_LONG.into());
            }
            if end.is_none() {
                self.begun.extend_from_slice(text);
            } else if self.begun.is_empty() {
                tell(text, &mut each)?;
            } else {
                let mut line = core::mem::take(&mut self.begun);
                line.extend_from_slice(text);
                tell(&line, &mut each)?;
            }
        }
        Ok(())
    }
}

fn tell<E>(line: &[u8], each: &mut impl FnMut(&[u8]) -> Result<(), E>) -> Result<(), E> {
    if line.trim_ascii().is_empty() { Ok(()) } else { each(line) }
}
