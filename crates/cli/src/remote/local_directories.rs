//! Creates the local directories of a copied tree.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use super::long_path::reach;

/// Directories that could not be created: nothing is written below them.
#[derive(Debug, Default)]
pub(crate) struct LocalDirectories {
    refused: HashSet<PathBuf>,
}

impl LocalDirectories {
    /// Creates the directory `path` in an existing one, unless it exists. Below a refused
    /// directory nothing is created, without an error.
    ///
    /// # Errors
    /// [`ErrorKind::NotADirectory`] if a link or file has that name: a link would lead the
    /// server's data to another place. Else an error of the host.
    pub(crate) fn create(&mut self, path: &Path) -> io::Result<()> {
        if !self.can_have(path) {
            return Ok(());
        }
        let made = match reach(path).and_then(std::fs::create_dir) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => is_directory(path),
            made => made,
        };
        if made.is_err() {
            self.refused.insert(path.to_owned());
        }
        made
    }

    /// True when no directory above `path` was refused.
    pub(crate) fn can_have(&self, path: &Path) -> bool {
        self.refused.is_empty() || !path.ancestors().any(|above| self.refused.contains(above))
    }
}

fn is_directory(path: &Path) -> io::Result<()> {
    let there = std::fs::symlink_metadata(reach(path)?)?;
    if there.is_dir() {
        return Ok(());
    }
    let what = if there.is_symlink() { "a link" } else { "a file" };
    let why = format!("{what} with this name exists; the content of the directory was skipped");
    Err(io::Error::new(ErrorKind::NotADirectory, why))
}
