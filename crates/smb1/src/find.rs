//! Searches: TRANS2_FIND_FIRST2, TRANS2_FIND_NEXT2 and FIND_CLOSE2, MS-CIFS 2.2.6.2, 2.2.6.3, 2.2.4.48.

use alloc::string::String;
use alloc::vec::Vec;

use frevo_wire::codec::{Malformed, Parsed, Reader, Writer};
use frevo_wire::dtyp::FileTime;

use crate::charset::{Charset, Unmappable};
use crate::header::Command;
use crate::info::{DosZone, dos_time};
use crate::message::{Request, words};
use crate::transaction::{FIND_FIRST2, FIND_NEXT2, Results, transaction2};

/// The form of the entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Level {
    /// SMB_INFO_STANDARD, MS-CIFS 2.2.8.1.1: for servers without CAP_NT_FIND.
    Standard,
    /// SMB_FIND_FILE_BOTH_DIRECTORY_INFO, MS-CIFS 2.2.8.1.7.
    BothDirectory,
}

impl Level {
    const fn number(self) -> u16 {
        match self {
            Self::Standard => 0x0001,
            Self::BothDirectory => 0x0104,
        }
    }
}

/// An entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// FileName
    pub name: String,
    /// CreationTime
    pub created: FileTime,
    /// LastAccessTime
    pub accessed: FileTime,
    /// LastWriteTime
    pub written: FileTime,
    /// LastChangeTime
    pub changed: FileTime,
    /// EndOfFile
    pub len: u64,
    /// AllocationSize
    pub allocation: u64,
    /// ExtFileAttributes
    pub attributes: u32,
    /// EaSize, or the tag of a reparse point.
    pub ea_size: u32,
}

/// A search that a server keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SearchId(pub u16);

/// The answer to a search.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// The entries.
    pub entries: Vec<Entry>,
    /// True if there are no more, and the server has closed the search.
    pub is_end: bool,
}

/// The parts of a search that all its requests share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Search {
    /// The form of strings.
    pub charset: Charset,
    /// The form of entries.
    pub level: Level,
    /// The server's time zone, for [`Level::Standard`].
    pub zone: DosZone,
}

/// SearchAttributes: hidden and system entries and directories, too.
const ALL: u16 = 0x16;
/// Entries of an answer that are asked for; the server returns as many as fit.
const COUNT: u16 = 2_048;
/// SMB_FIND_CLOSE_AT_EOS
const CLOSE_AT_END: u16 = 0x0002;
/// SMB_FIND_CONTINUE_FROM_LAST
const CONTINUE: u16 = 0x0008;

impl Search {
    fn string(self, w: &mut Writer<'_>, text: &str) -> Result<(), Unmappable> {
        w.bytes(&self.charset.encode(text)?).bytes(self.charset.end());
        Ok(())
    }

    /// Returns the request that begins a search for a path with a pattern.
    ///
    /// # Errors
    /// If the code page lacks a character of the path.
    pub fn first(self, pattern: &str) -> Result<Request<'static>, Unmappable> {
        let mut parameters = Vec::new();
        let w = &mut Writer::new(&mut parameters);
        w.u16(ALL).u16(COUNT).u16(CLOSE_AT_END).u16(self.level.number()).u32(0);
        self.string(w, pattern)?;
        transaction2(self.charset, FIND_FIRST2, &parameters, &[])
    }

    /// Returns the request for more entries, behind the entry `last`.
    ///
    /// # Errors
    /// If the code page lacks a character of the name.
    pub fn next(self, id: SearchId, last: &str) -> Result<Request<'static>, Unmappable> {
        let mut parameters = Vec::new();
        let w = &mut Writer::new(&mut parameters);
        w.u16(id.0).u16(COUNT).u16(self.level.number()).u32(0).u16(CLOSE_AT_END | CONTINUE);
        self.string(w, last)?;
        transaction2(self.charset, FIND_NEXT2, &parameters, &[])
    }

    /// Parses the answer to [`Self::first`].
    ///
    /// # Errors
    /// If it is malformed.
    pub fn first_found(self, results: &Results) -> Parsed<(SearchId, Page)> {
        let r = &mut results.reader();
        let id = SearchId(r.u16("SID")?);
        Ok((id, self.found(r, results)?))
    }

    /// Parses the answer to [`Self::next`].
    ///
    /// # Errors
    /// If it is malformed.
    pub fn next_found(self, results: &Results) -> Parsed<Page> {
        self.found(&mut results.reader(), results)
    }

    fn found(self, r: &mut Reader<'_>, results: &Results) -> Parsed<Page> {
        let count = usize::from(r.u16("SearchCount")?);
        let is_end = r.u16("EndOfSearch")? != 0;
        let entries = match self.level {
            Level::BothDirectory => self.both_directory(&results.data, count)?,
            Level::Standard => self.standard(&results.data, count)?,
        };
        // A search that goes on without entries would go on for ever.
        Ok(Page { is_end: is_end || entries.is_empty(), entries })
    }

    fn both_directory(self, data: &[u8], count: usize) -> Parsed<Vec<Entry>> {
        let mut entries = Vec::with_capacity(count.min(data.len() / BOTH_FIXED));
        let mut rest = data;
        for _ in 0..count {
            let r = &mut Reader::new(rest);
            let next = usize::try_from(r.u32("NextEntryOffset")?).unwrap_or(usize::MAX);
            entries.push(self.both_entry(r)?);
            // The last entry of smbd points to the end of the data, or behind it.
            if next == 0 || entries.len() == count {
                break;
            }
            if next < BOTH_FIXED || next > rest.len() {
                return Err(Malformed::new("NextEntryOffset"));
            }
            rest = rest.get(next..).unwrap_or_default();
        }
        Ok(entries)
    }

    fn both_entry(self, r: &mut Reader<'_>) -> Parsed<Entry> {
        r.skip(4, "FileIndex")?;
        let created = FileTime(r.u64("CreationTime")?);
        let accessed = FileTime(r.u64("LastAccessTime")?);
        let written = FileTime(r.u64("LastWriteTime")?);
        let changed = FileTime(r.u64("LastChangeTime")?);
        let len = r.u64("EndOfFile")?;
        let allocation = r.u64("AllocationSize")?;
        let attributes = r.u32("ExtFileAttributes")?;
        let name_len = usize::try_from(r.u32("FileNameLength")?).unwrap_or(usize::MAX);
        let ea_size = r.u32("EaSize")?;
        r.skip(26, "ShortName")?;
        let name = self.charset.decode(r.take(name_len, "FileNameLength")?)?;
        Ok(Entry {
            name,
            created,
            accessed,
            written,
            changed,
            len,
            allocation,
            attributes,
            ea_size,
        })
    }

    fn standard(self, data: &[u8], count: usize) -> Parsed<Vec<Entry>> {
        let mut entries = Vec::with_capacity(count.min(data.len() / STANDARD_FIXED));
        let r = &mut Reader::new(data);
        for _ in 0..count {
            let mut time = |what| {
                let (date, time) = (r.u16(what)?, r.u16(what)?);
                Ok(dos_time(date, time, self.zone))
            };
            let created = time("CreationDate")?;
            let accessed = time("LastAccessDate")?;
            let written = time("LastWriteDate")?;
            let len = u64::from(r.u32("DataSize")?);
            let allocation = u64::from(r.u32("AllocationSize")?);
            let attributes = u32::from(r.u16("Attributes")?);
            let name_len = usize::from(r.u8("FileNameLength")?);
            if self.charset == Charset::Unicode && !r.position().is_multiple_of(2) {
                r.skip(1, "padding")?;
            }
            let name = self.charset.decode(r.take(name_len, "FileNameLength")?)?;
            let _ = r.skip(self.charset.end().len(), "terminator");
            let (changed, ea_size) = (written, 0);
            entries.push(Entry {
                name,
                created,
                accessed,
                written,
                changed,
                len,
                allocation,
                attributes,
                ea_size,
            });
        }
        Ok(entries)
    }
}

/// Bytes of an entry before its name.
const BOTH_FIXED: usize = 94;

/// Bytes of a short entry before its name.
const STANDARD_FIXED: usize = 23;

/// Returns the request that ends a search before its end.
pub fn close(id: SearchId) -> Request<'static> {
    let words = words(|w| {
        w.u16(id.0);
    });
    Request::new(Command::FIND_CLOSE2, words, Vec::new())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::CodePage;
    use proptest::prelude::*;

    const UNICODE: Search = Search {
        charset: Charset::Unicode,
        level: Level::BothDirectory,
        zone: DosZone { minutes: 0 },
    };
    const OLD: Search = Search {
        charset: Charset::Oem(CodePage::Cp850),
        level: Level::Standard,
        zone: DosZone { minutes: -60 },
    };

    fn both(next: u32, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let w = &mut Writer::new(&mut bytes);
        w.u32(next).u32(0).u64(1).u64(2).u64(3).u64(4).u64(5).u64(6).u32(0x20);
        w.u32(u32::try_from(name.encode_utf16().count() * 2).unwrap()).u32(7).zeros(26);
        w.utf16(name);
        bytes
    }

    fn results(count: u16, end: u16, data: Vec<u8>) -> Results {
        let mut parameters = Vec::new();
        Writer::new(&mut parameters).u16(count).u16(end).u16(0).u16(0);
        Results { parameters, data }
    }

    #[test]
    fn entries_follow_each_other() {
        let data = [both(100, "abc"), both(96, "ä")].concat();
        let found = UNICODE.next_found(&results(2, 0, data)).unwrap();
        let names: Vec<_> = found.entries.iter().map(|entry| &*entry.name).collect();
        assert_eq!(names, ["abc", "ä"]);
        let one = &found.entries[0];
        assert_eq!((one.written.0, one.len, one.allocation, one.attributes), (3, 5, 6, 0x20));
        assert!(!found.is_end);
    }

    #[test]
    fn a_search_without_entries_ends() {
        assert!(UNICODE.next_found(&results(0, 0, Vec::new())).unwrap().is_end);
    }

    #[test]
    fn wrong_offsets_and_lengths_are_refused() {
        let of = |next, data: Vec<u8>| {
            let mut data = [both(next, "abc"), data].concat();
            data.extend_from_slice(&both(0, "x"));
            UNICODE.next_found(&results(3, 0, data))
        };
        assert!(of(100, Vec::new()).is_ok());
        for next in [1, 93, 1_000, u32::MAX] {
            assert!(of(next, Vec::new()).is_err(), "{next}");
        }
        let mut long = both(0, "abc");
        long[60] = 7;
        assert!(UNICODE.next_found(&results(1, 0, long)).is_err(), "half a character");
        let mut long = both(0, "abc");
        long[63] = 0xFF;
        assert!(UNICODE.next_found(&results(1, 0, long)).is_err(), "a name beyond the end");
    }

    #[test]
    fn short_entries_have_the_time_of_the_server() {
        let mut data = Vec::new();
        // 1999-12-31 23:59:58 an hour east of Greenwich.
        let (date, time) = ((19 << 9) | (12 << 5) | 31, (23 << 11) | (59 << 5) | 29);
        let w = &mut Writer::new(&mut data);
        w.u16(date).u16(time).u16(0).u16(0).u16(date).u16(time).u32(5).u32(512).u16(0x21);
        w.u8(5).bytes(b"A\x8EB.C\0");
        let found = OLD.next_found(&results(1, 1, data)).unwrap();
        let one = &found.entries[0];
        assert_eq!((&*one.name, one.len, one.attributes), ("AÄB.C", 5, 0x21));
        assert_eq!(one.written.to_unix(), (946_681_198, 0));
        assert_eq!(one.accessed, FileTime::ZERO);
        assert!(found.is_end);
    }

    proptest! {
        #[test]
        fn any_answer_is_parsed(
            parameters in proptest::collection::vec(any::<u8>(), 0..12),
            data in proptest::collection::vec(any::<u8>(), 0..300),
        ) {
            let results = Results { parameters, data };
            for search in [UNICODE, OLD, Search { charset: Charset::Unicode, ..OLD }] {
                let _ = search.first_found(&results);
                let _ = search.next_found(&results);
            }
        }
    }
}
