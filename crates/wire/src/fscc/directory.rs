//! Directory entries of every class that QUERY_DIRECTORY lists, MS-FSCC 2.4.8, .10, .15, .18-.24,
//! .33, and level 100 of the POSIX extensions.
//!
//! Listings must be fast: an entry is written without allocation, and its name is converted from
//! UTF-8 directly into the reply.

use super::FileInfoClass;
use super::list::{Entries, ListWriter, Pushed};
use super::name::{ShortName, WireName, read_counted, utf16_len};
use super::posix::PosixAttributes;
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::dtyp::{FileAttributes, FileTime};
use alloc::vec::Vec;
use zerocopy::little_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One entry of a directory, with the fields of all classes. `N` is `&str` for writing and
/// [`WireName`] after parsing. A field that the class does not have is ignored by the writer and
/// zero after parsing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct DirectoryEntry<N> {
    /// FileName: one component, or a dot directory name.
    pub name: N,
    /// ShortName, of the "Both" classes.
    pub short_name: ShortName,
    /// FileIndex: zero because positions in a directory are not stable.
    pub file_index: u32,
    /// CreationTime
    pub creation_time: FileTime,
    /// LastAccessTime
    pub last_access_time: FileTime,
    /// LastWriteTime
    pub last_write_time: FileTime,
    /// ChangeTime
    pub change_time: FileTime,
    /// EndOfFile, in bytes.
    pub end_of_file: u64,
    /// AllocationSize, in bytes.
    pub allocation_size: u64,
    /// FileAttributes
    pub attributes: FileAttributes,
    /// EaSize, in bytes. In the older classes a reparse point has its tag in this field.
    pub ea_size: u32,
    /// ReparsePointTag; zero for an entry that is no reparse point.
    pub reparse_tag: u32,
    /// FileId of 64 bits; in the POSIX class the inode number.
    pub file_id: u64,
    /// FileId of 128 bits.
    pub file_id_128: [u8; 16],
    /// The fields that only the POSIX class has. If they are missing, an entry of that class has no
    /// owner and mode 0.
    pub posix: Option<PosixAttributes>,
    /// Reserved2 of FileIdBothDirectoryInformation: zero, except for macOS.
    pub reserved2: u16,
}

/// The fields behind the part that nearly all classes share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Layout {
    common: bool,
    ea_size: bool,
    separate_tag: bool,
    short_name: bool,
    file_id: FileIdShape,
    posix: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum FileIdShape {
    None,
    /// After the short name and two reserved bytes.
    AfterShortName,
    /// After four reserved bytes.
    AfterReserved,
    Narrow,
    Wide,
    NarrowAndWide,
}

const NAMES: Layout = Layout {
    common: false,
    ea_size: false,
    separate_tag: false,
    short_name: false,
    file_id: FileIdShape::None,
    posix: false,
};
const DIRECTORY: Layout = Layout { common: true, ..NAMES };
const FULL: Layout = Layout { ea_size: true, ..DIRECTORY };
const BOTH: Layout = Layout { short_name: true, ..FULL };
const EXTD: Layout = Layout { separate_tag: true, ..FULL };

impl Layout {
    const fn of(class: FileInfoClass) -> Option<Self> {
        Some(match class {
            FileInfoClass::DIRECTORY => DIRECTORY,
            FileInfoClass::FULL_DIRECTORY => FULL,
            FileInfoClass::BOTH_DIRECTORY => BOTH,
            FileInfoClass::NAMES => NAMES,
            FileInfoClass::ID_BOTH_DIRECTORY => {
                Self { file_id: FileIdShape::AfterShortName, ..BOTH }
            }
            FileInfoClass::ID_FULL_DIRECTORY => {
                Self { file_id: FileIdShape::AfterReserved, ..FULL }
            }
            FileInfoClass::ID_EXTD_DIRECTORY => Self { file_id: FileIdShape::Wide, ..EXTD },
            FileInfoClass::ID64_EXTD_DIRECTORY => Self { file_id: FileIdShape::Narrow, ..EXTD },
            FileInfoClass::ID64_EXTD_BOTH_DIRECTORY => {
                Self { file_id: FileIdShape::Narrow, short_name: true, ..EXTD }
            }
            FileInfoClass::ID_ALL_EXTD_DIRECTORY => {
                Self { file_id: FileIdShape::NarrowAndWide, ..EXTD }
            }
            FileInfoClass::ID_ALL_EXTD_BOTH_DIRECTORY => {
                Self { file_id: FileIdShape::NarrowAndWide, short_name: true, ..EXTD }
            }
            FileInfoClass::POSIX => Self { posix: true, ..NAMES },
            _ => return None,
        })
    }

    /// Returns the bytes before FileName, without the variable part of the POSIX class.
    const fn fixed_size(self) -> usize {
        if self.posix {
            return POSIX_FIXED;
        }
        if !self.common {
            return NAMES_FIXED;
        }
        let id: usize = match self.file_id {
            FileIdShape::None => 0,
            FileIdShape::AfterShortName => 10,
            FileIdShape::AfterReserved => 12,
            FileIdShape::Narrow => 8,
            FileIdShape::Wide => 16,
            FileIdShape::NarrowAndWide => 24,
        };
        let mut size = COMMON_SIZE.saturating_add(id);
        if self.ea_size {
            size = size.saturating_add(4);
        }
        if self.separate_tag {
            size = size.saturating_add(4);
        }
        if self.short_name {
            size = size.saturating_add(26);
        }
        size
    }
}

/// NextEntryOffset, FileIndex, FileNameLength.
const NAMES_FIXED: usize = 12;
/// NextEntryOffset, FileIndex, the POSIX attributes without their SIDs, and
/// the length of the name after the SIDs.
const POSIX_FIXED: usize = 8 + PosixAttributes::FIXED_SIZE + 4;

/// The first part of all classes except NAMES and POSIX.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Common {
    next_entry_offset: U32,
    file_index: U32,
    creation_time: U64,
    last_access_time: U64,
    last_write_time: U64,
    change_time: U64,
    end_of_file: U64,
    allocation_size: U64,
    attributes: U32,
    name_len: U32,
}

const COMMON_SIZE: usize = 64;
const _: () = assert!(size_of::<Common>() == COMMON_SIZE);

/// Returns the bytes before the name in an entry of `class`: a buffer with less room is answered
/// with STATUS_INFO_LENGTH_MISMATCH, MS-FSA 2.1.5.6.3. `None` if the class has no directory
/// entries.
pub const fn fixed_size(class: FileInfoClass) -> Option<usize> {
    match Layout::of(class) {
        Some(layout) => Some(layout.fixed_size()),
        None => None,
    }
}

/// Writes the entries of a QUERY_DIRECTORY reply.
#[derive(Debug)]
pub struct DirectoryWriter<'a> {
    list: ListWriter<'a>,
    layout: Layout,
    fixed: usize,
}

impl<'a> DirectoryWriter<'a> {
    /// Makes a writer of entries of `class` to `out`, at most `max_len` bytes. `None` if the class
    /// has no directory entries.
    pub fn new(out: &'a mut Vec<u8>, class: FileInfoClass, max_len: usize) -> Option<Self> {
        let layout = Layout::of(class)?;
        Some(Self { list: ListWriter::new(out, 8, max_len), layout, fixed: layout.fixed_size() })
    }

    /// Appends an entry if it fits completely. The alignment of a following entry does not count.
    pub fn push(&mut self, entry: &DirectoryEntry<&str>) -> Pushed {
        let name_len = utf16_len(entry.name);
        let sids = if self.layout.posix { posix_of(entry).sids_len() } else { 0 };
        let size = self.fixed.saturating_add(name_len).saturating_add(sids);
        let Ok(wire_len) = u32::try_from(name_len) else { return Pushed::Full };
        let Some(out) = self.list.begin(size) else { return Pushed::Full };
        out.reserve(size);
        if self.layout.posix {
            write_posix(out, entry, wire_len);
        } else if self.layout.common {
            write_common(out, entry, wire_len);
            write_rest(out, entry, self.layout);
        } else {
            Writer::new(out).u32(0).u32(entry.file_index).u32(wire_len);
        }
        append_name(out, entry.name);
        Pushed::Fits
    }

    /// Returns the number of bytes written.
    pub fn len(&self) -> usize {
        self.list.len()
    }

    /// True if no entry has been written.
    pub const fn is_empty(&self) -> bool {
        self.list.is_empty()
    }
}

fn write_common(out: &mut Vec<u8>, entry: &DirectoryEntry<&str>, name_len: u32) {
    let common = Common {
        next_entry_offset: U32::ZERO,
        file_index: entry.file_index.into(),
        creation_time: entry.creation_time.0.into(),
        last_access_time: entry.last_access_time.0.into(),
        last_write_time: entry.last_write_time.0.into(),
        change_time: entry.change_time.0.into(),
        end_of_file: entry.end_of_file.into(),
        allocation_size: entry.allocation_size.into(),
        attributes: entry.attributes.0.into(),
        name_len: name_len.into(),
    };
    out.extend_from_slice(common.as_bytes());
}

fn write_rest(out: &mut Vec<u8>, entry: &DirectoryEntry<&str>, layout: Layout) {
    let mut w = Writer::new(out);
    if layout.ea_size {
        let is_reparse = entry.attributes.contains(FileAttributes::REPARSE_POINT);
        let tag_instead = is_reparse && !layout.separate_tag;
        w.u32(if tag_instead { entry.reparse_tag } else { entry.ea_size });
    }
    if layout.separate_tag {
        w.u32(entry.reparse_tag);
    }
    match layout.file_id {
        FileIdShape::None | FileIdShape::AfterShortName => {}
        FileIdShape::AfterReserved => {
            w.u32(0).u64(entry.file_id);
        }
        FileIdShape::Narrow => {
            w.u64(entry.file_id);
        }
        FileIdShape::Wide => {
            w.bytes(&entry.file_id_128);
        }
        FileIdShape::NarrowAndWide => {
            w.u64(entry.file_id).bytes(&entry.file_id_128);
        }
    }
    if layout.short_name {
        w.u8(entry.short_name.len_bytes()).u8(0).bytes(entry.short_name.padded());
    }
    if layout.file_id == FileIdShape::AfterShortName {
        w.u16(entry.reserved2).u64(entry.file_id);
    }
}

fn posix_of(entry: &DirectoryEntry<&str>) -> PosixAttributes {
    let mut posix = entry.posix.unwrap_or_default();
    posix.creation_time = entry.creation_time;
    posix.last_access_time = entry.last_access_time;
    posix.last_write_time = entry.last_write_time;
    posix.change_time = entry.change_time;
    posix.end_of_file = entry.end_of_file;
    posix.allocation_size = entry.allocation_size;
    posix.attributes = entry.attributes;
    posix.inode = entry.file_id;
    posix.reparse_tag = entry.reparse_tag;
    posix
}

fn write_posix(out: &mut Vec<u8>, entry: &DirectoryEntry<&str>, name_len: u32) {
    let mut w = Writer::new(out);
    w.u32(0).u32(entry.file_index);
    posix_of(entry).encode(&mut w);
    w.u32(name_len);
}

/// Appends `name` in UTF-16LE. For ASCII, the common case, the compiler vectorises the loop.
fn append_name(out: &mut Vec<u8>, name: &str) {
    if !name.is_ascii() {
        Writer::new(out).utf16(name);
        return;
    }
    let at = out.len();
    out.resize(at.saturating_add(name.len().saturating_mul(2)), 0);
    let (pairs, _) = out.get_mut(at..).unwrap_or_default().as_chunks_mut::<2>();
    for (pair, byte) in pairs.iter_mut().zip(name.bytes()) {
        *pair = [byte, 0];
    }
}

/// Reads the entries of a QUERY_DIRECTORY reply.
#[derive(Debug, Clone)]
pub struct DirectoryEntries<'a> {
    entries: Entries<'a>,
    layout: Layout,
}

impl<'a> DirectoryEntries<'a> {
    /// Makes an iterator over entries of `class` in `bytes`; `None` if the class has no directory
    /// entries.
    pub fn new(bytes: &'a [u8], class: FileInfoClass) -> Option<Self> {
        let layout = Layout::of(class)?;
        let entries = Entries::new(bytes, layout.fixed_size(), "directory entry");
        Some(Self { entries, layout })
    }
}

impl<'a> Iterator for DirectoryEntries<'a> {
    type Item = Parsed<DirectoryEntry<WireName<'a>>>;

    fn next(&mut self) -> Option<Self::Item> {
        let bytes = self.entries.next()?;
        Some(bytes.and_then(|bytes| read_entry(bytes, self.layout)))
    }
}

fn read_entry(bytes: &[u8], layout: Layout) -> Parsed<DirectoryEntry<WireName<'_>>> {
    let mut r = Reader::new(bytes);
    let what = "directory entry";
    let mut entry = DirectoryEntry::default();
    if !layout.common {
        r.skip(4, what)?;
        entry.file_index = r.u32(what)?;
        if layout.posix {
            read_posix(&mut r, &mut entry)?;
        }
        entry.name = read_counted(&mut r, "FileNameLength")?;
        return Ok(entry);
    }
    let name_len = read_common(&mut r, &mut entry)?;
    read_rest(&mut r, &mut entry, layout)?;
    let name_len = usize::try_from(name_len).map_err(|_| Malformed::new("FileNameLength"))?;
    entry.name = WireName::new(r.take(name_len, "FileNameLength")?)?;
    Ok(entry)
}

fn read_common(r: &mut Reader<'_>, entry: &mut DirectoryEntry<WireName<'_>>) -> Parsed<u32> {
    let what = "directory entry";
    let common =
        Common::ref_from_bytes(r.take(COMMON_SIZE, what)?).map_err(|_| Malformed::new(what))?;
    entry.file_index = common.file_index.get();
    entry.creation_time = FileTime(common.creation_time.get());
    entry.last_access_time = FileTime(common.last_access_time.get());
    entry.last_write_time = FileTime(common.last_write_time.get());
    entry.change_time = FileTime(common.change_time.get());
    entry.end_of_file = common.end_of_file.get();
    entry.allocation_size = common.allocation_size.get();
    entry.attributes = FileAttributes(common.attributes.get());
    Ok(common.name_len.get())
}

fn read_rest(
    r: &mut Reader<'_>,
    entry: &mut DirectoryEntry<WireName<'_>>,
    layout: Layout,
) -> Parsed<()> {
    let what = "directory entry";
    if layout.ea_size {
        entry.ea_size = r.u32(what)?;
        if entry.attributes.contains(FileAttributes::REPARSE_POINT) && !layout.separate_tag {
            entry.reparse_tag = core::mem::take(&mut entry.ea_size);
        }
    }
    if layout.separate_tag {
        entry.reparse_tag = r.u32(what)?;
    }
    match layout.file_id {
        FileIdShape::None | FileIdShape::AfterShortName => {}
        FileIdShape::AfterReserved => {
            r.skip(4, what)?;
            entry.file_id = r.u64(what)?;
        }
        FileIdShape::Narrow => entry.file_id = r.u64(what)?,
        FileIdShape::Wide => entry.file_id_128 = r.array(what)?,
        FileIdShape::NarrowAndWide => {
            entry.file_id = r.u64(what)?;
            entry.file_id_128 = r.array(what)?;
        }
    }
    if layout.short_name {
        let len = r.u8(what)?;
        r.skip(1, what)?;
        entry.short_name = ShortName::from_wire(len, r.array(what)?)?;
    }
    if layout.file_id == FileIdShape::AfterShortName {
        entry.reserved2 = r.u16(what)?;
        entry.file_id = r.u64(what)?;
    }
    Ok(())
}

fn read_posix(r: &mut Reader<'_>, entry: &mut DirectoryEntry<WireName<'_>>) -> Parsed<()> {
    let posix = PosixAttributes::read(r)?;
    entry.creation_time = posix.creation_time;
    entry.last_access_time = posix.last_access_time;
    entry.last_write_time = posix.last_write_time;
    entry.change_time = posix.change_time;
    entry.end_of_file = posix.end_of_file;
    entry.allocation_size = posix.allocation_size;
    entry.attributes = posix.attributes;
    entry.file_id = posix.inode;
    entry.reparse_tag = posix.reparse_tag;
    entry.posix = Some(posix);
    Ok(())
}
