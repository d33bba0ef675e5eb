//! NT_CREATE_ANDX, OPEN_ANDX, CLOSE and FLUSH: MS-CIFS 2.2.4.64, 2.2.4.41, 2.2.4.5, 2.2.4.6.

use alloc::vec::Vec;

use frevo_wire::codec::Parsed;
use frevo_wire::dtyp::FileTime;
use frevo_wire::open_enum;

use crate::charset::{Charset, Strings, Unmappable};
use crate::header::Command;
use crate::info::{DosZone, unix_seconds};
use crate::message::{Request, Response, and_x, words};

/// A file that a server has opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fid(pub u16);

/// The parameters of NT_CREATE_ANDX, with the values of MS-SMB2 2.2.13, which are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Create<'a> {
    /// Path below the share, that begins with `\`; the name of a pipe without.
    pub name: &'a str,
    /// DesiredAccess
    pub desired_access: u32,
    /// ExtFileAttributes of a new file.
    pub attributes: u32,
    /// ShareAccess
    pub share_access: u32,
    /// CreateDisposition
    pub disposition: u32,
    /// CreateOptions
    pub options: u32,
}

/// SEC_IMPERSONATE
const IMPERSONATE: u32 = 2;

impl Create<'_> {
    /// Returns the request.
    ///
    /// # Errors
    /// If the code page lacks a character of the name.
    pub fn request(&self, charset: Charset) -> Result<Request<'static>, Unmappable> {
        let mut bytes = Strings::new(charset);
        bytes.text(self.name)?;
        let length = charset.encode(self.name)?.len();
        let words = and_x(|w| {
            w.u8(0).u16(u16::try_from(length).unwrap_or(u16::MAX)).u32(0).u32(0);
            w.u32(self.desired_access).u64(0).u32(self.attributes).u32(self.share_access);
            w.u32(self.disposition).u32(self.options).u32(IMPERSONATE).u8(0);
        });
        Ok(Request::new(Command::NT_CREATE_ANDX, words, bytes.bytes))
    }
}

/// A file as it was opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Opened {
    /// The Open.
    pub fid: Fid,
    /// The action taken: the values of CreateAction of MS-SMB2 2.2.14.
    pub action: u32,
    /// CreateTime
    pub created: FileTime,
    /// LastAccessTime
    pub accessed: FileTime,
    /// LastWriteTime
    pub written: FileTime,
    /// LastChangeTime
    pub changed: FileTime,
    /// ExtFileAttributes
    pub attributes: u32,
    /// AllocationSize
    pub allocation: u64,
    /// EndOfFile
    pub len: u64,
    /// Directory
    pub is_directory: bool,
}

/// FILE_ATTRIBUTE_DIRECTORY
const DIRECTORY: u32 = 0x10;

impl Opened {
    /// Parses the response to NT_CREATE_ANDX. One with extended information has more words, which are not
    /// read.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse(response: &Response<'_>) -> Parsed<Self> {
        let r = &mut response.and_x(34, "NT_CREATE_ANDX WordCount")?;
        r.skip(1, "OpLockLevel")?;
        let fid = Fid(r.u16("FID")?);
        let action = r.u32("CreateDisposition")?;
        let created = FileTime(r.u64("CreateTime")?);
        let accessed = FileTime(r.u64("LastAccessTime")?);
        let written = FileTime(r.u64("LastWriteTime")?);
        let changed = FileTime(r.u64("LastChangeTime")?);
        let attributes = r.u32("ExtFileAttributes")?;
        let allocation = r.u64("AllocationSize")?;
        let len = r.u64("EndOfFile")?;
        r.skip(4, "ResourceType and NMPipeStatus")?;
        let is_directory = r.u8("Directory")? != 0 || attributes & DIRECTORY != 0;
        Ok(Self {
            fid,
            action,
            created,
            accessed,
            written,
            changed,
            attributes,
            allocation,
            len,
            is_directory,
        })
    }

    /// Parses the response to OPEN_ANDX.
    ///
    /// # Errors
    /// If it is malformed.
    pub fn parse_old(response: &Response<'_>, zone: DosZone) -> Parsed<Self> {
        let r = &mut response.and_x(15, "OPEN_ANDX WordCount")?;
        let fid = Fid(r.u16("FID")?);
        let attributes = u32::from(r.u16("FileAttrs")?);
        let written = unix_seconds(r.u32("LastWriteTime")?, zone);
        let len = u64::from(r.u32("FileDataSize")?);
        r.skip(6, "AccessRights to NMPipeStatus")?;
        // MS-CIFS 2.2.4.41.2, OpenResult: opened, created, truncated.
        let action = match r.u16("OpenResults")? & 3 {
            2 => 2,
            3 => 3,
            _ => 1,
        };
        let is_directory = attributes & DIRECTORY != 0;
        let (created, accessed, changed) = (written, written, written);
        Ok(Self {
            fid,
            action,
            created,
            accessed,
            written,
            changed,
            attributes,
            allocation: len,
            len,
            is_directory,
        })
    }
}

open_enum! {
    /// AccessMode of OPEN_ANDX, without the sharing.
    OldAccess(u16) {
        /// Open for reading.
        READ = 0,
        /// Open for writing.
        WRITE = 1,
        /// Open for reading and writing.
        READ_WRITE = 2,
    }
}

/// The parameters of OPEN_ANDX, for servers without CAP_NT_SMBS.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OldOpen<'a> {
    /// Path below the share, that begins with `\`.
    pub name: &'a str,
    /// The uses of the file.
    pub access: OldAccess,
    /// Attributes of a new file.
    pub attributes: u16,
    /// ShareAccess of MS-SMB2 2.2.13.
    pub share_access: u32,
    /// CreateDisposition of MS-SMB2 2.2.13.
    pub disposition: u32,
}

/// SharingMode: returns what is denied to others where these uses are allowed.
const fn denied(share_access: u32) -> u16 {
    match share_access & 3 {
        // Deny all, deny write, deny read, deny nothing.
        0 => 1 << 4,
        1 => 2 << 4,
        2 => 3 << 4,
        _ => 4 << 4,
    }
}

/// Hidden, system and directory entries are found, too.
const FIND_ALL: u16 = 0x16;

impl OldOpen<'_> {
    /// Returns the request.
    ///
    /// # Errors
    /// If the code page lacks a character of the name.
    pub fn request(&self, charset: Charset) -> Result<Request<'static>, Unmappable> {
        // FileExistsOpts: fail, open, truncate; CreateFile: create.
        let mode = match self.disposition {
            2 => 0x10,
            3 => 0x11,
            4 => 0x02,
            0 | 5 => 0x12,
            _ => 0x01,
        };
        let mut bytes = Strings::new(charset);
        bytes.text(self.name)?;
        let words = and_x(|w| {
            w.u16(1)
                .u16(self.access.0 | denied(self.share_access))
                .u16(FIND_ALL)
                .u16(self.attributes & 0x27);
            w.u32(0).u16(mode).u32(0).u32(0).u32(0);
        });
        Ok(Request::new(Command::OPEN_ANDX, words, bytes.bytes))
    }
}

/// Returns the request that closes a file, and leaves its times alone.
pub fn close(fid: Fid) -> Request<'static> {
    let words = words(|w| {
        w.u16(fid.0).u32(u32::MAX);
    });
    Request::new(Command::CLOSE, words, Vec::new())
}

/// Returns the request that writes a file to the server's disk.
pub fn flush(fid: Fid) -> Request<'static> {
    let words = words(|w| {
        w.u16(fid.0);
    });
    Request::new(Command::FLUSH, words, Vec::new())
}
