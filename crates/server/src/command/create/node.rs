//! The file system's part of a CREATE.

use frevo_store::Fault;
use frevo_store::vfs::{Existence, KindWanted, OpenHow, Opened, Parent};
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::dtyp::{AccessMask, FileAttributes};

use super::creation::{Create, overwrites};

impl Create<'_> {
    /// Opens or makes the file. With `is_absent` an existing file counts as missing;
    /// `parent` is its directory, if that was opened just now.
    pub(super) fn open_node(
        &self,
        may_add: bool,
        is_absent: bool,
        parent: Option<&Opened>,
    ) -> Result<Opened, Fault> {
        let open = |how: &OpenHow| match parent {
            Some(Opened { node, name, .. }) => {
                self.vfs.open_in(Parent { node: &**node, name }, &self.name, how)
            }
            None => self.vfs.open(&self.name, how),
        };
        let disposition = self.request.create_disposition;
        let existence = match disposition {
            CreateDisposition::OPEN | CreateDisposition::OVERWRITE => Existence::MustExist,
            _ if self.names_directory() => Existence::MustExist,
            CreateDisposition::CREATE if !may_add => {
                let exists = self.vfs.stat(&self.name).is_ok();
                return Err(if exists { Fault::Exists } else { Fault::NotFound });
            }
            CreateDisposition::CREATE if is_absent => Existence::Either,
            CreateDisposition::CREATE => Existence::MustNotExist,
            _ if !may_add || self.read_only() || self.is_undeletable() => Existence::MustExist,
            _ => Existence::Either,
        };
        let kind = if self.has(CreateOptions::DIRECTORY_FILE) || self.names_directory() {
            KindWanted::Directory
        } else if self.has(CreateOptions::NON_DIRECTORY_FILE) {
            KindWanted::NotDirectory
        } else {
            KindWanted::Any
        };
        let reads = AccessMask::READ_DATA | AccessMask::EXECUTE;
        let writes = AccessMask::WRITE_DATA | AccessMask::APPEND_DATA;
        let mut attributes = self.request.file_attributes.without(FileAttributes::SPARSE_FILE);
        if kind != KindWanted::Directory {
            // MS-FSA 2.1.5.1.1: a new file gets the ARCHIVE attribute.
            attributes |= FileAttributes::ARCHIVE;
        }
        let how = OpenHow {
            existence,
            kind,
            read: self.desired.intersects(reads),
            write: self.desired.intersects(writes) || overwrites(disposition),
            open_link: self.has(CreateOptions::OPEN_REPARSE_POINT),
            attributes,
            mode: self.posix,
            case_sensitive: self.posix.is_some(),
        };
        let how = crate::shares::apple::how(&self.name, how);
        if !self.desired.contains(AccessMask::MAXIMUM_ALLOWED) {
            return open(&how);
        }
        // MAXIMUM_ALLOWED asks for all possible access, so reading and writing is tried first, and
        // less access if the host refuses it.
        let best = OpenHow { read: true, write: !self.read_only(), ..how };
        match open(&best) {
            Err(Fault::AccessDenied | Fault::IsADirectory | Fault::ReadOnly) => {}
            other => return other,
        }
        match open(&OpenHow { read: true, ..how }) {
            Err(Fault::AccessDenied) => open(&how),
            other => other,
        }
    }
}
