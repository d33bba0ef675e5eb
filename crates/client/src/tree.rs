//! Whole trees and copies of files.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use futures_util::future::BoxFuture;
use futures_util::stream::Stream;

use crate::dir::DirEntry;
use crate::error::Result;
use crate::metadata::{FileType, Metadata};
use crate::open_options::OpenOptions;
use crate::share::Share;

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
    /// Directories that are still to be listed.
    directories: Vec<String>,
    ready: VecDeque<WalkEntry>,
    listing: Option<(String, BoxFuture<'static, Result<Vec<DirEntry>>>)>,
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
    /// Fails if a directory cannot be listed; the next call goes on with the others.
    pub async fn next_entry(&mut self) -> Result<Option<WalkEntry>> {
        poll_fn(|cx| self.poll_next_entry(cx)).await
    }

    fn poll_next_entry(&mut self, cx: &mut Context<'_>) -> Poll<Result<Option<WalkEntry>>> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Poll::Ready(Ok(Some(found)));
            }
            if self.listing.is_none() {
                let Some(path) = self.directories.pop() else { return Poll::Ready(Ok(None)) };
                let (share, directory) = (self.share.clone(), path.clone());
                let listing = async move { share.list_dir(&directory).await };
                self.listing = Some((path, Box::pin(listing)));
            }
            let Some((path, listing)) = &mut self.listing else { continue };
            let listed = ready!(listing.as_mut().poll(cx));
            let directory = std::mem::take(path);
            self.listing = None;
            for entry in listed? {
                let path = join(&directory, entry.file_name());
                if entry.file_type().is_dir() && !entry.metadata().is_junction() {
                    self.directories.push(path.clone());
                }
                self.ready.push_back(WalkEntry { path, entry });
            }
        }
    }
}

impl Stream for Walk {
    type Item = Result<WalkEntry>;

    /// Returns the next file or directory. An error does not end the stream.
    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.poll_next_entry(cx).map(Result::transpose)
    }
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
            directories: vec![path.trim_matches('/').to_owned()],
            ready: VecDeque::new(),
            listing: None,
        }
    }

    /// Removes `path`: a directory with all files and directories in it. Symbolic links are
    /// removed, not followed; links of a DFS namespace are neither removed nor followed.
    ///
    /// # Errors
    /// Fails with the first error, with what was removed before it gone: among others
    /// `DirectoryNotEmpty` if another program adds files meanwhile or the directory
    /// contains a link of a DFS namespace.
    pub async fn remove_dir_all(&self, path: &str) -> Result<()> {
        let mut listed = vec![(path.trim_matches('/').to_owned(), self.list_dir(path).await?)];
        while let Some((directory, entries)) = listed.last_mut() {
            let Some(entry) = entries.pop() else {
                self.remove_dir(directory).await?;
                listed.pop();
                continue;
            };
            let path = join(directory, entry.file_name());
            let metadata = entry.metadata();
            if metadata.is_junction() {
                continue;
            }
            if metadata.is_dir() {
                let entries = self.list_dir(&path).await?;
                listed.push((path, entries));
            } else if metadata.attributes().contains(crate::FileAttributes::DIRECTORY) {
                self.remove_dir(&path).await?;
            } else {
                self.remove_file(&path).await?;
            }
        }
        Ok(())
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
