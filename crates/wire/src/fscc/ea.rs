//! Extended attributes, MS-FSCC 2.4.16.
//!
//! A bad list is answered with STATUS_EA_LIST_INCONSISTENT (or STATUS_INVALID_EA_NAME) and the
//! offset of the bad entry, so the parser returns both.

use super::list::{ListWriter, Pushed};
use crate::codec::{Reader, Writer};
use alloc::vec::Vec;
use core::fmt;

/// An extended attribute. Names are 8-bit and compared without regard to case. Setting an empty
/// value deletes the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ea<'a> {
    /// FILE_NEED_EA: a program that does not know the attribute must not read the file.
    pub need: bool,
    /// EaName without its terminator.
    pub name: &'a [u8],
    /// EaValue
    pub value: &'a [u8],
}

/// The kind of error in a list.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EaFault {
    /// A wrong offset or length: STATUS_EA_LIST_INCONSISTENT.
    Inconsistent,
    /// Wrong flags or characters in a name: STATUS_INVALID_EA_NAME.
    InvalidName,
}

/// An error in a list, with its position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EaError {
    /// The kind of error.
    pub fault: EaFault,
    /// Offset of the bad entry in the list, in bytes.
    pub offset: u32,
}

impl fmt::Display for EaError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let fault = match self.fault {
            EaFault::Inconsistent => "inconsistent entry",
            EaFault::InvalidName => "invalid name",
        };
        write!(f, "extended attribute list: {fault} at offset {}", self.offset)
    }
}

impl core::error::Error for EaError {}

const FILE_NEED_EA: u8 = 0x80;
/// NextEntryOffset, Flags, EaNameLength, EaValueLength.
const EA_FIXED: usize = 8;
/// NextEntryOffset, EaNameLength.
const GET_EA_FIXED: usize = 5;

/// True if `name` is a valid name of an extended attribute, MS-FSCC 2.4.16.
pub fn is_valid_name(name: &[u8]) -> bool {
    let invalid = |b: &u8| *b < 0x20 || br#"\/:*?"<>|,+=[];"#.contains(b);
    !name.is_empty() && name.len() < 255 && !name.iter().any(invalid)
}

/// Walks a list of four-byte aligned entries of either kind.
#[derive(Debug, Clone)]
struct Chain<'a> {
    list: &'a [u8],
    at: Option<usize>,
}

impl<'a> Chain<'a> {
    const fn new(list: &'a [u8]) -> Self {
        Self { list, at: if list.is_empty() { None } else { Some(0) } }
    }

    /// Reads the present entry with `read`, which returns it, its size and its NextEntryOffset, and
    /// moves on. An error ends the walk.
    fn step<T>(
        &mut self,
        read: impl FnOnce(&'a [u8]) -> Result<(T, usize, u32), EaFault>,
    ) -> Option<Result<T, EaError>> {
        let at = self.at.take()?;
        let error = |fault| EaError { fault, offset: u32::try_from(at).unwrap_or(u32::MAX) };
        let entry = self.list.get(at..).unwrap_or(&[]);
        let (value, size, next) = match read(entry) {
            Ok(read) => read,
            Err(fault) => return Some(Err(error(fault))),
        };
        if next != 0 {
            let next = usize::try_from(next).unwrap_or(usize::MAX);
            // MS-FSCC 2.4.16: NextEntryOffset is a multiple of four, inside of the list, and after
            // this entry, so that the loop ends.
            if !next.is_multiple_of(4) || next < size || next >= entry.len() {
                return Some(Err(error(EaFault::Inconsistent)));
            }
            self.at = at.checked_add(next);
        }
        Some(Ok(value))
    }
}

/// Reads FILE_FULL_EA_INFORMATION entries.
#[derive(Debug, Clone)]
pub struct EaEntries<'a>(Chain<'a>);

impl<'a> EaEntries<'a> {
    /// Makes an iterator over the entries of `list`.
    pub const fn new(list: &'a [u8]) -> Self {
        Self(Chain::new(list))
    }

    /// Walks the whole list and returns the number of entries or the first error. A set changes
    /// nothing unless the whole list is valid.
    pub fn check(list: &'a [u8]) -> Result<usize, EaError> {
        Self::new(list).try_fold(0usize, |count, entry| entry.map(|_| count.saturating_add(1)))
    }
}

impl<'a> Iterator for EaEntries<'a> {
    type Item = Result<Ea<'a>, EaError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.step(read_ea)
    }
}

fn read_ea(entry: &[u8]) -> Result<(Ea<'_>, usize, u32), EaFault> {
    let mut r = Reader::new(entry);
    let fields = |r: &mut Reader<'_>| Ok((r.u32("EA")?, r.u8("EA")?, r.u8("EA")?, r.u16("EA")?));
    let (next, flags, name_len, value_len) = fields(&mut r).map_err(inconsistent)?;
    let name = read_name(&mut r, name_len)?;
    let value = r.take(usize::from(value_len), "EA").map_err(inconsistent)?;
    if flags & !FILE_NEED_EA != 0 {
        return Err(EaFault::InvalidName);
    }
    Ok((Ea { need: flags != 0, name, value }, r.position(), next))
}

fn inconsistent(_: crate::Malformed) -> EaFault {
    EaFault::Inconsistent
}

/// Reads a name and its terminator.
fn read_name<'a>(r: &mut Reader<'a>, len: u8) -> Result<&'a [u8], EaFault> {
    let name = r.take(usize::from(len), "EA").map_err(inconsistent)?;
    if r.u8("EA").map_err(inconsistent)? != 0 {
        return Err(EaFault::Inconsistent);
    }
    if is_valid_name(name) { Ok(name) } else { Err(EaFault::InvalidName) }
}

/// Writes FILE_FULL_EA_INFORMATION entries, for answers and for requests.
#[derive(Debug)]
pub struct EaWriter<'a>(ListWriter<'a>);

impl<'a> EaWriter<'a> {
    /// Makes a writer of entries to `out`, at most `max_len` bytes.
    pub fn new(out: &'a mut Vec<u8>, max_len: usize) -> Self {
        Self(ListWriter::new(out, 4, max_len))
    }

    /// Appends an entry if it fits whole and its lengths fit their fields.
    pub fn push(&mut self, ea: &Ea<'_>) -> Pushed {
        let (Ok(name_len), Ok(value_len)) =
            (u8::try_from(ea.name.len()), u16::try_from(ea.value.len()))
        else {
            return Pushed::Full;
        };
        let size =
            EA_FIXED.saturating_add(ea.name.len()).saturating_add(1).saturating_add(ea.value.len());
        let Some(out) = self.0.begin(size) else { return Pushed::Full };
        let flags = if ea.need { FILE_NEED_EA } else { 0 };
        Writer::new(out)
            .u32(0)
            .u8(flags)
            .u8(name_len)
            .u16(value_len)
            .bytes(ea.name)
            .u8(0)
            .bytes(ea.value);
        Pushed::Fits
    }

    /// True if no entry has been written.
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// Reads FILE_GET_EA_INFORMATION entries, MS-FSCC 2.4.16.1: the names that a
/// query asks for.
#[derive(Debug, Clone)]
pub struct EaNames<'a>(Chain<'a>);

impl<'a> EaNames<'a> {
    /// The names of `list`; none when it is empty, which asks for all.
    pub const fn new(list: &'a [u8]) -> Self {
        Self(Chain::new(list))
    }
}

impl<'a> Iterator for EaNames<'a> {
    type Item = Result<&'a [u8], EaError>;

    fn next(&mut self) -> Option<Self::Item> {
        self.0.step(|entry| {
            let mut r = Reader::new(entry);
            let next = r.u32("EA").map_err(inconsistent)?;
            let len = r.u8("EA").map_err(inconsistent)?;
            let name = read_name(&mut r, len)?;
            Ok((name, r.position(), next))
        })
    }
}

/// Writes FILE_GET_EA_INFORMATION entries.
#[derive(Debug)]
pub struct EaNamesWriter<'a>(ListWriter<'a>);

impl<'a> EaNamesWriter<'a> {
    /// Appends names to `out`, at most `max_len` bytes.
    pub fn new(out: &'a mut Vec<u8>, max_len: usize) -> Self {
        Self(ListWriter::new(out, 4, max_len))
    }

    /// Appends a name if it fits whole.
    pub fn push(&mut self, name: &[u8]) -> Pushed {
        let Ok(len) = u8::try_from(name.len()) else { return Pushed::Full };
        let size = GET_EA_FIXED.saturating_add(name.len()).saturating_add(1);
        let Some(out) = self.0.begin(size) else { return Pushed::Full };
        Writer::new(out).u32(0).u8(len).bytes(name).u8(0);
        Pushed::Fits
    }
}
