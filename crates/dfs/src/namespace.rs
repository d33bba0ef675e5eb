//! A namespace: a root and the links below it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use crate::key::components;
use crate::limits::{COMMENT_UNITS, RANK, ROOT_TTL_S};
use crate::link::{BadLink, Link, Ordering, State};
use crate::tree::{Resolution, Step, Tree};

/// The folders that a namespace's root has.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Root {
    /// Those on the way to its links, and no others: a read-only tree without a folder of the host.
    #[default]
    Own,
    /// Those of the share of the same name, with the links among them.
    Share,
}

/// A namespace: the links below one root. Clients see the root as a share of this name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Namespace {
    name: Box<str>,
    /// Text that clients see beside the name, for a root of its own.
    pub comment: Box<str>,
    /// A namespace that is offline cannot be used.
    pub state: State,
    /// Seconds for which clients may use a referral for the root; [`ROOT_TTL_S`] without one.
    pub ttl_s: Option<u32>,
    /// The order of targets of links that have none of their own.
    pub ordering: Ordering,
    /// True if clients go back to a better target of any link when it works again.
    pub failback: bool,
    /// The folders of its root.
    pub root: Root,
    tree: Tree,
}

impl Namespace {
    /// Returns a namespace without links.
    pub fn new(name: &str, root: Root) -> Self {
        Self {
            name: name.into(),
            comment: Box::default(),
            state: State::Online,
            ttl_s: None,
            ordering: Ordering::default(),
            failback: false,
            root,
            tree: Tree::default(),
        }
    }

    /// Returns the namespace with these links in place of its own.
    ///
    /// # Errors
    /// For two links of one path, a link inside of another, and one with a comment or a rank beyond its
    /// limit.
    pub fn with_links(mut self, links: Vec<Link>) -> Result<Self, BadLink> {
        links.iter().try_for_each(check)?;
        self.tree = Tree::of(links)?;
        Ok(self)
    }

    /// Returns the name, which clients compare without case.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the seconds for which a referral for the root is valid.
    pub fn root_ttl_s(&self) -> u32 {
        self.ttl_s.unwrap_or(ROOT_TTL_S)
    }

    /// Returns all links, sorted by their paths without case.
    pub fn links(&self) -> impl ExactSizeIterator<Item = &Link> {
        self.tree.links()
    }

    /// Returns the link at `path`, in any case.
    pub fn link(&self, path: &str) -> Option<&Link> {
        self.tree.link(path)
    }

    /// Finds what stands at `path`, whose components follow backslashes. The path of the root is empty.
    pub fn resolve(&self, path: &str) -> Resolution<'_> {
        self.tree.resolve(components(path))
    }

    /// Returns the path of a link, or of a folder on the way to one, as it was written. None for a path
    /// of neither.
    pub fn spelled(&self, path: &str) -> Option<&str> {
        self.tree.spelled(components(path))
    }

    pub(crate) fn tree_resolve<'p>(&self, path: impl Iterator<Item = &'p str>) -> Resolution<'_> {
        self.tree.resolve(path)
    }

    /// Returns the first entry of the folder `path`, or the one behind the entry called `behind`. Entries
    /// are sorted without case.
    pub fn step(&self, path: &str, behind: Option<&str>) -> Option<Step<'_>> {
        self.tree.step(components(path), behind)
    }

    /// Adds a link.
    ///
    /// # Errors
    /// As [`Self::with_links`]; nothing is changed then.
    pub fn insert(&mut self, link: Link) -> Result<(), BadLink> {
        check(&link)?;
        self.tree.insert(link)
    }

    /// Removes the link at `path`. None without one.
    pub fn remove(&mut self, path: &str) -> Option<Link> {
        self.tree.remove(path)
    }

    /// Puts `link` in the place of the link of its path, whose old value is returned. None without one;
    /// nothing is changed then.
    ///
    /// # Errors
    /// For a comment or a rank beyond its limit.
    pub fn replace(&mut self, link: Link) -> Result<Option<Link>, BadLink> {
        check(&link)?;
        let place = self.tree.link_mut(link.path());
        Ok(place.map(|place| core::mem::replace(place, link)))
    }
}

/// Checks what [`Link::new`] has not seen.
fn check(link: &Link) -> Result<(), BadLink> {
    if link.comment.encode_utf16().count() > COMMENT_UNITS {
        return Err(BadLink::Comment(link.path().into()));
    }
    match link.targets().iter().find(|target| target.rank > RANK) {
        Some(target) => Err(BadLink::Rank(target.rank)),
        None => Ok(()),
    }
}
