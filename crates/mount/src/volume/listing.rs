//! Directories being listed.

use std::sync::Arc;

use frevo_client::{DirEntry, Metadata};
use fuser::FileType;
use parking_lot::Mutex;

use super::{Told, Volume};
use crate::errno::{Outcome, errno};
use crate::names::from_wire;
use crate::node::{Node, kind_of};

/// An open directory: what was in it when it was read from its beginning.
pub(crate) struct Listing {
    node: Arc<Node>,
    entries: Mutex<Option<Arc<Vec<DirEntry>>>>,
}

/// One entry for the kernel.
pub(crate) enum Entry {
    /// `.` and `..`, of which it is told no more than their numbers.
    Itself(u64, &'static str),
    /// What the server named.
    Named(DirEntry),
}

impl Entry {
    /// Its name, as POSIX has it.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Itself(_, name) => (*name).to_owned(),
            Self::Named(entry) => from_wire(entry.name()),
        }
    }

    /// What it is.
    pub(crate) fn kind(&self) -> FileType {
        match self {
            Self::Itself(..) => FileType::Directory,
            Self::Named(entry) => kind_of(entry.metadata()),
        }
    }

    /// Its number, for who does not ask for more.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Itself(id, _) => *id,
            Self::Named(entry) => entry.metadata().file_id().max(2),
        }
    }
}

impl Volume {
    pub(crate) fn opendir(&self, id: u64) -> Outcome<u64> {
        let node = self.nodes.find(id)?;
        let number = self.number();
        let listing = Listing { node, entries: Mutex::new(None) };
        self.listings.lock().insert(number, Arc::new(listing));
        Ok(number)
    }

    pub(crate) fn releasedir(&self, handle: u64) {
        self.listings.lock().remove(&handle);
    }

    /// The entries of an open directory from `offset` on, each with the offset of
    /// the next one. From the beginning it is read anew.
    pub(crate) async fn entries(
        &self,
        handle: u64,
        offset: u64,
    ) -> Outcome<(Arc<Node>, Vec<(u64, Entry)>)> {
        let listing = self.listings.lock().get(&handle).cloned();
        let listing = listing.ok_or(fuser::Errno::EBADF)?;
        let known = listing.entries.lock().clone().filter(|_| offset > 0);
        let entries = match known {
            Some(entries) => entries,
            None => {
                let entries = Arc::new(self.names_in(&listing.node).await?);
                *listing.entries.lock() = Some(Arc::clone(&entries));
                entries
            }
        };
        let dots = [Entry::Itself(listing.node.id, "."), Entry::Itself(listing.node.id, "..")];
        let named = entries.iter().cloned().map(Entry::Named);
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        // No reply holds more than a few thousand.
        let some = dots.into_iter().chain(named).enumerate().skip(from).take(8192);
        let some = some.map(|(at, entry)| (at as u64 + 1, entry)).collect();
        Ok((Arc::clone(&listing.node), some))
    }

    /// All that is in a directory.
    async fn names_in(&self, node: &Node) -> Outcome<Vec<DirEntry>> {
        let mut entries =
            self.share.read_dir(&node.path()?).await.map_err(|error| errno(&error))?;
        entries.retain(|entry| !super::names::is_hidden(entry.name()));
        Ok(entries)
    }

    /// What the kernel is told of an entry. It counts as looked up.
    pub(crate) fn tell_entry(&self, parent: &Arc<Node>, name: &str, listed: Metadata) -> Told {
        let known = self.nodes.listed(parent, name, listed);
        let metadata = known.known().map_or(listed, |known| known.metadata);
        self.tell(&known, &metadata)
    }
}
