//! What a file system on top of a share asks: all that is known of a name in
//! one round trip, room, and removing and renaming as POSIX has it.

use frevo_wire::codec::Writer;
use frevo_wire::command::close::{self, CloseFlags};
use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::query_info::InfoType;
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;
use frevo_wire::fscc::query::FileAttributeTagInformation;
use frevo_wire::fscc::set::{DispositionFlags, FileRenameInformationEx, RenameFlags};
use frevo_wire::fscc::volume::FsFullSizeInformation;
use frevo_wire::fscc::{FileInfoClass, FsInfoClass};
use frevo_wire::{Command, Status};

use crate::connection::Call;
use crate::create::Ask;
use crate::error::{Cause, During, Error, Result};
use crate::file::{output, query};
use crate::info::{ALL_MAX, read_all};
use crate::metadata::Metadata;
use crate::share::{Replay, Share};

/// Room on the volume of a share: MS-FSCC 2.5.4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Bytes in an allocation unit.
    pub unit: u64,
    /// Allocation units of the volume.
    pub total: u64,
    /// Those that are free.
    pub free: u64,
    /// Those that this user may still fill.
    pub available: u64,
}

/// The handle of the CREATE that a compound begins with.
const RELATED: FileId = FileId::ALL_ONES;

pub(crate) fn close_call() -> Call<'static> {
    let request = close::Request { flags: CloseFlags::EMPTY, file_id: RELATED };
    Call::new(Command::CLOSE, |w| request.encode(w))
}

pub(crate) fn look_at(access: AccessMask) -> Ask {
    let mut ask = Ask::existing(access | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
    ask.options |= CreateOptions::OPEN_REPARSE_POINT;
    ask
}

impl Share {
    /// What `path` is, with its id, its links and its reparse tag, which
    /// [`Self::metadata`] leaves out. A symbolic link is not followed.
    ///
    /// # Errors
    /// What the server says.
    pub async fn lookup(&self, path: &str) -> Result<Metadata> {
        const OPERATION: &str = "look up";
        if self.is_posix() {
            return self.lookup_posix(path).await;
        }
        let ask = look_at(AccessMask::EMPTY);
        let ask_for =
            |class: FileInfoClass, most| query(InfoType::FILE, class.0, 0, RELATED, &[], most);
        let calls = || {
            vec![
                ask_for(FileInfoClass::ALL, ALL_MAX),
                ask_for(FileInfoClass::ATTRIBUTE_TAG, FileAttributeTagInformation::SIZE as u32),
                close_call(),
            ]
        };
        let also = [Status::BUFFER_OVERFLOW];
        let answers = self.chain(OPERATION, path, Replay::Idempotent, &ask, &also, calls).await?;
        let url = self.url(path);
        let [_, all, tag, ..] = &*answers.messages else { return Err(missing(OPERATION, url)) };
        let mut found =
            output(all).and_then(|bytes| Ok(read_all(bytes)?)).during(OPERATION, &url)?;
        if found.attributes.contains(FileAttributes::REPARSE_POINT) {
            let tag = output(tag)
                .and_then(|bytes| Ok(FileAttributeTagInformation::parse(bytes)?))
                .during(OPERATION, &url)?;
            found.reparse_tag = tag.reparse_tag.0;
        }
        Ok(answers.of_there(found))
    }

    /// The room on the share's volume.
    ///
    /// # Errors
    /// What the server says.
    pub async fn room(&self, path: &str) -> Result<Room> {
        const OPERATION: &str = "ask for the room of";
        let class = FsInfoClass::FULL_SIZE.0;
        let most = FsFullSizeInformation::SIZE as u32;
        let calls =
            || vec![query(InfoType::FILESYSTEM, class, 0, RELATED, &[], most), close_call()];
        let ask = look_at(AccessMask::EMPTY);
        let answers = self.chain(OPERATION, path, Replay::Idempotent, &ask, &[], calls).await?;
        let url = self.url(path);
        let [_, size, ..] = &*answers.messages else { return Err(missing(OPERATION, url)) };
        let size = output(size)
            .and_then(|bytes| Ok(FsFullSizeInformation::parse(bytes)?))
            .during(OPERATION, &url)?;
        let unit = u64::from(size.sectors_per_allocation_unit) * u64::from(size.bytes_per_sector);
        Ok(Room {
            unit,
            total: size.total_allocation_units,
            free: size.actual_available_allocation_units,
            available: size.caller_available_allocation_units,
        })
    }

    /// Removes a name at once, whoever has the file open: those go on with a file
    /// without a name (MS-FSCC 2.4.12, FILE_DISPOSITION_POSIX_SEMANTICS).
    ///
    /// # Errors
    /// NOT_SUPPORTED or INVALID_INFO_CLASS of a server that does not know it, and
    /// what else it says.
    pub async fn unlink(&self, path: &str, directory: bool) -> Result<()> {
        let mut ask = Ask { is_of_name: true, ..look_at(AccessMask::DELETE) };
        ask.options |= if directory {
            CreateOptions::DIRECTORY_FILE
        } else {
            CreateOptions::NON_DIRECTORY_FILE
        };
        let flags = DispositionFlags::DELETE
            | DispositionFlags::POSIX_SEMANTICS
            | DispositionFlags::IGNORE_READONLY_ATTRIBUTE;
        let calls = || {
            let class = FileInfoClass::DISPOSITION_EX.0;
            let data = flags.0.to_le_bytes();
            vec![crate::file::set(InfoType::FILE, class, 0, RELATED, &data), close_call()]
        };
        self.chain("remove", path, Replay::Never, &ask, &[], calls).await?;
        Ok(())
    }

    /// Renames `from` to `to` even where `to` is open: those who have it go on
    /// with a file without a name (MS-FSCC 2.4.43, FILE_RENAME_POSIX_SEMANTICS).
    ///
    /// # Errors
    /// As [`Self::unlink`].
    pub async fn rename_over(&self, from: &str, to: &str) -> Result<()> {
        const OPERATION: &str = "rename";
        let (share, from, target) = self.together(OPERATION, from, to).await?;
        let flags = RenameFlags::REPLACE_IF_EXISTS
            | RenameFlags::POSIX_SEMANTICS
            | RenameFlags::IGNORE_READONLY_ATTRIBUTE;
        let mut data = Vec::new();
        FileRenameInformationEx { flags, root_directory: 0, name: &*target }
            .encode(&mut Writer::new(&mut data));
        let class = FileInfoClass::RENAME_EX.0;
        let calls =
            || vec![crate::file::set(InfoType::FILE, class, 0, RELATED, &data), close_call()];
        let ask = Ask { is_of_name: true, ..look_at(AccessMask::DELETE) };
        share.chain(OPERATION, &from, Replay::Never, &ask, &[], calls).await?;
        Ok(())
    }
}

pub(crate) fn missing(operation: &'static str, url: String) -> Error {
    Error::new(Cause::Protocol("an answer is missing"), operation, url)
}
