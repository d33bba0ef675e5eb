//! The directory of a run: made new, and removed with all that is in it.

use std::time::Duration;

use frevo_client::{Result, Share, Status};
use futures_util::stream::{self, StreamExt, TryStreamExt};

use crate::exit::Failure;
use crate::remote::location::{Url, join};
use crate::remote::logon::failed;

/// Files that are removed at the same time.
const REMOVED_AT_ONCE: usize = 32;
/// Attempts at the removal: a request of an interrupted test may create a file meanwhile.
const ATTEMPTS: usize = 5;
const PAUSE: Duration = Duration::from_millis(200);

/// A directory that did not exist before.
#[derive(Debug)]
pub(super) struct Scratch {
    share: Share,
    pub(super) path: String,
}

impl Scratch {
    /// Creates the directory in `parent`, which must exist.
    pub(super) async fn create(share: &Share, parent: &str) -> std::result::Result<Self, Failure> {
        let mut number = [0; 8];
        getrandom::fill(&mut number).map_err(Failure::failed("cannot choose a name"))?;
        let path = join(parent, &format!("frevo-bench-{:016x}", u64::from_le_bytes(number)));
        // `create_dir` fails if the name exists, so the directory is always a new one.
        share.create_dir(&path).await.map_err(failed)?;
        Ok(Self { share: share.clone(), path })
    }

    pub(super) fn url(&self) -> String {
        Url::in_share(&self.share, &*self.path).to_string()
    }

    /// Removes the directory with its files.
    pub(super) async fn remove(&self) -> Result<()> {
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            match self.remove_once().await {
                Err(error) if error.is_not_found() => return Ok(()),
                Err(error)
                    if attempts > 0
                        && matches!(
                            error.status(),
                            Some(Status::DIRECTORY_NOT_EMPTY | Status::SHARING_VIOLATION)
                        ) =>
                {
                    tokio::time::sleep(PAUSE).await;
                }
                done => return done,
            }
        }
    }

    async fn remove_once(&self) -> Result<()> {
        // Files are removed first, many in parallel, because removing thousands of files one by one
        // would take a round trip for each.
        let mut files = Vec::new();
        let mut walk = self.share.walk(&self.path);
        while let Some(entry) = walk.next_entry().await? {
            if entry.file_type().is_file() {
                files.push(entry.path().to_owned());
            }
        }
        let removed = stream::iter(files).map(|path| async move {
            match self.share.remove_file(&path).await {
                Err(error) if error.is_not_found() => Ok(()),
                done => done,
            }
        });
        removed.buffer_unordered(REMOVED_AT_ONCE).try_collect::<()>().await?;
        self.share.remove_dir_all(&self.path).await
    }
}
