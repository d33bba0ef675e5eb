//! Whole trees and copies of files.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::stream::Stream;

use crate::error::{Cause, During, Error, Result};
use crate::file::options::OpenOptions;
use crate::limits::{ATTEMPTS, TREE_DEPTH, TREE_ENTRIES};
use crate::listings::ListingCharge;
use crate::metadata::{FileType, Metadata};
use crate::share::Share;
use crate::share::dir::DirEntry;

/// A directory deeper than [`TREE_DEPTH`].
const TOO_DEEP: &str =
    "the tree is deeper than 1,024 directories; perhaps a directory contains itself";
/// More than [`TREE_ENTRIES`] entries to look at.
const TOO_WIDE: &str = "more files and directories than this program keeps (8,388,608) are still to be \
    looked at; take a part of the tree";

/// More than [`LISTED_BYTES_MAX`](crate::limits::LISTED_BYTES_MAX) bytes.
const TOO_LARGE: &str = "the names of the tree take more memory than this program uses for them \
    (1 GiB); take a part of the tree";

/// A file or directory that a [`Walk`] found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WalkEntry {
    path: String,
    entry: DirEntry,
}

impl WalkEntry {
    /// Returns the path in the share, with `/`.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// Returns the name: the last component of the path.
    pub fn file_name(&self) -> &str {
        self.entry.file_name()
    }

    /// Returns the metadata as the listing has it, without a further request.
    pub const fn metadata(&self) -> &Metadata {
        self.entry.metadata()
    }

    /// Returns the type of the file.
    pub const fn file_type(&self) -> FileType {
        self.entry.file_type()
    }
}

/// All files and directories below a directory, as a stream: [`Share::walk`] returns it.
///
/// A directory comes before its entries. Symbolic links and links of a DFS namespace are
/// returned and not followed.
pub struct Walk {
    share: Share,
    pending: Pending,
    /// The path and the depth of the directory that was listed last.
    directory: (Arc<str>, usize),
    /// The entries of that directory that were not returned yet.
    ready: std::vec::IntoIter<DirEntry>,
    listing: Option<Listing>,
}

/// A directory that is being listed: its path, its depth and the request.
type Listing = (Arc<str>, usize, BoxFuture<'static, Result<Vec<DirEntry>>>);

/// Directories that are still to be listed. Only their names are kept: a server that lists
/// millions of them in a deep directory would have this client keep its path as often.
struct Pending {
    /// The path of the directory above, the name, and the depth: 0 for the first one.
    directories: Vec<(Arc<str>, String, usize)>,
    most: usize,
    kept: ListingCharge,
}

/// The bytes that a waiting directory takes.
const fn weight(name: &str) -> usize {
    size_of::<(Arc<str>, String, usize)>() + name.len()
}

impl Pending {
    /// Returns the next directory, the one that was added last.
    fn pop(&mut self) -> Option<(String, usize)> {
        let (above, name, depth) = self.directories.pop()?;
        self.kept.give_back(weight(&name));
        Some((join(&above, &name), depth))
    }

    /// Adds a directory that was found in `above`. Returns false if there is no room for it.
    fn push(&mut self, above: &Arc<str>, name: &str, depth: usize) -> bool {
        let has_room = self.kept.add(weight(name));
        if has_room {
            self.directories.push((Arc::clone(above), name.to_owned(), depth));
        }
        has_room
    }

    /// Returns an error if there is no room for `count` directories.
    fn check(&self, count: usize) -> std::result::Result<(), Cause> {
        let sum = self.directories.len().saturating_add(count);
        if sum > self.most { Err(Cause::Limit(TOO_WIDE)) } else { Ok(()) }
    }
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Walk({})", self.share.url(""))
    }
}

impl Walk {
    /// Returns the next file or directory, `None` at the end.
    ///
    /// # Errors
    /// Fails if a directory cannot be listed, and with [`Cause::Limit`] for one that lies 1,024
    /// directories below the first one, or if 8,388,608 files and directories are still to be
    /// looked at; the next call goes on with the others.
    pub async fn next_entry(&mut self) -> Result<Option<WalkEntry>> {
        poll_fn(|cx| self.poll_next_entry(cx)).await
    }

    fn poll_next_entry(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<WalkEntry>>> {
        loop {
            if let Some(entry) = self.ready.next() {
                let (directory, depth) = &self.directory;
                let path = join(directory, entry.file_name());
                if entry.file_type().is_dir()
                    && !entry.metadata().is_junction()
                    && !self.pending.push(directory, entry.file_name(), depth + 1)
                {
                    return Poll::Ready(Err(self.refused(TOO_LARGE, &path)));
                }
                return Poll::Ready(Ok(Some(WalkEntry { path, entry })));
            }
            if self.listing.is_none() {
                let Some((path, depth)) = self.pending.pop() else { return Poll::Ready(Ok(None)) };
                if depth >= TREE_DEPTH {
                    return Poll::Ready(Err(self.refused(TOO_DEEP, &path)));
                }
                self.listing = Some(self.list(path, depth));
            }
            let Some((path, depth, listing)) = &mut self.listing else { continue };
            let listed = ready!(listing.as_mut().poll(cx));
            self.directory = (Arc::clone(path), *depth);
            self.listing = None;
            let entries = listed?;
            self.pending.check(entries.len()).during("list", &self.share.url(&self.directory.0))?;
            self.ready = entries.into_iter();
        }
    }

    /// Begins to list a directory. Only the first one may be reached through a link.
    fn list(&self, path: String, depth: usize) -> Listing {
        let share = self.share.clone();
        let path: Arc<str> = path.into();
        let directory = Arc::clone(&path);
        let listing = async move {
            if depth == 0 {
                share.list_dir(&directory).await
            } else {
                share.list_dir_itself(&directory).await
            }
        };
        (path, depth, Box::pin(listing))
    }

    fn refused(&self, why: &'static str, path: &str) -> Error {
        Error::new(Cause::Limit(why), "list", self.share.url(path))
    }
}

impl Stream for Walk {
    type Item = Result<WalkEntry>;

    /// Returns the next file or directory. An error does not end the stream.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_next_entry(cx).map(Result::transpose)
    }
}

/// A directory whose entries are being removed.
struct Emptied {
    directory: String,
    /// The entries that are still there.
    entries: Vec<DirEntry>,
    /// The bytes that all entries of the listing take.
    bytes: usize,
}

fn join(directory: &str, name: &str) -> String {
    if directory.is_empty() { name.to_owned() } else { format!("{directory}/{name}") }
}

impl Share {
    /// Lists all files and directories below `path`; the share's root is the empty path.
    /// Nothing is sent before the first entry is asked for.
    pub fn walk(&self, path: &str) -> Walk {
        Walk {
            share: self.clone(),
            pending: Pending {
                directories: vec![("".into(), path.trim_matches('/').to_owned(), 0)],
                most: TREE_ENTRIES,
                kept: ListingCharge::default(),
            },
            directory: ("".into(), 0),
            ready: Vec::new().into_iter(),
            listing: None,
        }
    }

    /// Removes `path`: a directory with all files and directories in it. Symbolic links are
    /// removed, not followed, also if `path` is one; links of a DFS namespace are neither removed
    /// nor followed.
    ///
    /// # Errors
    /// Fails with the first error, with what was removed before it gone: among others
    /// `DirectoryNotEmpty` if another program adds files meanwhile or the directory
    /// contains a link of a DFS namespace, and [`Cause::Limit`] if the tree is deeper than 1,024
    /// directories or 8,388,608 files and directories are to be looked at.
    pub async fn remove_dir_all(&self, path: &str) -> Result<()> {
        let path = path.trim_matches('/');
        let metadata = self.metadata(path).await?;
        if matches!(metadata.file_type(), FileType::Reparse(_)) {
            return self.remove_entry(path, &metadata).await;
        }
        let mut kept = ListingCharge::default();
        let mut listed = Vec::new();
        self.empty(path.to_owned(), &mut listed, &mut kept).await?;
        while let Some(Emptied { directory, entries, bytes }) = listed.last_mut() {
            let Some(entry) = entries.pop() else {
                until_gone(|| self.remove_dir(directory)).await?;
                kept.give_back(*bytes);
                listed.pop();
                continue;
            };
            let path = join(directory, entry.file_name());
            let metadata = entry.metadata();
            if metadata.is_junction() {
                continue;
            }
            if metadata.is_dir() {
                self.empty(path, &mut listed, &mut kept).await?;
            } else {
                self.remove_entry(&path, metadata).await?;
            }
        }
        Ok(())
    }

    /// Lists a directory that is to be removed, and adds it to those that are `listed`.
    async fn empty(
        &self,
        directory: String,
        listed: &mut Vec<Emptied>,
        kept: &mut ListingCharge,
    ) -> Result<()> {
        let refused = |why| Err(Error::new(Cause::Limit(why), "remove", self.url(&directory)));
        if listed.len() >= TREE_DEPTH {
            return refused(TOO_DEEP);
        }
        let entries = self.list_dir_itself(&directory).await?;
        let before = listed.iter().map(|one| one.entries.len()).sum::<usize>();
        if before.saturating_add(entries.len()) > TREE_ENTRIES {
            return refused(TOO_WIDE);
        }
        let bytes = entries.iter().map(DirEntry::weight).sum();
        if !kept.add(bytes) {
            return refused(TOO_LARGE);
        }
        listed.push(Emptied { directory, entries, bytes });
        Ok(())
    }

    /// Removes a file or a link.
    async fn remove_entry(&self, path: &str, metadata: &Metadata) -> Result<()> {
        if metadata.attributes().contains(crate::FileAttributes::DIRECTORY) {
            until_gone(|| self.remove_dir(path)).await
        } else {
            until_gone(|| self.remove_file(path)).await
        }
    }

    /// Copies the file `from` to `to`, creates or replaces it, and returns its length in
    /// bytes. The server copies by itself if it can; else the data passes through this
    /// machine. Attributes and times are not copied.
    ///
    /// # Errors
    /// Fails if `from` cannot be read or `to` cannot be written.
    pub async fn copy(&self, from: &str, to: &str) -> Result<u64> {
        let source = self.open(from).await?;
        let target = OpenOptions::new().write(true).create(true).truncate(true);
        let target = target.open(self, to).await?;
        let len = source.metadata_at_open().len();
        let mut copied = len;
        if source.copy_range_to(&target, 0, 0, len).await?.is_none() {
            let target = &target;
            let write = |at, piece: frevo_net::buffer::Buf| async move {
                target.write_all_at(&piece, at).await.map_err(std::io::Error::from)
            };
            copied = source.fetch_all(write).await?;
        }
        target.close().await?;
        Ok(copied)
    }
}

/// Removes a name, and again if the answer was lost: the name may be gone then.
async fn until_gone<F>(remove: impl Fn() -> F) -> Result<()>
where
    F: Future<Output = Result<()>>,
{
    let mut was_lost = false;
    for _ in 0..ATTEMPTS {
        match remove().await {
            Err(error) if matches!(error.cause(), Cause::Unknown) => was_lost = true,
            Err(error) if was_lost && error.is_not_found() => return Ok(()),
            done => return done,
        }
    }
    remove().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_directories_are_kept_and_no_more() {
        let kept = ListingCharge::default();
        let mut pending = Pending { directories: Vec::new(), most: 10, kept };
        let above: Arc<str> = "a/b".into();
        assert!((0..6).all(|at| pending.push(&above, &at.to_string(), 3)));
        assert!(pending.check(4).is_ok() && pending.check(5).is_err());
        assert!(pending.check(usize::MAX).is_err());
        assert_eq!(pending.pop(), Some((String::from("a/b/5"), 3)));
        assert!(pending.check(5).is_ok());
    }
}
