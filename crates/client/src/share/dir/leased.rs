//! Directories that stay open under a lease.

use std::sync::Arc;

use frevo_wire::command::create::CreateOptions;
use frevo_wire::command::oplock_break::LeaseState as WireLeaseState;
use frevo_wire::fscc::FileInfoClass;

use super::{DirEntry, ReadDir, class, listing_access};
use crate::connection::Message;
use crate::error::{Cause, Result};
use crate::open::create::Ask;
use crate::open::{Haste, Open};
use crate::session::lease::Lease;
use crate::share::Share;

/// A directory that stays open, to be listed from its beginning any number of times.
///
/// A listing may be cached for as long as the lease allows reading
/// (MS-SMB2 2.2.13.2.10 on a directory).
pub struct LeasedDir {
    open: Arc<Open>,
    /// Held by the one listing: the server keeps one position for the Open. True if a late
    /// request may move it.
    listing: tokio::sync::Mutex<bool>,
    path: String,
}

impl std::fmt::Debug for LeasedDir {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "LeasedDir({})", self.open.url)
    }
}

impl Share {
    /// Opens a directory for several listings, and asks for a read and handle lease on it.
    /// A server without directory leases grants none. Also returns its entries, which are read in
    /// the same round trip: at most `most`, and [`Cause::Limit`] if there are more. With 0 it is not
    /// listed.
    ///
    /// # Errors
    /// Fails if the directory cannot be opened.
    #[doc(hidden)]
    pub async fn keep_dir(
        &self,
        path: &str,
        lease: &Arc<Lease>,
        most: usize,
    ) -> Result<(LeasedDir, Result<Vec<DirEntry>>)> {
        let mut ask = Ask::existing(listing_access());
        ask.options |= CreateOptions::DIRECTORY_FILE;
        ask.lease = WireLeaseState::READ | WireLeaseState::HANDLE;
        ask.shared = Some(Arc::clone(lease));
        let followers = if most > 0 { self.first_requests() } else { None };
        let opened = Open::with_followers(self, path, ask, "list", followers).await?;
        let (open, _, first) = opened;
        let kept = LeasedDir { open, listing: tokio::sync::Mutex::default(), path: path.into() };
        let entries = match most {
            0 => Ok(Vec::new()),
            most => kept.list_from(most, &first, class(self.is_posix())).await,
        };
        Ok((kept, entries))
    }
}

impl LeasedDir {
    /// Returns all entries.
    ///
    /// # Errors
    /// Fails with [`Cause::Limit`] if there are more than `most`, with
    /// [`Cause::HandleLost`] after the session was lost, and if the server fails.
    pub async fn list(&self, most: usize) -> Result<Vec<DirEntry>> {
        self.list_from(most, &[], class(self.open.is_posix())).await
    }

    /// Lists, beginning with the answers `first` to requests for `class`.
    async fn list_from(
        &self,
        most: usize,
        first: &[Message],
        class: FileInfoClass,
    ) -> Result<Vec<DirEntry>> {
        let mut is_doubtful = self.listing.lock().await;
        if !*is_doubtful {
            let entries = ReadDir::of(Arc::clone(&self.open)).max_entries(most);
            match entries.begun_by(first, class)?.collect_all().await {
                Err(error) if matches!(error.cause(), Cause::Unknown) => *is_doubtful = true,
                listed => return listed,
            }
        }
        self.open.share.list_dir_of(&self.path, most).await
    }

    /// As [`Self::close`], for a caller that has other requests to send: the CLOSE leaves with the
    /// next one.
    ///
    /// # Errors
    /// Fails if the server does.
    pub async fn close_with_next(&self) -> Result<()> {
        self.open.close(Haste::WithNext).await
    }

    /// Closes the directory.
    ///
    /// # Errors
    /// Fails if the server does.
    pub async fn close(&self) -> Result<()> {
        self.open.close(Haste::AtOnce).await
    }
}
