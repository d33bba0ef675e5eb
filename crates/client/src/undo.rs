//! What was made here and is not to stay.

use frevo_wire::command::create::{CreateAction, CreateOptions, ShareAccess};
use frevo_wire::create_context::OnDiskId;
use frevo_wire::dtyp::{AccessMask, FileTime};
use frevo_wire::fscc::FileInfoClass;

use crate::create::{Ask, Opened};
use crate::error::Result;
use crate::file::File;
use crate::open::Open;
use crate::share::Share;

/// A file that this client made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    identity: OnDiskId,
    created: FileTime,
}

impl Made {
    /// The file that a CREATE made. Nothing when the CREATE found it, or the server does not
    /// tell which file it is.
    pub(crate) fn by(opened: &Opened) -> Option<Self> {
        let is_new = opened.action == CreateAction::CREATED;
        let identity = opened.identity.filter(|_| is_new)?;
        Some(Self { identity, created: opened.created })
    }

    /// Whether it is what was opened.
    pub(crate) fn is(&self, opened: &Opened) -> bool {
        opened.identity == Some(self.identity) && opened.created == self.created
    }
}

impl Share {
    /// Removes `path` if it is what was `made` there, nobody has it open, and nothing is in
    /// it but a beginning of `data`. It goes by its handle: what bears its name a moment
    /// later is another's. The times tell nothing: smbd dates what was written when it is
    /// closed, and a disk that is full may have no room for a date.
    ///
    /// # Errors
    /// What the server says.
    pub(crate) async fn remove_made(&self, path: &str, made: &Made, data: &[u8]) -> Result<()> {
        const OPERATION: &str = "remove";
        let access = AccessMask::DELETE
            | AccessMask::READ_DATA
            | AccessMask::READ_ATTRIBUTES
            | AccessMask::SYNCHRONIZE;
        let mut ask = Ask::existing(access);
        ask.sharing = ShareAccess::EMPTY;
        ask.options |= CreateOptions::NON_DIRECTORY_FILE | CreateOptions::OPEN_REPARSE_POINT;
        ask.identity = true;
        let (open, opened) = Open::new(self, path, ask, OPERATION).await?;
        let file = File { open, opened };
        if made.is(&opened) && file.begins(data).await? {
            crate::info::set(&file.open, FileInfoClass::DISPOSITION, OPERATION, &[1]).await?;
        }
        file.close().await
    }
}

impl File {
    /// Whether all that is in it is the beginning of `data`.
    async fn begins(&self, data: &[u8]) -> Result<bool> {
        let len = usize::try_from(self.opened.end_of_file).unwrap_or(usize::MAX);
        let Some(wanted) = data.get(..len) else { return Ok(false) };
        let mut found = vec![0; len];
        let count = self.read_at(0, &mut found).await?;
        Ok(count == len && found == wanted)
    }
}
