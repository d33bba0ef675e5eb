//! Pattern_V1: one byte that is repeated, MS-SMB2 2.2.42.2.2 and 3.1.4.4.

/// Bytes from which on a run at the front or at the back is worth a payload of its own: MS-SMB2 3.1.4.4.
pub const RUN_MIN: usize = 64;

/// Data of at most so many bytes is not looked through: MS-SMB2 3.1.4.4.
pub const DATA_MIN: usize = 32;

/// A byte and how often it is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Run {
    /// The byte.
    pub byte: u8,
    /// The number of bytes.
    pub count: usize,
}

/// Returns the run at the front of `data`, if it has at least [`RUN_MIN`] bytes.
pub fn at_front(data: &[u8]) -> Option<Run> {
    let byte = *data.first()?;
    let (chunks, rest) = data.as_chunks::<16>();
    let whole = chunks.iter().take_while(|chunk| **chunk == [byte; 16]).count().saturating_mul(16);
    let rest = data.get(whole..).unwrap_or(rest);
    let count = whole.saturating_add(rest.iter().take_while(|other| **other == byte).count());
    run(data, byte, count)
}

/// Returns the run at the back of `data`, if it has at least [`RUN_MIN`] bytes.
pub fn at_back(data: &[u8]) -> Option<Run> {
    let byte = *data.last()?;
    let (_, chunks) = data.as_rchunks::<16>();
    let alike = chunks.iter().rev().take_while(|chunk| **chunk == [byte; 16]);
    let whole = alike.count().saturating_mul(16);
    let rest = data.get(..data.len().saturating_sub(whole)).unwrap_or_default();
    let more = rest.iter().rev().take_while(|other| **other == byte).count();
    run(data, byte, whole.saturating_add(more))
}

fn run(data: &[u8], byte: u8, count: usize) -> Option<Run> {
    (data.len() > DATA_MIN && count >= RUN_MIN).then_some(Run { byte, count })
}

/// Fills `output` with a run of as many bytes.
pub fn expand(byte: u8, output: &mut [u8]) {
    output.fill(byte);
}
