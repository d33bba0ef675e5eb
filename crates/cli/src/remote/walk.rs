//! Trees of a share and of this machine, many directories at once.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use frevo_client::{Cause, Error, Metadata, Share};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::place::join;

/// Directories that are listed at once.
const LISTED_AT_ONCE: usize = 16;
/// Directories within each other: names of four letters in a path of this machine.
const DEPTH_MAX: usize = 1_000;
/// Files and directories of one tree: all are kept in memory.
const ENTRIES_MAX: usize = 10_000_000;

/// Lists `path` and all below it. `see` gets the path of each entry relative to
/// `path`, directories before what is in them; symbolic links are not followed.
pub(crate) async fn remote(
    share: &Share,
    path: &str,
    mut see: impl FnMut(&str, &Metadata),
) -> frevo_client::Result<()> {
    let mut waiting = VecDeque::from([String::new()]);
    let mut under_way = FuturesUnordered::new();
    let mut seen = 0_usize;
    loop {
        while under_way.len() < LISTED_AT_ONCE {
            let Some(below) = waiting.pop_front() else { break };
            under_way.push(async move {
                let directory = if below.is_empty() { path.to_owned() } else { join(path, &below) };
                share.read_dir(&directory).await.map(|entries| (below, entries))
            });
        }
        let Some(listed) = under_way.next().await else { return Ok(()) };
        let (below, entries) = listed?;
        for entry in entries {
            let name = join(&below, entry.name());
            seen += 1;
            if seen > ENTRIES_MAX || name.matches('/').count() > DEPTH_MAX {
                let cause = Cause::Protocol("a tree without end");
                return Err(Error::new(cause, "list", share.url(path)));
            }
            see(&name, entry.metadata());
            if entry.metadata().is_dir() {
                waiting.push_back(name);
            }
        }
    }
}

/// A local file as far as copying is concerned.
#[derive(Debug, Clone)]
pub(crate) struct LocalFile {
    /// Relative to where the walk began, with `/`.
    pub(crate) name: String,
    /// Where it is.
    pub(crate) path: PathBuf,
    /// Whether it is a directory.
    pub(crate) is_dir: bool,
    /// Bytes.
    pub(crate) len: u64,
    /// Time of the last write.
    pub(crate) modified: SystemTime,
}

/// Lists a local directory and all below it, directories before what is in
/// them. Links, sockets and devices are left out; names that are not UTF-8 are
/// an error, since no share can hold them.
pub(crate) fn local(root: &Path) -> std::io::Result<Vec<LocalFile>> {
    let mut found = Vec::new();
    let mut waiting = vec![(root.to_owned(), String::new())];
    while let Some((directory, below)) = waiting.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_str().ok_or_else(|| {
                let text = format!("{} is not UTF-8", entry.path().display());
                std::io::Error::new(std::io::ErrorKind::InvalidData, text)
            })?;
            let metadata = entry.metadata()?;
            if !metadata.is_dir() && !metadata.is_file() {
                continue;
            }
            let name = join(&below, name);
            if metadata.is_dir() {
                waiting.push((entry.path(), name.clone()));
            }
            found.push(LocalFile {
                name,
                path: entry.path(),
                is_dir: metadata.is_dir(),
                len: if metadata.is_dir() { 0 } else { metadata.len() },
                modified: metadata.modified()?,
            });
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
