//! Reparse points, MS-FSCC 2.1.2: the buffers of FSCTL_SET_REPARSE_POINT and
//! FSCTL_GET_REPARSE_POINT.

use super::fixed::newtype_field;
use super::name::{WireName, utf16_len};
use crate::codec::{Malformed, Parsed, Reader, Writer};
use crate::dtyp::Guid;
use crate::open_enum;

open_enum! {
    /// ReparseTag: the owner of a reparse point's data, MS-FSCC 2.1.2.1.
    ReparseTag(u32) {
        /// Not a reparse point.
        NONE = 0,
        /// IO_REPARSE_TAG_MOUNT_POINT
        MOUNT_POINT = 0xA000_0003,
        /// IO_REPARSE_TAG_DFS
        DFS = 0x8000_000A,
        /// IO_REPARSE_TAG_SYMLINK
        SYMLINK = 0xA000_000C,
        /// IO_REPARSE_TAG_DFSR
        DFSR = 0x8000_0012,
        /// IO_REPARSE_TAG_DEDUP
        DEDUP = 0x8000_0013,
        /// IO_REPARSE_TAG_NFS
        NFS = 0x8000_0014,
        /// IO_REPARSE_TAG_WOF
        WOF = 0x8000_0017,
        /// IO_REPARSE_TAG_CLOUD
        CLOUD = 0x9000_001A,
        /// IO_REPARSE_TAG_APPEXECLINK
        APPEXECLINK = 0x8000_001B,
        /// IO_REPARSE_TAG_LX_SYMLINK
        LX_SYMLINK = 0xA000_001D,
        /// IO_REPARSE_TAG_AF_UNIX
        AF_UNIX = 0x8000_0023,
        /// IO_REPARSE_TAG_LX_FIFO
        LX_FIFO = 0x8000_0024,
        /// IO_REPARSE_TAG_LX_CHR
        LX_CHR = 0x8000_0025,
        /// IO_REPARSE_TAG_LX_BLK
        LX_BLK = 0x8000_0026,
    }
}

newtype_field! { ReparseTag(u32), }

impl ReparseTag {
    /// True for a tag of Microsoft. The data of other tags has a GUID before it.
    pub const fn is_microsoft(self) -> bool {
        self.0 & 0x8000_0000 != 0
    }

    /// True if the file stands for another name (a link).
    pub const fn is_name_surrogate(self) -> bool {
        self.0 & 0x2000_0000 != 0
    }
}

/// The most bytes of a reparse buffer with its header
/// (MAXIMUM_REPARSE_DATA_BUFFER_SIZE).
pub const MAX_REPARSE_BUFFER: usize = 16 * 1024;

/// REPARSE_DATA_BUFFER or REPARSE_GUID_DATA_BUFFER: the tag and data that is
/// opaque to all but its owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReparseBuffer<'a> {
    /// ReparseTag
    pub tag: ReparseTag,
    /// ReparseGuid, of tags that are not Microsoft's.
    pub guid: Option<Guid>,
    /// DataBuffer
    pub data: &'a [u8],
}

impl<'a> ReparseBuffer<'a> {
    /// Parses a whole buffer. MS-FSA 2.1.5.10.37: a length that is not that of
    /// the buffer, or too large a buffer, is STATUS_IO_REPARSE_DATA_INVALID.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let what = "reparse buffer";
        if bytes.len() > MAX_REPARSE_BUFFER {
            return Err(Malformed::new(what));
        }
        let mut r = Reader::new(bytes);
        let tag = ReparseTag(r.u32(what)?);
        let length = usize::from(r.u16(what)?);
        r.skip(2, what)?;
        let guid = if tag.is_microsoft() { None } else { Some(Guid(r.array(what)?)) };
        let data = r.take(length, "ReparseDataLength")?;
        r.end("ReparseDataLength")?;
        Ok(Self { tag, guid, data })
    }

    /// Appends the buffer; `None` (and nothing appended) when the data is
    /// longer than a reparse point may be.
    pub fn encode(&self, w: &mut Writer<'_>) -> Option<()> {
        let length = u16::try_from(self.data.len()).ok()?;
        if self.data.len().saturating_add(24) > MAX_REPARSE_BUFFER {
            return None;
        }
        w.u32(self.tag.0).u16(length).u16(0);
        if !self.tag.is_microsoft() {
            w.bytes(&self.guid.unwrap_or_default().0);
        }
        w.bytes(self.data);
        Some(())
    }

    /// Parses the data of tags with a defined structure.
    pub fn meaning(&self) -> Parsed<ReparseData<'a>> {
        Ok(match self.tag {
            ReparseTag::SYMLINK => ReparseData::Symlink(Symlink::parse_data(self.data)?),
            ReparseTag::MOUNT_POINT => {
                let (substitute_name, print_name) = parse_names(self.data, 8)?;
                ReparseData::MountPoint { substitute_name, print_name }
            }
            ReparseTag::NFS => ReparseData::Nfs(NfsSpecial::parse_data(self.data)?),
            ReparseTag::LX_SYMLINK => {
                let mut r = Reader::new(self.data);
                if r.u32("LX symlink version")? != LX_SYMLINK_VERSION {
                    return Err(Malformed::new("LX symlink version"));
                }
                ReparseData::LxSymlink(r.rest())
            }
            _ => ReparseData::Opaque(self.data),
        })
    }
}

/// Data of a reparse point, by tag.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReparseData<'a> {
    /// MS-FSCC 2.1.2.4.
    Symlink(Symlink<WireName<'a>>),
    /// MS-FSCC 2.1.2.5.
    MountPoint {
        /// SubstituteName: the target for the system.
        substitute_name: WireName<'a>,
        /// PrintName: the target for people.
        print_name: WireName<'a>,
    },
    /// MS-FSCC 2.1.2.6.
    Nfs(NfsSpecial<WireName<'a>>),
    /// MS-FSCC 2.1.2.7: a Linux path, UTF-8 by convention.
    LxSymlink(&'a [u8]),
    /// Another tag. The tags of WSL's sockets, pipes and devices have no data.
    Opaque(&'a [u8]),
}

const LX_SYMLINK_VERSION: u32 = 2;

/// Appends the reparse buffer of a WSL symbolic link, MS-FSCC 2.1.2.7.
pub fn encode_lx_symlink(w: &mut Writer<'_>, target: &[u8]) -> Option<()> {
    let length = reparse_len(target.len().saturating_add(4))?;
    w.u32(ReparseTag::LX_SYMLINK.0).u16(length).u16(0).u32(LX_SYMLINK_VERSION).bytes(target);
    Some(())
}

/// A data length that a reparse point may have.
fn reparse_len(len: usize) -> Option<u16> {
    if len.saturating_add(8) > MAX_REPARSE_BUFFER { None } else { u16::try_from(len).ok() }
}

/// A symbolic link, MS-FSCC 2.1.2.4. The error response of
/// STATUS_STOPPED_ON_SYMLINK carries the same names (MS-SMB2 2.2.2.2.1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Symlink<N> {
    /// SubstituteName: the target for the system.
    pub substitute_name: N,
    /// PrintName: the target for people.
    pub print_name: N,
    /// SYMLINK_FLAG_RELATIVE: the target starts where the link is.
    pub relative: bool,
}

const SYMLINK_FLAG_RELATIVE: u32 = 1;

impl<'a> Symlink<WireName<'a>> {
    fn parse_data(data: &'a [u8]) -> Parsed<Self> {
        let (substitute_name, print_name) = parse_names(data, 12)?;
        let mut r = Reader::new(data);
        r.skip(8, "symlink")?;
        let relative = r.u32("symlink flags")? & SYMLINK_FLAG_RELATIVE != 0;
        Ok(Self { substitute_name, print_name, relative })
    }
}

impl Symlink<&str> {
    /// Appends the whole reparse buffer; `None` (and nothing appended) when
    /// the names are longer than a reparse point may be.
    pub fn encode(&self, w: &mut Writer<'_>) -> Option<()> {
        let (substitute, print) = (utf16_len(self.substitute_name), utf16_len(self.print_name));
        let length = reparse_len(substitute.saturating_add(print).saturating_add(12))?;
        w.u32(ReparseTag::SYMLINK.0).u16(length).u16(0);
        encode_name_fields(w, substitute, print);
        w.u32(if self.relative { SYMLINK_FLAG_RELATIVE } else { 0 });
        w.utf16(self.substitute_name).utf16(self.print_name);
        Some(())
    }
}

/// Appends the reparse buffer of a mount point, MS-FSCC 2.1.2.5.
pub fn encode_mount_point(
    w: &mut Writer<'_>,
    substitute_name: &str,
    print_name: &str,
) -> Option<()> {
    let (substitute, print) = (utf16_len(substitute_name), utf16_len(print_name));
    let length = reparse_len(substitute.saturating_add(print).saturating_add(8))?;
    w.u32(ReparseTag::MOUNT_POINT.0).u16(length).u16(0);
    encode_name_fields(w, substitute, print);
    w.utf16(substitute_name).utf16(print_name);
    Some(())
}

/// The four offsets and lengths; both names are known to be short.
fn encode_name_fields(w: &mut Writer<'_>, substitute: usize, print: usize) {
    let short = |len: usize| u16::try_from(len).unwrap_or(u16::MAX);
    w.u16(0).u16(short(substitute)).u16(short(substitute)).u16(short(print));
}

/// The two names of a link, whose buffer begins at `path_at`.
fn parse_names(data: &[u8], path_at: usize) -> Parsed<(WireName<'_>, WireName<'_>)> {
    let what = "reparse name";
    let mut r = Reader::new(data);
    let mut pair = || Ok((usize::from(r.u16(what)?), usize::from(r.u16(what)?)));
    let (substitute, print) = (pair()?, pair()?);
    let path = data.get(path_at..).ok_or(Malformed::new(what))?;
    let name = |(offset, length): (usize, usize)| {
        let end = offset.checked_add(length).ok_or(Malformed::new(what))?;
        WireName::new(path.get(offset..end).ok_or(Malformed::new(what))?)
    };
    Ok((name(substitute)?, name(print)?))
}

/// Data of the special files that the NFS server of Windows makes, MS-FSCC 2.1.2.6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NfsSpecial<N> {
    /// NFS_SPECFILE_LNK and its target.
    Symlink(N),
    /// NFS_SPECFILE_CHR
    Character {
        /// Major device number.
        major: u32,
        /// Minor device number.
        minor: u32,
    },
    /// NFS_SPECFILE_BLK
    Block {
        /// Major device number.
        major: u32,
        /// Minor device number.
        minor: u32,
    },
    /// NFS_SPECFILE_FIFO
    Fifo,
    /// NFS_SPECFILE_SOCK
    Socket,
}

const NFS_LNK: u64 = 0x014B_4E4C;
const NFS_CHR: u64 = 0x0052_4843;
const NFS_BLK: u64 = 0x004B_4C42;
const NFS_FIFO: u64 = 0x4F46_4946;
const NFS_SOCK: u64 = 0x4B43_4F53;

/// The longest target of an NFS symbolic link, in bytes.
const NFS_MAX_TARGET: usize = 2050;

impl<'a> NfsSpecial<WireName<'a>> {
    fn parse_data(data: &'a [u8]) -> Parsed<Self> {
        let what = "NFS reparse data";
        let mut r = Reader::new(data);
        let special = match r.u64(what)? {
            NFS_LNK => {
                let target = r.rest();
                if target.len() > NFS_MAX_TARGET {
                    return Err(Malformed::new(what));
                }
                Self::Symlink(WireName::new(target)?)
            }
            NFS_CHR => Self::Character { major: r.u32(what)?, minor: r.u32(what)? },
            NFS_BLK => Self::Block { major: r.u32(what)?, minor: r.u32(what)? },
            NFS_FIFO => Self::Fifo,
            NFS_SOCK => Self::Socket,
            _ => return Err(Malformed::new(what)),
        };
        r.end(what)?;
        Ok(special)
    }
}

impl NfsSpecial<&str> {
    /// Appends the whole reparse buffer; `None` (and nothing appended) when
    /// the target is too long.
    pub fn encode(&self, w: &mut Writer<'_>) -> Option<()> {
        let (kind, data_len) = match self {
            Self::Symlink(target) => (NFS_LNK, utf16_len(target)),
            Self::Character { .. } => (NFS_CHR, 8),
            Self::Block { .. } => (NFS_BLK, 8),
            Self::Fifo => (NFS_FIFO, 0),
            Self::Socket => (NFS_SOCK, 0),
        };
        if data_len > NFS_MAX_TARGET {
            return None;
        }
        w.u32(ReparseTag::NFS.0).u16(reparse_len(data_len.saturating_add(8))?).u16(0).u64(kind);
        match self {
            Self::Symlink(target) => w.utf16(target),
            Self::Character { major, minor } | Self::Block { major, minor } => {
                w.u32(*major).u32(*minor)
            }
            Self::Fifo | Self::Socket => w,
        };
        Some(())
    }
}
