//! Reading from compressed bytes, and writing to the bytes of a caller.

use crate::Malformed;

/// Compressed bytes, and the position of the next one.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Input<'a> {
    pub(crate) const fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    /// Returns the number of bytes that are left.
    pub(crate) const fn left(&self) -> usize {
        self.bytes.len().saturating_sub(self.at)
    }

    pub(crate) fn array<const N: usize>(&mut self) -> Result<[u8; N], Malformed> {
        let rest = self.bytes.get(self.at..).ok_or(Malformed)?;
        let array = *rest.first_chunk::<N>().ok_or(Malformed)?;
        self.at = self.at.wrapping_add(N);
        Ok(array)
    }

    pub(crate) fn u8(&mut self) -> Result<u8, Malformed> {
        let byte = *self.bytes.get(self.at).ok_or(Malformed)?;
        self.at = self.at.wrapping_add(1);
        Ok(byte)
    }

    pub(crate) fn u16(&mut self) -> Result<u16, Malformed> {
        Ok(u16::from_le_bytes(self.array()?))
    }

    pub(crate) fn u32(&mut self) -> Result<u32, Malformed> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    /// Takes the next `count` bytes.
    pub(crate) fn take(&mut self, count: usize) -> Result<&'a [u8], Malformed> {
        let end = self.at.checked_add(count).ok_or(Malformed)?;
        let taken = self.bytes.get(self.at..end).ok_or(Malformed)?;
        self.at = end;
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

    /// Copies the next `count` bytes of `input`, at most [`WIDE`].
    pub(crate) fn copy_few(
        &mut self,
        input: &mut Input<'_>,
        count: usize,
    ) -> Result<(), Malformed> {
        let from = input.bytes.get(input.at..).and_then(|rest| rest.first_chunk::<WIDE>());
        let to = self.bytes.get_mut(self.at..).and_then(|rest| rest.first_chunk_mut::<WIDE>());
        if count <= WIDE
            && let (Some(from), Some(to)) = (from, to)
        {
            *to = *from;
            input.at = input.at.wrapping_add(count);
            self.at = self.at.wrapping_add(count);
            return Ok(());
        }
        self.copy(input.take(count)?)
    }

    /// Appends `bytes`.
    pub(crate) fn copy(&mut self, bytes: &[u8]) -> Result<(), Malformed> {
        let end = self.at.checked_add(bytes.len()).ok_or(Malformed)?;
        self.bytes.get_mut(self.at..end).ok_or(Malformed)?.copy_from_slice(bytes);
        self.at = end;
        Ok(())
    }

    /// Appends `length` bytes, the first of which is the one `distance` bytes before. They may overlap.
    pub(crate) fn repeat(&mut self, distance: usize, length: usize) -> Result<(), Malformed> {
        let end = self.at.checked_add(length).ok_or(Malformed)?;
        let from = self.at.checked_sub(distance).ok_or(Malformed)?;
        if end > self.bytes.len() || distance == 0 {
            return Err(Malformed);
        }
        let to = match distance {
            16.. => self.by_chunks::<16>(from, end),
            8..16 => self.by_chunks::<8>(from, end),
            _ => self.by_pattern(from, distance, end),
        };
        // The rest is close to the end of the output, so it is copied in steps of the distance.
        let mut to = to;
        while to < end {
            let from = to.saturating_sub(distance);
            let count = distance.min(end.saturating_sub(to));
            self.bytes.copy_within(from..from.saturating_add(count), to);
            to = to.saturating_add(count);
        }
        self.at = end;
        Ok(())
    }

    /// Repeats the bytes from `from` on, which are at least `N` before, until `end`, or until the output
    /// has less than `N` bytes. Returns the end of what is repeated.
    #[inline]
    fn by_chunks<const N: usize>(&mut self, mut from: usize, end: usize) -> usize {
        let mut to = self.at;
        while to < end {
            let chunk = self.bytes.get(from..).and_then(|rest| rest.first_chunk::<N>());
            let Some(chunk) = chunk.copied() else { break };
            let room = self.bytes.get_mut(to..).and_then(|rest| rest.first_chunk_mut::<N>());
            let Some(room) = room else { break };
            *room = chunk;
            from = from.wrapping_add(N);
            to = to.wrapping_add(N);
        }
        to.min(end)
    }

    /// Like [`Self::by_chunks`], for fewer than eight bytes that are repeated.
    fn by_pattern(&mut self, from: usize, distance: usize, end: usize) -> usize {
        let mut pattern = [0u8; 16];
        let known = self.bytes.get(from..self.at).unwrap_or_default();
        for (byte, of_pattern) in known.iter().cycle().zip(&mut pattern) {
            *of_pattern = *byte;
        }
        let step = 16usize.wrapping_sub(16usize.checked_rem(distance).unwrap_or(0));
        let mut to = self.at;
        while to < end {
            let room = self.bytes.get_mut(to..).and_then(|rest| rest.first_chunk_mut());
            let Some(room) = room else { break };
            *room = pattern;
            to = to.wrapping_add(step);
        }
        to.min(end)
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

    /// Appends `count` bytes of `from`, which begin at `at`, at most [`WIDE`].
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
