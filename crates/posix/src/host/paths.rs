//! The paths of watched directories. Clients choose their lengths, so the bytes of each are counted, for the
//! account that watches and in all.

use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use frevo_store::{HostBytes, HostPlaces};

use crate::limits::{HOST_DIRECTORIES_BYTES, HOST_DIRECTORY_BYTES};

/// Bytes of all watched directories and of those that wait to be watched, in all shares.
static ALL: AtomicUsize = AtomicUsize::new(0);

/// Returns the bytes of all watched directories and of those that wait to be watched.
pub(crate) fn bytes() -> usize {
    ALL.load(Ordering::Relaxed)
}

/// A path from an observed directory, with `/` between components; empty for that directory.
#[derive(Debug)]
pub(super) struct CountedPath {
    path: Vec<u8>,
    counted: HostBytes,
}

impl CountedPath {
    /// Counts a path for an account. None if the account has no room for it.
    pub(super) fn new(path: Vec<u8>, places: &Arc<HostPlaces>) -> Option<Self> {
        let counted = places.take_bytes(with_path(&path), bytes(), HOST_DIRECTORIES_BYTES)?;
        ALL.fetch_add(counted.count(), Ordering::Relaxed);
        Some(Self { path, counted })
    }

    /// Replaces the path of a directory that was moved. False if the account has no room for the new one:
    /// then the old one stays.
    pub(super) fn replace(&mut self, path: Vec<u8>) -> bool {
        let before = self.counted.count();
        if !self.counted.resize(with_path(&path), bytes(), HOST_DIRECTORIES_BYTES) {
            return false;
        }
        ALL.fetch_add(self.counted.count(), Ordering::Relaxed);
        ALL.fetch_sub(before, Ordering::Relaxed);
        self.path = path;
        true
    }
}

/// Returns the bytes of a directory with its path.
fn with_path(path: &Vec<u8>) -> usize {
    HOST_DIRECTORY_BYTES.saturating_add(path.capacity())
}

impl Drop for CountedPath {
    fn drop(&mut self) {
        ALL.fetch_sub(self.counted.count(), Ordering::Relaxed);
    }
}

impl Deref for CountedPath {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.path
    }
}

#[cfg(test)]
impl CountedPath {
    /// Returns the bytes that are counted beside those of each directory.
    pub(super) fn path_bytes(&self) -> usize {
        self.counted.count() - HOST_DIRECTORY_BYTES
    }
}
