//! NetrDfsEnum and NetrDfsEnumEx, MS-DFSNM 3.1.4.1.7 and 3.1.4.2.3.

use super::info::{DfsInfo, read_deferred, read_fixed};
use super::levels;
use crate::WinError;
use crate::limits::MAX_NAMESPACE_ENTRIES;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// The arguments of NetrDfsEnum or NetrDfsEnumEx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Enumeration {
    /// DfsEntryPath of NetrDfsEnumEx; None for NetrDfsEnum.
    pub path: Option<String>,
    /// Level
    pub level: u32,
    /// PrefMaxLen, in bytes of the structures of Windows.
    pub max_len: u32,
    /// True if DfsEnum is not a null pointer.
    pub has_info: bool,
    /// ResumeHandle; None for a null pointer.
    pub resume: Option<u32>,
}

impl Enumeration {
    /// Parses the stub data of NetrDfsEnum.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        Self::read(&mut NdrReader::new(stub), None)
    }

    /// Parses the stub data of NetrDfsEnumEx.
    pub fn parse_ex(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let path = r.string("DfsEntryPath")?.decode()?;
        Self::read(&mut r, Some(path))
    }

    fn read(r: &mut NdrReader<'_>, path: Option<String>) -> Parsed<Self> {
        let what = "NetrDfsEnum";
        let (level, max_len) = (r.u32(what)?, r.u32(what)?);
        let has_info = r.pointer("DfsEnum")?;
        if has_info {
            read_enum_struct(r)?;
        }
        let resume = if r.pointer("ResumeHandle")? { Some(r.u32("ResumeHandle")?) } else { None };
        Ok(Self { path, level, max_len, has_info, resume })
    }

    /// Returns the stub data of a request.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        if let Some(path) = &self.path {
            w.string(path);
        }
        w.u32(self.level).u32(self.max_len).pointer(self.has_info);
        if self.has_info {
            w.u32(self.level).u32(self.level);
            if levels::of_enumeration(self.level).is_some() {
                w.pointer(true).u32(0).pointer(false);
            }
        }
        write_resume(&mut w, self.resume);
        w.into_stub()
    }

    /// The entries that PrefMaxLen permits. MS-DFSNM 3.1.4.2.3 note 96: it is divided by the size of a
    /// structure, and one entry is always returned.
    pub(super) fn most(&self) -> usize {
        if self.max_len == u32::MAX {
            return usize::MAX;
        }
        let most = self.max_len.checked_div(levels::native_size(self.level)).unwrap_or(0).max(1);
        usize::try_from(most).unwrap_or(usize::MAX)
    }

    /// The index of the first entry. MS-DFSNM 3.1.4.2.3 note 97: the handle is an index.
    pub(super) fn start(&self) -> usize {
        usize::try_from(self.resume.unwrap_or(0)).unwrap_or(usize::MAX)
    }
}

/// Reads a DFS_INFO_ENUM_STRUCT. The entries of a request have no meaning. Returns those of an answer.
fn read_enum_struct(r: &mut NdrReader<'_>) -> Parsed<Vec<DfsInfo>> {
    let what = "DFS_INFO_ENUM_STRUCT";
    let level = r.u32(what)?;
    if r.u32(what)? != level {
        return Err(Malformed::new(what));
    }
    let Some(fields) = levels::of_enumeration(level) else { return Ok(Vec::new()) };
    if !r.pointer(what)? {
        return Ok(Vec::new());
    }
    let entries = r.u32(what)?;
    if !r.pointer(what)? {
        return if entries == 0 { Ok(Vec::new()) } else { Err(Malformed::new(what)) };
    }
    let count = r.array(entries, levels::least_size(fields), what)?;
    if count > MAX_NAMESPACE_ENTRIES {
        return Err(Malformed::new(what));
    }
    let halves = (0..count).map(|_| read_fixed(r, fields)).collect::<Parsed<Vec<_>>>()?;
    halves.into_iter().map(|half| read_deferred(r, fields, half)).collect()
}

fn write_resume(w: &mut NdrWriter, resume: Option<u32>) {
    w.pointer(resume.is_some());
    if let Some(resume) = resume {
        w.u32(resume);
    }
}

/// The results of NetrDfsEnum or NetrDfsEnumEx.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EnumerationReply {
    /// The entries; None if the request has had no DfsEnum.
    pub entries: Option<Vec<DfsInfo>>,
    /// ResumeHandle, if the request has had one.
    pub resume: Option<u32>,
    /// The return value.
    pub status: WinError,
}

impl EnumerationReply {
    /// Returns the stub data of the answer to a request of `level`.
    pub fn encode(&self, level: u32) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.pointer(self.entries.is_some());
        if let Some(entries) = &self.entries {
            w.u32(level).u32(level);
            if let Some(fields) = levels::of_enumeration(level) {
                let count = u32::try_from(entries.len()).unwrap_or(u32::MAX);
                w.pointer(true).u32(count).pointer(count > 0);
                if count > 0 {
                    w.u32(count);
                    entries.iter().for_each(|entry| entry.encode_fixed(&mut w, fields));
                    entries.iter().for_each(|entry| entry.encode_deferred(&mut w, fields));
                }
            }
        }
        write_resume(&mut w, self.resume);
        w.u32(self.status.0);
        w.into_stub()
    }

    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let entries = if r.pointer("DfsEnum")? { Some(read_enum_struct(&mut r)?) } else { None };
        let resume = if r.pointer("ResumeHandle")? { Some(r.u32("ResumeHandle")?) } else { None };
        Ok(Self { entries, resume, status: WinError(r.u32("return value")?) })
    }
}
