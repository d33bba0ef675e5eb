//! Directories being listed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_client::DirEntry;
use fuser::FileType;
use parking_lot::Mutex;

use super::{Told, Volume};
use crate::errno::Outcome;
use crate::names::{Spelling, from_wire};
use crate::node::{Node, kind_of};

/// An open directory: what was in it when it was read from its beginning.
pub(crate) struct Listing {
    node: Arc<Node>,
    entries: Mutex<Option<(Instant, Arc<Vec<DirEntry>>)>>,
}

/// What the kernel is to be told of an open directory.
pub(crate) struct Listed {
    pub(crate) node: Arc<Node>,
    asked: Instant,
    entries: Arc<Vec<DirEntry>>,
    /// How many it has been told.
    from: usize,
}

/// One entry for the kernel.
pub(crate) enum Entry<'a> {
    /// `.` and `..`, of which it is told no more than their numbers.
    Itself(u64, &'static str),
    /// What the server named.
    Named(&'a DirEntry),
}

impl Entry<'_> {
    /// Its name, as POSIX has it.
    pub(crate) fn name(&self, spelling: Spelling) -> String {
        match self {
            Self::Itself(_, name) => (*name).to_owned(),
            Self::Named(entry) => from_wire(entry.name(), spelling),
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

impl Listed {
    /// The entries from there on, each with the offset of the next one.
    pub(crate) fn entries(&self) -> impl Iterator<Item = (u64, Entry<'_>)> {
        const DOTS: [&str; 2] = [".", ".."];
        let dots = DOTS.into_iter().skip(self.from).map(|dot| Entry::Itself(self.node.id, dot));
        let named = self.entries.get(self.from.saturating_sub(DOTS.len())..).unwrap_or_default();
        let all = dots.chain(named.iter().map(Entry::Named)).zip(self.from as u64 + 1..);
        all.map(|(entry, next)| (next, entry))
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

    /// What is in an open directory from `offset` on. From the beginning it is read
    /// anew, unless what is kept of it is good enough: for `names` alone.
    pub(crate) async fn entries(&self, handle: u64, offset: u64, names: bool) -> Outcome<Listed> {
        let listing = self.listings.lock().get(&handle).cloned();
        let listing = listing.ok_or(fuser::Errno::EBADF)?;
        let known = listing.entries.lock().clone().filter(|_| offset > 0);
        let (asked, entries) = match known {
            Some(known) => known,
            None => {
                let snapshot = self.listing(&listing.node, names).await?;
                let read = (snapshot.asked, snapshot.entries);
                *listing.entries.lock() = Some(read.clone());
                read
            }
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(Listed { node: Arc::clone(&listing.node), asked, entries, from })
    }

    /// What the kernel is told of an entry. It counts as looked up.
    pub(crate) fn tell_entry(&self, listed: &Listed, entry: &DirEntry) -> Told {
        let node = self.nodes.listed(&listed.node, entry.name(), *entry.metadata(), listed.asked);
        match node.known() {
            Some(known) if known.at >= listed.asked || self.is_fresh(known.at) => {
                self.tell_known(&node, &known)
            }
            // It has changed since: the kernel is to ask.
            _ => Told { ttl: Duration::ZERO, ..self.tell(&node, entry.metadata()) },
        }
    }
}
