//! Information classes that only SET_INFO uses, MS-FSCC 2.4. Classes that can also be queried are
//! in [`query`](super::query).

use super::fixed::{fixed_struct, newtype_field};
use super::name::{WireName, read_counted, write_counted};
use crate::bit_set;
use crate::codec::{Parsed, Reader, Writer};

bit_set! {
    /// Flags of FileDispositionInformationEx, MS-FSCC 2.4.12.
    DispositionFlags(u32) {
        /// FILE_DISPOSITION_DELETE
        DELETE = 0x01,
        /// FILE_DISPOSITION_POSIX_SEMANTICS
        POSIX_SEMANTICS = 0x02,
        /// FILE_DISPOSITION_FORCE_IMAGE_SECTION_CHECK
        FORCE_IMAGE_SECTION_CHECK = 0x04,
        /// FILE_DISPOSITION_ON_CLOSE
        ON_CLOSE = 0x08,
        /// FILE_DISPOSITION_IGNORE_READONLY_ATTRIBUTE
        IGNORE_READONLY_ATTRIBUTE = 0x10,
    }
}

bit_set! {
    /// Flags of FileRenameInformationEx, MS-FSCC 2.4.43.
    RenameFlags(u32) {
        /// FILE_RENAME_REPLACE_IF_EXISTS
        REPLACE_IF_EXISTS = 0x001,
        /// FILE_RENAME_POSIX_SEMANTICS
        POSIX_SEMANTICS = 0x002,
        /// FILE_RENAME_SUPPRESS_PIN_STATE_INHERITANCE
        SUPPRESS_PIN_STATE_INHERITANCE = 0x004,
        /// FILE_RENAME_SUPPRESS_STORAGE_RESERVE_INHERITANCE
        SUPPRESS_STORAGE_RESERVE_INHERITANCE = 0x008,
        /// FILE_RENAME_NO_INCREASE_AVAILABLE_SPACE
        NO_INCREASE_AVAILABLE_SPACE = 0x010,
        /// FILE_RENAME_NO_DECREASE_AVAILABLE_SPACE
        NO_DECREASE_AVAILABLE_SPACE = 0x020,
        /// FILE_RENAME_IGNORE_READONLY_ATTRIBUTE
        IGNORE_READONLY_ATTRIBUTE = 0x040,
        /// FILE_RENAME_FORCE_RESIZE_TARGET_SR
        FORCE_RESIZE_TARGET_SR = 0x080,
        /// FILE_RENAME_FORCE_RESIZE_SOURCE_SR
        FORCE_RESIZE_SOURCE_SR = 0x100,
    }
}

newtype_field! { DispositionFlags(u32), RenameFlags(u32), }

fixed_struct! {
    /// FileDispositionInformation, MS-FSCC 2.4.11.
    FileDispositionInformation {
        /// DeletePending
        delete_pending: bool;
    }

    /// FileDispositionInformationEx, MS-FSCC 2.4.12.
    FileDispositionInformationEx {
        /// Flags
        flags: DispositionFlags;
    }

    /// FileAllocationInformation, MS-FSCC 2.4.4.
    FileAllocationInformation {
        /// AllocationSize, in bytes; negative is STATUS_INVALID_PARAMETER.
        allocation_size: i64;
    }

    /// FileEndOfFileInformation, MS-FSCC 2.4.14.
    FileEndOfFileInformation {
        /// EndOfFile, in bytes; negative is STATUS_INVALID_PARAMETER.
        end_of_file: i64;
    }

    /// FileValidDataLengthInformation, MS-FSCC 2.4.50.
    FileValidDataLengthInformation {
        /// ValidDataLength, in bytes; must be positive.
        valid_data_length: i64;
    }
}

/// FileRenameInformation for SMB2, MS-FSCC 2.4.42.2.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRenameInformation<N> {
    /// ReplaceIfExists
    pub replace_if_exists: bool,
    /// RootDirectory: anything but zero is STATUS_INVALID_PARAMETER.
    pub root_directory: u64,
    /// FileName: the new path from the root of the share.
    pub name: N,
}

/// FileLinkInformation for SMB2 has the same fields, MS-FSCC 2.4.28.2.
pub type FileLinkInformation<N> = FileRenameInformation<N>;

/// FileRenameInformationEx, MS-FSCC 2.4.43.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileRenameInformationEx<N> {
    /// Flags
    pub flags: RenameFlags,
    /// RootDirectory: anything but zero is STATUS_INVALID_PARAMETER.
    pub root_directory: u64,
    /// FileName: the new path from the root of the share.
    pub name: N,
}

/// The structures are at least this long, with padding after a short name.
const RENAME_MIN: usize = 24;

fn write_rename(w: &mut Writer<'_>, flags: u32, root_directory: u64, name: &str) {
    let start = w.offset();
    w.u32(flags).u32(0).u64(root_directory);
    write_counted(w, name);
    let written = w.offset().saturating_sub(start);
    w.zeros(RENAME_MIN.saturating_sub(written));
}

impl FileRenameInformation<&str> {
    /// Appends the structure to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_rename(w, u32::from(self.replace_if_exists), self.root_directory, self.name);
    }
}

impl<'a> FileRenameInformation<WireName<'a>> {
    /// Parses the structure at the start of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let mut r = Reader::new(bytes);
        let replace_if_exists = r.u8("ReplaceIfExists")? != 0;
        r.skip(7, "rename information")?;
        let root_directory = r.u64("RootDirectory")?;
        Ok(Self {
            replace_if_exists,
            root_directory,
            name: read_counted(&mut r, "FileNameLength")?,
        })
    }
}

impl FileRenameInformationEx<&str> {
    /// Appends the structure to `w`.
    pub fn encode(&self, w: &mut Writer<'_>) {
        write_rename(w, self.flags.0, self.root_directory, self.name);
    }
}

impl<'a> FileRenameInformationEx<WireName<'a>> {
    /// Parses the structure at the start of `bytes`.
    pub fn parse(bytes: &'a [u8]) -> Parsed<Self> {
        let mut r = Reader::new(bytes);
        let flags = RenameFlags(r.u32("rename flags")?);
        r.skip(4, "rename information")?;
        let root_directory = r.u64("RootDirectory")?;
        Ok(Self { flags, root_directory, name: read_counted(&mut r, "FileNameLength")? })
    }
}
