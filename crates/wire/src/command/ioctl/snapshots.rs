//! SRV_SNAPSHOT_ARRAY, MS-SMB2 2.2.32.2: the previous versions of a file, as
//! `@GMT-YYYY.MM.DD-HH.MM.SS` tokens.

use crate::codec::{Parsed, Reader, Writer};
use crate::command::field_u32;
use crate::utf16::Utf16;
use alloc::vec::Vec;

/// UTF-16 units of a token with its terminator.
const TOKEN_UNITS: usize = 25;

/// Output of SRV_ENUMERATE_SNAPSHOTS.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotArray<'a> {
    /// Number of snapshots of the file.
    pub number_of_snapshots: u32,
    /// Number of tokens in this answer: all of them, or 0 if they do not fit.
    pub number_of_snapshots_returned: u32,
    /// Bytes of all tokens.
    pub snapshot_array_size: u32,
    /// The tokens in this answer.
    pub snapshots: Vec<Utf16<'a>>,
}

impl<'a> SnapshotArray<'a> {
    /// Returns the answer with `tokens`; if it would be longer than `limit` bytes, the answer that
    /// tells the length (MS-SMB2 3.3.5.15.1).
    pub fn new(tokens: Vec<Utf16<'a>>, limit: u32) -> Self {
        let count = field_u32(tokens.len());
        let size = array_size(&tokens);
        let total = size.saturating_add(12);
        if tokens.is_empty() || total > usize::try_from(limit).unwrap_or(usize::MAX) {
            return Self {
                number_of_snapshots: count,
                number_of_snapshots_returned: 0,
                snapshot_array_size: field_u32(size),
                snapshots: Vec::new(),
            };
        }
        Self {
            number_of_snapshots: count,
            number_of_snapshots_returned: count,
            snapshot_array_size: field_u32(size),
            snapshots: tokens,
        }
    }

    /// Parses the output. Reads the tokens that are present, whatever the counts say.
    pub fn parse(output: &'a [u8]) -> Parsed<Self> {
        let r = &mut Reader::new(output);
        let number_of_snapshots = r.u32("NumberOfSnapShots")?;
        let number_of_snapshots_returned = r.u32("NumberOfSnapShotsReturned")?;
        let snapshot_array_size = r.u32("SnapShotArraySize")?;
        let mut snapshots = Vec::new();
        if number_of_snapshots_returned != 0 {
            let size = usize::try_from(snapshot_array_size).unwrap_or(usize::MAX);
            let mut rest = r.take(size, "SnapShotArraySize")?;
            // Each token ends with a null character, and the array ends with one more.
            while let Some(units) = rest.chunks_exact(2).position(|unit| unit == [0, 0]) {
                if units == 0 {
                    break;
                }
                let (token, tail) = rest.split_at(units.saturating_mul(2));
                snapshots.push(Utf16::new(token)?);
                rest = tail.get(2..).unwrap_or(&[]);
            }
        }
        Ok(Self {
            number_of_snapshots,
            number_of_snapshots_returned,
            snapshot_array_size,
            snapshots,
        })
    }

    /// Appends the output buffer to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u32(self.number_of_snapshots).u32(self.number_of_snapshots_returned);
        w.u32(self.snapshot_array_size);
        for token in &self.snapshots {
            w.bytes(token.as_bytes()).u16(0);
        }
        if self.snapshots.is_empty() {
            // MS-SMB2 3.3.5.15.1 needs room for 16 bytes, and some clients refuse a shorter answer.
            // So an empty array has four zero bytes, where Windows sends two.
            w.u32(0);
        } else {
            w.u16(0);
        }
    }
}

/// Returns the bytes of the array: the tokens with their terminators, and the array's terminator.
fn array_size(tokens: &[Utf16<'_>]) -> usize {
    if tokens.is_empty() {
        return 0;
    }
    let bytes = tokens.iter().map(|token| token.as_bytes().len().saturating_add(2));
    debug_assert!(tokens.iter().all(|token| token.units().len() < TOKEN_UNITS));
    bytes.fold(2, usize::saturating_add)
}
