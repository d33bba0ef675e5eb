//! One CREATE of a file under way, and what is given back when it fails.

use std::sync::Arc;

use frevo_store::lease::Wish;
use frevo_store::security::Token;
use frevo_store::vfs::Opened;
use frevo_store::{FileCell, Name, OpenId, Vfs};
use frevo_wire::command::create::{self, CreateAction, CreateDisposition, CreateOptions};
use frevo_wire::dtyp::{AccessMask, FileAttributes};
use frevo_wire::file_id::FileId;

use super::streams;
use super::wanted::Wanted;
use crate::base::host;
use crate::base::panics;
use crate::command::request::Request;
use crate::objects::ledger::Charge;
use crate::objects::open::Open;
use crate::objects::server::ServerState;

/// One CREATE of a file, its parameters checked.
pub(super) struct Create<'a> {
    pub(super) rq: &'a Request<'a>,
    pub(super) request: &'a create::Request<'a>,
    pub(super) wanted: &'a Wanted,
    /// The mode of a POSIX Open; None: it is none.
    pub(super) posix: Option<u32>,
    pub(super) name: Name,
    /// DesiredAccess with generic rights mapped.
    pub(super) desired: AccessMask,
    pub(super) file_id: FileId,
    pub(super) vfs: &'a Arc<dyn Vfs>,
    pub(super) wish: Wish,
}

/// A file that is open in the file system and admitted by its other Opens.
pub(super) struct Made<'a> {
    pub(super) opened: Opened,
    pub(super) entered: Entered<'a>,
    pub(super) granted: AccessMask,
    pub(super) action: CreateAction,
    pub(super) charge: Charge,
    /// The charge of the oplock or lease that it asks for.
    pub(super) promise: Option<Charge>,
}

impl Made<'_> {
    /// True for a file that is overwritten and has much on the medium.
    pub(super) const fn is_long_to_overwrite(&self) -> bool {
        let is_overwritten =
            matches!(self.action, CreateAction::OVERWRITTEN | CreateAction::SUPERSEDED);
        is_overwritten && host::is_long_to_free(self.opened.stat.allocation)
    }
}

/// A place among the Opens of a file. It is left again when this is dropped before the
/// Open is made: by an error, a panic, or the end of the core.
pub(super) struct Entered<'a> {
    pub(super) create: &'a Create<'a>,
    pub(super) cell: Arc<FileCell>,
    /// The file that a named stream belongs to.
    pub(super) base: Option<Arc<FileCell>>,
    /// False for a request that has to wait before it is admitted.
    pub(super) leaves: bool,
    pub(super) stays: bool,
}

impl Drop for Entered<'_> {
    fn drop(&mut self) {
        if self.stays {
            return;
        }
        let Create { rq, vfs, .. } = self.create;
        let (files, id) = (&rq.server().files, self.create.id());
        if self.leaves {
            // The CREATE failed, so closing its Open must not delete the file.
            self.cell.lock().forget_delete_on_close(id);
            panics::contained(|| streams::leave(files, vfs, &self.cell, id));
        }
        panics::contained(|| streams::detach(files, vfs, self.base.as_ref(), id));
    }
}

/// An Open that its session does not have yet. It is closed when this is dropped before
/// [`Self::kept`].
pub(super) struct Fresh<'a> {
    pub(super) open: Arc<Open>,
    pub(super) server: &'a Arc<ServerState>,
    pub(super) is_kept: bool,
}

impl Fresh<'_> {
    pub(super) fn kept(mut self) -> Arc<Open> {
        self.is_kept = true;
        Arc::clone(&self.open)
    }
}

impl Drop for Fresh<'_> {
    fn drop(&mut self) {
        if !self.is_kept {
            panics::contained(|| self.server.close_here(&self.open));
        }
    }
}

impl Create<'_> {
    pub(super) const fn id(&self) -> OpenId {
        OpenId(self.file_id.volatile)
    }

    /// The token of access checks.
    pub(super) fn token(&self) -> Arc<Token> {
        self.rq.tree().map_or_else(|_| Token::nobody().into(), |tree| tree.token())
    }

    pub(super) const fn has(&self, option: CreateOptions) -> bool {
        self.request.create_options.contains(option)
    }

    /// MS-FSA 2.1.5.1.1: a new file that must not be deleted cannot be one that
    /// goes when it is closed.
    pub(super) const fn is_undeletable(&self) -> bool {
        self.has(CreateOptions::DELETE_ON_CLOSE)
            && self.posix.is_none()
            && self.request.file_attributes.contains(FileAttributes::READONLY)
    }

    /// True for a name with a separator at its end, unless the request says that it wants a directory:
    /// then an existing directory is opened, and nothing else is opened or made (MS-FSA 2.1.5.1 phase
    /// 7).
    pub(super) fn names_directory(&self) -> bool {
        let has_slashes = || self.rq.tree().is_ok_and(|tree| tree.share.forward_slashes);
        let separates = match self.request.name.as_bytes() {
            [.., b'\\', 0] => true,
            [.., b'/', 0] => has_slashes(),
            _ => false,
        };
        separates
            && self.posix.is_none()
            && !self.has(CreateOptions::DIRECTORY_FILE)
            && !self.name.is_root()
    }

    pub(super) fn read_only(&self) -> bool {
        self.rq.tree().is_ok_and(|tree| tree.share.read_only)
    }
}

/// True for a disposition that empties an existing file.
pub(super) const fn overwrites(disposition: CreateDisposition) -> bool {
    matches!(
        disposition,
        CreateDisposition::SUPERSEDE
            | CreateDisposition::OVERWRITE
            | CreateDisposition::OVERWRITE_IF
    )
}

/// True for a disposition that makes a missing file.
pub(super) const fn creates(disposition: CreateDisposition) -> bool {
    !matches!(disposition, CreateDisposition::OPEN | CreateDisposition::OVERWRITE)
}
