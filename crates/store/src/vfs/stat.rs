//! The identity and the state of a file.

use alloc::string::String;

use frevo_wire::dtyp::{FileAttributes, FileTime};

/// The identity of one stream of one file on this machine, while the file exists. Share modes, byte
/// ranges and caching rights belong to a stream (MS-FSA 2.1.1.3 to 2.1.1.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FileKey {
    /// The file system's number.
    pub device: u64,
    /// The file's number in its file system.
    pub inode: u64,
    /// The stream: 0 is the file's own data (or the directory), any other number a hash of the
    /// folded name, see [`Name::stream_id`].
    pub stream: u64,
}

impl FileKey {
    /// Returns the key of a file's own data, or of a directory.
    pub const fn of_file(device: u64, inode: u64) -> Self {
        Self { device, inode, stream: 0 }
    }

    /// Returns the key of the file that this is a stream of.
    #[must_use]
    pub const fn file(self) -> Self {
        Self { stream: 0, ..self }
    }
}

/// A named stream as FileStreamInformation shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamStat {
    /// The name alone, without colons and type.
    pub name: String,
    /// Size in bytes.
    pub size: u64,
    /// Bytes allocated on the medium.
    pub allocation: u64,
}

/// The kind of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link, shown as a reparse point and never followed out of the share.
    Symlink,
    /// A FIFO.
    Fifo,
    /// A socket.
    Socket,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
}

/// The attributes that a file system stores; the others follow from the file's state.
pub const STORED_ATTRIBUTES: FileAttributes = FileAttributes(
    FileAttributes::READONLY.0
        | FileAttributes::HIDDEN.0
        | FileAttributes::SYSTEM.0
        | FileAttributes::ARCHIVE.0
        | FileAttributes::TEMPORARY.0
        | FileAttributes::SPARSE_FILE.0
        | FileAttributes::OFFLINE.0
        | FileAttributes::NOT_CONTENT_INDEXED.0,
);

/// The state of a file: MS-FSA 2.1.1.3 File in the host's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stat {
    /// The file's identity in the server.
    pub key: FileKey,
    /// FileId, the file's identity for clients. They take a share for one volume, so it is not
    /// [`FileKey::inode`] alone if other file systems are mounted below.
    pub id: u64,
    /// The kind of object.
    pub kind: Kind,
    /// Size in bytes; 0 for directories.
    pub end_of_file: u64,
    /// Bytes allocated on the medium; 0 for directories.
    pub allocation: u64,
    /// Number of hard links.
    pub links: u32,
    /// DOS attributes. DIRECTORY and REPARSE_POINT agree with `kind`, and NORMAL is set exactly if
    /// nothing else is.
    pub attributes: FileAttributes,
    /// CreationTime.
    pub created: FileTime,
    /// LastAccessTime.
    pub accessed: FileTime,
    /// LastWriteTime.
    pub written: FileTime,
    /// ChangeTime.
    pub changed: FileTime,
    /// POSIX permission bits (without the file type).
    pub mode: u32,
    /// POSIX owner.
    pub uid: u32,
    /// POSIX group.
    pub gid: u32,
    /// Reparse tag; 0 without REPARSE_POINT.
    pub reparse_tag: u32,
    /// Bytes of extended attributes as FileEaInformation counts them; 0 without any.
    pub ea_size: u32,
}

impl Stat {
    /// The state of an empty file or directory without attributes, whose times are all
    /// `time`: a beginning for `..Stat::new(...)`.
    pub const fn new(key: FileKey, kind: Kind, time: FileTime) -> Self {
        let attributes = match kind {
            Kind::Directory => FileAttributes::DIRECTORY,
            _ => FileAttributes::NORMAL,
        };
        Self {
            key,
            id: key.inode,
            kind,
            end_of_file: 0,
            allocation: 0,
            links: 1,
            attributes,
            created: time,
            accessed: time,
            written: time,
            changed: time,
            mode: 0o755,
            uid: 0,
            gid: 0,
            reparse_tag: 0,
            ea_size: 0,
        }
    }
}
