//! Listing of directories for the kernel.

use std::sync::Arc;
use std::time::{Duration, Instant};

use frevo_client::DirEntry;
use fuser::FileType;
use parking_lot::Mutex;

use super::handles::ListedEntries;
use super::{EntryReply, OpenDirectory, Volume};
use crate::errno::Outcome;
use crate::names::{Spelling, from_wire};
use crate::node::{DirectoryListing, Node, Seen, kind_of};

/// The entries of an open directory from an offset on.
pub(crate) struct DirectoryPage {
    pub(crate) node: Arc<Node>,
    asked: Instant,
    seen: Option<Seen>,
    entries: Arc<Vec<DirEntry>>,
    /// The number of entries before the offset.
    from: usize,
}

/// One entry for the kernel.
pub(crate) enum Entry<'a> {
    /// `.` or `..` with its number; other attributes are not reported.
    Itself(u64, &'static str),
    /// An entry from the server.
    Named(&'a DirEntry),
}

impl Entry<'_> {
    /// Returns the name in POSIX spelling.
    pub(crate) fn name(&self, spelling: Spelling) -> String {
        match self {
            Self::Itself(_, name) => (*name).to_owned(),
            Self::Named(entry) => from_wire(entry.file_name(), spelling),
        }
    }

    /// Returns the file type.
    pub(crate) fn kind(&self) -> FileType {
        match self {
            Self::Itself(..) => FileType::Directory,
            Self::Named(entry) => kind_of(entry.metadata()),
        }
    }

    /// Returns the number for readdir(2) without a look-up.
    pub(crate) fn number(&self) -> u64 {
        match self {
            Self::Itself(id, _) => *id,
            Self::Named(entry) => entry.metadata().file_id().max(2),
        }
    }
}

impl DirectoryPage {
    /// Returns the entries with the offset of the next one.
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
        let listing = OpenDirectory { node, entries: Mutex::new(None) };
        self.listings.lock().insert(number, Arc::new(listing));
        Ok(number)
    }

    pub(crate) fn releasedir(&self, handle: u64) {
        self.listings.lock().remove(&handle);
    }

    /// Returns the entries of an open directory from `offset` on. At offset 0 the directory is read
    /// again, unless the cache is valid for `names` alone.
    pub(crate) async fn entries(
        &self,
        handle: u64,
        offset: u64,
        names: bool,
    ) -> Outcome<DirectoryPage> {
        let listing = self.listings.lock().get(&handle).cloned();
        let listing = listing.ok_or(fuser::Errno::EBADF)?;
        let known = listing.entries.lock().clone().filter(|_| offset > 0);
        let ListedEntries { asked, seen, entries } = match known {
            Some(known) => known,
            None => {
                let snapshot = self.listing(&listing.node, names).await?;
                let DirectoryListing { asked, seen, entries, .. } = snapshot;
                let read = ListedEntries { asked, seen, entries };
                *listing.entries.lock() = Some(read.clone());
                read
            }
        };
        let from = usize::try_from(offset).unwrap_or(usize::MAX);
        Ok(DirectoryPage { node: Arc::clone(&listing.node), asked, seen, entries, from })
    }

    /// Returns the reply for an entry, and counts it as a lookup.
    pub(crate) fn reply_listed(&self, listed: &DirectoryPage, entry: &DirEntry) -> EntryReply {
        let node =
            self.nodes.listed(&listed.node, entry.file_name(), *entry.metadata(), listed.asked);
        self.promised(&listed.node, entry.file_name(), &node, listed.seen);
        match node.known() {
            Some(known) if known.at >= listed.asked || self.is_fresh(known.at) => {
                self.reply_known(&node, &known)
            }
            // The metadata has changed since it was listed, so the kernel must not cache it (TTL
            // zero).
            _ => EntryReply { ttl: Duration::ZERO, ..self.reply(&node, entry.metadata()) },
        }
    }
}
