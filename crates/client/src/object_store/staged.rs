//! Objects that are being written: a file with a name of its own takes the object's name when
//! it is complete.

use std::time::{Duration, SystemTime};

use ::object_store::path::Path;
use ::object_store::{Error as StoreError, PutPayload, PutResult, Result};
use bytes::Bytes;
use frevo_net::buffer::Buf;

use super::locations::{LOCK, PART, e_tag, failure, generic, share_path, write_failure};
use crate::Status;
use crate::ambient::random;
use crate::error::{Cause, Error};
use crate::file::File;
use crate::file::options::OpenOptions;
use crate::share::Share;
use crate::share::set_attributes::SetMetadata;
use crate::types::{LeaseState, ShareMode};

/// Time for which a change of an object waits for programs that have it open.
const IN_USE_FOR: Duration = Duration::from_secs(5);
/// Time for which an update waits for another one of the same object.
const LOCKED_FOR: Duration = Duration::from_secs(60);
/// The first and the longest pause between two attempts.
const PAUSES: [Duration; 2] = [Duration::from_millis(2), Duration::from_millis(100)];
/// Longest payload that is sent in one request, bytes.
const SMALL: usize = 65_536;

/// The condition under which a new object takes its name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// None: an object of that name is replaced.
    Any,
    /// No object has the name.
    Absent,
    /// The object of that name has this ETag.
    Version(String),
}

/// A file that becomes an object. It is removed if it is dropped before.
#[derive(Debug)]
pub(super) struct Staged {
    share: Share,
    location: Path,
    path: String,
    part: String,
    /// The file has the object's name, or was removed.
    is_done: bool,
}

impl Drop for Staged {
    fn drop(&mut self) {
        if self.is_done {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        let (share, part) = (self.share.clone(), std::mem::take(&mut self.part));
        runtime.spawn(async move {
            let _ = share.remove_file(&part).await;
        });
    }
}

impl Staged {
    /// A file for the object at `location`. It is created when it is first written to.
    pub(super) fn new(share: &Share, location: &Path) -> Result<Self> {
        let path = share_path(share, location)?;
        let number = random(&*share.session().options().ambient);
        let number = number
            .map_err(|cause| generic(Error::new(cause, "write", share.url(&path))))
            .map(u128::from_le_bytes)?;
        let part = beside(&path, &format!("{PART}{number:032x}"));
        let (share, location) = (share.clone(), location.clone());
        Ok(Self { share, location, path, part, is_done: false })
    }

    /// The path of the file in the share.
    pub(super) fn part(&self) -> &str {
        &self.part
    }

    fn failed(&self, error: Error) -> StoreError {
        write_failure(error, &self.location)
    }

    /// Writes the whole object, and sets the time of its last write.
    pub(super) async fn write(&self, payload: &PutPayload) -> Result<()> {
        if payload.content_length() <= SMALL {
            let data: Vec<u8> = payload.iter().flatten().copied().collect();
            // The write may be repeated after a lost answer, because no other writer uses this
            // name.
            let write = || self.share.write_dated(&self.part, &data, Some(SystemTime::now()));
            let written = match write().await {
                Err(error) if error.is_not_found() => {
                    self.make_directory().await?;
                    write().await
                }
                written => written,
            };
            return written.map_err(|error| self.failed(error));
        }
        let file = self.open().await?;
        let written = store(&file, 0, payload).await;
        written.map_err(|error| self.failed(error))?;
        file.close().await.map_err(|error| self.failed(error))?;
        self.date().await
    }

    /// Creates the file, to be written in parts.
    pub(super) async fn open(&self) -> Result<File> {
        let options = OpenOptions::new().write(true).create(true).truncate(true);
        let opened = match options.open(&self.share, &self.part).await {
            Err(error) if error.is_not_found() => {
                self.make_directory().await?;
                options.open(&self.share, &self.part).await
            }
            opened => opened,
        };
        opened.map_err(|error| self.failed(error))
    }

    async fn make_directory(&self) -> Result<()> {
        let (directory, _) = crate::path::split(&self.path);
        self.share.create_dir_all(directory).await.map_err(|error| self.failed(error))
    }

    /// Sets the time of the last write by this machine's clock, which differs from that of any
    /// other version: a server's clock may have ticks of many milliseconds.
    pub(super) async fn date(&self) -> Result<()> {
        let now = SetMetadata::new().modified(SystemTime::now());
        self.share.set_metadata(&self.part, &now).await.map_err(|error| self.failed(error))
    }

    /// Gives the file the object's name.
    pub(super) async fn publish(mut self, target: &Target) -> Result<PutResult> {
        let metadata = self.share.lookup(&self.part).await.map_err(|error| self.failed(error))?;
        let lock = match target {
            Target::Version(_) => Some(self.lock().await?),
            Target::Any | Target::Absent => None,
        };
        self.compare(target).await?;
        let renamed = take_name(&self.share, &self.part, &self.path, target).await;
        renamed.map_err(|error| self.failed(error))?;
        self.is_done = true;
        if let Some(lock) = lock {
            // If the CLOSE fails, the lock is released when the session ends.
            let _ = lock.close().await;
        }
        let e_tag = Some(e_tag(&metadata));
        Ok(PutResult { e_tag, version: None, extensions: Default::default() })
    }

    /// Removes the file, which is not complete.
    pub(super) async fn discard(mut self) -> Result<()> {
        self.is_done = true;
        self.share.remove_file(&self.part).await.map_err(|error| self.failed(error))
    }

    /// Compares the present object with `target`. The server does that itself with
    /// [`Target::Absent`].
    pub(super) async fn compare(&self, target: &Target) -> Result<()> {
        let Target::Version(wanted) = target else { return Ok(()) };
        let path = self.location.to_string();
        let found = match self.share.lookup(&self.path).await {
            Ok(metadata) if metadata.is_file() => e_tag(&metadata),
            Ok(_) => String::from("no object"),
            Err(error) if error.is_not_found() => String::from("no object"),
            Err(error) => return Err(self.failed(error)),
        };
        if found == *wanted {
            return Ok(());
        }
        let source = format!("the ETag is {found}, not {wanted}").into();
        Err(StoreError::Precondition { path, source })
    }

    /// Opens the lock file of the object for this client alone. The server removes it when it is
    /// closed.
    async fn lock(&self) -> Result<File> {
        let (_, name) = crate::path::split(&self.path);
        let number = fnv(name.to_lowercase().as_bytes());
        let path = beside(&self.path, &format!("{LOCK}{number:016x}"));
        let options = OpenOptions::new()
            .write(true)
            .create(true)
            .delete_on_close(true)
            .share_mode(ShareMode::EMPTY)
            .lease(LeaseState::EMPTY);
        let locked = patiently(LOCKED_FOR, || options.open(&self.share, &path)).await;
        locked.map_err(|error| self.failed(error))
    }
}

/// Writes `payload` at `offset` of an open file.
pub(super) async fn store(
    file: &File,
    offset: u64,
    payload: &PutPayload,
) -> crate::error::Result<()> {
    let mut pieces: Vec<(u64, Bytes)> = Vec::new();
    let mut end = offset;
    for piece in payload.iter().filter(|piece| !piece.is_empty()) {
        pieces.push((end, piece.clone()));
        end += piece.len() as u64;
    }
    let fill = move |at: u64, count: usize, buf: &mut Buf| {
        let mut left = count;
        let first = pieces.partition_point(|(start, _)| *start <= at).saturating_sub(1);
        let mut skip = at - pieces.get(first).map_or(at, |(start, _)| *start);
        for (_, piece) in pieces.get(first..).unwrap_or_default() {
            let rest = piece.get(usize::try_from(skip).unwrap_or(usize::MAX)..).unwrap_or_default();
            let part = rest.get(..left).unwrap_or(rest);
            buf.extend_from_slice(part);
            left -= part.len();
            skip = 0;
            if left == 0 {
                break;
            }
        }
        Ok(())
    };
    file.store(offset, end - offset, fill, |_: u64| true).await
}

/// Renames an object.
pub(super) async fn rename(share: &Share, from: &Path, to: &Path, target: &Target) -> Result<()> {
    let (source, path) = (share_path(share, from)?, share_path(share, to)?);
    let found = share.metadata(&source).await.map_err(|error| failure(error, from))?;
    if found.is_dir() {
        let error = Error::new(Status::FILE_IS_A_DIRECTORY, "rename", share.url(&source));
        return Err(failure(error, from));
    }
    let renamed = match take_name(share, &source, &path, target).await {
        Err(error) if error.is_not_found() => {
            let (directory, _) = crate::path::split(&path);
            let made = share.create_dir_all(directory).await;
            made.map_err(|error| write_failure(error, to))?;
            take_name(share, &source, &path, target).await
        }
        renamed => renamed,
    };
    renamed.map_err(|error| {
        if error.is_not_found() { failure(error, from) } else { write_failure(error, to) }
    })
}

/// Renames `from` to `to`, also while other programs have the object `to` open. When an answer is
/// lost and `from` is gone, it was renamed.
async fn take_name(
    share: &Share,
    from: &str,
    to: &str,
    target: &Target,
) -> crate::error::Result<()> {
    let mut was_lost = false;
    loop {
        let renamed = match target {
            Target::Absent => share.rename_if_not_exists(from, to).await,
            Target::Any | Target::Version(_) => replace(share, from, to).await,
        };
        match renamed {
            Err(error) if matches!(error.cause(), Cause::Unknown) => was_lost = true,
            Err(error) if was_lost && error.is_not_found() => {
                return share.metadata(to).await.map(drop);
            }
            renamed => return renamed,
        }
    }
}

/// Renames `from` to `to`, with POSIX semantics if the server has them.
async fn replace(share: &Share, from: &str, to: &str) -> crate::error::Result<()> {
    match share.rename_over(from, to).await {
        Err(error) if lacks_posix_semantics(&error) => {
            patiently(IN_USE_FOR, || share.rename(from, to)).await
        }
        renamed => renamed,
    }
}

/// Returns true if the server does not know FileRenameInformationEx or
/// FileDispositionInformationEx.
pub(super) fn lacks_posix_semantics(error: &Error) -> bool {
    matches!(
        error.status(),
        Some(
            Status::NOT_SUPPORTED
                | Status::INVALID_INFO_CLASS
                | Status::NOT_IMPLEMENTED
                | Status::INVALID_PARAMETER
                | Status::INVALID_DEVICE_REQUEST
        )
    )
}

/// Repeats `work` while another program has the file open.
async fn patiently<T, F>(time: Duration, work: impl Fn() -> F) -> crate::error::Result<T>
where
    F: Future<Output = crate::error::Result<T>>,
{
    let end = tokio::time::Instant::now() + time;
    let [mut pause, longest] = PAUSES;
    loop {
        let done = work().await;
        // MS-FSA 2.1.5.15.11: the server refuses to replace an open file with ACCESS_DENIED.
        let is_in_use = done.as_ref().is_err_and(|error| {
            matches!(
                error.status(),
                Some(Status::SHARING_VIOLATION | Status::DELETE_PENDING | Status::ACCESS_DENIED)
            )
        });
        if !is_in_use || tokio::time::Instant::now() + pause > end {
            return done;
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(longest);
    }
}

/// The path of `name` in the directory of `path`.
fn beside(path: &str, name: &str) -> String {
    let (directory, _) = crate::path::split(path);
    let slash = if directory.is_empty() { "" } else { "/" };
    format!("{directory}{slash}{name}")
}

/// The FNV-1a hash of a name, which all versions of this program agree on.
fn fnv(name: &[u8]) -> u64 {
    let add = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01B3);
    name.iter().fold(0xCBF2_9CE4_8422_2325, add)
}
