//! The ends of a copy, and whether they overlap, also under other names: a server has several
//! names and addresses, and a directory may be in several shares.

use super::ancestry::{Ancestry, BothEnds, ancestries};
use super::endpoint::{Endpoint, Listed};
use super::location::{Url, join};

/// Source and target of a copy.
pub(crate) struct Ends {
    pub(crate) from: Endpoint,
    pub(crate) to: Endpoint,
    /// The URLs of two remote ends.
    urls: Option<(Url, Url)>,
    pub(crate) from_ancestry: Ancestry,
    pub(crate) to_ancestry: Ancestry,
}

impl Ends {
    /// A local and a remote end. A local source may be a mount of the target's share, or on the
    /// server's disk.
    pub(crate) fn new(from: Endpoint, to: Endpoint) -> Self {
        let from_ancestry = match &from {
            Endpoint::Local(path) => Ancestry::of_local(path),
            Endpoint::Remote(..) => Ancestry::default(),
        };
        Self { from, to, urls: None, from_ancestry, to_ancestry: Ancestry::default() }
    }

    /// Two remote ends. Asks the servers for the identities of both.
    pub(crate) async fn remote(BothEnds { from, to }: BothEnds) -> Self {
        let (from_ancestry, to_ancestry) = ancestries(&from, &to).await;
        Self {
            from: Endpoint::Remote(from.share, from.url.path.clone()),
            to: Endpoint::Remote(to.share, to.url.path.clone()),
            urls: Some((from.url, to.url)),
            from_ancestry,
            to_ancestry,
        }
    }

    /// True when both ends are the same file or directory.
    pub(crate) fn are_same(&self) -> bool {
        self.urls.as_ref().is_some_and(|(from, to)| to.is_same_place(from))
            || self.to_ancestry.is_same(&self.from_ancestry)
    }

    /// True when the target is known to be inside the source.
    pub(crate) fn target_is_inside(&self) -> bool {
        self.urls.as_ref().is_some_and(|(from, to)| to.is_inside(from))
            || self.to_ancestry.is_inside(&self.from_ancestry)
    }

    /// True when the source is known to be inside the target.
    pub(crate) fn source_is_inside(&self) -> bool {
        self.urls.as_ref().is_some_and(|(from, to)| from.is_inside(to))
            || self.from_ancestry.is_inside(&self.to_ancestry)
    }

    /// The URL of the target in a listing of the source, if it is there.
    pub(crate) async fn target_in(&self, source: &Listed) -> Option<String> {
        found_in(&self.from, source, &self.to_ancestry).await
    }

    /// The URL of the source in a listing of the target, if it is there.
    pub(crate) async fn source_in(&self, target: &Listed) -> Option<String> {
        found_in(&self.to, target, &self.from_ancestry).await
    }
}

async fn found_in(end: &Endpoint, listed: &Listed, other: &Ancestry) -> Option<String> {
    let Endpoint::Remote(share, path) = end else { return None };
    let names = listed.iter().filter(|(_, entry)| entry.is_kin).map(|(name, _)| name);
    let found = other.found(share, path, names).await?;
    Some(share.url(&join(path, found)))
}
