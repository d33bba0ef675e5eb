//! The identity of a file: one server may have several names, and one directory be in several
//! shares.

use frevo_wire::command::create::CreateOptions;
use frevo_wire::create_context::OnDiskId;
use frevo_wire::dtyp::{AccessMask, FileTime, Guid};

use crate::error::Result;
use crate::metadata::Metadata;
use crate::open::create::Ask;
use crate::share::compound::close_call;
use crate::share::{Replay, Share};

/// A file or directory by its numbers. Two are equal only if they are one file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    server: Guid,
    disk: OnDiskId,
    created: FileTime,
}

impl Identity {
    /// Returns true if a listing's entry may be this file. Files of different volumes may have
    /// the same number.
    pub fn may_be(&self, metadata: &Metadata) -> bool {
        (self.disk.disk_file_id, self.created) == (metadata.file_id(), metadata.created)
    }
}

impl Share {
    /// Returns the identity of `path`; DFS links are followed. `None` if the server does not
    /// send numbers of files.
    ///
    /// # Errors
    /// Fails if the server answers with an error, or is lost and does not come back in time.
    #[doc(hidden)]
    pub async fn identity(&self, path: &str) -> Result<Option<Identity>> {
        let mut ask = Ask::existing(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        ask.options |= CreateOptions::OPEN_REPARSE_POINT;
        ask.identity = true;
        let answers =
            self.chain("stat", path, Replay::Idempotent, &ask, &[], || vec![close_call()]).await?;
        let opened = answers.opened("stat", &self.url(path))?;
        let server = answers.share.session().server_guid();
        // MS-FSCC 2.1.9: a file number of 0 or of all ones means that the file has no number.
        let disk = opened.identity.filter(|disk| !matches!(disk.disk_file_id, 0 | u64::MAX));
        let found = server.zip(disk);
        Ok(found.map(|(server, disk)| Identity { server, disk, created: opened.created }))
    }
}
