//! What was made here and is not to stay.

use frevo_wire::command::create::{CreateAction, CreateOptions, ShareAccess};
use frevo_wire::create_context::OnDiskId;
use frevo_wire::dtyp::{AccessMask, FileTime};
use frevo_wire::fscc::FileInfoClass;

use crate::create::{Ask, Opened};
use crate::error::Result;
use crate::open::Open;
use crate::share::Share;

/// A file that this client made, as it left it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Made {
    identity: OnDiskId,
    created: FileTime,
    written: FileTime,
    len: u64,
}

impl Made {
    /// The file that a CREATE made, `len` bytes long now and written to last at `written`.
    /// Nothing when the CREATE found it, or the server does not tell which file it is.
    pub(crate) fn by(opened: &Opened, written: FileTime, len: u64) -> Option<Self> {
        let is_new = opened.action == CreateAction::CREATED;
        let identity = opened.identity.filter(|_| is_new)?;
        Some(Self { identity, created: opened.created, written, len })
    }

    /// The same file, opened once more as `opened` and left as said.
    pub(crate) fn again(self, opened: &Opened, written: FileTime, len: u64) -> Option<Self> {
        let is_it = opened.identity == Some(self.identity) && opened.created == self.created;
        is_it.then_some(Self { written, len, ..self })
    }

    fn is(&self, found: &Opened) -> bool {
        let Opened { identity, created, written, end_of_file: len, .. } = *found;
        identity.is_some_and(|identity| Self { identity, created, written, len } == *self)
    }
}

impl Share {
    /// Removes `path` if it is what was `made` there still: nobody has it open, and nobody
    /// wrote to it since. It goes by its handle: what bears its name a moment later is
    /// another's.
    ///
    /// # Errors
    /// What the server says.
    pub(crate) async fn remove_made(&self, path: &str, made: &Made) -> Result<()> {
        const OPERATION: &str = "remove";
        let access = AccessMask::DELETE | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        let mut ask = Ask::existing(access);
        ask.sharing = ShareAccess::EMPTY;
        ask.options |= CreateOptions::NON_DIRECTORY_FILE | CreateOptions::OPEN_REPARSE_POINT;
        ask.identity = true;
        let (open, found) = Open::new(self, path, ask, OPERATION).await?;
        if made.is(&found) {
            crate::info::set(&open, FileInfoClass::DISPOSITION, OPERATION, &[1]).await?;
        }
        open.close().await
    }
}
