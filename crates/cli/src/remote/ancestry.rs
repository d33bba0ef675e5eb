//! The identities of a directory and of those above it, to find it under other names.

use std::os::unix::fs::MetadataExt;
use std::path::Path;

use frevo_client::internal::{Identity, file_time};
use frevo_client::{Metadata, Share};
use frevo_wire::dtyp::FileTime;
use futures_util::stream::{self, StreamExt};

use super::location::{Url, join};

/// Requests that are under way at once.
const AT_ONCE: usize = 16;

/// A file or directory on a server, with the connection to its share.
pub(crate) struct RemoteEnd {
    pub(crate) share: Share,
    pub(crate) url: Url,
}

/// Source and target of a copy between servers, or in one.
pub(crate) struct BothEnds {
    pub(crate) from: RemoteEnd,
    pub(crate) to: RemoteEnd,
}

/// The identities of a file or directory and of all directories above it, up to the share, as far
/// as they exist. Empty where the server does not tell, or both ends are certainly on two servers.
#[derive(Debug, Default)]
pub(crate) struct Ancestry {
    itself: Option<Identity>,
    above: Vec<Identity>,
    /// The number and the time of a local directory: it may be of a mount of the share, or
    /// of the server's disk.
    local: Option<(u64, FileTime)>,
}

impl Ancestry {
    async fn of(share: &Share, path: &str) -> Self {
        // A directory that is missing or may not be read has no identity, so it is left out.
        let identity = async |path: &str| share.identity(path).await.ok().flatten();
        let above = std::iter::successors(Some(path), |path| {
            (!path.is_empty()).then(|| frevo_client::path::split(path).0)
        });
        let above = stream::iter(above.skip(1)).map(identity).buffered(AT_ONCE);
        let above = above.filter_map(std::future::ready).collect().await;
        Self { itself: identity(path).await, above, local: None }
    }

    /// The ancestry of a local directory.
    pub(crate) fn of_local(path: &Path) -> Self {
        let found = std::fs::metadata(path).ok();
        let local = found.and_then(|found| Some((found.ino(), file_time(found.modified().ok()?))));
        Self { local, ..Self::default() }
    }

    /// True when both are the same file or directory.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.itself.is_some() && self.itself == other.itself
    }

    /// True when this is below `tree`.
    pub(crate) fn is_inside(&self, tree: &Self) -> bool {
        tree.itself.is_some_and(|tree| self.above.contains(&tree))
    }

    /// True when an entry of a listing may be this directory or one above it.
    pub(crate) fn may_have(&self, found: &Metadata) -> bool {
        let is_local = self.is_local(found);
        found.is_dir() && (is_local || self.all().any(|one| one.may_be(found)))
    }

    /// The first of `names` below `path` that is this directory or one above it.
    pub(crate) async fn found<'n>(
        &self,
        share: &Share,
        path: &str,
        names: impl IntoIterator<Item = &'n String>,
    ) -> Option<&'n String> {
        for name in names {
            if self.local.is_some() {
                // The caller has seen that one of `names` has the file number and the modification
                // time of the local directory. Two different directories hardly ever share both,
                // so the first name is taken without a question to the server.
                return Some(name);
            }
            let found = share.identity(&join(path, name)).await.ok().flatten();
            if found.is_some_and(|found| self.all().any(|one| *one == found)) {
                return Some(name);
            }
        }
        None
    }

    fn is_local(&self, found: &Metadata) -> bool {
        self.local == Some((found.file_id(), found.modified_ticks()))
    }

    fn all(&self) -> impl Iterator<Item = &Identity> {
        self.itself.iter().chain(&self.above)
    }
}

/// The ancestries of source and target.
pub(crate) async fn ancestries(from: &RemoteEnd, to: &RemoteEnd) -> (Ancestry, Ancestry) {
    let is_one = from.share.session().may_be_of_one_server(to.share.session());
    // A file in a snapshot may have the same number as the live file, so numbers cannot tell
    // whether the trees overlap.
    if from.share.snapshot() != to.share.snapshot() {
        return (Ancestry::default(), Ancestry::default());
    }
    // Trees on two servers cannot overlap, unless a DFS link leads from one server to the other.
    if !is_one && !from.share.is_dfs() && !to.share.is_dfs() {
        return (Ancestry::default(), Ancestry::default());
    }
    let source = Ancestry::of(&from.share, &from.url.path);
    futures_util::future::join(source, Ancestry::of(&to.share, &to.url.path)).await
}
