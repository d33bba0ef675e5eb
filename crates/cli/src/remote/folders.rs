//! Directories of this machine that the files of a tree go into.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Those that cannot be had, so that nothing is written below them.
#[derive(Debug, Default)]
pub(crate) struct Folders {
    refused: HashSet<PathBuf>,
}

impl Folders {
    /// Makes `path` in a directory that is there, unless it is a directory already. Below one
    /// that cannot be had nothing is made, and nothing more is said.
    ///
    /// # Errors
    /// [`ErrorKind::NotADirectory`] if something else is there: a link would lead what a
    /// server sends to another place than was named. Else what the host says.
    pub(crate) fn make(&mut self, path: &Path) -> io::Result<()> {
        if !self.can_have(path) {
            return Ok(());
        }
        let made = match std::fs::create_dir(path) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => is_directory(path),
            made => made,
        };
        if made.is_err() {
            self.refused.insert(path.to_owned());
        }
        made
    }

    /// Whether nothing that `path` is in was refused.
    pub(crate) fn can_have(&self, path: &Path) -> bool {
        self.refused.is_empty() || !path.ancestors().any(|above| self.refused.contains(above))
    }
}

fn is_directory(path: &Path) -> io::Result<()> {
    let there = std::fs::symlink_metadata(path)?;
    if there.is_dir() {
        return Ok(());
    }
    let what = if there.is_symlink() { "a link" } else { "a file" };
    let why = format!("{what} with this name exists; the content of the directory was skipped");
    Err(io::Error::new(ErrorKind::NotADirectory, why))
}
