//! Options of opening a file.

use std::sync::Arc;

use frevo_wire::Command;
use frevo_wire::command::create::{CreateDisposition, CreateOptions};
use frevo_wire::command::read;
use frevo_wire::dtyp::AccessMask as Rights;

use crate::Status;
use crate::connection::{Call, Message};
use crate::error::Result;
use crate::file::File;
use crate::open::Open;
use crate::open::create::Ask;
use crate::options::Options;
use crate::session::lease::Lease;
use crate::share::Share;
use crate::share::compound::RELATED;
use crate::types::{AccessMask, AppInstance, FileAttributes, LeaseState, ShareMode};

/// Options of opening a file, as `std::fs::OpenOptions` has them.
///
/// ```no_run
/// # async fn example(share: &frevo_client::Share) -> frevo_client::Result<()> {
/// use frevo_client::OpenOptions;
///
/// let log = OpenOptions::new().append(true).create(true).open(share, "log.txt").await?;
/// # Ok(())
/// # }
/// ```
#[derive(Debug, Clone)]
pub struct OpenOptions {
    read: bool,
    write: bool,
    append: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    delete_on_close: bool,
    write_through: bool,
    unbuffered: bool,
    share_mode: ShareMode,
    access: AccessMask,
    lease: LeaseState,
    shared: Option<Arc<Lease>>,
    follow: bool,
    attributes: FileAttributes,
    mode: u32,
    app_instance: Option<AppInstance>,
}

impl Default for OpenOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// Declares a method for each option that is true or false.
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
    /// Returns options that allow nothing yet, and share every use with other opens.
    pub const fn new() -> Self {
        Self {
            read: false,
            write: false,
            append: false,
            create: false,
            create_new: false,
            truncate: false,
            delete_on_close: false,
            write_through: false,
            unbuffered: false,
            share_mode: ShareMode::ALL,
            access: AccessMask::EMPTY,
            lease: LeaseState::READ.union(LeaseState::HANDLE),
            shared: None,
            follow: true,
            attributes: FileAttributes::EMPTY,
            mode: 0o644,
            app_instance: None,
        }
    }

    setters! {
        /// Allows reading the file.
        read
        /// Allows writing to the file.
        write
        /// Allows writing, and begins a [`Cursor`](crate::Cursor) at the end of the file.
        /// SMB has no atomic append: two clients that append at the same time can
        /// overwrite each other's data, unless they [lock](File::lock) the file.
        append
        /// Creates the file if it does not exist. Needs [`Self::write`] or [`Self::append`].
        create
        /// Creates the file, and fails if it exists. [`Self::create`] and
        /// [`Self::truncate`] then have no effect.
        create_new
        /// Empties the file when it is opened. Needs [`Self::write`].
        truncate
        /// Removes the file when it is closed.
        delete_on_close
        /// Makes the server write data to stable storage before it acknowledges a write.
        write_through
        /// Asks the server not to keep the data in its cache (FILE_NO_INTERMEDIATE_BUFFERING), for
        /// large files that no program reads again soon. Windows demands offsets and lengths that are
        /// multiples of a sector then; Frevo does not.
        unbuffered
    }

    /// Sets the uses of the file that other opens are allowed meanwhile. Default: all.
    #[must_use]
    pub const fn share_mode(mut self, mode: ShareMode) -> Self {
        self.share_mode = mode;
        self
    }

    /// Asks for these rights too, besides those of [`Self::read`] and [`Self::write`].
    #[must_use]
    pub const fn access(mut self, access: AccessMask) -> Self {
        self.access = access;
        self
    }

    /// Sets the lease to ask for. Default: read and handle. A lease with `WRITE` lets other
    /// clients wait until this one has closed the file.
    #[must_use]
    pub const fn lease(mut self, lease: LeaseState) -> Self {
        self.lease = lease;
        self
    }

    /// Joins `lease`, which other Opens of the file share.
    #[doc(hidden)]
    #[must_use]
    pub fn shared_lease(mut self, lease: &Arc<Lease>) -> Self {
        self.shared = Some(Arc::clone(lease));
        self
    }

    /// Sets the DOS attributes of a file that is created.
    #[must_use]
    pub const fn attributes(mut self, attributes: FileAttributes) -> Self {
        self.attributes = attributes;
        self
    }

    /// Sets the permission bits of a file that is created, if the share has the POSIX
    /// extensions. Default: 0o644.
    #[must_use]
    pub const fn mode(mut self, mode: u32) -> Self {
        self.mode = mode;
        self
    }

    /// Sets the instance of the application that opens the file. Default: that of
    /// [`Options::app_instance`].
    #[must_use]
    pub const fn app_instance(mut self, instance: AppInstance) -> Self {
        self.app_instance = Some(instance);
        self
    }

    /// Opens a symbolic link itself instead of its target.
    #[must_use]
    pub const fn no_follow(mut self) -> Self {
        self.follow = false;
        self
    }

    fn ask(&self, of_client: &Options) -> Ask {
        let durable = of_client.durable;
        let mut access = self.access.wire() | Rights::READ_ATTRIBUTES | Rights::SYNCHRONIZE;
        if self.read {
            access |= Rights::READ_DATA | Rights::READ_EA | Rights::READ_CONTROL;
        }
        if self.write || self.append {
            access |= Rights::WRITE_DATA
                | Rights::APPEND_DATA
                | Rights::WRITE_ATTRIBUTES
                | Rights::WRITE_EA;
        }
        let mut options = CreateOptions::NON_DIRECTORY_FILE;
        if self.delete_on_close {
            access |= Rights::DELETE;
            options |= CreateOptions::DELETE_ON_CLOSE;
        }
        if self.write_through {
            options |= CreateOptions::WRITE_THROUGH;
        }
        if self.unbuffered {
            options |= CreateOptions::NO_INTERMEDIATE_BUFFERING;
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
            sharing: self.share_mode.wire(),
            disposition,
            options,
            attributes: self.attributes.wire(),
            keep: durable,
            // Without durability the server closes the Open and ends its lease when the connection
            // is lost. So no lease is requested.
            lease: if durable { self.lease } else { LeaseState::EMPTY }.wire(),
            shared: self.shared.clone(),
            snapshot: None,
            is_of_name: false,
            identity: false,
            mode: self.mode,
            app_instance: self.app_instance.or(of_client.app_instance),
        }
    }

    /// Opens `path` in `share`.
    ///
    /// # Errors
    /// Fails if the file cannot be opened in this way.
    pub async fn open(&self, share: &Share, path: &str) -> Result<File> {
        let ask = self.ask(share.session().options());
        let (open, opened) = Open::new(share, path, ask, "open").await?;
        Ok(File { open, opened, appends: self.append })
    }

    /// As [`Self::open`]; also reads the first `len` bytes of the file, in the same round trip.
    /// Returns no data if the server did not send it with the answer.
    ///
    /// # Errors
    /// Fails as [`Self::open`] does.
    #[doc(hidden)]
    pub async fn open_and_read(
        &self,
        share: &Share,
        path: &str,
        len: u32,
    ) -> Result<(File, Option<Vec<u8>>)> {
        let ask = self.ask(share.session().options());
        let followers = Box::new(move || {
            let request = read::Request::new(RELATED, 0, len);
            vec![Call::new(Command::READ, |w| request.encode(w)).cost(len)]
        });
        let opened = Open::with_followers(share, path, ask, "open", Some(followers)).await?;
        let (open, opened, followed) = opened;
        let data = followed.first().and_then(first_bytes);
        Ok((File { open, opened, appends: self.append }, data))
    }
}

/// The data of a READ at the beginning of a file.
fn first_bytes(answer: &Message) -> Option<Vec<u8>> {
    match answer.status() {
        Status::SUCCESS => read::Response::parse(answer.bytes()).ok().map(|read| read.data.into()),
        Status::END_OF_FILE => Some(Vec::new()),
        _ => None,
    }
}

impl File {
    /// Opens an existing file for reading.
    ///
    /// # Errors
    /// Fails if `path` does not exist, is a directory, or may not be read.
    pub async fn open(share: &Share, path: &str) -> Result<Self> {
        OpenOptions::new().read(true).open(share, path).await
    }

    /// Creates a file for writing, or empties an existing one.
    ///
    /// # Errors
    /// Fails if `path` is a directory or may not be written.
    pub async fn create(share: &Share, path: &str) -> Result<Self> {
        OpenOptions::new().write(true).create(true).truncate(true).open(share, path).await
    }
}
