//! Conversion of the host's state of a file to the store's.

use frevo_store::vfs::{Kind, STORED_ATTRIBUTES};
use frevo_store::{FileKey, Stat};
use frevo_wire::dtyp::{FileAttributes, FileTime};
use rustix::fs::{FileType, Statx, StatxAttributes, StatxFlags, StatxTimestamp};

use crate::dosattrib::DosAttrib;

/// IO_REPARSE_TAG_SYMLINK, MS-FSCC 2.1.2.1.
const TAG_SYMLINK: u32 = 0xA000_000C;
/// IO_REPARSE_TAG_NFS, MS-FSCC 2.1.2.6: FIFOs, sockets and devices.
const TAG_NFS: u32 = 0x8000_0014;

pub(crate) fn key_of(stx: &Statx) -> FileKey {
    let device = u64::from(stx.stx_dev_major) << 32 | u64::from(stx.stx_dev_minor);
    FileKey::of_file(device, stx.stx_ino)
}

/// Returns the device numbers (major, minor) in a file's key.
pub(crate) const fn device_of(key: FileKey) -> (u32, u32) {
    ((key.device >> 32) as u32, key.device as u32)
}

pub(crate) fn kind_of(stx: &Statx) -> Kind {
    match FileType::from_raw_mode(u32::from(stx.stx_mode)) {
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Symlink,
        FileType::Fifo => Kind::Fifo,
        FileType::Socket => Kind::Socket,
        FileType::CharacterDevice => Kind::CharDevice,
        FileType::BlockDevice => Kind::BlockDevice,
        _ => Kind::File,
    }
}

fn time(t: &StatxTimestamp) -> FileTime {
    FileTime::from_unix(t.tv_sec, t.tv_nsec)
}

/// Returns the host's time.
pub(crate) fn clock() -> FileTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    FileTime::from_unix(now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns the host's time at the last tick of its clock, which is the birth time of a new file.
pub(crate) fn coarse_clock() -> FileTime {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::RealtimeCoarse);
    FileTime::from_unix(now.tv_sec, u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns the birth time, if the medium has it.
pub(crate) fn birth_of(stx: &Statx) -> Option<FileTime> {
    (stx.stx_mask & StatxFlags::BTIME.bits() != 0).then(|| time(&stx.stx_btime))
}

/// Facts from the name and the attributes that complete the host's state.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Extra {
    /// The DOSATTRIB value, if there is one.
    pub(crate) dos: Option<DosAttrib>,
    /// True if the name is one of the hidden ones.
    pub(crate) hidden_name: bool,
    /// Size of the extended attributes; see [`Stat::ea_size`].
    pub(crate) ea_size: u32,
    /// The tag of the stored reparse buffer, or 0.
    pub(crate) reparse_tag: u32,
    /// True for a symbolic link that stands for a directory.
    pub(crate) is_directory_link: bool,
}

/// Returns the time of the last change by the host's own record.
pub(crate) fn host_change(stx: &Statx) -> FileTime {
    time(&stx.stx_ctime)
}

pub(crate) fn stat_of(stx: &Statx, extra: &Extra) -> Stat {
    let key = key_of(stx);
    let kind = kind_of(stx);
    let kept = match kind {
        Kind::Directory => FileAttributes::DIRECTORY,
        Kind::Symlink if extra.is_directory_link => FileAttributes::DIRECTORY,
        // MS-FSA 2.1.5.10.37: a file that becomes a symbolic link gets ARCHIVE, so a link is shown
        // with it.
        Kind::Symlink => FileAttributes::ARCHIVE,
        _ => FileAttributes::EMPTY,
    };
    let reparse_tag = match kind {
        Kind::File | Kind::Directory => extra.reparse_tag,
        Kind::Symlink => TAG_SYMLINK,
        _ => TAG_NFS,
    };
    let (accessed, written, changed) =
        (time(&stx.stx_atime), time(&stx.stx_mtime), time(&stx.stx_ctime));
    let born = birth_of(stx).unwrap_or_else(|| accessed.min(written).min(changed));
    let data = kind == Kind::File;
    // A time that a client has set is shown only until the host changes the file.
    let set = extra.dos.and_then(|d| d.changed).filter(|set| changed <= set.until);
    let times = extra.dos.and_then(|d| d.times).filter(|times| written == times.at);
    Stat {
        key,
        id: key.inode,
        kind,
        end_of_file: if data { stx.stx_size } else { 0 },
        allocation: if data { stx.stx_blocks.saturating_mul(512) } else { 0 },
        links: stx.stx_nlink,
        attributes: attributes(extra, kept, reparse_tag != 0, is_compressed(stx)),
        created: extra.dos.and_then(|d| d.created).unwrap_or(born),
        accessed: times.and_then(|times| times.accessed).unwrap_or(accessed),
        written: times.and_then(|times| times.written).unwrap_or(written),
        changed: set.map_or(changed, |set| set.shown),
        mode: u32::from(stx.stx_mode) & 0o7777,
        uid: stx.stx_uid,
        gid: stx.stx_gid,
        reparse_tag,
        ea_size: extra.ea_size,
    }
}

fn is_compressed(stx: &Statx) -> bool {
    let compressed = StatxAttributes::COMPRESSED;
    stx.stx_attributes_mask.contains(compressed) && stx.stx_attributes.contains(compressed)
}

/// Returns the attributes of an object; `of_kind` are those that its kind has.
fn attributes(
    extra: &Extra,
    of_kind: FileAttributes,
    reparse: bool,
    compressed: bool,
) -> FileAttributes {
    let mut bits = extra.dos.map_or(0, |d| d.attributes) & STORED_ATTRIBUTES.0 | of_kind.0;
    if compressed {
        bits |= FileAttributes::COMPRESSED.0;
    }
    if reparse {
        bits |= FileAttributes::REPARSE_POINT.0;
    }
    if extra.hidden_name {
        bits |= FileAttributes::HIDDEN.0;
    }
    if bits == 0 { FileAttributes::NORMAL } else { FileAttributes(bits) }
}
