//! The server's Opens of a file, which all of its handles share.

use frevo_client::File;
use tokio::time::Instant;

/// The server's Opens of a node.
#[derive(Default)]
pub(crate) struct Opens {
    pub(crate) files: Vec<Opened>,
    /// The number of handles of programs.
    pub(crate) users: usize,
    /// Hidden names to remove when the file is closed, one for each link.
    pub(crate) hidden: Vec<String>,
    /// The time of the last close, while the file stays open without handles.
    pub(crate) kept: Option<Instant>,
}

pub(crate) struct Opened {
    /// A number that is unique among all Opens.
    pub(crate) id: u64,
    pub(crate) file: File,
    pub(crate) reads: bool,
    pub(crate) writes: bool,
}

impl Opens {
    /// Returns true if there is an Open.
    pub(crate) const fn is_open(&self) -> bool {
        !self.files.is_empty()
    }

    pub(crate) fn find(&self, reads: bool, writes: bool) -> Option<File> {
        self.best(reads, writes).map(|one| one.file.clone())
    }

    pub(crate) fn best(&self, reads: bool, writes: bool) -> Option<&Opened> {
        let fits = |one: &&Opened| (one.reads || !reads) && (one.writes || !writes);
        // An Open that can write is preferred, because byte-range locks need one.
        self.files.iter().filter(fits).max_by_key(|one| (one.writes, one.reads))
    }
}
