//! Shares: SHARE_INFO_n, MS-SRVS 2.2.4.22-.38, and the calls that carry them.
//!
//! Each level is a list of fields, which one encoder and one parser walk.

use super::super::WinError;
use super::super::limits::{MAX_DESCRIPTOR, MAX_SHARES};
use super::read_status;
use alloc::string::String;
use alloc::vec::Vec;
use frevo_wire::bit_set;
use frevo_wire::codec::{Malformed, Parsed};
use frevo_wire::fscc::WireName;
use frevo_wire::fscc::name::utf16_len;
use frevo_wire::ndr::{NdrReader, NdrWriter};

bit_set! {
    /// shi*_type, MS-SRVS 2.2.2.4. No bit is a disk.
    ShareType(u32) {
        /// STYPE_PRINTQ
        PRINTQ = 0x0000_0001,
        /// STYPE_DEVICE
        DEVICE = 0x0000_0002,
        /// STYPE_IPC
        IPC = 0x0000_0003,
        /// STYPE_TEMPORARY
        TEMPORARY = 0x4000_0000,
        /// STYPE_SPECIAL
        SPECIAL = 0x8000_0000,
    }
}

impl ShareType {
    /// STYPE_DISKTREE
    pub const DISKTREE: Self = Self(0);
}

/// Facts about a share.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareInfo {
    /// netname
    pub name: String,
    /// type
    pub kind: ShareType,
    /// remark
    pub remark: String,
    /// max_uses, all ones for no limit.
    pub max_uses: u32,
    /// current_uses
    pub current_uses: u32,
    /// path
    pub path: String,
    /// flags of level 501 and 1005 (SHI1005_FLAGS_*).
    pub flags: u32,
    /// security_descriptor, self-relative.
    pub security_descriptor: Option<Vec<u8>>,
}

impl Default for ShareInfo {
    fn default() -> Self {
        Self {
            name: String::new(),
            kind: ShareType::DISKTREE,
            remark: String::new(),
            max_uses: u32::MAX,
            current_uses: 0,
            path: String::new(),
            flags: 0,
            security_descriptor: None,
        }
    }
}

/// A field of SHARE_INFO_n.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Field {
    Name,
    Type,
    Remark,
    Permissions,
    MaxUses,
    CurrentUses,
    Path,
    /// Not used: a null pointer.
    Password,
    /// The server that has the share: `*`, any of its names.
    ServerName,
    Flags,
    DescriptorLength,
    Descriptor,
}

/// The fields of SHARE_INFO_n, for the levels that are spoken here.
const fn fields(level: u32) -> Option<&'static [Field]> {
    use Field::*;
    Some(match level {
        0 => &[Name],
        1 => &[Name, Type, Remark],
        2 => &[Name, Type, Remark, Permissions, MaxUses, CurrentUses, Path, Password],
        501 => &[Name, Type, Remark, Flags],
        502 => &[
            Name,
            Type,
            Remark,
            Permissions,
            MaxUses,
            CurrentUses,
            Path,
            Password,
            DescriptorLength,
            Descriptor,
        ],
        503 => &[
            Name,
            Type,
            Remark,
            Permissions,
            MaxUses,
            CurrentUses,
            Path,
            Password,
            ServerName,
            DescriptorLength,
            Descriptor,
        ],
        1004 => &[Remark],
        1005 => &[Flags],
        1006 => &[MaxUses],
        1501 => &[DescriptorLength, Descriptor],
        _ => return None,
    })
}

/// True if NetrShareEnum supports this level.
pub(crate) const fn is_enum_level(level: u32) -> bool {
    matches!(level, 0 | 1 | 2 | 501 | 502 | 503)
}

/// True if NetrShareGetInfo supports this level.
pub(crate) const fn is_get_level(level: u32) -> bool {
    is_enum_level(level) || level == 1005
}

/// Reads the SHARE_INFO union of a call that changes a share, with its level before it. None for a
/// level that is not supported, whose length is unknown.
pub(super) fn read_share(r: &mut NdrReader<'_>, level: u32) -> Parsed<Option<ShareInfo>> {
    let what = "SHARE_INFO";
    if r.u32(what)? != level {
        return Err(Malformed::new(what));
    }
    let Some(fields) = fields(level) else { return Ok(None) };
    // MS-SRVS 3.1.4.11: the pointer must not be null.
    if !r.pointer(what)? {
        return Err(Malformed::new(what));
    }
    let half = read_fixed(r, fields)?;
    read_deferred(r, fields, half).map(Some)
}

/// Writes what [`read_share`] reads.
pub(super) fn write_share(w: &mut NdrWriter, level: u32, share: &ShareInfo) {
    w.u32(level);
    if let Some(fields) = fields(level) {
        w.pointer(true);
        share.encode_fixed(w, fields);
        share.encode_deferred(w, fields);
    }
}

/// True if the level contains facts for administrators only: paths, use counts and descriptors.
/// MS-SRVS 3.1.4.8 leaves the check to the server.
pub(crate) const fn is_privileged_level(level: u32) -> bool {
    matches!(level, 2 | 502 | 503)
}

impl ShareInfo {
    fn string(&self, field: Field) -> Option<&str> {
        match field {
            Field::Name => Some(&self.name),
            Field::Remark => Some(&self.remark),
            Field::Path => Some(&self.path),
            // MS-SRVS 2.2.4.27: "*" means that the share belongs to no particular server name.
            Field::ServerName => Some("*"),
            _ => None,
        }
    }

    fn number(&self, field: Field) -> u32 {
        match field {
            Field::Type => self.kind.0,
            Field::MaxUses => self.max_uses,
            Field::CurrentUses => self.current_uses,
            Field::Flags => self.flags,
            Field::DescriptorLength => {
                let length = self.security_descriptor.as_ref().map_or(0, Vec::len);
                u32::try_from(length).unwrap_or(u32::MAX)
            }
            _ => 0,
        }
    }

    fn encode_fixed(&self, w: &mut NdrWriter, fields: &[Field]) {
        for field in fields {
            match field {
                Field::Name | Field::Remark | Field::Path | Field::ServerName => w.pointer(true),
                Field::Password => w.pointer(false),
                Field::Descriptor => w.pointer(self.security_descriptor.is_some()),
                number => w.u32(self.number(*number)),
            };
        }
    }

    fn encode_deferred(&self, w: &mut NdrWriter, fields: &[Field]) {
        for field in fields {
            if let Some(text) = self.string(*field) {
                w.string(text);
            }
            if let (Field::Descriptor, Some(descriptor)) = (field, &self.security_descriptor) {
                w.bytes(descriptor);
            }
        }
    }

    /// Returns the bytes of PreferedMaximumLength that this share takes: its structure and the data
    /// that it points to.
    pub(crate) fn size_at(&self, level: u32) -> usize {
        fields(level).unwrap_or(&[]).iter().fold(0, |size: usize, field| {
            let referent = match field {
                Field::Descriptor => self.security_descriptor.as_ref().map_or(0, Vec::len),
                text => self.string(*text).map_or(0, |text| utf16_len(text).saturating_add(2)),
            };
            size.saturating_add(4).saturating_add(referent)
        })
    }
}

/// A share of which the fixed part has been read.
#[derive(Default)]
struct Half {
    share: ShareInfo,
    /// By field: whether its pointer points.
    points: u16,
    descriptor_length: u32,
}

fn read_fixed(r: &mut NdrReader<'_>, fields: &[Field]) -> Parsed<Half> {
    let what = "SHARE_INFO";
    let mut half = Half::default();
    for (index, field) in fields.iter().enumerate() {
        let value = r.u32(what)?;
        match field {
            Field::Type => half.share.kind = ShareType(value),
            Field::MaxUses => half.share.max_uses = value,
            Field::CurrentUses => half.share.current_uses = value,
            Field::Flags => half.share.flags = value,
            Field::DescriptorLength => half.descriptor_length = value,
            Field::Permissions => {}
            _ if value != 0 => half.points |= 1 << index,
            _ => {}
        }
    }
    Ok(half)
}

fn read_deferred(r: &mut NdrReader<'_>, fields: &[Field], half: Half) -> Parsed<ShareInfo> {
    let what = "SHARE_INFO";
    let mut share = half.share;
    for (index, field) in fields.iter().enumerate() {
        if half.points & (1 << index) == 0 {
            continue;
        }
        match field {
            Field::Name => share.name = r.string(what)?.to_string_lossy(),
            Field::Remark => share.remark = r.string(what)?.to_string_lossy(),
            Field::Path => share.path = r.string(what)?.to_string_lossy(),
            Field::Password | Field::ServerName => drop(r.string(what)?),
            Field::Descriptor if half.descriptor_length > MAX_DESCRIPTOR => {
                return Err(Malformed::new(what));
            }
            Field::Descriptor => {
                share.security_descriptor = Some(r.bytes(half.descriptor_length, what)?.to_vec());
            }
            _ => {}
        }
    }
    Ok(share)
}

/// Reads a SHARE_INFO_n_CONTAINER behind its pointer, and its entries.
fn read_container(r: &mut NdrReader<'_>, fields: &[Field]) -> Parsed<Vec<ShareInfo>> {
    let what = "SHARE_INFO_CONTAINER";
    let entries = r.u32(what)?;
    if !r.pointer(what)? {
        return if entries == 0 { Ok(Vec::new()) } else { Err(Malformed::new(what)) };
    }
    let count = r.array(entries, fields.len().saturating_mul(4), what)?;
    if count > MAX_SHARES {
        return Err(Malformed::new(what));
    }
    let halves = (0..count).map(|_| read_fixed(r, fields)).collect::<Parsed<Vec<_>>>()?;
    halves.into_iter().map(|half| read_deferred(r, fields, half)).collect()
}

fn write_container(w: &mut NdrWriter, fields: &[Field], shares: &[ShareInfo]) {
    let count = u32::try_from(shares.len()).unwrap_or(u32::MAX);
    w.u32(count).pointer(!shares.is_empty());
    if shares.is_empty() {
        return;
    }
    w.u32(count);
    shares.iter().for_each(|share| share.encode_fixed(w, fields));
    shares.iter().for_each(|share| share.encode_deferred(w, fields));
}

/// Arguments of NetrShareEnum, MS-SRVS 3.1.4.8.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareEnum {
    /// Level of InfoStruct.
    pub level: u32,
    /// PreferedMaximumLength, in bytes.
    pub max_len: u32,
    /// ResumeHandle, when there is one.
    pub resume: Option<u32>,
}

impl ShareEnum {
    /// Parses the stub data. Of a level that is not spoken here only the level
    /// can be known: the rest is as if it were not there.
    pub fn parse(stub: &[u8]) -> Parsed<Self> {
        let what = "NetrShareEnum";
        let mut r = NdrReader::new(stub);
        r.unique_string("ServerName")?;
        let level = r.u32(what)?;
        if r.u32(what)? != level {
            return Err(Malformed::new("NetrShareEnum level"));
        }
        let Some(fields) = fields(level).filter(|_| is_enum_level(level)) else {
            return Ok(Self { level, max_len: 0, resume: None });
        };
        if r.pointer(what)? {
            read_container(&mut r, fields)?;
        }
        let max_len = r.u32(what)?;
        let resume = if r.pointer(what)? { Some(r.u32(what)?) } else { None };
        Ok(Self { level, max_len, resume })
    }

    /// Stub data of a request to `server`, which is `\\name`.
    pub fn encode(&self, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.unique_string(Some(server)).u32(self.level).u32(self.level).pointer(true);
        w.u32(0).pointer(false).u32(self.max_len).pointer(self.resume.is_some());
        if let Some(resume) = self.resume {
            w.u32(resume);
        }
        w.into_stub()
    }
}

/// The results of NetrShareEnum.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShareEnumReply<S> {
    /// Level of InfoStruct.
    pub level: u32,
    /// The shares that are listed.
    pub shares: S,
    /// TotalEntries from where the enumeration resumed.
    pub total: u32,
    /// ResumeHandle, when the request had one.
    pub resume: Option<u32>,
    /// The return value of the call.
    pub status: WinError,
}

impl ShareEnumReply<&[ShareInfo]> {
    /// Returns the stub data.
    pub fn encode(&self) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.u32(self.level).u32(self.level);
        if let Some(fields) = fields(self.level).filter(|_| is_enum_level(self.level)) {
            w.pointer(true);
            write_container(&mut w, fields, self.shares);
        }
        w.u32(self.total).pointer(self.resume.is_some());
        if let Some(resume) = self.resume {
            w.u32(resume);
        }
        w.u32(self.status.0);
        w.into_stub()
    }
}

impl ShareEnumReply<Vec<ShareInfo>> {
    /// Parses the stub data of a reply to a request of `level`.
    pub fn parse(stub: &[u8], level: u32) -> Parsed<Self> {
        let what = "NetrShareEnum reply";
        let mut r = NdrReader::new(stub);
        if r.u32(what)? != level || r.u32(what)? != level {
            return Err(Malformed::new("NetrShareEnum level"));
        }
        let shares = match fields(level).filter(|_| is_enum_level(level)) {
            Some(fields) if r.pointer(what)? => read_container(&mut r, fields)?,
            _ => Vec::new(),
        };
        let total = r.u32(what)?;
        let resume = if r.pointer(what)? { Some(r.u32(what)?) } else { None };
        Ok(Self { level, shares, total, resume, status: read_status(&mut r)? })
    }
}

/// Arguments of NetrShareGetInfo, MS-SRVS 3.1.4.10.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ShareGetInfo<N> {
    /// NetName
    pub name: N,
    /// Level
    pub level: u32,
}

impl<'a> ShareGetInfo<WireName<'a>> {
    /// Parses the stub data.
    pub fn parse(stub: &'a [u8]) -> Parsed<Self> {
        let mut r = NdrReader::new(stub);
        r.unique_string("ServerName")?;
        Ok(Self { name: r.string("NetName")?, level: r.u32("NetrShareGetInfo level")? })
    }
}

impl ShareGetInfo<&str> {
    /// Stub data of a request to `server`, which is `\\name`.
    pub fn encode(&self, server: &str) -> Vec<u8> {
        let mut w = NdrWriter::new();
        w.unique_string(Some(server)).string(self.name).u32(self.level);
        w.into_stub()
    }
}

/// Stub data of a reply to NetrShareGetInfo: the share, or why not.
pub fn encode_share_info(level: u32, share: Result<&ShareInfo, WinError>) -> Vec<u8> {
    let mut w = NdrWriter::new();
    w.u32(level);
    // MS-SRVS 2.2.3.6: for an unknown level the union is empty, so only the status follows.
    if let Some(fields) = fields(level) {
        w.pointer(share.is_ok());
        if let Ok(share) = share {
            share.encode_fixed(&mut w, fields);
            share.encode_deferred(&mut w, fields);
        }
    }
    w.u32(share.err().unwrap_or(WinError::SUCCESS).0);
    w.into_stub()
}

/// Parses a reply to NetrShareGetInfo of `level`.
pub fn parse_share_info(stub: &[u8], level: u32) -> Parsed<Result<ShareInfo, WinError>> {
    let what = "NetrShareGetInfo reply";
    let mut r = NdrReader::new(stub);
    if r.u32(what)? != level {
        return Err(Malformed::new(what));
    }
    let mut share = None;
    if let Some(fields) = fields(level)
        && r.pointer(what)?
    {
        let half = read_fixed(&mut r, fields)?;
        share = Some(read_deferred(&mut r, fields, half)?);
    }
    let status = read_status(&mut r)?;
    match share {
        Some(share) if status == WinError::SUCCESS => Ok(Ok(share)),
        None if status == WinError::SUCCESS => Err(Malformed::new(what)),
        _ => Ok(Err(status)),
    }
}
