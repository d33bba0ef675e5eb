//! Trees of a share and of this machine, many directories at once.

use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::time::SystemTime;

use frevo_client::{Cause, DirEntry, Error, Metadata, Share};
use frevo_mount::names::{Spelling, to_wire};
use futures_util::stream::{FuturesUnordered, StreamExt};

use super::place::join;
use crate::exit::{Exit, Failure};

/// Directories that are listed at once.
const LISTED_AT_ONCE: usize = 16;
/// Directories within each other: names of four letters in a path of this machine.
const DEPTH_MAX: usize = 1_000;
/// Files and directories of one tree: all are kept in memory.
const ENTRIES_MAX: usize = 10_000_000;

/// Links of DFS namespaces within each other.
const LINKS_MAX: usize = 16;

/// A directory that is to be listed.
struct Waiting {
    /// Relative to where the walk began.
    below: String,
    /// It is a link of a DFS namespace.
    is_junction: bool,
    /// The links on the way to it.
    trail: Option<Rc<Trail>>,
}

/// What a link on the way was crossed from.
pub(crate) struct Trail {
    /// Where the directory with the link really is.
    from: String,
    before: Option<Rc<Self>>,
    length: usize,
}

impl Trail {
    /// One longer, by the link from the directory `from` to `to`. Nothing when that leads
    /// back, so that there would be no end.
    fn crossed(before: Option<Rc<Self>>, from: String, to: &str) -> Option<Rc<Self>> {
        let length = before.as_ref().map_or(0, |before| before.length) + 1;
        let trail = Rc::new(Self { from, before, length });
        let mut links = std::iter::successors(Some(&trail), |trail| trail.before.as_ref());
        (length <= LINKS_MAX && !links.any(|link| is_within(&link.from, to))).then_some(trail)
    }
}

/// Whether the directory `url` is `of` or below it.
fn is_within(url: &str, of: &str) -> bool {
    let (url, of) = (url.to_lowercase(), of.to_lowercase());
    url.strip_prefix(&*of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Lists `path` and all below it. `see` gets the path of each entry relative to
/// `path`, directories before what is in them; symbolic links are not followed, links
/// of DFS namespaces are.
pub(crate) async fn remote(
    share: &Share,
    path: &str,
    see: impl FnMut(&str, &Metadata),
) -> frevo_client::Result<()> {
    remote_but(share, path, see, Err).await
}

/// The same; `failed` is told of a directory below that cannot be listed, and says
/// whether the rest is.
pub(crate) async fn remote_but(
    share: &Share,
    path: &str,
    mut see: impl FnMut(&str, &Metadata),
    mut failed: impl FnMut(Error) -> frevo_client::Result<()>,
) -> frevo_client::Result<()> {
    let start = Waiting { below: String::new(), is_junction: false, trail: None };
    let mut waiting = VecDeque::from([start]);
    let mut under_way = FuturesUnordered::new();
    let mut seen = 0_usize;
    loop {
        while under_way.len() < LISTED_AT_ONCE {
            let Some(next) = waiting.pop_front() else { break };
            under_way.push(async move {
                let listed = list(share, path, &next).await;
                (next.below, listed)
            });
        }
        let Some((below, listed)) = under_way.next().await else { return Ok(()) };
        let (entries, trail) = match listed {
            Ok(listed) => listed,
            Err(error) if below.is_empty() => return Err(error),
            Err(error) => {
                failed(error)?;
                continue;
            }
        };
        for entry in entries {
            let name = join(&below, entry.name());
            seen += 1;
            if seen > ENTRIES_MAX || name.matches('/').count() > DEPTH_MAX {
                let cause = Cause::Protocol("a tree without end");
                return Err(Error::new(cause, "list", share.url(path)));
            }
            see(&name, entry.metadata());
            if entry.metadata().is_dir() {
                let (is_junction, trail) = (entry.metadata().is_junction(), trail.clone());
                waiting.push_back(Waiting { below: name, is_junction, trail });
            }
        }
    }
}

/// The entries of a directory below `path`, and the links on the way to them.
async fn list(
    share: &Share,
    path: &str,
    directory: &Waiting,
) -> frevo_client::Result<(Vec<DirEntry>, Option<Rc<Trail>>)> {
    let place = match &*directory.below {
        "" => path.to_owned(),
        below => join(path, below),
    };
    let before = directory.trail.clone();
    let trail = if directory.is_junction { cross(share, &place, before).await? } else { before };
    Ok((share.read_dir(&place).await?, trail))
}

/// What is on the way behind the link `place` of a DFS namespace.
pub(crate) async fn cross(
    share: &Share,
    place: &str,
    before: Option<Rc<Trail>>,
) -> frevo_client::Result<Option<Rc<Trail>>> {
    // What was crossed is known then.
    share.metadata(place).await?;
    let from = share.real_url(frevo_client::path::split(place).0).await?;
    let to = share.real_url(place).await?;
    let trail = Trail::crossed(before, from, &to);
    if trail.is_none() {
        let cause = Cause::Protocol("a link of a DFS namespace that leads back to where it is");
        return Err(Error::new(cause, "list", share.url(place)));
    }
    Ok(trail)
}

/// A local file as far as copying is concerned.
#[derive(Debug, Clone)]
pub(crate) struct LocalFile {
    /// Relative to where the walk began, with `/`, as a share spells it.
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

/// For [`Result::map_err`]: what is wrong with the local `path`.
pub(crate) fn local_failed(path: &Path) -> impl FnOnce(std::io::Error) -> Failure {
    let shown = path.display().to_string();
    move |error| {
        let is_missing = error.kind() == std::io::ErrorKind::NotFound;
        let exit = if is_missing { Exit::NotFound } else { Exit::Failed };
        Failure::new(exit, format!("{shown}: {error}"))
    }
}

/// Lists a local directory and all below it, directories before what is in
/// them. Links, sockets and devices are left out. Names are spelled as they go over the
/// wire; `failed` is told of one that no share can hold, since it is not UTF-8, and of
/// what cannot be read, and says whether the rest is listed.
pub(crate) fn local(
    root: &Path,
    mut failed: impl FnMut(Error) -> frevo_client::Result<()>,
) -> frevo_client::Result<Vec<LocalFile>> {
    let error = |path: &Path, error: std::io::Error| {
        Error::new(Cause::Local(Arc::new(error)), "read", path.display().to_string())
    };
    let mut found = Vec::new();
    let mut waiting = vec![(root.to_owned(), String::new())];
    while let Some((directory, below)) = waiting.pop() {
        let entries = match std::fs::read_dir(&directory) {
            Err(why) if below.is_empty() => return Err(error(&directory, why)),
            Err(why) => {
                failed(error(&directory, why))?;
                continue;
            }
            Ok(entries) => entries,
        };
        for entry in entries {
            let file = entry.map_err(|why| error(&directory, why)).and_then(|entry| {
                local_file(&entry, &below).map_err(|why| error(&entry.path(), why))
            });
            match file {
                Ok(None) => {}
                Ok(Some(file)) => {
                    if file.is_dir {
                        waiting.push((file.path.clone(), file.name.clone()));
                    }
                    found.push(file);
                }
                Err(error) => failed(error)?,
            }
        }
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}

/// Nothing if it is no file or directory.
fn local_file(entry: &std::fs::DirEntry, below: &str) -> std::io::Result<Option<LocalFile>> {
    let metadata = entry.metadata()?;
    if !metadata.is_dir() && !metadata.is_file() {
        return Ok(None);
    }
    let name = to_wire(&entry.file_name(), Spelling::Mapped).ok_or_else(|| {
        let why = "its name is not UTF-8, which a share cannot hold; rename it";
        std::io::Error::new(std::io::ErrorKind::InvalidData, why)
    })?;
    Ok(Some(LocalFile {
        name: join(below, &name),
        path: entry.path(),
        is_dir: metadata.is_dir(),
        len: if metadata.is_dir() { 0 } else { metadata.len() },
        modified: metadata.modified()?,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_that_lead_back_are_seen() {
        let crossed = |before: &Option<Rc<Trail>>, from: &str, to: &str| {
            Trail::crossed(before.clone(), from.to_owned(), to)
        };
        let first = crossed(&None, "smb://a/dfs/x", "smb://b/data");
        assert!(first.is_some());
        assert!(crossed(&None, "smb://a/dfs/x", "smb://a/dfs/y").is_some(), "beside it");
        assert!(crossed(&None, "smb://a/dfs/x", "smb://a/dfs/x/y").is_some(), "below it");
        for back in ["smb://a/dfs", "smb://A/Dfs/x"] {
            assert!(crossed(&None, "smb://a/dfs/x", back).is_none(), "{back}");
            assert!(crossed(&first, "smb://b/data/z", back).is_none(), "{back} by way of b");
        }
        assert!(crossed(&first, "smb://b/data/z", "smb://b/dat").is_some());
        let mut far = None;
        for at in 0..LINKS_MAX {
            far = crossed(&far, &format!("smb://h{at}/s"), &format!("smb://h{}/s", at + 1));
            assert!(far.is_some());
        }
        assert!(crossed(&far, "smb://end/s", "smb://more/s").is_none());
    }
}
