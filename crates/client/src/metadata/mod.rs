//! Metadata of files: size, times, attributes.

pub(crate) mod posix;
pub(crate) mod special_files;

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use frevo_wire::command::close;
use frevo_wire::dtyp::{FileAttributes as WireAttributes, FileTime};

use crate::metadata::posix::{PosixMetadata, Special};
use crate::types::FileAttributes;

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum FileType {
    /// A regular file: data in a default stream.
    File,
    /// A directory, also behind a DFS link.
    Directory,
    /// A symbolic link or another reparse point, by its tag (MS-FSCC 2.1.2.1); 0 if the
    /// server did not send the tag.
    Reparse(u32),
}

/// IO_REPARSE_TAG_SYMLINK and IO_REPARSE_TAG_LX_SYMLINK, MS-FSCC 2.1.2.1.
const SYMLINK_TAGS: [u32; 2] = [0xA000_000C, 0xA000_001D];

impl FileType {
    /// Returns true for a directory, not for a link to one.
    pub const fn is_dir(self) -> bool {
        matches!(self, Self::Directory)
    }

    /// Returns true for a regular file, not for a link to one.
    pub const fn is_file(self) -> bool {
        matches!(self, Self::File)
    }

    /// Returns true for a symbolic link whose tag the server sent.
    pub const fn is_symlink(self) -> bool {
        matches!(self, Self::Reparse(tag) if tag == SYMLINK_TAGS[0] || tag == SYMLINK_TAGS[1])
    }
}

/// Size, times and attributes of a file after its close: MS-SMB2 2.2.16.
#[derive(Debug, Clone, Copy)]
pub struct AtClose(pub(crate) close::Response);

/// Size, times and attributes of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metadata {
    pub(crate) len: u64,
    pub(crate) allocation: u64,
    pub(crate) attributes: WireAttributes,
    pub(crate) created: FileTime,
    pub(crate) accessed: FileTime,
    pub(crate) written: FileTime,
    pub(crate) changed: FileTime,
    pub(crate) reparse_tag: u32,
    pub(crate) file_id: u64,
    pub(crate) links: u32,
    pub(crate) is_junction: bool,
    pub(crate) posix: Option<PosixMetadata>,
    pub(crate) special: Option<Special>,
}

#[expect(clippy::len_without_is_empty, reason = "as std::fs::Metadata")]
impl Metadata {
    /// Returns the length of the file in bytes.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Returns the bytes that the file takes on the server's disk.
    pub const fn allocation(&self) -> u64 {
        self.allocation
    }

    /// Returns the DOS attributes.
    pub const fn attributes(&self) -> FileAttributes {
        FileAttributes::from_bits(self.attributes.0)
    }

    /// Returns the type of the file.
    pub const fn file_type(&self) -> FileType {
        if self.attributes.contains(WireAttributes::REPARSE_POINT) {
            FileType::Reparse(self.reparse_tag)
        } else if self.attributes.contains(WireAttributes::DIRECTORY) {
            FileType::Directory
        } else {
            FileType::File
        }
    }

    /// Returns true for a directory, not for a link to one.
    pub const fn is_dir(&self) -> bool {
        self.file_type().is_dir()
    }

    /// Returns true for a regular file, not for a link to one.
    pub const fn is_file(&self) -> bool {
        self.file_type().is_file()
    }

    /// Returns true for a symbolic link. [`Share::metadata`](crate::Share::metadata) does not
    /// ask for the tag that tells links from other reparse points; listings and
    /// [`Share::lookup`](crate::Share::lookup) do.
    pub const fn is_symlink(&self) -> bool {
        self.file_type().is_symlink()
    }

    /// Returns true for a link of a DFS namespace: the directory lies on another share, and
    /// removing its entries removes them there.
    pub const fn is_junction(&self) -> bool {
        self.is_junction
    }

    /// Returns the time at which the file was created.
    pub fn created(&self) -> SystemTime {
        system_time(self.created)
    }

    /// Returns the time of the last read, if the server keeps it.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.accessed)
    }

    /// Returns the time at which the data was last changed.
    pub fn modified(&self) -> SystemTime {
        system_time(self.written)
    }

    /// Returns the time at which the data or the metadata was last changed.
    pub fn changed(&self) -> SystemTime {
        system_time(self.changed)
    }

    /// Returns the time of the last write as the server sent it: 100 ns since 1601.
    #[doc(hidden)]
    pub const fn modified_ticks(&self) -> FileTime {
        self.written
    }

    /// Returns the file's number on its volume; 0 if the server did not send one.
    pub const fn file_id(&self) -> u64 {
        // MS-FSCC 2.1.9: all ones mean that the file has no unique number, which this client
        // reports as 0.
        if self.file_id == u64::MAX { 0 } else { self.file_id }
    }

    /// Returns mode and owners, if the share has the POSIX extensions.
    pub const fn posix(&self) -> Option<PosixMetadata> {
        self.posix
    }

    /// Returns the kind of a special file, if it was read.
    #[doc(hidden)]
    pub const fn special(&self) -> Option<Special> {
        self.special
    }

    /// Returns the number of hard links; 0 if the server did not send it.
    pub const fn links(&self) -> u32 {
        self.links
    }

    /// Replaces the file's number.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_file_id(self, file_id: u64) -> Self {
        Self { file_id, ..self }
    }

    /// Returns the metadata with other DOS attributes.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_attributes(self, attributes: FileAttributes) -> Self {
        Self { attributes: attributes.wire(), ..self }
    }

    /// Replaces the reparse tag.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_reparse_tag(self, reparse_tag: u32) -> Self {
        Self { reparse_tag, ..self }
    }

    /// Replaces the length: for a caller that holds unsent writes.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_len(self, len: u64) -> Self {
        Self { len, ..self }
    }

    /// Replaces the fields that a CLOSE returns.
    #[doc(hidden)]
    #[must_use]
    pub const fn closed(self, AtClose(closed): &AtClose) -> Self {
        Self {
            len: closed.end_of_file,
            allocation: closed.allocation_size,
            attributes: closed.file_attributes,
            created: closed.creation_time,
            accessed: closed.last_access_time,
            written: closed.last_write_time,
            changed: closed.change_time,
            ..self
        }
    }

    /// Replaces the number of hard links.
    #[doc(hidden)]
    #[must_use]
    pub const fn with_links(self, links: u32) -> Self {
        Self { links, ..self }
    }
}

/// Converts a time of the protocol. Times that [`SystemTime`] cannot hold are 1970.
pub fn system_time(time: FileTime) -> SystemTime {
    let (seconds, nanoseconds) = time.to_unix();
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanoseconds.into())))
        .unwrap_or(UNIX_EPOCH)
}

/// Converts a time to the protocol's form, 100 ns since 1601. It is cut to that range.
pub fn file_time(time: SystemTime) -> FileTime {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => {
            let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            FileTime::from_unix(seconds, since.subsec_nanos())
        }
        Err(before) => {
            let before = before.duration();
            let seconds = i64::try_from(before.as_secs()).unwrap_or(i64::MAX);
            let nanoseconds = before.subsec_nanos();
            if nanoseconds == 0 {
                FileTime::from_unix(-seconds, 0)
            } else {
                FileTime::from_unix(-seconds - 1, 1_000_000_000 - nanoseconds)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_that_is_not_unique_is_none() {
        let of = |file_id| Metadata { file_id, ..Metadata::default() }.file_id();
        assert_eq!((of(7), of(0), of(u64::MAX)), (7, 0, 0));
    }

    #[test]
    fn times_come_back() {
        for time in [
            UNIX_EPOCH,
            UNIX_EPOCH + Duration::new(1_700_000_000, 123_456_700),
            UNIX_EPOCH - Duration::new(1_000, 500_000_000),
        ] {
            assert_eq!(system_time(file_time(time)), time);
        }
    }
}
