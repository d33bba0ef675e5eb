//! The arguments of the calls of MS-DFSNM, but for the enumerations.

use super::info::{DfsInfo, read_union, write_union};
use super::{ADD_FT_ROOT, ADD_STD_ROOT_FORCED, ADD2, REMOVE2, SET_INFO2};
use crate::WinError;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::ndr::{NdrReader, NdrWriter};

/// Root targets in one DFSM_ROOT_LIST of a request: a client sends none.
const ROOT_LIST_MAX: usize = 64;

/// Reads a name.
fn text(r: &mut NdrReader<'_>, what: &'static str) -> Parsed<String> {
    r.string(what)?.decode()
}

/// Reads a name behind a unique pointer.
fn optional(r: &mut NdrReader<'_>, what: &'static str) -> Parsed<Option<String>> {
    r.unique_string(what)?.map(|name| name.decode()).transpose()
}

/// Reads ppRootList, MS-DFSNM 2.2.2.9, whose entries mean nothing in a request. Returns false for a null
/// pointer, for which no list can be returned.
fn root_list(r: &mut NdrReader<'_>) -> Parsed<bool> {
    let what = "DFSM_ROOT_LIST";
    if !r.pointer(what)? {
        return Ok(false);
    }
    if r.pointer(what)? {
        // The greatest count of the array comes before the structure that ends in it.
        let mut ahead = r.clone();
        ahead.u32(what)?;
        let entries = ahead.u32(what)?;
        if r.array(entries, 0, what)? > ROOT_LIST_MAX {
            return Err(Malformed::new(what));
        }
        r.u32(what)?;
        let points = (0..entries).map(|_| r.pointer(what)).collect::<Parsed<Vec<_>>>()?;
        for _ in points.into_iter().filter(|points| *points) {
            r.string(what)?;
        }
    }
    Ok(true)
}

/// Stub data of an answer that is a root list, which is empty, and a status. MS-DFSNM 3.1.4.2.1: the list
/// is of roots that are based on a domain.
pub(super) fn encode_listed(has_root_list: bool, status: WinError) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.pointer(has_root_list);
    if has_root_list {
        w.pointer(false);
    }
    w.u32(status.0);
    w.into_stub()
}

/// Stub data of an answer that is a status.
pub(super) fn encode_status(status: WinError) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.u32(status.0);
    w.into_stub()
}

/// Parses an answer that is a status, behind a root list if the call has one.
pub fn parse_status(stub: &[u8], has_root_list: bool) -> Parsed<WinError> {
    let mut r = NdrReader::new(stub);
    if has_root_list {
        root_list(&mut r)?;
    }
    r.u32("return value").map(WinError)
}

/// The arguments of NetrDfsAdd and NetrDfsAdd2, MS-DFSNM 3.1.4.1.3 and 3.1.4.2.1.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddLink {
    /// DfsEntryPath
    pub path: String,
    /// ServerName
    pub server: String,
    /// ShareName; None for a null pointer.
    pub share: Option<String>,
    /// Comment; None for a null pointer.
    pub comment: Option<String>,
    /// Flags
    pub flags: u32,
    /// True if NetrDfsAdd2 may return a root list.
    pub has_root_list: bool,
}

impl AddLink {
    /// DFS_ADD_VOLUME: the link must be new.
    pub const ADD_VOLUME: u32 = 1;
    /// DFS_RESTORE_VOLUME: the target is not looked at, which this server never does.
    pub const RESTORE_VOLUME: u32 = 2;

    /// Parses the stub data of `opnum`.
    pub fn parse(opnum: u16, stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let path = text(&mut r, "DfsEntryPath")?;
        if opnum == ADD2 {
            text(&mut r, "DcName")?;
        }
        Ok(Self {
            path,
            server: text(&mut r, "ServerName")?,
            share: optional(&mut r, "ShareName")?,
            comment: r.unique_string("Comment")?.map(|comment| comment.to_string_lossy()),
            flags: r.u32("Flags")?,
            has_root_list: opnum == ADD2 && root_list(&mut r)?,
        })
    }

    /// Returns the stub data of a request of `opnum`.
    pub fn encode(&self, opnum: u16) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.string(&self.path);
        if opnum == ADD2 {
            w.string("");
        }
        w.string(&self.server).unique_string(self.share.as_deref());
        w.unique_string(self.comment.as_deref()).u32(self.flags);
        write_root_list(&mut w, opnum == ADD2, self.has_root_list);
        w.into_stub()
    }
}

fn write_root_list(w: &mut NdrWriter, is_argument: bool, has_root_list: bool) {
    if is_argument {
        w.pointer(has_root_list);
        if has_root_list {
            w.pointer(false);
        }
    }
}

/// The arguments of NetrDfsRemove and NetrDfsRemove2, MS-DFSNM 3.1.4.1.4 and 3.1.4.2.2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoveLink {
    /// DfsEntryPath
    pub path: String,
    /// ServerName; None for a null pointer.
    pub server: Option<String>,
    /// ShareName; None for a null pointer.
    pub share: Option<String>,
    /// True if NetrDfsRemove2 may return a root list.
    pub has_root_list: bool,
}

impl RemoveLink {
    /// Parses the stub data of `opnum`.
    pub fn parse(opnum: u16, stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let path = text(&mut r, "DfsEntryPath")?;
        if opnum == REMOVE2 {
            text(&mut r, "DcName")?;
        }
        Ok(Self {
            path,
            server: optional(&mut r, "ServerName")?,
            share: optional(&mut r, "ShareName")?,
            has_root_list: opnum == REMOVE2 && root_list(&mut r)?,
        })
    }

    /// Returns the stub data of a request of `opnum`.
    pub fn encode(&self, opnum: u16) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.string(&self.path);
        if opnum == REMOVE2 {
            w.string("");
        }
        w.unique_string(self.server.as_deref()).unique_string(self.share.as_deref());
        write_root_list(&mut w, opnum == REMOVE2, self.has_root_list);
        w.into_stub()
    }
}

/// The arguments of NetrDfsSetInfo and NetrDfsSetInfo2, MS-DFSNM 3.1.4.1.5 and 3.1.4.2.4.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SetInfo {
    /// DfsEntryPath
    pub path: String,
    /// ServerName; None for a null pointer.
    pub server: Option<String>,
    /// ShareName; None for a null pointer.
    pub share: Option<String>,
    /// Level
    pub level: u32,
    /// DfsInfo; None for a null pointer, and for a level that the union does not have.
    pub info: Option<DfsInfo>,
    /// True if NetrDfsSetInfo2 may return a root list.
    pub has_root_list: bool,
}

impl SetInfo {
    /// Parses the stub data of `opnum`.
    pub fn parse(opnum: u16, stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let path = text(&mut r, "DfsEntryPath")?;
        if opnum == SET_INFO2 {
            text(&mut r, "DcName")?;
        }
        let (server, share) = (optional(&mut r, "ServerName")?, optional(&mut r, "ShareName")?);
        let level = r.u32("Level")?;
        let info = read_union(&mut r, level)?;
        let has_root_list = opnum == SET_INFO2 && root_list(&mut r)?;
        Ok(Self { path, server, share, level, info, has_root_list })
    }

    /// Returns the stub data of a request of `opnum`.
    pub fn encode(&self, opnum: u16) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.string(&self.path);
        if opnum == SET_INFO2 {
            w.string("");
        }
        w.unique_string(self.server.as_deref()).unique_string(self.share.as_deref());
        w.u32(self.level);
        write_union(&mut w, self.level, self.info.as_ref());
        write_root_list(&mut w, opnum == SET_INFO2, self.has_root_list);
        w.into_stub()
    }
}

/// The arguments of NetrDfsGetInfo, MS-DFSNM 3.1.4.1.6.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GetInfo {
    /// DfsEntryPath
    pub path: String,
    /// ServerName; None for a null pointer.
    pub server: Option<String>,
    /// ShareName; None for a null pointer.
    pub share: Option<String>,
    /// Level
    pub level: u32,
}

impl GetInfo {
    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        Ok(Self {
            path: text(&mut r, "DfsEntryPath")?,
            server: optional(&mut r, "ServerName")?,
            share: optional(&mut r, "ShareName")?,
            level: r.u32("Level")?,
        })
    }

    /// Returns the stub data.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.string(&self.path).unique_string(self.server.as_deref());
        w.unique_string(self.share.as_deref()).u32(self.level);
        w.into_stub()
    }
}

/// The arguments of NetrDfsMove, MS-DFSNM 3.1.4.1.8.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MoveLink {
    /// DfsEntryPath
    pub from: String,
    /// NewDfsEntryPath
    pub to: String,
    /// Flags
    pub flags: u32,
}

impl MoveLink {
    /// DFS_MOVE_FLAG_REPLACE_IF_EXISTS
    pub const REPLACE_IF_EXISTS: u32 = 1;

    /// Parses the stub data.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let (from, to) = (text(&mut r, "DfsEntryPath")?, text(&mut r, "NewDfsEntryPath")?);
        Ok(Self { from, to, flags: r.u32("Flags")? })
    }

    /// Returns the stub data.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.string(&self.from).string(&self.to).u32(self.flags);
        w.into_stub()
    }
}

/// The arguments of NetrDfsAddStdRoot and NetrDfsRemoveStdRoot, MS-DFSNM 3.1.4.4.1 and 3.1.4.4.2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AddStdRoot {
    /// RootShare
    pub share: String,
    /// Comment; None for a call that has none.
    pub comment: Option<String>,
}

impl AddStdRoot {
    /// Parses the stub data of NetrDfsAddStdRoot, or of NetrDfsAddStdRootForced.
    pub fn parse(opnum: u16, stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        text(&mut r, "ServerName")?;
        let share = text(&mut r, "RootShare")?;
        let comment = r.string("Comment")?.to_string_lossy();
        if opnum == ADD_STD_ROOT_FORCED {
            text(&mut r, "Share")?;
        } else {
            // MS-DFSNM 3.1.4.4.1: ApiFlags is ignored.
            r.u32("ApiFlags")?;
        }
        Ok(Self { share, comment: Some(comment) })
    }

    /// Parses the stub data of NetrDfsRemoveStdRoot.
    pub fn parse_remove(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        text(&mut r, "ServerName")?;
        let share = text(&mut r, "RootShare")?;
        r.u32("ApiFlags")?;
        Ok(Self { share, comment: None })
    }

    /// Returns the stub data of a request to `server`: NetrDfsRemoveStdRoot without a comment.
    pub fn encode(&self, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.string(server).string(&self.share);
        if let Some(comment) = &self.comment {
            w.string(comment);
        }
        w.u32(0);
        w.into_stub()
    }
}

/// The arguments of NetrDfsAddRootTarget and NetrDfsRemoveRootTarget, MS-DFSNM 3.1.4.1.9 and 3.1.4.1.10.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RootTarget {
    /// pDfsPath; None for a null pointer.
    pub path: Option<String>,
    /// pTargetPath; None for a null pointer, which a stand-alone root has.
    pub target: Option<String>,
    /// MajorVersion of NetrDfsAddRootTarget.
    pub major_version: u32,
    /// pComment of NetrDfsAddRootTarget; None for a null pointer.
    pub comment: Option<String>,
    /// NewNamespace of NetrDfsAddRootTarget.
    pub is_new: bool,
    /// Flags
    pub flags: u32,
}

impl RootTarget {
    /// Parses the stub data of NetrDfsAddRootTarget.
    pub fn parse_add(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        Ok(Self {
            path: optional(&mut r, "pDfsPath")?,
            target: optional(&mut r, "pTargetPath")?,
            major_version: r.u32("MajorVersion")?,
            comment: r.unique_string("pComment")?.map(|comment| comment.to_string_lossy()),
            is_new: r.u8("NewNamespace")? != 0,
            flags: r.u32("Flags")?,
        })
    }

    /// Parses the stub data of NetrDfsRemoveRootTarget.
    pub fn parse_remove(stub: &[u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        let (path, target) = (optional(&mut r, "pDfsPath")?, optional(&mut r, "pTargetPath")?);
        Ok(Self { path, target, flags: r.u32("Flags")?, ..Self::default() })
    }

    /// Returns the stub data of NetrDfsAddRootTarget.
    pub fn encode_add(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.unique_string(self.path.as_deref()).unique_string(self.target.as_deref());
        w.u32(self.major_version).unique_string(self.comment.as_deref());
        w.u8(u8::from(self.is_new)).u32(self.flags);
        w.into_stub()
    }

    /// Returns the stub data of NetrDfsRemoveRootTarget.
    pub fn encode_remove(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.unique_string(self.path.as_deref()).unique_string(self.target.as_deref());
        w.u32(self.flags);
        w.into_stub()
    }
}

/// Parses the arguments of NetrDfsAddFtRoot and NetrDfsRemoveFtRoot, MS-DFSNM 3.1.4.3. Returns true if a
/// root list can be returned.
pub(super) fn parse_ft_root(opnum: u16, stub: &[u8]) -> Parsed<bool> {
    let mut r = NdrReader::new(stub);
    for what in ["ServerName", "DcName", "RootShare", "FtDfsName"] {
        text(&mut r, what)?;
    }
    if opnum == ADD_FT_ROOT {
        text(&mut r, "Comment")?;
        text(&mut r, "ConfigDN")?;
        r.u8("NewFtDfs")?;
    }
    r.u32("ApiFlags")?;
    root_list(&mut r)
}

/// Parses the arguments of NetrDfsGetDcAddress, MS-DFSNM 3.1.4.5.1. Returns Timeout.
pub fn parse_dc_address(stub: &[u8]) -> Parsed<u32> {
    let mut r = NdrReader::new(stub);
    text(&mut r, "ServerName")?;
    optional(&mut r, "DcName")?;
    r.u8("IsRoot")?;
    r.u32("Timeout")
}

/// Parses the arguments of a call that are `names`, and `numbers` of 32 bits.
pub(super) fn parse_ignored(stub: &[u8], names: usize, numbers: usize) -> Parsed<()> {
    let mut r = NdrReader::new(stub);
    for _ in 0..names {
        text(&mut r, "name")?;
    }
    for _ in 0..numbers {
        r.u32("number")?;
    }
    Ok(())
}
