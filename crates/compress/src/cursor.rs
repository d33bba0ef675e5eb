//! Reading from compressed bytes, and writing to the bytes of a caller.

use crate::Malformed;

/// Compressed bytes that are still to be read.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    rest: &'a [u8],
}

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    /// Returns the number of bytes that are left.
    pub(crate) const fn left(&self) -> usize {
        self.rest.len()
    }

    #[inline]
    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let (array, rest) = self.rest.split_first_chunk::<N>().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*array)
    }

    #[inline]
    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        let (byte, rest) = self.rest.split_first().ok_or(Malformed)?;
        self.rest = rest;
        Ok(*byte)
    }

    #[inline]
    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Takes the next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let (taken, rest) = self.rest.split_at_checked(count).ok_or(Malformed)?;
        self.rest = rest;
        Ok(taken)
    }
}

/// Bytes that are copied at once where there is room behind them, too: the copy of a constant length
/// is one instruction or two, and what it writes too much is written again later.
const WIDE: usize = 32;

/// Expanded bytes, and the position of the next one.
#[derive(Debug)]
pub(crate) struct Expanded<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Expanded<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    pub(crate) const fn is_full(&self) -> bool {
        self.at >= self.bytes.len()
    }

    pub(crate) fn push(&mut self, byte: u8) -> Result<(), Malformed> {
        *self.bytes.get_mut(self.at).ok_or(Malformed)? = byte;
        self.at = self.at.wrapping_add(1);
        Ok(())
    }

    /// Copies the next `count` bytes of `input`, at most [`WIDE`] at once.
    ///
    /// Here and below the seldom work gets parts of `self` and not `self`, which else would be in memory
    /// and not in registers.
    #[inline]
    pub(crate) fn copy_few(
        &mut self,
        input: &mut Input<'_>,
        count: usize,
    ) -> Result<(), Malformed> {
        let (from, rest) = input.rest.split_at_checked(count).ok_or(Malformed)?;
        let to = self.bytes.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut::<WIDE>());
        match (input.rest.first_chunk::<WIDE>(), to) {
            (Some(from), Some(to)) if count <= WIDE => *to = *from,
            _ => copy_exactly(self.bytes, self.at, from)?,
        }
        input.rest = rest;
        self.at = self.at.wrapping_add(count);
        Ok(())
    }

    /// Appends `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let end = self.at.checked_add(bytes.len()).ok_or(Malformed)?;
        self.bytes.get_mut(self.at..end).ok_or(Malformed)?.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// Appends `length` bytes, the first of which is the one `distance` bytes before. They may overlap.
    #[inline]
    pub(crate) fn repeat(&mut self, distance: usize, length: usize) -> Result<(), Malformed> {
        let from = self.at.checked_sub(distance).ok_or(Malformed)?;
        if length <= WIDE
            && let Some(window) = self.bytes.get_mut(from..self.at.wrapping_add(WIDE))
        {
            let is_done = match distance >= WIDE / 2 {
                true => {
                    copy_far(window, distance, length);
                    true
                }
                false => copy_near(window, distance, length),
            };
            if is_done {
                self.at = self.at.wrapping_add(length);
                return Ok(());
            }
        }
        self.at = repeat_long(self.bytes, self.at, distance, length)?;
        Ok(())
    }
}

/// Copies `from` to `at`, where either side has few bytes left.
#[inline(never)]
fn copy_exactly(bytes: &mut [u8], at: usize, from: &[u8]) -> Result<(), Malformed> {
    let end = at.checked_add(from.len()).ok_or(Malformed)?;
    bytes.get_mut(at..end).ok_or(Malformed)?.copy_from_slice(from);
    Ok(())
}

/// Repeats bytes that are many, or close to the end of the output. Returns the end of the repetition.
#[inline(never)]
fn repeat_long(
    bytes: &mut [u8],
    at: usize,
    distance: usize,
    length: usize,
) -> Result<usize, Malformed> {
    let end = at.checked_add(length).ok_or(Malformed)?;
    let from = at.checked_sub(distance).ok_or(Malformed)?;
    if end > bytes.len() || distance == 0 {
        return Err(Malformed);
    }
    let mut to = match distance {
        16.. => by_chunks::<16>(bytes, from, at, end),
        8..16 => by_chunks::<8>(bytes, from, at, end),
        _ => by_pattern(bytes, from, at, end),
    };
    // The rest is close to the end of the output, so it is copied in steps of the distance.
    while to < end {
        let from = to.saturating_sub(distance);
        let count = distance.min(end.saturating_sub(to));
        bytes.copy_within(from..from.saturating_add(count), to);
        to = to.saturating_add(count);
    }
    Ok(end)
}

/// Repeats the bytes from `from` on, which are at least `N` before `to`, until `end`, or until the output
/// has less than `N` bytes. Returns the end of what is repeated.
#[inline]
fn by_chunks<const N: usize>(
    bytes: &mut [u8],
    mut from: usize,
    mut to: usize,
    end: usize,
) -> usize {
    while to < end {
        let chunk = bytes.get(from..).and_then(|rest| rest.first_chunk::<N>());
        let Some(chunk) = chunk.copied() else { break };
        let room = bytes.get_mut(to..).and_then(|rest| rest.first_chunk_mut::<N>());
        let Some(room) = room else { break };
        *room = chunk;
        from = from.wrapping_add(N);
        to = to.wrapping_add(N);
    }
    to.min(end)
}

/// Like [`by_chunks`], for fewer than eight bytes that are repeated.
fn by_pattern(bytes: &mut [u8], from: usize, mut to: usize, end: usize) -> usize {
    let mut pattern = [0u8; 16];
    let known = bytes.get(from..to).unwrap_or_default();
    for (byte, of_pattern) in known.iter().cycle().zip(&mut pattern) {
        *of_pattern = *byte;
    }
    let step = 16usize.wrapping_sub(16usize.checked_rem(known.len()).unwrap_or(0));
    while to < end {
        let room = bytes.get_mut(to..).and_then(|rest| rest.first_chunk_mut());
        let Some(room) = room else { break };
        *room = pattern;
        to = to.wrapping_add(step);
    }
    to.min(end)
}

/// Copies `N` bytes at `from` of `window` to `to`.
#[inline]
fn copy_chunk<const N: usize>(window: &mut [u8], from: usize, to: usize) {
    let chunk = window.get(from..from.wrapping_add(N)).and_then(|part| part.first_chunk::<N>());
    let Some(chunk) = chunk.copied() else { return };
    let room = window.get_mut(to..to.wrapping_add(N)).and_then(|part| part.first_chunk_mut());
    if let Some(room) = room {
        *room = chunk;
    }
}

/// Copies the first `length` bytes of `window`, at most [`WIDE`], to the place `distance` bytes behind, and
/// some more. `window` has [`WIDE`] bytes from there on.
#[inline]
fn copy_far(window: &mut [u8], distance: usize, length: usize) {
    const HALF: usize = WIDE / 2;
    copy_chunk::<HALF>(window, 0, distance);
    if length > HALF {
        copy_chunk::<HALF>(window, HALF, distance.wrapping_add(HALF));
    }
}

/// Like [`copy_far`], for a distance of fewer bytes. Returns false if it has copied nothing.
#[inline(never)]
fn copy_near(window: &mut [u8], distance: usize, length: usize) -> bool {
    match distance {
        8.. => {
            for at in (0..length).step_by(8) {
                copy_chunk::<8>(window, at, distance.wrapping_add(at));
            }
        }
        1.. if length <= PATTERN_MAX => copy_pattern(window, distance, length),
        _ => return false,
    }
    true
}

/// The longest match that [`copy_pattern`] copies: it writes eight bytes at a time.
const PATTERN_MAX: usize = WIDE - 8;

/// Like [`copy_far`], for a distance of 1 to 7 bytes and at most [`PATTERN_MAX`].
fn copy_pattern(window: &mut [u8], distance: usize, length: usize) {
    /// The factors that repeat 1 to 7 bytes, and the bytes after which whole repetitions end.
    const BY_DISTANCE: [(u64, usize); 7] = [
        (0x0101_0101_0101_0101, 8),
        (0x0001_0001_0001_0001, 8),
        (0x0001_0000_0100_0001, 6),
        (0x0000_0001_0000_0001, 8),
        (0x0000_0100_0000_0001, 5),
        (0x0001_0000_0000_0001, 6),
        (0x0100_0000_0000_0001, 7),
    ];
    let Some((factor, step)) = BY_DISTANCE.get(distance.wrapping_sub(1)).copied() else { return };
    let Some(known) = window.first_chunk::<8>() else { return };
    let unknown = 64u32.wrapping_sub((distance as u32).wrapping_mul(8));
    let known = u64::from_le_bytes(*known).wrapping_shl(unknown).wrapping_shr(unknown);
    let pattern = known.wrapping_mul(factor).to_le_bytes();
    for at in (0..length).step_by(step) {
        let to = distance.wrapping_add(at);
        let room = window.get_mut(to..to.wrapping_add(8)).and_then(|part| part.first_chunk_mut());
        if let Some(room) = room {
            *room = pattern;
        }
    }
}

/// The caller's bytes for what is compressed, and the position of the next one. All methods return
/// None when the bytes are full.
#[derive(Debug)]
pub(crate) struct Output<'a> {
    bytes: &'a mut [u8],
    at: usize,
}

impl<'a> Output<'a> {
    pub(crate) const fn new(bytes: &'a mut [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    pub(crate) const fn at(&self) -> usize {
        self.at
    }

    /// Returns its state, and leaves one without bytes.
    #[inline]
    pub(crate) fn taken(&mut self) -> Self {
        Self { bytes: core::mem::take(&mut self.bytes), at: self.at }
    }

    /// Leaves room for `count` bytes, which are set later, and returns their position.
    pub(crate) fn skip(&mut self, count: usize) -> Option<usize> {
        let before = self.at;
        let after = before.checked_add(count)?;
        self.at = (after <= self.bytes.len()).then_some(after)?;
        Some(before)
    }

    /// Goes back to an earlier position.
    pub(crate) fn rewind(&mut self, at: usize) {
        self.at = self.at.min(at);
    }

    #[inline]
    pub(crate) fn put<const N: usize>(&mut self, bytes: [u8; N]) -> Option<()> {
        *self.bytes.get_mut(self.at..)?.first_chunk_mut()? = bytes;
        self.at = self.at.wrapping_add(N);
        Some(())
    }

    /// Sets bytes that were skipped.
    pub(crate) fn set<const N: usize>(&mut self, at: usize, bytes: [u8; N]) -> Option<()> {
        *self.bytes.get_mut(at..)?.first_chunk_mut()? = bytes;
        Some(())
    }

    /// Adds bits to a byte that was written.
    pub(crate) fn add_bits(&mut self, at: usize, bits: u8) -> Option<()> {
        *self.bytes.get_mut(at)? |= bits;
        Some(())
    }

    /// Appends `count` bytes of `from`, which begin at `at`, at most [`WIDE`] at once.
    #[inline]
    pub(crate) fn copy_few(&mut self, from: &[u8], at: usize, count: usize) -> Option<()> {
        let wide = from.get(at..).and_then(|rest| rest.first_chunk::<WIDE>());
        let room = self.bytes.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut::<WIDE>());
        if count <= WIDE
            && let (Some(wide), Some(room)) = (wide, room)
        {
            *room = *wide;
            self.at = self.at.wrapping_add(count);
            return Some(());
        }
        self.copy(from.get(at..at.checked_add(count)?)?)
    }

    /// Appends `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Option<()> {
        let end = self.at.checked_add(bytes.len())?;
        self.bytes.get_mut(self.at..end)?.copy_from_slice(bytes);
        self.at = end;
        Some(())
    }
}
