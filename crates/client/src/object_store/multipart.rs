//! Objects that are written in parts.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use ::object_store::path::Path;
use ::object_store::{MultipartUpload, PutPayload, PutResult, Result, UploadPart};
use async_trait::async_trait;

use super::locations::{generic, write_failure};
use super::staged::{Staged, Target, store};
use crate::file::File;
use crate::share::Share;

/// An upload: each part has its place in the file when it is handed over, and the parts are
/// written at the same time.
#[derive(Debug)]
pub(super) struct Upload {
    location: Path,
    /// The file under its own name, and its handle. `None` after the end.
    open: Option<(Staged, File)>,
    /// Bytes of all parts so far.
    len: u64,
    /// Parts that are not written: they failed, were dropped, or are under way.
    missing: Arc<AtomicUsize>,
}

impl Upload {
    pub(super) async fn begin(share: &Share, location: &Path) -> Result<Self> {
        let staged = Staged::new(share, location)?;
        let file = staged.open().await?;
        let (location, missing) = (location.clone(), Arc::default());
        Ok(Self { location, open: Some((staged, file)), len: 0, missing })
    }

    /// Ends the upload. The file is removed when the returned value is dropped.
    fn end(&mut self) -> Result<(Staged, File)> {
        self.open.take().ok_or_else(|| generic("the upload was completed or aborted before"))
    }
}

#[async_trait]
impl MultipartUpload for Upload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let offset = self.len;
        self.len += data.content_length() as u64;
        self.missing.fetch_add(1, Ordering::Relaxed);
        let (missing, location) = (Arc::clone(&self.missing), self.location.clone());
        let file = self.open.as_ref().map(|(_, file)| file.clone());
        Box::pin(async move {
            let file = file.ok_or_else(|| generic("the upload was completed or aborted before"))?;
            let stored = store(&file, offset, &data).await;
            stored.map_err(|error| write_failure(error, &location))?;
            missing.fetch_sub(1, Ordering::Relaxed);
            Ok(())
        })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let missing = self.missing.load(Ordering::Relaxed);
        let (staged, file) = self.end()?;
        if missing > 0 {
            let parts = if missing == 1 { "1 part was" } else { &format!("{missing} parts were") };
            return Err(generic(format!("{}: {parts} not written", self.location)));
        }
        file.close().await.map_err(|error| write_failure(error, &self.location))?;
        staged.date().await?;
        staged.publish(&Target::Any).await
    }

    async fn abort(&mut self) -> Result<()> {
        let (staged, file) = self.end()?;
        let closed = file.close().await;
        staged.discard().await?;
        closed.map_err(|error| write_failure(error, &self.location))
    }
}
