//! Level 100 of the SMB 3.1.1 POSIX extensions: the fields of `stat` and `statvfs`, in the layouts
//! that the Linux client and Samba exchange.

use super::fixed::fixed_struct;
use crate::codec::{Parsed, Reader, Writer};
use crate::dtyp::{FileAttributes, FileTime, Sid};

/// SMB3 file POSIX information: the answer to QUERY_INFO of
/// [`FileInfoClass::POSIX`](super::FileInfoClass::POSIX) and the body of its
/// directory entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PosixAttributes {
    /// Creation time.
    pub creation_time: FileTime,
    /// Last access time.
    pub last_access_time: FileTime,
    /// Last write time (mtime).
    pub last_write_time: FileTime,
    /// Change time (ctime).
    pub change_time: FileTime,
    /// Size in bytes.
    pub end_of_file: u64,
    /// Bytes allocated on disk.
    pub allocation_size: u64,
    /// DOS attributes.
    pub attributes: FileAttributes,
    /// Inode number.
    pub inode: u64,
    /// Device that the inode is on.
    pub device: u32,
    /// Number of hard links.
    pub links: u32,
    /// Reparse tag, zero if the file is not a reparse point.
    pub reparse_tag: u32,
    /// Type and permission bits in the encoding of the extensions.
    pub mode: u32,
    /// The owner, S-1-22-1-uid or a mapped SID.
    pub owner: Sid,
    /// The group, S-1-22-2-gid or a mapped SID.
    pub group: Sid,
}

impl Default for PosixAttributes {
    fn default() -> Self {
        Self {
            creation_time: FileTime::ZERO,
            last_access_time: FileTime::ZERO,
            last_write_time: FileTime::ZERO,
            change_time: FileTime::ZERO,
            end_of_file: 0,
            allocation_size: 0,
            attributes: FileAttributes::EMPTY,
            inode: 0,
            device: 0,
            links: 0,
            reparse_tag: 0,
            mode: 0,
            owner: Sid::ANONYMOUS,
            group: Sid::ANONYMOUS,
        }
    }
}

impl PosixAttributes {
    /// Bytes before the two SIDs.
    pub const FIXED_SIZE: usize = 80;

    /// Bytes of the two SIDs.
    pub fn sids_len(&self) -> usize {
        self.owner.encoded_len().saturating_add(self.group.encoded_len())
    }

    /// Takes the structure from a reader.
    pub fn read(r: &mut Reader<'_>) -> Parsed<Self> {
        let what = "POSIX information";
        let creation_time = FileTime(r.u64(what)?);
        let last_access_time = FileTime(r.u64(what)?);
        let last_write_time = FileTime(r.u64(what)?);
        let change_time = FileTime(r.u64(what)?);
        let end_of_file = r.u64(what)?;
        let allocation_size = r.u64(what)?;
        let attributes = FileAttributes(r.u32(what)?);
        let inode = r.u64(what)?;
        let device = r.u32(what)?;
        r.skip(4, what)?;
        Ok(Self {
            creation_time,
            last_access_time,
            last_write_time,
            change_time,
            end_of_file,
            allocation_size,
            attributes,
            inode,
            device,
            links: r.u32(what)?,
            reparse_tag: r.u32(what)?,
            mode: r.u32(what)?,
            owner: Sid::read(r)?,
            group: Sid::read(r)?,
        })
    }

    /// Parses the structure at the start of `bytes`.
    pub fn parse(bytes: &[u8]) -> Parsed<Self> {
        Self::read(&mut Reader::new(bytes))
    }

    /// Appends the structure to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        w.u64(self.creation_time.0)
            .u64(self.last_access_time.0)
            .u64(self.last_write_time.0)
            .u64(self.change_time.0)
            .u64(self.end_of_file)
            .u64(self.allocation_size)
            .u32(self.attributes.0)
            .u64(self.inode)
            .u32(self.device)
            .u32(0)
            .u32(self.links)
            .u32(self.reparse_tag)
            .u32(self.mode);
        self.owner.encode(w);
        self.group.encode(w);
    }
}

fixed_struct! {
    /// File system information of the extensions: the fields of `statvfs`.
    FsPosixInformation {
        /// Preferred size of a transfer, in bytes; zero leaves it to the client.
        optimal_transfer_size: u32;
        /// Bytes in a block.
        block_size: u32;
        /// Blocks of the file system.
        total_blocks: u64;
        /// Number of free blocks.
        free_blocks: u64;
        /// Free blocks for this user.
        available_blocks: u64;
        /// Inodes of the file system.
        total_inodes: u64;
        /// Number of free inodes.
        free_inodes: u64;
        /// Identifier of the file system.
        file_system_id: u64;
    }
}
