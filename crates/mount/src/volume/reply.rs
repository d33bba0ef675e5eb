//! Replies to the kernel: attributes of nodes, and the changes that setattr requests.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use frevo_client::internal::Special;
use frevo_client::{FileAttributes, Metadata};
use fuser::{FileAttr, FileType, INodeNo};

use crate::node::Node;
use crate::settings::Settings;

/// The preferred block size for reads and writes, bytes.
const BLOCK: u32 = 128 << 10;
/// The write bits of a mode.
pub(super) const WRITE_BITS: u32 = 0o222;

/// The attributes of a node, and how long the kernel may cache them.
#[derive(Clone, Copy)]
pub(crate) struct EntryReply {
    pub(crate) attr: FileAttr,
    pub(crate) ttl: Duration,
}

/// Returns the attributes of a node for the kernel.
pub(super) fn attr(node: &Node, metadata: &Metadata, settings: &Settings) -> FileAttr {
    let posix = metadata.posix();
    let mut perm = match (posix, node.kind) {
        (Some(posix), _) => posix.mode,
        (None, FileType::Symlink) => 0o777,
        (None, FileType::Directory) => settings.dir_mode,
        (None, _) => settings.file_mode,
    };
    let is_read_only = posix.is_none() && metadata.attributes().contains(FileAttributes::READONLY);
    // On Windows READONLY does not make a directory unwritable, so a directory keeps its write
    // bits.
    if settings.read_only || (is_read_only && !node.is_dir()) {
        perm &= !(WRITE_BITS as u16);
    }
    FileAttr {
        ino: INodeNo(node.id),
        size: metadata.len(),
        blocks: metadata.allocation().div_ceil(512),
        atime: metadata.accessed(),
        mtime: metadata.modified(),
        ctime: metadata.changed(),
        crtime: metadata.created(),
        kind: node.kind,
        perm,
        nlink: metadata.links().max(1),
        uid: posix.and_then(|posix| posix.uid).unwrap_or(settings.uid),
        gid: posix.and_then(|posix| posix.gid).unwrap_or(settings.gid),
        rdev: device(node, metadata),
        blksize: BLOCK,
        flags: 0,
    }
}

/// Returns a device number with FUSE's 12 bits for the major and 20 bits for the minor number; 0 if
/// it is unknown or too large.
fn device(node: &Node, metadata: &Metadata) -> u32 {
    match (metadata.special(), node.kind) {
        (Some(Special::CharDevice(major, minor)), FileType::CharDevice)
        | (Some(Special::BlockDevice(major, minor)), FileType::BlockDevice) => {
            u32::try_from(libc::makedev(major, minor)).unwrap_or(0)
        }
        _ => 0,
    }
}

impl EntryReply {
    /// Returns the attributes of an absent name (number 0).
    pub(crate) const fn negative() -> FileAttr {
        FileAttr {
            ino: INodeNo(0),
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::RegularFile,
            perm: 0,
            nlink: 0,
            uid: 0,
            gid: 0,
            rdev: 0,
            blksize: 0,
            flags: 0,
        }
    }
}

/// The changes of a setattr; None leaves a field unchanged.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Changes {
    pub(crate) mode: Option<u32>,
    pub(crate) uid: Option<u32>,
    pub(crate) gid: Option<u32>,
    pub(crate) size: Option<u64>,
    pub(crate) accessed: Option<SystemTime>,
    pub(crate) modified: Option<SystemTime>,
}
