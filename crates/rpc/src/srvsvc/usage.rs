//! Users of the server: sessions, open files and connections to shares. MS-SRVS 3.1.4.1 to
//! 3.1.4.6. NetrWkstaUserEnum, MS-WKST 3.2.4.3, has the same form.

use super::super::WinError;
use super::super::limits::MAX_USAGE_BYTES;
use super::MAX_PREFERRED_LENGTH;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::fscc::name::utf16_len;
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// A session, as SESSION_INFO_502 (MS-SRVS 2.2.4.15) shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SessionInfo {
    /// The client's address, behind `\\`.
    pub client: String,
    /// The name of the session's account.
    pub user: String,
    /// The number of its Opens.
    pub opens: u32,
    /// Seconds since its logon.
    pub seconds: u32,
    /// Seconds since its last request.
    pub idle_seconds: u32,
}

/// An open file, as FILE_INFO_3 (MS-SRVS 2.2.4.7) shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FileInfo {
    /// Its number, by which it can be closed.
    pub id: u32,
    /// PERM_FILE_READ 1, PERM_FILE_WRITE 2, PERM_FILE_CREATE 4.
    pub permissions: u32,
    /// The number of its byte-range locks.
    pub locks: u32,
    /// The share and the path in it.
    pub path: String,
    /// The name of the account that opened the file.
    pub user: String,
}

/// A use of a share, as CONNECTION_INFO_1 (MS-SRVS 2.2.4.2) shows it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ConnectionInfo {
    /// The number of the tree connect.
    pub id: u32,
    /// The type of the share: 0 for files, 3 for pipes.
    pub kind: u32,
    /// The number of Opens through the tree connect.
    pub opens: u32,
    /// Seconds since the session's logon.
    pub seconds: u32,
    /// The name of the session's account.
    pub user: String,
    /// The name of the share.
    pub share: String,
    /// The client's address, behind `\\`. It is asked for, not told.
    pub client: String,
}

/// One field of an entry.
pub(crate) enum Cell<'a> {
    Number(u32),
    Text(&'a str),
}

use Cell::{Number, Text};

/// A list that is told at several levels.
pub(crate) trait Entry {
    /// The fields at a level; None for a level that this list has not.
    fn cells(&self, level: u32) -> Option<Vec<CellOf<'_>>>;
}

/// One field of an entry, as [`Entry`] names it.
pub(crate) struct CellOf<'a>(Cell<'a>);

/// The fields of an entry.
pub(crate) fn cells<'a, const N: usize>(all: [Cell<'a>; N]) -> Option<Vec<CellOf<'a>>> {
    Some(all.into_iter().map(CellOf).collect())
}

impl Entry for SessionInfo {
    fn cells(&self, level: u32) -> Option<Vec<CellOf<'_>>> {
        let Self { client, user, opens, seconds, idle_seconds } = self;
        let (opens, seconds, idle) = (*opens, *seconds, *idle_seconds);
        match level {
            0 => cells([Text(client)]),
            1 => cells([
                Text(client),
                Text(user),
                Number(opens),
                Number(seconds),
                Number(idle),
                Number(0),
            ]),
            2 => cells([
                Text(client),
                Text(user),
                Number(opens),
                Number(seconds),
                Number(idle),
                Number(0),
                Text(""),
            ]),
            10 => cells([Text(client), Text(user), Number(seconds), Number(idle)]),
            502 => cells([
                Text(client),
                Text(user),
                Number(opens),
                Number(seconds),
                Number(idle),
                Number(0),
                Text(""),
                Text(""),
            ]),
            _ => None,
        }
    }
}

impl Entry for FileInfo {
    fn cells(&self, level: u32) -> Option<Vec<CellOf<'_>>> {
        let Self { id, permissions, locks, path, user } = self;
        match level {
            2 => cells([Number(*id)]),
            3 => cells([Number(*id), Number(*permissions), Number(*locks), Text(path), Text(user)]),
            _ => None,
        }
    }
}

impl Entry for ConnectionInfo {
    fn cells(&self, level: u32) -> Option<Vec<CellOf<'_>>> {
        let Self { id, kind, opens, seconds, user, share, .. } = self;
        match level {
            0 => cells([Number(*id)]),
            1 => cells([
                Number(*id),
                Number(*kind),
                Number(*opens),
                Number(1),
                Number(*seconds),
                Text(user),
                Text(share),
            ]),
            _ => None,
        }
    }
}

fn size(cells: &[CellOf<'_>]) -> usize {
    cells.iter().fold(0, |size: usize, CellOf(cell)| {
        let text = match cell {
            // A text takes 12 bytes for MaxCount, Offset and ActualCount, then its characters, and
            // 4 bytes for a terminator and padding.
            Text(text) => utf16_len(text).saturating_add(16),
            Number(_) => 0,
        };
        size.saturating_add(4).saturating_add(text)
    })
}

fn write_entries(w: &mut NdrWriter, entries: &[Vec<CellOf<'_>>]) {
    for CellOf(cell) in entries.iter().flatten() {
        match cell {
            Number(number) => w.u32(*number),
            Text(_) => w.pointer(true),
        };
    }
    // The texts follow the array in the order of its entries, because a text is not stored in its
    // entry.
    for CellOf(cell) in entries.iter().flatten() {
        if let Text(text) = cell {
            w.string(text);
        }
    }
}

/// The arguments of an enumeration: up to two names that choose, then level and limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageEnum {
    /// ClientName, BasePath or Qualifier. None: all.
    pub first: Option<String>,
    /// UserName. None: all.
    pub user: Option<String>,
    /// Level of InfoStruct.
    pub level: u32,
    /// PreferedMaximumLength, in bytes.
    pub max_len: u32,
    /// ResumeHandle, when there is one.
    pub resume: Option<u32>,
}

impl UsageEnum {
    /// Parses the stub data of a call with `names` names behind the server's: two, one or none.
    pub fn parse(stub: &[u8], names: usize) -> Parsed<Self> {
        let what = "MS-SRVS enumeration";
        let mut r = NdrReader::new(stub);
        r.unique_string("ServerName")?;
        let first = if names > 0 { name(&mut r, "ClientName")? } else { None };
        let user = if names > 1 { name(&mut r, "UserName")? } else { None };
        let level = r.u32(what)?;
        if r.u32(what)? != level {
            return Err(Malformed::new(what));
        }
        // Clients send an empty list: a null pointer, or an array without entries. Any other list
        // is refused.
        if r.pointer(what)? && (r.u32(what)? != 0 || (r.pointer(what)? && r.u32(what)? != 0)) {
            return Err(Malformed::new(what));
        }
        let max_len = r.u32(what)?;
        let resume = if r.pointer(what)? { Some(r.u32(what)?) } else { None };
        Ok(Self { first, user, level, max_len, resume })
    }

    /// Returns the stub data of a reply without entries of the kind `E`.
    pub(crate) fn encode_refusal<E: Entry + Default>(&self, status: WinError) -> Vec<u8> {
        self.encode_reply::<E>(&[], 0, 0, status)
    }

    /// Returns the stub data of the reply that tells of `all` as many as fit, from ResumeHandle
    /// on.
    pub(crate) fn encode<E: Entry + Default>(&self, all: &[E]) -> Vec<u8> {
        if E::default().cells(self.level).is_none() {
            return self.encode_refusal::<E>(WinError::INVALID_LEVEL);
        }
        let start = usize::try_from(self.resume.unwrap_or(0)).unwrap_or(usize::MAX);
        let rest = all.get(start..).unwrap_or(&[]);
        let most = match self.max_len {
            MAX_PREFERRED_LENGTH => MAX_USAGE_BYTES,
            most => usize::try_from(most).unwrap_or(usize::MAX).min(MAX_USAGE_BYTES),
        };
        let mut room = most;
        let fits = |entry: &&E| {
            let needed = entry.cells(self.level).map_or(0, |cells| size(&cells));
            let left = room.checked_sub(needed);
            room = left.unwrap_or(0);
            left.is_some()
        };
        let told = rest.iter().take_while(fits).count();
        let status = match told {
            _ if told == rest.len() => WinError::SUCCESS,
            0 => WinError::BUF_TOO_SMALL,
            _ => WinError::MORE_DATA,
        };
        let next = if status == WinError::SUCCESS { 0 } else { start.saturating_add(told) };
        self.encode_reply(rest.get(..told).unwrap_or(&[]), rest.len(), next, status)
    }

    fn encode_reply<E: Entry + Default>(
        &self,
        told: &[E],
        total: usize,
        next: usize,
        status: WinError,
    ) -> Vec<u8> {
        let number = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut w = NdrWriter::new();
        w.u32(self.level).u32(self.level);
        // For an unknown level the union is empty, so neither a pointer nor a list is written.
        if E::default().cells(self.level).is_some() {
            w.pointer(true).u32(number(told.len())).pointer(!told.is_empty());
            if !told.is_empty() {
                let entries = told.iter().filter_map(|entry| entry.cells(self.level));
                w.u32(number(told.len()));
                write_entries(&mut w, &entries.collect::<Vec<_>>());
            }
        }
        w.u32(number(total)).pointer(self.resume.is_some());
        if self.resume.is_some() {
            w.u32(number(next));
        }
        w.u32(status.0);
        w.into_stub()
    }
}

fn name(r: &mut NdrReader<'_>, what: &'static str) -> Parsed<Option<String>> {
    let name = r.unique_string(what)?.map(|name| name.to_string_lossy());
    // An empty name in the request means "any", as a missing name does.
    Ok(name.filter(|name| !name.is_empty()))
}

/// The arguments of NetrFileClose, and of NetrFileGetInfo up to its level.
pub fn parse_file_id(stub: &[u8]) -> Parsed<(u32, Option<u32>)> {
    let mut r = NdrReader::new(stub);
    r.unique_string("ServerName")?;
    let id = r.u32("FileId")?;
    let level = if r.remaining() >= 4 { Some(r.u32("Level")?) } else { None };
    Ok((id, level))
}

/// The reply to NetrFileGetInfo: the file, or why not.
pub fn encode_file_info(level: u32, file: Result<&FileInfo, WinError>) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.u32(level);
    let known = FileInfo::default().cells(level).is_some();
    if known {
        w.pointer(file.is_ok());
        if let Some(cells) = file.ok().and_then(|file| file.cells(level)) {
            write_entries(&mut w, &[cells]);
        }
    }
    let status =
        if known { file.err().unwrap_or(WinError::SUCCESS) } else { WinError::INVALID_LEVEL };
    w.u32(status.0);
    w.into_stub()
}

/// The arguments of NetrSessionDel: client and user; None stands for all.
pub fn parse_session_del(stub: &[u8]) -> Parsed<(Option<String>, Option<String>)> {
    let mut r = NdrReader::new(stub);
    r.unique_string("ServerName")?;
    Ok((name(&mut r, "ClientName")?, name(&mut r, "UserName")?))
}

/// The reply of a call that only succeeds or fails.
pub fn encode_status(status: WinError) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.u32(status.0);
    w.into_stub()
}
