//! What is known of a file.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use frevo_wire::dtyp::{FileAttributes, FileTime};

use crate::create::Opened;
use crate::posix::Posix;
use crate::share::Share;
use crate::special_files::Special;

/// What a file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileType {
    /// A file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link or another reparse point, by its tag (0 if the server
    /// did not tell).
    Reparse(u32),
}

/// Size, times and attributes of a file.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Metadata {
    pub(crate) len: u64,
    pub(crate) allocation: u64,
    pub(crate) attributes: FileAttributes,
    pub(crate) created: FileTime,
    pub(crate) accessed: FileTime,
    pub(crate) written: FileTime,
    pub(crate) changed: FileTime,
    pub(crate) reparse_tag: u32,
    pub(crate) file_id: u64,
    pub(crate) links: u32,
    pub(crate) is_junction: bool,
    pub(crate) posix: Option<Posix>,
    pub(crate) special: Option<Special>,
}

impl Metadata {
    /// Bytes to the end of the file.
    pub const fn len(&self) -> u64 {
        self.len
    }

    /// Whether it has no bytes.
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Bytes on the medium.
    pub const fn allocation(&self) -> u64 {
        self.allocation
    }

    /// DOS attributes.
    pub const fn attributes(&self) -> FileAttributes {
        self.attributes
    }

    /// What it is.
    pub const fn file_type(&self) -> FileType {
        if self.attributes.contains(FileAttributes::REPARSE_POINT) {
            FileType::Reparse(self.reparse_tag)
        } else if self.attributes.contains(FileAttributes::DIRECTORY) {
            FileType::Directory
        } else {
            FileType::File
        }
    }

    /// Whether it is a directory (and no link to one).
    pub const fn is_dir(&self) -> bool {
        matches!(self.file_type(), FileType::Directory)
    }

    /// Whether it is a file.
    pub const fn is_file(&self) -> bool {
        matches!(self.file_type(), FileType::File)
    }

    /// Whether it is a directory at another place, to which a link of a DFS namespace
    /// leads: what is in it goes when that is removed there.
    pub const fn is_junction(&self) -> bool {
        self.is_junction
    }

    /// As it is in `share`, perhaps a link there. A link has no id of its own: what it
    /// leads to changes.
    pub(crate) fn found_in(self, share: &Share, is_junction: bool) -> Self {
        let file_id = if is_junction { 0 } else { share.file_id(self.file_id) };
        Self { file_id, is_junction, ..self }
    }

    /// When it was made.
    pub fn created(&self) -> SystemTime {
        system_time(self.created)
    }

    /// When it was read last, as far as the server keeps that.
    pub fn accessed(&self) -> SystemTime {
        system_time(self.accessed)
    }

    /// When its data was changed last.
    pub fn modified(&self) -> SystemTime {
        system_time(self.written)
    }

    /// When anything of it was changed last.
    pub fn changed(&self) -> SystemTime {
        system_time(self.changed)
    }

    /// The time of the last write as the server has it, in units of 100 ns.
    pub const fn modified_ticks(&self) -> FileTime {
        self.written
    }

    /// What names it on its volume, 0 if the server did not tell.
    pub const fn file_id(&self) -> u64 {
        // MS-FSCC 2.1.9: there is none that is unique.
        if self.file_id == u64::MAX { 0 } else { self.file_id }
    }

    /// What it is to POSIX, if the share has the extensions.
    pub const fn posix(&self) -> Option<Posix> {
        self.posix
    }

    /// Which special file it is, if [`Share::look_into`] was asked for it.
    pub const fn special(&self) -> Option<Special> {
        self.special
    }

    /// Hard links, 0 if the server did not tell.
    pub const fn links(&self) -> u32 {
        self.links
    }

    /// The same of another file: for tests of who goes by its number.
    #[must_use]
    pub const fn with_file_id(self, file_id: u64) -> Self {
        Self { file_id, ..self }
    }

    /// The same with other attributes.
    #[must_use]
    pub const fn with_attributes(self, attributes: FileAttributes) -> Self {
        Self { attributes, ..self }
    }

    /// The same as a reparse point with that tag: for tests.
    #[must_use]
    pub const fn with_reparse_tag(self, reparse_tag: u32) -> Self {
        Self { reparse_tag, ..self }
    }

    /// The same with another length: of one who keeps back what he wrote.
    #[must_use]
    pub const fn with_len(self, len: u64) -> Self {
        Self { len, ..self }
    }

    /// The same with so many links: of one who knows better than a listing.
    #[must_use]
    pub const fn with_links(self, links: u32) -> Self {
        Self { links, ..self }
    }
}

impl From<&Opened> for Metadata {
    fn from(opened: &Opened) -> Self {
        Self {
            len: opened.end_of_file,
            allocation: opened.allocation,
            attributes: opened.attributes,
            created: opened.created,
            accessed: opened.accessed,
            written: opened.written,
            changed: opened.changed,
            reparse_tag: 0,
            file_id: opened.identity.map_or(0, |identity| identity.disk_file_id),
            links: opened.links,
            posix: opened.posix,
            is_junction: false,
            special: None,
        }
    }
}

/// The time as the standard library has it.
pub fn system_time(time: FileTime) -> SystemTime {
    let (seconds, nanoseconds) = time.to_unix();
    let whole = Duration::from_secs(seconds.unsigned_abs());
    let base =
        if seconds < 0 { UNIX_EPOCH.checked_sub(whole) } else { UNIX_EPOCH.checked_add(whole) };
    base.and_then(|base| base.checked_add(Duration::from_nanos(nanoseconds.into())))
        .unwrap_or(UNIX_EPOCH)
}

/// The time as the protocol has it.
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
