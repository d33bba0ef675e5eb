//! Streams as extended attributes, and the state of a file as a stream's.

use std::ffi::CString;

use frevo_store::vfs::{Kind, VfsResult};
use frevo_store::{FileKey, Name, Stat};
use frevo_wire::dtyp::FileAttributes;
use rustix::fs::Statx;

use crate::errno::fault_of;
use crate::limits::XATTR_NAME_BYTES;
use crate::xattr::Handle;

/// The part of an attribute's name before the stream's name in Samba's streams_xattr.
const PREFIX: &str = "user.DosStream.";
const SUFFIX: &str = ":$DATA";

pub(crate) fn stream_key(file: FileKey, stream: &str) -> FileKey {
    FileKey { stream: stream_id(stream), ..file.file() }
}

/// Returns the number of a stream's name, which is equal for all its spellings.
pub(crate) fn stream_id(stream: &str) -> u64 {
    Name::root().with_stream(Some(stream)).stream_id()
}

/// Returns the attribute that stores a stream, if the name fits.
pub fn attribute(stream: &str) -> Option<CString> {
    let name = format!("{PREFIX}{stream}{SUFFIX}");
    if name.len() > XATTR_NAME_BYTES { None } else { CString::new(name).ok() }
}

/// Returns the stream that an attribute stores.
pub fn stream_of(attribute: &[u8]) -> Option<&str> {
    let name = core::str::from_utf8(attribute).ok()?;
    name.strip_prefix(PREFIX)?.strip_suffix(SUFFIX).filter(|stream| !stream.is_empty())
}

/// Returns the streams that are stored in attributes.
pub(crate) fn attributes(file: &Handle) -> VfsResult<Vec<String>> {
    let names = file.names(|name| stream_of(name).is_some()).map_err(fault_of)?;
    Ok(names.iter().filter_map(|n| stream_of(n.as_bytes())).map(str::to_owned).collect())
}

/// The size of a stream, and the space that it takes, in bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Extent {
    /// Stream.Size
    pub(crate) size: u64,
    /// Stream.AllocationSize
    pub(crate) allocation: u64,
}

impl Extent {
    /// Returns that of a stream in an attribute: as on NTFS, which keeps small streams in the file's
    /// record.
    pub(crate) const fn of_attribute(size: u64) -> Self {
        Self { size, allocation: size.next_multiple_of(8) }
    }

    /// Returns that of a stream in the side folder, whose file is in this state.
    pub(crate) const fn of_side(stx: &Statx) -> Self {
        Self { size: stx.stx_size, allocation: stx.stx_blocks.saturating_mul(512) }
    }
}

/// Returns the file's state with a stream's identity and size.
pub(crate) fn stat_of(file: Stat, stream: &str, extent: Extent) -> Stat {
    let mut attributes = file.attributes.without(FileAttributes::DIRECTORY);
    if attributes.is_empty() {
        attributes = FileAttributes::NORMAL;
    }
    Stat {
        key: stream_key(file.key, stream),
        kind: Kind::File,
        end_of_file: extent.size,
        allocation: extent.allocation,
        attributes,
        ..file
    }
}
