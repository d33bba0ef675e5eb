//! How files are opened.

use std::sync::Arc;

use frevo_wire::command::create::{CreateDisposition, CreateOptions, ShareAccess};
use frevo_wire::command::oplock_break::LeaseState;
use frevo_wire::dtyp::{AccessMask, FileAttributes};

use crate::create::Ask;
use crate::error::Result;
use crate::file::File;
use crate::open::Open;
use crate::session::lease::Lease;
use crate::share::Share;

/// How a file is opened; like `std::fs::OpenOptions`.
#[derive(Debug, Clone)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    delete_on_close: bool,
    write_through: bool,
    sharing: ShareAccess,
    access: AccessMask,
    lease: LeaseState,
    shared: Option<Arc<Lease>>,
    follow: bool,
    attributes: FileAttributes,
    mode: u32,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Declares setters.
macro_rules! setters {
    ($($(#[$meta:meta])* $name:ident)*) => { $(
        $(#[$meta])*
        #[must_use]
        pub fn $name(mut self, $name: bool) -> Self {
            self.$name = $name;
            self
        }
    )* };
}

impl OpenOptions {
    /// Nothing is allowed yet; all is shared with others.
    pub const fn new() -> Self {
        Self {
            read: false,
            write: false,
            create: false,
            create_new: false,
            truncate: false,
            delete_on_close: false,
            write_through: false,
            sharing: ShareAccess(
                ShareAccess::READ.0 | ShareAccess::WRITE.0 | ShareAccess::DELETE.0,
            ),
            access: AccessMask::EMPTY,
            lease: LeaseState(LeaseState::READ.0 | LeaseState::HANDLE.0),
            shared: None,
            follow: true,
            attributes: FileAttributes::EMPTY,
            mode: 0o644,
        }
    }

    setters! {
        /// Data can be read.
        read
        /// Data can be written.
        write
        /// Made if it does not exist.
        create
        /// Must not exist, and is made.
        create_new
        /// Emptied when opened.
        truncate
        /// Removed when it is closed.
        delete_on_close
        /// What a write acknowledges is on stable storage.
        write_through
    }

    /// What others may do meanwhile.
    #[must_use]
    pub fn sharing(mut self, sharing: ShareAccess) -> Self {
        self.sharing = sharing;
        self
    }

    /// Rights beyond reading and writing.
    #[must_use]
    pub fn access(mut self, access: AccessMask) -> Self {
        self.access = access;
        self
    }

    /// What this client would like to cache.
    #[must_use]
    pub fn lease(mut self, lease: LeaseState) -> Self {
        self.lease = lease;
        self
    }

    /// The Open is to be of `lease`, which other Opens of the same file have too.
    #[must_use]
    pub fn shared_lease(mut self, lease: &Arc<Lease>) -> Self {
        self.shared = Some(Arc::clone(lease));
        self
    }

    /// Attributes of a file that is made.
    #[must_use]
    pub fn attributes(mut self, attributes: FileAttributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// Permission bits of a file that is made, where the share has POSIX extensions.
    #[must_use]
    pub const fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Opens a symbolic link itself instead of what it leads to.
    #[must_use]
    pub fn no_follow(mut self) -> Self {
        self.follow = false;
        self
    }

    fn ask(&self, durable: bool) -> Ask {
        let mut access = self.access | AccessMask::READ_ATTRIBUTES | AccessMask::SYNCHRONIZE;
        if self.read {
            access |= AccessMask::READ_DATA | AccessMask::READ_EA | AccessMask::READ_CONTROL;
        }
        if self.write {
            access |= AccessMask::WRITE_DATA
                | AccessMask::APPEND_DATA
                | AccessMask::WRITE_ATTRIBUTES
                | AccessMask::WRITE_EA;
        }
        let mut options = CreateOptions::NON_DIRECTORY_FILE;
        if self.delete_on_close {
            access |= AccessMask::DELETE;
            options |= CreateOptions::DELETE_ON_CLOSE;
        }
        if self.write_through {
            options |= CreateOptions::WRITE_THROUGH;
        }
        if !self.follow {
            options |= CreateOptions::OPEN_REPARSE_POINT;
        }
        let disposition = match (self.create_new, self.create, self.truncate) {
            (true, ..) => CreateDisposition::CREATE,
            (_, true, true) => CreateDisposition::OVERWRITE_IF,
            (_, true, false) => CreateDisposition::OPEN_IF,
            (_, false, true) => CreateDisposition::OVERWRITE,
            _ => CreateDisposition::OPEN,
        };
        Ask {
            access,
            sharing: self.sharing,
            disposition,
            options,
            attributes: self.attributes,
            keep: durable,
            // A lease outlives a lost connection with its Open only.
            lease: if durable { self.lease } else { LeaseState::EMPTY },
            shared: self.shared.clone(),
            snapshot: None,
            is_of_name: false,
            identity: false,
            mode: self.mode,
        }
    }

    /// Opens `path` in `share`.
    ///
    /// # Errors
    /// What the server says.
    pub async fn open(&self, share: &Share, path: &str) -> Result<File> {
        let ask = self.ask(share.session().options().durable);
        let (open, opened) = Open::new(share, path, ask, "open").await?;
        Ok(File { open, opened })
    }
}
