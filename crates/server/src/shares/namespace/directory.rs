//! Listings with the links and folders of a namespace among the files of a share.

use std::sync::Arc;

use frevo_dfs::{Namespace, Resolution};
use frevo_store::vfs::{Directory, HostAccess, Kind, Stat, VfsResult};
use frevo_store::{Name, Vfs};
use frevo_wire::dtyp::FileTime;
use frevo_wire::fscc::reparse::ReparseTag;

use super::node;

/// The links and folders of a namespace in one of its folders.
#[derive(Debug, Clone)]
pub(super) struct Linked {
    pub(super) namespace: Arc<Namespace>,
    /// The share's own files.
    pub(super) files: Arc<dyn Vfs>,
    /// The folder.
    pub(super) folder: Name,
    /// The times of what the share does not have.
    pub(super) time: FileTime,
}

impl Linked {
    /// Begins a listing: of the names that `own` lists, and those of the namespace.
    pub(super) fn listing(&self, own: Option<Box<dyn Directory>>) -> Listing {
        Listing { linked: self.clone(), own, at: At::Own, name: String::new(), is_link: false }
    }

    /// True for a name that the namespace has in this folder.
    fn has(&self, name: &str) -> bool {
        let child = self.folder.child(name);
        !matches!(self.namespace.resolve(child.path()), Resolution::Nothing)
    }
}

/// The next entry of a listing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum At {
    /// One of the share's own.
    Own,
    /// The first of the namespace.
    First,
    /// The one of the namespace behind `name`.
    Behind,
}

/// A listing of a folder of a namespace.
#[derive(Debug)]
pub(super) struct Listing {
    linked: Linked,
    /// None for a folder that the share does not have.
    own: Option<Box<dyn Directory>>,
    at: At,
    /// The entry at hand, if it is the namespace's.
    name: String,
    is_link: bool,
}

impl Listing {
    /// Moves to the next entry of the share's own. False at the end.
    fn next_own(&mut self) -> VfsResult<bool> {
        let Self { linked, own: Some(own), name, .. } = self else { return Ok(false) };
        while let Some(next) = own.next_name()? {
            // A folder that both have is listed with those of the namespace, and a link hides what the
            // share has at its place.
            if !linked.has(next) {
                name.replace_range(.., next);
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl Directory for Listing {
    fn next_name(&mut self) -> VfsResult<Option<&str>> {
        if self.at == At::Own {
            if self.next_own()? {
                return Ok(Some(&self.name));
            }
            self.at = At::First;
        }
        let behind = Some(&*self.name).filter(|_| self.at == At::Behind);
        let Linked { namespace, folder, .. } = &self.linked;
        let Some(step) = namespace.step(folder.path(), behind) else { return Ok(None) };
        let (name, is_link) = (step.name.to_owned(), step.link.is_some());
        (self.name, self.is_link, self.at) = (name, is_link, At::Behind);
        Ok(Some(&self.name))
    }

    fn entry_stat(&mut self) -> VfsResult<Option<Stat>> {
        if let (At::Own, Some(own)) = (self.at, &mut self.own) {
            return own.entry_stat();
        }
        let Linked { namespace, files, folder, time } = &self.linked;
        let child = folder.child(&self.name);
        if !self.is_link
            && let Ok(stat) = files.stat(&child)
            && stat.kind == Kind::Directory
            && stat.reparse_tag != ReparseTag::DFS.0
        {
            return Ok(Some(stat));
        }
        Ok(Some(node::stat(namespace.name(), child.path(), self.is_link, *time)))
    }

    fn plain_access(&mut self) -> Option<HostAccess> {
        match (self.at, &mut self.own) {
            (At::Own, Some(own)) => own.plain_access(),
            _ => None,
        }
    }

    fn rewind(&mut self) -> VfsResult<()> {
        self.at = At::Own;
        self.own.as_mut().map_or(Ok(()), |own| own.rewind())
    }

    fn bytes(&self) -> usize {
        let own = self.own.as_ref().map_or(0, |own| own.bytes());
        own.saturating_add(size_of::<Self>()).saturating_add(self.name.capacity())
    }
}
