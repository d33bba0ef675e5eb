//! Open files: MS-SMB2 3.2.4.

mod change;
pub(crate) mod copying;
pub(crate) mod cursor;
mod holes;
pub(crate) mod locks;
pub(crate) mod options;
mod read_write;
pub(crate) mod transfer;

use std::sync::{Arc, Weak};

use frevo_wire::Command;
use frevo_wire::command::close::CloseFlags;
use frevo_wire::command::create::CreateAction;
use frevo_wire::command::flush;
use frevo_wire::fscc::FileInfoClass;

use crate::connection::Call;
use crate::error::{During, Result};
use crate::limits::PAYLOAD_MAX;
use crate::metadata::{AtClose, Metadata};
use crate::open::create::Opened;
use crate::open::info;
use crate::open::{Haste, Open};
use crate::session::breaks::LeaseHolder;
use crate::share::{Replay, Share};
use crate::types::LeaseState;

/// An open file of a share, read and written at offsets.
///
/// Cloning is cheap and gives the same open file. It is closed when the last clone is
/// dropped, or by [`Self::close`], which reports errors of closing.
#[derive(Clone)]
pub struct File {
    pub(crate) open: Arc<Open>,
    pub(crate) opened: Opened,
    /// Its cursors begin at the end.
    pub(crate) appends: bool,
}

impl std::fmt::Debug for File {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "File({})", self.open.url)
    }
}

impl File {
    /// Returns the share that the file is in.
    pub fn share(&self) -> &Share {
        &self.open.share
    }

    /// Returns the URL of the file, for messages.
    pub fn url(&self) -> &str {
        &self.open.url
    }

    /// Returns the metadata that the file had when it was opened.
    pub fn metadata_at_open(&self) -> Metadata {
        self.open.share.found(Metadata::from(&self.opened), false)
    }

    /// The largest READ and WRITE to send, bytes.
    pub(crate) async fn sizes(&self) -> Result<(u32, u32)> {
        let session = self.open.share.session();
        let live = session.inner.live().await.during("open", &self.open.url)?;
        let seal = self.open.share.is_sealed();
        let most = session.options().transfer.min(live.affordable(seal)).clamp(4096, PAYLOAD_MAX);
        Ok((live.terms.max_read_size.min(most), live.terms.max_write_size.min(most)))
    }

    /// Writes all data that the server holds in memory to stable storage.
    ///
    /// # Errors
    /// Fails if the server does; data that was written may then be lost.
    pub async fn sync_all(&self) -> Result<()> {
        self.open
            .ask(Replay::Idempotent, "flush", &[], |file_id| {
                let request = flush::Request { reserved1: 0, file_id };
                Ok(Call::new(Command::FLUSH, |w| request.encode(w)))
            })
            .await?;
        Ok(())
    }

    /// Returns the present metadata.
    ///
    /// # Errors
    /// Fails if the server does.
    pub async fn metadata(&self) -> Result<Metadata> {
        info::metadata(&self.open).await
    }

    /// Cuts the file or extends it with zeros to `len` bytes.
    ///
    /// # Errors
    /// Fails if the file was not opened for writing, or there is no space.
    pub async fn set_len(&self, len: u64) -> Result<()> {
        let class = FileInfoClass::END_OF_FILE;
        self.set_info(class, "resize", len.to_le_bytes().to_vec()).await
    }

    pub(crate) async fn set_info(
        &self,
        class: FileInfoClass,
        operation: &'static str,
        data: Vec<u8>,
    ) -> Result<()> {
        info::set(&self.open, class, operation, &data).await
    }

    /// Closes the file for all its clones.
    ///
    /// # Errors
    /// Fails if the server does: data that was written may then be lost.
    pub async fn close(self) -> Result<()> {
        self.open.close(Haste::AtOnce).await
    }

    /// As [`Self::close`], for a caller that has other requests to send or can wait a moment: the
    /// CLOSE leaves with the next request, at the latest after
    /// [`UNHURRIED_FOR`](crate::limits::UNHURRIED_FOR), or with [`Share::hurry`]. Returns the
    /// attributes after the close, if the server sent them.
    ///
    /// # Errors
    /// Fails as [`Self::close`] does.
    #[doc(hidden)]
    pub async fn close_with_next(self) -> Result<Option<AtClose>> {
        let closed = self.open.close_asking(Haste::WithNext, CloseFlags::POSTQUERY_ATTRIB).await?;
        Ok(closed.map(AtClose))
    }

    /// Returns true if the server keeps the handle, with its locks and its lease, even when
    /// the server itself restarts (MS-SMB2 3.3.1.10 Open.IsPersistent).
    pub fn is_persistent(&self) -> bool {
        self.open.is_persistent()
    }

    /// Returns true if opening the file created it.
    pub fn was_created(&self) -> bool {
        self.opened.action == CreateAction::CREATED
    }

    /// Tells `holder` when the lease breaks, before the server is answered.
    #[doc(hidden)]
    pub fn watch_lease(&self, holder: Weak<dyn LeaseHolder>) {
        self.open.lease().watch(holder);
    }

    /// Returns what this client may cache of the file now: nothing while the session is lost,
    /// until [`Self::confirm`].
    #[doc(hidden)]
    pub fn lease(&self) -> LeaseState {
        self.open.lease().grant().state
    }

    /// Reconnects the file if the session is another one than before. The lease then tells
    /// again what may be cached.
    ///
    /// # Errors
    /// Fails as any request about the file does.
    #[doc(hidden)]
    pub async fn confirm(&self) -> Result<()> {
        self.open.confirm("open").await
    }
}
