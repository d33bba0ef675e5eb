//! Removes partial copies that nobody continues any more.

use std::path::Path;
use std::sync::PoisonError;
use std::time::{Duration, SystemTime};

use frevo_client::Share;
use futures_util::future::join_all;

use super::super::location::join;
use super::download::lock;
use super::{CopyOptions, is_part};

/// The age of a partial copy that counts as given up.
const STALE_AFTER: Duration = Duration::from_secs(7 * 24 * 3600);
/// Most partial copies that are removed from one directory by one command.
const STALE_MAX: usize = 1_000;

/// True for a partial copy, by its path, that was not continued for a week.
pub(crate) fn is_stale(path: &str, modified: SystemTime) -> bool {
    let age = SystemTime::now().duration_since(modified);
    is_part(path) && age.is_ok_and(|age| age > STALE_AFTER)
}

impl CopyOptions {
    /// True once for each directory, by its path or URL.
    fn is_first_in(&self, directory: &str) -> bool {
        let mut all = self.cleaned.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(directory.to_owned())
    }
}

/// Removes old partial copies from the directory of a share in which a file is begun, once for each
/// directory. What cannot be listed or removed stays.
pub(super) async fn clean_remote(share: &Share, directory: &str, how: &CopyOptions) {
    if !how.is_first_in(&share.url(directory)) {
        return;
    }
    let Ok(listing) = share.read_dir(directory).await else { return };
    let mut listing = listing.matching("*.frevo-part").max_entries(STALE_MAX);
    let mut stale = Vec::new();
    while let Ok(Some(entry)) = listing.next_entry().await {
        if entry.file_type().is_file() && is_stale(entry.file_name(), entry.metadata().modified()) {
            stale.push(join(directory, entry.file_name()));
        }
    }
    join_all(stale.iter().map(|path| share.remove_file(path))).await;
}

/// Removes old partial copies from the local directory in which `file` is begun, once for each
/// directory. What another command continues just now stays.
pub(super) fn clean_local(file: &Path, how: &CopyOptions) {
    let parent = file.parent().filter(|parent| !parent.as_os_str().is_empty());
    let directory = parent.unwrap_or(Path::new("."));
    if !how.is_first_in(&directory.to_string_lossy()) {
        return;
    }
    let Ok(entries) = std::fs::read_dir(directory) else { return };
    for entry in entries.flatten() {
        let name = entry.file_name();
        let is_old = name.to_str().filter(|name| is_part(name)).is_some_and(|name| {
            let found = entry.metadata().ok().filter(std::fs::Metadata::is_file);
            found
                .and_then(|found| found.modified().ok())
                .is_some_and(|modified| is_stale(name, modified))
        });
        let is_free = || std::fs::File::open(entry.path()).is_ok_and(|part| lock(&part).is_ok());
        if is_old && is_free() {
            let _ = std::fs::remove_file(entry.path());
        }
    }
}
