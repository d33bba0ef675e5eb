//! Removing a file that a failed copy has created.

use frevo_wire::command::create::{CreateAction, CreateOptions, ShareAccess};
use frevo_wire::create_context::OnDiskId;
use frevo_wire::dtyp::{AccessMask, FileTime};
use frevo_wire::fscc::FileInfoClass;

use crate::error::Result;
use crate::file::File;
use crate::open::Open;
use crate::open::create::{Ask, Opened};
use crate::share::Share;

/// A file that this client created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    identity: OnDiskId,
    created: FileTime,
}

impl Made {
    /// The file that a CREATE created. `None` if the file existed, or the server did not send
    /// its number.
    pub(crate) fn by(opened: &Opened) -> Option<Self> {
        let is_new = opened.action == CreateAction::CREATED;
        let identity = opened.identity.filter(|_| is_new)?;
        Some(Self { identity, created: opened.created })
    }

    /// Returns true if `opened` is this file.
    pub(crate) fn is(&self, opened: &Opened) -> bool {
        opened.identity == Some(self.identity) && opened.created == self.created
    }
}

impl Share {
    /// Removes `path` if it still is the file that was `made`, no other program has it open,
    /// and it contains only a beginning of `data`. It is removed through its handle: a file
    /// that takes its name meanwhile stays. Timestamps are not compared: smbd sets them when
    /// the file is closed, and a full disk may have no space for them.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
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
        let file = File { open, opened, appends: false };
        if made.is(&opened) && begins(&file, data).await? {
            crate::open::info::set(&file.open, FileInfoClass::DISPOSITION, OPERATION, &[1]).await?;
        }
        file.close().await
    }
}

/// Returns true if `file` contains only a beginning of `data`.
async fn begins(file: &File, data: &[u8]) -> Result<bool> {
    let len = usize::try_from(file.opened.end_of_file).unwrap_or(usize::MAX);
    let Some(wanted) = data.get(..len) else { return Ok(false) };
    let mut found = vec![0; len];
    let count = file.read_at(&mut found, 0).await?;
    Ok(count == len && found == wanted)
}
