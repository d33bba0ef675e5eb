//! Which file a name is of: one server may be known by several names, and one directory
//! be in several shares.

use frevo_wire::command::close::CloseFlags;
use frevo_wire::command::create::CreateOptions;
use frevo_wire::create_context::OnDiskId;
use frevo_wire::dtyp::{AccessMask, FileTime, Guid};

use crate::create::{Ask, Opened};
use crate::error::{During, Result};
use crate::metadata::Metadata;
use crate::ops::close_call;
use crate::session::Session;
use crate::share::{Replay, Share};

/// A file or directory, whatever it is called: equal are only those that are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    server: Guid,
    disk: OnDiskId,
    created: FileTime,
}

impl Identity {
    /// Whether what a listing of its server says of a file may be it. The numbers of
    /// files are only different within a volume.
    pub fn may_be(&self, metadata: &Metadata) -> bool {
        (self.disk.disk_file_id, self.created) == (metadata.file_id(), metadata.created)
    }
}

impl Session {
    /// What the server says that it is (ServerGuid, MS-SMB2 2.2.4): the same by whatever
    /// name and address it is reached. Nothing while the session is being recovered, and
    /// of a server that does not tell.
    pub(crate) fn server_guid(&self) -> Option<Guid> {
        let guid = self.inner.current()?.channel()?.connection.agreed().server_guid;
        (guid != Guid::default()).then_some(guid)
    }

    /// Whether both may be with one server.
    pub fn may_be_of_one_server(&self, other: &Self) -> bool {
        self.server_guid().is_some_and(|guid| other.server_guid() == Some(guid))
    }
}

impl Share {
    /// What `path` is, links of DFS namespaces followed. Nothing where the server does not
    /// tell.
    ///
    /// # Errors
    /// What the server says.
    pub async fn identity(&self, path: &str) -> Result<Option<Identity>> {
        let mut ask = Ask::existing(AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE);
        ask.options |= CreateOptions::OPEN_REPARSE_POINT;
        ask.identity = true;
        let close = close_call(CloseFlags::EMPTY);
        let answers =
            self.chain("stat", path, Replay::Idempotent, &ask, &[], || vec![close()]).await?;
        let [opened, ..] = &*answers.messages else { return Err(self.broken("stat", path)) };
        let opened = Opened::parse(opened).during("stat", &self.url(path))?;
        let server = answers.share.session().server_guid();
        // MS-FSCC 2.1.9: neither is the number of a file.
        let disk = opened.identity.filter(|disk| !matches!(disk.disk_file_id, 0 | u64::MAX));
        let found = server.zip(disk);
        Ok(found.map(|(server, disk)| Identity { server, disk, created: opened.created }))
    }
}
